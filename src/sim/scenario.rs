//! Scenarios: YAML files with a resource, a tree of nodes, the clients of each node, the network and the faults.
//!
//! The built-in scenarios are such files as well.

mod draw;
pub(crate) mod fault;
pub mod plan;

use std::{collections::BTreeMap, fmt};

use leaseway_core::{
    policy::{
        parameters::{GROUP_PARAMETER, GROUPS_PARAMETER, NamedParameter},
        settings::{SafeCapacity, Settings},
    },
    types::{Amount, Millis},
};
use serde::Deserialize;

use crate::{
    network::{Network, message::GROUPS},
    scenario::fault::Fault,
    units::{Algorithm, Between, Part, Span, WallTime},
};

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// A one-line description.
    pub about: String,
    pub length: Span,
    /// The wall time at the start.
    #[serde(default)]
    pub(crate) begins: WallTime,
    #[serde(default)]
    pub(crate) measure_from: Span,
    /// The length of a final period without faults and without changes of demand. All clients should have their due at
    /// its end. This is not checked in pools, whose dues keep changing.
    #[serde(default)]
    pub(crate) quiet: Option<Span>,
    pub resource: ResourceSpec,
    pub(crate) nodes: Vec<NodeSpec>,
    #[serde(default)]
    pub network: Network,
    #[serde(default)]
    pub handover: Handover,
    /// Checks that no client with demand loses its whole capacity after `measure_from`.
    #[serde(default)]
    pub(crate) no_total_loss: bool,
    #[serde(default = "commit")]
    pub(crate) commit: Span,
    /// Whether servers send hints, and child nodes ask early.
    #[serde(default = "yes")]
    pub push: bool,
    /// Whether child nodes send claims of different sizes separately. Otherwise they send one sum per priority.
    #[serde(default = "yes")]
    pub slices: bool,
    /// Whether parents send the terms of their division. Otherwise child nodes divide on their own.
    #[serde(default = "yes")]
    pub terms: bool,
    /// Whether each seed draws its own scenario, see `draw`.
    #[serde(default)]
    pub(crate) draws: bool,
    #[serde(default)]
    pub(crate) events: Vec<TimedFault>,
    #[serde(default)]
    pub(crate) random_faults: Vec<RandomFaults>,
}

/// The settings of the resource at the root.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResourceSpec {
    pub capacity: f64,
    pub algorithm: Algorithm,
    /// Parameters, as in the configuration of a server.
    #[serde(default)]
    pub(crate) parameters: BTreeMap<String, ParameterValue>,
    pub(crate) lease: Span,
    /// The refresh interval at the root. That of child nodes is derived from their parent's, with `decay_factor`.
    pub(crate) refresh: Span,
    /// Groups the clients into three organizations with up to seven teams each, with these rules: `lend` or `keep`,
    /// weight, minimum, maximum or `-`, and a pattern such as `o1/*`.
    #[serde(default)]
    pub(crate) groups: Option<Vec<String>>,
    /// −1: unlimited. By default the capacity divided by the number of clients.
    #[serde(default)]
    pub(crate) safe_capacity: Option<f64>,
    /// The learning time of a master without promises. By default until all older leases have expired.
    #[serde(default)]
    pub(crate) learning: Option<Span>,
}

impl ResourceSpec {
    /// Overrides a parameter. [`Plan::new`](crate::scenario::plan::Plan::new) validates it.
    pub fn set(&mut self, parameter: &str, value: &str) {
        self.parameters.insert(parameter.to_owned(), ParameterValue::Text(value.to_owned()));
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Handover {
    /// A new master knows the promises of its predecessor.
    #[default]
    Promises,
    /// A new master knows nothing and learns from its clients first.
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

/// A node of the tree, or several equal ones.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeSpec {
    pub(crate) name: String,
    /// The name of the parent, a node earlier in the file. If that one has `times`, each of its copies is the parent of
    /// `times` copies of this node. Only the first node has no parent.
    #[serde(default)]
    pub(crate) parent: Option<String>,
    #[serde(default = "one")]
    pub(crate) times: u32,
    #[serde(default = "three")]
    pub(crate) peers: u8,
    /// Overrides the scenario's `handover`.
    #[serde(default)]
    pub(crate) handover: Option<Handover>,
    /// Whether it sends its parent the ids of the node and of its master. Nodes of older versions do not.
    #[serde(default = "yes")]
    pub(crate) sends_instance: bool,
    #[serde(default)]
    pub(crate) clients: Vec<ClientSpec>,
}

/// The kind of a client, which is mainly the protocol that it speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ClientKind {
    /// A Leaseway client: uses tokens, and drops late answers.
    #[default]
    Leaseway,
    Doorman,
    /// As `Doorman`, but it echoes unknown fields, including tokens.
    Echoes,
    /// A client of the original protocol that never sends its lease.
    Silent,
    /// A child node of the original protocol, which never sends its lease. It has no clients here.
    DoormanNode,
    /// A Leaseway client that lies: it reports the maximum amount as outstanding.
    Liar,
    /// A gateway's client for one Envoy.
    Envoy,
    /// A Leaseway client that renews its lease by a stream.
    Stream,
    /// A Leaseway client with a limiter. `wants` is the rate of callers, and its wants are estimated.
    Limiter,
}

impl ClientKind {
    /// Whether it speaks the Leaseway protocol.
    pub(crate) fn is_ours(self) -> bool {
        use ClientKind::{Envoy, Leaseway, Liar, Limiter, Stream};
        matches!(self, Leaseway | Liar | Stream | Envoy | Limiter)
    }

    /// Whether its requests name its lease.
    pub(crate) fn reports_leases(self) -> bool {
        !matches!(self, ClientKind::DoormanNode | ClientKind::Silent)
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClientSpec {
    pub(crate) count: u32,
    #[serde(default)]
    #[serde(rename = "speaks")]
    pub(crate) kind: ClientKind,
    #[serde(default)]
    pub(crate) priority: i16,
    pub(crate) wants: Wants,
    /// PRIORITY_POOL: the assignment of each client at its node. Without it they are free clients.
    #[serde(default)]
    pub(crate) assigned: Option<f64>,
    /// PRIORITY_POOL: the usage pattern of each client. Without it they do not report usage.
    #[serde(default)]
    pub(crate) uses: Option<UsageSpec>,
    /// `limiter`: the window. A limiter saves up the unused capacity of one window.
    #[serde(default = "second")]
    pub(crate) window: Span,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UsageSpec {
    /// The fraction of the time in which a client uses all of its capacity; otherwise it uses nothing.
    pub(crate) part: Part,
    /// The mean length of a burst.
    pub(crate) burst: Span,
}

impl UsageSpec {
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.burst.0.0 == 0 { Err("`burst` is 0s, expected more than 0s".into()) } else { Ok(()) }
    }

    /// The length of the current burst or pause; `None` if it never ends.
    pub(crate) fn stretch(&self, is_busy: bool, rng: &mut fastrand::Rng) -> Option<Millis> {
        let Part(part) = self.part;
        let burst = self.burst.0.0 as f64;
        let mean = if is_busy { burst } else { burst * (1.0 - part) / part };
        let for_ever = if is_busy { part >= 1.0 } else { part <= 0.0 };
        // Exponentially distributed.
        (!for_ever).then(|| Millis(((1.0 - rng.f64()).ln() * -mean).max(1.0) as u64))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Wants {
    Constant(f64),
    /// A random walk: changes by up to `step`, with a period of `every`.
    Walk {
        start: f64,
        step: Part,
        every: Span,
    },
    /// Uniformly distributed, redrawn with a period of `every`.
    Drawn {
        least: f64,
        most: f64,
        every: Span,
    },
    /// Pareto distributed.
    Pareto {
        alpha: f64,
        least: f64,
    },
    /// Log-normally distributed.
    Lognormal {
        median: f64,
        sigma: f64,
    },
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TimedFault {
    pub(crate) at: Span,
    #[serde(rename = "do")]
    pub(crate) what: Fault,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RandomFaults {
    pub(crate) from: Span,
    pub(crate) every: Between,
    pub(crate) one_of: Vec<WeightedFault>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WeightedFault {
    pub(crate) weight: u32,
    #[serde(rename = "do")]
    pub(crate) what: Fault,
}

/// The value of a parameter in YAML.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub(crate) enum ParameterValue {
    Flag(bool),
    Whole(i64),
    Number(f64),
    Text(String),
}

impl fmt::Display for ParameterValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParameterValue::Flag(flag) => write!(f, "{flag}"),
            ParameterValue::Whole(number) => write!(f, "{number}"),
            ParameterValue::Number(number) => write!(f, "{number}"),
            ParameterValue::Text(text) => f.write_str(text),
        }
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

/// The built-in scenarios: name and file.
pub const BUILT_IN: [(&str, &str); 41] = [
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
    ("cramped_budget", include_str!("scenarios/cramped_budget.yaml")),
    ("calendar_budget", include_str!("scenarios/calendar_budget.yaml")),
    ("cramped_budget_tree", include_str!("scenarios/cramped_budget_tree.yaml")),
    ("cramped_tree", include_str!("scenarios/cramped_tree.yaml")),
    ("cramped_nodes", include_str!("scenarios/cramped_nodes.yaml")),
    ("cramped_middle", include_str!("scenarios/cramped_middle.yaml")),
    ("drawn", include_str!("scenarios/drawn.yaml")),
    ("random_overrides", include_str!("scenarios/random_overrides.yaml")),
    ("random_envoys", include_str!("scenarios/random_envoys.yaml")),
    ("random_limiters", include_str!("scenarios/random_limiters.yaml")),
    ("cramped_overrides", include_str!("scenarios/cramped_overrides.yaml")),
    ("cramped_envoys", include_str!("scenarios/cramped_envoys.yaml")),
    ("cramped_streams", include_str!("scenarios/cramped_streams.yaml")),
    ("cramped_limiters", include_str!("scenarios/cramped_limiters.yaml")),
    ("ended", include_str!("scenarios/ended.yaml")),
    ("ended_budget", include_str!("scenarios/ended_budget.yaml")),
    ("ended_tree", include_str!("scenarios/ended_tree.yaml")),
    ("handover", include_str!("scenarios/handover.yaml")),
    ("moving", include_str!("scenarios/moving.yaml")),
    ("newcomers", include_str!("scenarios/newcomers.yaml")),
    ("newcomers_enough", include_str!("scenarios/newcomers_enough.yaml")),
    ("lopsided", include_str!("scenarios/lopsided.yaml")),
    ("lopsided_groups", include_str!("scenarios/lopsided_groups.yaml")),
    ("random_groups", include_str!("scenarios/random_groups.yaml")),
    ("cramped_groups", include_str!("scenarios/cramped_groups.yaml")),
    ("pool", include_str!("scenarios/pool.yaml")),
    ("pool_surge", include_str!("scenarios/pool_surge.yaml")),
];

pub fn built_in(name: &str) -> Option<&'static str> {
    BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// An error as `FILE:LINE:COLUMN: message`, which editors can jump to.
fn complaint(file: &str, error: &serde_saphyr::Error) -> String {
    let what = error.without_snippet().to_string();
    match error.location() {
        Some(at) => {
            let location = format!(" at line {}, column {}", at.line(), at.column());
            let what = what.replace(&location, "");
            format!("{file}:{}:{}: {what}", at.line(), at.column())
        }
        None => format!("{file}: {what}"),
    }
}

impl Scenario {
    /// Parses and validates a scenario. Errors name `file` and the line.
    pub fn parse(file: &str, text: &str) -> Result<Scenario, String> {
        let scenario: Scenario = serde_saphyr::from_str(text).map_err(|error| complaint(file, &error))?;
        scenario.check().map_err(|what| format!("{file}: {what}"))?;
        Ok(scenario)
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        if self.length.0.0 == 0 {
            return Err("`length` is 0s, expected more than 0s".into());
        }
        if self.resource.refresh.0.0 == 0 || !self.resource.refresh.0.0.is_multiple_of(1000) {
            return Err(format!(
                "`refresh` is {}, expected whole seconds, as in a configuration",
                self.resource.refresh
            ));
        }
        if self.draws && (self.nodes.len() > 1 || !self.events.is_empty() || !self.random_faults.is_empty()) {
            return Err(
                "with `draws` each seed draws its own nodes and faults: expected only a root, no `events` and no \
                        `random_faults`"
                    .into(),
            );
        }
        self.settings()?;
        self.check_nodes()?;
        self.faults().try_for_each(|fault| fault.check(&self.nodes))?;
        for random_faults in &self.random_faults {
            if random_faults.one_of.iter().map(|chance| u64::from(chance.weight)).sum::<u64>() == 0 {
                return Err("`one_of` is empty or all weights are 0, expected a weight above 0".into());
            }
            if random_faults.every.least.0 == 0 {
                return Err(format!("`every` is {}, expected more than 0s between faults", random_faults.every));
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
                "`{}` is the first node, so it is the root: expected no `parent`, and `times` 1",
                root.name
            ));
        }
        for (index, node) in self.nodes.iter().enumerate() {
            let before = &self.nodes[..index];
            if before.iter().any(|other| other.name == node.name) {
                return Err(format!("there are two nodes `{}`; for several equal nodes use `times`", node.name));
            }
            let known: Vec<_> = before.iter().map(|other| other.name.as_str()).collect();
            match &node.parent {
                None if index > 0 => {
                    return Err(format!("`{}` has no `parent`; only the first node is a root", node.name));
                }
                Some(parent) if !known.contains(&parent.as_str()) => {
                    return Err(format!(
                        "the parent of `{}` is `{parent}`, expected a node earlier in the file: {}",
                        node.name,
                        known.join(", ")
                    ));
                }
                _ => {}
            }
            if node.times == 0 || node.peers == 0 {
                return Err(format!("`{}`: expected at least 1 for `times` and `peers`", node.name));
            }
            node.clients.iter().try_for_each(ClientSpec::check)?;
        }
        Ok(())
    }

    pub(crate) fn faults(&self) -> impl Iterator<Item = &Fault> {
        let timed = self.events.iter().map(|timed| &timed.what);
        timed
            .chain(self.random_faults.iter().flat_map(|random_faults| &random_faults.one_of).map(|chance| &chance.what))
    }

    /// The settings of the resource at the root. Child nodes get theirs from their parents.
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
        for (name, value) in &resource.parameters {
            let parameter = NamedParameter { name: name.clone(), value: Some(value.to_string()) };
            settings.apply(&parameter).map_err(|error| error.to_string())?;
        }
        let groups = self.resource.groups.iter();
        let pattern = groups.clone().map(|_| (GROUPS_PARAMETER, GROUPS));
        let rules = groups.flatten().map(|rule| (GROUP_PARAMETER, rule.as_str()));
        for (name, value) in pattern.chain(rules) {
            let parameter = NamedParameter { name: name.into(), value: Some(value.into()) };
            settings.apply(&parameter).map_err(|error| error.to_string())?;
        }
        settings.check().map_err(|error| error.to_string())?;
        Ok(settings)
    }

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
            return Err("`window` is 0s, expected more than 0s".into());
        }
        self.uses.map_or(Ok(()), |uses| uses.check())
    }
}

fn check_interval(every: Span) -> Result<(), String> {
    if every.0.0 == 0 { Err("`every` is 0s, expected more than 0s between steps".into()) } else { Ok(()) }
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

    pub(crate) fn first(&self, rng: &mut fastrand::Rng) -> f64 {
        let drawn = match *self {
            Wants::Constant(amount) | Wants::Walk { start: amount, .. } => amount,
            Wants::Drawn { least, most, .. } => least + (most - least) * rng.f64(),
            Wants::Pareto { alpha, least } => least / (1.0 - rng.f64()).powf(1.0 / alpha),
            Wants::Lognormal { median, sigma } => {
                // Box-Muller transform.
                let (radius, angle) = ((1.0 - rng.f64()).ln() * -2.0, rng.f64() * std::f64::consts::TAU);
                median * (sigma * radius.sqrt() * angle.cos()).exp()
            }
        };
        drawn.min(Amount::MAX.get())
    }

    /// The next demand, and the time until the step after it. `None` if the demand is constant.
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
