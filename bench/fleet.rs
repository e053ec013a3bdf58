//! Real clients, many of them in one process: what they cost, and how soon everybody has what it is due when demand
//! jumps.
//!
//! What a client is due is the server's own word (`GetStatus`), so this asks about the speed of the leases, not about
//! who should have how much.

use std::{
    collections::HashMap,
    num::NonZeroU32,
    path::PathBuf,
    time::{Duration, Instant},
};

use indicatif::ProgressBar;
use leaseway_client::{Basis, Book, Client, Resource, Transport};
use leaseway_process::usage::{memory, own_cpu_time};
use leaseway_proto::status::{GetStatusRequest, status_client::StatusClient};
use serde::{Deserialize, Serialize};
use tonic::transport::{Channel, Endpoint};

use crate::{
    book::{self, MachineClock},
    error::Error,
    flags::{percent, seconds},
    load::{find_master, resolve},
    output::{arguments, print, progress, write_json},
    spread::number_or_null,
    table,
};

fn at_least_one(text: &str) -> Result<f64, String> {
    let wants = text.parse().ok().filter(|wants| (1.0..=1e15).contains(wants));
    wants.ok_or_else(|| "expected a number from 1 to 1e15".into())
}

/// Runs many clients of the client library in this process, against a server that is running, or against several nodes
/// of a tree.
///
/// First all of them get their leases; then they idle for a while, refreshing, which shows what a client costs; then
/// the demand of a few jumps, and it is measured how long it takes until everybody has what it is due, as the server
/// says.
#[derive(clap::Args)]
pub(crate) struct FleetArgs {
    /// The server, HOST:PORT; or nodes of a tree, with commas, among which the clients are spread.
    #[arg(long, default_value = "127.0.0.1:5100", value_name = "HOST:PORT,…", value_delimiter = ',')]
    target: Vec<String>,
    /// Clients.
    #[arg(long, default_value = "45", value_name = "N")]
    clients: NonZeroU32,
    /// The resource that all of them share.
    #[arg(long, default_value = "fleet", value_name = "ID")]
    resource: String,
    /// What a client wants at most; each wants something between 1 and that.
    #[arg(long, default_value = "20", value_name = "WANTS", value_parser = at_least_one)]
    wants: f64,
    /// How long they idle, in seconds.
    #[arg(long, default_value = "10", value_name = "S", value_parser = seconds)]
    idle: Duration,
    /// So many clients a second want something else while they idle, of those that take part in no spike; 0: nobody
    /// does.
    #[arg(long, default_value = "0", value_name = "N", value_parser = clap::value_parser!(u32).range(..=100_000))]
    stir: u32,
    /// How many clients take part in a spike; 0: no spikes. Between spikes they want 1.
    #[arg(long, default_value = "2", value_name = "N")]
    spiking: usize,
    /// What they want then.
    #[arg(long, default_value = "1000", value_name = "WANTS", value_parser = at_least_one)]
    spike: f64,
    /// Spikes; after each one everybody goes back to what it wanted before, and that is measured too.
    #[arg(long, default_value = "3", value_name = "N")]
    spikes: u32,
    /// Everybody has what it is due when nobody is off by more than so many per cent.
    #[arg(long, default_value = "1", value_name = "PERCENT", value_parser = percent)]
    within: f64,
    /// Give a spike up after so many seconds.
    #[arg(long, default_value = "120", value_name = "S", value_parser = seconds)]
    patience: Duration,
    /// Clients do not listen for hints.
    #[arg(long)]
    no_hints: bool,
    /// Write down what each client may use from when on, for `audit`.
    #[arg(long, value_name = "FILE")]
    book: Option<PathBuf>,
    /// Makes wants repeatable.
    #[arg(long, default_value = "1", value_name = "N")]
    seed: u64,
    /// Also write what was measured to a file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What was measured.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct FleetReport {
    /// The whole command line, so that it can be repeated.
    pub(crate) arguments: Vec<String>,
    pub(crate) clients: usize,
    pub(crate) hints: bool,
    /// Until everybody had a first lease.
    pub(crate) start_s: f64,
    /// Of this process, more than before it had clients.
    pub(crate) memory_kib: u64,
    #[serde(deserialize_with = "number_or_null")]
    pub(crate) idle_s: f64,
    /// CPU time of this process while its clients idled.
    #[serde(deserialize_with = "number_or_null")]
    pub(crate) idle_cpu_s: f64,
    /// Until everybody had what it was due after demand had risen, and after it had fallen. `None`: not within the
    /// patience.
    pub(crate) rise_s: Vec<Option<f64>>,
    pub(crate) fall_s: Vec<Option<f64>>,
}

/// A client as the server sees it.
#[derive(Clone, Copy, Debug)]
struct Seen {
    wants: f64,
    due: f64,
}

struct Fleet {
    clients: Vec<Client>,
    resources: Vec<Resource>,
    /// What each wants between spikes.
    wants: Vec<f64>,
    /// What each wants now.
    wanted: Vec<f64>,
    /// Of each target.
    statuses: Vec<StatusClient<Channel>>,
    random: fastrand::Rng,
    bar: ProgressBar,
}

/// Too large a page is refused; so many holders make a few hundred kilobytes.
const PAGE: u32 = 1000;

const POLL: Duration = Duration::from_millis(10);

/// How often the spinner turns.
const TICK: Duration = Duration::from_millis(100);

/// Wants go to the server and back as they are, but for so much of them.
const ROUNDING: f64 = 1e-9;

pub(crate) fn main(args: &FleetArgs) -> Result<(), Error> {
    let targets = args.target.iter().map(|target| resolve(target)).collect::<Result<Vec<_>, _>>()?;
    targets.iter().try_for_each(|target| find_master(*target))?;
    let targets: Vec<_> = targets.iter().map(ToString::to_string).collect();
    let runtime = tokio::runtime::Runtime::new().map_err(Error::io("start a runtime"))?;
    let book = Book::new();
    let clock = MachineClock::read();
    let measured = runtime.block_on(measure(args, &targets, &book))?;
    if let Some(path) = &args.book {
        book::write(&clock.lines(book.take()), path)?;
    }
    write_json(args.json.as_deref(), &measured)?;
    print(&measured.table())
}

async fn measure(args: &FleetArgs, targets: &[String], book: &Book) -> Result<FleetReport, Error> {
    let mut fleet = Fleet::new(args, targets);
    let pid = std::process::id();
    let clients = args.clients.get() as usize;
    let mut measured = FleetReport { arguments: arguments(), clients, hints: !args.no_hints, ..FleetReport::default() };
    let before = memory(pid).map_err(Error::process(pid))?.now_kib;
    let started = Instant::now();
    fleet.launch(args, targets, book)?;
    fleet.leased(args.patience).await?;
    measured.start_s = started.elapsed().as_secs_f64();

    fleet.bar.set_message("idling");
    // Turning the spinner would be most of what a small fleet costs.
    fleet.bar.disable_steady_tick();
    let (cpu, from) = (own_cpu_time(), Instant::now());
    fleet.idle(args).await?;
    measured.idle_s = from.elapsed().as_secs_f64();
    measured.idle_cpu_s = own_cpu_time().saturating_sub(cpu).as_secs_f64();
    fleet.bar.enable_steady_tick(TICK);
    measured.memory_kib = memory(pid).map_err(Error::process(pid))?.now_kib.saturating_sub(before);

    let spikes = if args.spiking > 0 { args.spikes } else { 0 };
    if spikes > 0 {
        fleet.settled(args).await?.ok_or_else(|| args.never_settled())?;
    }
    for n in 1..=spikes {
        fleet.bar.set_message(format!("spike {n} of {spikes}"));
        fleet.jump(args.spiking, |_| args.spike)?;
        measured.rise_s.push(fleet.settled(args).await?);
        let usual = fleet.wants.clone();
        fleet.jump(args.spiking, |client| usual[client])?;
        measured.fall_s.push(fleet.settled(args).await?);
    }
    fleet.bar.finish_and_clear();
    for client in &fleet.clients {
        client.close().await;
    }
    Ok(measured)
}

impl Fleet {
    fn new(args: &FleetArgs, targets: &[String]) -> Fleet {
        let endpoint =
            |target| Endpoint::from_shared(format!("http://{target}")).expect("a socket address makes a URI");
        let mut random = fastrand::Rng::with_seed(args.seed);
        let bar = progress(0, "{spinner} {elapsed} {msg}");
        bar.enable_steady_tick(TICK);
        let wants: Vec<_> = (0..args.clients.get() as usize)
            .map(|n| {
                let usual = args.usual(&mut random);
                if n < args.spiking { 1.0 } else { usual }
            })
            .collect();
        Fleet {
            clients: Vec::new(),
            resources: Vec::new(),
            wanted: wants.clone(),
            wants,
            statuses: targets.iter().map(|target| StatusClient::new(endpoint(target).connect_lazy())).collect(),
            random,
            bar,
        }
    }

    fn launch(&mut self, args: &FleetArgs, targets: &[String], book: &Book) -> Result<(), Error> {
        let transport = Transport::new();
        let usage = |error: &dyn std::fmt::Display| Error::Usage(error.to_string());
        for ((n, wants), target) in self.wants.iter().enumerate().zip(targets.iter().cycle()) {
            let mut builder = Client::builder().endpoint(target.as_str()).transport(&transport).hints(!args.no_hints);
            if args.book.is_some() {
                builder = builder.book(book);
            }
            let id = format!("fleet:{}:{n}", std::process::id());
            let client = builder.id(id).seed(args.seed.wrapping_add(n as u64)).build().map_err(|e| usage(&e))?;
            let resource = client.resource(args.resource.as_str()).wants(*wants).open().map_err(|e| usage(&e))?;
            self.clients.push(client);
            self.resources.push(resource);
        }
        Ok(())
    }

    async fn leased(&self, patience: Duration) -> Result<(), Error> {
        let from = Instant::now();
        loop {
            let leased = self.resources.iter().filter(|resource| resource.usable().basis == Basis::Lease).count();
            self.bar.set_message(format!("{leased} of {} clients have leases", self.resources.len()));
            if leased == self.resources.len() {
                return Ok(());
            }
            if from.elapsed() > patience {
                let why = self.clients[0].health().last_error.unwrap_or_else(|| "no error".into());
                return Err(Error::Usage(format!("only {leased} clients got leases; the first says: {why}")));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// For as long as it is to last, somebody wants something else now and then.
    async fn idle(&mut self, args: &FleetArgs) -> Result<(), Error> {
        let over = tokio::time::Instant::now() + args.idle;
        // Spikes begin from what those who take part in them want between spikes.
        let usual = args.spiking.min(self.resources.len())..self.resources.len();
        if args.stir > 0 && !usual.is_empty() {
            let mut beat = tokio::time::interval(Duration::from_secs(1) / args.stir);
            while beat.tick().await < over {
                let n = self.random.usize(usual.clone());
                self.wants[n] = args.usual(&mut self.random);
                self.jump_one(n, self.wants[n])?;
            }
        }
        tokio::time::sleep_until(over).await;
        Ok(())
    }

    fn jump_one(&mut self, n: usize, wants: f64) -> Result<(), Error> {
        self.wanted[n] = wants;
        self.resources[n].set_wants(wants).map_err(|error| Error::Usage(error.to_string()))
    }

    fn jump(&mut self, spiking: usize, wants: impl Fn(usize) -> f64) -> Result<(), Error> {
        (0..spiking.min(self.resources.len())).try_for_each(|n| self.jump_one(n, wants(n)))
    }

    /// How long until everybody has what it is due.
    async fn settled(&mut self, args: &FleetArgs) -> Result<Option<f64>, Error> {
        let from = Instant::now();
        while from.elapsed() < args.patience {
            let seen = self.seen(&args.resource).await?;
            let clients = self.clients.iter().zip(&self.resources).zip(&self.wanted);
            let mut clients = clients.map(|((client, resource), wanted)| (client, resource.capacity().get(), *wanted));
            if clients.all(|(client, has, wanted)| has_its_due(has, wanted, seen.get(client.id()), args.within)) {
                return Ok(Some(from.elapsed().as_secs_f64()));
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(None)
    }

    /// Everybody, as the server sees them now.
    async fn seen(&mut self, resource: &str) -> Result<HashMap<String, Seen>, Error> {
        let mut seen = HashMap::new();
        for status in &mut self.statuses {
            seen_at(status, resource, &mut seen).await?;
        }
        Ok(seen)
    }
}

/// Whether the server knows by now what a client wants, and the client has what it is due for that, but for so many per
/// cent. A client does not ask the moment it wants something else; until it does, everybody is due what they were due
/// before, and has it.
fn has_its_due(has: f64, wanted: f64, seen: Option<&Seen>, within: f64) -> bool {
    seen.is_some_and(|seen| {
        let known = (seen.wants - wanted).abs() <= ROUNDING * wanted.abs();
        known && (has - seen.due).abs() <= within / 100.0 * seen.due
    })
}

async fn seen_at(
    client: &mut StatusClient<Channel>,
    resource: &str,
    seen: &mut HashMap<String, Seen>,
) -> Result<(), Error> {
    let mut request =
        GetStatusRequest { resource_id: resource.to_owned(), page_size: PAGE, ..GetStatusRequest::default() };
    loop {
        let status = client.get_status(request.clone()).await;
        let status = status.map_err(|status| Error::Usage(format!("GetStatus: {}", status.message())))?.into_inner();
        let holders = status.resources.into_iter().flat_map(|resource| resource.holder);
        seen.extend(holders.map(|holder| (holder.id, Seen { wants: holder.wants, due: holder.due })));
        if status.next_page_token.is_empty() {
            return Ok(());
        }
        request.page_token = status.next_page_token;
    }
}

impl FleetArgs {
    /// A spike on top of that would be measured from nowhere.
    fn never_settled(&self) -> Error {
        let patience = self.patience.as_secs_f64();
        Error::Usage(format!(
            "not everybody had what it is due after {patience} s, before any spike: raise --patience or --within"
        ))
    }

    /// What a client wants when it is not part of a spike.
    fn usual(&self, random: &mut fastrand::Rng) -> f64 {
        1.0 + random.f64() * (self.wants - 1.0).max(0.0)
    }
}

impl FleetReport {
    fn table(&self) -> String {
        let clients = self.clients as f64;
        let per_second = self.idle_cpu_s / self.idle_s;
        let mut rows = vec![
            ["clients".into(), format!("{}, {} hints", self.clients, if self.hints { "with" } else { "without" })],
            ["all have a first lease after".into(), format!("{:.2} s", self.start_s)],
            ["memory".into(), format!("{} KiB, {:.1} KiB a client", self.memory_kib, self.memory_kib as f64 / clients)],
            [
                "CPU while idle".into(),
                format!(
                    "{:.2} % of a core, {:.1} us a client and second",
                    per_second * 100.0,
                    per_second / clients * 1e6
                ),
            ],
        ];
        for (what, times) in [("demand rises", &self.rise_s), ("demand falls", &self.fall_s)] {
            if !times.is_empty() {
                rows.push([format!("{what}: all have their due after"), times_text(times)]);
            }
        }
        table::render(&["what", "measured"], 1, &rows)
    }
}

fn times_text(times: &[Option<f64>]) -> String {
    let text = times.iter().map(|time| time.map_or_else(|| "never".to_owned(), |seconds| format!("{seconds:.2} s")));
    text.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct FleetCommand {
        #[command(flatten)]
        args: FleetArgs,
    }

    fn args(flags: &[&str]) -> Result<FleetArgs, clap::Error> {
        FleetCommand::try_parse_from([&["fleet"], flags].concat()).map(|line| line.args)
    }

    #[test]
    fn no_more_clients_change_their_minds_than_a_clock_can_tell_apart() {
        assert!(args(&["--stir", "100000"]).is_ok() && args(&["--stir", "100001"]).is_err());
    }

    #[test]
    fn what_nobody_could_be_within_is_refused() {
        assert!(args(&["--within", "0.5"]).is_ok_and(|args| args.within == 0.5));
        for wrong in ["NaN", "-1", "101", "inf"] {
            assert!(args(&[&format!("--within={wrong}")]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn nobody_has_what_it_is_due_before_the_server_knows_what_it_wants() {
        let has_its_due = |has, wanted, wants, due| has_its_due(has, wanted, Some(&Seen { wants, due }), 1.0);
        assert!(has_its_due(1.0, 1.0, 1.0, 1.0));
        assert!(!has_its_due(1.0, 1000.0, 1.0, 1.0), "the server has not heard of the spike");
        assert!(!has_its_due(1.0, 1000.0, 1000.0, 500.0) && has_its_due(495.5, 1000.0, 1000.0, 500.0));
        assert!(!super::has_its_due(1.0, 1.0, None, 1.0), "the server does not know it at all");
    }
}
