//! More than a server can do: honest clients that are too many, come all at once or ask for much, and what those notice
//! that it serves already.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroU32,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use clap::ValueEnum;
use leaseway_process::{ports, usage};
use serde::Serialize;
use tempfile::TempDir;

use crate::{
    error::Error,
    flags::{seconds, word},
    load::{self, Common, Crowd, Dialer, Measurement, Options, find_master, rate},
    machine::Machine,
    output::{arguments, print, progress, write_json},
    server::{Server, server_words},
    signal::Interrupt,
    table,
};

/// Gives a server more than it can do, and measures what the clients notice that it serves already.
///
/// For each case a server is started on free loopback ports. Steady clients ask it at a rate that it keeps easily, in
/// an open loop. Then others come, as fast as the server answers them, and leave again. The table has what these were
/// given, the p99 of the steady clients before, meanwhile and after, and how soon it was again within twice of what it
/// was. All share the cores of this machine, so "meanwhile" is also that of a busy machine.
///
/// It fails if a request of a steady client failed, or if it takes longer than a refresh interval until all is as it
/// was; never for speed.
#[derive(clap::Args)]
pub(crate) struct OverloadArgs {
    /// The server; `serve` and its flags are added. [default: `leaseway` beside this program, or in PATH]
    #[arg(long, value_name = "COMMAND")]
    server: Option<String>,
    /// Only these. [default: all]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    only: Vec<OverloadCase>,
    /// How long the others stay.
    #[arg(long, default_value = "10", value_name = "S", value_parser = seconds)]
    seconds: Duration,
    /// Requests a second of the steady clients.
    #[arg(long, default_value = "2000", value_name = "R", value_parser = rate)]
    rate: f64,
    /// Steady clients. With fewer than some thousand one may ask again before it was answered, and is left out of an
    /// answer.
    #[arg(long, default_value = "10000", value_name = "N")]
    clients: NonZeroU32,
    /// Also write everything that was measured to a file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What is too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum OverloadCase {
    /// 16,000 requests are under way at any time, of 40,000 clients on 160 connections.
    Requests,
    /// 10,000 connections with a request under way on each.
    Connections,
    /// Each request is from a client that the server has not heard of.
    Newcomers,
    /// Each request asks for 200 resources, of 1,000.
    Entries,
}

/// How the others come.
struct Rush {
    clients: u32,
    resources: u32,
    connections: u32,
    in_flight: u32,
    churn: f64,
    resources_per_request: NonZeroU32,
}

impl OverloadCase {
    fn rush(self) -> Rush {
        let usual = Rush {
            clients: 40_000,
            resources: 10,
            connections: 160,
            in_flight: 100,
            churn: 0.0,
            resources_per_request: NonZeroU32::MIN,
        };
        match self {
            OverloadCase::Requests => usual,
            OverloadCase::Connections => Rush { connections: 10_000, in_flight: 1, ..usual },
            OverloadCase::Newcomers => Rush { connections: 16, in_flight: 64, churn: 100.0, ..usual },
            OverloadCase::Entries => {
                let resources_per_request = const { NonZeroU32::new(200).unwrap() };
                Rush { resources: 1000, connections: 16, in_flight: 16, resources_per_request, ..usual }
            }
        }
    }
}

/// Leases last for longer than a run.
const CONFIGURATION: &str = "\
resources:
- identifier_glob: \"*\"
  capacity: 25000
  algorithm: {kind: FAIR_SHARE, lease_length: 600, refresh_interval: 16, learning_mode_duration: 0,
              parameters: {min_request_interval: 0}}
";
const REFRESH_INTERVAL: Duration = Duration::from_secs(16);

/// All come from one address: three quarters of these are for it.
const MAX_CONNECTIONS: &str = "15000";

/// How long it may take until the server answers.
const STARTUP: Duration = Duration::from_secs(15);

/// What the steady clients are measured for before the others come; after they left, in windows.
const BEFORE: Duration = Duration::from_secs(3);
const WINDOW: Duration = Duration::from_secs(1);

/// The others are there for so long before it is measured what the steady clients notice.
const RISE: Duration = Duration::from_secs(1);

/// All is as it was when the p99 is no more than so many times what it was.
const AS_BEFORE: f64 = 2.0;

/// One case.
#[derive(Serialize)]
struct OverloadResult {
    case: OverloadCase,
    before: Measurement,
    meanwhile: Measurement,
    /// Of the others.
    rush: Measurement,
    /// The last window.
    after: Measurement,
    /// From when the others left to the end of that window; none: never.
    as_before_s: Option<f64>,
    memory_before_mib: f64,
    memory_peak_mib: f64,
}

/// What `overload` writes.
#[derive(Serialize)]
struct OverloadReport {
    /// The whole command line, so that it can be repeated.
    arguments: Vec<String>,
    machine: Machine,
    cases: Vec<OverloadResult>,
}

pub(crate) fn main(args: &OverloadArgs) -> Result<(), Error> {
    if args.seconds.is_zero() {
        return Err(Error::Usage("--seconds 0 measures nothing".into()));
    }
    let interrupt = Interrupt::watch()?;
    let cases = match &args.only[..] {
        [] => OverloadCase::value_variants(),
        only => only,
    };
    let bar = progress(cases.len() as u64, "{bar:20} {pos}/{len} {elapsed} {msg}");
    bar.enable_steady_tick(Duration::from_millis(100));
    let mut done = Vec::new();
    let outcome = cases.iter().try_for_each(|&case| {
        bar.set_message(word(&case));
        done.push(Overloaded::start(args, &interrupt)?.rush(case)?);
        bar.inc(1);
        Ok(())
    });
    bar.finish_and_clear();
    // Those that were finished are worth something even if a later one was not.
    let report = OverloadReport { arguments: arguments(), machine: Machine::read(), cases: done };
    write_json(args.json.as_deref(), &report)?;
    print(&report.text())?;
    outcome.and(report.verdict())
}

/// A server with its steady clients.
struct Overloaded<'a> {
    args: &'a OverloadArgs,
    interrupt: &'a Interrupt,
    server: Server,
    grpc: SocketAddr,
    /// Last: its files belong to the process.
    _directory: TempDir,
}

impl<'a> Overloaded<'a> {
    fn start(args: &'a OverloadArgs, interrupt: &'a Interrupt) -> Result<Overloaded<'a>, Error> {
        let directory = tempfile::tempdir().map_err(Error::io("create a directory for the server"))?;
        let config = directory.path().join("leaseway.yaml");
        fs::write(&config, CONFIGURATION).map_err(Error::io("write the configuration"))?;
        let grpc = ports::free(Ipv4Addr::LOCALHOST, 1).map_err(Error::io("find a free port"))?[0];
        let mut words = server_words(args.server.as_deref())?;
        let (listen, config) = (grpc.to_string(), config.display().to_string());
        let flags = [("--listen", &*listen), ("--http", "127.0.0.1:0"), ("--config", &*config)];
        let flags = flags.into_iter().chain([("--max-connections", MAX_CONNECTIONS)]);
        words.extend(flags.flat_map(|(flag, value)| [flag.to_owned(), value.to_owned()]));
        let log = tempfile::tempfile().map_err(Error::io("create a temporary file"))?;
        let server = Server::start(&words, &log)?;
        let deadline = Instant::now() + STARTUP;
        while find_master(grpc, &Dialer::default()).is_err() {
            server.check()?;
            if Instant::now() >= deadline {
                return Err(server.failed(format!("is not ready after {} s", STARTUP.as_secs())));
            }
            interrupt.glance(|| {})?;
        }
        Ok(Overloaded { args, interrupt, server, grpc, _directory: directory })
    }

    /// All of it, until the server is gone.
    fn rush(self, case: OverloadCase) -> Result<OverloadResult, Error> {
        let steady = |length| Common::steady(self.args.rate, length);
        let [first, meanwhile, window] = [BEFORE, self.args.seconds, WINDOW].map(steady);
        let mut crowd = Crowd::new(&self.steady(&first));
        crowd.fill(&self.steady(&first), self.interrupt, |_| {})?;
        let before = self.measure(&first, &mut crowd)?;
        let memory_before = self.memory()?.now_kib;
        let Rush { clients, resources, connections, in_flight, churn, resources_per_request } = case.rush();
        let common = Common::rush(RISE + self.args.seconds, churn, resources_per_request);
        let options = Options { clients, resources, connections, in_flight, server_pid: None, ..self.steady(&common) };
        let (rush, meanwhile) = thread::scope(|scope| {
            let rush = scope.spawn(|| load::run(&options, &mut Crowd::new(&options), self.interrupt, |_, _| {}));
            let risen = self.interrupt.sleep_until(Instant::now() + RISE, || {});
            let meanwhile = risen.and_then(|()| self.measure(&meanwhile, &mut crowd));
            (rush.join().expect("a generator of ours does not panic"), meanwhile)
        });
        let (rush, meanwhile, left) = (rush?, meanwhile?, Instant::now());
        let (after, as_before_s) = loop {
            let after = self.measure(&window, &mut crowd)?;
            if after.latency_ms.p99 <= AS_BEFORE * before.latency_ms.p99 {
                break (after, Some(left.elapsed().as_secs_f64()));
            }
            if left.elapsed() > REFRESH_INTERVAL {
                break (after, None);
            }
        };
        let mib = |kib: u64| kib as f64 / 1024.0;
        let (memory_before_mib, memory_peak_mib) = (mib(memory_before), mib(self.memory()?.peak_kib));
        Ok(OverloadResult { case, before, meanwhile, rush, after, as_before_s, memory_before_mib, memory_peak_mib })
    }

    fn steady<'o>(&self, common: &'o Common) -> Options<'o> {
        Options {
            targets: vec![self.grpc],
            clients: self.args.clients.get(),
            resources: 10,
            connections: 8,
            in_flight: 256,
            server_pid: Some(self.server.id()),
            dialer: Dialer::default(),
            common,
        }
    }

    fn measure(&self, common: &Common, crowd: &mut Crowd) -> Result<Measurement, Error> {
        let measured = load::run(&self.steady(common), crowd, self.interrupt, |_, _| {});
        self.server.check()?;
        measured
    }

    fn memory(&self) -> Result<usage::Memory, Error> {
        usage::memory(self.server.id()).map_err(Error::process(self.server.id()))
    }
}

const HEAD: [&str; 9] = [
    "too many",
    "the others: requests/s",
    "p50 ms",
    "p99 ms",
    "refused",
    "steady: p99 ms before; meanwhile; after",
    "failed",
    "as before after s",
    "MiB before; most",
];

impl OverloadReport {
    fn text(&self) -> String {
        let rows: Vec<_> = self.cases.iter().map(OverloadResult::row).collect();
        let refused = self.cases.iter().filter(|case| !case.rush.counts.errors.is_empty());
        let refused = refused.map(|case| format!("{}: {}", word(&case.case), case.rush.counts.errors_text()));
        let table = table::render(&HEAD, 1, &rows);
        [table, self.machine.text()].into_iter().chain(refused).collect::<Vec<_>>().join("\n\n")
    }

    /// An error if those suffered that had been served before.
    fn verdict(&self) -> Result<(), Error> {
        let harmed = |case: &&OverloadResult| case.failed() > 0 || case.as_before_s.is_none();
        match self.cases.iter().filter(harmed).count() {
            0 => Ok(()),
            cases => Err(Error::Overwhelmed { cases, seconds: REFRESH_INTERVAL.as_secs() }),
        }
    }
}

impl OverloadResult {
    /// Of the steady clients' requests.
    fn failed(&self) -> u64 {
        let of = |measured: &Measurement| measured.counts.error_count() + measured.counts.ignored;
        of(&self.meanwhile) + of(&self.after)
    }

    fn row(&self) -> Vec<String> {
        let p99 = |measured: &Measurement| format!("{:.2}", measured.latency_ms.p99);
        vec![
            word(&self.case),
            format!("{:.0}", self.rush.requests_per_second),
            format!("{:.1}", self.rush.latency_ms.p50),
            format!("{:.1}", self.rush.latency_ms.p99),
            self.rush.counts.error_count().to_string(),
            format!("{}; {}; {}", p99(&self.before), p99(&self.meanwhile), p99(&self.after)),
            format!("{} of {}", self.failed(), self.meanwhile.requests + self.after.requests),
            self.as_before_s.map_or("not".into(), |seconds| format!("{seconds:.1}")),
            format!("{:.0}; {:.0}", self.memory_before_mib, self.memory_peak_mib),
        ]
    }
}
