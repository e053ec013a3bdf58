//! Finds the master: every server names it (Discovery).

use std::net::SocketAddr;

use leaseway_proto::doorman::{DiscoveryRequest, DiscoveryResponse, Mastership};
use tokio::{net::lookup_host, time::timeout};

use crate::{
    common::{current_thread, error::Error},
    load::{
        connection::{CONNECT_PATIENCE, Connection, Failure, Path},
        socket::Dialer,
    },
};

/// The maximum number of redirects to follow.
const HOPS_MAX: usize = 8;

/// Fails unless `target` is a Doorman server and the master.
pub(crate) fn find_master(target: SocketAddr, dialer: &Dialer) -> Result<(), Error> {
    current_thread().map_err(Error::io("start a runtime"))?.block_on(master_named_by(target, dialer)).and_then(
        |named| match named {
            Named::Itself => Ok(()),
            Named::Other(mastership) => {
                let master = mastership.master_address;
                let master = master.map_or("it does not know which is".into(), |address| format!("{address} is"));
                Err(Error::NotMaster { target, master })
            }
        },
    )
}

/// Starts from the first of `targets` that answers, and follows redirects.
pub(crate) fn follow_to_master(targets: &[SocketAddr], dialer: &Dialer) -> Result<SocketAddr, Error> {
    let runtime = current_thread().map_err(Error::io("start a runtime"))?;
    let mut last = None;
    for &target in targets {
        match runtime.block_on(follow(target, dialer)) {
            Ok(master) => return Ok(master),
            Err(error) => last = Some(error),
        }
    }
    Err(last.expect("at least one target was named"))
}

async fn follow(target: SocketAddr, dialer: &Dialer) -> Result<SocketAddr, Error> {
    let mut at = target;
    for _ in 0..HOPS_MAX {
        match master_named_by(at, dialer).await? {
            Named::Itself => return Ok(at),
            Named::Other(mastership) => match address_of(&mastership).await {
                Some(master) => at = master,
                None => {
                    return Err(Error::NotMaster { target: at, master: "it does not know which is".into() });
                }
            },
        }
    }
    Err(Error::NotMaster { target, master: format!("and {HOPS_MAX} servers named each other") })
}

pub(crate) async fn address_of(mastership: &Mastership) -> Option<SocketAddr> {
    lookup_host(mastership.master_address.as_deref()?).await.ok()?.next()
}

enum Named {
    Itself,
    Other(Mastership),
}

async fn master_named_by(target: SocketAddr, dialer: &Dialer) -> Result<Named, Error> {
    let (connection, driver) =
        Connection::open(dialer, target).await.map_err(|reason| Error::Unreachable { target, reason })?;
    let path = Path::new(dialer, target, "Discovery");
    let answer = tokio::select! {
        answer = timeout(CONNECT_PATIENCE, connection.call(&path, &DiscoveryRequest {})) => match answer {
            Ok(answer) => answer.map_err(Failure::reason),
            Err(_) => Err("no answer to Discovery".to_owned()),
        },
        ended = driver => Err(ended.err().map_or("it closed the connection".to_owned(), |error| error.to_string())),
    };
    let answer: DiscoveryResponse = answer.map_err(|reason| Error::NotDoorman { target, reason })?;
    Ok(match answer.is_master {
        Some(true) => Named::Itself,
        _ => Named::Other(answer.mastership.unwrap_or_default()),
    })
}
