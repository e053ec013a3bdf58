//! Child nodes: the real uplink to their parents, what it brings down, and the requests that wait for that.

use std::sync::Arc;

use leaseway_core::{
    Amount, Ask, Claim, Claims, HolderKind, Millis, News, Release, Request, Supplied, Token, invariant::Violation,
};
use leaseway_engine::uplink::{Aggregate, Granted, Lent, Notice, ParentReply, UplinkEngine, UplinkInput};
use leaseway_session::{Body, Outgoing, Pace, Settings};

use super::{
    client::{given, has},
    mail::{Letter, Mail, Party, Reply, Said, Sender},
    node::peer_of,
    world::{Event, World},
};

/// Requests wait no longer for a node's first supply.
const PATIENCE: Millis = Millis(1_000);

/// What a master of a child node has besides the resource.
pub(super) struct Up {
    uplink: UplinkEngine,
    /// Requests that came before there was anything to give.
    parked: Vec<(Sender, Request)>,
    /// When it will be woken next, if that is known.
    woken_at: Option<Millis>,
}

#[cfg(feature = "planted")]
impl Up {
    /// See [`UplinkEngine::remembered`].
    pub(super) fn remembered(&self, now: Millis) -> Vec<(Arc<str>, leaseway_core::Supply)> {
        self.uplink.remembered(now)
    }
}

impl World<'_> {
    /// The uplink of a new master: it knows nothing of what its predecessor was lent, and asks for that at once.
    pub(super) fn uplink(&mut self, index: usize) -> Option<Up> {
        let parent = self.plan.tree.nodes[index].parent?;
        let seed = self.rng.u64(..);
        let settings = UplinkEngine::settings(self.nodes[parent].endpoints.clone(), seed);
        let pace = Pace { deadline: self.network.deadline(), ..settings.pace };
        let mut uplink = UplinkEngine::new(Settings { pace, ..settings });
        uplink.run(self.now, [self.asks()]);
        Some(Up { uplink, parked: Vec::new(), woken_at: None })
    }

    fn asks(&self) -> UplinkInput {
        UplinkInput::Notice(Notice::Asks(Arc::clone(&self.resource)))
    }

    /// The uplink of this life, if there still is one.
    fn up(&mut self, index: usize, life: u32) -> Option<&mut Up> {
        self.master(index, life)?.up.as_mut()
    }

    pub(super) fn wake_node(&mut self, index: usize, life: u32) {
        let now = self.now;
        if let Some(up) = self.up(index, life)
            && up.woken_at == Some(now)
        {
            up.woken_at = None;
            self.step_node(index);
        }
    }

    pub(super) fn hint_node(&mut self, index: usize) {
        let (now, hint) = (self.now, UplinkInput::Hinted(Some(vec![self.resource.to_string()])));
        if let Some(up) = self.nodes[index].master.as_mut().and_then(|master| master.up.as_mut()) {
            up.uplink.run(now, [hint]);
            self.step_node(index);
        }
    }

    pub(super) fn answer_node(&mut self, index: usize, reply: Reply) -> Result<(), Violation> {
        let (now, life, number) = (self.now, reply.life, reply.number);
        let reply = match reply.what {
            Said::Supplied(supplied) => {
                let Supplied { lease, terms, settings } = *supplied;
                let terms = if self.plan.scenario.terms { terms } else { Vec::new() };
                ParentReply::Granted(vec![Granted { given: given(&self.resource, &lease), terms, settings }])
            }
            Said::Granted(_) | Said::Nothing => ParentReply::Granted(Vec::new()),
            Said::Elsewhere(peer) => {
                let endpoint = |peer| self.nodes[reply.from].endpoints[usize::from(peer)].to_string();
                ParentReply::Elsewhere(peer.map(endpoint))
            }
        };
        let Some(master) = self.master(index, life) else { return Ok(()) };
        let Some(up) = &mut master.up else { return Ok(()) };
        let lent = up.uplink.run(now, [UplinkInput::Ended { number, reply }]).lent;
        let is_supplied = !lent.is_empty();
        for Lent { supply, settings, .. } in lent {
            master.own_end = Some(supply.until);
            master.resource.configure(settings);
            master.resource.supply(supply);
        }
        if is_supplied {
            self.unpark(index)?;
            self.look(index);
        }
        self.ask_early(index);
        self.step_node(index);
        Ok(())
    }

    /// Whether a request has to wait for the node's first supply: then it does.
    pub(super) fn park(&mut self, index: usize, from: Sender, request: &Request) -> bool {
        let (now, node) = (self.now, &mut self.nodes[index]);
        let Some(master) = node.master.as_mut().filter(|master| master.resource.awaits_supply()) else { return false };
        let Some(up) = &mut master.up else { return false };
        up.parked.push((from, request.clone()));
        self.queue.put(now.plus(PATIENCE), Event::LosePatience { node: index, life: node.life });
        true
    }

    /// Requests that have waited are served, as far as there is anything to serve them from.
    pub(super) fn unpark(&mut self, index: usize) -> Result<(), Violation> {
        let up = self.nodes[index].master.as_mut().and_then(|master| master.up.as_mut());
        let parked = up.map_or_else(Vec::new, |up| std::mem::take(&mut up.parked));
        parked.into_iter().try_for_each(|(from, request)| self.round(index, from, request))
    }

    pub(super) fn lose_patience(&mut self, index: usize, life: u32) -> Result<(), Violation> {
        if self.up(index, life).is_some() { self.unpark(index) } else { Ok(()) }
    }

    /// After anything that may have changed what is wanted or held below.
    pub(super) fn ask_early(&mut self, index: usize) {
        let (now, asks) = (self.now, self.asks());
        let Some(master) = self.nodes[index].master.as_mut().filter(|_| self.plan.scenario.push) else { return };
        if let Some(up) = &mut master.up
            && master.resource.asks_early()
        {
            up.uplink.run(now, [asks]);
            self.step_node(index);
        }
    }

    /// Sends what is to be sent, and sees when to come back.
    pub(super) fn step_node(&mut self, index: usize) {
        let (now, node) = (self.now, &mut self.nodes[index]);
        let Some(master) = &mut node.master else { return };
        let Some(up) = &mut master.up else { return };
        let mut effects = up.uplink.run(now, []);
        if let Some(due) = effects.condense {
            let condensed = due.into_iter().map(|id| (id, master.resource.condense(now))).collect();
            effects = up.uplink.run(now, [UplinkInput::Condensed(condensed)]);
        }
        if let Some(wake) = effects.wake {
            let wake = wake.max(now.plus(Millis(1)));
            if up.woken_at.is_none_or(|earlier| wake < earlier) {
                up.woken_at = Some(wake);
                self.queue.put(wake, Event::WakeNode { node: index, life: node.life });
            }
        }
        if let Some(outgoing) = effects.send {
            self.post_up(index, outgoing);
        }
    }

    fn post_up(&mut self, index: usize, outgoing: Outgoing<Aggregate>) {
        let Some(parent) = self.plan.tree.nodes[index].parent else { return };
        let (party, name) = (Party::Node(index), Arc::clone(&self.nodes[index].server_id));
        let request = match outgoing.body {
            Body::Ask(asks) => {
                let Some(ask) = asks.into_iter().next() else { return };
                let news = ask.demand.usage.map(|usage| Box::new(News { key: None, usage: Some(usage) }));
                let claims = if self.plan.scenario.slices { ask.demand.claims } else { summed(&ask.demand.claims) };
                Request::Ask(Ask {
                    kind: HolderKind::Node,
                    id: name,
                    claims,
                    has: has(ask.has),
                    outstanding: Some(ask.demand.outstanding),
                    learning: ask.demand.learning,
                    news,
                })
            }
            Body::Release(releases) => Request::Release(Release {
                kind: HolderKind::Node,
                id: name,
                token: releases.first().and_then(|release| release.token).and_then(Token::new),
            }),
        };
        let from = Sender { party, life: self.nodes[index].life, number: outgoing.number };
        self.send(Mail::Request(Box::new(Letter { from, node: parent, peer: peer_of(&outgoing.target), request })));
    }
}

/// One claim for each priority, as the original protocol has it.
fn summed(claims: &Claims) -> Claims {
    let mut bands = Claims::new();
    for claim in claims {
        match bands.last_mut().filter(|band: &&mut Claim| band.priority == claim.priority) {
            Some(band) => {
                band.wants = Amount::saturating_add(band.wants, claim.wants);
                band.subclients += claim.subclients;
            }
            None => bands.push(*claim),
        }
    }
    bands
}
