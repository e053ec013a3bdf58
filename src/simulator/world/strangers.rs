//! Requests and releases under names of others. Whether a policy lets them in is for the core to say, as with servers.

use std::sync::Arc;

use leaseway_core::{
    self as core, Amount, ChargedTo, Claim, Claims, HolderKind, Request,
    access::{AccessRequest, Action, Identity, Pattern, Permissions, Policy, Rule},
    invariant::Violation,
};

use crate::{
    message::{Message, Party, RequestMessage, Sender},
    plan::Plan,
    scenario::Speaks,
    world::{RESOURCE, World},
};

/// What each may do: ask under its own names.
pub(super) struct Access {
    clients: Vec<Permissions>,
    nodes: Vec<Permissions>,
}

impl Access {
    pub(super) fn new(plan: &Plan) -> Access {
        let pattern = |text: String| vec![Pattern::new(&text).expect("names have no braces")];
        let rule = |who: String, may, name: String| Rule {
            name: who.clone(),
            who: pattern(who),
            may: [may].into_iter().collect(),
            resources: pattern("*".into()),
            clients: pattern(name.clone()),
            nodes: pattern(name),
            max_priority: None,
        };
        let client = |(index, speaks): (usize, Speaks)| match speaks {
            Speaks::DoormanNode => rule(format!("client{index}"), Action::Lend, format!("go{index}.*")),
            _ => rule(format!("client{index}"), Action::Ask, format!("{index}.*")),
        };
        let clients = plan.tree.clients.iter().map(|place| place.speaks).enumerate().map(client);
        let nodes =
            (0..plan.tree.nodes.len()).map(|node| rule(format!("node{node}"), Action::Lend, format!("{node}.0")));
        let policy = Policy::new(clients.chain(nodes).collect());
        let of = |who: String| policy.of(&Identity::named(&who).expect("it is a name"));
        Access {
            clients: (0..plan.tree.clients.len()).map(|index| of(format!("client{index}"))).collect(),
            nodes: (0..plan.tree.nodes.len()).map(|index| of(format!("node{index}"))).collect(),
        }
    }

    fn of(&self, party: Party) -> &Permissions {
        match party {
            Party::Client(index) => &self.clients[index],
            Party::Node(index) => &self.nodes[index],
        }
    }
}

impl World<'_> {
    /// Whether a node hears a request at all. What each asks for itself it may.
    pub(super) fn is_allowed(&self, message: &RequestMessage) -> Result<bool, Violation> {
        let Some(access) = &self.access else { return Ok(true) };
        let permissions = access.of(message.forged_by.unwrap_or(message.from.party));
        match permissions.check(&AccessRequest::of(RESOURCE, &message.request)) {
            Ok(()) => Ok(true),
            Err(_) if message.forged_by.is_some() => Ok(false),
            Err(why) => Err(Violation { invariant: "all may ask under their own names", detail: why }),
        }
    }

    /// Another party, with a name of its own, says something in the name of one that is alive.
    pub(super) fn forge(&mut self) {
        let (clients, nodes) = (self.clients.len(), self.nodes.len());
        let party = |at: usize| if at < clients { Party::Client(at) } else { Party::Node(at - clients) };
        // The root asks no parent.
        let (victim, forger) = (self.rng.usize(0..clients + nodes), self.rng.usize(0..clients + nodes));
        let (victim, forged_by) = (party(victim), party(forger));
        let (kind, id, node) = match victim {
            Party::Client(index) => {
                let client = &self.clients[index];
                let is_node = client.speaks == Speaks::DoormanNode;
                let kind = if is_node { HolderKind::Node } else { HolderKind::Client };
                (kind, Arc::clone(&client.name), self.plan.tree.clients[index].node)
            }
            Party::Node(index) => {
                let Some(parent) = self.plan.tree.nodes[index].parent else { return };
                (HolderKind::Node, Arc::clone(&self.nodes[index].server_id), parent)
            }
        };
        if victim == forged_by {
            return;
        }
        let request = match self.rng.u8(0..3) {
            0 => Request::Release(core::Release { kind, id, token: None, instance: None }),
            asks => Request::Ask(core::Ask {
                kind,
                id,
                claims: Claims::from_slice(&[Claim::of_client(Amount::clamped(f64::from(asks) * 1e6), i64::MAX)]),
                has: Some(core::Has { token: None, capacity: Amount::ZERO, expiry_time: i64::MAX }),
                had: None,
                outstanding: Some(Amount::ZERO),
                learning: false,
                drops_late: asks == 1,
                is_gateway: false,
                instance: None,
                news: None,
                charged_to: ChargedTo::default(),
            }),
        };
        // The master, if there is one; what it answers is awaited by none.
        let peer = self.nodes[node].master.as_ref().map_or(0, |master| master.peer);
        let from = Sender { party: victim, incarnation: u32::MAX, number: u64::MAX };
        let forged_by = Some(forged_by);
        self.send(Message::Request(Box::new(RequestMessage { from, node, peer, request, forged_by })));
    }
}
