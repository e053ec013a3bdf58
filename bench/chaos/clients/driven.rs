//! Clients in other languages, which reach the peers over the degraded links. Each is a program that `conform` can
//! drive.
//!
//! Such a client has no lease trace: its capacity is read again and again. Between two readings it counts as the
//! smaller one, so that the audit never assumes more than the client believed.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use leaseway_client::LeaseChange;
use tokio::{
    runtime::Handle,
    sync::watch,
    task::JoinHandle,
    time::{Duration, Instant, sleep, timeout},
};

use crate::{
    chaos::{
        clients::{
            SCARCE, draw,
            spenders::{Books, MAX_COST},
        },
        cluster::Cluster,
        layout::{OF_PERIODS, ONCE},
    },
    common::{driver::Driver, error::Error},
};

/// The number of clients of each program.
const CLIENTS: usize = 2;

const READ_INTERVAL: Duration = Duration::from_millis(20);

/// A client changes its wants once in so many readings, on average.
const READINGS_PER_CHANGE: u32 = 10;

/// The time until a process has released its leases, or is killed.
const EXIT_PATIENCE: Duration = Duration::from_secs(2);

pub(crate) struct DrivenClients {
    clients: Vec<JoinHandle<Result<Vec<LeaseChange>, String>>>,
    leave: watch::Sender<bool>,
    /// The number of clients that have had a lease.
    served: Arc<AtomicUsize>,
    /// What they have used of budgets.
    spent: Arc<AtomicU64>,
}

/// A capacity that the client could use at some moment from `asked` to `answered`.
#[derive(Clone, Copy)]
struct Reading {
    asked: Instant,
    answered: Instant,
    capacity: f64,
}

/// How the processes of a client are started.
struct Program {
    words: Vec<String>,
    variables: Vec<(String, String)>,
    id: String,
    servers: String,
}

impl Program {
    async fn start(&self, random: &mut fastrand::Rng) -> Result<Process, String> {
        let mut driver = Driver::start(&self.words, &self.variables)?;
        driver.expect_ok(&format!("open {} {} safe", self.id, self.servers)).await?;
        driver.expect_ok(&format!("rate {SCARCE} {}", draw(random))).await?;
        for budget in [ONCE, OF_PERIODS] {
            driver.open_budget(budget).await?;
        }
        let reserves = driver.period(ONCE).await.is_ok();
        Ok(Process { driver, reserves })
    }
}

/// A process of a client, until it exits or is killed.
struct Process {
    driver: Driver,
    /// Whether the program knows the commands for periods and reservations.
    reserves: bool,
}

impl DrivenClients {
    /// Starts the clients of each command, at the first node.
    pub(crate) fn gather(
        commands: &[String],
        cluster: &Cluster,
        books: &Books,
        seed: u64,
        runtime: &Handle,
    ) -> Result<DrivenClients, Error> {
        let servers = cluster.endpoints(cluster.nodes[0].clone()).join(",");
        // All libraries read these variables, which are named after the flags.
        let variables: Vec<_> = cluster
            .client_flags()
            .map(|(flag, value)| (format!("LEASEWAY{}", flag[1..].to_uppercase().replace('-', "_")), value))
            .chain([("LEASEWAY_SERVER".to_owned(), servers.clone())])
            .collect();
        let (leave, served, spent) = (watch::Sender::new(false), Arc::default(), Arc::default());
        let mut clients = Vec::new();
        for (number, command) in commands.iter().enumerate() {
            let unreadable = || Error::Usage(format!("--driver `{command}`: expected a command with its arguments"));
            let words = shlex::split(command).filter(|words| !words.is_empty()).ok_or_else(unreadable)?;
            for client in 0..CLIENTS {
                let id = format!("driven:{number}:{client}");
                let mut random = fastrand::Rng::with_seed(seed ^ (number * CLIENTS + client) as u64);
                let (words, variables, servers) = (words.clone(), variables.clone(), servers.clone());
                let program = Program { words, variables, id, servers };
                let failed = |why: String| Error::Usage(format!("--driver `{command}`: {why}"));
                let process = runtime.block_on(program.start(&mut random)).map_err(failed)?;
                let (served, spent) = (Arc::clone(&served), Arc::clone(&spent));
                let client = DrivenClient { program, served, spent, books: books.clone(), random };
                clients.push(runtime.spawn(client.run(process, leave.subscribe())));
            }
        }
        Ok(DrivenClients { clients, leave, served, spent })
    }

    pub(crate) fn complaint(&self) -> Option<String> {
        let (served, all) = (self.served.load(Ordering::Relaxed), self.clients.len());
        if served < all {
            return Some(format!("{served} of {all} driven clients have had a lease"));
        }
        let spent = self.spent.load(Ordering::Relaxed);
        (all > 0 && spent == 0).then(|| "driven clients have spent nothing".to_owned())
    }

    /// Whether a client has ended early, and so has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.clients.iter().any(JoinHandle::is_finished)
    }

    /// Stops the clients. Returns what they could use, what they have used of budgets, and the failures.
    pub(crate) async fn leave(self) -> (Vec<LeaseChange>, u64, Vec<String>) {
        self.leave.send_replace(true);
        let (mut changes, mut failures) = (Vec::new(), Vec::new());
        for client in self.clients {
            match client.await {
                Ok(Ok(of_client)) => changes.extend(of_client),
                Ok(Err(failure)) => failures.push(format!("a driven client: {failure}")),
                Err(failure) => failures.push(format!("a driven client: {failure}")),
            }
        }
        (changes, self.spent.load(Ordering::Relaxed), failures)
    }
}

struct DrivenClient {
    program: Program,
    served: Arc<AtomicUsize>,
    spent: Arc<AtomicU64>,
    books: Books,
    random: fastrand::Rng,
}

impl DrivenClient {
    /// Lives several lives under one id, each in a process of its own. Each ends with an exit or a crash.
    async fn run(mut self, mut process: Process, leave: watch::Receiver<bool>) -> Result<Vec<LeaseChange>, String> {
        let (mut changes, mut is_served) = (Vec::new(), false);
        loop {
            let end = Instant::now() + Duration::from_millis(self.random.u64(4_000..20_000));
            let readings = self.live(&mut process, end, &mut is_served, &leave).await?;
            changes.extend(believed(&readings));
            if *leave.borrow() {
                break;
            }
            if self.random.bool() {
                // The process is killed if it does not exit.
                let _ = timeout(EXIT_PATIENCE, process.driver.expect_ok("exit")).await;
            } else if process.reserves {
                // It dies during a call that has used all of its reservation.
                self.reserve(&mut process.driver, false).await?;
            }
            drop(process);
            process = self.program.start(&mut self.random).await?;
        }
        process.driver.expect_ok(&format!("close {SCARCE}")).await?;
        process.driver.expect_ok("exit").await?;
        let client: Arc<str> = self.program.id.as_str().into();
        let change = |(at, capacity)| LeaseChange { at, client: client.clone(), resource: SCARCE.into(), capacity };
        Ok(changes.into_iter().map(change).collect())
    }

    async fn live(
        &mut self,
        process: &mut Process,
        end: Instant,
        is_served: &mut bool,
        leave: &watch::Receiver<bool>,
    ) -> Result<Vec<Reading>, String> {
        let mut readings = Vec::new();
        let driver = &mut process.driver;
        while Instant::now() < end && !*leave.borrow() {
            let asked = Instant::now();
            let usable = driver.usable(SCARCE).await?;
            let capacity = if usable.basis == "lease" { usable.capacity } else { 0.0 };
            if capacity.is_nan() || capacity < 0.0 {
                return Err(format!("{}: a capacity of {capacity}", self.program.id));
            }
            if capacity > 0.0 && !*is_served {
                *is_served = true;
                self.served.fetch_add(1, Ordering::Relaxed);
            }
            readings.push(Reading { asked, answered: Instant::now(), capacity });
            if self.random.u32(..READINGS_PER_CHANGE) == 0 {
                driver.expect_ok(&format!("wants {SCARCE} {}", draw(&mut self.random))).await?;
                if process.reserves && self.random.bool() {
                    self.reserve(driver, true).await?;
                } else {
                    let cost = self.random.u32(1..=MAX_COST);
                    if driver.spend(ONCE, cost, 0).await? {
                        self.enter(ONCE, 0, cost);
                    }
                }
            }
            sleep(READ_INTERVAL).await;
        }
        Ok(readings)
    }

    fn enter(&self, budget: &'static str, period: i64, used: u32) {
        self.spent.fetch_add(used.into(), Ordering::Relaxed);
        self.books.enter(budget, period, used.into());
    }

    /// Reserves an amount, uses a part of it or all, and settles.
    async fn reserve(&mut self, driver: &mut Driver, settles: bool) -> Result<(), String> {
        let budget = [ONCE, OF_PERIODS][self.random.usize(..2)];
        let cost = self.random.u32(1..=MAX_COST);
        let before = driver.period(budget).await?;
        if !driver.reserve(budget, cost, self.random.u32(..2)).await? {
            return Ok(());
        }
        let period = driver.period(budget).await?;
        // If a period ended meanwhile, it is unknown to which one the reservation belongs: it is used for nothing.
        let is_known = budget == ONCE || (period.is_some() && period == before);
        let used = match (is_known, settles) {
            (false, _) => 0,
            (true, false) => cost,
            (true, true) => self.random.u32(..=cost),
        };
        self.enter(budget, period.unwrap_or_default(), used);
        if settles {
            sleep(Duration::from_millis(self.random.u64(..200))).await;
            driver.expect_ok(&format!("settle {budget} {used}")).await?;
        }
        Ok(())
    }
}

/// The times at which the believed capacity changes. After the last reading it is 0.
fn believed(readings: &[Reading]) -> Vec<(Instant, f64)> {
    let capacity = |reading: usize| readings.get(reading).map_or(0.0, |reading| reading.capacity);
    let between = |first: usize| capacity(first).min(capacity(first + 1));
    let changes = readings.iter().enumerate().flat_map(|(number, reading)| {
        // While an answer is awaited, the reading may be past or still to come.
        let while_asked = if number == 0 { 0.0 } else { between(number - 1).min(between(number)) };
        [(reading.asked, while_asked), (reading.answered, between(number))]
    });
    changes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capacity_counts_only_between_two_readings_of_it() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let reading = |asked, answered, capacity| Reading { asked: at(asked), answered: at(answered), capacity };
        let readings = [reading(0, 1, 5.0), reading(10, 12, 8.0), reading(20, 21, 2.0), reading(30, 31, 2.0)];
        let changes = [(0, 0.0), (1, 5.0), (10, 2.0), (12, 2.0), (20, 2.0), (21, 2.0), (30, 0.0), (31, 0.0)]
            .map(|(ms, capacity)| (at(ms), capacity));
        assert_eq!(believed(&readings), changes);
        assert_eq!(believed(&[]), []);
    }
}
