//! A gateway for quotas in the process of a server.

use std::{net::SocketAddr, time::Duration};

use leaseway_client::{ClientTls, Credentials, Transport};
use leaseway_core::PrincipalShare;
use leaseway_gateway::{
    bridge::{Bridge, BridgeOptions, WithoutLease},
    rlqs::RlqsService,
};
use leaseway_server::{GuestServices, Guests, Host, limits::Limits};

use super::tls::ListenerTls;
use crate::{error::CliError, quotas::QuotaFlags};

/// Buckets in which nothing happens for so long are given up.
const IDLE_SECS: u64 = 60;

/// Asks the server itself, where others reach it, with its certificate.
pub(super) fn guests(
    listen: SocketAddr,
    quotas: &QuotaFlags,
    tls: &ListenerTls,
    limits: &Limits,
) -> Result<Guests, CliError> {
    let mut transport = Transport::new();
    if tls.are_for_listeners() {
        transport = transport.with_tls(ClientTls::new(&Credentials::load(tls.files())?, None)?);
    }
    let options = quotas.options(listen, IDLE_SECS);
    let share = PrincipalShare::new(f64::from(limits.address_share) / 100.0).unwrap_or_default();
    let most_resources = limits.resources;
    let start = move |host: Host<'_>| {
        let bridge = Bridge::start(BridgeOptions {
            servers: vec![host.address.to_owned()],
            transport,
            id: Some(format!("{}:rlqs", host.id)),
            most_resources,
            share,
            idle: Duration::from_secs(IDLE_SECS),
            first_wait: Duration::ZERO,
            without_lease: WithoutLease::Deny,
            charged: Vec::new(),
        });
        let bridge = bridge.map_err(|error| error.to_string())?;
        let service = RlqsService::new(options, &bridge);
        let routes = service.routes();
        let farewell = Box::pin(async move {
            service.drain().await;
            bridge.close().await;
        });
        Ok(GuestServices { routes, farewell })
    };
    Ok(Guests { flag: "--rlqs", listen, start: Box::new(start) })
}
