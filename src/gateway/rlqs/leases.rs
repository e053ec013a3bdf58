//! The leases of an Envoy, held by a client under its name.

use std::{collections::HashMap, sync::Arc};

use leaseway_client::{BuildError, Client, OpenError, Resource, transport::BootInstant};
use leaseway_core::types::Millis;
use tokio::sync::watch;

use crate::{
    lease_table::SharePermit,
    rlqs::quotas::{Lease, Leases},
};

/// The clock for all Envoys of a gateway. Like Envoy's clock, it runs while the machine is suspended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock(BootInstant);

impl Clock {
    pub(super) fn start() -> Clock {
        Clock(BootInstant::now())
    }

    pub(super) fn now(self) -> Millis {
        Millis(u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}

/// Makes clients with the Envoy's name.
pub(super) type Clients = Box<dyn Fn() -> Result<Client, BuildError> + Send>;

pub(super) struct ClientLeases {
    client: Client,
    clients: Clients,
    changes: watch::Receiver<()>,
    clock: Clock,
    open: HashMap<Arc<str>, Open>,
}

struct Open {
    resource: Resource,
    wants: f64,
    _permit: SharePermit,
}

impl ClientLeases {
    pub(super) fn new(clients: Clients, clock: Clock) -> Result<ClientLeases, BuildError> {
        let client = clients()?;
        let changes = client.changes();
        Ok(ClientLeases { client, clients, changes, clock, open: HashMap::new() })
    }

    pub(super) fn open(&mut self, resource: &Arc<str>, wants: f64, permit: SharePermit) -> Result<(), OpenError> {
        let open = Open { resource: open(&self.client, resource, wants)?, wants, _permit: permit };
        self.open.insert(Arc::clone(resource), open);
        Ok(())
    }

    /// Replaces the client, so that earlier leases and answers are ignored. They still count in the cluster.
    pub(super) fn restart(&mut self) -> Result<(), BuildError> {
        let client = (self.clients)()?;
        std::mem::replace(&mut self.client, client).abandon();
        self.changes = self.client.changes();
        let client = &self.client;
        self.open.retain(|resource, open| match self::open(client, resource, open.wants) {
            Ok(again) => {
                open.resource = again;
                true
            }
            Err(_) => false,
        });
        Ok(())
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Waits until a lease has arrived or changed.
    pub(super) async fn changed(&mut self) {
        if self.changes.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

/// Opens a resource. At first, everything that the cluster holds for the Envoy is reported as in use.
fn open(client: &Client, resource: &Arc<str>, wants: f64) -> Result<Resource, OpenError> {
    client.resource(Arc::clone(resource)).wants(wants).in_use(f64::INFINITY).open()
}

impl Leases for ClientLeases {
    fn want(&mut self, resource: &Arc<str>, wants: f64) {
        if let Some(open) = self.open.get_mut(resource).filter(|open| open.wants != wants) {
            open.wants = wants;
            // Fails only if the client is closed.
            let _ = open.resource.set_wants(wants);
        }
    }

    fn hold(&mut self, resource: &Arc<str>, in_use: f64) -> Option<Lease> {
        let (capacity, left) = self.open.get(resource)?.resource.hold(in_use)?;
        let left = Millis(u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
        Some(Lease { capacity: capacity.get(), end: self.clock.now().plus(left) })
    }

    fn release(&mut self, resource: &Arc<str>) {
        self.open.remove(resource);
    }
}
