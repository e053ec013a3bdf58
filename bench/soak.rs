//! One server with short leases, for a long time: what it has open, in memory and on its disk must not grow, and its
//! sums must be those of its holders.

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroU32,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use leaseway_client::{Client, LeaseTrace, Resource, Transport};
use leaseway_process::{ports, usage};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::{
    audit,
    book::MachineClock,
    error::Error,
    flags::seconds,
    machine::Machine,
    output::{arguments, note, print, progress, write_json},
    server::{Server, said_by, server_words},
    signal::Interrupt,
    table,
};

/// Runs a server with leases of two seconds and clients that come, change their minds, leave and crash, and looks
/// whether anything of the server grows: memory, descriptors, its log on the disk. Every look recomputes the sums of a
/// resource from its holders. At the end the books of all clients are added up.
///
/// An hour with leases of two seconds has as many refreshes and ends of leases as a day and a half with leases of a
/// minute and a half. It fails if the last third of the time needed more than the second, beyond what --slack allows.
#[derive(clap::Args)]
pub(crate) struct SoakArgs {
    /// How long, in seconds.
    #[arg(long = "for", default_value = "900", value_name = "S", value_parser = seconds)]
    length: Duration,
    /// Clients that are there at a time.
    #[arg(long, default_value = "200", value_name = "N")]
    clients: NonZeroU32,
    /// What each kind may grow by, as a part of what it was.
    #[arg(long, default_value = "0.1", value_name = "PART")]
    slack: f64,
    /// The server; `serve` and its flags are added. [default: `leaseway` beside this program, or in PATH]
    #[arg(long, value_name = "COMMAND")]
    server: Option<String>,
    /// Also write everything that was measured to a file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const CAPACITY: f64 = 1000.0;
const RESOURCES: usize = 10;
const CONFIGURATION: &str = "\
resources:
- identifier_glob: \"*\"
  capacity: 1000
  algorithm: {kind: FAIR_SHARE, lease_length: 2, refresh_interval: 1, parameters: {min_request_interval: 0}}
";

/// How often a client does something else, and in how many looks the time is divided.
const STIR: Duration = Duration::from_millis(25);
const LOOKS: u32 = 60;

/// How long a server may take until it has a master.
const STARTUP: Duration = Duration::from_secs(30);

/// What may come and go: pages of the allocator, a segment of the log, connections.
const MEMORY_GRAIN: f64 = 8192.0;
const DISK_GRAIN: f64 = 4096.0;
const DESCRIPTORS_GRAIN: f64 = 16.0;

/// One look at the server.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Look {
    seconds: f64,
    memory_kib: u64,
    descriptors: usize,
    disk_kib: u64,
    resources: u64,
    /// By how much the sums of one resource differ from those of its holders, at most.
    off: f64,
}

#[derive(Serialize)]
struct SoakReport {
    arguments: Vec<String>,
    machine: Machine,
    looks: Vec<Look>,
    clients_seen: usize,
    entries: usize,
    over_us: u64,
}

struct Soaked {
    server: Server,
    program: Vec<String>,
    grpc: SocketAddr,
    directory: TempDir,
}

struct SoakSeat {
    id: String,
    client: Client,
    resource: Resource,
}

pub(crate) fn main(args: &SoakArgs) -> Result<(), Error> {
    if args.length < Duration::from_secs(30) {
        return Err(Error::Usage("--for: expected at least 30 seconds, thirds of less show nothing".into()));
    }
    let interrupt = Interrupt::watch()?;
    let runtime = Runtime::new().map_err(Error::io("start a runtime"))?;
    let _inside = runtime.enter();
    let soaked = Soaked::start(args, &interrupt)?;
    let (book, clock, transport) = (LeaseTrace::new(), MachineClock::read(), Transport::new());
    let mut random = fastrand::Rng::with_seed(1);
    let sit = |id: String, number: usize| {
        let builder = Client::builder().endpoints([soaked.grpc.to_string()]).lease_trace(&book).id(id.clone());
        let client = builder.transport(&transport).build().map_err(Error::usage)?;
        let resource = client.resource(format!("soak-{number}")).wants(50.0).open().map_err(Error::usage)?;
        Ok::<_, Error>(SoakSeat { id, client, resource })
    };
    let mut seats: Vec<SoakSeat> = (0..args.clients.get() as usize)
        .map(|n| sit(format!("client:{n}"), n % RESOURCES))
        .collect::<Result<_, _>>()?;
    let bar = progress(u64::from(LOOKS), "{bar:40} {pos}/{len} {elapsed}");
    let (began, mut looks, mut visits) = (Instant::now(), Vec::new(), 0);
    let mut next = began;
    while began.elapsed() < args.length {
        interrupt.sleep_until(Instant::now() + STIR, || {})?;
        let place = random.usize(..seats.len());
        match random.u8(..20) {
            // It crashes and comes back under its name; or it leaves, and another comes, perhaps for a resource that
            // none had. Two never live at once under one name.
            0 | 1 => {
                let SoakSeat { id, client, .. } = seats.swap_remove(place);
                let number = place % RESOURCES;
                if random.bool() {
                    client.abandon();
                    seats.push(sit(id, number)?);
                } else {
                    runtime.spawn(async move { client.close().await });
                    visits += 1;
                    let resource = if random.bool() { number } else { RESOURCES + visits };
                    seats.push(sit(format!("visitor:{visits}"), resource)?);
                }
            }
            _ => {
                // Refused only once the client is closed.
                let _ = seats[place].resource.set_wants(random.f64() * 300.0);
            }
        }
        if Instant::now() >= next {
            next += args.length / LOOKS;
            looks.push(soaked.look(began.elapsed())?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    soaked.server.check()?;
    for seat in seats {
        runtime.block_on(seat.client.close());
    }
    let audits = audit::audit(clock.lines(book.take()), CAPACITY);
    let report = SoakReport {
        arguments: arguments(),
        machine: Machine::read(),
        clients_seen: args.clients.get() as usize + visits,
        entries: audits.iter().map(|(_, audit)| audit.entries()).sum(),
        over_us: audits.iter().map(|(_, audit)| audit.over_us).sum(),
        looks,
    };
    write_json(args.json.as_deref(), &report)?;
    report.judge(args.slack)
}

impl Soaked {
    fn start(args: &SoakArgs, interrupt: &Interrupt) -> Result<Soaked, Error> {
        let directory = tempfile::tempdir().map_err(Error::io("create a directory for the server"))?;
        let configuration = directory.path().join("leaseway.yaml");
        fs::write(&configuration, CONFIGURATION).map_err(Error::io("write a configuration"))?;
        let program = server_words(args.server.as_deref())?;
        let found = ports::free(Ipv4Addr::LOCALHOST, 2).map_err(Error::io("find free ports"))?;
        let flags = [
            ("--listen", found[0].to_string()),
            ("--admin", found[1].to_string()),
            ("--http", "127.0.0.1:0".into()),
            ("--config", configuration.display().to_string()),
            ("--data", directory.path().join("data").display().to_string()),
            ("--idle-secs", "5".into()),
        ];
        let flags = flags.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
        let words: Vec<_> = program.iter().cloned().chain(["--bootstrap".into()]).chain(flags).collect();
        let log = tempfile::tempfile().map_err(Error::io("create a temporary file"))?;
        let server = Server::start(&words, &log)?;
        let soaked = Soaked { server, program, grpc: found[0], directory };
        let deadline = Instant::now() + STARTUP;
        while let Err(error) = soaked.status(None) {
            soaked.server.check()?;
            if Instant::now() > deadline {
                return Err(soaked.server.failed(format!("is not ready: {error}")));
            }
            interrupt.glance(|| {})?;
        }
        Ok(soaked)
    }

    fn status(&self, resource: Option<&str>) -> Result<serde_json::Value, Error> {
        let server = self.grpc.to_string();
        let words = resource.into_iter().chain(["--all", "--json", "--server", &server]);
        let said = said_by(&self.program, &std::iter::once("status").chain(words).collect::<Vec<_>>())?;
        serde_json::from_str(&said).map_err(|error| Error::Usage(format!("`status --json` says no JSON: {error}")))
    }

    fn look(&self, at: Duration) -> Result<Look, Error> {
        let pid = self.server.id();
        let unread = || Error::process(pid);
        let number = at.as_secs() as usize % RESOURCES;
        let mut apart = f64::MAX;
        for _ in 0..TRIES {
            apart = apart.min(off(&self.status(Some(&format!("soak-{number}")))?["resources"][0]));
            if apart <= ROUNDING {
                break;
            }
        }
        Ok(Look {
            seconds: at.as_secs_f64(),
            memory_kib: usage::memory(pid).map_err(unread())?.now_kib,
            descriptors: usage::descriptors(pid).map_err(unread())?,
            disk_kib: size(&self.directory.path().join("data")).map_err(Error::io("look at the data"))? / 1024,
            resources: self.status(None)?["resources_total"].as_u64().unwrap_or(0),
            off: apart,
        })
    }
}

/// By how much what is said of a resource differs from the sums over its holders.
fn off(resource: &serde_json::Value) -> f64 {
    let holders = resource["holder"].as_array().map(Vec::as_slice).unwrap_or_default();
    let sum = |name: &str| holders.iter().filter_map(|holder| holder[name].as_f64()).sum::<f64>();
    let estate = resource["promises"]["estate"].as_f64().unwrap_or(0.0);
    let said = |name: &str| resource[name].as_f64().unwrap_or(0.0);
    let apart = [said("wants") - sum("wants"), said("granted") - sum("granted"), said("held") - estate - sum("held")];
    apart.into_iter().map(f64::abs).fold(0.0, f64::max)
}

pub(crate) fn size(directory: &Path) -> io::Result<u64> {
    fs::read_dir(directory)?.try_fold(0, |sum, entry| {
        let entry = entry?;
        // What the server deletes meanwhile has no size.
        let of = match entry.metadata() {
            Ok(data) if data.is_dir() => size(&entry.path())?,
            Ok(data) => data.len(),
            Err(_) => 0,
        };
        Ok(sum + of)
    })
}

/// A lease that has just ended counts in the sums until the next tick, and not at its holder: then another look is
/// taken, so often.
const TRIES: usize = 5;

/// The sums of floats in another order.
const ROUNDING: f64 = 1e-6;

impl SoakReport {
    fn judge(&self, slack: f64) -> Result<(), Error> {
        let third = self.looks.len() / 3;
        let (middle, last) = (&self.looks[third..2 * third], &self.looks[2 * third..]);
        let mut grown = Vec::new();
        let mut row = |name: &str, grain: f64, of: fn(&Look) -> f64| {
            let (before, after) = (median(middle, of), median(last, of));
            if after > before * (1.0 + slack) + grain {
                grown.push(name.to_owned());
            }
            let most = self.looks.iter().map(of).fold(0.0, f64::max);
            [name.to_owned(), format!("{before:.0}"), format!("{after:.0}"), format!("{most:.0}")]
        };
        let rows = [
            row("memory, KiB", MEMORY_GRAIN, |look| look.memory_kib as f64),
            row("descriptors", DESCRIPTORS_GRAIN, |look| look.descriptors as f64),
            row("on disk, KiB", DISK_GRAIN, |look| look.disk_kib as f64),
            row("resources", DESCRIPTORS_GRAIN, |look| look.resources as f64),
        ];
        print(&table::render(&["what", "second third", "last third", "most"], 1, &rows))?;
        let off = self.looks.iter().map(|look| look.off).fold(0.0, f64::max);
        let (looks, seen, entries) = (self.looks.len(), self.clients_seen, self.entries);
        note(&self.machine.text());
        print(&format!(
            "{looks} looks; {seen} clients, {entries} entries in their books; sums and holders are {off:.1e} apart at \
             most"
        ))?;
        if self.over_us > 0 {
            grown.push(format!("what clients believed in: for {} µs more than there is", self.over_us));
        }
        if off > ROUNDING {
            grown.push(format!("the distance between sums and holders: {off}"));
        }
        if grown.is_empty() { Ok(()) } else { Err(Error::Grown { what: grown.join(", ") }) }
    }
}

fn median(looks: &[Look], of: fn(&Look) -> f64) -> f64 {
    let mut all: Vec<f64> = looks.iter().map(of).collect();
    all.sort_unstable_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(memory: impl Fn(u32) -> u64, off: f64, over_us: u64) -> SoakReport {
        let look = |n: u32| Look {
            seconds: f64::from(n),
            memory_kib: memory(n),
            descriptors: 20,
            disk_kib: 100,
            resources: 10,
            off,
        };
        let looks = (0..60).map(look).collect();
        SoakReport { arguments: Vec::new(), machine: Machine::read(), looks, clients_seen: 1, entries: 1, over_us }
    }

    #[test]
    fn what_grows_is_named_and_what_only_begins_with_more_is_not() {
        assert!(report(|n| 50_000 + u64::from(n.min(20)) * 4000, 0.0, 0).judge(0.1).is_ok());
        let grown = report(|n| 50_000 + u64::from(n) * 4000, 0.0, 0).judge(0.1).unwrap_err().to_string();
        assert!(grown.contains("memory"), "{grown}");
        assert!(report(|_| 1, 0.5, 0).judge(0.1).is_err());
        assert!(report(|_| 1, 0.0, 9).judge(0.1).is_err());
    }

    #[test]
    fn sums_are_compared_with_those_of_holders() {
        let resource = |held: f64| {
            serde_json::json!({"wants": 3.0, "granted": 3.0, "held": held, "promises": {"estate": 2.0},
                "holder": [{"wants": 1.0, "granted": 1.0, "held": 1.0}, {"wants": 2.0, "granted": 2.0, "held": 2.5}]})
        };
        assert_eq!(off(&resource(5.5)), 0.0);
        assert_eq!(off(&resource(5.0)), 0.5);
    }
}
