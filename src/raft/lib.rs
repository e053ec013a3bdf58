//! Raft for the peers of a node: it elects the master, and replicates the state that must survive it.
//!
//! A node of the tree is served by one process or by several *peers*. One peer is the *master*: it alone gives leases
//! to clients. This crate elects the master and replicates the state that its successor needs. It is the only crate
//! that uses openraft.
//!
//! # The replicated log
//!
//! The peers run [Raft](https://raft.github.io/raft.pdf): a leader appends entries to a log, and an entry is committed
//! once a majority has it on disk. The log has two kinds of content:
//!
//! - The *membership*: the peers, and which of them have a vote.
//! - The *state* ([`State`]), as a sequence of [`Command`]s:
//!
//! | command | content |
//! |---|---|
//! | `Promises`, `ForgetPromises` | for each resource, the total that clients may hold, and its end |
//! | `Clock` | the cluster clock, by which promises end |
//! | `Listen` | a learning period, in which promises may be in force that the log does not have |
//! | `Configuration`, `Override` | configurations and temporary changes, set by operators |
//! | `Assignment`, `Load` | assignments in pools, and the load that protected resources can serve |
//! | `Pool`, `ForgetPool` | balances and costs of pools: losing them costs fairness, not safety |
//!
//! Single leases are not in the log. A request that stays within the promised total needs no consensus, so the log
//! grows with time and not with requests.
//!
//! [`RaftHandle::propose`] returns once a command is committed and applied. Proposals that arrive while an entry is
//! being committed share the next one (`handle/proposals.rs`).
//!
//! # The master lease
//!
//! A Raft leader that is cut off or paused does not know that another leader was elected. Raft tolerates this, because
//! such a leader cannot commit anything. But our master answers clients without asking a quorum, so it must know *now*
//! whether it is still master. It therefore holds a leader lease: a [`MasterLease`] ends after a limited time, and only
//! a quorum extends it.
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
//! The lease counts from *before* the question. A follower's *vote lease* counts from its answer and is a little
//! longer. So no other peer can be elected while the lease holds, whatever happens to messages, processes and disks, as
//! long as the rates of clocks differ by at most one part in a thousand ([`Timing`]). Checking the lease is one atomic
//! load. A lease that has lapsed never holds again: `election/master_lease.rs` begins a new one.
//!
//! Each lease has a *term*, which an entry in the log begins. Each term is higher than the one before. A proposal of an
//! earlier term is ignored when it is applied. This term is not the Raft term, which also counts elections that led to
//! no lease.
//!
//! # An example
//!
//! Peers `a`, `b` and `c`; `a` is master in term 7. According to entry 40, clients of `mysql` may hold a total of 100.
//!
//! | | event | log of a | log of b | log of c |
//! |---|---|---|---|---|
//! | 1 | a client asks for a lease that raises the total to 150: `a` proposes `Promises` | 41 | 40 | 40 |
//! | 2 | `b` has entry 41 on disk. That is a majority: the entry is committed, and `a` applies it | 41 | 41 | 40 |
//! | 3 | `propose` returns, and only now does the client get its lease | 41 | 41 | 40 |
//! | 4 | `a` proposes a total of 170, and is cut off before the others receive the entry | 42 | 41 | 40 |
//! | 5 | no quorum answers heartbeats: the lease of `a` lapses, and `a` refuses clients | 42 | 41 | 40 |
//! | 6 | the vote leases of `b` and `c` end. `c` asks for votes; `b` refuses, because `c` lacks entry 41 | 42 | 41 | 40 |
//! | 7 | `b` asks for votes, and `c` agrees. `b` appends an entry that begins term 8, and gets a master lease | 42 | 42 | 42 |
//! | 8 | `b` starts `mysql` with a total of 150, all of it unclaimed | 42 | 42 | 42 |
//! | 9 | `a` returns as a follower. Entry 42 of `b` replaces its own | 42 | 42 | 42 |
//!
//! No client got a lease under the total of 170, so losing it is safe. A proposal of term 7 that came after entry 42 of
//! `b` in the log would have no effect when it is applied, because term 8 has begun.
//!
//! # Elections and leadership transfer
//!
//! If a master dies, its followers' vote leases end, and one of them starts an election (`election/timer.rs`). First it
//! holds a pre-vote, so that a returning peer does not depose a master that all other peers follow. A restarted peer
//! first waits until every vote lease that it may have given has ended.
//!
//! A master that is about to stop transfers mastership (`membership/transfer.rs`): it ends its lease, votes for its
//! successor, and asks it to stand for election at once. The successor then ignores its vote lease, so such a request
//! must have no effect if it arrives late. `handle/service.rs` has a table of the effect of every late message.
//!
//! # Membership
//!
//! A data directory has a random identity, under which its peer is a member. `membership/bootstrap.rs` begins a cluster
//! once all peers were started with `--bootstrap`, or asks to join one. A peer that has lost its directory returns with
//! a new identity, catches up as a learner, and replaces the earlier one (`membership/members.rs`). A peer that gets no
//! heartbeats asks the others for the reason (`membership/discovery.rs`, [`Ineligible`]).
//!
//! # The data directory
//!
//! The data directory has the identity, the vote, the log and a snapshot (`log.rs`), and a *high-water mark* of the log
//! in a file of its own. A log that ends before its mark has lost entries that this peer acknowledged, and the
//! directory is refused (`log/high_water_mark.rs`). A directory that was restored from an older copy as a whole is
//! consistent, but the other peers notice the loss (`log/acknowledged.rs`).
//!
//! # Modules
//!
//! Each module uses only those above it:
//!
//! | module | |
//! |---|---|
//! | `metrics` | metrics of the crate |
//! | `log` | commands, entries and the files that keep them |
//! | `state` | the replicated state; snapshots and backups of it |
//! | `settings` | the settings of a peer |
//! | `transport` | the peer protocol: connections, proofs, handshakes |
//! | `election` | votes, elections and the master lease |
//! | `membership` | bootstrap, changes of the membership, leadership transfer, discovery |
//! | `handle` | a running peer, and the handle to it |
//!
//! A peer runs on threads of its own. Callers may use any async runtime, or blocking code.

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
    command::{Command, Configuration, Declaration, KeptOverride, LimitChanges, Listening, ProposeError},
    disk_thread::Failure,
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
    Declarations, Overriding, State,
    backup::{BackedUpPeer, Backup, BackupCounts, BackupError, BackupHeader, RestoreError},
    limits::{Limit, Limits},
    machine::Clock,
    usage::Usage,
};
