//! The results of all attacks.

use serde::Serialize;

use crate::{
    common::{
        error::Error,
        output::{self, Machine, Spread},
        word,
    },
    hostile::{attack::Attack, attacker::SentCount, target::NewcomerCount},
    load::measurement::Measurement,
};

#[derive(Serialize)]
pub(crate) struct HostileReport {
    /// The command line.
    pub(crate) arguments: Vec<String>,
    pub(crate) machine: Machine,
    pub(crate) tls: bool,
    pub(crate) attacks: Vec<AttackResult>,
}

/// An undisturbed run, and the run under attack after it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct AttackPair {
    pub(crate) undisturbed: Measurement,
    pub(crate) attacked: Measurement,
    /// The traffic of the attacker in `sent_in_s` seconds.
    pub(crate) sent: SentCount,
    pub(crate) sent_in_s: f64,
    pub(crate) attacker_cores: Option<f64>,
    pub(crate) newcomers: NewcomerCount,
}

/// All runs of one attack.
#[derive(Serialize)]
pub(crate) struct AttackResult {
    pub(crate) attack: Attack,
    pub(crate) pairs: Vec<AttackPair>,
    /// Resident memory before the first attack, at its peak, and after the last.
    pub(crate) memory_before_mib: f64,
    pub(crate) memory_peak_mib: f64,
    pub(crate) memory_after_mib: f64,
    /// The maximum growth of memory.
    pub(crate) budget_mib: u64,
    /// The maximum number of file descriptors of the server.
    pub(crate) descriptors: usize,
}

const HEAD: [&str; 13] = [
    "attack",
    "acts/s",
    "connections",
    "MiB sent",
    "cores: attacker",
    "server",
    "before",
    "MiB more",
    "descriptors",
    "calls refused",
    "connections ended",
    "p99 ms before; attacked; ratio",
    "failed; slowest newcomer ms",
];

const WORDS: &str = "\
Figures are medians of the runs, ratios of the p99 also (lowest..highest); counts are sums over all runs. acts: frames,
calls and connections; long messages count once for each 16 KiB, long calls once for each 20 entries. cores: CPU seconds
per second; before: those of the server without the attack. MiB more: maximum growth of the server's resident memory, of
the budget. calls refused, connections ended: those of the attacker. failed: of all well-behaved requests and newcomers.";

impl HostileReport {
    pub(crate) fn text(&self) -> String {
        let rows: Vec<_> = self.attacks.iter().map(AttackResult::row).collect();
        let tls = if self.tls { "over TLS" } else { "in the clear" };
        let table = output::render(&HEAD, 1, &rows);
        let harm: Vec<_> = self.attacks.iter().flat_map(AttackResult::harm).collect();
        let harm = if harm.is_empty() {
            "No request failed, and no memory budget was exceeded.".into()
        } else {
            harm.join("\n")
        };
        format!("{table}\n\n{WORDS}\n{}; {tls}.\n\n{harm}", self.machine.text())
    }

    /// Fails if an attack did harm.
    pub(crate) fn verdict(&self) -> Result<(), Error> {
        match self.attacks.iter().filter(|attack| !attack.harm().is_empty()).count() {
            0 => Ok(()),
            attacks => Err(Error::Harmed { attacks }),
        }
    }
}

impl AttackResult {
    fn row(&self) -> Vec<String> {
        let of = |value: &dyn Fn(&AttackPair) -> f64| Spread::of(self.pairs.iter().map(value));
        let median = |value: &dyn Fn(&AttackPair) -> f64, digits| {
            let median = of(value).map(|spread| spread.median).filter(|median| median.is_finite());
            median.map_or("-".into(), |median| format!("{median:.digits$}"))
        };
        let sum = |value: &dyn Fn(&AttackPair) -> u64| self.pairs.iter().map(value).sum::<u64>();
        let server = |measured: &Measurement| measured.server.map_or(f64::NAN, |server| server.cores);
        let newcomers = self.newcomers();
        vec![
            word(&self.attack),
            median(&|pair| pair.sent.acts as f64 / pair.sent_in_s, 0),
            sum(&|pair| pair.sent.connections).to_string(),
            format!("{:.1}", sum(&|pair| pair.sent.bytes) as f64 / f64::from(1 << 20)),
            median(&|pair| pair.attacker_cores.unwrap_or(f64::NAN), 2),
            median(&|pair| server(&pair.attacked), 2),
            median(&|pair| server(&pair.undisturbed), 2),
            format!("{:.0} of {}", self.grown_mib(), self.budget_mib),
            self.descriptors.to_string(),
            sum(&|pair| pair.sent.refused).to_string(),
            sum(&|pair| pair.sent.ended).to_string(),
            format!(
                "{}; {}; {}",
                median(&|pair| pair.undisturbed.latency_ms.p99, 2),
                median(&|pair| pair.attacked.latency_ms.p99, 2),
                Spread::show(of(&|pair| pair.attacked.latency_ms.p99 / pair.undisturbed.latency_ms.p99), 2),
            ),
            format!("{} of {}; {:.0}", self.failed(), self.asked(), newcomers.slowest_ms),
        ]
    }

    fn grown_mib(&self) -> f64 {
        (self.memory_peak_mib - self.memory_before_mib).max(0.0)
    }

    fn newcomers(&self) -> NewcomerCount {
        self.pairs.iter().map(|pair| pair.newcomers.clone()).fold(NewcomerCount::default(), NewcomerCount::and)
    }

    fn asked(&self) -> u64 {
        self.pairs.iter().map(|pair| pair.attacked.requests).sum::<u64>() + self.newcomers().came
    }

    fn failed(&self) -> u64 {
        let of = |pair: &AttackPair| pair.attacked.counts.error_count() + pair.attacked.counts.ignored;
        self.pairs.iter().map(of).sum::<u64>() + self.newcomers().failed
    }

    /// Describes the harm, if any.
    fn harm(&self) -> Vec<String> {
        let mut harm = Vec::new();
        let name = word(&self.attack);
        for pair in self.pairs.iter().filter(|pair| !pair.attacked.counts.errors.is_empty()) {
            harm.push(format!("{name}: well-behaved requests failed: {}", pair.attacked.counts.errors_text()));
        }
        match self.pairs.iter().map(|pair| pair.attacked.counts.ignored).sum() {
            0 => {}
            left_out => harm.push(format!("{name}: {left_out} entries of well-behaved requests were left out")),
        }
        let newcomers = self.newcomers();
        if let Some(why) = newcomers.why {
            harm.push(format!("{name}: {} of {} newcomers failed: {why}", newcomers.failed, newcomers.came));
        }
        if self.grown_mib() > self.budget_mib as f64 {
            let (grown, budget) = (self.grown_mib(), self.budget_mib);
            harm.push(format!("{name}: the server's memory grew by {grown:.0} MiB, more than {budget}"));
        }
        harm
    }
}
