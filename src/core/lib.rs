//! The core: how capacity is divided fairly, and how much may safely be granted.
//!
//! # The problem
//! Many clients share a limited capacity. Each gets a *lease*: an amount, an expiry, and a refresh interval. The sum of
//! the leases that clients may be using must never exceed the capacity, and each client should end up with its fair
//! share.
//!
//! # Two questions, answered separately
//! [Division](allocation) computes the fair share of each holder: a pure function of capacity and claims, which knows
//! nothing about leases. [Settlement](allocation::settlement) moves each holder towards its share, only as fast as
//! other leases shrink or expire. A [`Resource`](resource::Resource) runs both in *rounds*: it takes all waiting
//! requests, divides and settles once, and answers them.
//!
//! # Modules
//!
//! | module | |
//! |---|---|
//! | [`types`] | amounts, times, tokens, claims |
//! | [`policy`] | settings, templates, overrides, access rules |
//! | [`allocation`] | fair shares |
//! | [`lease`] | leases that may be in use, and what a new master inherits; the rules are in src/core/lease/protocol.md |
//! | [`pool`] | PRIORITY_POOL: assignments, balances, costs |
//! | [`resource`] | one resource: allocation and leases combined |
//! | [`engine`] | a resource with its commits and its parent, as server and simulator run it |
//! | [`planted`] | faults that tests plant |
//!
//! # Purity
//! The core has no clocks, I/O, tasks, randomness or logging. Time is an argument ([`Now`](types::time::Now)). Events
//! are counted ([`Counters`](resource::Counters)) and published by the caller. The same inputs give the same outputs,
//! bit for bit, on any machine.
//!
//! The invariants are predicates in [`resource::invariant`]. Tests check them after every step.

pub mod allocation;
pub mod engine;
pub mod lease;
pub mod planted;
pub mod policy;
pub mod pool;
pub mod resource;
#[cfg(test)]
mod tests;
pub mod types;
