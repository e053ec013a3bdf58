//! What is fair and what is safe.
//!
//! # The problem
//! Many clients want part of something limited. Each gets a *lease*: an amount, an end, and when to ask again. The
//! leases that clients may believe in at any moment must never add up to more than there is, and what each client ends
//! up with must be fair.
//!
//! # The one idea
//! [`Division`](allocation) says what is fair: a pure function of capacity and claims that knows nothing about leases.
//! Settlement says what is safe: it moves each holder towards its due no faster than capacity really comes free. A
//! [`Resource`](resource::Resource) runs both in *rounds*: it absorbs every request that is waiting, divides and settles once, and answers
//! all of them.
//!
//! # What is deliberately absent
//! Clocks, I/O, tasks, randomness, logging. Time is an argument ([`Now`](types::time::Now)); events are counted ([`Counters`](resource::Counters)) and
//! published by the caller. The same inputs give the same outputs, bit for bit, on any machine.
//!
//! The promises are predicates in [`resource::invariant`]; tests check them after every step.

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
