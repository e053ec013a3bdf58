//! The peer protocol: gRPC on a port of its own, and the checks of who may take part.

mod call;
mod connection;
mod contacts;
mod introduction;
mod network;
mod proof;
mod service;
mod vote_lease;

#[cfg(test)]
pub(crate) use call::Connection;
pub(crate) use call::{Call, Calls};
pub(crate) use connection::in_the_clear;
pub use connection::{Accept, Incoming, PeerConnection};
pub(crate) use contacts::Contacts;
pub(crate) use introduction::Introducer;
pub(crate) use network::PeerNetwork;
pub(crate) use proof::Prover;
pub(crate) use service::{LocalPeer, PeersService, start_election};
pub(crate) use vote_lease::{follows_live_master, is_free_to_vote, vote_leased_until};
