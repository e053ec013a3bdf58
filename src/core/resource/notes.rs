//! The notes of a resource.

use crate::{pool::PoolNotes, resource::budget::usage::UsageRow};

/// What the next master should know, although no answer depends on it.
#[derive(Debug, Clone, PartialEq)]
pub enum Notes {
    Pool(PoolNotes),
    /// BUDGET: what holders have spent.
    Usage(Vec<UsageRow>),
}
