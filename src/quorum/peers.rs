//! The peer protocol: gRPC on a port of its own, and the checks of who may take part.

mod call;
mod contacts;
mod introduction;
mod method;
mod network;
mod proof;
mod service;
mod vote_lease;

pub(crate) use call::Calls;
#[cfg(test)]
pub(crate) use call::Connection;
pub(crate) use contacts::Contacts;
pub(crate) use introduction::Introducer;
pub(crate) use method::Call;
pub(crate) use network::PeerNetwork;
pub(crate) use proof::Prover;
pub(crate) use service::{LocalPeer, PeersService, start_election};
pub(crate) use vote_lease::{follows_live_master, is_free_to_vote, vote_leased_until};
