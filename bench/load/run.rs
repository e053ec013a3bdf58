//! One run: warm-up, measurement, end. It has the requested duration even if the server does not answer.

use std::time::{Duration, Instant, SystemTime};

use leaseway_process::usage::{self, Memory};

use crate::{
    common::{error::Error, server::Interrupt},
    load::{
        generator::{Generator, Live, Phase, Purpose},
        measurement::{Filled, GeneratorUse, Kept, Measurement},
        options::Options,
        workload::{Population, Workload},
    },
};

/// Runs the load. Calls `observe` regularly.
pub(crate) fn run(
    options: &Options<'_>,
    crowd: &mut Crowd,
    interrupt: &Interrupt,
    mut observe: impl FnMut(Duration, &mut Live),
) -> Result<Measurement, Error> {
    let generator = Generator::start(options, crowd.take(options.threads()), Purpose::Measure)?;
    let started = Instant::now();
    let mut live = generator.live();
    let mut live = || observe(started.elapsed(), &mut live);

    interrupt.sleep_until(started + options.common.warmup, &mut live)?;
    // Read the usage together with the change of phase, so that both refer to the same time.
    let before = Used::read(options, &generator)?;
    generator.shared.enter(Phase::Measuring);
    interrupt.sleep_until(before.at + options.common.seconds, &mut live)?;
    let after = Used::read(options, &generator)?;
    generator.shared.enter(Phase::Over);

    let threads = generator.threads.len();
    let (mut tally, workloads) = generator.stop();
    crowd.parts = workloads;
    tally.unanswered(after.overdue);
    let elapsed = after.at - before.at;
    let share = |time: Duration| time.as_secs_f64() / (elapsed.as_secs_f64() * threads as f64);
    let own_cpu = before.own_cpu.zip(after.own_cpu).map(|(before, after)| share(after.saturating_sub(before)));
    // Tokio's busy time does not include polling for events.
    let in_tasks = share(after.own_busy.saturating_sub(before.own_busy));
    let busy_share = own_cpu.map_or(in_tasks, |cpu| cpu.max(in_tasks));
    let generator = GeneratorUse { threads, cpu_share: own_cpu, busy_share };
    let memory = before.memory.zip(after.memory).map(|(before, after)| [before, after]);
    let cpu = before.server_cpu.zip(after.server_cpu).map(|(before, after)| after.saturating_sub(before));
    let mut measurement = Measurement::new(&tally, elapsed, cpu.zip(memory), generator);
    measurement.leased = crowd.leased();
    measurement.held = crowd.held();
    measurement.schedule = options.common.rate.map(|rate| Kept {
        rate,
        due: after.due - before.due,
        begun: after.begun - before.begun,
        late_p99_ms: tally.late_us.value_at_quantile(0.99) as f64 / 1e3,
        late_max_ms: tally.late_us.max() as f64 / 1e3,
    });
    Ok(measurement)
}

/// Resources used so far.
struct Used {
    at: Instant,
    server_cpu: Option<Duration>,
    memory: Option<Memory>,
    own_cpu: Option<Duration>,
    own_busy: Duration,
    /// The number of requests that were due, in an open loop.
    due: u64,
    begun: u64,
    /// The time for which the next request has been due.
    overdue: Duration,
}

impl Used {
    fn read(options: &Options<'_>, generator: &Generator) -> Result<Used, Error> {
        let at = Instant::now();
        let schedules = || generator.threads.iter().filter_map(|thread| thread.schedule.as_ref());
        Ok(Used {
            server_cpu: options.cpu_time()?,
            memory: options.memory()?,
            own_cpu: generator.threads.iter().map(|thread| usage::own_thread_cpu_time(thread.id?)).sum(),
            own_busy: generator.threads.iter().map(|thread| thread.metrics.worker_total_busy_duration(0)).sum(),
            due: schedules().map(|schedule| schedule.due_by(at)).sum(),
            begun: schedules().map(|schedule| schedule.begun()).sum(),
            overdue: schedules().map(|schedule| schedule.overdue(at)).max().unwrap_or_default(),
            at,
        })
    }
}

/// Filling fails if no client has got a lease for this time.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 15 });

/// The minimum number of clients for a figure of memory per client. With fewer clients, other growth dominates.
const MANY: u32 = 10_000;

/// All clients of the load. They keep their leases from one run to the next.
pub(crate) struct Crowd {
    population: Population,
    /// The clients of each generator thread.
    pub(crate) parts: Vec<Workload>,
    pub(crate) filled: Option<Filled>,
}

impl Crowd {
    /// A crowd without leases.
    pub(crate) fn new(options: &Options<'_>) -> Crowd {
        Crowd { population: options.population(), parts: Vec::new(), filled: None }
    }

    /// Takes the clients, divided into a part for each thread.
    pub(crate) fn take(&mut self, threads: u32) -> Vec<Workload> {
        if self.parts.len() != threads as usize {
            self.parts = (0..threads).map(|part| Workload::part(self.population.clone(), part, threads)).collect();
        }
        std::mem::take(&mut self.parts)
    }

    pub(crate) fn leased(&self) -> u64 {
        self.parts.iter().map(|part| part.leased_beyond(now())).sum()
    }

    /// The sum of all leases that have not ended, over all resources.
    pub(crate) fn held(&self) -> f64 {
        self.parts.iter().map(|part| part.held_beyond(now())).sum()
    }

    /// Gives all clients a lease, in a closed loop that is not measured. Calls `observe` regularly.
    pub(crate) fn fill(
        &mut self,
        options: &Options<'_>,
        interrupt: &Interrupt,
        mut observe: impl FnMut(&mut Live),
    ) -> Result<(), Error> {
        let before = options.memory()?;
        let started = Instant::now();
        let generator = Generator::start(options, self.take(options.threads()), Purpose::Fill)?;
        let mut live = generator.live();
        let (mut leased, mut since) = (0, Instant::now());
        let clients = u64::from(options.clients);
        while live.leased() < clients {
            if live.leased() > leased {
                (leased, since) = (live.leased(), Instant::now());
            }
            if since.elapsed() > PATIENCE {
                return Err(Error::Unfilled { leased, clients, patience: PATIENCE.as_secs() });
            }
            interrupt.poll(|| observe(&mut live))?;
        }
        let seconds = started.elapsed().as_secs_f64();
        self.parts = generator.stop().1;
        let bytes_per_client = before
            .zip(options.memory()?)
            .and_then(|(before, after)| grown(options.clients, before.now_kib, after.now_kib));
        self.filled = Some(Filled { clients: options.clients, seconds, bytes_per_client });
        Ok(())
    }
}

/// Seconds since the Unix epoch.
fn now() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs().cast_signed()
}

/// The growth in bytes per client.
fn grown(clients: u32, before_kib: u64, after_kib: u64) -> Option<f64> {
    (clients >= MANY).then(|| (after_kib as f64 - before_kib as f64) * 1024.0 / f64::from(clients))
}
