//! The command line of `simulate`, and the cases that it describes.

use std::{
    collections::BTreeMap,
    num::NonZeroU64,
    ops::Range,
    path::{Path, PathBuf},
    str::FromStr,
};

use clap::ValueEnum;
use leaseway_core::policy::settings::Reuse;
use leaseway_sim::{
    scenario::{BUILT_IN, Scenario, built_in, plan::Plan},
    units::{Algorithm, Between, Part, Span},
};

use crate::common::{error::Error, word};

fn some_time(text: &str) -> Result<Span, String> {
    let length: Span = text.parse()?;
    if length == Span::default() { Err("expected more than 0s".to_owned()) } else { Ok(length) }
}

/// Simulate servers, child nodes and clients in virtual time, with the real state machines, a seeded network, and
/// faults.
///
/// Every invariant is checked after every event. A run that violates one stops and prints the command that repeats it.
/// The same seed gives the same run.
#[derive(clap::Args)]
pub(crate) struct SimulateArgs {
    /// Built-in scenarios (see --list), or files.
    #[arg(required_unless_present_any = ["list", "plant"], value_name = "SCENARIO")]
    pub(crate) scenarios: Vec<String>,
    /// List the built-in scenarios.
    #[arg(long)]
    pub(crate) list: bool,
    /// Print the file of a scenario, as a template for your own.
    #[arg(long)]
    pub(crate) show: bool,
    /// Plant a fault: leave out this rule of the protocol (`all`: each in turn), and search for a run that reveals it.
    /// Searches the named scenarios, or those that reveal most faults. --seeds is the number of tries.
    ///
    /// Needs the feature `planted`: `cargo run --release -p leaseway-bench --features planted -- simulate --plant all
    /// --seeds 40`.
    #[arg(long, value_name = "FAULT")]
    pub(crate) plant: Option<String>,
    /// The number of runs of each case.
    #[arg(long, default_value = "1", value_name = "N")]
    seeds: NonZeroU64,
    /// The first seed.
    #[arg(long, default_value = "1", value_name = "S")]
    pub(crate) seed: u64,
    /// Run a case with each of these algorithms instead of the one in the file.
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    algorithm: Vec<Algorithm>,
    /// When freed capacity may be given to another holder. Runs a case with each value.
    #[arg(long, value_delimiter = ',', value_name = "WHEN,…")]
    reuse: Vec<When>,
    /// Whether servers send hints and child nodes ask early. Runs a case with each value.
    #[arg(long, value_delimiter = ',', value_name = "WHETHER,…")]
    push: Vec<Switch>,
    /// A parameter of the algorithm, such as `raise_tc_s=900,3600`. Runs a case with each value. Can be repeated.
    #[arg(long, value_name = "NAME=VALUE,…")]
    set: Vec<Setting>,
    /// What a new master knows about leases.
    #[arg(long)]
    handover: Option<Handover>,
    /// Whether child nodes report demands of different sizes separately, instead of one sum per priority.
    #[arg(long)]
    slices: Option<Switch>,
    /// Whether parents tell child nodes how they divide the capacity.
    #[arg(long)]
    terms: Option<Switch>,
    /// The one-way delay of a message: `5ms`, `10..100ms`.
    #[arg(long)]
    delay: Option<Between>,
    /// The fraction of messages that are lost: `1%`.
    #[arg(long)]
    loss: Option<Part>,
    /// The fraction of messages that are duplicated: `1%`.
    #[arg(long)]
    duplicates: Option<Part>,
    /// The length of a run in virtual time: `3600s`.
    #[arg(long, value_parser = some_time)]
    length: Option<Span>,
    /// Also write all results to a file, as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Print all figures in one table, even if it is wider than the terminal.
    #[arg(long)]
    pub(crate) wide: bool,
}

/// The knowledge of a new master.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum Handover {
    /// The promises of its predecessor.
    #[default]
    Promises,
    /// Nothing: it learns from clients first.
    Learning,
}

impl Handover {
    /// The corresponding value of the simulator.
    pub(crate) fn simulated(self) -> leaseway_sim::scenario::Handover {
        match self {
            Handover::Promises => leaseway_sim::scenario::Handover::Promises,
            Handover::Learning => leaseway_sim::scenario::Handover::Learning,
        }
    }
}

/// When freed capacity may be given to another holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum When {
    /// Once the former holder has confirmed its smaller lease.
    Confirmed,
    /// As soon as the server has decided it.
    Prompt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

/// A scenario with one combination of options.
pub(crate) struct Case {
    pub(crate) scenario: String,
    /// The values that --set gave to parameters.
    pub(crate) set: Chosen,
    pub(crate) reuse: String,
    /// The command that repeats the case, without the seed.
    pub(crate) command: String,
    pub(crate) plan: Plan,
}

impl Case {
    pub(crate) fn algorithm(&self) -> Algorithm {
        self.plan.scenario().resource.algorithm
    }

    pub(crate) fn push(&self) -> bool {
        self.plan.scenario().push
    }

    /// The name of the scenario, and the parameters that were set.
    pub(crate) fn name(&self) -> String {
        let set = self.set.iter().map(|(name, value)| format!(" {name}={value}"));
        std::iter::once(self.scenario.clone()).chain(set).collect()
    }
}

impl SimulateArgs {
    #[cfg(test)]
    pub(crate) fn parse(words: &[&str]) -> Result<SimulateArgs, Error> {
        #[derive(clap::Parser)]
        struct CommandLine {
            #[command(flatten)]
            args: SimulateArgs,
        }
        clap::Parser::try_parse_from(words).map(|line: CommandLine| line.args).map_err(Error::usage)
    }

    pub(crate) fn seeds(&self) -> Range<u64> {
        self.seed..self.seed.saturating_add(self.seeds.get())
    }

    /// Every scenario with every combination of options.
    pub(crate) fn cases(&self) -> Result<Vec<Case>, Error> {
        let mut cases = Vec::new();
        for name in &self.scenarios {
            let scenario = self.changed(load(name)?);
            for set in combinations(&self.set) {
                for algorithm in each(&self.algorithm) {
                    for reuse in each(&self.reuse) {
                        for push in each(&self.push) {
                            cases.push(self.case(name, &scenario, &Way { set: &set, algorithm, reuse, push })?);
                        }
                    }
                }
            }
        }
        Ok(cases)
    }

    /// Applies the options that all cases share.
    fn changed(&self, mut scenario: Scenario) -> Scenario {
        scenario.handover = self.handover.map_or(scenario.handover, Handover::simulated);
        scenario.slices = self.slices.map_or(scenario.slices, |slices| slices == Switch::On);
        scenario.terms = self.terms.map_or(scenario.terms, |terms| terms == Switch::On);
        scenario.length = self.length.unwrap_or(scenario.length);
        let network = &mut scenario.network;
        network.delay = self.delay.unwrap_or(network.delay);
        network.loss = self.loss.unwrap_or(network.loss);
        network.duplicates = self.duplicates.unwrap_or(network.duplicates);
        scenario
    }

    fn case(&self, name: &str, scenario: &Scenario, way: &Way<'_>) -> Result<Case, Error> {
        let mut scenario = scenario.clone();
        scenario.resource.algorithm = way.algorithm.unwrap_or(scenario.resource.algorithm);
        for (name, value) in way.set {
            scenario.resource.set(name, value);
        }
        if let Some(reuse) = way.reuse {
            scenario.resource.set("reuse", &word(&reuse));
        }
        scenario.push = way.push.map_or(scenario.push, |push| push == Switch::On);
        let plan = Plan::new(scenario).map_err(|what| Error::Usage(format!("{name}: {what}")))?;
        Ok(Case {
            scenario: name.to_owned(),
            set: way.set.clone(),
            reuse: match plan.settings().reuse {
                Reuse::Confirmed => word(&When::Confirmed),
                Reuse::Prompt => word(&When::Prompt),
            },
            command: self.command(name, way),
            plan,
        })
    }

    fn command(&self, name: &str, way: &Way<'_>) -> String {
        let flags = [
            ("--algorithm", way.algorithm.map(|algorithm| algorithm.to_string())),
            ("--reuse", way.reuse.as_ref().map(word)),
            ("--push", way.push.as_ref().map(word)),
            ("--handover", self.handover.as_ref().map(word)),
            ("--slices", self.slices.as_ref().map(word)),
            ("--terms", self.terms.as_ref().map(word)),
            ("--delay", self.delay.map(|delay| delay.to_string())),
            ("--loss", self.loss.map(|loss| loss.to_string())),
            ("--duplicates", self.duplicates.map(|duplicates| duplicates.to_string())),
            ("--length", self.length.map(|length| length.to_string())),
        ];
        let mut words = vec!["leaseway-bench".to_owned(), "simulate".to_owned(), name.to_owned()];
        for (flag, value) in flags {
            words.extend(value.into_iter().flat_map(|value| [flag.to_owned(), value]));
        }
        words.extend(way.set.iter().flat_map(|(name, value)| ["--set".to_owned(), format!("{name}={value}")]));
        shlex::try_join(words.iter().map(String::as_str)).unwrap_or_else(|_| words.join(" "))
    }
}

/// A combination of options. `None` keeps the value of the file.
struct Way<'a> {
    set: &'a Chosen,
    algorithm: Option<Algorithm>,
    reuse: Option<When>,
    push: Option<Switch>,
}

/// Each of the given values. Without values, a single `None`.
fn each<T: Copy>(given: &[T]) -> Vec<Option<T>> {
    if given.is_empty() { vec![None] } else { given.iter().copied().map(Some).collect() }
}

/// A parameter and its values, as `raise_tc_s=900,3600`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting {
    name: String,
    values: Vec<String>,
}

/// The chosen value of each parameter.
pub(crate) type Chosen = BTreeMap<String, String>;

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Setting, String> {
        let wrong = || format!("`{text}`: expected a parameter and its values, like raise_tc_s=900,3600");
        let (name, values) = text.split_once('=').ok_or_else(wrong)?;
        let values: Vec<String> = values.split(',').map(|value| value.trim().to_owned()).collect();
        match name.is_empty() || values.iter().any(String::is_empty) {
            true => Err(wrong()),
            false => Ok(Setting { name: name.to_owned(), values }),
        }
    }
}

/// Every combination of values; one empty combination if nothing is set.
fn combinations(settings: &[Setting]) -> Vec<Chosen> {
    settings.iter().fold(vec![Chosen::new()], |all, setting| {
        let with = |chosen: &Chosen, value: &String| {
            let mut chosen = chosen.clone();
            chosen.insert(setting.name.clone(), value.clone());
            chosen
        };
        all.iter().flat_map(|chosen| setting.values.iter().map(move |value| with(chosen, value))).collect()
    })
}

/// The text of a built-in scenario, or of a file.
pub(crate) fn scenario_text(name: &str) -> Result<String, Error> {
    if let Some(text) = built_in(name) {
        return Ok(text.to_owned());
    }
    let path = Path::new(name);
    if !path.exists() {
        let known = BUILT_IN.map(|(name, _)| name).join(", ");
        return Err(Error::Usage(format!("there is no scenario `{name}`, and no such file; known: {known}")));
    }
    std::fs::read_to_string(path).map_err(Error::io(format!("read {name}")))
}

/// Reads and checks a scenario. Errors name file and line.
fn load(name: &str) -> Result<Scenario, Error> {
    Scenario::parse(name, &scenario_text(name)?).map_err(Error::Usage)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(text: &str) -> Setting {
        text.parse().expect("a setting")
    }

    #[test]
    fn settings_are_combined_in_every_way() {
        let all = combinations(&[setting("a=1,2"), setting("b=x, y")]);
        let told: Vec<_> = all.iter().map(|chosen| format!("{}{}", chosen["a"], chosen["b"])).collect();
        assert_eq!(told, ["1x", "1y", "2x", "2y"]);
        assert_eq!(combinations(&[]), [Chosen::new()], "there is one case without any");
    }

    #[test]
    fn a_malformed_setting_is_refused_with_an_example() {
        for wrong in ["raise_tc_s", "=900", "raise_tc_s=", "raise_tc_s=900,"] {
            let error = wrong.parse::<Setting>().expect_err(wrong);
            assert!(error.contains(wrong) && error.contains("raise_tc_s=900,3600"), "{error}");
        }
    }

    #[test]
    fn an_unknown_scenario_is_refused_with_the_known_ones() {
        let error = load("sevn").expect_err("a typing error").to_string();
        assert!(error.contains("`sevn`") && error.contains("seven"), "{error}");
    }
}
