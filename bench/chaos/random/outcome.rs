//! What runs have shown: as text, as JSON, and as a page with the course of each.

use std::{collections::BTreeMap, fmt, ops::Range};

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde::{Deserialize, Serialize};

use super::{layout::ClusterShape, masters::TwoMasters, packets::PacketCounts, schedule::Mishap, striker::Struck};
use crate::{
    audit::Audit,
    book::BookLine,
    chart::{self, Chart, WIDTH, at},
    spread::Spread,
    table,
};

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct TrialReport {
    pub(super) shape: ClusterShape,
    pub(super) seed: u64,
    pub(super) command: String,
    pub(super) seconds: f64,
    /// How long it took after the last mishap until all was well.
    pub(super) well_again_ms: f64,
    pub(super) happenings: Vec<Happening>,
    pub(super) course: Course,
    /// How many resources the books are about, and what those of the one say that all clients share.
    pub(super) resources: usize,
    pub(super) audit: Audit,
    /// How many calls of operators were answered.
    pub(super) calls: usize,
    /// How many assignments Envoys have taken.
    #[serde(default)]
    pub(super) assignments: usize,
    /// How many requests that a gateway was asked for passed, and how many did not.
    #[serde(default)]
    pub(super) passed: usize,
    #[serde(default)]
    pub(super) denied: usize,
    /// What the kernel counted, in a namespace.
    pub(super) packets: Option<PacketCounts>,
    /// How many answers of masters of nodes with several peers there were that name their reign, and which of them show
    /// two masters at once.
    #[serde(default)]
    pub(super) claims: usize,
    #[serde(default)]
    pub(super) two_masters: Vec<TwoMasters>,
    /// Of how many resources more could be used than there is.
    pub(super) over: usize,
    /// What must never happen, and has.
    pub(super) violations: Vec<String>,
}

/// A mishap that took place, or did not.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Happening {
    pub(super) number: usize,
    pub(super) mishap: Mishap,
    /// Whom it hit; none: it did not take place, and `note` says why.
    pub(super) whom: Option<String>,
    pub(super) began_ms: u64,
    pub(super) ended_ms: u64,
    pub(super) note: String,
}

impl Happening {
    pub(super) fn of(struck: &Struck) -> Happening {
        let Struck { strike, whom, began_ms, ended_ms, note } = struck;
        let (number, mishap) = (strike.number, strike.mishap);
        Happening { number, mishap, whom: whom.clone(), began_ms: *began_ms, ended_ms: *ended_ms, note: note.clone() }
    }
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Happening { number, mishap, whom, began_ms, ended_ms, note } = self;
        let seconds = |ms: u64| ms as f64 / 1000.0;
        let whom = whom.as_deref().unwrap_or("did not take place");
        write!(f, "#{number} {:.1} s to {:.1} s: {}, {whom}", seconds(*began_ms), seconds(*ended_ms), mishap.name())?;
        if note.is_empty() { Ok(()) } else { write!(f, ", {note}") }
    }
}

/// How many pairs of masters decided at once, and for how long at most.
fn in_words<'a>(two_masters: impl IntoIterator<Item = &'a TwoMasters>) -> String {
    let all: Vec<_> = two_masters.into_iter().collect();
    let longest = all.iter().map(|both| both.lasted_us).max().unwrap_or(0) as f64 / 1e6;
    let claims: usize = all.iter().map(|both| both.claims).sum();
    match all.len() {
        0 => "never two masters at once".to_owned(),
        times => format!("TWO MASTERS AT ONCE {times} times, {longest:.3} s at most, by {claims} answers"),
    }
}

/// What clients together believed in and what there was, in this many steps of equal length: the most in each.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct Course {
    believed: Vec<f64>,
    allowed: Vec<f64>,
}

const STEPS: usize = 300;

impl Course {
    pub(super) fn of(lines: &[BookLine], resource: &str, limits: &[(u64, f64)], span: Range<u64>) -> Course {
        let mut lines: Vec<_> = lines.iter().filter(|line| line.resource == resource).collect();
        lines.sort_by_key(|line| line.at_us);
        let length = (span.end - span.start).max(1);
        let step = |at: u64| {
            ((at.clamp(span.start, span.end - 1) - span.start) as u128 * STEPS as u128 / u128::from(length)) as usize
        };
        let mut course = Course { believed: vec![0.0; STEPS], allowed: vec![0.0; STEPS] };
        let (mut now, mut sum, mut filled) = (BTreeMap::new(), 0.0_f64, 0);
        for moment in lines.chunk_by(|one, other| one.at_us == other.at_us) {
            let place = step(moment[0].at_us);
            // What was believed before goes on up to this step.
            course.believed[filled..=place].iter_mut().for_each(|most| *most = most.max(sum));
            moment.iter().for_each(|line| {
                now.insert(&line.client, line.capacity);
            });
            sum = now.values().sum();
            course.believed[place] = course.believed[place].max(sum);
            filled = place;
        }
        for (place, allowed) in course.allowed.iter_mut().enumerate() {
            let at = span.start + length * place as u64 / STEPS as u64;
            *allowed = limits.iter().rev().find(|(from, _)| *from <= at).map_or(0.0, |limit| limit.1);
        }
        course
    }
}

/// What `--json` writes.
#[derive(Serialize, Deserialize)]
pub(super) struct RandomReport {
    pub(super) arguments: Vec<String>,
    pub(super) runs: Vec<TrialReport>,
}

impl RandomReport {
    pub(super) fn broken(&self) -> usize {
        self.runs.iter().filter(|run| !run.violations.is_empty()).count()
    }

    pub(super) fn text(&self) -> String {
        let mut rows: Vec<Vec<String>> = Vec::new();
        for (mishap, of) in self.by_mishap() {
            let took_place = of.iter().filter(|one| one.whom.is_some()).count();
            rows.push(vec![mishap.name(), took_place.to_string(), (of.len() - took_place).to_string()]);
        }
        let all = |which: usize| rows.iter().filter_map(|row| row[which].parse::<u64>().ok()).sum::<u64>().to_string();
        rows.push(vec!["in all".into(), all(1), all(2)]);
        let table = table::render(&["mishap", "took place", "was in the way of another"], 1, &rows);
        let (runs, broken) = (self.runs.len(), self.broken());
        let seconds: f64 = self.runs.iter().map(|run| run.seconds).sum();
        let entries: usize = self.runs.iter().map(|run| run.audit.entries()).sum();
        let calls: usize = self.runs.iter().map(|run| run.calls).sum();
        let assignments: usize = self.runs.iter().map(|run| run.assignments).sum();
        let passed: usize = self.runs.iter().map(|run| run.passed).sum();
        let denied: usize = self.runs.iter().map(|run| run.denied).sum();
        let well: Vec<f64> = self.runs.iter().map(|run| run.well_again_ms / 1000.0).collect();
        let verdict = match broken {
            0 => "never more than there is, and all was well again each time".to_owned(),
            broken => format!("{broken} OF THEM BROKE A PROMISE"),
        };
        let claims: usize = self.runs.iter().map(|run| run.claims).sum();
        let two_masters = in_words(self.runs.iter().flat_map(|run| &run.two_masters));
        let packets = self.runs.iter().filter_map(|run| run.packets).reduce(|one, other| one.and(other));
        let packets = packets.map_or_else(String::new, |packets| format!("\n{packets}"));
        format!(
            "{table}\n\n{runs} runs, {seconds:.0} s: {verdict}.\nBooks of the resource that all share: {entries} \
             entries; Envoys took {assignments} assignments; of the requests that they asked for {passed} passed and \
             {denied} did not; {calls} calls of operators were answered. Masters said {claims} times that they are: \
             {two_masters}. Well again after, in seconds: {}.{packets}",
            Spread::show(Spread::of(well), 1)
        )
    }

    fn by_mishap(&self) -> BTreeMap<Mishap, Vec<&Happening>> {
        let mut by_mishap: BTreeMap<Mishap, Vec<&Happening>> = BTreeMap::new();
        for happening in self.runs.iter().flat_map(|run| &run.happenings) {
            by_mishap.entry(happening.mishap).or_default().push(happening);
        }
        by_mishap
    }

    /// A page with the course of each run.
    pub(super) fn html(&self) -> String {
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    title { "leaseway-bench chaos random" }
                    style { (PreEscaped(chart::STYLE)) (PreEscaped(PAGE)) }
                }
                body {
                    h1 { "What went wrong, and what clients believed" }
                    pre { (self.text()) }
                    @for run in &self.runs { (run.section()) }
                }
            }
        };
        page.into_string() + "\n"
    }
}

const PAGE: &str = "body { margin: 24px auto; max-width: 1100px; padding: 0 16px; background: var(--paper); color: var(--ink); \
font: 15px/1.5 system-ui, sans-serif; } figure { margin: 0 0 12px; } figcaption span { color: var(--soft); display: block; } \
pre { overflow-x: auto; background: var(--card); padding: 10px 14px; } .bad { color: var(--s1); }
svg .over { fill: var(--s1); opacity: .9; } svg .limit { fill: none; stroke: var(--ink); stroke-dasharray: 4 3; } ";

impl TrialReport {
    /// Whether a rule that was left out has shown: in the books, or in two masters at once.
    pub(super) fn shows_fault(&self) -> bool {
        self.over > 0 || !self.two_masters.is_empty()
    }

    /// For how long at least two masters decided at once, and how many claims prove that.
    pub(super) fn two_masters_in_words(&self) -> String {
        in_words(&self.two_masters)
    }

    /// What a failure says, with what was done.
    pub(super) fn complaint(&self) -> String {
        let done = self.happenings.iter().map(|one| format!("  {one}\n")).collect::<String>();
        let violations = self.violations.join("\n  ");
        format!("seed {}: {violations}\nwhat was done:\n{done}to repeat it:\n  {}", self.seed, self.command)
    }

    fn section(&self) -> Markup {
        html! {
            h2 { "Seed " (self.seed) }
            @for violation in &self.violations { p.bad { (violation) } }
            (self.chart().figure())
            pre { (self.command) }
        }
    }

    /// Above what clients believed, below what went wrong meanwhile: each kind has a row.
    fn chart(&self) -> Chart {
        const LEFT: f64 = 100.0;
        const TOP: f64 = 140.0;
        const ROW: f64 = 14.0;
        let mut kinds: Vec<Mishap> = self.happenings.iter().map(|one| one.mishap).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let x = |ms: u64| LEFT + (WIDTH - LEFT) * (ms as f64 / 1000.0 / self.seconds.max(0.001)).min(1.0);
        let most = self.course.believed.iter().chain(&self.course.allowed).copied().fold(1.0, f64::max);
        let y = |value: f64| TOP - 10.0 - (TOP - 20.0) * value / most;
        let across = |place: usize| LEFT + (WIDTH - LEFT) * place as f64 / STEPS as f64;
        let line = |values: &[f64]| {
            let points = values.iter().enumerate();
            points.map(|(place, value)| format!("{},{} ", at(across(place)), at(y(*value)))).collect::<String>()
        };
        let row = |mishap: Mishap| TOP + ROW * kinds.iter().position(|kind| *kind == mishap).unwrap_or(0) as f64;
        let height = TOP + ROW * (kinds.len() + 2) as f64;
        let body = html! {
            text.soft.end x=(LEFT - 6.0) y=(at(y(most) + 4.0)) { (format!("{most:.0}")) }
            text.soft.end x=(LEFT - 6.0) y=(at(y(0.0) + 4.0)) { "0" }
            polyline.line.k0 points=(line(&self.course.believed)) {}
            polyline.limit points=(line(&self.course.allowed)) {}
            @for mishap in &kinds {
                text.soft.end x=(LEFT - 6.0) y=(at(row(*mishap) + 10.0)) { (mishap.name()) }
            }
            @for one in self.happenings.iter().filter(|one| one.whom.is_some()) {
                rect.bar.{ "f" (one.mishap as usize % chart::SERIES) } x=(at(x(one.began_ms))) y=(at(row(one.mishap) + 2.0))
                    width=(at((x(one.ended_ms) - x(one.began_ms)).max(2.0))) height=(ROW - 4.0) {
                    title { "#" (one.number) " " (one.mishap.name()) ", " (one.whom.as_deref().unwrap_or_default()) " " (one.note) }
                }
            }
            text.soft x=(LEFT) y=(at(height - 4.0)) { "0 s" }
            text.soft.end x=(WIDTH) y=(at(height - 4.0)) { (format!("{:.0} s", self.seconds)) }
        };
        let note = "The line: what clients together believed in. Dashed: how much that may be.";
        Chart { title: format!("{:?}, seed {}", self.shape, self.seed), note: note.to_owned(), height, body }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(at_us: u64, client: &str, capacity: f64) -> BookLine {
        BookLine { at_us, client: client.into(), resource: "r".into(), capacity }
    }

    fn run(seed: u64, violations: &[&str]) -> TrialReport {
        let happening = |mishap, whom: Option<&str>| Happening {
            number: 0,
            mishap,
            whom: whom.map(str::to_owned),
            began_ms: 100,
            ended_ms: 700,
            note: "a note".into(),
        };
        TrialReport {
            shape: ClusterShape::Three,
            seed,
            command: "leaseway-bench chaos random --seed 7".into(),
            seconds: 10.0,
            well_again_ms: 500.0,
            happenings: vec![happening(Mishap::Kill, Some("a of node 0")), happening(Mishap::Wipe, None)],
            course: Course::default(),
            resources: 1,
            audit: Audit::default(),
            calls: 1,
            assignments: 1,
            passed: 1,
            denied: 1,
            packets: None,
            claims: 1,
            two_masters: Vec::new(),
            over: 0,
            violations: violations.iter().map(|&violation| violation.to_owned()).collect(),
        }
    }

    #[test]
    fn a_broken_promise_is_shouted_about_and_told_with_what_repeats_it() {
        let report = RandomReport { arguments: Vec::new(), runs: vec![run(6, &[]), run(7, &["too much"])] };
        assert_eq!(report.broken(), 1);
        assert!(report.text().contains("2 runs, 20 s: 1 OF THEM BROKE A PROMISE"), "{}", report.text());
        let complaint = report.runs[1].complaint();
        assert!(complaint.starts_with("seed 7: too much\nwhat was done:\n"), "{complaint}");
        assert!(complaint.ends_with("\nto repeat it:\n  leaseway-bench chaos random --seed 7"), "{complaint}");
        let row = |name: &str| {
            let text = report.text();
            let line = text.lines().find(|line| line.contains(name)).unwrap().to_owned();
            line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(
            (&row("kill")[2..4], &row("wipe")[2..4]),
            (&["2", "0"].map(String::from)[..], &["0", "2"].map(String::from)[..])
        );
        let html = report.html();
        assert!(html.matches("<svg").count() == 2 && html.matches("a note").count() == 2, "{html}");
    }

    #[test]
    fn the_course_shows_the_most_of_each_step() {
        let lines = [line(0, "a", 10.0), line(150, "b", 5.0), line(151, "b", 0.0), line(200, "a", 4.0)];
        let course = Course::of(&lines, "r", &[(0, 20.0), (150, 30.0)], 0..300);
        assert_eq!(course.believed[..1], [10.0]);
        assert_eq!((course.believed[149], course.believed[150], course.believed[152]), (10.0, 15.0, 10.0));
        assert_eq!((course.allowed[149], course.allowed[150]), (20.0, 30.0));
        assert_eq!(course.believed[200], 10.0, "the most of the step in which it falls");
    }
}
