//! One limit at three Envoys in front of one backend, with uneven traffic that moves: by quotas of a gateway, by an
//! even share of the limit, and counted in Redis.

pub(crate) mod backend;
pub(crate) mod config;
pub(crate) mod failures;
pub(crate) mod flow;
pub(crate) mod peers;

use std::{net::SocketAddr, num::NonZeroU32, path::PathBuf, time::Duration};

use leaseway_process::Signal;
use serde::Serialize;
use tempfile::TempDir;
use tokio::{task::LocalSet, time::sleep};

use crate::{
    common::{
        current_thread,
        error::Error,
        flags::seconds,
        machine::Machine,
        output::{arguments, note, print, write_json},
        server::Server,
        signal::Interrupt,
        table::render,
    },
    gateways::{
        Protocol,
        cluster::{await_listening, free, process, redis, service},
        envoys::{
            backend::Backend,
            config::Limiting,
            flow::{Flow, pour_over},
            peers::Trio,
        },
        pour::Poured,
    },
};

/// Measure three Envoys under one limit with uneven traffic that moves; the master is killed in the last phase.
/// Compares quotas of a gateway with an even share for each Envoy, and with a service that counts in Redis.
#[derive(clap::Args)]
pub(crate) struct EnvoysArgs {
    /// The limit in requests per second, over all Envoys.
    #[arg(long, default_value = "300", value_name = "N")]
    capacity: NonZeroU32,
    /// The length of each of the four phases, in seconds.
    #[arg(long, default_value = "40", value_name = "S", value_parser = seconds)]
    phase: Duration,
    /// When a phase counts as settled, in seconds after it begins.
    #[arg(long, default_value = "25", value_name = "S", value_parser = seconds)]
    settling: Duration,
    /// The Envoy program, 1.40 or newer.
    #[arg(long, default_value = "envoy", value_name = "PROGRAM")]
    envoy: String,
    /// The Redis server program.
    #[arg(long, default_value = "redis-server", value_name = "PROGRAM")]
    redis: String,
    /// The command of the servers, up to `serve`. [default: `leaseway` beside this program, or in PATH]
    #[arg(long, value_name = "COMMAND")]
    server: Option<String>,
    /// Measure the quotas only.
    #[arg(long)]
    alone: bool,
    /// Also write all results to a file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const ENVOYS: usize = 3;

/// The load on each Envoy, as a fraction of the limit.
const PHASES: [(&str, [f64; ENVOYS]); 4] = [
    ("uneven, 14/15 of the capacity", [2.0 / 3.0, 0.2, 1.0 / 15.0]),
    ("moved, 0.8 of the capacity", [1.0 / 15.0, 2.0 / 3.0, 1.0 / 15.0]),
    ("moved again, 23/15 of the capacity", [1.0 / 3.0, 0.2, 1.0]),
    ("the same, the master is killed", [1.0 / 3.0, 0.2, 1.0]),
];

/// A phase has settled once this fraction of what could pass does, in every span from then on.
const ENOUGH: f64 = 0.97;
const SPAN: Duration = Duration::from_secs(5);

#[derive(Serialize)]
struct EnvoysReport {
    arguments: Vec<String>,
    machine: Machine,
    capacity: u32,
    phase_s: u64,
    systems: Vec<LimitedBy>,
}

#[derive(Serialize)]
struct LimitedBy {
    name: &'static str,
    /// Requests at the backend, by second.
    passed: Vec<usize>,
    most_in_a_second: usize,
    /// The largest excess over the limit in any span of time.
    excess: f64,
    /// The fraction of what could pass that did, by phase, once it counts as settled; and after how many seconds that
    /// was so.
    settled: Vec<f64>,
    settled_after_s: Vec<Option<u64>>,
    p50_us: u64,
    p99_us: u64,
    failed: u64,
}

pub(crate) fn main(args: &EnvoysArgs) -> Result<(), Error> {
    if args.phase < args.settling + SPAN {
        return Err(Error::Usage(format!("--phase has to be {} s longer than --settling", SPAN.as_secs())));
    }
    let interrupt = Interrupt::watch()?;
    let capacity = args.capacity.get();
    let mut systems = Vec::new();
    {
        let mut trio = Trio::start(args.server.as_deref(), capacity, &interrupt)?;
        let gateway = trio.gateway("gateway-1", free()?, &interrupt)?;
        systems.push(args.measure(
            "quotas of a gateway",
            &Limiting::Quotas(vec![gateway.address]),
            Some(&mut trio),
            &interrupt,
        )?);
    }
    if !args.alone {
        let even = capacity / ENVOYS as u32;
        systems.push(args.measure("an even part each", &Limiting::Even(even), None, &interrupt)?);
        match redis(&args.redis, &interrupt) {
            Ok((_redis, address)) => {
                let flags = ["--redis".to_owned(), address.to_string(), "--limit".to_owned(), capacity.to_string()];
                let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
                let counts = service(Protocol::Rls, &flags, &interrupt)?;
                let limiting = Limiting::Counted(counts.served.address);
                systems.push(args.measure("counted in Redis", &limiting, None, &interrupt)?);
            }
            Err(Error::Spawn { command, source }) => note(&format!("left out: `{command}`: {source}")),
            Err(error) => return Err(error),
        }
    }
    let phase_s = args.phase.as_secs();
    let report = EnvoysReport { arguments: arguments(), machine: Machine::read(), capacity, phase_s, systems };
    print(&report.text())?;
    write_json(args.json.as_deref(), &report)
}

impl EnvoysArgs {
    fn measure(
        &self,
        name: &'static str,
        limiting: &Limiting,
        trio: Option<&mut Trio>,
        interrupt: &Interrupt,
    ) -> Result<LimitedBy, Error> {
        note(&format!("{name}: {} s", self.phase.as_secs() * PHASES.len() as u64));
        let runtime = current_thread().map_err(Error::io("start a runtime"))?;
        let directory = tempfile::tempdir().map_err(Error::io("make a directory"))?;
        let poured = LocalSet::new().block_on(&runtime, async {
            let backend = Backend::start().await?;
            let envoys = (1..=ENVOYS).map(|nth| {
                let name = format!("envoy-{nth}");
                Edge::start(&self.envoy, &directory, &name, limiting, &backend, interrupt)
            });
            let envoys = envoys.collect::<Result<Vec<_>, _>>()?;
            let capacity = f64::from(self.capacity.get());
            let rates = PHASES.iter().map(|(_, parts)| parts.map(|part| part * capacity).to_vec()).collect();
            let flow = Flow { phases: rates, phase: self.phase };
            let addresses: Vec<_> = envoys.iter().map(|envoy| envoy.address).collect();
            let last = self.phase * (PHASES.len() as u32 - 1);
            let event = async {
                sleep(last).await;
                match trio {
                    Some(trio) => trio.signal_master(Signal::KILL).await.map(|_| ()),
                    None => Ok(()),
                }
            };
            let poured = pour_over(&addresses, &flow, &backend, event, interrupt).await?;
            envoys.iter().try_for_each(|envoy| envoy.process.check())?;
            Ok::<_, Error>(poured)
        })?;
        Ok(self.judge(name, &poured))
    }

    fn judge(&self, name: &'static str, poured: &Poured) -> LimitedBy {
        let capacity = f64::from(self.capacity.get());
        let part = |nth: usize, from: Duration, span: Duration| {
            let start = self.phase * nth as u32 + from;
            poured.passed(start, start + span) as f64 / (could(nth) * capacity * span.as_secs_f64())
        };
        let settled_after = |nth: usize| {
            let spans = self.phase.as_secs() / SPAN.as_secs();
            let enough = |span: &u64| part(nth, SPAN * *span as u32, SPAN) >= ENOUGH;
            let last = (0..spans).rev().take_while(enough).last()?;
            Some(last * SPAN.as_secs())
        };
        let seconds = 0..self.phase.as_secs() * PHASES.len() as u64;
        LimitedBy {
            name,
            passed: seconds.map(|at| poured.passed(Duration::from_secs(at), Duration::from_secs(at + 1))).collect(),
            most_in_a_second: poured.most_in_a_second(),
            excess: poured.excess(capacity),
            settled: (0..PHASES.len()).map(|nth| part(nth, self.settling, self.phase - self.settling)).collect(),
            settled_after_s: (0..PHASES.len()).map(settled_after).collect(),
            p50_us: poured.latency_us.value_at_quantile(0.5),
            p99_us: poured.latency_us.value_at_quantile(0.99),
            failed: poured.failed,
        }
    }
}

/// What can pass in a phase, as a fraction of the limit.
fn could(nth: usize) -> f64 {
    PHASES[nth].1.iter().sum::<f64>().min(1.0)
}

/// A real Envoy. The process ends with this value.
struct Edge {
    process: Server,
    address: SocketAddr,
}

impl Edge {
    fn start(
        program: &str,
        directory: &TempDir,
        name: &str,
        limiting: &Limiting,
        backend: &Backend,
        interrupt: &Interrupt,
    ) -> Result<Edge, Error> {
        let address = free()?;
        let file = directory.path().join(format!("{name}.yaml"));
        let config = config::of(name, limiting, address, backend.address());
        std::fs::write(&file, config).map_err(Error::io("write the configuration of an Envoy"))?;
        let file = file.display().to_string();
        let bounds = ["--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warning"];
        let process = process([program, "--config-path", &file].into_iter().chain(bounds))?;
        await_listening(&process, address, interrupt)?;
        Ok(Edge { process, address })
    }
}

impl EnvoysReport {
    fn text(&self) -> String {
        let mut head = vec!["what"];
        head.extend(self.systems.iter().map(|system| system.name));
        let mut rows = Vec::new();
        let mut row = |name: &str, cell: &dyn Fn(&LimitedBy) -> String| {
            rows.push([name.to_owned()].into_iter().chain(self.systems.iter().map(cell)).collect::<Vec<_>>());
        };
        for (nth, (name, _)) in PHASES.iter().enumerate() {
            row(&format!("of what could pass: {name}"), &|system| format!("{:.1} %", system.settled[nth] * 100.0));
            row("… settled after", &|system| {
                system.settled_after_s[nth].map_or("never".into(), |seconds| format!("{seconds} s"))
            });
        }
        row("most in any second", &|system| system.most_in_a_second.to_string());
        row("beyond the capacity, in any span of time", &|system| format!("{:.0} requests", system.excess));
        row("a request takes, p50", &|system| format!("{} µs", system.p50_us));
        row("a request takes, p99", &|system| format!("{} µs", system.p99_us));
        row("failed", &|system| system.failed.to_string());
        format!("{}\n{}", render(&head, 1, &rows), self.machine.text())
    }
}
