//! Asks the cluster once at the start, so that a wrong address is noticed before the first request.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use leaseway_client::Transport;
use leaseway_proto::doorman::{DiscoveryRequest, capacity_client::CapacityClient};
use tokio::time::{sleep, timeout};

use super::LeaseTable;
use crate::root_cause;

/// The time limit for the answer of a server, including the TLS handshake.
const TIMEOUT: Duration = Duration::from_secs(3);
/// A server that starts together with the gateway is not reported.
const GRACE: Duration = Duration::from_secs(2);
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// How many attempts there are between two warnings.
const QUIET_ATTEMPTS: u32 = 12;

/// Asks all servers in turn until one of them answers, and warns while none does.
pub(super) async fn run(lease_table: Weak<LeaseTable>) {
    let mut attempts = 0u32;
    loop {
        let Some((servers, transport)) = lease_table.upgrade().map(|table| {
            let options = table.options();
            (options.servers.clone(), options.transport.clone())
        }) else {
            return;
        };
        let mut failures = Vec::new();
        for server in &servers {
            match ask(&transport, server).await {
                Ok(()) => {
                    if attempts > 0 {
                        tracing::info!("the cluster answers at {server}");
                    }
                    return;
                }
                Err(why) => failures.push(format!("{server}: {why}")),
            }
        }
        let Some(lease_table) = lease_table.upgrade() else { return };
        if attempts == 1 || attempts > 0 && attempts.is_multiple_of(QUIET_ATTEMPTS) {
            let decided = if lease_table.passes_without_lease() { "allowed" } else { "denied" };
            tracing::warn!(
                "no server of the cluster answers ({}): check --server; until one answers, requests without a lease are {decided}; trying again",
                failures.join("; ")
            );
        }
        drop(lease_table);
        sleep(if attempts == 0 { GRACE } else { RETRY_DELAY }).await;
        attempts = attempts.saturating_add(1);
    }
}

async fn ask(transport: &Transport, server: &str) -> Result<(), String> {
    let connection = transport.connection(&Arc::from(server)).map_err(|error| error.to_string())?;
    let mut client = CapacityClient::new(connection.channel.clone());
    match timeout(TIMEOUT, client.discovery(DiscoveryRequest {})).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(status)) => Err(root_cause(&status)),
        Err(_) => Err(format!("no answer within {} s", TIMEOUT.as_secs())),
    }
}
