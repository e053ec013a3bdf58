//! The leases of an Envoy: those of a client of its name.

use std::{collections::HashMap, sync::Arc, time::Duration};

use leaseway_client::{Client, OpenError, Resource, session::grpc::Moment};
use leaseway_core::Millis;
use leaseway_envoy::{Lease, Leases};

use crate::bridge::Place;

/// Time as all Envoys of a door have it: it goes on while the machine is suspended, as theirs does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock(Moment);

impl Clock {
    pub(super) fn start() -> Clock {
        Clock(Moment::now())
    }

    pub(super) fn now(self) -> Millis {
        Millis(u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}

/// See the module.
pub(super) struct ClientLeases {
    client: Client,
    clock: Clock,
    /// What a door told that ran before under the same id, and was killed, may be believed for so long.
    former_life: Duration,
    open: HashMap<Arc<str>, Open>,
}

struct Open {
    resource: Resource,
    wants: f64,
    /// Among all that are open at this door.
    _place: Place,
}

impl ClientLeases {
    pub(super) fn new(client: Client, clock: Clock, longest_belief: Millis) -> ClientLeases {
        let former_life = Duration::from_millis(longest_belief.0);
        ClientLeases { client, clock, former_life, open: HashMap::new() }
    }

    /// Opens a resource of which nothing is wanted yet.
    pub(super) fn open(&mut self, resource: &Arc<str>, wants: f64, place: Place) -> Result<(), OpenError> {
        let builder = self.client.resource(Arc::clone(resource)).wants(wants).former_life(self.former_life);
        let open = Open { resource: builder.open()?, wants, _place: place };
        self.open.insert(Arc::clone(resource), open);
        Ok(())
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }
}

impl Leases for ClientLeases {
    fn want(&mut self, resource: &Arc<str>, wants: f64) {
        if let Some(open) = self.open.get_mut(resource).filter(|open| open.wants != wants) {
            open.wants = wants;
            // It can only be too much for a number that makes sense.
            let _ = open.resource.set_wants(wants);
        }
    }

    fn hold(&mut self, resource: &Arc<str>, in_use: f64) -> Option<Lease> {
        let (capacity, left) = self.open.get(resource)?.resource.hold(in_use)?;
        let left = Millis(u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
        Some(Lease { capacity: capacity.get(), end: self.clock.now().plus(left) })
    }

    fn give_back(&mut self, resource: &Arc<str>) {
        self.open.remove(resource);
    }
}
