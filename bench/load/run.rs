//! One run: generator threads are started, watched for warm-up and measurement, and stopped. It takes as long as was asked
//! for, whether the server answers or not.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{self, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use tokio::{
    runtime::{Runtime, RuntimeMetrics},
    sync::watch,
};

use super::{
    Common, Measurement, current_thread,
    measurement::GeneratorUse,
    tally::Tally,
    worker::{Phase, Plan, Shared, work},
    workload::{Population, Workload},
};
use crate::{error::Error, process, signal::Interrupt};

/// Who is asked, by how many clients, and how.
pub(crate) struct Options<'a> {
    pub(crate) target: SocketAddr,
    pub(crate) clients: u32,
    pub(crate) connections: u32,
    pub(crate) in_flight: u32,
    pub(crate) server_pid: Option<u32>,
    pub(crate) common: &'a Common,
}

impl Options<'_> {
    /// What is odd about this load, if anything.
    pub(crate) fn warning(&self) -> Option<String> {
        let in_flight = u64::from(self.connections) * u64::from(self.in_flight);
        (u64::from(self.clients) < in_flight).then(|| {
            format!(
                "note: {in_flight} requests in flight from {} clients: some ask again before they are answered, which \
                 real clients do not, and echo a lease that is not their newest",
                self.clients
            )
        })
    }

    fn population(&self) -> Population {
        Population {
            clients: self.clients,
            resources: self.common.resources.get(),
            resources_per_request: self.common.resources_per_request.get(),
            resource_prefix: self.common.resource_prefix.clone(),
            wants: self.common.wants.clone(),
            seed: self.common.seed,
        }
    }
}

/// How a run is going.
pub(crate) struct Live {
    pub(crate) elapsed: Duration,
    pub(crate) requests: u64,
}

impl Live {
    pub(crate) fn text(&self) -> String {
        let rate = self.requests as f64 / self.elapsed.as_secs_f64().max(0.001);
        format!("{rate:.0} requests/s")
    }
}

/// Loads the server; `observe` is called now and then meanwhile.
pub(crate) fn run(
    options: &Options<'_>,
    interrupt: &Interrupt,
    mut observe: impl FnMut(&Live),
) -> Result<Measurement, Error> {
    let generator = Generator::start(options)?;
    let started = Instant::now();
    let mut live = || {
        let requests = generator.shared.live.load(Ordering::Relaxed);
        observe(&Live { elapsed: started.elapsed(), requests });
    };

    interrupt.sleep_until(started + options.common.warmup, &mut live)?;
    // What is read here is kept next to the switch of phase: they must mean the same moment.
    let before = Used::read(options, &generator)?;
    generator.shared.enter(Phase::Measuring);
    interrupt.sleep_until(before.at + options.common.seconds, &mut live)?;
    let after = Used::read(options, &generator)?;
    generator.shared.enter(Phase::Over);

    let memory = options.server_pid.map(process::memory).transpose()?;
    let threads = generator.threads.len();
    let tally = generator.stop();
    let elapsed = after.at - before.at;
    let share = |time: Duration| time.as_secs_f64() / (elapsed.as_secs_f64() * threads as f64);
    let own_cpu = before.own_cpu.zip(after.own_cpu).map(|(before, after)| share(after.saturating_sub(before)));
    // Tokio does not count the time it takes to ask for events, though that is work as well.
    let in_tasks = share(after.own_busy.saturating_sub(before.own_busy));
    let busy_share = own_cpu.map_or(in_tasks, |cpu| cpu.max(in_tasks));
    let generator = GeneratorUse { threads, cpu_share: own_cpu, busy_share };
    let cpu = before.server_cpu.zip(after.server_cpu).map(|(before, after)| after.saturating_sub(before));
    Ok(Measurement::new(&tally, elapsed, cpu.zip(memory), generator))
}

/// What was used until some moment.
struct Used {
    at: Instant,
    server_cpu: Option<Duration>,
    own_cpu: Option<Duration>,
    own_busy: Duration,
}

impl Used {
    fn read(options: &Options<'_>, generator: &Generator) -> Result<Used, Error> {
        Ok(Used {
            server_cpu: options.server_pid.map(process::cpu_time).transpose()?,
            own_cpu: generator.threads.iter().map(|thread| process::own_thread_cpu_time(thread.id?)).sum(),
            own_busy: generator.threads.iter().map(|thread| thread.metrics.worker_total_busy_duration(0)).sum(),
            at: Instant::now(),
        })
    }
}

/// The threads that make the load. Dropping it stops them, soon, without waiting.
struct Generator {
    threads: Vec<Thread>,
    shared: Arc<Shared>,
    over: watch::Sender<()>,
}

struct Thread {
    handle: JoinHandle<Tally>,
    metrics: RuntimeMetrics,
    /// The system's number for it, where it has one.
    id: Option<u32>,
}

impl Generator {
    /// Returns once all threads have filled their memory and begin to connect.
    fn start(options: &Options<'_>) -> Result<Generator, Error> {
        let parts = options.common.threads.get().min(options.clients).min(options.connections);
        let (over, _) = watch::channel(());
        let mut generator = Generator { threads: Vec::new(), shared: Arc::default(), over };
        for part in 0..parts {
            generator.add(options, part, parts)?;
        }
        Ok(generator)
    }

    fn add(&mut self, options: &Options<'_>, part: u32, parts: u32) -> Result<(), Error> {
        let runtime = current_thread()?;
        let metrics = runtime.metrics();
        let population = options.population();
        let (target, in_flight) = (options.target, options.in_flight);
        let connections = (options.connections - part).div_ceil(parts);
        let (shared, over) = (Arc::clone(&self.shared), self.over.subscribe());
        let (ready, readied) = mpsc::channel();
        let body = move || {
            let workload = Workload::part(population, part, parts);
            let plan = Plan { target, connections, in_flight, workload, shared };
            drive(&runtime, plan, &ready, over)
        };
        let handle =
            thread::Builder::new().name(format!("load-{part}")).spawn(body).map_err(Error::io("start a thread"))?;
        let id = readied.recv().expect("the thread reports before it does anything that could fail");
        self.threads.push(Thread { handle, metrics, id });
        Ok(())
    }

    fn stop(self) -> Tally {
        drop(self.over);
        let mut total = Tally::new();
        for thread in self.threads {
            total.add(thread.handle.join().expect("generator threads do not panic"));
        }
        total
    }
}

fn drive(runtime: &Runtime, plan: Plan, ready: &Sender<Option<u32>>, over: watch::Receiver<()>) -> Tally {
    // Nobody listens any more if the run was given up: then `over` says so too.
    let _ = ready.send(process::thread_id());
    runtime.block_on(work(plan, over))
}
