//! Real clients, many of them in one process: what they cost, and how soon all of them have what they are due when
//! demand jumps.
//!
//! What a client is due is the server's own word (`GetStatus`), so this asks about the speed of the leases, not about
//! their division.

use std::{
    collections::HashMap,
    num::NonZeroU32,
    path::PathBuf,
    time::{Duration, Instant},
};

use indicatif::ProgressBar;
use leaseway_client::{Channel, Client, LeaseTrace};
use leaseway_process::usage::{memory, own_cpu_time};
use leaseway_proto::status::{GetStatusRequest, status_client::StatusClient};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant as TokioInstant, interval, sleep, sleep_until};

use crate::{
    book::{self, MachineClock},
    clients::LibraryClients,
    error::Error,
    flags::seconds,
    load::{Dialer, find_master, resolve},
    output::{arguments, print, progress, write_json},
    spread::number_or_null,
    table,
    tls::TlsFlags,
};

/// So many clients take part in a spike, and want so much then; between spikes they want 1.
const SPIKING: usize = 2;
const SPIKE: f64 = 1000.0;

/// All clients have what they are due when none is off by more than this part of it.
const WITHIN: f64 = 0.01;

/// A spike is given up after so long.
const PATIENCE: Duration = Duration::from_secs(120);

/// Too large a page is refused; so many holders make a few hundred kilobytes.
const PAGE: u32 = 1000;

const POLL: Duration = Duration::from_millis(10);

/// How often the spinner turns.
const TICK: Duration = Duration::from_millis(100);

/// Wants go to the server and back as they are, but for so much of them.
const ROUNDING: f64 = 1e-9;

fn at_least_one(text: &str) -> Result<f64, String> {
    let wants = text.parse().ok().filter(|wants| (1.0..=1e15).contains(wants));
    wants.ok_or_else(|| "expected a number from 1 to 1e15".into())
}

/// Runs many clients of the client library in this process, against a server that is running, or against several nodes
/// of a tree.
///
/// First all of them get their leases; then they idle for a while, refreshing, which shows what a client costs; then
/// the demand of two jumps from 1 to 1000 and back, and it is measured how long it takes until all are within 1 % of
/// what they are due, as the server says.
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
    /// So many clients a second want something else while they idle, of those that take part in no spike.
    #[arg(long, default_value = "0", value_name = "N", value_parser = clap::value_parser!(u32).range(..=100_000))]
    stir: u32,
    /// Spikes; after each one all clients go back to what they wanted before, and that is measured too.
    #[arg(long, default_value = "3", value_name = "N")]
    spikes: u32,
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
    #[command(flatten)]
    tls: TlsFlags,
}

/// What was measured.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct FleetReport {
    /// The whole command line, so that it can be repeated.
    pub(crate) arguments: Vec<String>,
    pub(crate) clients: usize,
    pub(crate) hints: bool,
    /// Until all clients had a first lease.
    pub(crate) start_s: f64,
    /// Of this process, more than before it had clients.
    pub(crate) memory_kib: u64,
    #[serde(deserialize_with = "number_or_null")]
    pub(crate) idle_s: f64,
    /// CPU time of this process while its clients idled.
    #[serde(deserialize_with = "number_or_null")]
    pub(crate) idle_cpu_s: f64,
    /// Until all clients had what they were due after demand had risen, and after it had fallen. `None`: not within
    /// the patience.
    pub(crate) rise_s: Vec<Option<f64>>,
    pub(crate) fall_s: Vec<Option<f64>>,
}

/// A client as the server sees it.
#[derive(Clone, Copy, Debug)]
struct SeenClient {
    wants: f64,
    due: f64,
}

struct Fleet<'a> {
    args: &'a FleetArgs,
    clients: LibraryClients,
    /// What each wants now.
    wanted: Vec<f64>,
    /// Of each target.
    statuses: Vec<StatusClient<Channel>>,
    random: fastrand::Rng,
    bar: ProgressBar,
}

pub(crate) fn main(args: &FleetArgs) -> Result<(), Error> {
    let targets = args.target.iter().map(|target| resolve(target)).collect::<Result<Vec<_>, _>>()?;
    let dialer = Dialer::new(args.tls.client()?);
    targets.iter().try_for_each(|target| find_master(*target, &dialer))?;
    let targets: Vec<_> = targets.iter().map(ToString::to_string).collect();
    let runtime = tokio::runtime::Runtime::new().map_err(Error::io("start a runtime"))?;
    let book = LeaseTrace::new();
    let clock = MachineClock::read();
    let measured = runtime.block_on(measure(args, &targets, &book))?;
    if let Some(path) = &args.book {
        book::write(&clock.lines(book.take()), path)?;
    }
    write_json(args.json.as_deref(), &measured)?;
    print(&measured.table())
}

async fn measure(args: &FleetArgs, targets: &[String], book: &LeaseTrace) -> Result<FleetReport, Error> {
    let memory = || memory(std::process::id()).map_err(Error::process(std::process::id()));
    let clients = args.clients.get() as usize;
    let mut measured = FleetReport { arguments: arguments(), clients, hints: !args.no_hints, ..FleetReport::default() };
    let before = memory()?.now_kib;
    let started = Instant::now();
    let mut fleet = Fleet::launch(args, targets, book)?;
    fleet.leased().await?;
    measured.start_s = started.elapsed().as_secs_f64();

    fleet.bar.set_message("idling");
    // Turning the spinner would be most of what a small fleet costs.
    fleet.bar.disable_steady_tick();
    let (cpu, from) = (own_cpu_time(), Instant::now());
    fleet.idle().await?;
    measured.idle_s = from.elapsed().as_secs_f64();
    measured.idle_cpu_s = own_cpu_time().saturating_sub(cpu).as_secs_f64();
    fleet.bar.enable_steady_tick(TICK);
    measured.memory_kib = memory()?.now_kib.saturating_sub(before);

    if args.spikes > 0 && fleet.settled().await?.is_none() {
        // A spike on top of that would be measured from nowhere.
        let patience = PATIENCE.as_secs();
        let what = format!("not every client had what it is due after {patience} s, before any spike");
        return Err(Error::Usage(what));
    }
    for n in 1..=args.spikes {
        fleet.bar.set_message(format!("spike {n} of {}", args.spikes));
        fleet.jump(SPIKE)?;
        measured.rise_s.push(fleet.settled().await?);
        fleet.jump(1.0)?;
        measured.fall_s.push(fleet.settled().await?);
    }
    fleet.bar.finish_and_clear();
    fleet.clients.leave().await;
    Ok(measured)
}

impl<'a> Fleet<'a> {
    fn launch(args: &'a FleetArgs, targets: &[String], book: &LeaseTrace) -> Result<Fleet<'a>, Error> {
        let transport = args.tls.transport()?;
        let status = |target: &String| {
            let channel = transport.connect_lazy(target, |endpoint| endpoint).map_err(Error::usage)?;
            Ok(StatusClient::new(channel))
        };
        let statuses = targets.iter().map(status).collect::<Result<_, Error>>()?;
        let bar = progress(0, "{spinner} {elapsed} {msg}");
        bar.enable_steady_tick(TICK);
        let mut fleet = Fleet {
            args,
            clients: LibraryClients::new(transport.clone(), args.seed),
            wanted: Vec::new(),
            statuses,
            random: fastrand::Rng::with_seed(args.seed),
            bar,
        };
        for (n, target) in (0..args.clients.get() as usize).zip(targets.iter().cycle()) {
            let mut builder = Client::builder().endpoint(target.as_str()).hints(!args.no_hints);
            if args.book.is_some() {
                builder = builder.lease_trace(book);
            }
            let wants = if n < SPIKING { 1.0 } else { fleet.usual() };
            fleet.clients.join(builder.id(format!("fleet:{}:{n}", std::process::id())), &args.resource, wants)?;
            fleet.wanted.push(wants);
        }
        Ok(fleet)
    }

    /// What a client wants that is not part of a spike.
    fn usual(&mut self) -> f64 {
        1.0 + self.random.f64() * (self.args.wants - 1.0)
    }

    async fn leased(&self) -> Result<(), Error> {
        let from = Instant::now();
        loop {
            let leased = self.clients.leased();
            self.bar.set_message(format!("{leased} of {} clients have leases", self.clients.len()));
            if leased == self.clients.len() {
                return Ok(());
            }
            if from.elapsed() > PATIENCE {
                let why = self.clients.complaint();
                return Err(Error::Usage(format!("only {leased} clients got leases; one of the others says: {why}")));
            }
            sleep(POLL).await;
        }
    }

    /// For as long as it is to last. Now and then a client wants something else.
    async fn idle(&mut self) -> Result<(), Error> {
        let over = TokioInstant::now() + self.args.idle;
        // Spikes begin from what those that take part in them want between spikes.
        let others = SPIKING.min(self.clients.len())..self.clients.len();
        if self.args.stir > 0 && !others.is_empty() {
            let mut beat = interval(Duration::from_secs(1) / self.args.stir);
            while beat.tick().await < over {
                let (client, wants) = (self.random.usize(others.clone()), self.usual());
                self.want(client, wants)?;
            }
        }
        sleep_until(over).await;
        Ok(())
    }

    fn want(&mut self, client: usize, wants: f64) -> Result<(), Error> {
        self.wanted[client] = wants;
        self.clients.want(client, wants)
    }

    fn jump(&mut self, wants: f64) -> Result<(), Error> {
        (0..SPIKING.min(self.clients.len())).try_for_each(|client| self.want(client, wants))
    }

    /// How long until all clients have what they are due.
    async fn settled(&mut self) -> Result<Option<f64>, Error> {
        let from = Instant::now();
        while from.elapsed() < PATIENCE {
            let mut seen = HashMap::new();
            for status in &mut self.statuses {
                see(status, &self.args.resource, &mut seen).await?;
            }
            let clients = self.clients.clients.iter().zip(&self.clients.resources).zip(&self.wanted);
            let mut clients = clients.map(|((client, resource), wanted)| (client, resource.capacity().get(), *wanted));
            if clients.all(|(client, has, wanted)| has_its_due(has, wanted, seen.get(client.id()))) {
                return Ok(Some(from.elapsed().as_secs_f64()));
            }
            sleep(POLL).await;
        }
        Ok(None)
    }
}

/// Whether the server knows by now what a client wants, and the client has what it is due for that. A client does not
/// ask the moment it wants something else; until it does, all are due what they were due before, and have it.
fn has_its_due(has: f64, wanted: f64, seen: Option<&SeenClient>) -> bool {
    seen.is_some_and(|seen| {
        let known = (seen.wants - wanted).abs() <= ROUNDING * wanted.abs();
        known && (has - seen.due).abs() <= WITHIN * seen.due
    })
}

/// All clients of a server, as it sees them now.
async fn see(
    client: &mut StatusClient<Channel>,
    resource: &str,
    seen: &mut HashMap<String, SeenClient>,
) -> Result<(), Error> {
    let mut request =
        GetStatusRequest { resource_id: resource.to_owned(), page_size: PAGE, ..GetStatusRequest::default() };
    loop {
        let status = client.get_status(request.clone()).await;
        let status = status.map_err(|status| Error::Usage(format!("GetStatus: {}", status.message())))?.into_inner();
        let holders = status.resources.into_iter().flat_map(|resource| resource.holder);
        seen.extend(holders.map(|holder| (holder.id, SeenClient { wants: holder.wants, due: holder.due })));
        if status.next_page_token.is_empty() {
            return Ok(());
        }
        request.page_token = status.next_page_token;
    }
}

impl FleetReport {
    fn table(&self) -> String {
        let clients = self.clients as f64;
        let cores = self.idle_cpu_s / self.idle_s;
        let hints = if self.hints { "with" } else { "without" };
        let mut rows = vec![
            ["clients", &format!("{}, {hints} hints", self.clients)].map(str::to_owned),
            ["all have a first lease after".into(), format!("{:.2} s", self.start_s)],
            ["memory".into(), format!("{} KiB, {:.1} KiB a client", self.memory_kib, self.memory_kib as f64 / clients)],
            [
                "CPU while idle".into(),
                format!("{:.2} % of a core, {:.1} us a client and second", cores * 100.0, cores / clients * 1e6),
            ],
        ];
        for (what, times) in [("demand rises", &self.rise_s), ("demand falls", &self.fall_s)] {
            let text = times.iter().map(|time| time.map_or("never".into(), |seconds| format!("{seconds:.2} s")));
            if !times.is_empty() {
                rows.push([format!("{what}: all have their due after"), text.collect::<Vec<_>>().join(", ")]);
            }
        }
        table::render(&["what", "measured"], 1, &rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_client_has_what_it_is_due_before_the_server_knows_what_it_wants() {
        let check = |has, wanted, wants, due| has_its_due(has, wanted, Some(&SeenClient { wants, due }));
        assert!(check(1.0, 1.0, 1.0, 1.0));
        assert!(!check(1.0, 1000.0, 1.0, 1.0), "the server has not heard of the spike");
        assert!(!check(1.0, 1000.0, 1000.0, 500.0) && check(495.5, 1000.0, 1000.0, 500.0));
        assert!(!has_its_due(1.0, 1.0, None), "the server does not know it at all");
    }
}
