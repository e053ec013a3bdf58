//! Two servers under the same load, in turns: A, B, A, B … What else happens on the machine hits both, so that the ratio
//! of neighbouring runs says more than either figure.

use std::{
    fmt,
    num::NonZeroU32,
    path::PathBuf,
    str::FromStr,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

use crate::{
    error::Error,
    load::{self, Common, Options, find_master},
    output::{note, print},
    process::Server,
    report::{Case, Pair, Report},
    signal::Interrupt,
};

/// How often a server that is starting is asked whether it is ready.
const READY_POLL: Duration = Duration::from_millis(50);

/// Runs two servers under the same load in turns and reports their ratios.
///
/// Both are started here, on free loopback ports, and ended again whatever happens. A command is run as it stands, without
/// a shell, and must be the server itself and no wrapper: CPU time is read from the process that it starts.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Command of server A; `{port}` in it is replaced by a free port.
    #[arg(long, value_name = "COMMAND")]
    a: String,
    /// Command of server B, likewise.
    #[arg(long, value_name = "COMMAND")]
    b: String,
    /// Runs of each server in each case.
    #[arg(long, default_value = "5", value_name = "N")]
    reps: NonZeroU32,
    /// Numbers of clients, each a case with each load. With fewer than there are requests in flight, clients ask again
    /// before they are answered, which real ones do not.
    #[arg(long, default_value = "10,10000", value_name = "N,…", value_delimiter = ',')]
    clients: Vec<NonZeroU32>,
    /// Loads: connections x requests in flight on each.
    #[arg(long, default_value = "4x16,16x16", value_name = "CxF,…", value_delimiter = ',')]
    load: Vec<Shape>,
    #[command(flatten)]
    common: Common,
    /// Start servers once and keep them, instead of afresh for each case.
    #[arg(long)]
    keep: bool,
    /// How long a server may take until it answers and is the master, in seconds.
    #[arg(long, default_value = "10", value_name = "S", value_parser = load::seconds)]
    startup: Duration,
    /// Also write everything that was measured to a file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Connections, and requests in flight on each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    connections: NonZeroU32,
    in_flight: NonZeroU32,
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Shape, String> {
        let parts = text.split_once('x').and_then(|(connections, in_flight)| {
            Some(Shape { connections: connections.parse().ok()?, in_flight: in_flight.parse().ok()? })
        });
        parts.ok_or_else(|| "expected connections x requests in flight, as 4x16".into())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.connections, self.in_flight)
    }
}

pub(crate) fn main(args: &Args) -> Result<(), Error> {
    args.common.check()?;
    let interrupt = Interrupt::watch()?;
    let plan = Plan::new(args);
    note(&plan.announcement());

    let mut report = Report {
        a: args.a.clone(),
        b: args.b.clone(),
        arguments: std::env::args().skip(1).collect(),
        cases: Vec::new(),
    };
    let outcome = plan.run(&interrupt, &mut report.cases);
    plan.bar.finish_and_clear();
    // Cases that were finished are worth something even if a later one failed.
    if !report.cases.is_empty() {
        print(&report.text())?;
        if let Some(path) = &args.json {
            let json = serde_json::to_string_pretty(&report).expect("a report has string keys only");
            std::fs::write(path, json + "\n").map_err(Error::io(format!("write {}", path.display())))?;
        }
    }
    outcome
}

struct Plan<'a> {
    args: &'a Args,
    cases: Vec<(NonZeroU32, Shape)>,
    bar: ProgressBar,
}

struct Servers {
    a: Server,
    b: Server,
}

impl<'a> Plan<'a> {
    fn new(args: &'a Args) -> Plan<'a> {
        let cases: Vec<_> =
            args.clients.iter().flat_map(|&clients| args.load.iter().map(move |&shape| (clients, shape))).collect();
        let bar = ProgressBar::new(cases.len() as u64 * u64::from(args.reps.get()) * 2);
        bar.set_style(ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}").expect("the template is a constant"));
        Plan { args, cases, bar }
    }

    fn announcement(&self) -> String {
        let runs = self.bar.length().unwrap_or_default();
        let total = self.args.common.duration().as_secs_f64() * runs as f64;
        format!(
            "{} cases of {} repetitions, A and B in turns: {runs} runs, about {:.0} s in all and the servers' start",
            self.cases.len(),
            self.args.reps,
            total,
        )
    }

    fn run(&self, interrupt: &Interrupt, done: &mut Vec<Case>) -> Result<(), Error> {
        let mut kept = if self.args.keep { Some(self.start(interrupt)?) } else { None };
        for &(clients, shape) in &self.cases {
            let mut fresh = None;
            let servers = match &mut kept {
                Some(servers) => servers,
                None => fresh.insert(self.start(interrupt)?),
            };
            let mut runs = Vec::new();
            for _ in 0..self.args.reps.get() {
                let a = self.measure("A", &mut servers.a, clients, shape, interrupt)?;
                let b = self.measure("B", &mut servers.b, clients, shape, interrupt)?;
                runs.push(Pair { a, b });
            }
            done.push(Case::new(clients.get(), shape.to_string(), runs));
        }
        Ok(())
    }

    fn start(&self, interrupt: &Interrupt) -> Result<Servers, Error> {
        let mut servers = Servers { a: Server::start(&self.args.a)?, b: Server::start(&self.args.b)? };
        for server in [&mut servers.a, &mut servers.b] {
            self.await_master(server, interrupt)?;
        }
        Ok(servers)
    }

    fn await_master(&self, server: &mut Server, interrupt: &Interrupt) -> Result<(), Error> {
        let deadline = Instant::now() + self.args.startup;
        loop {
            // First: should another process have taken the port, its answer is not our server's.
            server.check()?;
            match find_master(server.address()) {
                Ok(()) => return server.check(),
                Err(error) if Instant::now() >= deadline => {
                    let patience = self.args.startup.as_secs_f64();
                    return Err(server.failed(format!("is not ready after {patience} s: {error}")));
                }
                Err(_) => interrupt.sleep_until(Instant::now() + READY_POLL, || {})?,
            }
        }
    }

    fn measure(
        &self,
        name: &str,
        server: &mut Server,
        clients: NonZeroU32,
        shape: Shape,
        interrupt: &Interrupt,
    ) -> Result<load::Measurement, Error> {
        let options = Options {
            target: server.address(),
            clients: clients.get(),
            connections: shape.connections.get(),
            in_flight: shape.in_flight.get(),
            server_pid: Some(server.pid()),
            common: &self.args.common,
        };
        let measured = load::run(&options, interrupt, |live| {
            self.bar.set_message(format!("{clients} clients, {shape}, {name}: {}", live.text()));
        });
        server.check()?; // says why, where the measurement would only say that the process is gone
        self.bar.inc(1);
        measured
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_parsed_and_printed() {
        let shape: Shape = "4x16".parse().unwrap();
        assert_eq!((shape.connections.get(), shape.in_flight.get(), shape.to_string().as_str()), (4, 16, "4x16"));
        for wrong in ["", "4", "x", "4x", "0x16", "4x0", "4x16x1", "-1x2", "4 x 16"] {
            assert!(wrong.parse::<Shape>().is_err(), "{wrong:?} was accepted");
        }
    }
}
