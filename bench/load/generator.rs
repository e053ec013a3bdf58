//! The threads that generate load.

use std::{
    sync::{
        Arc,
        mpsc::{self, Sender},
    },
    thread::{self, JoinHandle},
    time::Instant,
};

use leaseway_process::usage;
use tokio::{
    runtime::{Runtime, RuntimeMetrics},
    sync::watch,
};

use crate::{
    common::{current_thread, error::Error},
    load::{
        live::{Beat, Live},
        options::Options,
        schedule::Schedule,
        tally::Tally,
        worker::{Done, Servers, Shared, ThreadPlan, work},
        workload::Workload,
    },
};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Every client gets a lease as soon as possible: a closed loop without churn.
    Fill,
    Measure,
}

/// Dropping it stops the threads soon, without waiting.
pub(crate) struct Generator {
    pub(crate) threads: Vec<Thread>,
    pub(crate) shared: Arc<Shared>,
    over: watch::Sender<()>,
}

pub(crate) struct Thread {
    handle: JoinHandle<Done>,
    pub(crate) metrics: RuntimeMetrics,
    beat: Arc<Beat>,
    pub(crate) schedule: Option<Arc<Schedule>>,
    /// The id of the thread, where the system has one.
    pub(crate) id: Option<u32>,
}

impl Generator {
    /// Returns once all threads run and begin to connect.
    pub(crate) fn start(options: &Options<'_>, workloads: Vec<Workload>, purpose: Purpose) -> Result<Generator, Error> {
        let parts = options.threads();
        let (over, _) = watch::channel(());
        let mut generator = Generator { threads: Vec::new(), shared: Arc::default(), over };
        let start = Instant::now();
        let rate = options.common.rate.filter(|_| purpose == Purpose::Measure);
        for (part, mut workload) in (0..parts).zip(workloads) {
            workload.may_leave(purpose == Purpose::Measure);
            let schedule = rate.map(|rate| Arc::new(Schedule::part(start, rate, part, parts)));
            let plan = ThreadPlan {
                servers: Servers {
                    named: options.targets.clone(),
                    follow: options.server_pid.is_none(),
                    dialer: options.dialer.clone(),
                },
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
        let runtime = current_thread().map_err(Error::io("start a runtime"))?;
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

    pub(crate) fn live(&self) -> Live {
        Live::new(self.threads.iter().map(|thread| Arc::clone(&thread.beat)).collect())
    }

    /// Stops all threads and returns their clients.
    pub(crate) fn stop(self) -> (Tally, Vec<Workload>) {
        drop(self.over);
        let (mut total, mut workloads) = (Tally::new(), Vec::new());
        for thread in self.threads {
            let done = thread.handle.join().expect("generator threads do not panic");
            total.add(done.tally);
            workloads.push(done.workload);
        }
        (total, workloads)
    }
}

fn drive(runtime: &Runtime, plan: ThreadPlan, ready: &Sender<Option<u32>>, over: watch::Receiver<()>) -> Done {
    // An error means that the run was interrupted.
    let _ = ready.send(usage::thread_id());
    runtime.block_on(work(plan, over))
}
