//! What the peers of a node agree on: which of them is master, and what must survive it. All of openraft is in this
//! crate.
//!
//! # What it does
//! Peers elect a master with Raft and keep [`Command`]s for it: configurations, promises, assignments. A command that
//! [`propose`](RaftHandle::propose) has acknowledged is on the disks of a majority. A [`MasterLease`] says whether this peer
//! may decide *now*; two peers never may at the same moment, however the network, processes and disks fail, as long
//! as clocks run at the same rate to within one part in a thousand.
//!
//! # How
//! A request to decide is checked against the master lease alone: an atomic load. `lease_renewal.rs` renews it. A peer that hears
//! from no master holds a pre-vote before it starts an election (`election_timer.rs`). Proposals are batched
//! (`proposals.rs`) and go through the log (`store/`) to the state machine (`machine.rs`). All of that has threads of
//! its own: callers may be on any runtime, or none.
//!
//! # What is deliberately absent
//! What the state mean; discovery of peers.

mod acknowledged;
mod advance;
mod backup;
mod bootstrap;
mod challenge;
mod codec;
mod command;
mod cow_map;
mod discovered;
mod discovery;
mod election_timer;
mod error;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod handle;
mod incoming;
mod ineligible;
mod lease_renewal;
mod leave;
mod listening;
mod machine;
mod master_lease;
mod members;
mod metrics;
mod open;
mod overrides;
mod peers;
mod peers_mismatch;
mod proposals;
mod propose_error;
mod raft;
mod report;
mod run;
mod settings;
mod state;
mod store;
mod stored;
#[cfg(test)]
mod tests;
mod transfer;

pub use backup::{BackedUpPeer, Backup, BackupCounts, BackupError, BackupHeader, PlaceError};
pub use command::{Command, Configuration};
pub use error::{ChangeError, StartError};
pub use handle::{RaftHandle, start};
pub use incoming::{Accept, Incoming, PeerConnection};
pub use ineligible::Ineligible;
pub use listening::Listening;
pub use master_lease::{MasterLease, Mastership, PeerAddress};
pub use metrics::{METRICS, begin_counters, repeat_gauges};
pub use overrides::KeptOverride;
pub use peers_mismatch::PeersMismatch;
pub use propose_error::ProposeError;
pub use report::{PeerReport, Role};
pub use run::StateOrigin;
pub use settings::{Clock, Secret, Settings, Timing, TimingError};
pub use state::State;
pub use store::{StoreError, disk::Failure};
pub use transfer::Transferred;
