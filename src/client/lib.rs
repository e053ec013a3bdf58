//! The Leaseway client: leases on shared capacity, kept alive in the background, and limiters that enforce them.
//!
//! ```no_run
//! use leaseway_client::Client;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::connect("localhost:5100")?;
//!
//! // A rate: permits per second.
//! let searches = client.resource("searches").rate()?;
//! searches.wait().await?;
//!
//! // A gauge: permits in use at the same time.
//! let transactions = client.resource("transactions").gauge()?;
//! let permit = transactions.acquire().await?;
//! # drop(permit);
//! # Ok(())
//! # }
//! ```
//!
//! Capacity comes from a Leaseway (or Doorman) node as a lease: an amount and an expiry. The client renews leases
//! before they expire, finds the master among the servers of the node, and asks for the demand it observes at its
//! limiters, or for the wants that are set by hand.
//!
//! # Guarantees
//!
//! - While a lease is live, its limiter enforces it. In any period T a rate admits at most capacity·T plus the burst
//!   and the debt at the end of T. A gauge has at most as many permits in use as the capacity; permits that are in use
//!   when the capacity is cut stay valid, and the client reports them to the server.
//! - An expired lease is not used. After that the [`Mode`] decides what may be used, outside of the server's
//!   guarantees.
//! - Nothing fails because a server is unreachable. Callers keep waiting, and [`Client::health`] shows the problem.
//! - Waiting calls can be cancelled at any time, and are served first come, first served, also if they need permits of
//!   several limits.
//!
//! # Overview
//!
//! [`Client`] opens a [`Rate`], a [`Gauge`] or a plain [`Resource`]. [`Limits`] takes permits of several of them at once.
//! [`layer`] has them as `tower` middleware, [`blocking`] is for threads, and [`Balanced`] balances load across backends.
//! [`Prices`] turns usage into amounts of a [`Budget`]. The building blocks can be used on their own: [`limiter`],
//! [`demand`], [`balancer`], [`pool`], [`transport`], and [`session`], the state machine of the lease protocol.
//!
//! # Features
//!
//! - `transport` (default): everything that needs tokio and tonic. Without it the crate has [`session`] and the
//!   arithmetic of [`limiter`].

#![warn(missing_docs)]

#[cfg(feature = "transport")]
pub mod balancer;
#[cfg(feature = "transport")]
mod error;
#[cfg(feature = "transport")]
mod handles;
pub mod limiter;
#[cfg(feature = "transport")]
mod prices;
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
        budget::{Budget, BudgetReservation},
        client::{Builder, Client},
        gauge::{Gauge, Permit},
        layer,
        lease_trace::{LeaseChange, LeaseTrace},
        limits::{Cost, Limits, Permits, Quantity, Refusal, Reservations, Uncharged},
        rate::{Rate, Reservation},
        resource::Resource,
        resource_builder::ResourceBuilder,
        shared::Health,
        spender::SpendError,
    },
    prices::{ExactAmount, KnownNames, PriceError, Prices},
    transport::{BadToken, Bearer, Channel, Connection, NoConnection, Token, Transport, endpoint, tls_error},
};
#[cfg(feature = "transport")]
pub use leaseway_tls::{ClientStream, ClientTls, Credentials, Files, TlsError};
