//! One run: real processes and clients, the faults of a schedule, and the checks.

use std::{
    sync::PoisonError,
    time::{Duration, Instant},
};

use leaseway_client::LeaseTrace;
use leaseway_sim::accounting::linearizability::{Operation, RegisterCall, unexplained};
use tokio::runtime::Runtime;

use crate::{
    chaos::{
        accounting::{Accounting, CapacityChange, LeaseRecord, MachineClock, account, limits, may_be_in_force},
        args::{ChaosArgs, FIRST_CAPACITY},
        clients::{
            SCARCE,
            driven::DrivenClients,
            library::LibraryClients,
            operators::Operators,
            pairs::Pairs,
            spenders::{Books, Spenders},
        },
        cluster::Cluster,
        faults::{Applied, FaultInjector, FaultOutcome, deceives_legacy_clients, packets::PacketCounts},
        gateway::{
            Gateway,
            passes::{Excess, Pass, RouteHistory, excess},
            rlqs::{Envoys, assignments},
            rls::{RouteTally, Routes},
        },
        layout::{POOL, ROUTES, route},
        masters::{Claim, MasterWatch, TwoMasters, gaps_ms, two_masters},
        report::{FaultRecord, TrialReport},
        schedule::ScheduledFault,
    },
    common::{error::Error, server::Interrupt},
};

/// The interval at which faults begin and end and processes are checked.
const STEP: Duration = Duration::from_millis(10);
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
const SETTLE_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The fraction of the capacity that library clients must hold after recovery. Other clients hold the rest.
const SERVED: f64 = 0.7;

/// Runs one schedule.
pub(crate) fn run(
    args: &ChaosArgs,
    seed: u64,
    faults: &[ScheduledFault],
    interrupt: &Interrupt,
    say: &dyn Fn(String),
) -> Result<TrialReport, Error> {
    let runtime = Runtime::new().map_err(Error::io("start a runtime"))?;
    let (lease_trace, clock) = (LeaseTrace::new(), MachineClock::read());
    let mut trial = Trial::start(args, seed, faults, interrupt, &lease_trace, &runtime)?;
    say(format!("seed {seed}: waiting until all clients are served"));
    trial.await_service()?;
    let (pairs, operators) = trial.start_probes(seed, &runtime)?;
    let packets = PacketCounts::read();
    let began = trial.injector.restart_clock();
    let outcome = trial.inject(faults, seed, say);
    let outcome = trial.injector.end_all().and(outcome);
    let packets = args.namespace.then(|| PacketCounts::read().since(packets));
    pairs.end();
    outcome?;
    say(format!("seed {seed}: waiting for recovery"));
    let recovery = trial.recover()?;
    let seconds = began.elapsed().as_secs_f64();
    let evidence = trial.finish(pairs, operators, &lease_trace, &runtime, clock, began);
    let verdict = evidence.judge(args, clock, began);
    Ok(TrialReport {
        shape: args.shape,
        seed,
        command: args.command(seed, args.keep_faults.as_deref()),
        seconds,
        recovery_ms: recovery.as_secs_f64() * 1000.0,
        faults: evidence.outcomes.iter().map(FaultRecord::of).collect(),
        resources: verdict.sums.len() + evidence.tallies.len(),
        calls: evidence.calls.iter().filter(|call| call.answered.is_some()).count(),
        assignments: evidence.assignments,
        passed: evidence.tallies.iter().map(|tally| tally.passed.len()).sum(),
        denied: evidence.tallies.iter().map(|tally| tally.denied).sum(),
        packets,
        claims: evidence.claims.len(),
        without_master_ms: gaps_ms(&evidence.claims, &evidence.nodes),
        two_masters: two_masters(&evidence.claims, &evidence.nodes),
        over: verdict.over,
        spent: verdict.spent,
        spent_by_driven: evidence.spent_by_driven,
        shared: verdict.sums.into_iter().find(|(name, _)| name == SCARCE).map(|(_, sum)| sum).unwrap_or_default(),
        violations: verdict.violations,
    })
}

struct Trial<'a> {
    args: &'a ChaosArgs,
    interrupt: &'a Interrupt,
    injector: FaultInjector<'a>,
    driven: DrivenClients,
    spenders: Spenders,
}

/// The observations of a run.
struct Evidence {
    outcomes: Vec<FaultOutcome>,
    nodes: Vec<std::ops::Range<usize>>,
    traces: Vec<LeaseRecord>,
    books: Books,
    spent_by_driven: u64,
    assignments: usize,
    tallies: Vec<RouteTally>,
    /// The times of all starts of the gateway.
    starts_us: Vec<u64>,
    changes: Vec<CapacityChange>,
    calls: Vec<RegisterCall>,
    claims: Vec<Claim>,
    violations: Vec<String>,
}

struct Verdict {
    /// The sum of the traces of each resource.
    sums: Vec<(String, Accounting)>,
    /// The number of resources whose capacity or limit was exceeded.
    over: usize,
    /// What was used of budgets.
    spent: f64,
    violations: Vec<String>,
}

impl<'a> Trial<'a> {
    /// Starts all processes and clients. Probes and faults start later.
    fn start(
        args: &'a ChaosArgs,
        seed: u64,
        faults: &[ScheduledFault],
        interrupt: &'a Interrupt,
        lease_trace: &LeaseTrace,
        runtime: &Runtime,
    ) -> Result<Trial<'a>, Error> {
        let handle = runtime.handle();
        let mut cluster = Cluster::prepare(args, seed, handle)?;
        for peer in 0..cluster.peers.len() {
            cluster.start(peer, &["--bootstrap".to_owned()])?;
        }
        let legacy_clients = if faults.iter().any(deceives_legacy_clients) { 0 } else { args.legacy_clients };
        let clients = LibraryClients::gather(args, seed, legacy_clients, &cluster, lease_trace, handle)?;
        let gateway = Gateway::open(&cluster, seed, handle)?;
        let envoys = Envoys::gather(gateway.rlqs, FIRST_CAPACITY, seed, &cluster, lease_trace, handle)?;
        let routes = Routes::gather(args, seed, gateway.rls, &cluster, handle)?;
        let spenders = Spenders::gather(seed, &cluster, handle)?;
        let driven = DrivenClients::gather(&args.driver, &cluster, spenders.books(), seed, handle)?;
        let addresses: Vec<_> = cluster.peers.iter().map(|peer| peer.grpc).collect();
        let masters = MasterWatch::start(&cluster.transport()?, &addresses)?;
        let injector = FaultInjector::new(args, cluster, clients, gateway, envoys, routes, masters);
        Ok(Trial { args, interrupt, injector, driven, spenders })
    }

    /// Waits until all clients are served. Fails if they are not, although no fault was injected, or if a server with a
    /// planted fault does not log it.
    fn await_service(&mut self) -> Result<(), Error> {
        let (_, complaint) = self.settle()?;
        let log = self.injector.cluster.peers[0].log();
        if let Some(complaint) = complaint {
            let last = log.lines().rev().take(5).collect::<Vec<_>>().join("\n");
            return Err(Error::Usage(format!("before any fault: {complaint}; the first peer logged last:\n{last}")));
        }
        if let Some(rule) = &self.args.plant
            && !log.contains("planted fault: this server breaks a safety rule")
        {
            return Err(Error::Usage(format!(
                "--plant {rule}: the server cannot leave rules out; build one that can, and name it with --server:\n  \
                 cargo build -p leaseway --features planted"
            )));
        }
        Ok(())
    }

    /// Starts the probes: pairs of clients that reveal forgotten leases, and operators whose calls must be
    /// linearizable.
    fn start_probes(&self, seed: u64, runtime: &Runtime) -> Result<(Pairs, Operators), Error> {
        let cluster = &self.injector.cluster;
        let peers = |node: &std::ops::Range<usize>| cluster.peers[node.clone()].iter().map(|peer| peer.grpc).collect();
        let peers = cluster.nodes.iter().map(peers).collect();
        let wants = 2.0 * FIRST_CAPACITY;
        let pairs = Pairs::gather(peers, cluster.transport()?, self.args.lease(), wants, runtime.handle());
        let admins: Vec<_> = cluster.peers[cluster.nodes[0].clone()].iter().map(|peer| peer.admin).collect();
        Ok((pairs, Operators::gather(&admins, &cluster.transport()?, seed, runtime.handle())))
    }

    /// Carries out the schedule. Stops early if a process exits or panics.
    fn inject(&mut self, faults: &[ScheduledFault], seed: u64, say: &dyn Fn(String)) -> Result<(), Error> {
        let started = Instant::now();
        let mut left = faults.iter().peekable();
        let mut checked = started;
        while started.elapsed() < self.args.length {
            self.injector.pass()?;
            let now = started.elapsed();
            if let Some(fault) = left.next_if(|fault| Duration::from_millis(fault.at_ms) <= now) {
                say(format!("seed {seed}: {fault}"));
                self.injector.begin(*fault)?;
            }
            if checked.elapsed() >= CHECK_INTERVAL {
                checked = Instant::now();
                if !self.injector.cluster.complaints().is_empty() || self.driven.has_failed() {
                    return Ok(());
                }
            }
            self.interrupt.sleep_until(Instant::now() + STEP, || {})?;
        }
        Ok(())
    }

    /// Waits for recovery after the last fault. Returns the time that it took.
    fn recover(&mut self) -> Result<Duration, Error> {
        self.injector.clients.calm();
        let (took, complaint) = self.settle()?;
        if let Some(complaint) = complaint {
            let seconds = self.args.patience.as_secs_f64();
            self.injector.violations.push(format!("no recovery within {seconds} s: {complaint}"));
        }
        self.check_configuration();
        Ok(took)
    }

    /// Waits until each node has a master, all peers take part, and clients hold the available capacity. Returns the
    /// time that it took, and a description of the problem if it took too long.
    fn settle(&mut self) -> Result<(Duration, Option<String>), Error> {
        let began = Instant::now();
        loop {
            self.interrupt.sleep_until(Instant::now() + SETTLE_POLL_INTERVAL, || {})?;
            let Some(complaint) = self.complaint() else { return Ok((began.elapsed(), None)) };
            let has_ended = self.driven.has_failed() || self.injector.cluster.peers.iter().any(|peer| !peer.runs());
            if has_ended || began.elapsed() > self.args.patience {
                return Ok((began.elapsed(), Some(complaint)));
            }
        }
    }

    fn complaint(&self) -> Option<String> {
        let clients = self.injector.clients.complaint(self.capacity(), SERVED);
        let FaultInjector { envoys, routes, .. } = &self.injector;
        let complaints =
            [clients, envoys.complaint(), routes.complaint(), self.driven.complaint(), self.spenders.complaint()];
        if let Some(complaint) = complaints.into_iter().flatten().next() {
            return Some(complaint);
        }
        if self.injector.is_applying() {
            return Some("an operator's command is still running".to_owned());
        }
        let nodes = 0..self.injector.cluster.nodes.len();
        let whole = |node: usize| self.injector.master(node).is_some() && self.injector.cluster.is_whole(node);
        let missing = nodes.into_iter().find(|node| !whole(*node))?;
        let peers = self.injector.cluster.operator(missing, &["peers", "list"]).run();
        let peers = peers.unwrap_or_else(|error| error.to_string());
        Some(format!("node {missing} has no master, or not all of its peers take part:\n{peers}"))
    }

    /// The capacities that may be in force.
    fn in_force(&self) -> Vec<f64> {
        let applied = self.injector.applied.lock().unwrap_or_else(PoisonError::into_inner);
        let change = |applied: &Applied| CapacityChange {
            asked_us: 0,
            stored_us: applied.stored.map(|_| 0),
            capacity: applied.capacity,
        };
        may_be_in_force(FIRST_CAPACITY, &applied.iter().map(change).collect::<Vec<_>>())
    }

    /// The smallest capacity that may be in force.
    fn capacity(&self) -> f64 {
        self.in_force().into_iter().fold(f64::INFINITY, f64::min)
    }

    /// Checks that the configuration in force is the last one that was acknowledged, or a later one whose outcome is
    /// unknown.
    fn check_configuration(&mut self) {
        let Ok(said) = self.injector.cluster.operator(0, &["config", "show"]).run() else { return };
        let expected = self.in_force();
        // Faults change the last template.
        let last = said.lines().rev().map(str::trim).find(|line| line.starts_with("capacity:"));
        if !expected.iter().any(|capacity| last == Some(format!("capacity: {capacity}").as_str())) {
            self.injector.violations.push(format!(
                "the configuration in force is not one of those that were acknowledged or requested last, with capacity \
                 {expected:?}: {said}"
            ));
        }
    }

    /// Stops all clients, then all processes, and collects their records.
    fn finish(
        self,
        pairs: Pairs,
        operators: Operators,
        lease_trace: &LeaseTrace,
        runtime: &Runtime,
        clock: MachineClock,
        began: Instant,
    ) -> Evidence {
        let FaultInjector {
            outcomes, applied, clients, gateway, envoys, routes, masters, cluster, mut violations, ..
        } = self.injector;
        violations.extend(cluster.complaints());
        violations.extend(gateway.complaint());
        let (of_driven, spent_by_driven, failures) = runtime.block_on(self.driven.leave());
        violations.extend(failures);
        let (books, failures) = runtime.block_on(self.spenders.leave());
        violations.extend(failures);
        let calls = runtime.block_on(operators.leave());
        let tallies = runtime.block_on(routes.close());
        let starts_us = gateway.starts.iter().map(|start| clock.us(*start)).collect();
        let of_envoys = runtime.block_on(envoys.close());
        let assignments = assignments(&of_envoys);
        let mut entries = runtime.block_on(clients.leave());
        entries.extend(of_driven);
        entries.extend(of_envoys);
        entries.extend(runtime.block_on(gateway.close()));
        entries.extend(pairs.records());
        let claims = masters.finish(clock);
        let at_once = two_masters(&claims, &cluster.nodes);
        violations.extend(at_once.iter().map(|both| describe(both, &cluster, clock.us(began))));
        let nodes = cluster.nodes.clone();
        drop(cluster);
        entries.extend(lease_trace.take());
        let traces = clock.traces(entries);
        let applied = applied.lock().unwrap_or_else(PoisonError::into_inner);
        let change = |applied: &Applied| CapacityChange {
            asked_us: clock.us(applied.asked),
            stored_us: applied.stored.map(|stored| clock.us(stored)),
            capacity: applied.capacity,
        };
        let changes = applied.iter().map(change).collect();
        Evidence {
            outcomes,
            nodes,
            traces,
            books,
            spent_by_driven,
            assignments,
            tallies,
            starts_us,
            changes,
            calls,
            claims,
            violations,
        }
    }
}

/// Describes two masters at the same time, in a run that began at `began_us`.
fn describe(both: &TwoMasters, cluster: &Cluster, began_us: u64) -> String {
    let TwoMasters { masters: [one, other], from_us, lasted_us, claims } = both;
    let named = |(peer, term): (usize, u64)| format!("{} (term {term})", cluster.peers[peer].label());
    let from = (*from_us as f64 - began_us as f64) / 1e6;
    format!(
        "two masters at the same time: {} and {}, from {from:.3} s on for at least {:.3} s, proven by {claims} \
         answers of one during the term of the other",
        named(*one),
        named(*other),
        *lasted_us as f64 / 1e6
    )
}

impl Evidence {
    fn judge(&self, args: &ChaosArgs, clock: MachineClock, began: Instant) -> Verdict {
        let mut violations = self.violations.clone();
        let calls = unexplained(&self.calls);
        violations
            .extend(calls.map(|call| format!("calls of operators are not linearizable: no order explains {call}")));
        let has_written =
            |call: &RegisterCall| matches!(call.operation, Operation::Write(_)) && call.answered.is_some();
        if !self.calls.iter().any(has_written) {
            violations.push("no assignment of an operator was acknowledged".to_owned());
        }
        let settle_us = u64::try_from(args.settle().as_micros()).unwrap_or(u64::MAX);
        let allowed = limits(FIRST_CAPACITY * args.audit_part, &self.changes, settle_us);
        let (of_pool, others): (Vec<_>, Vec<_>) = self.traces.iter().cloned().partition(|trace| trace.resource == POOL);
        let mut sums = account(others, &allowed);
        sums.extend(account(of_pool, &[(0, FIRST_CAPACITY * args.audit_part)]));
        let over: Vec<_> = sums.iter().filter(|(_, sum)| sum.over_us > 0).collect();
        violations.extend(over.iter().map(|(resource, sum)| {
            let seconds = sum.over_us as f64 / 1e6;
            format!("clients could use more than the capacity of `{resource}` for {seconds:.3} s")
        }));
        let (spent, overspent) = self.books.audit(args);
        let excesses = self.excesses(&allowed, clock);
        violations.extend(excesses.iter().map(|(resource, excess)| excess.told(resource, clock.us(began))));
        let over = over.len() + excesses.len() + overspent.len();
        violations.extend(overspent);
        Verdict { over, sums, spent, violations }
    }

    /// The routes for which too many requests passed. `allowed` has the capacity of the other resources; that of a
    /// route is proportional to it.
    fn excesses(&self, allowed: &[(u64, f64)], clock: MachineClock) -> Vec<(String, Excess)> {
        let one = |(number, tally): (usize, &RouteTally)| {
            let pass = |(sent, answered): &(Instant, Instant)| Pass {
                sent_us: clock.us(*sent),
                answered_us: clock.us(*answered),
            };
            let passes: Vec<_> = tally.passed.iter().map(pass).collect();
            let believed: Vec<_> = tally.believed.iter().map(|(at, capacity)| (clock.us(*at), *capacity)).collect();
            let limits: Vec<_> =
                allowed.iter().map(|(at, limit)| (*at, limit * ROUTES[number] / FIRST_CAPACITY)).collect();
            let starts_us = &self.starts_us;
            let found = excess(&RouteHistory { passes: &passes, starts_us, believed: &believed, limits: &limits });
            found.map(|excess| (route(number), excess))
        };
        self.tallies.iter().enumerate().filter_map(one).collect()
    }
}
