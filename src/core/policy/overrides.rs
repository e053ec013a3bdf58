//! Overrides: capacities and rules for groups that operators set for a limited time.
//!
//! At a root, an override of a capacity replaces the template's. Below a parent, it can only lower the capacity that
//! the parent lends. Leases stay valid: capacity that an override cuts becomes free as they expire.
//!
//! An override of a group replaces parts of the rule for the group. It needs the demand of all clients, so it applies
//! at a root, which sends the rules to the nodes below.
//!
//! The server decides when an override ends and where it is stored.

use std::sync::Arc;

use crate::{
    policy::{
        groups::{GroupChange, GroupError, GroupRule, GroupSettings},
        settings::Settings,
    },
    types::{Amount, Glob, Millis, escaped, readable},
};

/// How much a resource can serve.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Load {
    #[cfg_attr(feature = "serde", serde(rename = "amount"))]
    Capacity(Amount),
    /// A fraction of the template's capacity; finite and not negative.
    #[cfg_attr(feature = "serde", serde(rename = "part"))]
    Factor(f64),
}

/// What an override applies to. There is one override at most for each target.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct OverrideTarget {
    /// A resource id, or a pattern of resource ids.
    pub pattern: Arc<str>,
    /// The path of a group of clients; absent: the resource itself.
    pub group: Option<Arc<str>>,
}

impl std::fmt::Display for OverrideTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.group {
            None => write!(f, "`{}`", escaped(&self.pattern)),
            Some(group) => write!(f, "the group {} of `{}`", escaped(group), escaped(&self.pattern)),
        }
    }
}

/// What an override sets.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum OverrideValue {
    Capacity {
        load: Load,
        /// Whether the capacity may exceed the template's.
        above: bool,
    },
    Group(GroupChange),
}

/// A temporary change by an operator.
#[derive(Debug, Clone, PartialEq)]
pub struct Override {
    pub target: OverrideTarget,
    pub value: OverrideValue,
    /// When it ends, on the clock of the process that runs the resource. For display only.
    pub ends: Millis,
    pub by: Arc<str>,
    pub why: Arc<str>,
}

impl Override {
    /// The capacity that replaces `template`.
    pub fn instead_of(&self, template: Amount) -> Amount {
        let OverrideValue::Capacity { load, above } = self.value else { return template };
        let capacity = match load {
            Load::Capacity(capacity) => capacity,
            Load::Factor(factor) => Amount::clamped(template.get() * factor),
        };
        if above { capacity } else { capacity.min(template) }
    }

    /// The value as it was set: `40`, `50 %`, or `maximum 40, weight 2`.
    pub fn set_to(&self) -> String {
        match &self.value {
            OverrideValue::Capacity { load: Load::Capacity(capacity), .. } => readable(capacity.get()),
            OverrideValue::Capacity { load: Load::Factor(factor), .. } => format!("{} %", readable(factor * 100.0)),
            OverrideValue::Group(change) => change.in_words(),
        }
    }

    /// The group and what changes in its rule. `None` if it overrides a capacity.
    pub(crate) fn of_group(&self) -> Option<(&Arc<str>, &GroupChange)> {
        match &self.value {
            OverrideValue::Group(change) => Some((self.target.group.as_ref()?, change)),
            OverrideValue::Capacity { .. } => None,
        }
    }

    /// Describes its effect on a resource in a sentence.
    pub fn sentence(&self, capacity: Amount, template: Amount, now: Millis) -> String {
        format!(
            "The capacity is {} in place of {}: {} has set `{}` to {} {}.",
            readable(capacity.get()),
            readable(template.get()),
            escaped(&self.by),
            escaped(&self.target.pattern),
            self.set_to(),
            self.until_and_why(now)
        )
    }

    /// The same for an override of a group. `rule`: the rule of the template for the group.
    pub fn sentence_of_group(&self, rule: Option<&GroupRule>, now: Millis) -> String {
        let Some((group, change)) = self.of_group() else { return String::new() };
        let limits = rule.map(|rule| &rule.limits);
        let before = |name: &str| match name {
            "maximum" => limits.and_then(|limits| limits.max).map_or("none".to_owned(), |max| readable(max.get())),
            "minimum" => readable(limits.map_or(0.0, |limits| limits.min.get())),
            _ => limits.map_or(1, |limits| limits.weight).to_string(),
        };
        let parts: Vec<String> =
            change.parts().map(|(name, value)| format!("a {name} of {value} in place of {}", before(name))).collect();
        format!(
            "The group {} has {}: {} has overridden its rule for `{}` {}.",
            escaped(group),
            parts.join(" and "),
            escaped(&self.by),
            escaped(&self.target.pattern),
            self.until_and_why(now)
        )
    }

    fn until_and_why(&self, now: Millis) -> String {
        let left = self.ends.since(now).0.div_ceil(1000);
        format!("for another {left} s, because: {}", escaped(self.why.trim_end_matches('.')))
    }
}

/// All overrides in force, the newest last.
#[derive(Debug, Clone, Default)]
pub struct Overrides(Vec<(Arc<Override>, Option<Glob>)>);

/// The overrides of one resource.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ResourceOverrides {
    pub capacity: Option<Arc<Override>>,
    /// At most one for each group.
    pub groups: Vec<Arc<Override>>,
}

impl ResourceOverrides {
    /// The rules for groups in place of those of the template, which may have changed since the overrides were set.
    pub(crate) fn rules(&self, template: &GroupSettings, whole_units: bool) -> GroupSettings {
        self.exact_rules(template).made_possible(whole_units)
    }

    fn exact_rules(&self, template: &GroupSettings) -> GroupSettings {
        template.overridden(self.groups.iter().filter_map(|one| one.of_group()))
    }

    /// Validates the overrides of groups under these settings of a template.
    pub fn check_groups(&self, settings: &Settings) -> Result<(), GroupError> {
        let Some(template) = &settings.groups else { return Ok(()) };
        self.exact_rules(template).check(settings.capacity, settings.whole_units)
    }
}

impl Overrides {
    /// Keeps the order. An invalid pattern matches only the identical id.
    pub fn new(overrides: impl IntoIterator<Item = Override>) -> Overrides {
        let checked = |one: Override| {
            let glob = Glob::new(&one.target.pattern).ok();
            (Arc::new(one), glob)
        };
        Overrides(overrides.into_iter().map(checked).collect())
    }

    /// The overrides for a resource. Those with its exact id take precedence over the newest matching pattern.
    pub fn find(&self, id: &str) -> ResourceOverrides {
        let newest_first = || self.0.iter().rev();
        let exact = newest_first().filter(|(one, _)| &*one.target.pattern == id);
        let matching = newest_first().filter(|(_, glob)| glob.as_ref().is_some_and(|glob| glob.matches(id)));
        let mut found = ResourceOverrides::default();
        for (one, _) in exact.chain(matching) {
            let is_known = |known: &Arc<Override>| known.target.group == one.target.group;
            if one.target.group.is_none() {
                found.capacity.get_or_insert_with(|| Arc::clone(one));
            } else if !found.groups.iter().any(is_known) {
                found.groups.push(Arc::clone(one));
            }
        }
        found
    }

    pub fn iter(&self) -> impl Iterator<Item = &Override> {
        self.0.iter().map(|(one, _)| &**one)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(pattern: &str, load: Load) -> Override {
        let target = OverrideTarget { pattern: pattern.into(), group: None };
        let value = OverrideValue::Capacity { load, above: false };
        Override { target, value, ends: Millis(9_001), by: "ada".into(), why: "a\nreason.".into() }
    }

    fn of_group(pattern: &str, group: &str, maximum: f64) -> Override {
        let change = GroupChange { maximum: Some(Amount::clamped(maximum)), ..GroupChange::default() };
        let one = set(pattern, Load::Factor(1.0));
        let target = OverrideTarget { group: Some(group.into()), ..one.target };
        Override { target, value: OverrideValue::Group(change), ..one }
    }

    #[test]
    fn an_exact_id_wins_then_the_newest_pattern() {
        let all = [("db*", 0.1), ("db1", 0.2), ("d*", 0.3), ("[", 0.4)];
        let overrides = Overrides::new(all.map(|(pattern, factor)| set(pattern, Load::Factor(factor))));
        let found = |id: &str| overrides.find(id).capacity.map(|one| one.target.pattern.to_string());
        assert_eq!(found("db1").as_deref(), Some("db1"));
        assert_eq!(found("db2").as_deref(), Some("d*"), "the newest matching pattern");
        assert_eq!(found("[").as_deref(), Some("["), "an invalid pattern is an id");
        assert_eq!((found("x"), overrides.len()), (None, 4));
    }

    #[test]
    fn each_group_has_the_override_that_a_capacity_would_have() {
        let all = [("db1", "a", 1.0), ("db*", "a", 2.0), ("db*", "b", 3.0), ("d*", "b", 4.0), ("x", "a", 5.0)];
        let capacity = set("db*", Load::Factor(0.5));
        let groups = all.map(|(pattern, group, maximum)| of_group(pattern, group, maximum));
        let found = Overrides::new(groups.into_iter().chain([capacity])).find("db1");
        let groups: Vec<String> = found.groups.iter().map(|one| format!("{} {}", one.target, one.set_to())).collect();
        assert_eq!(groups, ["the group a of `db1` maximum 1", "the group b of `d*` maximum 4"]);
        assert_eq!(found.capacity.map(|one| one.set_to()).as_deref(), Some("50 %"));
    }

    #[test]
    fn sentence_is_one_line() {
        let told = set("db*", Load::Factor(0.5)).sentence(Amount::clamped(50.0), Amount::clamped(100.0), Millis(1));
        assert_eq!(
            told,
            "The capacity is 50 in place of 100: ada has set `db*` to 50 % for another 9 s, because: a\\nreason."
        );
        let change =
            GroupChange { weight: Some(3), ..GroupChange { maximum: Some(Amount::ZERO), ..Default::default() } };
        let told = Override { value: OverrideValue::Group(change), ..of_group("db*", "a", 0.0) };
        assert_eq!(
            told.sentence_of_group(None, Millis(1)),
            "The group a has a maximum of 0 in place of none and a weight of 3 in place of 1: ada has overridden its rule \
             for `db*` for another 9 s, because: a\\nreason."
        );
    }
}
