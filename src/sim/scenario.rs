//! What is simulated: a file that says how a resource is run, which node leases it from which, what clients want and
//! what goes wrong.
//!
//! Those that come with the simulator are such files, too.

mod draw;
pub(crate) mod fault;
pub mod plan;
pub(crate) mod tree;
pub mod units;

use std::{collections::BTreeMap, fmt};

use leaseway_core::{Amount, NamedParameter, SafeCapacity, Settings};
use serde::Deserialize;

use crate::{
    client::usage::UsageSpec,
    network::Network,
    scenario::units::{Algorithm, Between, Part, Span},
};

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// In a line, for choosing one.
    pub about: String,
    pub length: Span,
    /// Before that nothing is measured.
    #[serde(default)]
    pub(crate) measure_from: Span,
    /// The last so long nothing goes wrong any more and no client's wants change: all should end up with what they are
    /// due. (In a pool that goes on changing, so none is judged.)
    #[serde(default)]
    pub(crate) quiet: Option<Span>,
    /// How the root runs the one resource that there is.
    pub resource: ResourceSpec,
    pub(crate) nodes: Vec<NodeSpec>,
    /// Between clients and nodes.
    #[serde(default)]
    pub network: Network,
    /// What a new master knows.
    #[serde(default)]
    pub handover: Handover,
    /// Nothing goes wrong that should cost a client all that it has: after `measure_from` none that wants something may
    /// lose it all.
    #[serde(default)]
    pub(crate) no_total_loss: bool,
    /// How long the peers of a node take to remember a promise.
    #[serde(default = "commit")]
    pub(crate) commit: Span,
    /// Whether holders are told to ask when it matters, and child nodes ask early.
    #[serde(default = "yes")]
    pub push: bool,
    /// Whether child nodes tell their parents of similar wants apart. Without: one sum for each priority.
    #[serde(default = "yes")]
    pub slices: bool,
    /// Whether parents tell child nodes what they divided by. Without: they divide what they have by themselves.
    #[serde(default = "yes")]
    pub terms: bool,
    /// Each seed draws a scenario of its own: see `draw.rs`.
    #[serde(default)]
    pub(crate) draws: bool,
    #[serde(default)]
    pub(crate) events: Vec<TimedFault>,
    /// What happens by chance.
    #[serde(default)]
    pub(crate) random_faults: Vec<RandomFaults>,
}

/// How the resource is run at the root.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResourceSpec {
    /// What there is at the root.
    pub capacity: f64,
    /// How it is divided.
    pub algorithm: Algorithm,
    /// As in a server's configuration.
    #[serde(default)]
    pub(crate) parameters: BTreeMap<String, Word>,
    pub(crate) lease: Span,
    /// For what asks the root. What a child node tells its own clients comes from its parent, as with servers:
    /// `decay_factor` of the parent's.
    pub(crate) refresh: Span,
    /// −1: no limit. Absent: the capacity divided by the clients.
    #[serde(default)]
    pub(crate) safe_capacity: Option<f64>,
    /// How long a master without promises listens. Absent: until every older lease has ended.
    #[serde(default)]
    pub(crate) learning: Option<Span>,
}

impl ResourceSpec {
    /// Gives a parameter another value than the file does. [`Plan::new`](crate::scenario::plan::Plan::new) says whether it may have it.
    pub fn set(&mut self, parameter: &str, value: &str) {
        self.parameters.insert(parameter.to_owned(), Word(value.to_owned()));
    }
}

/// What a new master knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Handover {
    /// What the one before it promised.
    #[default]
    Promises,
    /// Nothing: it listens first.
    Learning,
}

impl fmt::Display for Handover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Handover::Promises => "promises",
            Handover::Learning => "learning",
        })
    }
}

/// A node of the tree, or several alike.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeSpec {
    pub(crate) name: String,
    /// A node above it in the file. If there are several of that name, each has `times` of these. Only the first has
    /// none.
    #[serde(default)]
    pub(crate) parent: Option<String>,
    #[serde(default = "one")]
    pub(crate) times: u32,
    /// Its processes: one of them is master.
    #[serde(default = "three")]
    pub(crate) peers: u8,
    /// What a new master knows here, if that is not as everywhere.
    #[serde(default)]
    pub(crate) handover: Option<Handover>,
    /// Whether it tells its parent which node it is, and which of its masters. Nodes of older versions do not.
    #[serde(default = "yes")]
    pub(crate) sends_instance: bool,
    #[serde(default)]
    pub(crate) clients: Vec<ClientSpec>,
}

/// How well a holder knows the lease protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ClientKind {
    /// As our client does: with tokens, and late answers are dropped.
    #[default]
    Leaseway,
    Doorman,
    /// The original protocol, but what is not understood is echoed: tokens, too.
    Echoes,
    /// The original protocol, but it never says what it has.
    Silent,
    /// It is a child node of the original, which never says what it has. Nothing is below it here.
    DoormanNode,
    /// As our client does, but it reports that all there could be is outstanding.
    Liar,
    /// It is a gateway's for one Envoy, which may let through what the gateway told it.
    Envoy,
    /// As our client does, and what it has is what its limiter lets through of the callers that come; what it wants is
    /// estimated from those. `wants` is how many come per second.
    Limiter,
}

impl ClientKind {
    /// Whether it knows the protocol as our client does.
    pub(crate) fn is_ours(self) -> bool {
        matches!(self, ClientKind::Leaseway | ClientKind::Liar | ClientKind::Envoy | ClientKind::Limiter)
    }

    /// Whether its requests say which lease it has.
    pub(crate) fn says_what_it_has(self) -> bool {
        !matches!(self, ClientKind::DoormanNode | ClientKind::Silent)
    }
}

/// Clients of a node.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClientSpec {
    pub(crate) count: u32,
    #[serde(default)]
    pub(crate) speaks: ClientKind,
    /// What they claim; the parameter `priority` says what is made of it.
    #[serde(default)]
    pub(crate) priority: i16,
    pub(crate) wants: Wants,
    /// PRIORITY_POOL: what is assigned to each at its node. Absent: they are free clients.
    #[serde(default)]
    pub(crate) assigned: Option<f64>,
    /// PRIORITY_POOL: how much they use of what they have, and report. Absent: they do not say.
    #[serde(default)]
    pub(crate) uses: Option<UsageSpec>,
    /// `limiter`: what is not used is saved up for as long as that.
    #[serde(default = "second")]
    pub(crate) window: Span,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Wants {
    /// Always so much.
    Constant(f64),
    /// It goes up or down by up to `step`, `every` so often, from the very first moment on.
    Walk { start: f64, step: Part, every: Span },
    /// Something between these, drawn anew `every` so often.
    Drawn { least: f64, most: f64, every: Span },
    /// Many want little and few want very much: the smaller `alpha` the more so.
    Pareto { alpha: f64, least: f64 },
    /// The logarithm is spread by `sigma` around that of the median.
    Lognormal { median: f64, sigma: f64 },
}

/// Something that happens at a certain time.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TimedFault {
    pub(crate) at: Span,
    #[serde(rename = "do")]
    pub(crate) what: Fault,
}

/// From a time on, every so often, one of these happens.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RandomFaults {
    pub(crate) from: Span,
    pub(crate) every: Between,
    pub(crate) one_of: Vec<WeightedFault>,
}

/// One of them, and how likely it is compared with the others.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WeightedFault {
    pub(crate) weight: u32,
    #[serde(rename = "do")]
    pub(crate) what: Fault,
}

/// A value of a parameter: text, a number, or a word that YAML takes for something else.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "Scalar")]
pub(crate) struct Word(pub(crate) String);

#[derive(Deserialize)]
#[serde(untagged)]
enum Scalar {
    Flag(bool),
    Whole(i64),
    Number(f64),
    Text(String),
}

impl From<Scalar> for Word {
    fn from(scalar: Scalar) -> Word {
        Word(match scalar {
            Scalar::Flag(flag) => flag.to_string(),
            Scalar::Whole(number) => number.to_string(),
            Scalar::Number(number) => number.to_string(),
            Scalar::Text(text) => text,
        })
    }
}

const fn commit() -> Span {
    Span::millis(5)
}

const fn second() -> Span {
    Span::millis(1_000)
}

const fn yes() -> bool {
    true
}

const fn one() -> u32 {
    1
}

const fn three() -> u8 {
    3
}

/// Those that come with the simulator: their names, and the files.
pub const BUILT_IN: [(&str, &str); 33] = [
    ("one", include_str!("scenarios/one.yaml")),
    ("two", include_str!("scenarios/two.yaml")),
    ("three", include_str!("scenarios/three.yaml")),
    ("four", include_str!("scenarios/four.yaml")),
    ("five", include_str!("scenarios/five.yaml")),
    ("six", include_str!("scenarios/six.yaml")),
    ("seven", include_str!("scenarios/seven.yaml")),
    ("random", include_str!("scenarios/random.yaml")),
    ("random_mixed", include_str!("scenarios/random_mixed.yaml")),
    ("lease_cut", include_str!("scenarios/lease_cut.yaml")),
    ("cramped", include_str!("scenarios/cramped.yaml")),
    ("cramped_mixed", include_str!("scenarios/cramped_mixed.yaml")),
    ("cramped_plain", include_str!("scenarios/cramped_plain.yaml")),
    ("cramped_alike", include_str!("scenarios/cramped_alike.yaml")),
    ("cramped_tree", include_str!("scenarios/cramped_tree.yaml")),
    ("cramped_nodes", include_str!("scenarios/cramped_nodes.yaml")),
    ("cramped_middle", include_str!("scenarios/cramped_middle.yaml")),
    ("drawn", include_str!("scenarios/drawn.yaml")),
    ("random_overrides", include_str!("scenarios/random_overrides.yaml")),
    ("random_envoys", include_str!("scenarios/random_envoys.yaml")),
    ("random_limiters", include_str!("scenarios/random_limiters.yaml")),
    ("cramped_overrides", include_str!("scenarios/cramped_overrides.yaml")),
    ("cramped_envoys", include_str!("scenarios/cramped_envoys.yaml")),
    ("cramped_limiters", include_str!("scenarios/cramped_limiters.yaml")),
    ("ended", include_str!("scenarios/ended.yaml")),
    ("ended_tree", include_str!("scenarios/ended_tree.yaml")),
    ("handover", include_str!("scenarios/handover.yaml")),
    ("moving", include_str!("scenarios/moving.yaml")),
    ("newcomers", include_str!("scenarios/newcomers.yaml")),
    ("newcomers_enough", include_str!("scenarios/newcomers_enough.yaml")),
    ("lopsided", include_str!("scenarios/lopsided.yaml")),
    ("pool", include_str!("scenarios/pool.yaml")),
    ("pool_surge", include_str!("scenarios/pool_surge.yaml")),
];

/// The text of one that comes with the simulator.
pub fn built_in(name: &str) -> Option<&'static str> {
    BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// `FILE:LINE:COLUMN: what`, which editors jump to.
fn complaint(file: &str, error: &serde_saphyr::Error) -> String {
    let what = error.without_snippet().to_string();
    match error.location() {
        Some(at) => {
            let place = format!(" at line {}, column {}", at.line(), at.column());
            let what = what.replace(&place, "");
            format!("{file}:{}:{}: {what}", at.line(), at.column())
        }
        None => format!("{file}: {what}"),
    }
}

impl Scenario {
    /// Reads and checks it. Complaints name `file` and line.
    pub fn parse(file: &str, text: &str) -> Result<Scenario, String> {
        let scenario: Scenario = serde_saphyr::from_str(text).map_err(|error| complaint(file, &error))?;
        scenario.check().map_err(|what| format!("{file}: {what}"))?;
        Ok(scenario)
    }

    /// What no type can say.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.length.0.0 == 0 {
            return Err("`length` is 0s, expected some time".into());
        }
        if self.resource.refresh.0.0 == 0 || !self.resource.refresh.0.0.is_multiple_of(1000) {
            return Err(format!(
                "`refresh` is {}, expected whole seconds, as in a configuration",
                self.resource.refresh
            ));
        }
        if self.draws && (self.nodes.len() > 1 || !self.events.is_empty() || !self.random_faults.is_empty()) {
            return Err(
                "with `draws` each seed has other nodes and faults; expected a root alone, no `events` and no \
                        `random_faults`"
                    .into(),
            );
        }
        self.settings()?;
        self.check_nodes()?;
        self.faults().try_for_each(|fault| fault.check(&self.nodes))?;
        for random_faults in &self.random_faults {
            if random_faults.one_of.iter().map(|chance| u64::from(chance.weight)).sum::<u64>() == 0 {
                return Err("`one_of` has nothing of any weight".into());
            }
            if random_faults.every.least.0 == 0 {
                return Err(format!("`every` is {}, expected some time between faults", random_faults.every));
            }
        }
        Ok(())
    }

    fn check_nodes(&self) -> Result<(), String> {
        let Some(root) = self.nodes.first() else {
            return Err("`nodes` is empty, expected at least a root".into());
        };
        if root.parent.is_some() || root.times != 1 {
            return Err(format!(
                "`{}` is the first node and so the root: it has no parent and is there once",
                root.name
            ));
        }
        for (place, node) in self.nodes.iter().enumerate() {
            let before = &self.nodes[..place];
            if before.iter().any(|other| other.name == node.name) {
                return Err(format!("there are two nodes `{}`; for nodes alike write `times`", node.name));
            }
            let known: Vec<_> = before.iter().map(|other| other.name.as_str()).collect();
            match &node.parent {
                None if place > 0 => {
                    return Err(format!("`{}` has no `parent`; only the first node is a root", node.name));
                }
                Some(parent) if !known.contains(&parent.as_str()) => {
                    return Err(format!(
                        "the parent of `{}` is `{parent}`; above it are {}",
                        node.name,
                        known.join(", ")
                    ));
                }
                _ => {}
            }
            if node.times == 0 || node.peers == 0 {
                return Err(format!("`{}`: `times` and `peers` are at least 1", node.name));
            }
            node.clients.iter().try_for_each(ClientSpec::check)?;
        }
        Ok(())
    }

    /// All that may go wrong.
    pub(crate) fn faults(&self) -> impl Iterator<Item = &Fault> {
        let timed = self.events.iter().map(|timed| &timed.what);
        timed
            .chain(self.random_faults.iter().flat_map(|random_faults| &random_faults.one_of).map(|chance| &chance.what))
    }

    /// How the resource is run at the root; nodes below hear it from their parents.
    pub(crate) fn settings(&self) -> Result<Settings, String> {
        let resource = &self.resource;
        let capacity = Amount::new(resource.capacity).map_err(|error| format!("`capacity` {error}"))?;
        let mut settings = Settings::new(resource.algorithm.0, capacity);
        (settings.lease, settings.refresh) = (resource.lease.0, resource.refresh.0);
        settings.learning = resource.learning.map(|learning| learning.0);
        settings.safe_capacity = match resource.safe_capacity {
            None => SafeCapacity::Dynamic,
            Some(-1.0) => SafeCapacity::Unlimited,
            Some(amount) => {
                SafeCapacity::Fixed(Amount::new(amount).map_err(|error| format!("`safe_capacity` {error}"))?)
            }
        };
        for (name, Word(value)) in &resource.parameters {
            let parameter = NamedParameter { name: name.clone(), value: Some(value.clone()) };
            settings.apply(&parameter).map_err(|error| error.to_string())?;
        }
        settings.check().map_err(|error| error.to_string())?;
        Ok(settings)
    }

    /// From then on nothing goes wrong any more.
    pub(crate) fn quiet_from(&self) -> Option<Span> {
        let quiet = self.quiet?;
        Some(Span(self.length.0.since(quiet.0)))
    }
}

impl ClientSpec {
    fn check(&self) -> Result<(), String> {
        self.wants.check()?;
        Amount::new(self.assigned.unwrap_or_default()).map_err(|error| format!("`assigned` {error}"))?;
        if self.window.0.0 == 0 {
            return Err("`window` is 0s, expected some time".into());
        }
        self.uses.map_or(Ok(()), |uses| uses.check())
    }
}

fn check_interval(every: Span) -> Result<(), String> {
    if every.0.0 == 0 { Err("`every` is 0s, expected some time between steps".into()) } else { Ok(()) }
}

impl Wants {
    fn check(&self) -> Result<(), String> {
        let positive = |name: &str, number: f64| match number.is_finite() && number > 0.0 && number < 1e12 {
            true => Ok(()),
            false => Err(format!("`{name}` is {number}, expected a number above 0")),
        };
        match *self {
            Wants::Constant(amount) => Amount::new(amount).map(|_| ()).map_err(|error| format!("`constant` {error}")),
            Wants::Walk { start, every, .. } => positive("start", start).and(check_interval(every)),
            Wants::Drawn { least, most, every } => {
                positive("least", least).and(positive("most", most)).and(check_interval(every))?;
                if least < most { Ok(()) } else { Err(format!("`most` is {most}, expected more than `least`")) }
            }
            Wants::Pareto { alpha, least } => positive("alpha", alpha).and(positive("least", least)),
            Wants::Lognormal { median, sigma } => positive("median", median).and(positive("sigma", sigma)),
        }
    }

    /// What a client wants when it comes.
    pub(crate) fn first(&self, rng: &mut fastrand::Rng) -> f64 {
        let drawn = match *self {
            Wants::Constant(amount) | Wants::Walk { start: amount, .. } => amount,
            Wants::Drawn { least, most, .. } => least + (most - least) * rng.f64(),
            Wants::Pareto { alpha, least } => least / (1.0 - rng.f64()).powf(1.0 / alpha),
            Wants::Lognormal { median, sigma } => {
                // Box and Muller.
                let (radius, angle) = ((1.0 - rng.f64()).ln() * -2.0, rng.f64() * std::f64::consts::TAU);
                median * (sigma * radius.sqrt() * angle.cos()).exp()
            }
        };
        drawn.min(Amount::MAX.get())
    }

    /// A step on its walk, if it walks, and when the next is.
    pub(crate) fn step(&self, wants: f64, rng: &mut fastrand::Rng) -> Option<(f64, Span)> {
        let (moved, every) = match *self {
            Wants::Walk { step, every, .. } => (wants + wants * step.0 * (rng.f64() * 2.0 - 1.0), every),
            Wants::Drawn { least, most, every } => (least + (most - least) * rng.f64(), every),
            Wants::Constant(_) | Wants::Pareto { .. } | Wants::Lognormal { .. } => return None,
        };
        Some((moved.clamp(0.0, Amount::MAX.get()), every))
    }
}

#[cfg(test)]
mod tests;
