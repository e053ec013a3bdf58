//! Does what a schedule says to processes, their data, links, and clients, and undoes it.

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

use super::{
    args::RandomArgs,
    cluster::Cluster,
    envoys::Envoys,
    gateway::Gateway,
    hand_over::STAND,
    holders::{Holders, POOL_CLIENTS, pool_client},
    layout::POOL,
    masters::MasterWatch,
    rls::Routes,
    schedule::{Mishap, Reach, Strike},
    weather::{ActiveStrike, Weather},
};
use crate::{certificates::Certificates, error::Error};

/// How long a peer with damaged data may take until it serves or refuses to.
const VERDICT_PATIENCE: Duration = Duration::from_secs(20);

/// For some seconds after a peer was started without its data, a master lists it as the one that it was. If another one
/// lost its data then, a majority would have.
const BEREFT: Duration = Duration::from_secs(15);

/// How often an operator tries again to let a peer in, and for how long.
const AGAIN: Duration = Duration::from_millis(500);
const ADDS: u32 = 120;

/// A change of the capacity, on the clock of this process.
pub(super) struct Applied {
    pub(super) asked: Instant,
    pub(super) stored: Option<Instant>,
    pub(super) capacity: f64,
}

/// What became of a mishap.
pub(super) struct Struck {
    pub(super) strike: Strike,
    /// Whom it hit; none: it did not take place, because something else was under way.
    pub(super) whom: Option<String>,
    pub(super) began_ms: u64,
    pub(super) ended_ms: u64,
    pub(super) note: String,
}

pub(super) struct Striker<'a> {
    args: &'a RandomArgs,
    pub(super) cluster: Cluster,
    pub(super) holders: Holders,
    pub(super) gateway: Gateway,
    pub(super) envoys: Envoys,
    pub(super) routes: Routes,
    pub(super) masters: MasterWatch,
    weather: Weather,
    under_way: Vec<(ActiveStrike, Vec<usize>)>,
    pub(super) struck: Vec<Struck>,
    pub(super) applied: Arc<Mutex<Vec<Applied>>>,
    applying: Arc<AtomicBool>,
    /// What must never happen, and has.
    pub(super) violations: Vec<String>,
    started: Instant,
    /// When a peer of each node was last started without the data that it had.
    bereft: Vec<Option<Instant>>,
}

impl<'a> Striker<'a> {
    pub(super) fn new(
        args: &'a RandomArgs,
        cluster: Cluster,
        holders: Holders,
        gateway: Gateway,
        envoys: Envoys,
        routes: Routes,
        masters: MasterWatch,
    ) -> Striker<'a> {
        Striker {
            args,
            masters,
            weather: Weather::good(&cluster, args.namespace),
            bereft: vec![None; cluster.nodes.len()],
            cluster,
            holders,
            gateway,
            envoys,
            routes,
            under_way: Vec::new(),
            struck: Vec::new(),
            applied: Arc::default(),
            applying: Arc::default(),
            violations: Vec::new(),
            started: Instant::now(),
        }
    }

    /// The moment from which a schedule counts.
    pub(super) fn restart_clock(&mut self) -> Instant {
        self.started = Instant::now();
        self.started
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Ends what is over, and sees to links that change by themselves.
    pub(super) fn pass(&mut self) -> Result<(), Error> {
        let now = self.now_ms();
        while let Some(at) = self.under_way.iter().position(|(one, _)| one.strike.ends_ms() <= now) {
            self.end(at)?;
        }
        for (one, _) in &mut self.under_way {
            let Some(master) = one.about_to_stop() else { continue };
            if !one.stalls_at_message() {
                one.look(self.masters.is_master(master), now);
            } else if !self.cluster.link(master, one.victims[1]).is_to_stall() {
                one.is_late(now);
            }
        }
        self.see_to_weather()
    }

    pub(super) fn end_all(&mut self) -> Result<(), Error> {
        while !self.under_way.is_empty() {
            self.end(0)?;
        }
        self.see_to_weather()
    }

    pub(super) fn is_applying(&self) -> bool {
        self.applying.load(Ordering::SeqCst)
    }

    fn see_to_weather(&mut self) -> Result<(), Error> {
        let all: Vec<ActiveStrike> = self.under_way.iter().map(|(one, _)| one.clone()).collect();
        let now = self.now_ms();
        self.weather.becomes(&all, &self.cluster, now)
    }

    /// The peer that says that it is master.
    pub(super) fn master(&self, node: usize) -> Option<usize> {
        self.masters.master(self.cluster.nodes[node].clone())
    }

    pub(super) fn begin(&mut self, strike: Strike) -> Result<(), Error> {
        let peers = self.cluster.nodes[strike.aim.node].clone();
        let victim = match strike.aim.peer {
            Some(peer) => peers.start + peer,
            None => self.master(strike.aim.node).unwrap_or(peers.start),
        };
        if let Some(why) = self.in_the_way(&strike, victim) {
            let now = self.now_ms();
            self.struck.push(Struck { strike, whom: None, began_ms: now, ended_ms: now, note: why.to_owned() });
            return Ok(());
        }
        // For how long it lasts counts from now, however late this is.
        let began = self.now_ms();
        let strike = Strike { at_ms: began, ..strike };
        let mut victims = vec![victim];
        if strike.mishap.hands_over() && self.masters.is_master(victim) {
            victims.push(strike.next_master(&peers, victim));
        }
        let one = ActiveStrike::of(strike, victims, self.cluster.timing.heartbeat, self.cluster.certificates.is_none());
        let places = self.inflict(&one)?;
        let whom = match strike.mishap.reach() {
            Reach::Outside => "clients".to_owned(),
            _ => self.cluster.peers[victim].called(),
        };
        let (began_ms, ended_ms, note) = (began, began, String::new());
        self.struck.push(Struck { strike, whom: Some(whom), began_ms, ended_ms, note });
        self.under_way.push((one, places));
        self.see_to_weather()
    }

    /// Why a mishap cannot take place now.
    fn in_the_way(&self, strike: &Strike, victim: usize) -> Option<&'static str> {
        let reach = strike.mishap.reach();
        let needs_disks = matches!(strike.mishap, Mishap::FullDisk | Mishap::SlowDisks);
        if needs_disks && !self.cluster.has_bad_disks {
            return Some("there is no C compiler to make a bad disk with");
        }
        if strike.mishap == Mishap::HandOver && !self.masters.is_master(victim) {
            return Some("no peer is master");
        }
        if strike.mishap == Mishap::Capacity && self.is_applying() {
            return Some("another capacity is being put in force");
        }
        let node = self.cluster.nodes[strike.aim.node].clone();
        let hurt = |peers: &dyn Fn(usize) -> bool, reaches: &[Reach]| {
            let mut all = self.under_way.iter().map(|(one, _)| one);
            all.any(|one| reaches.contains(&one.strike.mishap.reach()) && one.victims.iter().any(|one| peers(*one)))
        };
        if reach == Reach::Process && hurt(&|one| one == victim, &[Reach::Process, Reach::Data]) {
            return Some("the peer is in trouble already");
        }
        if reach == Reach::Data {
            let of_node = |one: usize| node.contains(&one);
            let lately = self.bereft[strike.aim.node].is_some_and(|at| at.elapsed() < BEREFT);
            if lately || hurt(&of_node, &[Reach::Process, Reach::Data]) || !self.cluster.is_whole(strike.aim.node) {
                return Some("not all peers are well: their data is needed");
            }
        }
        None
    }

    /// Does it. The places of clients that it has to do with.
    fn inflict(&mut self, one: &ActiveStrike) -> Result<Vec<usize>, Error> {
        let (strike, victim) = (&one.strike, one.victims[0]);
        match strike.mishap {
            Mishap::Kill | Mishap::ClockJump | Mishap::ClockRate => self.cluster.kill(victim),
            Mishap::Pause => self.cluster.signal(victim, Signal::STOP),
            // A server that is just being started refuses a full disk in words, and ends.
            Mishap::FullDisk => self.cluster.expect_end(victim),
            Mishap::Stall if !strike.resumes() => {
                let node = &self.cluster.nodes[strike.aim.node];
                for (from, to) in node.clone().flat_map(|from| node.clone().map(move |to| (from, to))) {
                    if strike.stalls(node, victim, from, to) {
                        self.cluster.link(from, to).stall_towards();
                    }
                }
            }
            Mishap::HandOver | Mishap::Replace => self.hand_over(one),
            Mishap::FlippedBit | Mishap::TornLog => {
                self.cluster.kill(victim);
                let damaged = damage(&self.cluster, victim, strike);
                damaged.map_err(Error::io("damage the log of a peer"))?;
            }
            Mishap::Wipe => {
                self.cluster.kill(victim);
                self.cluster.peers[victim].delete_data()?;
            }
            Mishap::Capacity => self.apply(self.args.first_capacity() * (0.4 + 1.2 * strike.part()))?,
            Mishap::Assign => self.assign(strike),
            Mishap::Gateway => self.gateway.kill(),
            Mishap::Certificates => self.certify(|certificates| certificates.renew())?,
            Mishap::Authority => self.certify(Certificates::add_authority)?,
            Mishap::Herd => {
                let endpoints = self.cluster.endpoints(self.cluster.nodes[strike.aim.node].clone());
                self.holders.herd(strike.number, 10 + (30.0 * strike.part()) as usize, &endpoints)?;
            }
            Mishap::Crash => {
                let all = self.args.clients.get();
                let first = (strike.part() * all as f64) as usize;
                self.envoys.crash(strike.dice);
                self.routes.crash(strike.dice);
                return Ok(self.holders.crash(first, 1 + all / 4));
            }
            _ => {}
        }
        Ok(Vec::new())
    }

    fn end(&mut self, at: usize) -> Result<(), Error> {
        let (ActiveStrike { strike, victims, said, .. }, places) = self.under_way.remove(at);
        let victim = victims[0];
        if let [master, next] = victims[..] {
            self.cluster.link(master, next).stall_at(None);
        }
        let mut note = said.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match strike.mishap {
            Mishap::Kill | Mishap::Wipe => self.cluster.start(victim, &[])?,
            Mishap::Pause => self.cluster.signal(victim, Signal::CONT),
            Mishap::FullDisk => {
                self.see_to_weather()?;
                note = self.heed_end(victim, "a full disk");
                self.cluster.kill(victim);
                self.cluster.start(victim, &[])?;
            }
            Mishap::ClockJump | Mishap::ClockRate => {
                let flag = wrong_clock(&strike);
                self.cluster.start(victim, std::slice::from_ref(&flag))?;
                note = flag;
            }
            Mishap::FlippedBit | Mishap::TornLog => note = self.start_damaged(victim)?,
            Mishap::Replace => {
                // The removal may have been carried out even if that is not known.
                self.cluster.kill(victim);
                self.cluster.peers[victim].delete_data()?;
                self.cluster.start(victim, &[])?;
                self.let_in(strike.aim.node, victim);
            }
            Mishap::Herd => self.holders.scatter(strike.number),
            Mishap::Crash => {
                self.envoys.come_back();
                self.routes.come_back();
                self.holders.come_back(&places)?;
            }
            Mishap::Gateway => self.gateway.start()?,
            Mishap::Authority => self.certify(Certificates::exchange)?,
            _ => {}
        }
        if strike.mishap.reach() == Reach::Data {
            self.bereft[strike.aim.node] = Some(Instant::now());
        }
        let now = self.now_ms();
        if let Some(struck) = self.struck.iter_mut().find(|struck| struck.strike.number == strike.number) {
            (struck.ended_ms, struck.note) = (now, note);
        }
        Ok(())
    }

    /// Starts a peer whose log is damaged: it serves, or it says why it does not and ends. Then it has lost its data.
    fn start_damaged(&mut self, victim: usize) -> Result<String, Error> {
        let serves = |log: &str| log.matches("admin on").count();
        let before = self.cluster.peers[victim].log();
        self.cluster.start(victim, &[])?;
        let patience = Instant::now() + VERDICT_PATIENCE;
        loop {
            let peer = &self.cluster.peers[victim];
            let log = peer.log();
            if !peer.runs() {
                let note = self.heed_end(victim, "a damaged log");
                self.cluster.peers[victim].delete_data()?;
                self.cluster.peers[victim].server = None;
                self.cluster.start(victim, &[])?;
                return Ok(note);
            }
            if serves(&log) > serves(&before) {
                return Ok("recovered".to_owned());
            }
            if Instant::now() > patience {
                self.violations.push(format!("{} neither serves with a damaged log nor refuses to", peer.called()));
                return Ok("undecided".to_owned());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// A peer may end because of this if it says why. What to note of it: nothing, if it runs.
    fn heed_end(&mut self, victim: usize, because: &str) -> String {
        let peer = &self.cluster.peers[victim];
        if peer.runs() {
            return String::new();
        }
        let refusal = peer.refusal();
        if let Err(said) = &refusal {
            self.violations.push(format!("{} does not say why it refuses {because}: {said}", peer.called()));
        }
        format!("refused: {}", refusal.unwrap_or_default())
    }

    fn certify(&mut self, change: impl FnOnce(&mut Certificates) -> Result<(), Error>) -> Result<(), Error> {
        self.cluster.certificates.as_mut().map_or(Ok(()), change)
    }

    /// An operator transfers mastership away from a master, and removes a peer that is to be replaced, without waiting
    /// for that.
    fn hand_over(&self, one: &ActiveStrike) {
        let ActiveStrike { strike, victims, said, .. } = one;
        let name = |peer: usize| self.cluster.peers[peer].name.clone();
        let mut commands = Vec::new();
        if let [_, next] = victims[..] {
            commands.push(self.cluster.operator(strike.aim.node, &["transfer", &name(next)]));
            if one.stalls_at_message() {
                self.cluster.link(victims[0], next).stall_at(Some(&STAND));
            }
        }
        if strike.mishap == Mishap::Replace {
            commands.push(self.cluster.operator(strike.aim.node, &["peers", "remove", &name(victims[0])]));
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

    /// Tries to let a peer in until it is, without waiting for that.
    fn let_in(&self, node: usize, victim: usize) {
        let place = victim - self.cluster.nodes[node].start;
        let (name, address) = (&self.cluster.peers[victim].name, self.cluster.links[victim][place].address());
        let add = self.cluster.operator(node, &["peers", "add", name, &address]);
        thread::spawn(move || {
            for _ in 0..ADDS {
                if add.run().is_ok() {
                    return;
                }
                thread::sleep(AGAIN);
            }
        });
    }

    /// Gives parts of the pool to some clients and takes them from others, without waiting for that. What exceeds the
    /// pool together is refused.
    fn assign(&self, strike: &Strike) {
        let first = strike.dice as usize;
        let assignments = (0..POOL_CLIENTS / 3).map(|turn| {
            let part = ["none", "5%", "20%", "45%"][(first >> (2 * turn)) % 4];
            self.cluster.operator(0, &["pool", "set", &pool_client((first + turn) % POOL_CLIENTS), POOL, part])
        });
        let assignments: Vec<_> = assignments.collect();
        thread::spawn(move || assignments.iter().for_each(|one| drop(one.run())));
    }

    /// Puts a capacity in force, without waiting for that.
    fn apply(&self, capacity: f64) -> Result<(), Error> {
        let capacity = capacity.round();
        let file = self.cluster.write_file(&self.args.configuration(capacity), "changed.yaml")?;
        let operator = self.cluster.operator(0, &["config", "apply", &file.to_string_lossy()]);
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

/// The flag of a server whose clock is wrong.
fn wrong_clock(strike: &Strike) -> String {
    let around = 2.0 * strike.part() - 1.0;
    match strike.mishap {
        Mishap::ClockJump => format!("--clock-offset-ms={}", (around * 6.0 * 3600.0 * 1000.0) as i64),
        // Two peers may differ by one part in a thousand.
        _ => format!("--clock-rate={}", 1.0 + around * 0.0004),
    }
}

/// Whether it lets clients that count leases on the wall clock believe for longer than they should.
pub(super) fn deceives_originals(strike: &Strike) -> bool {
    strike.mishap == Mishap::ClockJump && strike.part() > 0.5
}

fn damage(cluster: &Cluster, victim: usize, strike: &Strike) -> io::Result<()> {
    let Some(path) = cluster.peers[victim].log_file() else { return Ok(()) };
    let mut bytes = fs::read(&path)?;
    let at = (bytes.len() as f64 * strike.part()) as usize;
    if strike.mishap == Mishap::TornLog {
        // Up to the last thousand bytes.
        let torn = 1 + (strike.part() * 1000.0) as u64;
        return OpenOptions::new().write(true).open(&path)?.set_len((bytes.len() as u64).saturating_sub(torn));
    }
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= 1 << (strike.dice % 8);
    }
    fs::write(&path, bytes)
}
