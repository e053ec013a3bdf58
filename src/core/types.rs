//! Basic values: amounts, times, tokens, claims.

mod amount;
mod claim;
mod cluster_clock;
mod escape;
mod glob;
mod principal;
mod time;
mod token;

#[cfg(feature = "serde")]
pub(crate) use self::amount::stored_number;
pub use self::{
    amount::{Amount, AmountError, Sum, parse_quantity, readable},
    claim::{Claim, Claims, HolderKind, RuleNumber, clamp_priority},
    cluster_clock::{ClusterClock, ClusterTime},
    escape::{escaped, escaped_lines},
    glob::{Glob, GlobError},
    principal::{ChargedTo, Principal, PrincipalShare, SlotDelta},
    time::{Millis, Now},
    token::{Epoch, Token},
};
pub(crate) use self::{
    claim::{MAX_SLICES, further, wanted},
    principal::SlotDeltas,
    time::certain_end,
    token::Tokens,
};
