//! Real clients of the client library, many of them in this process.

use leaseway_client::{Basis, Client, Resource, Transport};
use tokio::task::JoinSet;

use crate::error::Error;

/// How many clients give their leases back at the same time.
const LEAVING: usize = 64;

/// Clients, each with a lease of one resource.
pub(crate) struct LibraryClients {
    pub(crate) clients: Vec<Client>,
    pub(crate) resources: Vec<Resource>,
    /// Opens a connection for about every forty clients.
    transport: Transport,
    seed: u64,
}

impl LibraryClients {
    pub(crate) fn new(transport: Transport, seed: u64) -> LibraryClients {
        LibraryClients { clients: Vec::new(), resources: Vec::new(), transport, seed }
    }

    /// One more, as `builder` says.
    pub(crate) fn join(
        &mut self,
        builder: leaseway_client::Builder,
        resource: &str,
        wants: f64,
    ) -> Result<&Client, Error> {
        let seed = self.seed.wrapping_add(self.clients.len() as u64);
        let client = builder.transport(&self.transport).seed(seed).build().map_err(Error::usage)?;
        self.resources.push(client.resource(resource).wants(wants).open().map_err(Error::usage)?);
        self.clients.push(client);
        Ok(&self.clients[self.clients.len() - 1])
    }

    pub(crate) fn len(&self) -> usize {
        self.clients.len()
    }

    /// How many have leases.
    pub(crate) fn leased(&self) -> usize {
        self.resources.iter().filter(|resource| has_lease(resource)).count()
    }

    /// Why the first that has none has none.
    pub(crate) fn complaint(&self) -> String {
        let without = self.resources.iter().zip(&self.clients).find(|(resource, _)| !has_lease(resource));
        without.and_then(|(_, client)| client.health().last_error).unwrap_or_else(|| "no error".into())
    }

    pub(crate) fn want(&self, client: usize, wants: f64) -> Result<(), Error> {
        self.resources[client].set_wants(wants).map_err(Error::usage)
    }

    /// Every client gives back all it has.
    pub(crate) async fn leave(&self) {
        let mut leaving = JoinSet::new();
        for client in &self.clients {
            if leaving.len() >= LEAVING {
                leaving.join_next().await;
            }
            let client = client.clone();
            leaving.spawn(async move { client.close().await });
        }
        leaving.join_all().await;
    }
}

pub(crate) fn has_lease(resource: &Resource) -> bool {
    resource.usable().basis == Basis::Lease
}
