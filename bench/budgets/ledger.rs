//! The ways in which a worker learns whether a call may begin, and records its cost.

use std::{cell::Cell, net::SocketAddr, path::Path, rc::Rc, time::Duration};

use leaseway_client::{Budget, BudgetReservation, Client};
use tokio::time::{interval, timeout};

use crate::{
    budgets::trace::Call,
    common::{
        error::Error,
        redis::{Redis, processed},
        server::{Interrupt, Server, server_words},
    },
    gateways::{
        cluster::{await_listening, free, process, redis},
        lanes::HttpLane,
    },
};

const BUDGET: &str = "team/a";

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum System {
    /// The maximum is reserved, and the reservation is settled.
    Leaseway,
    /// The maximum is added before the call, and the difference at its end.
    Reserved,
    /// The count is read before the call, and the real cost is added at its end.
    Added,
    /// Each worker adds up real costs and adds the sum to the count every second.
    Flushed,
}

/// The process that decides or counts.
pub(super) enum Store {
    Leaseway { server: Server, address: SocketAddr, pages: SocketAddr },
    Redis { server: Server, address: SocketAddr },
}

/// What a worker knows.
pub(super) enum Ledger {
    Leaseway { _client: Client, budget: Budget, wait: Duration },
    Reserved { redis: Redis, amount: i64 },
    Added { redis: Redis, amount: i64 },
    Flushed { redis: Redis, amount: i64, known: Cell<i64>, unsent: Cell<i64> },
}

pub(super) enum Admission {
    Begun(Option<BudgetReservation>),
    Refused,
}

impl System {
    pub(super) const ALL: [System; 4] = [System::Leaseway, System::Reserved, System::Added, System::Flushed];

    pub(super) fn name(self) -> &'static str {
        match self {
            System::Leaseway => "Leaseway budget",
            System::Reserved => "Redis, maximum reserved",
            System::Added => "Redis, cost added at the end",
            System::Flushed => "Redis, flushed every second",
        }
    }
}

impl Store {
    /// Starts a server that stores its promises in `directory`, with the `budgets.yaml` there.
    pub(super) fn leaseway(command: Option<&str>, directory: &Path, interrupt: &Interrupt) -> Result<Store, Error> {
        let (address, pages) = (free()?, free()?);
        let [listen, http] = [address, pages].map(|address| address.to_string());
        let [config, data] = ["budgets.yaml", "data"].map(|name| directory.join(name).display().to_string());
        let program = server_words(command)?;
        let flags = ["--listen", &listen, "--http", &http, "--config", &config, "--data", &data, "--bootstrap"];
        let server = process(program.iter().map(String::as_str).chain(flags))?;
        await_listening(&server, address, interrupt)?;
        Ok(Store::Leaseway { server, address, pages })
    }

    pub(super) fn redis(program: &str, interrupt: &Interrupt) -> Result<Store, Error> {
        let (server, address) = redis(program, interrupt)?;
        Ok(Store::Redis { server, address })
    }

    pub(super) fn pid(&self) -> u32 {
        let (Store::Leaseway { server, .. } | Store::Redis { server, .. }) = self;
        server.id()
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        let (Store::Leaseway { server, .. } | Store::Redis { server, .. }) = self;
        server.check()
    }

    /// The number of requests so far, by the counters of the store.
    pub(super) async fn requests(&self) -> Result<f64, Error> {
        match self {
            Store::Leaseway { pages, .. } => {
                let page = async { HttpLane::open(*pages).await?.get("/metrics").await };
                let page = page.await.map_err(|reason| Error::Unreachable { target: *pages, reason })?;
                let counts = page.lines().filter(|line| line.starts_with("doorman_server_requests{"));
                Ok(counts.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum())
            }
            Store::Redis { address, .. } => {
                let count = processed(*address).await;
                count.map(|count| count as f64).map_err(|reason| Error::Unreachable { target: *address, reason })
            }
        }
    }
}

impl Ledger {
    pub(super) async fn open(
        system: System,
        store: &Store,
        worker: usize,
        amount: i64,
        wait: Duration,
    ) -> Result<Ledger, Error> {
        let address = match store {
            Store::Leaseway { address, .. } => {
                let builder = Client::builder().id(format!("worker-{worker}")).endpoint(address.to_string());
                let client = builder.build().map_err(Error::usage)?;
                let budget = client.budget(BUDGET).map_err(Error::usage)?;
                return Ok(Ledger::Leaseway { _client: client, budget, wait });
            }
            Store::Redis { address, .. } => *address,
        };
        let redis = Redis::connect(address).await.map_err(Error::io(format!("connect to {address}")))?;
        Ok(match system {
            System::Flushed => Ledger::Flushed { redis, amount, known: Cell::new(0), unsent: Cell::new(0) },
            System::Added => Ledger::Added { redis, amount },
            _ => Ledger::Reserved { redis, amount },
        })
    }

    /// Asks whether a call that costs at most `most` may begin.
    pub(super) async fn begin(&self, most: u32) -> Result<Admission, Error> {
        let may_begin = match self {
            Ledger::Leaseway { budget, wait, .. } => {
                return Ok(match timeout(*wait, budget.reserve(most.into())).await {
                    Ok(reservation) => Admission::Begun(Some(reservation.map_err(Error::usage)?)),
                    Err(_) => Admission::Refused,
                });
            }
            Ledger::Reserved { redis, amount } => {
                let fits = add(redis, most.into()).await? <= *amount;
                if !fits {
                    add(redis, -i64::from(most)).await?;
                }
                fits
            }
            Ledger::Added { redis, amount } => add(redis, 0).await? < *amount,
            Ledger::Flushed { amount, known, unsent, .. } => known.get() + unsent.get() < *amount,
        };
        Ok(if may_begin { Admission::Begun(None) } else { Admission::Refused })
    }

    /// Records the real cost of a call.
    pub(super) async fn end(&self, reservation: Option<BudgetReservation>, call: Call) -> Result<(), Error> {
        let used = i64::from(call.used);
        match self {
            Ledger::Leaseway { .. } => {
                let settled = reservation.map(|reservation| reservation.settle(call.used.into()));
                settled.transpose().map_err(Error::usage).map(drop)
            }
            Ledger::Reserved { redis, .. } => add(redis, used - i64::from(call.most)).await.map(drop),
            Ledger::Added { redis, .. } => add(redis, used).await.map(drop),
            Ledger::Flushed { unsent, .. } => {
                unsent.set(unsent.get() + used);
                Ok(())
            }
        }
    }

    /// Adds local sums to the count, until it is aborted. Does nothing in other systems.
    pub(super) async fn flush_every_second(self: Rc<Self>) -> Result<(), Error> {
        let Ledger::Flushed { redis, known, unsent, .. } = &*self else { return Ok(()) };
        let mut ticks = interval(Duration::from_secs(1));
        loop {
            ticks.tick().await;
            let sent = unsent.get();
            known.set(add(redis, sent).await?);
            unsent.set(unsent.get() - sent);
        }
    }
}

async fn add(redis: &Redis, amount: i64) -> Result<i64, Error> {
    redis.add("spent", amount).await.ok_or_else(|| Error::Usage("the connection to Redis is lost".into()))
}
