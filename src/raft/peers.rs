//! The peer protocol: gRPC on a port of its own, and the checks of who may take part.
//!
//! # Late messages
//! TCP may deliver a message long after its sender gave up on it: on an old connection, in another term, to a peer that
//! has followed other masters since. Every message was checked for what it does then.
//!
//! | message | what a late one does | why it is safe |
//! |---|---|---|
//! | `Append` of an older vote | refused | openraft compares votes |
//! | `Append` of the current vote | renews the vote lease; entries that are there already are skipped | a vote belongs to one master, whose log only grows; a longer vote lease only delays an election |
//! | answer to `Append` | nothing | a confirmation counts for the heartbeat that asked for it, and only within two heartbeats |
//! | `Vote` | refused while a vote lease runs, or if its log or vote is older than ours; else this peer votes for a candidate that is long gone, and the next election needs one more round | a vote is a promise about the future, and breaks no lease |
//! | answer to `Vote` | may complete an election of the same term | the voters have voted for no other peer in that term, and a master lease needs a new confirmation |
//! | `Poll` | nothing: it is only answered | a pre-vote promises nothing |
//! | `Stand` | starts an election if neither vote nor log has changed since it was sent | it breaks a vote lease, so it must not count in a later master lease: see [`StandRequest`] and `transfer.rs` |
//! | `Snapshot` | a chunk of an earlier transfer starts the transfer over; a finished snapshot that is older than what is committed is ignored | chunks with a gap before them are refused (`ReceivedSnapshot`) |
//! | `Join` | a master may admit a peer that is gone as a learner, which holds up other changes for at most two minutes and is removed afterwards | a peer gets a vote only after it has caught up |
//! | `Hello` | the sender counts as alive for two leases | it decides only whom a master chooses, or refuses to replace; both are asked again before anything depends on it |
//!
//! A proposal is not sent between peers: only a master proposes, and an entry that comes after a later `BeginTerm` in
//! the log is ignored. A change of membership belongs to the master lease in which it was decided (`Members::step`). After a
//! restart a peer waits until every vote lease that it may have given has ended, and never resumes an earlier vote for
//! itself. With a secret, a message that was overtaken by a thousand others on its connection is refused as well.

mod client;
mod handshake;
mod liveness;
mod method;
mod network;
mod proof;
mod service;
mod vote_lease;

#[cfg(test)]
pub(crate) use client::Connection;
pub(crate) use client::PeerClient;
pub(crate) use handshake::Handshake;
pub(crate) use liveness::Liveness;
pub(crate) use method::Method;
pub(crate) use network::PeerNetwork;
pub(crate) use proof::Prover;
#[cfg(test)]
pub(crate) use service::ReceivedSnapshot;
pub(crate) use service::{LocalPeer, PeersService, StandRequest, start_election};
pub(crate) use vote_lease::{follows_live_master, is_free_to_vote, vote_leased_until};
