//! The program with which `leaseway-bench conform` drives this library:
//! `leaseway-bench conform -- target/debug/examples/conform`.
#![allow(clippy::print_stdout, reason = "its protocol is lines on standard output")]

use std::{
    collections::HashMap,
    error::Error,
    io,
    time::{Duration, Instant},
};

use leaseway_client::{Basis, Budget, Client, Cost, Gauge, Limits, Mode, Permit, Permits, Rate, Resource};

type Failure = Box<dyn Error>;

enum Opened {
    Rate(Rate),
    Gauge(Gauge),
    Budget(Budget),
}

impl Opened {
    fn resource(&self) -> &Resource {
        match self {
            Opened::Rate(rate) => rate.resource(),
            Opened::Gauge(gauge) => gauge.resource(),
            Opened::Budget(budget) => budget.resource(),
        }
    }
}

#[derive(Default)]
struct Driver {
    client: Option<Client>,
    opened: HashMap<String, Opened>,
    /// Permits of gauges in use.
    permits: HashMap<String, Vec<Permit>>,
    /// Permits of several limits in use.
    taken: Option<Permits>,
}

impl Driver {
    async fn execute(&mut self, words: &[&str]) -> Result<String, Failure> {
        match *words {
            ["open", id, servers, mode] => {
                let mode = match mode {
                    "safe" => Mode::Safe,
                    "optimistic" => Mode::Optimistic,
                    _ => Mode::Pessimistic,
                };
                let client = Client::builder().endpoints(servers.split(',')).id(id).mode(mode).build()?;
                self.client = Some(client);
            }
            ["rate", name, wants] => {
                let rate = self.client()?.resource(name).wants(wants.parse()?).rate()?;
                self.opened.insert(name.to_owned(), Opened::Rate(rate));
            }
            ["gauge", name, wants] => {
                let gauge = self.client()?.resource(name).wants(wants.parse()?).gauge()?;
                self.opened.insert(name.to_owned(), Opened::Gauge(gauge));
            }
            ["budget", name] => {
                let budget = self.client()?.budget(name)?;
                self.opened.insert(name.to_owned(), Opened::Budget(budget));
            }
            ["spend", name, amount, seconds] => {
                let (amount, wait) = (amount.parse()?, Duration::from_secs(seconds.parse()?));
                return Ok(spend(self.budget(name)?, amount, wait).await.to_string());
            }
            ["left", name] => return Ok(self.budget(name)?.left().to_string()),
            ["wants", name, wants] => self.opened(name)?.resource().set_wants(wants.parse()?)?,
            ["capacity", name] => {
                let usable = self.opened(name)?.resource().usable();
                let basis = match usable.basis {
                    Basis::Lease => "lease",
                    Basis::Fallback => "fallback",
                    _ => "unknown",
                };
                return Ok(format!("{} {basis}", usable.capacity.get()));
            }
            ["allow", name, n] => {
                let n = n.parse()?;
                let permit = match self.opened(name)? {
                    Opened::Rate(rate) => return Ok(rate.try_acquire(n).is_ok().to_string()),
                    Opened::Gauge(gauge) => gauge.try_acquire(n),
                    Opened::Budget(_) => return Err("a budget has no permits".into()),
                };
                let is_admitted = permit.is_ok();
                self.permits.entry(name.to_owned()).or_default().extend(permit);
                return Ok(is_admitted.to_string());
            }
            ["release", name, _] => drop(self.permits.get_mut(name).and_then(Vec::pop)),
            ["count", name, seconds] => {
                let Opened::Rate(rate) = self.opened(name)? else { return Err("only rates count".into()) };
                let end = Instant::now() + Duration::from_secs(seconds.parse()?);
                let mut count = 0;
                while tokio::time::timeout(end.saturating_duration_since(Instant::now()), rate.wait()).await.is_ok() {
                    count += 1;
                }
                return Ok(count.to_string());
            }
            ["close", name] => drop(self.opened.remove(name)),
            ["exit"] => {
                if let Some(client) = self.client.take() {
                    client.close().await;
                }
            }
            _ => return self.execute_for_several(words).await,
        }
        Ok("ok".to_owned())
    }

    /// The commands for streams and several limits.
    async fn execute_for_several(&mut self, words: &[&str]) -> Result<String, Failure> {
        match *words {
            // The default of the library.
            ["streams"] => return Ok("100".to_owned()),
            ["all", costs, "0"] => {
                return Ok(match self.limits(costs)?.try_acquire() {
                    Ok(permits) => {
                        self.taken = Some(permits);
                        "true".to_owned()
                    }
                    Err(refusal) => format!("refused {}", refusal.resource),
                });
            }
            // A timeout drops the future, which is how a wait is cancelled, too.
            ["all" | "cancel", costs, seconds] => {
                let wait = Duration::from_secs(seconds.parse()?);
                let permits = tokio::time::timeout(wait, self.limits(costs)?.acquire()).await;
                self.taken = permits.ok().transpose()?;
                return Ok(self.taken.is_some().to_string());
            }
            ["return"] => self.taken = None,
            ["opposite", one, other, n, seconds] => {
                let end = tokio::time::Instant::now() + Duration::from_secs(seconds.parse()?);
                let [first, second] = [[one, other], [other, one]].map(|[first, second]| {
                    let limits = self.limits(&format!("{first}={n},{second}={n}"));
                    limits.map(|limits| tokio::spawn(take_repeatedly(limits, end)))
                });
                return Ok(format!("{} {}", first?.await?, second?.await?));
            }
            _ => return Err(format!("unknown command: {words:?}").into()),
        }
        Ok("ok".to_owned())
    }

    fn client(&self) -> Result<&Client, Failure> {
        self.client.as_ref().ok_or_else(|| "there is no client".into())
    }

    fn budget(&self, name: &str) -> Result<&Budget, Failure> {
        match self.opened(name)? {
            Opened::Budget(budget) => Ok(budget),
            _ => Err("it is not a budget".into()),
        }
    }

    /// The limits `NAME=N,…`.
    fn limits(&self, costs: &str) -> Result<Limits, Failure> {
        let costs = costs.split(',').map(|cost| -> Result<Cost, Failure> {
            let (name, n) = cost.split_once('=').ok_or("expected NAME=N")?;
            Ok(match self.opened(name)? {
                Opened::Rate(rate) => rate.of(n.parse()?),
                Opened::Gauge(gauge) => gauge.of(n.parse()?),
                Opened::Budget(budget) => budget.of(n.parse()?),
            })
        });
        Ok(self.client()?.limits(costs.collect::<Result<Vec<_>, _>>()?))
    }

    fn opened(&self, name: &str) -> Result<&Opened, Failure> {
        self.opened.get(name).ok_or_else(|| "it is not open".into())
    }
}

/// Returns whether the amount was spent.
async fn spend(budget: &Budget, amount: f64, wait: Duration) -> bool {
    if wait.is_zero() {
        return budget.try_spend(amount).is_ok();
    }
    tokio::time::timeout(wait, budget.spend(amount)).await.is_ok_and(|spent| spent.is_ok())
}

/// Takes and returns permits until `end`. Returns how often.
async fn take_repeatedly(limits: Limits, end: tokio::time::Instant) -> u32 {
    let mut times = 0;
    while tokio::time::Instant::now() < end {
        let Ok(Ok(_permits)) = tokio::time::timeout_at(end, limits.acquire()).await else { break };
        times += 1;
    }
    times
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut driver = Driver::default();
    loop {
        let mut line = String::new();
        // On a thread of its own, so that the client goes on meanwhile.
        let read = tokio::task::spawn_blocking(move || io::stdin().read_line(&mut line).map(|bytes| (bytes, line)));
        let (bytes, line) = read.await??;
        if bytes == 0 {
            return Ok(());
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = driver.execute(&words).await.unwrap_or_else(|error| format!("error {error}"));
        println!("{answer}");
    }
}
