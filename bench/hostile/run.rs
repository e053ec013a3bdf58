//! One attack on one server: undisturbed runs alternate with runs under attack.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use leaseway_process::usage;

use crate::{
    common::{error::Error, server::Interrupt, word},
    hostile::{
        HostileArgs,
        attack::Attack,
        attacker::{AttackPlan, AttackThread},
        report::{AttackPair, AttackResult},
        target::{Newcomers, Target},
    },
    load::{
        measurement::Measurement,
        options::{Common, Options},
        run::{Crowd, run},
    },
};

/// The number of resources of the well-behaved clients.
const RESOURCES: u32 = 10;

/// The maximum number of requests in flight on each connection.
const IN_FLIGHT: u32 = 256;

/// The duration of an attack before its effect is measured.
const RISE: Duration = Duration::from_millis(500);

/// The interval at which the file descriptors of the server are counted.
const COUNT: Duration = Duration::from_millis(200);

/// A server with its well-behaved clients.
pub(crate) struct AttackRun<'a> {
    args: &'a HostileArgs,
    attack: Attack,
    interrupt: &'a Interrupt,
    bar: &'a ProgressBar,
    target: Target,
    common: Common,
    /// The server's memory once all clients had a lease.
    before_kib: u64,
    descriptors: usize,
}

impl<'a> AttackRun<'a> {
    pub(crate) fn start(
        args: &'a HostileArgs,
        attack: Attack,
        interrupt: &'a Interrupt,
        bar: &'a ProgressBar,
    ) -> Result<AttackRun<'a>, Error> {
        bar.set_message(format!("{}: starting", word(&attack)));
        let target = Target::start(args, attack, interrupt)?;
        let common = Common::steady(args.rate, args.seconds);
        Ok(AttackRun { args, attack, interrupt, bar, target, common, before_kib: 0, descriptors: 0 })
    }

    /// Runs the attack. The server ends with it.
    pub(crate) fn run(mut self) -> Result<AttackResult, Error> {
        let common = self.common.clone();
        let options = self.options(&common);
        let mut crowd = Crowd::new(&options);
        crowd.fill(&options, self.interrupt, |_| {})?;
        let mut pairs = Vec::new();
        for rep in 0..self.args.reps.get() {
            pairs.push(self.pair(&options, &mut crowd, rep)?);
        }
        let memory = self.memory()?;
        Ok(AttackResult {
            attack: self.attack,
            pairs,
            memory_before_mib: self.before_kib as f64 / 1024.0,
            memory_peak_mib: memory.peak_kib as f64 / 1024.0,
            memory_after_mib: memory.now_kib as f64 / 1024.0,
            budget_mib: self.attack.budget_mib(),
            descriptors: self.descriptors,
        })
    }

    fn options<'o>(&self, common: &'o Common) -> Options<'o> {
        Options {
            targets: vec![self.target.grpc],
            clients: self.args.clients.get(),
            resources: RESOURCES,
            connections: self.args.connections.get(),
            in_flight: IN_FLIGHT,
            server_pid: Some(self.target.server.id()),
            dialer: self.target.dialer.clone(),
            common,
        }
    }

    fn pair(&mut self, options: &Options<'_>, crowd: &mut Crowd, rep: u32) -> Result<AttackPair, Error> {
        let undisturbed = self.measure("undisturbed", options, crowd, || {})?;
        if rep == 0 {
            self.before_kib = self.memory()?.now_kib;
        }
        let attack = self.attack;
        let attacker = AttackThread::start(self.plan(), move |attacker| attack.make(attacker))?;
        let newcomers = Newcomers::come(&self.target, format!("newcomer-{rep}"))?;
        self.interrupt.sleep_until(Instant::now() + RISE, || {})?;
        let (sent, cpu, began) = (attacker.sent(), attacker.cpu(), Instant::now());
        let (pid, mut descriptors, mut counted) = (self.target.server.id(), 0, None::<Instant>);
        let attacked = self.measure("under attack", options, crowd, || {
            if counted.is_none_or(|counted| counted.elapsed() >= COUNT) {
                descriptors = descriptors.max(usage::descriptors(pid).unwrap_or_default());
                counted = Some(Instant::now());
            }
        });
        let elapsed = began.elapsed().as_secs_f64();
        let sent = attacker.sent().since(sent);
        let used = cpu.zip(attacker.cpu()).map(|(before, after)| after.saturating_sub(before).as_secs_f64());
        self.descriptors = self.descriptors.max(descriptors);
        let newcomers = newcomers.count();
        drop(attacker);
        let attacker_cores = used.map(|used| used / elapsed);
        Ok(AttackPair { undisturbed, attacked: attacked?, sent, sent_in_s: elapsed, attacker_cores, newcomers })
    }

    fn measure(
        &self,
        what: &str,
        options: &Options<'_>,
        crowd: &mut Crowd,
        mut meanwhile: impl FnMut(),
    ) -> Result<Measurement, Error> {
        let label = format!("{} {what}", word(&self.attack));
        let measured = run(options, crowd, self.interrupt, |_, live| {
            self.bar.set_message(format!("{label}: {}", live.text()));
            meanwhile();
        });
        self.target.server.check()?;
        self.bar.inc(1);
        measured
    }

    fn plan(&self) -> AttackPlan {
        let Target { grpc, http, dialer, reader, .. } = &self.target;
        AttackPlan {
            grpc: *grpc,
            http: *http,
            dialer: dialer.clone(),
            reader: reader.clone(),
            rate: self.args.attack_rate,
            connections: self.args.attack_connections,
        }
    }

    fn memory(&self) -> Result<usage::Memory, Error> {
        let pid = self.target.server.id();
        usage::memory(pid).map_err(Error::process(pid))
    }
}
