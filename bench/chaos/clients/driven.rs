//! Clients in other languages, which reach the peers over the degraded links. Each is a program that `conform` can drive.
//!
//! Such a client has no lease trace: its capacity is read again and again. Between two readings it counts as the smaller
//! one, so that the audit never assumes more than the client believed.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use leaseway_client::LeaseChange;
use tokio::{
    runtime::Handle,
    sync::watch,
    task::JoinHandle,
    time::{Duration, Instant, sleep},
};

use crate::{
    chaos::{
        clients::{
            SCARCE, draw,
            spenders::{Books, MAX_COST},
        },
        cluster::Cluster,
        layout::ONCE,
    },
    common::{driver::Driver, error::Error},
};

/// The number of clients of each program.
const CLIENTS: usize = 2;

const READ_INTERVAL: Duration = Duration::from_millis(20);

/// A client changes its wants once in so many readings, on average.
const READINGS_PER_CHANGE: u32 = 10;

pub(crate) struct DrivenClients {
    clients: Vec<JoinHandle<Result<Vec<LeaseChange>, String>>>,
    leave: watch::Sender<bool>,
    /// The number of clients that have had a lease.
    served: Arc<AtomicUsize>,
}

/// A capacity that the client could use at some moment from `asked` to `answered`.
#[derive(Clone, Copy)]
struct Reading {
    asked: Instant,
    answered: Instant,
    capacity: f64,
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
        let (leave, served) = (watch::Sender::new(false), Arc::default());
        let mut clients = Vec::new();
        for (program, command) in commands.iter().enumerate() {
            let unreadable = || Error::Usage(format!("--driver `{command}`: expected a command with its arguments"));
            let words = shlex::split(command).filter(|words| !words.is_empty()).ok_or_else(unreadable)?;
            for number in 0..CLIENTS {
                let id = format!("driven:{program}:{number}");
                let mut random = fastrand::Rng::with_seed(seed ^ (program * CLIENTS + number) as u64);
                let commands = [format!("open {id} {servers} safe"), format!("rate {SCARCE} {}", draw(&mut random))];
                let open = async {
                    let mut driver = Driver::start(&words, &variables)?;
                    for command in commands {
                        driver.expect_ok(&command).await?;
                    }
                    driver.open_budget(ONCE).await?;
                    Ok(driver)
                };
                let failed = |why: String| Error::Usage(format!("--driver `{command}`: {why}"));
                let driver = runtime.block_on(open).map_err(failed)?;
                let client = DrivenClient { driver, id, served: Arc::clone(&served), books: books.clone(), random };
                clients.push(runtime.spawn(client.run(leave.subscribe())));
            }
        }
        Ok(DrivenClients { clients, leave, served })
    }

    pub(crate) fn complaint(&self) -> Option<String> {
        let (served, all) = (self.served.load(Ordering::Relaxed), self.clients.len());
        (served < all).then(|| format!("{served} of {all} driven clients have had a lease"))
    }

    /// Whether a client has ended early, and so has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.clients.iter().any(JoinHandle::is_finished)
    }

    /// Stops the clients. Returns what they could use, and the failures.
    pub(crate) async fn leave(self) -> (Vec<LeaseChange>, Vec<String>) {
        self.leave.send_replace(true);
        let (mut changes, mut failures) = (Vec::new(), Vec::new());
        for client in self.clients {
            match client.await {
                Ok(Ok(of_client)) => changes.extend(of_client),
                Ok(Err(failure)) => failures.push(format!("a driven client: {failure}")),
                Err(failure) => failures.push(format!("a driven client: {failure}")),
            }
        }
        (changes, failures)
    }
}

struct DrivenClient {
    driver: Driver,
    id: String,
    served: Arc<AtomicUsize>,
    books: Books,
    random: fastrand::Rng,
}

impl DrivenClient {
    async fn run(self, leave: watch::Receiver<bool>) -> Result<Vec<LeaseChange>, String> {
        let DrivenClient { mut driver, id, served, books, mut random } = self;
        let mut readings = Vec::new();
        let mut is_served = false;
        while !*leave.borrow() {
            let asked = Instant::now();
            let usable = driver.usable(SCARCE).await?;
            let capacity = if usable.basis == "lease" { usable.capacity } else { 0.0 };
            if capacity.is_nan() || capacity < 0.0 {
                return Err(format!("{id}: a capacity of {capacity}"));
            }
            if capacity > 0.0 && !is_served {
                is_served = true;
                served.fetch_add(1, Ordering::Relaxed);
            }
            readings.push(Reading { asked, answered: Instant::now(), capacity });
            if random.u32(..READINGS_PER_CHANGE) == 0 {
                driver.expect_ok(&format!("wants {SCARCE} {}", draw(&mut random))).await?;
                let cost = random.u32(1..=MAX_COST);
                if driver.spend(ONCE, cost, 0).await? {
                    books.enter(ONCE, 0, cost.into());
                }
            }
            sleep(READ_INTERVAL).await;
        }
        driver.expect_ok(&format!("close {SCARCE}")).await?;
        driver.expect_ok("exit").await?;
        let change = |(at, capacity)| LeaseChange { at, client: id.as_str().into(), resource: SCARCE.into(), capacity };
        Ok(believed(&readings).into_iter().map(change).collect())
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
