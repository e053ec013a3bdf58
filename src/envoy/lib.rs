//! Envoys that report what they let through, and are assigned what they may (RLQS): what a gateway decides.
//!
//! Time, reports and leases are arguments, and buckets have names of any kind. Deliberately absent: streams, messages
//! and tasks, which are the gateway's, and how leases are had.

mod beliefs;
mod machine;
mod offered;
mod quota;

pub use self::{
    beliefs::TRANSIT,
    machine::{Action, Bucket, Envoy, EnvoySettings, Lease, Leases, STAYS, stays},
    offered::{REPORTS, Usage},
    quota::Quota,
};
