//! Measures two servers under the same load, alternately: A, B, A, B … Other activity on the machine affects both, so
//! the ratio of neighbouring runs is more reliable than either figure.

pub(crate) mod ceiling;
pub(crate) mod report;

use std::{
    collections::BTreeSet, fmt, fs::File, net::SocketAddr, num::NonZeroU32, path::PathBuf, str::FromStr, time::Duration,
};

use indicatif::ProgressBar;

use crate::{
    common::{
        error::Error,
        output::{Machine, arguments, note, print, progress, write_json},
        server::{Interrupt, Server},
    },
    compare::report::{CompareReport, ComparedCase, Pair, Summary},
    load::{
        connection::{Dialer, find_master},
        measurement::Measurement,
        options::{Common, Options, warning},
        run::{Crowd, run},
    },
};

/// The time limit for a server to answer as the master.
const STARTUP: Duration = Duration::from_secs(10);

/// Run two servers under the same load, alternately, and report ratios.
///
/// Both servers are started on free loopback ports. A command is run without a shell and must be the server itself,
/// because CPU time is read from its process. Clients keep their leases from one repetition to the next. With `--fill`
/// all of them have a lease before the first one.
///
/// Every combination of `--clients`, `--resources` and `--load` is a case. The default cases take less than a minute.
#[derive(clap::Args)]
#[command(after_long_help = COMPARE_EXAMPLES)]
pub(crate) struct CompareArgs {
    /// The command of server A; `{port}` is replaced by a free port.
    #[arg(long, value_name = "COMMAND")]
    a: String,
    /// The command of server B.
    #[arg(long, value_name = "COMMAND")]
    b: String,
    /// The number of runs of each server in each case.
    #[arg(long, default_value = "3", value_name = "N")]
    reps: NonZeroU32,
    /// The numbers of clients. `1000000:10` gives A a million and B ten. With fewer clients than requests in flight, a
    /// client sends requests before its previous one is answered.
    #[arg(long, default_value = "10000", value_name = "N|A:B,…", value_delimiter = ',')]
    clients: Vec<Clients>,
    /// The numbers of resources.
    #[arg(long, default_value = "1", value_name = "K,…", value_delimiter = ',')]
    resources: Vec<NonZeroU32>,
    /// The loads: connections x requests in flight on each.
    #[arg(long, default_value = "4x16,16x16", value_name = "CxF,…", value_delimiter = ',')]
    load: Vec<Shape>,
    #[command(flatten)]
    common: Common,
    /// Also write all results to a file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const COMPARE_EXAMPLES: &str = "\
Examples:
  # A server, and one without logic, in eight cases:
  leaseway-bench compare --reps 5 --clients 10,10000 --resources 1,1000 --load 4x16,16x16 --json cases.json \\
      --a 'leaseway serve --listen 127.0.0.1:{port} --http 127.0.0.1:0 --config bench.yaml' \\
      --b 'leaseway-bench ceiling --listen 127.0.0.1:{port}'

  # The same over TLS, with certificates of `leaseway certs` (init; issue node --host 127.0.0.1):
  leaseway-bench compare --tls-ca certs/ca.pem \\
      --a 'leaseway serve --listen 127.0.0.1:{port} --http 127.0.0.1:0 --config bench.yaml --tls-cert certs/node.pem \\
           --tls-key certs/node.key' \\
      --b 'leaseway-bench ceiling --listen 127.0.0.1:{port} --tls-cert certs/node.pem --tls-key certs/node.key'

  # The same server with a million clients and with a hundred, all with a lease at the start. Leases should last for
  # minutes, and the server may need --max-clients-per-resource:
  leaseway-bench compare --fill --clients 1000000:100 --load 4x16 --a 'leaseway serve …' --b 'leaseway serve …'";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Clients {
    a: NonZeroU32,
    b: NonZeroU32,
}

impl FromStr for Clients {
    type Err = String;

    fn from_str(text: &str) -> Result<Clients, String> {
        let (a, b) = text.split_once(':').unwrap_or((text, text));
        let clients = a.parse().ok().zip(b.parse().ok()).map(|(a, b)| Clients { a, b });
        clients.ok_or_else(|| "expected a number, or one for A and one for B, as 1000000:10".into())
    }
}

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

pub(crate) fn main(args: &CompareArgs) -> Result<(), Error> {
    args.resources.iter().try_for_each(|&resources| args.common.check(resources))?;
    let writable = |path: &PathBuf| File::options().append(true).create(true).open(path).map(drop);
    if let Some(path) = &args.json {
        // Check this first, so that an hour of measurements is not lost.
        writable(path).map_err(Error::io(format!("write {}", path.display())))?;
    }
    let interrupt = Interrupt::watch()?;
    let comparison = Comparison::new(args)?;
    note(&comparison.announcement());
    for warning in comparison.warnings() {
        note(&warning);
    }

    let mut cases = Vec::new();
    let outcome = comparison.mixes.iter().try_for_each(|&mix| {
        cases.push(comparison.case(mix, &interrupt)?);
        Ok(())
    });
    comparison.bar.finish_and_clear();
    // Finished cases are reported even if a later one failed.
    if !cases.is_empty() {
        let (a, b) = (args.a.clone(), args.b.clone());
        let report = CompareReport { a, b, arguments: arguments(), machine: Machine::read(), cases };
        write_json(args.json.as_deref(), &report)?;
        print(&report.text())?;
    }
    outcome
}

#[derive(Clone, Copy)]
struct Mix {
    clients: Clients,
    resources: NonZeroU32,
    shape: Shape,
}

struct Comparison<'a> {
    args: &'a CompareArgs,
    mixes: Vec<Mix>,
    dialer: Dialer,
    bar: ProgressBar,
}

/// One server in one case.
struct Runner<'r> {
    name: &'static str,
    server: Server,
    options: Options<'r>,
    crowd: Crowd,
    bar: &'r ProgressBar,
}

impl<'a> Comparison<'a> {
    fn new(args: &'a CompareArgs) -> Result<Comparison<'a>, Error> {
        let mut mixes = Vec::new();
        for &clients in &args.clients {
            for &resources in &args.resources {
                mixes.extend(args.load.iter().map(|&shape| Mix { clients, resources, shape }));
            }
        }
        let bar = progress(mixes.len() as u64 * u64::from(args.reps.get()) * 2, "{bar:40} {pos}/{len} {msg}");
        Ok(Comparison { args, mixes, dialer: Dialer::new(args.common.tls.client()?), bar })
    }

    fn announcement(&self) -> String {
        let runs = self.bar.length().unwrap_or_default();
        let total = self.args.common.duration().as_secs_f64() * runs as f64;
        let fill = if self.args.common.fill { ", the time until all clients have a lease" } else { "" };
        format!(
            "{} cases of {} repetitions, A and B in turns: {runs} runs, about {total:.0} s in all{fill} and the servers' \
             start",
            self.mixes.len(),
            self.args.reps,
        )
    }

    fn warnings(&self) -> BTreeSet<String> {
        let sides = self.mixes.iter().flat_map(|mix| [(mix.clients.a, mix.shape), (mix.clients.b, mix.shape)]);
        sides
            .filter_map(|(clients, Shape { connections, in_flight })| {
                warning(clients.get(), connections.get(), in_flight.get())
            })
            .collect()
    }

    fn case(&self, mix: Mix, interrupt: &Interrupt) -> Result<ComparedCase, Error> {
        let mut a = self.runner("A", &self.args.a, mix.clients.a, mix)?;
        let mut b = self.runner("B", &self.args.b, mix.clients.b, mix)?;
        for runner in [&mut a, &mut b] {
            runner.await_master(interrupt)?;
        }
        if self.args.common.fill {
            for runner in [&mut a, &mut b] {
                runner.fill(interrupt)?;
            }
        }
        let mut runs = Vec::new();
        for _ in 0..self.args.reps.get() {
            runs.push(Pair { a: a.measure(interrupt)?, b: b.measure(interrupt)? });
        }
        let (a, b) = (a.summary(runs.iter().map(|run| &run.a)), b.summary(runs.iter().map(|run| &run.b)));
        Ok(ComparedCase::new(mix.resources.get(), mix.shape.to_string(), a, b, runs))
    }

    fn runner(&self, name: &'static str, command: &str, clients: NonZeroU32, mix: Mix) -> Result<Runner<'_>, Error> {
        let (server, address): (_, SocketAddr) = Server::listening(command)?;
        let options = Options {
            targets: vec![address],
            clients: clients.get(),
            resources: mix.resources.get(),
            connections: mix.shape.connections.get(),
            in_flight: mix.shape.in_flight.get(),
            server_pid: Some(server.id()),
            dialer: self.dialer.clone(),
            common: &self.args.common,
        };
        let crowd = Crowd::new(&options);
        Ok(Runner { name, server, options, crowd, bar: &self.bar })
    }
}

impl Runner<'_> {
    fn await_master(&self, interrupt: &Interrupt) -> Result<(), Error> {
        let Options { targets, dialer, .. } = &self.options;
        let probe = || find_master(targets[0], dialer).map_err(|error| error.to_string());
        self.server.await_ready(STARTUP, interrupt, probe)
    }

    /// The beginning of the progress message.
    fn label(&self) -> String {
        let Options { clients, resources, connections, in_flight, .. } = self.options;
        let resources = if resources == 1 { String::new() } else { format!(", {resources} resources") };
        format!("{}, {clients} clients{resources}, {connections}x{in_flight}", self.name)
    }

    fn fill(&mut self, interrupt: &Interrupt) -> Result<(), Error> {
        let (label, bar) = (self.label(), self.bar);
        let filled = self.crowd.fill(&self.options, interrupt, |live| {
            bar.set_message(format!("{label}: {} have a lease, {}", live.leased(), live.text()));
        });
        self.server.check()?; // its error has the cause, while that of the load only says that the process is gone
        filled
    }

    fn measure(&mut self, interrupt: &Interrupt) -> Result<Measurement, Error> {
        let (label, bar) = (self.label(), self.bar);
        let measured = run(&self.options, &mut self.crowd, interrupt, |_, live| {
            bar.set_message(format!("{label}: {}", live.text()));
        });
        self.server.check()?;
        self.bar.inc(1);
        measured
    }

    fn summary<'m>(&self, runs: impl Iterator<Item = &'m Measurement>) -> Summary {
        Summary::of(self.options.clients, self.crowd.filled, &runs.collect::<Vec<_>>())
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

    #[test]
    fn each_server_may_have_its_own_number_of_clients() {
        let clients = |text: &str| text.parse::<Clients>().map(|clients| (clients.a.get(), clients.b.get()));
        assert_eq!((clients("10"), clients("1000:10")), (Ok((10, 10)), Ok((1000, 10))));
        for wrong in ["", ":", "10:", ":10", "0", "1:0", "1:2:3"] {
            assert!(clients(wrong).is_err(), "{wrong:?} was accepted");
        }
    }
}
