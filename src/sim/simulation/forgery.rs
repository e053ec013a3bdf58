//! Forged requests under the names of others. The access policy of the core has to refuse them.

use std::sync::Arc;

use leaseway_core::{
    self as core,
    policy::access::{AccessRequest, Action, Identity, Pattern, Permissions, Policy, Rule},
    resource::{Request, invariant::Violation},
    types::{Amount, ChargedTo, Claim, Claims, HolderKind},
};

use crate::{
    network::message::{Message, Participant, RequestMessage, Sender},
    scenario::{ClientKind, plan::Plan},
    simulation::{RESOURCE, Simulation},
};

/// The permissions of each participant: it may ask only under its own names.
pub(crate) struct Access {
    clients: Vec<Permissions>,
    nodes: Vec<Permissions>,
}

impl Access {
    pub(crate) fn new(plan: &Plan) -> Access {
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
        let client = |(index, speaks): (usize, ClientKind)| match speaks {
            ClientKind::DoormanNode => rule(format!("client{index}"), Action::Lend, format!("go{index}.*/*/*")),
            _ => rule(format!("client{index}"), Action::Ask, format!("{index}.*/*/*")),
        };
        let clients = plan.tree.clients.iter().map(|place| place.kind).enumerate().map(client);
        let nodes =
            (0..plan.tree.nodes.len()).map(|node| rule(format!("node{node}"), Action::Lend, format!("{node}.0")));
        let policy = Policy::new(clients.chain(nodes).collect());
        let of = |who: String| policy.of(&Identity::named(&who).expect("it is a name"));
        Access {
            clients: (0..plan.tree.clients.len()).map(|index| of(format!("client{index}"))).collect(),
            nodes: (0..plan.tree.nodes.len()).map(|index| of(format!("node{index}"))).collect(),
        }
    }

    fn of(&self, participant: Participant) -> &Permissions {
        match participant {
            Participant::Client(index) => &self.clients[index],
            Participant::Node(index) => &self.nodes[index],
        }
    }
}

impl Simulation<'_> {
    /// Whether the policy admits a request. It must admit every request under the sender's own name.
    pub(crate) fn is_allowed(&self, message: &RequestMessage) -> Result<bool, Violation> {
        let Some(access) = &self.access else { return Ok(true) };
        let permissions = access.of(message.forged_by.unwrap_or(message.from.participant));
        match permissions.check(&AccessRequest::of(RESOURCE, &message.request)) {
            Ok(()) => Ok(true),
            Err(_) if message.forged_by.is_some() => Ok(false),
            Err(why) => Err(Violation { invariant: "the policy admits requests under own names", detail: why }),
        }
    }

    /// A random participant sends a request under the name of another one.
    pub(crate) fn forge(&mut self) {
        let (clients, nodes) = (self.clients.len(), self.nodes.len());
        let participant =
            |at: usize| if at < clients { Participant::Client(at) } else { Participant::Node(at - clients) };
        // The root has no parent to ask.
        let (victim, forger) = (self.rng.usize(0..clients + nodes), self.rng.usize(0..clients + nodes));
        let (victim, forged_by) = (participant(victim), participant(forger));
        let (kind, id, node) = match victim {
            Participant::Client(index) => {
                let client = &self.clients[index];
                let is_node = client.kind == ClientKind::DoormanNode;
                let kind = if is_node { HolderKind::Node } else { HolderKind::Client };
                (kind, Arc::clone(&client.name), self.plan.tree.clients[index].node)
            }
            Participant::Node(index) => {
                let Some(parent) = self.plan.tree.nodes[index].parent else { return };
                (HolderKind::Node, Arc::clone(&self.nodes[index].server_id), parent)
            }
        };
        if victim == forged_by {
            return;
        }
        let request = match self.rng.u8(0..3) {
            0 => Request::Release(core::resource::Release { kind, id, token: None, instance: None, spent: None }),
            asks => Request::Ask(core::resource::Ask {
                kind,
                id,
                claims: Claims::from_slice(&[Claim::of_client(Amount::clamped(f64::from(asks) * 1e6), i64::MAX)]),
                has: Some(core::lease::holder::ShownLease {
                    token: None,
                    capacity: Amount::ZERO,
                    expiry_time: i64::MAX,
                }),
                had: None,
                outstanding: Some(Amount::ZERO),
                learning: false,
                drops_late: asks == 1,
                is_gateway: false,
                instance: None,
                pool_fields: None,
                spent: None,
                groups: Vec::new(),
                charged_to: ChargedTo::default(),
            }),
        };
        // Send it to the master, or to peer 0 without one. Nobody waits for the answer.
        let peer = self.nodes[node].master.as_ref().map_or(0, |master| master.peer);
        let from = Sender { participant: victim, incarnation: u32::MAX, number: u64::MAX, stream: None };
        let forged_by = Some(forged_by);
        self.send(Message::Request(Box::new(RequestMessage { from, node, peer, request, forged_by })));
    }
}
