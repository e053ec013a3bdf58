//! A periodic pass over all resources. If there are too many for metric series and a history of each, it selects those
//! under the most pressure, and adds up the rest.

use std::{
    cmp::Ordering,
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime},
};

use leaseway_core::{resource::ResourceReport, types::Sum};
use tokio::sync::Mutex;

use crate::{config::limits::Limits, node::NodeHandle};

pub(crate) const SAMPLE_EVERY: Duration = Duration::from_secs(5);
/// Minimum interval between passes, as a multiple of the duration of the last one.
const REST: u32 = 20;
/// The pressure of a chosen resource that has become idle halves in this time.
const HALF_LIFE: Duration = Duration::from_secs(60);
/// Another resource replaces a chosen one only if its pressure is higher by this factor.
const MARGIN: f64 = 1.25;

/// Capacity, wants, granted and held of a resource at one time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sample {
    pub(crate) at: SystemTime,
    pub(crate) capacity: f64,
    pub(crate) wants: f64,
    pub(crate) granted: f64,
    pub(crate) held: f64,
}

impl Sample {
    fn of(report: &ResourceReport, at: SystemTime) -> Sample {
        let sums = &report.sums;
        Sample {
            at,
            capacity: report.settings.capacity.get(),
            wants: sums.wants.get(),
            granted: sums.granted.get(),
            held: sums.held.get(),
        }
    }
}

/// Whether more is held than the capacity, by more than rounding.
pub(crate) fn is_over_capacity(report: &ResourceReport) -> bool {
    report.is_divided() && report.sums.held.get() > report.settings.capacity.get() * (1.0 + 1e-9)
}

/// How contended a resource is. Fields are compared in order.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Pressure {
    /// Held / capacity if more than 1, else 0.
    over: f64,
    /// Wants / capacity; 0 if the capacity is not divided.
    contended: f64,
    wants: f64,
}

impl Pressure {
    fn of(report: &ResourceReport) -> Pressure {
        let (capacity, held) = (report.settings.capacity.get(), report.sums.held.get());
        let wants = report.sums.wants.get();
        if !report.is_divided() {
            return Pressure { wants, ..Pressure::default() };
        }
        let part = |value: f64| match () {
            () if value <= 0.0 => 0.0,
            () if capacity <= 0.0 => f64::MAX,
            () => value / capacity,
        };
        let over = if is_over_capacity(report) { part(held) } else { 0.0 };
        Pressure { over, contended: part(wants), wants }
    }

    fn by_field(self, other: Pressure, of: impl Fn(f64, f64) -> f64) -> Pressure {
        Pressure {
            over: of(self.over, other.over),
            contended: of(self.contended, other.contended),
            wants: of(self.wants, other.wants),
        }
    }

    fn order(&self, other: &Pressure) -> Ordering {
        let by_over = self.over.total_cmp(&other.over);
        by_over.then(self.contended.total_cmp(&other.contended)).then(self.wants.total_cmp(&other.wants))
    }
}

#[derive(Debug, Clone)]
struct Candidate {
    id: Arc<str>,
    /// The current pressure, or a decayed earlier peak if the resource was chosen before.
    pressure: Pressure,
    was_chosen: bool,
    sample: Sample,
    totals: Totals,
}

impl Candidate {
    /// Descending by pressure.
    fn order(&self, other: &Candidate) -> Ordering {
        let rank = |one: &Candidate| match one.was_chosen {
            true => one.pressure.by_field(Pressure::default(), |value, _| value * MARGIN),
            false => one.pressure,
        };
        let by_pressure = rank(other).order(&rank(self));
        by_pressure.then_with(|| other.was_chosen.cmp(&self.was_chosen)).then_with(|| self.id.cmp(&other.id))
    }
}

/// Sums over resources.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Totals {
    pub(crate) resources: usize,
    /// Resources that hold more than their capacity.
    pub(crate) over_capacity: usize,
    /// Of divided resources only.
    pub(crate) capacity: Sum,
    pub(crate) wants: Sum,
    pub(crate) granted: Sum,
    pub(crate) held: Sum,
    pub(crate) subclients: u64,
}

impl Totals {
    fn of(report: &ResourceReport) -> Totals {
        let capacity = if report.is_divided() { Sum::from(report.settings.capacity) } else { Sum::ZERO };
        Totals {
            resources: 1,
            over_capacity: usize::from(is_over_capacity(report)),
            capacity,
            wants: report.sums.wants,
            granted: report.sums.granted,
            held: report.sums.held,
            subclients: report.sums.subclients,
        }
    }

    fn add(&mut self, more: &Totals) {
        self.resources += more.resources;
        self.over_capacity += more.over_capacity;
        self.capacity += more.capacity;
        self.wants += more.wants;
        self.granted += more.granted;
        self.held += more.held;
        self.subclients += more.subclients;
    }
}

/// Chooses up to `most` resources in each pass.
#[derive(Debug)]
struct Selector {
    most: usize,
    /// The choice of the last pass.
    chosen: HashMap<Arc<str>, Pressure>,
    /// Candidates of the current pass: fewer than twice `most`.
    candidates: Vec<Candidate>,
    rest: Totals,
    /// The factor for pressures of the last pass.
    decay: f64,
}

impl Selector {
    fn new(most: usize) -> Selector {
        Selector { most, chosen: HashMap::new(), candidates: Vec::new(), rest: Totals::default(), decay: 0.0 }
    }

    /// Begins a pass, `since` after the last one. An unfinished pass is discarded.
    fn begin(&mut self, since: Duration) {
        self.candidates.clear();
        self.rest = Totals::default();
        self.decay = 0.5_f64.powf(since.as_secs_f64() / HALF_LIFE.as_secs_f64());
    }

    fn examine(&mut self, mut candidate: Candidate) {
        if self.most == 0 {
            return self.rest.add(&candidate.totals);
        }
        if let Some(before) = self.chosen.get(&candidate.id) {
            candidate.was_chosen = true;
            let decay = self.decay;
            candidate.pressure = candidate.pressure.by_field(*before, |now, before| now.max(before * decay));
        }
        self.candidates.push(candidate);
        if self.candidates.len() >= 2 * self.most {
            self.keep_best();
        }
    }

    fn keep_best(&mut self) {
        if self.candidates.len() > self.most {
            self.candidates.select_nth_unstable_by(self.most, Candidate::order);
            self.candidates.drain(self.most..).for_each(|dropped| self.rest.add(&dropped.totals));
        }
    }

    fn finish(&mut self) -> Selection {
        self.keep_best();
        let candidates = std::mem::take(&mut self.candidates);
        self.chosen = candidates.iter().map(|one| (Arc::clone(&one.id), one.pressure)).collect();
        let mut samples: Vec<(Arc<str>, Sample)> = candidates.into_iter().map(|one| (one.id, one.sample)).collect();
        samples.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        Selection { samples, rest: std::mem::take(&mut self.rest) }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Selection {
    /// In the order of their ids.
    pub(crate) samples: Vec<(Arc<str>, Sample)>,
    /// Totals of all other resources.
    pub(crate) rest: Totals,
}

/// The result of a pass.
#[derive(Debug)]
pub(crate) struct Survey {
    began: Instant,
    took: Duration,
    pub(crate) history: Selection,
    pub(crate) metrics: Selection,
}

impl Survey {
    /// When the next pass is due.
    pub(crate) fn next(&self) -> Instant {
        self.began + SAMPLE_EVERY.max(self.took * REST)
    }

    /// Whether it can be reused: until [`next`](Self::next) if the number of resources is unchanged, else only for
    /// [`REST`] times the duration of the pass.
    fn is_fresh(&self, resources: usize, now: Instant) -> bool {
        let known = self.metrics.samples.len() + self.metrics.rest.resources;
        now < self.next() && (known == resources || now < self.began + self.took * REST)
    }
}

/// Makes surveys for the history and for scrapes, at most one per interval.
#[derive(Debug)]
pub(crate) struct Surveyor {
    selectors: Mutex<(Selectors, Option<Arc<Survey>>)>,
    has_warned: AtomicBool,
}

#[derive(Debug)]
struct Selectors {
    history: Selector,
    metrics: Selector,
}

impl Surveyor {
    pub(crate) fn new(limits: &Limits) -> Surveyor {
        let history = Selector::new(limits.history_resources);
        let selectors = Selectors { history, metrics: Selector::new(limits.metrics_resources) };
        Surveyor { selectors: Mutex::new((selectors, None)), has_warned: AtomicBool::new(false) }
    }

    /// The last survey, or a new one if that is due.
    pub(crate) async fn survey(&self, node: &NodeHandle) -> Arc<Survey> {
        let mut state = self.selectors.lock().await;
        let (selectors, last) = &mut *state;
        let (began, at) = (Instant::now(), SystemTime::now());
        if let Some(last) = last.as_ref().filter(|last| last.is_fresh(node.resources(), began)) {
            return Arc::clone(last);
        }
        let since = last.as_ref().map_or(Duration::ZERO, |last| began - last.began);
        selectors.history.begin(since);
        selectors.metrics.begin(since);
        node.for_each_status(|status| {
            let report = &status.report;
            let candidate = Candidate {
                id: status.id,
                pressure: Pressure::of(report),
                was_chosen: false,
                sample: Sample::of(report, at),
                totals: Totals::of(report),
            };
            selectors.history.examine(candidate.clone());
            selectors.metrics.examine(candidate);
        })
        .await;
        let (history, metrics) = (selectors.history.finish(), selectors.metrics.finish());
        let survey = Arc::new(Survey { began, took: began.elapsed(), history, metrics });
        self.warn_once(&survey, &node.limits);
        *last = Some(Arc::clone(&survey));
        survey
    }

    /// Warns once if resources are left out, which is easy to overlook.
    fn warn_once(&self, survey: &Survey, limits: &Limits) {
        let left_out = |most: usize, selection: &Selection| if most == 0 { 0 } else { selection.rest.resources };
        let metrics = left_out(limits.metrics_resources, &survey.metrics);
        let history = left_out(limits.history_resources, &survey.history);
        if metrics + history > 0 && !self.has_warned.swap(true, Relaxed) {
            tracing::warn!(
                without_series = metrics,
                without_history = history,
                "too many resources: only those under the most pressure have metric series and a history; \
                 to cover all, raise --metrics-resources and --history-resources"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(id: &str, over: f64, contended: f64, wants: f64) -> Candidate {
        let sample = Sample { at: SystemTime::UNIX_EPOCH, capacity: 1.0, wants, granted: 1.0, held: 1.0 };
        let totals = Totals { resources: 1, over_capacity: usize::from(over > 0.0), ..Totals::default() };
        Candidate { id: id.into(), pressure: Pressure { over, contended, wants }, was_chosen: false, sample, totals }
    }

    fn pass(selector: &mut Selector, all: impl IntoIterator<Item = Candidate>) -> (Vec<String>, Totals) {
        selector.begin(SAMPLE_EVERY);
        all.into_iter().for_each(|one| selector.examine(one));
        assert!(selector.candidates.len() < 2 * selector.most.max(1), "memory is bounded");
        let Selection { samples, rest } = selector.finish();
        (samples.into_iter().map(|(id, _)| id.to_string()).collect(), rest)
    }

    #[test]
    fn resources_are_chosen_by_excess_then_contention_then_wants() {
        let quiet = (0..1000).map(|number| candidate(&format!("a{number:04}"), 0.0, 0.5, f64::from(number)));
        let hot = [candidate("over", 1.1, 0.1, 0.0), candidate("wanted", 0.0, 7.0, 1.0)];
        let (chosen, rest) = pass(&mut Selector::new(3), quiet.chain(hot));
        assert_eq!(chosen, ["a0999", "over", "wanted"]);
        assert_eq!((rest.resources, rest.over_capacity), (999, 0));
        let (none, rest) = pass(&mut Selector::new(0), [candidate("over", 1.1, 0.1, 0.0)]);
        assert_eq!((none.len(), rest.resources, rest.over_capacity), (0, 1, 1), "totals include them");
    }

    #[test]
    fn a_chosen_resource_is_replaced_by_clearly_higher_pressure_or_after_minutes_of_idleness() {
        let mut selector = Selector::new(1);
        let two = |a: f64, b: f64| [candidate("a", 0.0, a, 0.0), candidate("b", 0.0, b, 0.0)];
        assert_eq!(pass(&mut selector, two(2.0, 1.9)).0, ["a"]);
        for number in 0..100 {
            let (a, b) = if number % 2 == 0 { (1.8, 2.1) } else { (2.1, 1.8) };
            assert_eq!(pass(&mut selector, two(a, b)).0, ["a"], "pass {number}: the margin prevents flapping");
        }
        assert_eq!(pass(&mut selector, two(2.1, 4.0)).0, ["b"], "twice as contended");
        let idle = (0..).position(|_| pass(&mut selector, two(2.0, 0.0)).0 == ["a"]).expect("it ends");
        assert!((5..50).contains(&idle), "a peak decays in about a minute: {idle} passes");
    }

    #[test]
    fn a_resource_over_its_capacity_is_chosen_in_the_next_pass() {
        let mut selector = Selector::new(1);
        assert_eq!(pass(&mut selector, [candidate("a", 0.0, f64::MAX, 1e9), candidate("b", 0.0, 0.0, 0.0)]).0, ["a"]);
        let now = [candidate("a", 0.0, f64::MAX, 1e9), candidate("b", 1.000_001, 1.0, 0.0)];
        assert_eq!(pass(&mut selector, now).0, ["b"]);
    }
}
