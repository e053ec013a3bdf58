//! The peers of a node: which of them is master, and what the next master has to know.
//!
//! A node of the tree is served by one process or by several *peers*. One peer is the *master*: it alone gives leases
//! to clients. This crate elects it and replicates the little that must survive it. All of openraft is here.
//!
//! # Raft, for membership and few commands
//!
//! The peers run [Raft](https://raft.github.io/raft.pdf) (openraft): a leader appends entries to a log, and an entry is
//! committed once a majority has it on disk. Raft keeps two things here:
//!
//! - The *membership*: which peers there are, and which of them have a vote.
//! - The *state*: what committed [`Command`]s add up to ([`State`]):
//!
//! | command | what the next master knows by it |
//! |---|---|
//! | `Promises`, `ForgetPromises` | for each resource, the total that clients may hold, and until when |
//! | `Clock` | the cluster clock, by which promises end |
//! | `Listen` | that promises may be in force which the log does not have |
//! | `Configuration`, `Override` | what operators have put in force |
//! | `Assignment`, `Load` | what operators have assigned in pools, and what protected resources can serve |
//! | `Pool`, `ForgetPool` | balances and costs of pools: losing them costs fairness, not safety |
//!
//! Single leases are not in the log. A request that stays within its promise costs no consensus at all, so the log
//! grows with time and not with requests.
//!
//! [`RaftHandle::propose`] returns once a command is committed and applied. Proposals that arrive while an entry is
//! under way share the next (`handle/proposals.rs`).
//!
//! # The master lease
//!
//! A Raft leader that is cut off or paused does not know that another was elected. For a log that is harmless, because
//! nothing gets committed. But our master answers clients without asking anybody, so it has to know *now* whether it is
//! still master. This is a leader lease: a [`MasterLease`] holds only for a time, and only a quorum extends it.
//!
//! ```text
//!                 heartbeat               heartbeat               heartbeat
//!   leader     ──────┬───────────────────────┬───────────────────────┬──────────────── time
//!                    │ "am I the leader?"    │                       │  (no answers)
//!   quorum           └──> "yes": votes are   └──> "yes"              └──x
//!                         leased to it
//!   lease            ├────── holds ──────────┼────── holds ──────────────────┤ lapsed
//!   vote leases          ├───────────────────────────────────────────────────────┤ election possible
//! ```
//!
//! The lease counts from *before* the question; a follower's *vote lease* counts from its answer and is a little
//! longer. So no other peer can be elected while the lease holds, however messages, processes and disks fail, as long
//! as clocks run at the same rate to within one part in a thousand ([`Timing`]). Checking the lease is one atomic load.
//! A lease that has lapsed never comes back: `election/lease_renewal.rs` begins a new one.
//!
//! Each lease has a *term*: an entry in the log begins it, and counts up. Whatever is proposed under an earlier term is
//! ignored when it is applied, whenever it arrives. This term is not the Raft term: Raft counts elections, also those
//! that led to no lease.
//!
//! # Elections and leadership transfer
//!
//! If a master dies, its followers' vote leases end, and one of them starts an election (`election/timer.rs`). First it
//! holds a pre-vote, so that a peer that returns after having been cut off does not depose a master that everybody else
//! hears. A peer that was restarted waits until every vote lease that it may have given has ended.
//!
//! A master that is about to stop transfers mastership (`membership/transfer.rs`): it ends its lease, votes for its
//! successor, and asks it to stand for election at once. That breaks the successor's vote lease, so such a request must
//! not count if it arrives an hour late. `handle/service.rs` has a table of what every message does if it is late.
//!
//! # Peers come and go
//!
//! A peer is a data directory: it has a random identity that was created with it. `membership/bootstrap.rs` begins a
//! cluster once all peers were started with `--bootstrap`, or asks to join one. A peer that has lost its directory
//! comes back with a new identity, catches up as a learner, and takes the place of the earlier one
//! (`membership/members.rs`). A peer that nobody talks to finds out why (`membership/discovery.rs`, [`Ineligible`]).
//!
//! # What a peer keeps on disk
//!
//! Identity, vote, log and snapshot (`log.rs`), and the *mark*: a high-water mark of the log in a file of its own. A
//! peer whose log ends before its mark has lost what it acknowledged, and is refused (`log/high_water_mark.rs`). A whole
//! directory that was restored from an older copy looks intact to itself; the other peers notice it
//! (`log/acknowledged.rs`).
//!
//! # Modules
//!
//! Each module uses only those above it:
//!
//! | module | |
//! |---|---|
//! | `metrics` | what the crate counts |
//! | `log` | commands, entries and the files that keep them |
//! | `state` | what the log adds up to; snapshots and backups of it |
//! | `settings` | what a peer is started with |
//! | `transport` | the peer protocol: connections, proofs, handshakes |
//! | `election` | votes, elections and the master lease |
//! | `membership` | bootstrap, changes of the membership, leadership transfer, discovery |
//! | `handle` | a running peer, and the handle that the server has to it |
//!
//! A peer has threads of its own. Callers may be on any runtime, or on none.

mod election;
mod handle;
mod log;
mod membership;
mod metrics;
mod settings;
mod state;
#[cfg(test)]
mod tests;
mod transport;

pub use election::master_lease::{MasterLease, Mastership, PeerAddress};
pub use handle::{RaftHandle, open::StartError, peer::StateOrigin, start};
pub use log::{
    StoreError,
    command::{Command, Configuration, KeptOverride, Listening, ProposeError},
    disk::Failure,
};
pub use membership::{
    ineligible::Ineligible,
    members::ChangeError,
    peers_mismatch::PeersMismatch,
    report::{PeerReport, Role},
    transfer::Transferred,
};
pub use metrics::{METRICS, begin_counters, repeat_gauges};
pub use settings::{
    Accept, Incoming, PeerConnection, Secret, Settings,
    timing::{Timing, TimingError},
};
#[cfg(feature = "fuzzing")]
pub use state::fuzzing;
pub use state::{
    State,
    backup::{BackedUpPeer, Backup, BackupCounts, BackupError, BackupHeader, PlaceError},
    machine::Clock,
};
