//! What is fair and what is safe.
//!
//! # The problem
//! Many clients want part of something limited. Each gets a *lease*: an amount, an end, and when to ask again. The
//! leases that clients may believe in at any moment must never add up to more than there is, and what each client ends
//! up with must be fair.
//!
//! # The one idea
//! [`Division`](Terms) says what is fair: a pure function of capacity and claims that knows nothing about leases.
//! Settlement says what is safe: it moves each holder towards its due no faster than capacity really comes free. A
//! [`Resource`] runs both in *rounds*: it absorbs every request that is waiting, divides and settles once, and answers
//! all of them.
//!
//! # What is deliberately absent
//! Clocks, I/O, tasks, randomness, logging. Time is an argument ([`Now`]); events are counted ([`Counters`]) and
//! published by the caller. The same inputs give the same outputs, bit for bit, on any machine.
//!
//! The promises are predicates in [`invariant`]; tests check them after every step.

pub(crate) mod allocation;
pub mod engine;
pub(crate) mod lease;
pub mod planted;
pub(crate) mod policy;
pub(crate) mod pool;
pub(crate) mod resource;
#[cfg(test)]
mod tests;
pub(crate) mod types;

// The public interface. Modules of this crate name each other by path.
pub use allocation::division::Terms;
pub use lease::{
    holder::Has,
    ledger::Sums,
    promises::{Changes, Inherited, Part, Promises, Refused},
};
pub use policy::{
    access,
    client_rules::{ClientRule, ClientRuleError, ClientRules},
    overrides::{Load, Override, Overrides},
    parameters::{CLIENT_PARAMETER, LEASE_PARAMETER, NamedParameter, ParameterError, REFRESH_PARAMETER, nearest},
    settings::{
        AlgorithmKind, CostWeights, DropMode, FieldChange, FreeKey, PoolSettings, Priority, RaiseMode, Reuse,
        SafeCapacity, Settings, SettingsError,
    },
    template::{Repository, Template},
};
pub use pool::{
    AssignError, Assigned, Cause, News, NotedBalance, NotedCost, PoolClient, PoolClock, PoolCursor, PoolEvent,
    PoolEventFilter, PoolEventKind, PoolFilter, PoolMember, PoolMemory, PoolNotes, PoolPage, PoolReport, PoolStanding,
    PoolState, Usage, UsageBelow,
};
pub use resource::{
    Answer, Ask, Birth, Block, Counters, DueChange, DueRule, Explanation, Forecast, Foreseen, HolderCopy, HolderReport,
    Lease, LoadError, LoadReport, Moved, NodeInstance, Others, Outcome, Overridden, PromiseReport, Release, Request,
    Resource, ResourceReport, RoundScratch, Supplied, SupplyReport, invariant,
    supply::{DemandSummary, Source, Supply},
    watch_list::{Hint, Why},
};
pub use types::{
    amount::{Amount, AmountError, Sum, readable},
    claim::{Claim, Claims, HolderKind, RuleNumber, clamp_priority},
    cluster_clock::{ClusterClock, ClusterTime},
    escape::{escaped, escaped_lines},
    glob::{Glob, GlobError},
    principal::{ChargedTo, Principal, PrincipalShare, SlotDelta},
    time::{Millis, Now},
    token::{Epoch, Token},
};
