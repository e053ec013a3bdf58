//! Events of the uplinks of child nodes.

use std::sync::Arc;

use leaseway_client::session::{Body, Outgoing, Pace, Settings};
use leaseway_core::{
    pool::PoolFields,
    resource::{Ask, NodeInstance, Release, Request, Spent, Supplied, invariant::Violation},
    types::{Amount, ChargedTo, Claim, Claims, HolderKind, Millis, Token},
};
use leaseway_uplink::{Aggregate, Granted, NewSupply, Notice, ParentReply, UplinkEngine, UplinkInput};

use crate::{
    network::message::{Message, Participant, Reply, ReplyBody, RequestMessage, Sender, given, has},
    node::{Master, Uplink, peer_of},
    simulation::{Event, Simulation},
};

impl Simulation<'_> {
    /// The uplink of a new master. It does not know the supply of its predecessor, so it asks its parent immediately.
    pub(crate) fn uplink(&mut self, index: usize) -> Option<Uplink> {
        let parent = self.plan.tree.nodes[index].parent?;
        let seed = self.rng.u64(..);
        let settings = UplinkEngine::settings(self.nodes[parent].endpoints.clone(), seed);
        let pace = Pace { deadline: self.network.deadline(), ..settings.pace };
        let mut engine = UplinkEngine::new(Settings { pace, ..settings });
        engine.run(self.now, [self.asks()]);
        Some(Uplink { engine, woken_at: None })
    }

    fn asks(&self) -> UplinkInput {
        UplinkInput::Notice(Notice::AskSoon(Arc::clone(&self.resource)))
    }

    pub(crate) fn wake_uplink(&mut self, index: usize, incarnation: u32) {
        let now = self.now;
        if let Some(uplink) = self.nodes[index].master_of(incarnation).and_then(|master| master.uplink.as_mut())
            && uplink.woken_at == Some(now)
        {
            uplink.woken_at = None;
            self.step_uplink(index);
        }
    }

    pub(crate) fn hint_node(&mut self, index: usize) {
        let hint = UplinkInput::Hinted(Some(vec![self.resource.to_string()]));
        self.tell_uplink(index, hint);
    }

    pub(crate) fn ask_parent(&mut self, index: usize) {
        self.tell_uplink(index, self.asks());
    }

    fn tell_uplink(&mut self, index: usize, input: UplinkInput) {
        let now = self.now;
        if let Some(uplink) = self.nodes[index].master.as_mut().and_then(|master| master.uplink.as_mut()) {
            uplink.engine.run(now, [input]);
            self.step_uplink(index);
        }
    }

    pub(crate) fn answer_node(&mut self, index: usize, reply: Reply) -> Result<(), Violation> {
        let (now, incarnation, number) = (self.now, reply.incarnation, reply.number);
        let reply = match reply.what {
            ReplyBody::Supplied(supplied) => {
                let Supplied { lease, terms, groups, settings } = *supplied;
                let (terms, groups) = if self.plan.scenario.terms { (terms, groups) } else { Default::default() };
                ParentReply::Granted(vec![Granted {
                    given: given(&self.resource, &lease),
                    terms,
                    groups,
                    settings: (*settings).clone(),
                }])
            }
            ReplyBody::Granted(_) | ReplyBody::Stream(_) | ReplyBody::Nothing => ParentReply::Granted(Vec::new()),
            ReplyBody::Redirect(peer) => {
                let endpoint = |peer| self.nodes[reply.from].endpoints[usize::from(peer)].to_string();
                ParentReply::Redirected(peer.map(endpoint))
            }
        };
        let Some(master) = self.nodes[index].master_of(incarnation) else { return Ok(()) };
        let Some(uplink) = &mut master.uplink else { return Ok(()) };
        let supplies = uplink.engine.run(now, [UplinkInput::RequestEnded { number, reply }]).supplies;
        for NewSupply { supply, settings, .. } in supplies {
            self.nodes[index].lent_until(supply.until);
            self.input(index, |engine, moment, buffers| {
                engine.supply(moment, supply, settings, &mut buffers.batch, &mut buffers.effects);
            })?;
        }
        self.step_uplink(index);
        Ok(())
    }

    /// Polls the uplink: sends its request and schedules its wake-up.
    pub(crate) fn step_uplink(&mut self, index: usize) {
        let (now, clock, node) = (self.now, self.clock(), &mut self.nodes[index]);
        let Some(Master { engine, environment, uplink: Some(uplink), .. }) = &mut node.master else { return };
        let mut effects = uplink.engine.run(now, []);
        if let Some(due) = effects.summarize {
            let summary = due.into_iter().filter_map(|id| Some((id, engine.summarize(environment.moment(clock))?)));
            effects = uplink.engine.run(now, [UplinkInput::Summaries(summary.collect())]);
        }
        if let Some(wake) = effects.wake {
            let wake = wake.max(now.plus(Millis(1)));
            if uplink.woken_at.is_none_or(|earlier| wake < earlier) {
                uplink.woken_at = Some(wake);
                self.queue.put(wake, Event::WakeUplink { node: index, incarnation: node.incarnation });
            }
        }
        if let Some(outgoing) = effects.send {
            self.send_upstream(index, outgoing);
        }
    }

    fn send_upstream(&mut self, index: usize, outgoing: Outgoing<Aggregate>) {
        let Some(parent) = self.plan.tree.nodes[index].parent else { return };
        let (participant, name) = (Participant::Node(index), Arc::clone(&self.nodes[index].server_id));
        let instance = NodeInstance::new(index as u64 + 1, self.nodes[index].incarnation.into());
        let instance = instance.filter(|_| self.plan.spec(index).sends_instance);
        let request = match outgoing.body {
            Body::Ask(asks) => {
                let Some(ask) = asks.into_iter().next() else { return };
                let pool_fields = ask.demand.usage.map(|usage| Box::new(PoolFields { key: None, usage: Some(usage) }));
                let (amount, period) = (ask.demand.outstanding, ask.demand.period.unwrap_or_default());
                let spent = Some(Box::new(Spent { amount, period, ..Spent::default() }));
                let (mut claims, mut groups) = (ask.demand.claims, ask.demand.groups);
                if !self.plan.scenario.slices {
                    claims = summed(&claims);
                    groups.iter_mut().for_each(|group| group.claims = summed(&group.claims));
                }
                Request::Ask(Ask {
                    kind: HolderKind::Node,
                    id: name,
                    claims,
                    has: has(ask.has),
                    had: has(ask.had),
                    outstanding: Some(ask.demand.outstanding),
                    learning: ask.demand.learning,
                    drops_late: true,
                    is_gateway: false,
                    instance,
                    pool_fields,
                    spent,
                    groups,
                    charged_to: ChargedTo::default(),
                })
            }
            // No parent offers streams to nodes.
            Body::Stream(_) => return,
            Body::Release(releases) => Request::Release(Release {
                kind: HolderKind::Node,
                id: name,
                token: releases.first().and_then(|release| release.token).and_then(Token::new),
                instance,
                spent: None,
            }),
        };
        let from =
            Sender { participant, incarnation: self.nodes[index].incarnation, number: outgoing.number, stream: None };
        self.send(Message::Request(Box::new(RequestMessage {
            from,
            node: parent,
            peer: peer_of(&outgoing.target),
            request,
            forged_by: None,
        })));
    }
}

/// Sums up claims by priority, as in the original protocol.
fn summed(claims: &Claims) -> Claims {
    let mut bands = Claims::new();
    for claim in claims.iter().filter(|claim| !claim.is_minimum) {
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
