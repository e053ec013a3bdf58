//! The due of each holder: priorities, client rules, whole units, very large and very small amounts, and the shares of
//! principals.

mod clients;
mod groups;
mod numbers;
mod priorities;
mod shares;
mod units;

use super::*;
