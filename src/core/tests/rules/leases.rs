//! Which leases count: tokens, promises, and what a new master knows of earlier leases.

mod inherited;
mod learning;
mod masters;
mod promises;
mod tokens;

use super::*;
