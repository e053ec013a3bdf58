//! One run: generator threads are started, watched for warm-up and measurement, and stopped. It takes as long as was
//! asked for, whether the server answers or not.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        mpsc::{self, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use leaseway_process::usage::{self, Memory};
use tokio::{
    runtime::{Runtime, RuntimeMetrics},
    sync::watch,
};

use super::{
    Common, Crowd, Measurement, current_thread,
    live::{Beat, Live},
    measurement::{GeneratorUse, Kept},
    schedule::Schedule,
    tally::Tally,
    worker::{Done, Phase, Servers, Shared, ThreadPlan, work},
    workload::Population,
};
use crate::{error::Error, signal::Interrupt};

/// Which servers are asked, by how many clients, and how.
pub(crate) struct Options<'a> {
    /// At least one; the first is asked first.
    pub(crate) targets: Vec<SocketAddr>,
    pub(crate) clients: u32,
    pub(crate) resources: u32,
    pub(crate) connections: u32,
    pub(crate) in_flight: u32,
    /// The process of the first target.
    pub(crate) server_pid: Option<u32>,
    pub(crate) common: &'a Common,
}

/// What is odd about so many clients with so many requests in flight, if anything.
pub(crate) fn warning(clients: u32, connections: u32, in_flight: u32) -> Option<String> {
    let in_flight = u64::from(connections) * u64::from(in_flight);
    (u64::from(clients) < in_flight).then(|| {
        format!(
            "note: {in_flight} requests in flight from {clients} clients: some ask again before they are answered, which \
             real clients do not, and echo a lease that is not their newest"
        )
    })
}

impl Options<'_> {
    pub(crate) fn population(&self) -> Population {
        Population {
            clients: self.clients,
            resources: self.resources,
            resources_per_request: self.common.resources_per_request.get(),
            resource_prefix: self.common.resource_prefix.clone(),
            wants: self.common.wants.clone(),
            churn: self.common.churn,
            seed: self.common.seed,
        }
    }

    /// Of the server, if its process is known.
    pub(crate) fn memory(&self) -> Result<Option<Memory>, Error> {
        self.server_pid.map(|pid| usage::memory(pid).map_err(Error::process(pid))).transpose()
    }

    fn cpu_time(&self) -> Result<Option<Duration>, Error> {
        self.server_pid.map(|pid| usage::cpu_time(pid).map_err(Error::process(pid))).transpose()
    }

    fn threads(&self) -> u32 {
        self.common.threads.get().min(self.clients).min(self.connections)
    }
}

/// Loads the server with the requests of `crowd`; `observe` is called now and then meanwhile.
pub(crate) fn run(
    options: &Options<'_>,
    crowd: &mut Crowd,
    interrupt: &Interrupt,
    mut observe: impl FnMut(Duration, &mut Live),
) -> Result<Measurement, Error> {
    let generator = Generator::start(options, crowd, Purpose::Measure)?;
    let started = Instant::now();
    let mut live = generator.live();
    let mut live = || observe(started.elapsed(), &mut live);

    interrupt.sleep_until(started + options.common.warmup, &mut live)?;
    // What is read here is kept next to the switch of phase: they must mean the same moment.
    let before = Used::read(options, &generator)?;
    generator.shared.enter(Phase::Measuring);
    interrupt.sleep_until(before.at + options.common.seconds, &mut live)?;
    let after = Used::read(options, &generator)?;
    generator.shared.enter(Phase::Over);

    let memory = options.memory()?;
    let threads = generator.threads.len();
    let mut tally = generator.stop(crowd);
    tally.unanswered(after.overdue);
    let elapsed = after.at - before.at;
    let share = |time: Duration| time.as_secs_f64() / (elapsed.as_secs_f64() * threads as f64);
    let own_cpu = before.own_cpu.zip(after.own_cpu).map(|(before, after)| share(after.saturating_sub(before)));
    // Tokio does not count the time it takes to ask for events, though that is work as well.
    let in_tasks = share(after.own_busy.saturating_sub(before.own_busy));
    let busy_share = own_cpu.map_or(in_tasks, |cpu| cpu.max(in_tasks));
    let generator = GeneratorUse { threads, cpu_share: own_cpu, busy_share };
    let cpu = before.server_cpu.zip(after.server_cpu).map(|(before, after)| after.saturating_sub(before));
    let mut measurement = Measurement::new(&tally, elapsed, cpu.zip(memory), generator);
    measurement.leased = crowd.leased();
    measurement.schedule = options.common.rate.map(|rate| Kept {
        rate,
        due: after.due - before.due,
        begun: after.begun - before.begun,
        late_p99_ms: tally.late_us.value_at_quantile(0.99) as f64 / 1e3,
        late_max_ms: tally.late_us.max() as f64 / 1e3,
    });
    Ok(measurement)
}

/// What was used until some moment.
struct Used {
    at: Instant,
    server_cpu: Option<Duration>,
    own_cpu: Option<Duration>,
    own_busy: Duration,
    /// Of an open loop's schedule.
    due: u64,
    begun: u64,
    /// For how long a request has been due that has not begun.
    overdue: Duration,
}

impl Used {
    fn read(options: &Options<'_>, generator: &Generator) -> Result<Used, Error> {
        let at = Instant::now();
        let schedules = || generator.threads.iter().filter_map(|thread| thread.schedule.as_ref());
        Ok(Used {
            server_cpu: options.cpu_time()?,
            own_cpu: generator.threads.iter().map(|thread| usage::own_thread_cpu_time(thread.id?)).sum(),
            own_busy: generator.threads.iter().map(|thread| thread.metrics.worker_total_busy_duration(0)).sum(),
            due: schedules().map(|schedule| schedule.due_by(at)).sum(),
            begun: schedules().map(|schedule| schedule.begun()).sum(),
            overdue: schedules().map(|schedule| schedule.overdue(at)).max().unwrap_or_default(),
            at,
        })
    }
}

/// What a load is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Every client is to have a lease, soon: a closed loop at any rate, and none leaves.
    Fill,
    Measure,
}

/// The threads that make the load. Dropping it stops them, soon, without waiting.
pub(super) struct Generator {
    threads: Vec<Thread>,
    shared: Arc<Shared>,
    over: watch::Sender<()>,
}

struct Thread {
    handle: JoinHandle<Done>,
    metrics: RuntimeMetrics,
    beat: Arc<Beat>,
    schedule: Option<Arc<Schedule>>,
    /// The system's number for it, where it has one.
    id: Option<u32>,
}

impl Generator {
    /// Returns once all threads are there and begin to connect.
    pub(super) fn start(options: &Options<'_>, crowd: &mut Crowd, purpose: Purpose) -> Result<Generator, Error> {
        let parts = options.threads();
        let (over, _) = watch::channel(());
        let mut generator = Generator { threads: Vec::new(), shared: Arc::default(), over };
        let workloads = crowd.take(parts);
        let start = Instant::now();
        let rate = options.common.rate.filter(|_| purpose == Purpose::Measure);
        for (part, mut workload) in (0..parts).zip(workloads) {
            workload.may_leave(purpose == Purpose::Measure);
            let schedule = rate.map(|rate| Arc::new(Schedule::part(start, rate, part, parts)));
            let plan = ThreadPlan {
                servers: Servers { named: options.targets.clone(), follow: options.server_pid.is_none() },
                connections: (options.connections - part).div_ceil(parts),
                in_flight: options.in_flight,
                workload,
                schedule,
                shared: Arc::clone(&generator.shared),
                beat: Arc::default(),
            };
            generator.add(part, plan)?;
        }
        Ok(generator)
    }

    fn add(&mut self, part: u32, plan: ThreadPlan) -> Result<(), Error> {
        let runtime = current_thread()?;
        let metrics = runtime.metrics();
        let (beat, schedule) = (Arc::clone(&plan.beat), plan.schedule.clone());
        let over = self.over.subscribe();
        let (ready, readied) = mpsc::channel();
        let body = move || drive(&runtime, plan, &ready, over);
        let handle =
            thread::Builder::new().name(format!("load-{part}")).spawn(body).map_err(Error::io("start a thread"))?;
        let id = readied.recv().expect("the thread reports before it does anything that could fail");
        if let Some(schedule) = &schedule {
            Arc::clone(schedule).keep(self.over.subscribe())?;
        }
        self.threads.push(Thread { handle, metrics, beat, schedule, id });
        Ok(())
    }

    pub(super) fn live(&self) -> Live {
        Live::new(self.threads.iter().map(|thread| Arc::clone(&thread.beat)).collect())
    }

    /// Ends all threads and gives their clients back.
    pub(super) fn stop(self, crowd: &mut Crowd) -> Tally {
        drop(self.over);
        let mut total = Tally::new();
        for thread in self.threads {
            let done = thread.handle.join().expect("generator threads do not panic");
            total.add(done.tally);
            crowd.parts.push(done.workload);
        }
        total
    }
}

fn drive(runtime: &Runtime, plan: ThreadPlan, ready: &Sender<Option<u32>>, over: watch::Receiver<()>) -> Done {
    // An error means that the run was given up: then `over` says so too.
    let _ = ready.send(usage::thread_id());
    runtime.block_on(work(plan, over))
}
