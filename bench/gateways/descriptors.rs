//! Many descriptors at one gateway.

use std::{
    num::NonZeroU32,
    time::{Duration, Instant},
};

use leaseway_process::usage;
use tokio::task::LocalSet;

use crate::{
    common::{
        current_thread,
        error::Error,
        output::{Machine, note, print, render},
        server::Interrupt,
    },
    gateways::{
        AskArgs, Protocol,
        cluster::{GatewayCluster, Running},
        lanes::{HttpLane, LaneResult, ask_all, pause, run_lanes},
    },
};

/// Measure many descriptors at one gateway: the time until all have a lease, the cost of each, and the time until idle
/// leases are released.
#[derive(clap::Args)]
pub(crate) struct DescriptorsArgs {
    #[command(flatten)]
    ask: AskArgs,
    /// The number of descriptors, each of which is a resource.
    #[arg(long, default_value = "100000", value_name = "N")]
    descriptors: NonZeroU32,
    /// The protocol of the gateway.
    #[arg(long, value_enum, default_value_t = Protocol::Rls)]
    protocol: Protocol,
    /// The lease length and the refresh interval, in seconds.
    #[arg(long, default_value = "60,16", value_name = "LEASE,REFRESH", value_delimiter = ',', num_args = 1)]
    lease: Vec<u32>,
    /// Seconds until the gateway releases an unused resource (its `--idle-secs`). Must be longer than a pass over all
    /// descriptors takes.
    #[arg(long, default_value = "60", value_name = "S", value_parser = crate::common::seconds)]
    idle: Duration,
    /// The time limit for all descriptors to have a lease, in seconds.
    #[arg(long, default_value = "300", value_name = "S", value_parser = crate::common::seconds)]
    patience: Duration,
    /// The command of the server, up to `serve`. [default: `leaseway` beside this program, or in PATH]
    #[arg(long, value_name = "COMMAND")]
    server: Option<String>,
}

/// The capacity of each descriptor: more than any load uses.
const CAPACITY: u32 = 1_000;

struct DescriptorsReport {
    /// Seconds until every descriptor had been requested once, and until a request had passed for each (`leased_s`).
    asked_s: f64,
    leased_s: f64,
    /// CPU time of the gateway until all had a lease, per descriptor.
    first_cpu_us: f64,
    /// Resident memory of gateway and server, per descriptor.
    gateway_bytes: f64,
    server_bytes: f64,
    /// The number of cores that gateway and server use to renew the leases while no requests arrive.
    gateway_cores: f64,
    server_cores: f64,
    /// The result under load, with all descriptors requested in turn.
    result: LaneResult,
    /// Seconds from the last request until the gateway had released all leases. `resident_after` is its resident memory
    /// then, as a fraction of the peak.
    given_back_s: f64,
    resident_after: f64,
}

pub(crate) fn main(args: &DescriptorsArgs) -> Result<(), Error> {
    let interrupt = Interrupt::watch()?;
    let [lease, refresh] = args.lease[..] else {
        return Err(Error::Usage("--lease expects two numbers of seconds, as 60,16".into()));
    };
    let cluster = GatewayCluster::start(args.server.as_deref(), CAPACITY, [lease, refresh], &interrupt)?;
    let many = args.descriptors.get();
    let bound = many.saturating_add(1_000).to_string();
    let idle = args.idle.as_secs().to_string();
    let flags = ["--max-resources", &bound, "--idle-secs", &idle, "--first-wait-ms", "0"];
    let gateway = cluster.gateway(args.protocol, &flags, &interrupt)?;
    let runtime = current_thread().map_err(Error::io("start a runtime"))?;
    let local = LocalSet::new();

    let cpu = |pid| usage::cpu_time(pid).map_err(Error::process(pid));
    let idle_cpu = cpu(gateway.served.pid)?;
    let before = [memory(gateway.served.pid)?, memory(cluster.pid())?];
    let began = Instant::now();
    let mut left = local.block_on(&runtime, ask_all(gateway.served, &args.ask, (0..many).collect()))?;
    let asked_s = began.elapsed().as_secs_f64();
    while !left.is_empty() {
        interrupt.check()?;
        note(&format!("{:.1} s: {} of {many} have a lease", began.elapsed().as_secs_f64(), many as usize - left.len()));
        if began.elapsed() > args.patience {
            let without = left.len();
            return Err(Error::Usage(format!("{without} descriptors have no lease after {:?}", args.patience)));
        }
        left = local.block_on(&runtime, async {
            pause(Duration::from_millis(500), &interrupt).await?;
            ask_all(gateway.served, &args.ask, left).await
        })?;
    }
    let leased_s = began.elapsed().as_secs_f64();
    let first_cpu = cpu(gateway.served.pid)? - idle_cpu;
    let after = [memory(gateway.served.pid)?, memory(cluster.pid())?];
    // A pause shorter than the idle time, so that no lease is released.
    let quiet = Duration::from_secs(8);
    let used = [cpu(gateway.served.pid)?, cpu(cluster.pid())?];
    local.block_on(&runtime, pause(quiet, &interrupt))?;
    let cores = |before: Duration, after: Duration| (after - before).as_secs_f64() / quiet.as_secs_f64();
    let [gateway_cores, server_cores] = [cores(used[0], cpu(gateway.served.pid)?), cores(used[1], cpu(cluster.pid())?)];
    let result = run_lanes(gateway.served, &args.ask, many, &interrupt)?;
    let peak = memory(gateway.served.pid)?;
    let given_back_s = local.block_on(&runtime, await_release(&gateway, args.patience, &interrupt))?.as_secs_f64();
    local.block_on(&runtime, pause(Duration::from_secs(3), &interrupt))?;
    let each = |at: usize| (after[at] - before[at]) / f64::from(many);
    let report = DescriptorsReport {
        asked_s,
        leased_s,
        first_cpu_us: first_cpu.as_secs_f64() * 1e6 / f64::from(many),
        gateway_bytes: each(0),
        server_bytes: each(1),
        gateway_cores,
        server_cores,
        result,
        given_back_s,
        resident_after: memory(gateway.served.pid)? / peak,
    };
    gateway.check()?;
    print(&report.text())
}

/// Waits until the gateway has released all leases. Returns the time that took.
async fn await_release(gateway: &Running, patience: Duration, interrupt: &Interrupt) -> Result<Duration, Error> {
    let began = Instant::now();
    while open_resources(gateway).await? > 0.0 {
        pause(Duration::from_millis(500), interrupt).await?;
        if began.elapsed() > patience {
            return Err(Error::Usage(format!("not all leases are released after {patience:?}")));
        }
    }
    Ok(began.elapsed())
}

impl DescriptorsReport {
    fn text(&self) -> String {
        let LaneResult { per_second, p50_us, p99_us, cpu_us, refused, errors } = &self.result;
        let rows = [
            ["every descriptor requested once after".to_owned(), format!("{:.1} s", self.asked_s)],
            ["every descriptor had a lease after".to_owned(), format!("{:.1} s", self.leased_s)],
            ["gateway, CPU per descriptor until then".to_owned(), format!("{:.0} µs", self.first_cpu_us)],
            ["gateway, memory per descriptor".to_owned(), format!("{:.0} bytes", self.gateway_bytes)],
            ["server, memory per descriptor".to_owned(), format!("{:.0} bytes", self.server_bytes)],
            ["gateway, cores to renew idle leases".to_owned(), format!("{:.3}", self.gateway_cores)],
            ["server, cores to renew idle leases".to_owned(), format!("{:.3}", self.server_cores)],
            ["throughput, all descriptors in turn".to_owned(), format!("{per_second:.0} requests/s")],
            ["p50, p99".to_owned(), format!("{p50_us} µs, {p99_us} µs")],
            ["gateway, CPU per request".to_owned(), format!("{cpu_us:.2} µs")],
            ["refused, failed".to_owned(), format!("{refused}, {}", errors.values().sum::<u64>())],
            ["idle leases released after".to_owned(), format!("{:.1} s", self.given_back_s)],
            [
                "gateway, resident memory after that, of its peak".to_owned(),
                format!("{:.0} %", self.resident_after * 100.0),
            ],
        ];
        format!("{}\n{}", render(&["what", "value"], 1, &rows), Machine::read().text())
    }
}

/// Resident memory, in bytes.
fn memory(pid: u32) -> Result<f64, Error> {
    Ok(usage::memory(pid).map_err(Error::process(pid))?.now_kib as f64 * 1024.0)
}

/// The number of open resources, according to the gateway's metrics.
async fn open_resources(gateway: &Running) -> Result<f64, Error> {
    const NAME: &str = "leaseway_gateway_resources ";
    let page = async { HttpLane::open(gateway.pages).await?.get("/metrics").await };
    let page = page.await.map_err(|reason| Error::Unreachable { target: gateway.pages, reason })?;
    let value = page.lines().find_map(|line| line.strip_prefix(NAME)?.parse().ok());
    value.ok_or_else(|| Error::Usage(format!("the metrics of {} lack {NAME}", gateway.pages)))
}
