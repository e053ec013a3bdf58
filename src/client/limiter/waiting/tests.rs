//! Limiters and the estimate of wants.

use std::time::Duration;

use leaseway_core::Millis;

use super::*;
use crate::{
    limiter::{
        Burst,
        demand::{Demand, DemandKind, DemandSettings, Sample},
    },
    session::Capacity,
};

mod debt;
mod offered;

const REFRESH: Duration = Duration::from_secs(5);

fn demand(kind: DemandKind) -> Demand {
    Demand::new(DemandSettings { kind, refresh: REFRESH, remembers: true })
}

fn seen(count: u64, waiting: u64) -> Sample {
    Sample { count, waiting, ..Sample::default() }
}
