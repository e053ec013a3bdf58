//! The report of all runs, as text and as JSON.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::{
    chaos::{
        accounting::Accounting,
        faults::{FaultOutcome, packets::PacketCounts},
        layout::ClusterShape,
        masters::TwoMasters,
        schedule::Fault,
    },
    common::output::{self, Spread},
};

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct TrialReport {
    pub(crate) shape: ClusterShape,
    pub(crate) seed: u64,
    /// The command that repeats the run.
    pub(crate) command: String,
    pub(crate) seconds: f64,
    /// The time from the last fault until masters, peers and clients had recovered.
    pub(crate) recovery_ms: f64,
    pub(crate) faults: Vec<FaultRecord>,
    /// The number of resources that were audited.
    pub(crate) resources: usize,
    /// The audit of the resource that all clients share.
    pub(crate) shared: Accounting,
    /// The number of operators' calls that were answered.
    pub(crate) calls: usize,
    /// The number of assignments that Envoys received (RLQS).
    pub(crate) assignments: usize,
    /// The number of requests that the gateway allowed and denied (RLS).
    pub(crate) passed: usize,
    pub(crate) denied: usize,
    /// What was used of budgets.
    pub(crate) spent: f64,
    /// The part of it that driven clients have used.
    pub(crate) spent_by_driven: u64,
    /// Counters of the kernel, if the run was in a namespace.
    pub(crate) packets: Option<PacketCounts>,
    /// The number of claims to be master that name a term.
    pub(crate) claims: usize,
    /// The times between two masters of one node.
    pub(crate) without_master_ms: Vec<f64>,
    pub(crate) two_masters: Vec<TwoMasters>,
    /// The number of resources whose capacity or limit was exceeded.
    pub(crate) over: usize,
    /// The violated checks.
    pub(crate) violations: Vec<String>,
}

#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct FaultRecord {
    pub(crate) number: usize,
    pub(crate) kind: Fault,
    /// The peer that it hit, or `clients`. `None` if it was skipped; then `note` has the reason.
    pub(crate) whom: Option<String>,
    pub(crate) began_ms: u64,
    pub(crate) ended_ms: u64,
    pub(crate) note: String,
}

impl FaultRecord {
    pub(crate) fn of(outcome: &FaultOutcome) -> FaultRecord {
        let FaultOutcome { fault, whom, began_ms, ended_ms, note } = outcome;
        let (number, kind) = (fault.number, fault.kind);
        FaultRecord { number, kind, whom: whom.clone(), began_ms: *began_ms, ended_ms: *ended_ms, note: note.clone() }
    }
}

impl fmt::Display for FaultRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FaultRecord { number, kind, whom, began_ms, ended_ms, note } = self;
        let seconds = |ms: u64| ms as f64 / 1000.0;
        let whom = whom.as_deref().unwrap_or("skipped");
        write!(f, "#{number} {:.1} s to {:.1} s: {}, {whom}", seconds(*began_ms), seconds(*ended_ms), kind.name())?;
        if note.is_empty() { Ok(()) } else { write!(f, ", {note}") }
    }
}

/// The output of `--json`.
#[derive(Serialize, Deserialize)]
pub(crate) struct ChaosReport {
    pub(crate) arguments: Vec<String>,
    pub(crate) runs: Vec<TrialReport>,
}

impl ChaosReport {
    /// The number of runs with violated checks.
    pub(crate) fn broken(&self) -> usize {
        self.runs.iter().filter(|run| !run.violations.is_empty()).count()
    }

    pub(crate) fn text(&self) -> String {
        let sum = |of: fn(&TrialReport) -> usize| self.runs.iter().map(of).sum::<usize>();
        let seconds: f64 = self.runs.iter().map(|run| run.seconds).sum();
        let verdict = match self.broken() {
            0 => "no promise was broken, and every run recovered".to_owned(),
            broken => format!("{broken} OF THEM BROKE A PROMISE"),
        };
        let recovery = Spread::of(self.runs.iter().map(|run| run.recovery_ms / 1000.0));
        let gaps: Vec<_> = self.runs.iter().flat_map(|run| &run.without_master_ms).map(|ms| ms / 1000.0).collect();
        let mut lines = vec![
            format!("{} runs, {seconds:.0} s: {verdict}.", self.runs.len()),
            format!("- recovery after the last fault, in seconds: {}", Spread::show(recovery, 1)),
            format!("- changes of master: {}; seconds without one: {}", gaps.len(), Spread::show(Spread::of(gaps), 2)),
            format!(
                "- two masters at the same time: {}, according to {} answers",
                two_masters_text(self.runs.iter().flat_map(|run| &run.two_masters)),
                sum(|run| run.claims)
            ),
            format!("- records of the resource that all clients share: {}", sum(|run| run.shared.entries)),
            format!(
                "- Envoys: {} assignments; {} requests passed, {} were denied",
                sum(|run| run.assignments),
                sum(|run| run.passed),
                sum(|run| run.denied)
            ),
            format!(
                "- amounts of budgets used: {:.0}, {} of it by driven clients",
                self.runs.iter().map(|run| run.spent).sum::<f64>(),
                self.runs.iter().map(|run| run.spent_by_driven).sum::<u64>()
            ),
            format!("- calls of operators: {}", sum(|run| run.calls)),
        ];
        let packets = self.runs.iter().filter_map(|run| run.packets).reduce(|one, other| one.and(other));
        lines.extend(packets.map(|packets| format!("- packets: {packets}")));
        format!("{}\n\n{}", self.table(), lines.join("\n"))
    }

    /// A table with the number of faults of each kind.
    fn table(&self) -> String {
        let mut by_kind: BTreeMap<Fault, [usize; 2]> = BTreeMap::new();
        for fault in self.runs.iter().flat_map(|run| &run.faults) {
            by_kind.entry(fault.kind).or_default()[usize::from(fault.whom.is_none())] += 1;
        }
        let row = |name: String, [injected, skipped]: [usize; 2]| [name, injected.to_string(), skipped.to_string()];
        let all = by_kind.values().fold([0, 0], |all, of| [all[0] + of[0], all[1] + of[1]]);
        let mut rows: Vec<_> = by_kind.iter().map(|(kind, counts)| row(kind.name(), *counts)).collect();
        rows.push(row("total".into(), all));
        output::render(&["fault", "injected", "skipped"], 1, &rows)
    }
}

/// The number of times that two masters decided at the same time, and the longest such time.
fn two_masters_text<'a>(two_masters: impl IntoIterator<Item = &'a TwoMasters>) -> String {
    let all: Vec<_> = two_masters.into_iter().collect();
    let longest = all.iter().map(|both| both.lasted_us).max().unwrap_or(0) as f64 / 1e6;
    let claims: usize = all.iter().map(|both| both.claims).sum();
    match all.len() {
        0 => "never".to_owned(),
        times => format!("{times} TIMES, for up to {longest:.3} s, proven by {claims} answers"),
    }
}

impl TrialReport {
    /// Whether the run reveals a planted fault: the audit failed, or two peers were masters at the same time.
    pub(crate) fn shows_planted_rule(&self) -> bool {
        self.over > 0 || !self.two_masters.is_empty()
    }

    pub(crate) fn two_masters_text(&self) -> String {
        two_masters_text(&self.two_masters)
    }

    /// A description of a failed run: the violated checks, the injected faults, and the command that repeats it.
    pub(crate) fn complaint(&self) -> String {
        let faults = self.faults.iter().map(|fault| format!("  {fault}\n")).collect::<String>();
        let violations = self.violations.join("\n  ");
        format!("seed {}: {violations}\nfaults:\n{faults}to repeat it:\n  {}", self.seed, self.command)
    }
}
