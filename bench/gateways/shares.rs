//! One limit at several gateways, with uneven traffic that moves.

use std::{num::NonZeroU32, time::Duration};

use tokio::task::LocalSet;

use crate::{
    common::{
        current_thread,
        error::Error,
        output::{Machine, note, print, render},
        seconds,
        server::Interrupt,
    },
    gateways::{
        Protocol,
        cluster::{GatewayCluster, Running, redis, service},
        lanes::{Traffic, run_phases},
    },
};

/// Measure one limit at five gateways with uneven, shifting traffic: the requests that they allow together, and
/// latency. Compares them with services that count in Redis, and with services that have an even share of the limit
/// each.
#[derive(clap::Args)]
pub(crate) struct SharesArgs {
    /// The limit in requests per second, over all gateways.
    #[arg(long, default_value = "500", value_name = "N")]
    capacity: NonZeroU32,
    /// The length of each phase, in seconds. Its first five seconds are reported separately.
    #[arg(long, default_value = "15", value_name = "S", value_parser = seconds)]
    phase: Duration,
    /// The Redis server program.
    #[arg(long, default_value = "redis-server", value_name = "PROGRAM")]
    redis: String,
    /// The command of the server, up to `serve`. [default: `leaseway` beside this program, or in PATH]
    #[arg(long, value_name = "COMMAND")]
    server: Option<String>,
}

const GATEWAYS: usize = 5;

/// The time that gateways need to learn the demand after traffic has shifted.
const SETTLING: Duration = Duration::from_secs(5);

/// The load at each gateway, as a fraction of the limit.
const PHASES: [(&str, [f64; GATEWAYS]); 4] = [
    ("most of the traffic at one gateway, 1.5 × the capacity", [0.9, 0.3, 0.15, 0.1, 0.05]),
    ("most of the traffic at another gateway, 1.5 × the capacity", [0.05, 0.1, 0.9, 0.15, 0.3]),
    ("all traffic at one gateway, 0.8 × the capacity", [0.0, 0.0, 0.0, 0.8, 0.0]),
    ("even traffic, 2 × the capacity", [0.4; GATEWAYS]),
];

struct SharesReport {
    systems: Vec<SharesOf>,
}

struct SharesOf {
    name: &'static str,
    /// The maximum of requests that passed in any second, as a fraction of the limit.
    most_in_a_second: f64,
    /// Requests that passed, as a fraction of those that could have passed, by phase: in its first seconds, and after
    /// them (`settled`).
    settling: Vec<f64>,
    settled: Vec<f64>,
    p50_us: u64,
    p99_us: u64,
    failed: u64,
}

pub(crate) fn main(args: &SharesArgs) -> Result<(), Error> {
    if args.phase <= SETTLING {
        return Err(Error::Usage(format!("--phase must be longer than {} s", SETTLING.as_secs())));
    }
    let interrupt = Interrupt::watch()?;
    let capacity = args.capacity.get();
    let mut systems = Vec::new();
    {
        let cluster = GatewayCluster::start(args.server.as_deref(), capacity, [60, 5], &interrupt)?;
        let gateways = all(|| cluster.gateway(Protocol::Rls, &["--first-wait-ms", "1000"], &interrupt))?;
        systems.push(SharesOf::measure("leaseway, 5 gateways", args, &gateways, &interrupt)?);
    }
    match redis(&args.redis, &interrupt) {
        Ok((_server, address)) => {
            let flags = [address.to_string(), capacity.to_string()];
            let flags = ["--redis", &flags[0], "--limit", &flags[1]];
            let services = all(|| service(Protocol::Rls, &flags, &interrupt))?;
            systems.push(SharesOf::measure("counters in Redis", args, &services, &interrupt)?);
        }
        Err(Error::Spawn { command, source }) => {
            note(&format!("no comparison with Redis: cannot start `{command}`: {source}"))
        }
        Err(error) => return Err(error),
    }
    let even = (capacity / GATEWAYS as u32).to_string();
    let services = all(|| service(Protocol::Rls, &["--even", &even], &interrupt))?;
    systems.push(SharesOf::measure("an even share at each", args, &services, &interrupt)?);
    let report = SharesReport { systems };
    print(&report.text())
}

fn all(start: impl Fn() -> Result<Running, Error>) -> Result<Vec<Running>, Error> {
    (0..GATEWAYS).map(|_| start()).collect()
}

impl SharesOf {
    fn measure(
        name: &'static str,
        args: &SharesArgs,
        gateways: &[Running],
        interrupt: &Interrupt,
    ) -> Result<SharesOf, Error> {
        let capacity = f64::from(args.capacity.get());
        let served: Vec<_> = gateways.iter().map(|gateway| gateway.served).collect();
        let rates: Vec<Vec<f64>> =
            PHASES.iter().map(|(_, parts)| parts.iter().map(|part| part * capacity).collect()).collect();
        let runtime = current_thread().map_err(Error::io("start a runtime"))?;
        let traffic = LocalSet::new().block_on(&runtime, run_phases(&served, &rates, args.phase, interrupt))?;
        gateways.iter().try_for_each(Running::check)?;
        let used = |from: Duration, span: Duration| {
            let part = |(nth, rates): (usize, &Vec<f64>)| {
                let start = args.phase * nth as u32 + from;
                let could = rates.iter().sum::<f64>().min(capacity) * span.as_secs_f64();
                traffic.passed(start, start + span) as f64 / could
            };
            rates.iter().enumerate().map(part).collect()
        };
        let Traffic { latency_us, failed, .. } = &traffic;
        Ok(SharesOf {
            name,
            most_in_a_second: traffic.most_in_a_second() as f64 / capacity,
            settling: used(Duration::ZERO, SETTLING),
            settled: used(SETTLING, args.phase - SETTLING),
            p50_us: latency_us.value_at_quantile(0.5),
            p99_us: latency_us.value_at_quantile(0.99),
            failed: *failed,
        })
    }
}

impl SharesReport {
    fn text(&self) -> String {
        let percent = |part: f64| format!("{:.1} %", part * 100.0);
        let mut head = vec!["what"];
        head.extend(self.systems.iter().map(|system| system.name));
        let mut rows = Vec::new();
        let mut row = |name: &str, cell: &dyn Fn(&SharesOf) -> String| {
            rows.push([name.to_owned()].into_iter().chain(self.systems.iter().map(cell)).collect::<Vec<_>>());
        };
        row("maximum in any second, of the capacity", &|system| percent(system.most_in_a_second));
        for (nth, (name, _)) in PHASES.iter().enumerate() {
            row(&format!("used: {name}"), &|system| percent(system.settled[nth]));
            row("… its first five seconds", &|system| percent(system.settling[nth]));
        }
        row("p50", &|system| format!("{} µs", system.p50_us));
        row("p99", &|system| format!("{} µs", system.p99_us));
        row("failed", &|system| system.failed.to_string());
        format!("{}\n{}", render(&head, 1, &rows), Machine::read().text())
    }
}
