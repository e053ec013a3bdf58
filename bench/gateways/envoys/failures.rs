//! Three Envoys under one limit while a gateway dies, stops or restarts, and while the master changes soon after a
//! bucket was opened.

use std::{net::SocketAddr, num::NonZeroU32, path::PathBuf, time::Duration};

use leaseway_process::Signal;
use serde::Serialize;
use tokio::{
    task::{LocalSet, spawn_blocking},
    time::sleep,
};

use crate::{
    common::{
        current_thread,
        error::Error,
        flags::seconds,
        machine::Machine,
        output::{arguments, note, print, write_json},
        signal::Interrupt,
        table::render,
    },
    gateways::{
        cluster::free,
        envoys::{
            ENVOYS, Edge,
            backend::Backend,
            config::Limiting,
            flow::{Flow, pour_over},
            peers::{QuotaGateway, Trio},
        },
        pour::Poured,
    },
};

/// Measure three Envoys under one limit while gateways and masters fail: one of two gateways is killed, the only
/// gateway is stopped or killed and restarted, or the master is killed or paused soon after a bucket was opened.
#[derive(clap::Args)]
pub(crate) struct FailuresArgs {
    /// The limit in requests per second, over all Envoys.
    #[arg(long, default_value = "300", value_name = "N")]
    capacity: NonZeroU32,
    /// How long to measure after the failure, in seconds.
    #[arg(long, default_value = "60", value_name = "S", value_parser = seconds)]
    after: Duration,
    /// Measure only cases whose names contain this.
    #[arg(long, default_value = "", value_name = "TEXT")]
    only: String,
    /// The Envoy program, 1.40 or newer.
    #[arg(long, default_value = "envoy", value_name = "PROGRAM")]
    envoy: String,
    /// The command of the servers, up to `serve`. [default: `leaseway` beside this program, or in PATH]
    #[arg(long, value_name = "COMMAND")]
    server: Option<String>,
    /// Also write all results to a file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The load on each Envoy as a fraction of the limit: in total a tenth more than may pass.
const OFFERED: [f64; ENVOYS] = [0.5, 0.35, 0.25];
/// The time until all Envoys have their share.
const SETTLED: Duration = Duration::from_secs(30);
/// How long a process is paused.
const STALL: Duration = Duration::from_secs(7);
/// An Envoy should have found another gateway within two reports.
const TWO_REPORTS: Duration = Duration::from_secs(10);

/// The weight of the first of two gateways at each Envoy.
type First = [usize; ENVOYS];

#[derive(Clone, Copy)]
enum Event {
    /// The first of two gateways is killed.
    OneOfTwo(First),
    /// The only gateway gets a signal, and is restarted when it has ended.
    Restart(Signal),
    /// The master is killed.
    Master,
    /// The master is paused.
    Stall,
}

const CASES: [(&str, Event, Duration); 9] = [
    ("one of two gateways killed, one Envoy of three at it", Event::OneOfTwo([0, 1, 1]), SETTLED),
    ("one of two gateways killed, two Envoys of three at it", Event::OneOfTwo([0, 0, 1]), SETTLED),
    ("one of two gateways killed, all Envoys at it", Event::OneOfTwo([0, 0, 0]), SETTLED),
    ("the only gateway: SIGKILL, and started again", Event::Restart(Signal::KILL), SETTLED),
    ("the only gateway: SIGTERM, and started again", Event::Restart(Signal::TERM), SETTLED),
    ("master killed 3 s after a bucket was opened", Event::Master, Duration::from_secs(3)),
    ("master killed 7 s after a bucket was opened", Event::Master, Duration::from_secs(7)),
    ("master killed 12 s after a bucket was opened", Event::Master, Duration::from_secs(12)),
    ("master stands still for 7 s, 7 s after a bucket was opened", Event::Stall, Duration::from_secs(7)),
];

#[derive(Serialize)]
struct FailuresReport {
    arguments: Vec<String>,
    machine: Machine,
    capacity: u32,
    cases: Vec<FailureCase>,
}

#[derive(Serialize)]
struct FailureCase {
    name: &'static str,
    /// Seconds from the first request.
    event_s: u64,
    /// Requests at the backend, by second.
    passed: Vec<usize>,
    /// The fraction of the limit that passed after the failure, and from two reports after it.
    part: f64,
    part_later: f64,
    /// The largest excess over the limit in any span of time.
    excess: f64,
    most_in_a_second: usize,
}

pub(crate) fn main(args: &FailuresArgs) -> Result<(), Error> {
    if args.after <= TWO_REPORTS {
        return Err(Error::Usage(format!("--after has to be longer than {} s", TWO_REPORTS.as_secs())));
    }
    let interrupt = Interrupt::watch()?;
    let mut cases = Vec::new();
    for (name, event, at) in CASES.into_iter().filter(|(name, ..)| name.contains(&args.only)) {
        cases.push(args.measure(name, event, at, &interrupt)?);
        note(&cases.last().expect("it was pushed").line());
    }
    let report =
        FailuresReport { arguments: arguments(), machine: Machine::read(), capacity: args.capacity.get(), cases };
    print(&report.text())?;
    write_json(args.json.as_deref(), &report)
}

impl FailuresArgs {
    fn measure(
        &self,
        name: &'static str,
        event: Event,
        at: Duration,
        interrupt: &Interrupt,
    ) -> Result<FailureCase, Error> {
        let capacity = f64::from(self.capacity.get());
        let mut trio = Trio::start(self.server.as_deref(), self.capacity.get(), interrupt)?;
        let first = if let Event::OneOfTwo(first) = event { first } else { [0; ENVOYS] };
        let is_two = matches!(event, Event::OneOfTwo(_));
        let mut gateways = vec![trio.gateway("gateway-1", free()?, interrupt)?];
        if is_two {
            gateways.push(trio.gateway("gateway-2", free()?, interrupt)?);
        }
        let addresses: Vec<SocketAddr> = gateways.iter().map(|gateway| gateway.address).collect();
        let runtime = current_thread().map_err(Error::io("start a runtime"))?;
        let directory = tempfile::tempdir().map_err(Error::io("make a directory"))?;
        let poured = LocalSet::new().block_on(&runtime, async {
            let backend = Backend::start().await?;
            let envoys = first.iter().enumerate().map(|(nth, first)| {
                let mut order = addresses.clone();
                order.rotate_left(*first);
                let name = format!("envoy-{}", nth + 1);
                Edge::start(&self.envoy, &directory, &name, &Limiting::Quotas(order), &backend, interrupt)
            });
            let envoys = envoys.collect::<Result<Vec<_>, _>>()?;
            // By then health checks have found both gateways.
            sleep(Duration::from_secs(3)).await;
            let flow = Flow { phases: vec![OFFERED.map(|part| part * capacity).to_vec()], phase: at + self.after };
            let listeners: Vec<_> = envoys.iter().map(|envoy| envoy.address).collect();
            let event = async {
                sleep(at).await;
                event.happen(&mut trio, &mut gateways).await
            };
            let poured = pour_over(&listeners, &flow, &backend, event, interrupt).await?;
            envoys.iter().try_for_each(|envoy| envoy.process.check())?;
            Ok::<_, Error>(poured)
        })?;
        Ok(self.judge(name, at, &poured))
    }

    fn judge(&self, name: &'static str, at: Duration, poured: &Poured) -> FailureCase {
        let capacity = f64::from(self.capacity.get());
        let end = at + self.after;
        let part = |from: Duration| poured.passed(from, end) as f64 / (capacity * (end - from).as_secs_f64());
        let second = |nth: u64| poured.passed(Duration::from_secs(nth), Duration::from_secs(nth + 1));
        FailureCase {
            name,
            event_s: at.as_secs(),
            passed: (0..end.as_secs()).map(second).collect(),
            part: part(at),
            part_later: part(at + TWO_REPORTS),
            excess: poured.excess(capacity),
            most_in_a_second: poured.most_in_a_second(),
        }
    }
}

impl Event {
    async fn happen(self, trio: &mut Trio, gateways: &mut Vec<QuotaGateway>) -> Result<(), Error> {
        match self {
            Event::OneOfTwo(_) => {
                gateways[0].process.expect_end();
                gateways[0].process.signal(Signal::KILL);
            }
            Event::Restart(signal) => {
                let mut gateway = gateways.remove(0);
                gateway.process.expect_end();
                gateway.process.signal(signal);
                let address = gateway.address;
                // Its address is free when it has ended.
                let ends = spawn_blocking(move || gateway.process.ends_within(Duration::from_secs(60)));
                ends.await.expect("it does not panic");
                gateways.push(trio.begin_gateway("gateway-1", address)?);
            }
            Event::Master => _ = trio.signal_master(Signal::KILL).await?,
            Event::Stall => {
                let master = trio.signal_master(Signal::STOP).await?;
                sleep(STALL).await;
                master.signal(Signal::CONT);
            }
        }
        Ok(())
    }
}

impl FailureCase {
    fn line(&self) -> String {
        format!(
            "{}: {:.1} % of what could pass, {:.1} % from two reports on; {:.0} requests beyond the capacity, {} in a \
             second; per second {:?}",
            self.name,
            self.part * 100.0,
            self.part_later * 100.0,
            self.excess,
            self.most_in_a_second,
            self.passed
        )
    }
}

impl FailuresReport {
    fn text(&self) -> String {
        let head = ["what", "of what could pass", "from 10 s on", "beyond the capacity", "most in a second"];
        let rows = self.cases.iter().map(|case| {
            let percent = |part: f64| format!("{:.1} %", part * 100.0);
            let beyond = format!("{:.0} requests", case.excess);
            let most = case.most_in_a_second.to_string();
            vec![case.name.to_owned(), percent(case.part), percent(case.part_later), beyond, most]
        });
        format!("{}\n{}", render(&head, 1, &rows.collect::<Vec<_>>()), self.machine.text())
    }
}
