//! Injects the faults of a schedule into processes, data, links and clients, and ends them.

pub(crate) mod handover;
pub(crate) mod network;
pub(crate) mod packets;

use std::{
    fs::{self, OpenOptions},
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use leaseway_process::Signal;

use crate::{
    chaos::{
        args::{ChaosArgs, FIRST_CAPACITY},
        clients::library::{LibraryClients, POOL_CLIENTS, pool_client},
        cluster::Cluster,
        faults::{
            handover::STAND,
            network::{ActiveFault, NetworkState},
        },
        gateway::{Gateway, rlqs::Envoys, rls::Routes},
        layout::POOL,
        masters::MasterWatch,
        schedule::{Fault, Reach, ScheduledFault},
    },
    common::{error::Error, tls::Certificates},
};

/// The time limit for a peer with damaged data to serve, or to refuse to start.
const VERDICT_PATIENCE: Duration = Duration::from_secs(20);

/// The minimum time between two losses of data at a node. For some seconds after a peer lost its data, the master still
/// lists it under its old identity. If another peer lost its data meanwhile, a majority would have lost theirs.
const DATA_LOSS_GRACE: Duration = Duration::from_secs(15);

/// The delay between two attempts of an operator to add a peer, and the number of attempts.
const RETRY_DELAY: Duration = Duration::from_millis(500);
const MAX_RETRIES: u32 = 120;

/// A change of the capacity by an operator. Times are on the clock of this process.
pub(crate) struct Applied {
    pub(crate) asked: Instant,
    pub(crate) stored: Option<Instant>,
    pub(crate) capacity: f64,
}

/// The outcome of a scheduled fault.
pub(crate) struct FaultOutcome {
    pub(crate) fault: ScheduledFault,
    /// The peer that it hit, or `clients`. `None` if it was skipped; then `note` has the reason.
    pub(crate) whom: Option<String>,
    pub(crate) began_ms: u64,
    pub(crate) ended_ms: u64,
    pub(crate) note: String,
}

pub(crate) struct FaultInjector<'a> {
    args: &'a ChaosArgs,
    pub(crate) cluster: Cluster,
    pub(crate) clients: LibraryClients,
    pub(crate) gateway: Gateway,
    pub(crate) envoys: Envoys,
    pub(crate) routes: Routes,
    pub(crate) masters: MasterWatch,
    network: NetworkState,
    active: Vec<(ActiveFault, Vec<usize>)>,
    pub(crate) outcomes: Vec<FaultOutcome>,
    pub(crate) applied: Arc<Mutex<Vec<Applied>>>,
    applying: Arc<AtomicBool>,
    /// Violated checks.
    pub(crate) violations: Vec<String>,
    started: Instant,
    /// The time at which a peer of each node last lost its data.
    last_data_loss: Vec<Option<Instant>>,
}

impl<'a> FaultInjector<'a> {
    pub(crate) fn new(
        args: &'a ChaosArgs,
        cluster: Cluster,
        clients: LibraryClients,
        gateway: Gateway,
        envoys: Envoys,
        routes: Routes,
        masters: MasterWatch,
    ) -> FaultInjector<'a> {
        FaultInjector {
            args,
            masters,
            network: NetworkState::good(&cluster, args.namespace),
            last_data_loss: vec![None; cluster.nodes.len()],
            cluster,
            clients,
            gateway,
            envoys,
            routes,
            active: Vec::new(),
            outcomes: Vec::new(),
            applied: Arc::default(),
            applying: Arc::default(),
            violations: Vec::new(),
            started: Instant::now(),
        }
    }

    /// Begins the schedule: its times count from now.
    pub(crate) fn restart_clock(&mut self) -> Instant {
        self.started = Instant::now();
        self.started
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Ends faults whose time is over, and updates links whose state changes during a fault.
    pub(crate) fn pass(&mut self) -> Result<(), Error> {
        let now = self.now_ms();
        while let Some(at) = self.active.iter().position(|(one, _)| one.fault.ends_ms() <= now) {
            self.end(at)?;
        }
        for (one, _) in &mut self.active {
            let Some(master) = one.about_to_stop() else { continue };
            if !one.stalls_at_message() {
                one.look(self.masters.is_master(master), now);
            } else if !self.cluster.link(master, one.victims[1]).waits_for_stall() {
                one.is_late(now);
            }
        }
        self.apply_network()
    }

    pub(crate) fn end_all(&mut self) -> Result<(), Error> {
        while !self.active.is_empty() {
            self.end(0)?;
        }
        self.apply_network()
    }

    pub(crate) fn is_applying(&self) -> bool {
        self.applying.load(Ordering::SeqCst)
    }

    fn apply_network(&mut self) -> Result<(), Error> {
        let all: Vec<ActiveFault> = self.active.iter().map(|(one, _)| one.clone()).collect();
        let now = self.now_ms();
        self.network.becomes(&all, &self.cluster, now)
    }

    /// The peer that claims to be master.
    pub(crate) fn master(&self, node: usize) -> Option<usize> {
        self.masters.master(self.cluster.nodes[node].clone())
    }

    pub(crate) fn begin(&mut self, fault: ScheduledFault) -> Result<(), Error> {
        let peers = self.cluster.nodes[fault.aim.node].clone();
        let victim = match fault.aim.peer {
            Some(peer) => peers.start + peer,
            None => self.master(fault.aim.node).unwrap_or(peers.start),
        };
        if let Some(why) = self.in_the_way(&fault, victim) {
            let now = self.now_ms();
            self.outcomes.push(FaultOutcome { fault, whom: None, began_ms: now, ended_ms: now, note: why.to_owned() });
            return Ok(());
        }
        // If the fault begins late, it still has its full duration.
        let began = self.now_ms();
        let fault = ScheduledFault { at_ms: began, ..fault };
        let mut victims = vec![victim];
        if fault.kind.hands_over() && self.masters.is_master(victim) {
            victims.push(fault.next_master(&peers, victim));
        }
        let one = ActiveFault::of(fault, victims, self.cluster.timing.heartbeat, self.cluster.certificates.is_none());
        let places = self.inflict(&one)?;
        let whom = match fault.kind.reach() {
            Reach::Outside => "clients".to_owned(),
            _ => self.cluster.peers[victim].label(),
        };
        let (began_ms, ended_ms, note) = (began, began, String::new());
        self.outcomes.push(FaultOutcome { fault, whom: Some(whom), began_ms, ended_ms, note });
        self.active.push((one, places));
        self.apply_network()
    }

    /// The reason why a fault cannot be injected now, if any.
    fn in_the_way(&self, fault: &ScheduledFault, victim: usize) -> Option<&'static str> {
        let reach = fault.kind.reach();
        let needs_disks = matches!(fault.kind, Fault::FullDisk | Fault::SlowDisks);
        if needs_disks && !self.cluster.has_bad_disks {
            return Some("no C compiler for the library that degrades disks");
        }
        if fault.kind == Fault::HandOver && !self.masters.is_master(victim) {
            return Some("no peer is master");
        }
        if fault.kind == Fault::Capacity && self.is_applying() {
            return Some("an operator is already changing the capacity");
        }
        let node = self.cluster.nodes[fault.aim.node].clone();
        let hurt = |peers: &dyn Fn(usize) -> bool, reaches: &[Reach]| {
            let mut all = self.active.iter().map(|(one, _)| one);
            all.any(|one| reaches.contains(&one.fault.kind.reach()) && one.victims.iter().any(|one| peers(*one)))
        };
        if reach == Reach::Process && hurt(&|one| one == victim, &[Reach::Process, Reach::Data]) {
            return Some("another fault affects the peer");
        }
        if reach == Reach::Data {
            let of_node = |one: usize| node.contains(&one);
            let lately = self.last_data_loss[fault.aim.node].is_some_and(|at| at.elapsed() < DATA_LOSS_GRACE);
            if lately || hurt(&of_node, &[Reach::Process, Reach::Data]) || !self.cluster.is_whole(fault.aim.node) {
                return Some("another peer of the node is down or behind, so the data is needed");
            }
        }
        None
    }

    /// Begins a fault. Returns the places of the clients that it crashed.
    fn inflict(&mut self, one: &ActiveFault) -> Result<Vec<usize>, Error> {
        let (fault, victim) = (&one.fault, one.victims[0]);
        match fault.kind {
            Fault::Kill | Fault::ClockJump | Fault::ClockRate => self.cluster.kill(victim),
            Fault::Pause => self.cluster.signal(victim, Signal::STOP),
            // With a full disk a server may exit with an error while it starts.
            Fault::FullDisk => self.cluster.expect_end(victim),
            Fault::Stall if !fault.resumes() => {
                let node = &self.cluster.nodes[fault.aim.node];
                for (from, to) in node.clone().flat_map(|from| node.clone().map(move |to| (from, to))) {
                    if fault.stalls(node, victim, from, to) {
                        self.cluster.link(from, to).stall_towards();
                    }
                }
            }
            Fault::HandOver | Fault::Replace => self.hand_over(one),
            Fault::FlippedBit | Fault::TornLog => {
                self.cluster.kill(victim);
                let damaged = damage(&self.cluster, victim, fault);
                damaged.map_err(Error::io("damage the log of a peer"))?;
            }
            Fault::Wipe => {
                self.cluster.kill(victim);
                self.cluster.peers[victim].delete_data()?;
            }
            Fault::Capacity => self.apply(FIRST_CAPACITY * (0.4 + 1.2 * fault.part()))?,
            Fault::Assign => self.assign(fault),
            Fault::Gateway => self.gateway.kill(),
            Fault::Certificates => self.certify(|certificates| certificates.renew())?,
            Fault::Authority => self.certify(Certificates::add_authority)?,
            Fault::Herd => {
                let endpoints = self.cluster.endpoints(self.cluster.nodes[fault.aim.node].clone());
                self.clients.herd(fault.number, 10 + (30.0 * fault.part()) as usize, &endpoints)?;
            }
            Fault::Crash => {
                let all = self.args.clients.get();
                let first = (fault.part() * all as f64) as usize;
                self.envoys.crash(fault.dice);
                self.routes.crash(fault.dice);
                return Ok(self.clients.crash(first, 1 + all / 4));
            }
            _ => {}
        }
        Ok(Vec::new())
    }

    fn end(&mut self, at: usize) -> Result<(), Error> {
        let (ActiveFault { fault, victims, said, .. }, places) = self.active.remove(at);
        let victim = victims[0];
        if let [master, next] = victims[..] {
            self.cluster.link(master, next).stall_at(None);
        }
        let mut note = said.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match fault.kind {
            Fault::Kill | Fault::Wipe => self.cluster.start(victim, &[])?,
            Fault::Pause => self.cluster.signal(victim, Signal::CONT),
            Fault::FullDisk => {
                self.apply_network()?;
                note = self.note_end(victim, "a full disk");
                self.cluster.kill(victim);
                self.cluster.start(victim, &[])?;
            }
            Fault::ClockJump | Fault::ClockRate => {
                let flag = wrong_clock(&fault);
                self.cluster.start(victim, std::slice::from_ref(&flag))?;
                note = flag;
            }
            Fault::FlippedBit | Fault::TornLog => note = self.start_damaged(victim)?,
            Fault::Replace => {
                // The removal may have succeeded without an answer.
                self.cluster.kill(victim);
                self.cluster.peers[victim].delete_data()?;
                self.cluster.start(victim, &[])?;
                self.add_peer(fault.aim.node, victim);
            }
            Fault::Herd => self.clients.scatter(fault.number),
            Fault::Crash => {
                self.envoys.come_back();
                self.routes.come_back();
                self.clients.come_back(&places)?;
            }
            Fault::Gateway => self.gateway.start()?,
            Fault::Authority => self.certify(Certificates::exchange)?,
            _ => {}
        }
        if fault.kind.reach() == Reach::Data {
            self.last_data_loss[fault.aim.node] = Some(Instant::now());
        }
        let now = self.now_ms();
        if let Some(outcome) = self.outcomes.iter_mut().find(|outcome| outcome.fault.number == fault.number) {
            (outcome.ended_ms, outcome.note) = (now, note);
        }
        Ok(())
    }

    /// Starts a peer with a damaged log. It must serve or exit with an error. In the second case its data is deleted
    /// and it is restarted.
    fn start_damaged(&mut self, victim: usize) -> Result<String, Error> {
        let serves = |log: &str| log.matches("admin on").count();
        let before = self.cluster.peers[victim].log();
        self.cluster.start(victim, &[])?;
        let patience = Instant::now() + VERDICT_PATIENCE;
        loop {
            let peer = &self.cluster.peers[victim];
            let log = peer.log();
            if !peer.runs() {
                let note = self.note_end(victim, "a damaged log");
                self.cluster.peers[victim].delete_data()?;
                self.cluster.peers[victim].server = None;
                self.cluster.start(victim, &[])?;
                return Ok(note);
            }
            if serves(&log) > serves(&before) {
                return Ok("recovered".to_owned());
            }
            if Instant::now() > patience {
                self.violations
                    .push(format!("{} neither served with a damaged log nor refused to start", peer.label()));
                return Ok("neither served nor exited".to_owned());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Checks a peer that may have exited because of this fault: it must have logged the reason. Returns a note for the
    /// report, empty if the peer runs.
    fn note_end(&mut self, victim: usize, because: &str) -> String {
        let peer = &self.cluster.peers[victim];
        if peer.runs() {
            return String::new();
        }
        let refusal = peer.refusal();
        if let Err(said) = &refusal {
            self.violations
                .push(format!("{} exited because of {because} without an error message: {said}", peer.label()));
        }
        format!("refused: {}", refusal.unwrap_or_default())
    }

    fn certify(&mut self, change: impl FnOnce(&mut Certificates) -> Result<(), Error>) -> Result<(), Error> {
        self.cluster.certificates.as_mut().map_or(Ok(()), change)
    }

    /// An operator transfers mastership away from a master. If the fault is `replace`, the operator then removes the
    /// peer. Does not wait.
    fn hand_over(&self, one: &ActiveFault) {
        let ActiveFault { fault, victims, said, .. } = one;
        let name = |peer: usize| self.cluster.peers[peer].name.clone();
        let mut commands = Vec::new();
        if let [_, next] = victims[..] {
            commands.push(self.cluster.operator(fault.aim.node, &["transfer", &name(next)]));
            if one.stalls_at_message() {
                self.cluster.link(victims[0], next).stall_at(Some(&STAND));
            }
        }
        if fault.kind == Fault::Replace {
            commands.push(self.cluster.operator(fault.aim.node, &["peers", "remove", &name(victims[0]), "--yes"]));
        }
        let said = Arc::clone(said);
        thread::spawn(move || {
            for command in commands {
                let answer = command.run().unwrap_or_else(|error| error.to_string());
                let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
                said.push_str(&answer.split_whitespace().collect::<Vec<_>>().join(" "));
                said.push_str("; ");
            }
        });
    }

    /// An operator adds a peer, with retries. Does not wait.
    fn add_peer(&self, node: usize, victim: usize) {
        let place = victim - self.cluster.nodes[node].start;
        let (name, address) = (&self.cluster.peers[victim].name, self.cluster.links[victim][place].address());
        let add = self.cluster.operator(node, &["peers", "add", name, &address]);
        thread::spawn(move || {
            for _ in 0..MAX_RETRIES {
                if add.run().is_ok() {
                    return;
                }
                thread::sleep(RETRY_DELAY);
            }
        });
    }

    /// An operator assigns parts of the pool to some clients, and removes the assignments of others. Does not wait. The
    /// server refuses assignments that exceed the pool.
    fn assign(&self, fault: &ScheduledFault) {
        let first = fault.dice as usize;
        let assignments = (0..POOL_CLIENTS / 3).map(|turn| {
            let part = ["none", "5%", "20%", "45%"][(first >> (2 * turn)) % 4];
            self.cluster.operator(0, &["pool", "set", &pool_client((first + turn) % POOL_CLIENTS), POOL, part])
        });
        let assignments: Vec<_> = assignments.collect();
        thread::spawn(move || assignments.iter().for_each(|one| drop(one.run())));
    }

    /// An operator applies a configuration with this capacity. Does not wait.
    fn apply(&self, capacity: f64) -> Result<(), Error> {
        let capacity = capacity.round();
        let file = self.cluster.write_file(&self.args.configuration(capacity), "changed.yaml")?;
        let operator = self.cluster.operator(0, &["config", "apply", &file.to_string_lossy(), "--yes"]);
        let (applied, applying) = (Arc::clone(&self.applied), Arc::clone(&self.applying));
        applying.store(true, Ordering::SeqCst);
        let place = {
            let mut applied = applied.lock().unwrap_or_else(PoisonError::into_inner);
            applied.push(Applied { asked: Instant::now(), stored: None, capacity });
            applied.len() - 1
        };
        thread::spawn(move || {
            let stored = operator.run().is_ok().then(Instant::now);
            applied.lock().unwrap_or_else(PoisonError::into_inner)[place].stored = stored;
            applying.store(false, Ordering::SeqCst);
        });
        Ok(())
    }
}

/// The flag that gives a server a wrong clock.
fn wrong_clock(fault: &ScheduledFault) -> String {
    let around = 2.0 * fault.part() - 1.0;
    match fault.kind {
        Fault::ClockJump => format!("--clock-offset-ms={}", (around * 6.0 * 3600.0 * 1000.0) as i64),
        // The clocks of two peers may differ by at most one part in a thousand.
        _ => format!("--clock-rate={}", 1.0 + around * 0.0004),
    }
}

/// Whether the fault makes clients that use the wall clock believe in their leases for too long.
pub(crate) fn deceives_legacy_clients(fault: &ScheduledFault) -> bool {
    fault.kind == Fault::ClockJump && fault.part() > 0.5
}

fn damage(cluster: &Cluster, victim: usize, fault: &ScheduledFault) -> io::Result<()> {
    let Some(path) = cluster.peers[victim].log_file() else { return Ok(()) };
    let mut bytes = fs::read(&path)?;
    let at = (bytes.len() as f64 * fault.part()) as usize;
    if fault.kind == Fault::TornLog {
        // Tear off up to 1,000 bytes.
        let torn = 1 + (fault.part() * 1000.0) as u64;
        return OpenOptions::new().write(true).open(&path)?.set_len((bytes.len() as u64).saturating_sub(torn));
    }
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= 1 << (fault.dice % 8);
    }
    fs::write(&path, bytes)
}
