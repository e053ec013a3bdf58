//! One run: warm-up, measurement, end. It takes as long as requested, whether the server answers or not.

use std::time::{Duration, Instant};

use leaseway_process::usage::{self, Memory};

use crate::{
    common::{error::Error, signal::Interrupt},
    load::{
        crowd::Crowd,
        generator::{Generator, Purpose},
        live::Live,
        measurement::{GeneratorUse, Kept, Measurement},
        options::Options,
        worker::Phase,
    },
};

/// `observe` is called regularly.
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
    // Read together with the change of phase, because both have to mean the same time.
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
    // Tokio does not count the time of polling for events.
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
    /// Of an open loop.
    due: u64,
    begun: u64,
    /// How long the next request has been due.
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
