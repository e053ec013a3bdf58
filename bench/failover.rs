//! Very many clients, and the loss of the master that knew them all.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroU32,
    path::PathBuf,
    time::{Duration, Instant},
};

use leaseway_process::{Signal, ports, usage};
use serde::Serialize;
use tempfile::TempDir;

use crate::{
    error::Error,
    flags::seconds,
    load::{self, Common, Crowd, Dialer, Filled, Measurement, Options, Second, follow_to_master, now},
    machine::Machine,
    output::{arguments, millis, print, progress, write_json},
    server::{Server, server_words},
    signal::Interrupt,
    table,
};

/// Lets very many clients have a lease, kills the master, and measures each second until all have come back.
///
/// Three peers are started on free loopback ports. All clients get a lease of one resource of which there is half of
/// what they want. Then they ask again, in random order, as fast as they are answered; a few seconds later the master
/// gets SIGKILL, and they go on. The table has each second from then on. Clients, peers and this program share the
/// machine.
///
/// It fails if clients together believe in more than there is, if a request was refused, or if not all have come back
/// in time; never for speed.
#[derive(clap::Args)]
pub(crate) struct FailoverArgs {
    /// The server; `serve` and its flags are added. [default: `leaseway` beside this program, or in PATH]
    #[arg(long, value_name = "COMMAND")]
    server: Option<String>,
    /// Clients that hold a lease when the master is lost.
    #[arg(long, default_value = "1000000", value_name = "N")]
    clients: NonZeroU32,
    /// How long it is measured after that.
    #[arg(long, default_value = "60", value_name = "S", value_parser = seconds)]
    seconds: Duration,
    /// Also write everything that was measured to a file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const PEERS: [&str; 3] = ["a", "b", "c"];
const CONNECTIONS: u32 = 16;
const IN_FLIGHT: u32 = 16;

/// So often at most.
const TRIES: usize = 12;

/// So much is in use then.
const SETTLED: f64 = 0.99;

/// Each client wants 1 to 100.
const CAPACITY_EACH: f64 = 25.0;

/// Leases last for longer than a run.
const LEASE_S: i64 = 600;

/// By so much the end of a lease is rounded, at most.
const CLOCK_GRAIN_S: i64 = 1;

/// How long it may take until there is a master.
const STARTUP: Duration = Duration::from_secs(15);

/// What is measured before the master is lost, again and again until it has divided what there is among the newcomers:
/// what it has taken from one and not given to another counts as promised until leases end, for the next master cannot
/// know.
const BEFORE: Duration = Duration::from_secs(5);

/// What `failover` writes.
#[derive(Serialize)]
struct FailoverReport {
    /// The whole command line, so that it can be repeated.
    arguments: Vec<String>,
    machine: Machine,
    clients: u32,
    capacity: f64,
    filled: Option<Filled>,
    before: Measurement,
    /// What clients believed in together then.
    believed_before: f64,
    /// From the loss on.
    after: Measurement,
    /// Clients that had a lease of the next master at the end.
    back: u64,
    /// What clients believed in together then.
    believed: f64,
    /// Of the peers that lived on: the most that one had before the loss and at the end. The one has become master.
    follower_mib: f64,
    after_mib: Vec<f64>,
    data_kib: u64,
}

pub(crate) fn main(args: &FailoverArgs) -> Result<(), Error> {
    if args.seconds.is_zero() {
        return Err(Error::Usage("--seconds 0 measures nothing".into()));
    }
    let interrupt = Interrupt::watch()?;
    let report = Peers::start(args, &interrupt)?.lose_master(args, &interrupt)?;
    write_json(args.json.as_deref(), &report)?;
    print(&report.text())?;
    report.verdict()
}

/// Three peers of one node. The first is the master.
struct Peers {
    peers: Vec<FailoverPeer>,
    /// Last: its files belong to the processes.
    directory: TempDir,
}

struct FailoverPeer {
    name: &'static str,
    grpc: SocketAddr,
    server: Server,
}

impl Peers {
    fn start(args: &FailoverArgs, interrupt: &Interrupt) -> Result<Peers, Error> {
        let directory = tempfile::tempdir().map_err(Error::io("create a directory for the peers"))?;
        let config = directory.path().join("leaseway.yaml");
        fs::write(&config, configuration(args.clients)).map_err(Error::io("write the configuration"))?;
        let found = ports::free(Ipv4Addr::LOCALHOST, 2 * PEERS.len()).map_err(Error::io("find free ports"))?;
        let (grpc, between) = found.split_at(PEERS.len());
        let named: Vec<_> = PEERS.iter().zip(between).map(|(name, address)| format!("{name}={address}")).collect();
        // One address has no more than a share.
        let room = args.clients.get().saturating_mul(2).to_string();
        let mut peers = Vec::new();
        for (place, name) in PEERS.into_iter().enumerate() {
            let flags = [
                ("--id", name.to_owned()),
                ("--listen", grpc[place].to_string()),
                ("--peer-listen", between[place].to_string()),
                ("--peers", named.join(",")),
                ("--http", "127.0.0.1:0".into()),
                ("--admin", "127.0.0.1:0".into()),
                ("--config", config.display().to_string()),
                ("--data", directory.path().join(name).display().to_string()),
                ("--max-clients", room.clone()),
                ("--max-clients-per-resource", room.clone()),
            ];
            let mut words = server_words(args.server.as_deref())?;
            words.extend(flags.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]));
            words.push("--bootstrap".into());
            let log = tempfile::tempfile().map_err(Error::io("create a temporary file"))?;
            peers.push(FailoverPeer { name, grpc: grpc[place], server: Server::start(&words, &log)? });
        }
        let mut peers = Peers { peers, directory };
        peers.await_master(interrupt)?;
        Ok(peers)
    }

    fn await_master(&mut self, interrupt: &Interrupt) -> Result<(), Error> {
        let deadline = Instant::now() + STARTUP;
        let grpc: Vec<_> = self.peers.iter().map(|peer| peer.grpc).collect();
        loop {
            self.check()?;
            match follow_to_master(&grpc, &Dialer::default()) {
                Ok(master) => {
                    self.peers.sort_by_key(|peer| peer.grpc != master);
                    return Ok(());
                }
                Err(error) if Instant::now() >= deadline => return Err(error),
                Err(_) => interrupt.glance(|| {})?,
            }
        }
    }

    fn check(&self) -> Result<(), Error> {
        self.peers.iter().try_for_each(|peer| peer.server.check())
    }

    fn lose_master(mut self, args: &FailoverArgs, interrupt: &Interrupt) -> Result<FailoverReport, Error> {
        let [first, common] = [BEFORE, args.seconds].map(Common::refreshes);
        let clients = args.clients.get();
        let options = Options {
            targets: self.peers.iter().map(|peer| peer.grpc).collect(),
            clients,
            resources: 1,
            connections: CONNECTIONS,
            in_flight: IN_FLIGHT,
            server_pid: None,
            dialer: Dialer::default(),
            common: &common,
        };
        let mut crowd = Crowd::new(&options);
        let bar = progress(clients.into(), "{bar:40} {pos}/{len} clients have a lease, {msg}");
        crowd.fill(&options, interrupt, |live| {
            bar.set_position(live.leased());
            bar.set_message(live.text().to_owned());
        })?;
        bar.finish_and_clear();
        let bar = progress(millis(first.duration() + common.duration()), "{bar:40} {msg}");
        let capacity = f64::from(clients) * CAPACITY_EACH;
        let mut tries = 0;
        let before = loop {
            let options = Options { common: &first, ..options.clone() };
            let before = load::run(&options, &mut crowd, interrupt, |elapsed, live| {
                bar.set_position(millis(elapsed));
                bar.set_message(live.text().to_owned());
            })?;
            tries += 1;
            if tries == TRIES || crowd.believed() >= SETTLED * capacity {
                break before;
            }
        };
        let (believed_before, follower_mib) = (crowd.believed(), self.followers_mib()?.into_iter().fold(0.0, f64::max));
        let mut lost_at = None;
        let after = load::run(&options, &mut crowd, interrupt, |elapsed, live| {
            if lost_at.is_none() && elapsed >= common.warmup {
                let master = &mut self.peers[0].server;
                master.expect_end();
                master.signal(Signal::KILL);
                lost_at = Some(now());
            }
            bar.set_position(millis(first.duration() + elapsed));
            bar.set_message(live.text().to_owned());
        })?;
        bar.finish_and_clear();
        self.check()?;
        Ok(FailoverReport {
            arguments: arguments(),
            machine: Machine::read(),
            clients,
            capacity,
            filled: crowd.filled,
            before,
            believed_before,
            after,
            back: lost_at.map_or(0, |lost_at| crowd.leased_beyond(lost_at + LEASE_S + CLOCK_GRAIN_S)),
            believed: crowd.believed(),
            follower_mib,
            after_mib: self.followers_mib()?,
            data_kib: self.data_kib()?,
        })
    }

    fn followers_mib(&self) -> Result<Vec<f64>, Error> {
        let memory = |peer: &FailoverPeer| usage::memory(peer.server.id()).map_err(Error::process(peer.server.id()));
        let mib = |peer| memory(peer).map(|memory| memory.now_kib as f64 / 1024.0);
        self.peers[1..].iter().map(mib).collect()
    }

    /// Of one peer: the most.
    fn data_kib(&self) -> Result<u64, Error> {
        let sizes = self.peers.iter().map(|peer| crate::soak::size(&self.directory.path().join(peer.name)));
        let sizes = sizes.collect::<Result<Vec<_>, _>>().map_err(Error::io("look at the data"))?;
        Ok(sizes.into_iter().max().unwrap_or_default() / 1024)
    }
}

fn configuration(clients: NonZeroU32) -> String {
    let capacity = f64::from(clients.get()) * CAPACITY_EACH;
    format!(
        "\
resources:
- identifier_glob: \"*\"
  capacity: {capacity}
  algorithm: {{kind: FAIR_SHARE, lease_length: {LEASE_S}, refresh_interval: 16, learning_mode_duration: 0,
              parameters: {{min_request_interval: 0}}}}
"
    )
}

/// What a client notices of a lost master by itself; all else is a refusal.
const LOST: [&str; 5] = ["cannot connect", "connection lost", "stream broken", "not the master", "Unavailable"];

impl FailoverReport {
    fn refused(&self) -> u64 {
        let errors = self.after.counts.errors.iter();
        errors.filter(|(kind, _)| !LOST.contains(&kind.as_str())).map(|(_, count)| count).sum()
    }

    fn text(&self) -> String {
        let mut answered = 0;
        let row = |(number, second): (usize, &Second)| {
            answered += second.answered;
            let ms = |ms: f64| if ms.is_nan() { "–".into() } else { format!("{ms:.1}") };
            vec![
                (number + 1).to_string(),
                second.answered.to_string(),
                format!("{:.2}", second.answered as f64 / self.before.requests_per_second),
                second.failed.to_string(),
                ms(second.p99_ms),
                ms(second.max_ms),
                format!("{:.2}", answered as f64 / f64::from(self.clients)),
            ]
        };
        let rows: Vec<_> = self.after.by_second.iter().enumerate().map(row).collect();
        let head =
            ["second", "answered", "of before", "failed", "p99 ms", "longest ms", "answers for each client so far"];
        let after: Vec<_> = self.after_mib.iter().map(|mib| format!("{mib:.0}")).collect();
        let lines = [
            self.filled.map(|filled| filled.line()).unwrap_or_default(),
            format!("before: {:.0} requests/s", self.before.requests_per_second),
            format!("the longest without an answer: {:.0} ms", self.after.silence_ms),
            format!("failed: {}", self.after.counts.errors_text()),
            format!("{} of {} clients have a lease of the next master", self.back, self.clients),
            format!(
                "of {} clients believed in {:.1} before, and believe in {:.1}",
                self.capacity, self.believed_before, self.believed
            ),
            format!(
                "a follower had {:.0} MiB before; those that lived on have {} MiB, and {} KiB of data",
                self.follower_mib,
                after.join(" and "),
                self.data_kib
            ),
        ];
        [table::render(&head, 0, &rows), lines.join("\n"), self.machine.text()].join("\n\n")
    }

    fn verdict(&self) -> Result<(), Error> {
        if self.believed > self.capacity * (1.0 + 1e-9) {
            return Err(Error::OverCapacity { over: 1, capacity: self.capacity });
        }
        let away = u64::from(self.clients).saturating_sub(self.back);
        match self.refused() {
            0 if away == 0 => Ok(()),
            refused => Err(Error::Lost { away, refused }),
        }
    }
}
