//! Which server is the master? Any of them knows, and says so.

use std::net::SocketAddr;

use leaseway_proto::doorman::{DiscoveryRequest, DiscoveryResponse, Mastership};
use tokio::{net::lookup_host, time::timeout};

use super::{
    connection::{CONNECT_PATIENCE, Connection, Path},
    current_thread,
};
use crate::error::Error;

/// Servers that name each other in a circle are not followed longer than this.
const HOPS_MAX: usize = 8;

/// Fails unless a Doorman server answers at `target` and is the master.
pub(crate) fn find_master(target: SocketAddr) -> Result<(), Error> {
    current_thread()?.block_on(master_named_by(target)).and_then(|named| match named {
        Named::Itself => Ok(()),
        Named::Other(mastership) => {
            let master = mastership.master_address;
            let master = master.map_or("it does not know which is".into(), |address| format!("{address} is"));
            Err(Error::NotMaster { target, master })
        }
    })
}

/// The master, starting from the first of `targets` that answers, and going where servers say.
pub(crate) fn follow_to_master(targets: &[SocketAddr]) -> Result<SocketAddr, Error> {
    let runtime = current_thread()?;
    let mut last = None;
    for &target in targets {
        match runtime.block_on(follow(target)) {
            Ok(master) => return Ok(master),
            Err(error) => last = Some(error),
        }
    }
    Err(last.expect("at least one target was named"))
}

async fn follow(target: SocketAddr) -> Result<SocketAddr, Error> {
    let mut at = target;
    for _ in 0..HOPS_MAX {
        match master_named_by(at).await? {
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

/// Where that is, if it says so.
pub(crate) async fn address_of(mastership: &Mastership) -> Option<SocketAddr> {
    lookup_host(mastership.master_address.as_deref()?).await.ok()?.next()
}

enum Named {
    Itself,
    Other(Mastership),
}

async fn master_named_by(target: SocketAddr) -> Result<Named, Error> {
    match discover(target).await {
        Ok(answer) if answer.is_master == Some(true) => Ok(Named::Itself),
        Ok(answer) => Ok(Named::Other(answer.mastership.unwrap_or_default())),
        Err(DiscoverError::Unreachable(reason)) => Err(Error::Unreachable { target, reason }),
        Err(DiscoverError::NotDoorman(reason)) => Err(Error::NotDoorman { target, reason }),
    }
}

/// Which is the master? Also the way to see whether a Doorman server is there at all.
async fn discover(target: SocketAddr) -> Result<DiscoveryResponse, DiscoverError> {
    let (connection, driver) = Connection::open(target).await.map_err(DiscoverError::Unreachable)?;
    let path = Path::new(target, "Discovery");
    let call = connection.call(&path, &DiscoveryRequest {});
    tokio::select! {
        answer = timeout(CONNECT_PATIENCE, call) => match answer {
            Ok(answer) => answer.map_err(|failure| DiscoverError::NotDoorman(failure.reason())),
            Err(_) => Err(DiscoverError::NotDoorman("no answer to Discovery".into())),
        },
        ended = driver => match ended {
            Ok(()) => Err(DiscoverError::NotDoorman("it closed the connection".into())),
            Err(error) => Err(DiscoverError::NotDoorman(error.to_string())),
        },
    }
}

enum DiscoverError {
    Unreachable(String),
    NotDoorman(String),
}
