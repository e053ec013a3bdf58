//! Clients of budgets. Each enters into a book what it has used, by the period of its reservation. No server is asked:
//! the books together must never exceed the amount of a period.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use leaseway_client::{Budget, Client, Transport};
use tokio::{
    runtime::Handle,
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use crate::{
    chaos::{
        args::ChaosArgs,
        cluster::Cluster,
        layout::{OF_PERIODS, ONCE},
    },
    common::error::Error,
};

const SPENDERS: usize = 6;
const PAUSE: Duration = Duration::from_millis(50);
const WAIT: Duration = Duration::from_secs(1);
pub(crate) const MAX_COST: u32 = 25;

/// What was used, by budget and start of the period.
#[derive(Clone, Default)]
pub(crate) struct Books(Arc<Mutex<BTreeMap<(&'static str, i64), f64>>>);

pub(crate) struct Spenders {
    books: Books,
    running: Vec<JoinHandle<()>>,
    leave: watch::Sender<bool>,
}

struct SpendingClient {
    id: String,
    endpoints: Vec<String>,
    transport: Transport,
    books: Books,
    random: fastrand::Rng,
}

impl Books {
    pub(crate) fn enter(&self, budget: &'static str, period: i64, used: f64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry((budget, period)).or_default() += used;
    }

    /// The sum of what was used, and each excess in words.
    pub(crate) fn audit(&self, args: &ChaosArgs) -> (f64, Vec<String>) {
        let books = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let excess = |(&(budget, period), &used): (&(&'static str, i64), &f64)| {
            let amount = args.amount(budget) * args.audit_part;
            (used > amount).then(|| format!("{used} of {amount} of `{budget}` were used in the period from {period}"))
        };
        (books.values().sum(), books.iter().filter_map(excess).collect())
    }

    /// Whether nothing was used of a budget so far.
    fn lacks(&self, budget: &str) -> bool {
        !self.0.lock().unwrap_or_else(PoisonError::into_inner).keys().any(|(of, _)| *of == budget)
    }
}

impl Spenders {
    pub(crate) fn gather(seed: u64, cluster: &Cluster, runtime: &Handle) -> Result<Spenders, Error> {
        let (books, leave, transport) = (Books::default(), watch::Sender::new(false), cluster.transport()?);
        let spender = |number: usize| {
            let node = cluster.nodes[number % cluster.nodes.len()].clone();
            let random = fastrand::Rng::with_seed(seed.wrapping_add(number as u64));
            let (id, endpoints) = (format!("spender:{number}"), cluster.endpoints(node));
            let client = SpendingClient { id, endpoints, transport: transport.clone(), books: books.clone(), random };
            runtime.spawn(client.run(leave.subscribe()))
        };
        let running = (0..SPENDERS).map(spender).collect();
        Ok(Spenders { books, running, leave })
    }

    pub(crate) fn books(&self) -> &Books {
        &self.books
    }

    pub(crate) fn complaint(&self) -> Option<String> {
        let lacking = [ONCE, OF_PERIODS].into_iter().find(|budget| self.books.lacks(budget))?;
        Some(format!("nothing was spent of `{lacking}`"))
    }

    /// Stops the clients. Returns the books, and the failures.
    pub(crate) async fn leave(self) -> (Books, Vec<String>) {
        self.leave.send_replace(true);
        let mut failures = Vec::new();
        for spender in self.running {
            failures.extend(spender.await.err().map(|failure| format!("a client of budgets: {failure}")));
        }
        (self.books, failures)
    }
}

impl SpendingClient {
    /// Lives several lives under one id. Each ends with a release or a crash.
    async fn run(mut self, leave: watch::Receiver<bool>) {
        while !*leave.borrow() {
            let builder = Client::builder().endpoints(self.endpoints.iter().cloned()).transport(&self.transport);
            let client = builder.id(self.id.clone()).build().expect("valid options");
            let budgets = [ONCE, OF_PERIODS].map(|id| (id, client.budget(id).expect("no other kind is open")));
            let end = Instant::now() + Duration::from_millis(self.random.u64(2_000..20_000));
            while Instant::now() < end && !*leave.borrow() {
                let (id, budget) = &budgets[self.random.usize(..budgets.len())];
                self.spend(id, budget).await;
                sleep(PAUSE).await;
            }
            drop(budgets);
            if self.random.bool() {
                client.abandon();
            } else {
                // The client stops even if the release fails.
                let _ = timeout(WAIT, client.close()).await;
            }
        }
    }

    async fn spend(&mut self, id: &'static str, budget: &Budget) {
        let cost = self.random.u32(1..=MAX_COST);
        let Ok(Ok(reservation)) = timeout(WAIT, budget.reserve(cost.into())).await else { return };
        let period = reservation.period().map_or(0, |(start, _)| start);
        // The call may last until another lease, and another period.
        if self.random.u32(..4) == 0 {
            sleep(Duration::from_millis(self.random.u64(..3_000))).await;
        }
        let used = if self.random.bool() { cost } else { self.random.u32(..=cost) };
        self.books.enter(id, period, used.into());
        if used == cost && self.random.bool() {
            drop(reservation);
        } else {
            reservation.settle(used.into()).expect("a valid amount");
        }
    }
}
