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

pub mod access;
mod amount;
mod claim;
mod clients;
mod cluster_clock;
mod division;
mod escape;
mod glob;
mod hints;
mod instance;
pub mod invariant;
mod leases;
mod ledger;
mod load;
mod overrides;
mod parameters;
pub mod planted;
mod pool;
mod promises;
mod resource;
mod settings;
mod settlement;
mod shares;
mod supply;
mod template;
#[cfg(test)]
mod tests;
mod time;
mod token;
mod units;

pub use amount::{Amount, AmountError, Sum, readable};
pub use claim::{Claim, Claims, HolderKind, clamp_priority};
pub use clients::{ClientRule, ClientRuleError, ClientRules, RuleNumber};
pub use cluster_clock::{ClusterClock, ClusterTime};
pub use division::Terms;
pub use escape::{escaped, escaped_lines};
pub use glob::{Glob, GlobError};
pub use hints::{Hint, Why};
pub use leases::{Has, Reuse};
pub use ledger::Sums;
pub use instance::NodeInstance;

pub use load::Load;
pub use overrides::{Override, Overrides};
pub use parameters::{CLIENT_PARAMETER, LEASE_PARAMETER, NamedParameter, ParameterError, REFRESH_PARAMETER, nearest};
pub use pool::{
    AssignError, Assigned, Cause, News, NotedBalance, NotedCost, PoolClient, PoolClock, PoolCursor, PoolEvent,
    PoolEventFilter, PoolEventKind, PoolFilter, PoolMember, PoolMemory, PoolNotes, PoolPage, PoolReport, PoolStanding,
    PoolState, Usage,
};
pub use promises::{Changes, Inherited, Part, Promises, Refused};
pub use resource::{
    Answer, Ask, Birth, Block, Counters, DueChange, DueRule, Explanation, Forecast, Foreseen, HolderCopy, HolderReport,
    Lease, LoadError, LoadReport, Moved, Others, Outcome, Overridden, PromiseReport, Release, Request, Resource,
    ResourceReport, RoundScratch, Supplied, SupplyReport,
};
pub use settings::{
    AlgorithmKind, CostWeights, DropMode, FieldChange, FreeKey, PoolSettings, Priority, RaiseMode, SafeCapacity,
    Settings, SettingsError,
};
pub use shares::{ChargedTo, Principal, PrincipalShare, SlotDelta};
pub use supply::{DemandSummary, Source, Supply, UsageBelow};
pub use template::{Repository, Template};
pub use time::{Millis, Now};
pub use token::{Epoch, Token};
