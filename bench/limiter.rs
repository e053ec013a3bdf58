//! How exactly does the client's rate limiter keep to a capacity, and how much of it does it use?
//!
//! The real limiter on the real clock, at many capacities, under loads that differ in whether callers wait for each
//! other: a closed loop of workers that ask again as soon as they are served, and open loops whose callers come evenly
//! spaced, each in a task of its own, however many wait already.
//!
//! **What the time of a caller adds.** Admissions are timed where they matter, in the caller after `wait()` has
//! returned. A task that is scheduled late has a late time, and the next one may follow it closely: so the excess that
//! is measured is the limiter's and, in addition, capacity · the delay of the scheduler. Below it, what the limiter
//! itself admits is bounded by its tests, on a clock that stands still while it decides.
//!
//! Absent: many limiters in one process, and callers that give up. The tests of the client have them.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use indicatif::ProgressBar;
use leaseway_client::{Capacity, limiter::Burst};
use serde::Serialize;
use tokio::runtime::{self, Runtime};

use crate::{
    error::Error,
    flags::seconds,
    output::{arguments, millis, note, print, progress, write_json},
    signal::Interrupt,
    table,
};

use self::{
    case::{Cost, LimiterCase, Load, Outcome},
    figures::LimiterFigures,
};

mod case;
mod figures;

/// Workers of the closed loop.
const WORKERS: u32 = 64;

/// What the open loops offer, as multiples of the capacity.
const OFFERED: [f64; 4] = [0.5, 0.9, 1.2, 5.0];

/// In permits per second.
const CAPACITIES: [f64; 14] =
    [0.5, 1.0, 3.0, 10.0, 11.0, 51.0, 75.0, 99.0, 100.0, 333.0, 1000.0, 5000.0, 20_000.0, 1_000_000.0];

/// Cases up to this capacity cost so little that they run at the same time.
const TOGETHER_MAX: f64 = 1000.0;

/// These run for so many times longer: they admit little.
const TOGETHER_FOR: u32 = 10;

/// Measures the client's rate limiter: how much of a capacity it lets through, and how much more than that at worst.
///
/// Callers note the time after they were let through. One that is scheduled late notes a late time, and the next may
/// follow closely: the excess measured here is that of the limiter and, besides, capacity x the delays of the
/// scheduler.
#[derive(clap::Args)]
pub(crate) struct LimiterArgs {
    /// How long each case runs. Those of capacities up to 1000 run all at the same time, and ten times as long.
    #[arg(long, default_value = "2", value_name = "S", value_parser = seconds)]
    seconds: Duration,
    /// Also write everything that was measured to a file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Everything, as JSON has it; the table is a view of it.
#[derive(Serialize)]
struct LimiterReport {
    /// The whole command line, so that it can be repeated.
    arguments: Vec<String>,
    cases: Vec<LimiterFigures>,
    cost: Cost,
}

pub(crate) fn main(args: &LimiterArgs) -> Result<(), Error> {
    if args.seconds.is_zero() {
        return Err(Error::Usage("--seconds 0 measures nothing".into()));
    }
    let interrupt = Interrupt::watch()?;
    let cases = LimiterRun::new(args).run(&interrupt)?;
    let cost = runtime()?.block_on(Cost::measure());
    let report = LimiterReport { arguments: arguments(), cases, cost };
    print(&report.text())?;
    write_json(args.json.as_deref(), &report)
}

struct LimiterRun {
    /// Each group runs at the same time.
    groups: Vec<Vec<LimiterCase>>,
    bar: ProgressBar,
}

impl LimiterRun {
    fn new(args: &LimiterArgs) -> LimiterRun {
        let cases = CAPACITIES.into_iter().flat_map(|capacity| {
            let loads = OFFERED.into_iter().map(|factor| Load::Open { factor });
            let duration = if capacity <= TOGETHER_MAX { args.seconds * TOGETHER_FOR } else { args.seconds };
            [Load::Closed { workers: WORKERS }].into_iter().chain(loads).map(move |load| LimiterCase {
                capacity: Capacity::of(capacity),
                burst: Burst::Smooth,
                load,
                duration,
            })
        });
        let (together, alone): (Vec<_>, Vec<_>) = cases.partition(|case| case.capacity.get() <= TOGETHER_MAX);
        let mut groups: Vec<_> = alone.into_iter().map(|case| vec![case]).collect();
        if !together.is_empty() {
            groups.insert(0, together);
        }
        let total: Duration = groups.iter().map(|group| group[0].duration).sum();
        let bar = progress(millis(total), "{bar:40} {msg}");
        note(&format!("{} cases, about {:.0} s in all", groups.iter().flatten().count(), total.as_secs_f64()));
        LimiterRun { groups, bar }
    }

    fn run(&self, interrupt: &Interrupt) -> Result<Vec<LimiterFigures>, Error> {
        let mut figures = Vec::new();
        let mut before = Duration::ZERO;
        for group in &self.groups {
            let message = match &group[..] {
                [case] => format!("{}/s, {}", case.capacity.get(), case.load),
                many => format!("{} cases at the same time", many.len()),
            };
            self.bar.set_message(message);
            let outcomes = self.run_group(group, before, interrupt)?;
            figures.extend(group.iter().zip(outcomes).map(|(case, outcome)| LimiterFigures::of(case, &outcome)));
            before += group[0].duration;
        }
        self.bar.finish_and_clear();
        Ok(figures)
    }

    fn run_group(&self, group: &[LimiterCase], before: Duration, interrupt: &Interrupt) -> Result<Vec<Outcome>, Error> {
        let runtime = runtime()?;
        let start = Instant::now();
        let running: Vec<_> = group.iter().map(|&case| runtime.spawn(case::run(case))).collect();
        interrupt.sleep_until(start + group[0].duration, || self.bar.set_position(millis(before + start.elapsed())))?;
        Ok(running.into_iter().map(|case| runtime.block_on(case).expect("a case does not panic")).collect())
    }
}

fn runtime() -> Result<Runtime, Error> {
    runtime::Builder::new_multi_thread().enable_all().build().map_err(Error::io("start a runtime"))
}

const HEAD: [&str; 7] = ["capacity/s", "load", "offered/s", "admitted/s", "%", "excess", "burst"];

impl LimiterReport {
    fn text(&self) -> String {
        let rows: Vec<_> = self.cases.iter().map(LimiterFigures::row).collect();
        let Cost { wait_ns, try_acquire_ns } = self.cost;
        let mut text = format!(
            "{}\n\n%: admitted of the smaller of offered and capacity. excess: the most permits that any span of time saw \
             beyond capacity · span,\nas callers timed it; burst: what it may be.\nWith a permit there and no other caller: \
             {wait_ns:.0} ns for wait(), {try_acquire_ns:.0} ns for try_acquire(1).",
            table::render(&HEAD, 2, &rows)
        );
        for doubt in self.cases.iter().flat_map(LimiterFigures::doubts) {
            text.push_str(&format!("\n{doubt}"));
        }
        text
    }
}
