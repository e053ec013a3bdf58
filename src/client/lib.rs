//! The Leaseway client: a share of something limited, kept up to date in the background, and limiters that keep to it.
//!
//! ```no_run
//! use leaseway_client::Client;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::connect("localhost:5100")?;
//!
//! // A rate: so many per second.
//! let searches = client.resource("searches").rate()?;
//! searches.wait().await?;
//!
//! // A gauge: so many at the same time.
//! let transactions = client.resource("transactions").gauge()?;
//! let permit = transactions.acquire().await?;
//! # drop(permit);
//! # Ok(())
//! # }
//! ```
//!
//! How much there is to use comes from a Leaseway (or Doorman) node, as a lease: a capacity, and until when. The client
//! asks again before it ends, finds the master among the servers of the node, and asks for as much as passes and waits
//! at its limiters, or for what it is told to.
//!
//! # What it promises
//!
//! - While leases can be had, a limiter lets pass no more than the lease allows: over any time T at most capacity·T and
//!   a burst, and what it owes at the end of it; permits never more than the capacity, except those that were out when
//!   it was cut, which the server is told.
//! - A lease ends when it ends. Then the [`Mode`] decides what is used; that is outside what the server promises.
//! - Nothing here fails because a server is away. What waits goes on waiting; [`Client::health`] says what is going on.
//! - Calls that wait can be given up at any time, and are served first come, first served.
//!
//! # What is where
//!
//! [`Client`] opens a [`Rate`], a [`Gauge`] or a bare [`Resource`]; [`layer`] has both as `tower` middleware;
//! [`blocking`] is for threads; [`Balanced`] chooses among several backends. The parts can be used on their own:
//! [`limiter`], [`demand`], [`balancer`], [`pool`] (what is told of use), and [`session`], the pure state machine that
//! decides what to send and what still counts.

#![warn(missing_docs)]

#[cfg(feature = "transport")]
pub mod balancer;
#[cfg(feature = "transport")]
mod error;
#[cfg(feature = "transport")]
mod handles;
pub mod limiter;
pub mod session;
#[cfg(feature = "transport")]
pub mod transport;

pub use limiter::{Window, demand};
pub use session::{
    Basis, Capacity, Mode, Usable, Wants,
    pool::{self, PoolStanding, PoolState, Usage, UsageCounters},
};

#[cfg(feature = "transport")]
pub use self::{
    error::{BadId, BuildError, NotReady, OpenError},
    handles::{
        balanced::Balanced,
        blocking,
        book::{Book, Entry},
        client::{Builder, Client},
        gauge::{Gauge, Permit},
        health::Health,
        layer,
        rate::{Rate, Reservation},
        resource::Resource,
        resource_builder::ResourceBuilder,
    },
    transport::{BadToken, Bearer, Channel, Connection, NoConnection, Token, Transport, endpoint, tls_error},
};
#[cfg(feature = "transport")]
pub use leaseway_tls::{ClientStream, ClientTls, Credentials, Files, TlsError};
