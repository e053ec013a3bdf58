//! One run: a schedule, done to real processes while clients write down what they believe, and what must hold.

use std::{
    sync::PoisonError,
    time::{Duration, Instant},
};

use leaseway_client::LeaseTrace;
use leaseway_history::{Operation, unexplained};
use tokio::runtime::Runtime;

use super::{
    args::RandomArgs,
    cluster::Cluster,
    envoys::{Envoys, assignments},
    gateway::Gateway,
    holders::Holders,
    layout::{POOL, ROUTES, route},
    limits::{CapacityChange, limits, may_be_in_force},
    masters::{MasterWatch, two_masters},
    operators::Operators,
    outcome::{Course, Happening, TrialReport},
    packets::PacketCounts,
    pairs::Pairs,
    passes::{Excess, Pass, RouteHistory, excess},
    python::PythonClients,
    rls::{RouteTally, Routes},
    schedule::Strike,
    striker::{Striker, deceives_originals},
};
use crate::{
    audit,
    book::{BookLine, MachineClock},
    chaos::crowd::SCARCE,
    error::Error,
    signal::Interrupt,
};

/// How often it is looked whether something begins or ends, and whether processes are well.
const GLANCE: Duration = Duration::from_millis(10);
const CHECKS: Duration = Duration::from_secs(1);

/// When all is well again clients of the library have to have this part of what can be given: others have the rest.
const SERVED: f64 = 0.7;

/// Runs the strikes of a seed.
pub(super) fn run(
    args: &RandomArgs,
    seed: u64,
    strikes: &[Strike],
    interrupt: &Interrupt,
    say: &dyn Fn(String),
) -> Result<(TrialReport, Vec<BookLine>), Error> {
    let runtime = Runtime::new().map_err(Error::io("start a runtime"))?;
    let (book, clock) = (LeaseTrace::new(), MachineClock::read());
    let mut cluster = Cluster::prepare(args, seed, runtime.handle())?;
    for peer in 0..cluster.peers.len() {
        cluster.start(peer, &["--bootstrap".to_owned()])?;
    }
    let originals = if strikes.iter().any(deceives_originals) { 0 } else { args.originals };
    let holders = Holders::gather(args, seed, originals, &cluster, &book, runtime.handle())?;
    let peers = |node: &std::ops::Range<usize>| cluster.peers[node.clone()].iter().map(|peer| peer.grpc).collect();
    let peers = cluster.nodes.iter().map(peers).collect();
    let refresh = Duration::from_secs(args.refresh.get().into());
    let gateway = Gateway::open(&cluster, refresh, seed, runtime.handle())?;
    let envoys = Envoys::gather(gateway.rlqs, args.first_capacity(), seed, &cluster, &book, runtime.handle())?;
    let routes = Routes::gather(args, seed, gateway.rls, &cluster, runtime.handle())?;
    let admins: Vec<_> = cluster.peers[cluster.nodes[0].clone()].iter().map(|peer| peer.admin).collect();
    let python = args.python.as_deref().map(|python| PythonClients::start(python, &cluster, seed)).transpose()?;
    let [for_pairs, for_operators] = [cluster.transport()?, cluster.transport()?];
    let addresses: Vec<_> = cluster.peers.iter().map(|peer| peer.grpc).collect();
    let masters = MasterWatch::start(&cluster.transport()?, &addresses)?;
    let striker = Striker::new(args, cluster, holders, gateway, envoys, routes, masters);
    let mut trial = Trial { args, interrupt, striker };
    say(format!("seed {seed}: waiting until all clients are served"));
    let (_, complaint) = trial.settle()?;
    if let Some(complaint) = complaint {
        let said = trial.striker.cluster.peers[0].log();
        let last = said.lines().rev().take(5).collect::<Vec<_>>().join("\n");
        return Err(Error::Usage(format!("before anything was done: {complaint}; the first peer said last:\n{last}")));
    }
    if let Some(fault) = &args.plant
        && !trial.striker.cluster.peers[0].log().contains("a rule is left out")
    {
        return Err(Error::Usage(format!(
            "--plant {fault}: the server cannot leave rules out; build one that can, and name it with --server:\n  cargo \
             build -p leaseway --features planted"
        )));
    }
    python.as_ref().map_or(Ok(()), PythonClients::check)?;
    let pairs = Pairs::gather(peers, for_pairs, args.lease(), 2.0 * args.first_capacity(), runtime.handle());
    let operators = Operators::gather(&admins, &for_operators, seed, runtime.handle());
    let packets = PacketCounts::read();
    let began = trial.striker.restart_clock();
    let outcome = trial.go_on(strikes, seed, say);
    let calm = trial.striker.end_all().and(outcome);
    let packets = args.namespace.then(|| PacketCounts::read().since(packets));
    pairs.end();
    calm?;
    say(format!("seed {seed}: waiting until all is well again"));
    trial.striker.holders.calm();
    let (took, complaint) = trial.settle()?;
    if let Some(complaint) = complaint {
        let seconds = args.patience.as_secs_f64();
        trial.striker.violations.push(format!("not well again within {seconds} s: {complaint}"));
    }
    trial.check_configuration();
    let seconds = began.elapsed().as_secs_f64();
    let Striker { struck, applied, holders, gateway, envoys, routes, masters, cluster, mut violations, .. } =
        trial.striker;
    violations.extend(cluster.complaints());
    violations.extend(gateway.complaint());
    let of_python = python.map_or(Ok(Vec::new()), PythonClients::leave);
    let calls = runtime.block_on(operators.leave());
    violations.extend(unexplained(&calls).map(|call| format!("no order of what operators did explains this: {call}")));
    if !calls.iter().any(|call| matches!(call.operation, Operation::Write(_)) && call.answered.is_some()) {
        violations.push("no operator could assign anything".to_owned());
    }
    let tallies = runtime.block_on(routes.close());
    let starts_us: Vec<_> = gateway.starts.iter().map(|start| clock.us(*start)).collect();
    let of_envoys = runtime.block_on(envoys.close());
    let assignments = assignments(&of_envoys);
    let mut entries = runtime.block_on(holders.leave());
    entries.extend(of_envoys);
    entries.extend(runtime.block_on(gateway.close()));
    entries.extend(pairs.book());
    let claims = masters.finish(clock);
    let two_masters = two_masters(&claims, &cluster.nodes);
    violations.extend(two_masters.iter().map(|both| cluster.told(both, clock.us(began))));
    drop(cluster);
    entries.extend(book.take());
    let mut lines = clock.lines(entries);
    match of_python {
        Ok(of_python) => lines.extend(of_python),
        Err(error) => violations.push(format!("the Python clients: {error}")),
    }
    let applied = applied.lock().unwrap_or_else(PoisonError::into_inner);
    let changes: Vec<_> = applied
        .iter()
        .map(|applied| CapacityChange {
            asked_us: clock.us(applied.asked),
            stored_us: applied.stored.map(|stored| clock.us(stored)),
            capacity: applied.capacity,
        })
        .collect();
    let settle_us = u64::try_from(args.settle().as_micros()).unwrap_or(u64::MAX);
    let allowed = limits(args.first_capacity() * args.audit_part, &changes, settle_us);
    let (of_pool, others): (Vec<_>, Vec<_>) = lines.iter().cloned().partition(|line| line.resource == POOL);
    let mut audits = audit::audit_under(others, &allowed);
    audits.extend(audit::audit(of_pool, args.first_capacity() * args.audit_part));
    let over = || audits.iter().filter(|(_, audit)| audit.over_us > 0);
    for (resource, audit) in over() {
        let over = audit.over_us as f64 / 1e6;
        violations.push(format!("more than there is of `{resource}` could be used for {over:.3} s"));
    }
    let excesses = excesses(&tallies, &starts_us, &allowed, args.first_capacity(), clock);
    violations.extend(excesses.iter().map(|(resource, excess)| excess.told(resource, clock.us(began))));
    let report = TrialReport {
        shape: args.shape,
        seed,
        command: args.command(seed, args.keep_strikes.as_deref()),
        seconds,
        well_again_ms: took.as_secs_f64() * 1000.0,
        happenings: struck.iter().map(Happening::of).collect(),
        course: Course::of(&lines, SCARCE, &allowed, clock.us(began)..clock.us(began) + (seconds * 1e6) as u64),
        resources: audits.len() + tallies.len(),
        calls: calls.iter().filter(|call| call.answered.is_some()).count(),
        assignments,
        passed: tallies.iter().map(|tally| tally.passed.len()).sum(),
        denied: tallies.iter().map(|tally| tally.denied).sum(),
        packets,
        claims: claims.len(),
        two_masters,
        over: over().count() + excesses.len(),
        audit: audits.into_iter().find(|(resource, _)| resource == SCARCE).map(|(_, audit)| audit).unwrap_or_default(),
        violations,
    };
    Ok((report, lines))
}

/// Of which routes more passed than may. There is of each as much as of the `whole` that is `allowed`, in proportion.
fn excesses(
    tallies: &[RouteTally],
    starts_us: &[u64],
    allowed: &[(u64, f64)],
    whole: f64,
    clock: MachineClock,
) -> Vec<(String, Excess)> {
    let one = |(number, tally): (usize, &RouteTally)| {
        let pass =
            |(sent, answered): &(Instant, Instant)| Pass { sent_us: clock.us(*sent), answered_us: clock.us(*answered) };
        let passes: Vec<_> = tally.passed.iter().map(pass).collect();
        let believed: Vec<_> = tally.believed.iter().map(|(at, capacity)| (clock.us(*at), *capacity)).collect();
        let limits: Vec<_> = allowed.iter().map(|(at, limit)| (*at, limit * ROUTES[number] / whole)).collect();
        let found = excess(&RouteHistory { passes: &passes, starts_us, believed: &believed, limits: &limits });
        found.map(|excess| (route(number), excess))
    };
    tallies.iter().enumerate().filter_map(one).collect()
}

struct Trial<'a> {
    args: &'a RandomArgs,
    interrupt: &'a Interrupt,
    striker: Striker<'a>,
}

impl Trial<'_> {
    /// The schedule, to its end.
    fn go_on(&mut self, strikes: &[Strike], seed: u64, say: &dyn Fn(String)) -> Result<(), Error> {
        let started = Instant::now();
        let mut left = strikes.iter().peekable();
        let mut checked = started;
        while started.elapsed() < self.args.length {
            self.striker.pass()?;
            let now = started.elapsed();
            if let Some(strike) = left.next_if(|strike| Duration::from_millis(strike.at_ms) <= now) {
                say(format!("seed {seed}: {strike}"));
                self.striker.begin(*strike)?;
            }
            if checked.elapsed() >= CHECKS {
                checked = Instant::now();
                if !self.striker.cluster.complaints().is_empty() {
                    return Ok(());
                }
            }
            self.interrupt.sleep_until(Instant::now() + GLANCE, || {})?;
        }
        Ok(())
    }

    /// Waits until there are masters, all peers take part, and clients have what can be given. How long it took, and
    /// what is still missing when patience ends.
    fn settle(&mut self) -> Result<(Duration, Option<String>), Error> {
        let began = Instant::now();
        loop {
            self.interrupt.sleep_until(Instant::now() + GLANCE * 10, || {})?;
            let Some(complaint) = self.complaint() else { return Ok((began.elapsed(), None)) };
            let has_ended = self.striker.cluster.peers.iter().any(|peer| !peer.runs());
            if has_ended || began.elapsed() > self.args.patience {
                return Ok((began.elapsed(), Some(complaint)));
            }
        }
    }

    fn complaint(&self) -> Option<String> {
        let capacity = self.capacity();
        if let Some(complaint) = self.striker.holders.complaint(capacity, SERVED) {
            return Some(complaint);
        }
        if let Some(complaint) = self.striker.envoys.complaint() {
            return Some(complaint);
        }
        if let Some(complaint) = self.striker.routes.complaint() {
            return Some(complaint);
        }
        if self.striker.is_applying() {
            return Some("an operator's command has not ended".to_owned());
        }
        let nodes = 0..self.striker.cluster.nodes.len();
        let whole = |node: usize| self.striker.master(node).is_some() && self.striker.cluster.is_whole(node);
        let missing = nodes.into_iter().find(|node| !whole(*node))?;
        let peers = self.striker.cluster.operator(missing, &["peers", "list"]).run();
        let peers = peers.unwrap_or_else(|error| error.to_string());
        Some(format!("node {missing} has no master, or not all of its peers take part:\n{peers}"))
    }

    fn in_force(&self) -> Vec<f64> {
        let applied = self.striker.applied.lock().unwrap_or_else(PoisonError::into_inner);
        let change = |applied: &super::striker::Applied| CapacityChange {
            asked_us: 0,
            stored_us: applied.stored.map(|_| 0),
            capacity: applied.capacity,
        };
        may_be_in_force(self.args.first_capacity(), &applied.iter().map(change).collect::<Vec<_>>())
    }

    /// The least that may be in force.
    fn capacity(&self) -> f64 {
        self.in_force().into_iter().fold(f64::INFINITY, f64::min)
    }

    /// What was acknowledged is in force, or what was tried after it.
    fn check_configuration(&mut self) {
        let Ok(said) = self.striker.cluster.operator(0, &["config", "show"]).run() else { return };
        let expected = self.in_force();
        // The last template is the one that changes.
        let last = said.lines().rev().map(str::trim).find(|line| line.starts_with("capacity:"));
        if !expected.iter().any(|capacity| last == Some(format!("capacity: {capacity}").as_str())) {
            self.striker.violations.push(format!(
                "the configuration in force is none of those with capacity {expected:?}, which were acknowledged or tried \
                 last: {said}"
            ));
        }
    }
}
