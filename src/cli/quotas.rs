//! Flags of RLQS.

use std::net::SocketAddr;

use clap::Args;
use leaseway_core::Millis;
use leaseway_gateway::rlqs::{RlqsOptions, Settings};

use crate::serve::checks;

/// How Envoys are served.
#[derive(Args)]
#[command(next_help_heading = "Quotas of Envoys (--rlqs)")]
pub(crate) struct QuotaFlags {
    /// An Envoy may go by what it was told for so many seconds, if it is told nothing else. What it gives up is free
    /// for others when they are over, and one second more; it looks for a lost gateway every five. The same at all gateways
    /// of the same Envoys
    #[arg(
        long,
        env = "LEASEWAY_ASSIGNMENT_SECS",
        default_value_t = 10,
        value_name = "SECONDS",
        value_parser = clap::value_parser!(u32).range(2..=300)
    )]
    assignment_secs: u32,
    /// What a bucket wants per second until the second report of it says more
    #[arg(
        long,
        env = "LEASEWAY_FIRST_WANTS",
        default_value_t = 10.0,
        value_name = "RATE",
        value_parser = checks::rate
    )]
    first_wants: f64,
    /// Envoys, with those that have gone and may still go by what they were told (RESOURCE_EXHAUSTED beyond)
    #[arg(
        long,
        env = "LEASEWAY_MAX_ENVOYS",
        default_value_t = 4096,
        value_name = "N",
        value_parser = checks::at_least_one()
    )]
    max_envoys: usize,
    /// Buckets of an Envoy (none beyond has a quota), and of all together as many as --max-resources
    #[arg(
        long,
        env = "LEASEWAY_MAX_BUCKETS",
        default_value_t = 10_000,
        value_name = "N",
        value_parser = checks::at_least_one()
    )]
    max_buckets: usize,
}

impl QuotaFlags {
    pub(crate) fn options(&self, listen: SocketAddr, idle_secs: u64) -> RlqsOptions {
        let envoy = Settings {
            assignment_secs: self.assignment_secs,
            idle: Millis::from_secs(idle_secs),
            first_wants: self.first_wants,
            buckets: self.max_buckets,
        };
        RlqsOptions { listen, envoy, most_envoys: self.max_envoys }
    }
}
