//! A [`Session`] of real clients, which refresh their leases in the background.

use std::{collections::BTreeMap, time::Duration};

use leaseway_client::{Basis, Client, Resource, Transport};
use leaseway_core::types::Amount;
use leaseway_proto::status;

use super::{Held, Observer, Session};
use crate::{connect::Target, error::CliError};

/// How long to wait for an answer after a change of `wants`. An answer with the same capacity wakes no watcher.
const CHANGE_TIMEOUT: Duration = Duration::from_millis(300);

pub(crate) struct ShellClients {
    servers: Vec<String>,
    patience: Duration,
    transport: Transport,
    clients: BTreeMap<String, Client>,
    /// Keyed by client and resource.
    held: BTreeMap<(String, String), Resource>,
    observer: Observer,
}

impl ShellClients {
    pub(crate) fn new(target: Target) -> Result<ShellClients, CliError> {
        Ok(ShellClients {
            servers: target.addresses(),
            patience: target.timeout(),
            transport: target.transport()?,
            clients: BTreeMap::new(),
            held: BTreeMap::new(),
            observer: Observer::new(target),
        })
    }

    fn client(&mut self, id: &str) -> Result<&Client, CliError> {
        if !self.clients.contains_key(id) {
            let builder = Client::builder().endpoints(&self.servers).id(id).transport(&self.transport);
            let client =
                builder.deadline(self.patience).build().map_err(|error| CliError::Client(error.to_string()))?;
            self.clients.insert(id.to_owned(), client);
        }
        Ok(&self.clients[id])
    }

    /// Waits for the first lease from any server.
    async fn first_lease(&self, client: &str, resource: &Resource) -> Result<(), CliError> {
        let mut watch = resource.watch();
        let leased = watch.wait_for(|usable| usable.basis == Basis::Lease);
        if let Ok(Ok(_)) = tokio::time::timeout(self.patience, leased).await {
            return Ok(());
        }
        let why = self.clients[client].health().last_error.unwrap_or_else(|| "no answer".to_owned());
        Err(CliError::NotYet { why })
    }
}

impl Session for ShellClients {
    async fn get(&mut self, client: &str, resource: &str, wants: Amount) -> Result<(), CliError> {
        let key = (client.to_owned(), resource.to_owned());
        if let Some(held) = self.held.get(&key) {
            let mut watch = held.watch();
            held.set_wants(wants.get()).map_err(|error| CliError::Client(error.to_string()))?;
            // A timeout means that the capacity has not changed.
            let _ = tokio::time::timeout(CHANGE_TIMEOUT, watch.changed()).await;
            return Ok(());
        }
        let opened = self.client(client)?.resource(resource).wants(wants.get()).open();
        let opened = opened.map_err(|error| CliError::Client(error.to_string()))?;
        let outcome = self.first_lease(client, &opened).await;
        // The client keeps trying, so the resource counts as held and can be released.
        self.held.insert(key, opened);
        outcome
    }

    async fn release(&mut self, client: &str, resource: &str) -> Result<bool, CliError> {
        let Some(held) = self.held.remove(&(client.to_owned(), resource.to_owned())) else { return Ok(false) };
        drop(held);
        let others = self.held.keys().any(|(other, _)| other == client);
        if !others && let Some(client) = self.clients.remove(client) {
            client.close().await;
        }
        Ok(true)
    }

    fn held(&self) -> Vec<Held> {
        let held = self.held.iter().map(|((client, resource), held)| Held {
            resource: resource.clone(),
            client: client.clone(),
            capacity: held.capacity().get(),
            left: held.lease().map(|(_, left)| left),
        });
        held.collect()
    }

    fn masters(&self) -> Vec<(String, String)> {
        self.clients.iter().map(|(id, client)| (id.clone(), client.health().server)).collect()
    }

    async fn resource(&mut self, resource: &str) -> Result<status::Resource, CliError> {
        self.observer.resource(resource).await
    }

    async fn close(self) -> Result<(), CliError> {
        for client in self.clients.values() {
            client.close().await;
        }
        Ok(())
    }
}
