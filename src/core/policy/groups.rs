//! Groups of clients: capacity is divided between groups first, then between the members of each.
//!
//! The group of a client follows from its id. A [`GroupPattern`] such as `{org}/{team}/*` names the parts of an id that
//! are the levels: the client `acme/web/host-1` is in the group `acme/web`, which is in the group `acme`. Rules give
//! groups a weight, a minimum and a maximum.

use std::sync::Arc;

use crate::{
    policy::client_rules::{ClientRule, ClientRules},
    types::{Amount, Glob, RuleNumber, readable},
};

/// The group of clients whose id does not match the pattern, of child nodes, and of clients beyond
/// [`GroupSettings::MAX_GROUPS`].
pub const OTHER_GROUP: &str = "(other)";

/// How the clients of a resource are grouped.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupSettings {
    pub from: GroupPattern,
    rules: Vec<GroupRule>,
}

/// The rule of a group, or of all groups whose path matches a pattern.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupRule {
    /// The path of the group or its pattern, and its weight, minimum and maximum.
    pub limits: ClientRule,
    /// Whether others may have the part of the minimum that the group does not want.
    pub lends: bool,
}

/// The parts of a rule for a group that change. The others stay as in the template.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct GroupChange {
    pub weight: Option<u32>,
    pub minimum: Option<Amount>,
    pub maximum: Option<Amount>,
}

impl GroupChange {
    fn apply(&self, rule: &mut GroupRule) {
        let limits = &mut rule.limits;
        limits.weight = self.weight.unwrap_or(limits.weight);
        limits.min = self.minimum.unwrap_or(limits.min);
        limits.max = self.maximum.or(limits.max);
    }

    /// The names and values of the changed parts.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (&'static str, String)> {
        let amount = |amount: Amount| readable(amount.get());
        let (minimum, maximum) = (self.minimum.map(amount), self.maximum.map(amount));
        let weight = self.weight.map(|weight| weight.to_string());
        let all = [("maximum", maximum), ("minimum", minimum), ("weight", weight)];
        all.into_iter().filter_map(|(name, value)| Some((name, value?)))
    }

    /// As a phrase: `maximum 40, weight 2`.
    pub fn in_words(&self) -> String {
        self.parts().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
    }
}

/// The parts of a client id that name its groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupPattern {
    text: Arc<str>,
    parts: Vec<PatternPart>,
    levels: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum PatternPart {
    Literal(String),
    /// At least one character, none of them `/`, up to the literal that follows: a level, or text that is skipped.
    Text {
        is_level: bool,
    },
    /// The rest of the id.
    Rest,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GroupPatternError {
    #[error("it has no level; put braces around the part of a client id that names the group, like `{{team}}/*`")]
    NoLevel,
    #[error("it has more than {} levels, the maximum", GroupPattern::MAX_LEVELS)]
    TooManyLevels,
    #[error("`{{` is never closed by `}}`")]
    Unclosed,
    #[error("`}}` has no `{{` before it")]
    Unopened,
    #[error("`{{{0}}}` is not a name; use letters, digits and `_`")]
    BadName(String),
    #[error("`{{{0}}}` appears twice; give each level its own name")]
    Twice(String),
    #[error("nothing separates two levels; write text such as `/` or `:` between them")]
    Adjacent,
    #[error("`{0}` is not supported in group patterns; only `{{name}}` and `*` are")]
    BadCharacter(char),
}

/// Why groups are invalid in combination with the other settings.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum GroupError {
    #[error(
        "`groups` needs FAIR_SHARE, PROPORTIONAL_SHARE, or BUDGET with `pace: true`, but the algorithm is {0}; change \
         the algorithm, or remove `groups`"
    )]
    NotShared(&'static str),
    #[error(
        "`groups` gives `{0}` a `minimum` or `maximum`, but groups of a BUDGET have only a `weight`; remove the \
         `minimum` and `maximum`"
    )]
    OfShares(Arc<str>),
    #[error("`groups` gives `{group}` a `minimum` of {minimum}, more than {what} of {most}; lower the `minimum`")]
    TooMuch { group: Arc<str>, minimum: Amount, what: &'static str, most: Amount },
    #[error("`groups` gives `{group}` a `{field}` of {amount}, but `whole_units` is true; use a whole number")]
    NotWhole { group: Arc<str>, field: &'static str, amount: Amount },
    #[error(
        "the rule of `groups` for `{group}` matches no group: it has {parts} parts, but `from` has only {levels} \
         levels; shorten the rule, or add levels to `from`"
    )]
    TooDeep { group: Arc<str>, parts: usize, levels: usize },
    #[error("`groups` has `lend: false` for `{0}`, but no `minimum` to reserve; set a `minimum`, or remove `lend`")]
    NothingToKeep(Arc<str>),
    #[error(
        "`groups` has `lend: false` for the pattern `{0}`, but a minimum can be reserved only for a single group; \
         write the path of one group, or remove `lend`"
    )]
    KeepsOfPattern(Arc<str>),
    #[error(
        "the first-level `groups` have minimums of {sum} in all, more than the capacity of {capacity}; lower a \
         `minimum`"
    )]
    Oversubscribed { sum: Amount, capacity: Amount },
}

impl GroupSettings {
    /// The maximum number of groups of one resource, at all levels. [`OTHER_GROUP`] is not counted.
    pub const MAX_GROUPS: usize = 10_000;
    /// The same for a node with a parent, which it reports its groups to.
    pub const MAX_GROUPS_OF_CHILD: usize = 1_000;
    /// The maximum number of slices in a report to a parent, over all groups.
    pub const MAX_GROUP_SLICES: usize = 4_000;
    /// The maximum number of rules in a template, as for client rules.
    pub const MAX_RULES: usize = ClientRules::MAX_RULES;
    /// The maximum with the rules that overrides add. A group stores the number of its rule in one byte.
    const MAX_RULES_IN_FORCE: usize = 250;

    pub fn new(from: GroupPattern) -> GroupSettings {
        GroupSettings { from, rules: Vec::new() }
    }

    /// Appends a rule. Returns false if the maximum number of rules is reached.
    pub fn push(&mut self, rule: GroupRule) -> bool {
        let fits = self.rules.len() < Self::MAX_RULES_IN_FORCE;
        if fits {
            self.rules.push(rule);
        }
        fits
    }

    /// These settings with parts of the rules of some groups, given by their paths, changed by overrides.
    pub(crate) fn overridden<'c>(
        &self,
        changes: impl Iterator<Item = (&'c Arc<str>, &'c GroupChange)>,
    ) -> GroupSettings {
        let mut overridden = self.clone();
        for (path, change) in changes {
            let Ok(glob) = Glob::new(path) else { continue };
            let mut limits = ClientRule::new(path, glob);
            let known = self.rule_for(path);
            if let Some(known) = known.map(|known| &known.limits) {
                (limits.weight, limits.min, limits.max) = (known.weight, known.min, known.max);
            }
            let mut rule = GroupRule { limits, lends: known.is_none_or(|known| known.lends) };
            change.apply(&mut rule);
            match overridden.rules.iter_mut().find(|known| known.limits.pattern == *path) {
                Some(known) => *known = rule,
                None => _ = overridden.push(rule),
            }
        }
        overridden
    }

    /// Rounds amounts to whole units, and lowers minimums to maximums.
    pub(crate) fn made_possible(mut self, whole_units: bool) -> GroupSettings {
        for limits in self.rules.iter_mut().map(|rule| &mut rule.limits) {
            if whole_units {
                (limits.min, limits.max) = (limits.min.floor(), limits.max.map(Amount::floor));
            }
            limits.min = limits.max.map_or(limits.min, |max| limits.min.min(max));
        }
        self
    }

    /// The rule for the group at `path`.
    pub(crate) fn rule_for(&self, path: &str) -> Option<&GroupRule> {
        self.rule(self.number_of(path))
    }

    pub fn rules(&self) -> &[GroupRule] {
        &self.rules
    }

    pub(crate) fn rule(&self, number: Option<RuleNumber>) -> Option<&GroupRule> {
        self.rules.get(usize::from(number?.get()) - 1)
    }

    /// The number of the rule for the group at `path`. Its exact path takes precedence over the first matching pattern.
    pub(crate) fn number_of(&self, path: &str) -> Option<RuleNumber> {
        let exact = self.rules.iter().position(|rule| &*rule.limits.pattern == path);
        // A lone `*` would match groups of all levels.
        let fits = |rule: &GroupRule| parts_of(&rule.limits.pattern) == parts_of(path) && rule.limits.matches(path);
        let index = exact.or_else(|| self.rules.iter().position(fits))?;
        RuleNumber::new(u8::try_from(index + 1).ok()?)
    }

    /// The limits of all groups as client rules with the same numbers. A group acts towards its parent like a client.
    pub(crate) fn limits(&self) -> ClientRules {
        self.rules.iter().map(|rule| rule.limits.clone()).collect()
    }

    /// The weights of all groups as client rules. The other limits are for the whole tree, so only the root applies
    /// them.
    pub(crate) fn weights(&self) -> ClientRules {
        let weight = |rule: &GroupRule| {
            let mut weight = rule.limits.clone();
            (weight.min, weight.max) = (Amount::ZERO, None);
            weight
        };
        self.rules.iter().map(weight).collect()
    }

    /// The paths of the groups whose minimum is kept from others, also while they have no client.
    pub(crate) fn kept(&self) -> impl Iterator<Item = &str> {
        let paths = self.rules.iter().map(|rule| &*rule.limits.pattern);
        paths.filter(|path| self.rule_for(path).is_some_and(|rule| !rule.lends))
    }

    /// Validates the rules for this capacity.
    pub(crate) fn check(&self, capacity: Amount, whole_units: bool) -> Result<(), GroupError> {
        self.rules.iter().try_for_each(|rule| self.check_rule(rule, capacity, whole_units))?;
        let first_level = |rule: &&GroupRule| parts_of(&rule.limits.pattern) == 1 && rule.names_one_group();
        let minimums = self.rules.iter().filter(first_level).map(|rule| rule.limits.min);
        let sum = minimums.fold(Amount::ZERO, Amount::saturating_add);
        if sum > capacity { Err(GroupError::Oversubscribed { sum, capacity }) } else { Ok(()) }
    }

    /// Validates the rules for a budget, whose groups have weights only.
    pub(crate) fn check_weights(&self) -> Result<(), GroupError> {
        let has_amounts = |rule: &&GroupRule| rule.limits.min > Amount::ZERO || rule.limits.max.is_some();
        let limited = self.rules.iter().find(has_amounts).map(|rule| Arc::clone(&rule.limits.pattern));
        limited.map_or(Ok(()), |group| Err(GroupError::OfShares(group)))
    }

    fn check_rule(&self, rule: &GroupRule, capacity: Amount, whole_units: bool) -> Result<(), GroupError> {
        let (minimum, maximum) = (rule.limits.min, rule.limits.max);
        let group = || Arc::clone(&rule.limits.pattern);
        let parts = parts_of(&rule.limits.pattern);
        if parts > self.from.levels {
            return Err(GroupError::TooDeep { group: group(), parts, levels: self.from.levels });
        }
        for (what, most) in [("its `maximum`", maximum), ("the capacity", Some(capacity))] {
            if let Some(most) = most.filter(|most| *most < minimum) {
                return Err(GroupError::TooMuch { group: group(), minimum, what, most });
            }
        }
        let amounts = [("minimum", minimum), ("maximum", maximum.unwrap_or_default())];
        if let Some((field, amount)) = amounts.into_iter().find(|(_, amount)| whole_units && *amount != amount.floor())
        {
            return Err(GroupError::NotWhole { group: group(), field, amount });
        }
        match rule.lends {
            false if minimum == Amount::ZERO => Err(GroupError::NothingToKeep(group())),
            false if !rule.names_one_group() => Err(GroupError::KeepsOfPattern(group())),
            _ => Ok(()),
        }
    }

    pub fn in_words(&self) -> String {
        let rules = self.rules.iter().map(|rule| {
            let kept = if rule.lends { "" } else { ", kept from others" };
            format!("; {}{kept}", rule.limits.in_words().replace("as any client", "as any group"))
        });
        format!("from {}{}", self.from.text, rules.collect::<String>())
    }
}

impl GroupRule {
    /// The format of a rule in the parameters sent to child nodes.
    pub(crate) const EXPECTED: &str = "`lend` or `keep`, and a rule as for clients; after the pattern of groups";

    /// Encodes the rule for child nodes.
    pub(crate) fn written(&self) -> String {
        format!("{} {}", if self.lends { "lend" } else { "keep" }, self.limits.written())
    }

    pub(crate) fn read(text: &str) -> Option<GroupRule> {
        let (lends, limits) = match text.split_once(' ')? {
            ("lend", limits) => (true, limits),
            ("keep", limits) => (false, limits),
            _ => return None,
        };
        Some(GroupRule { limits: ClientRule::read(limits)?, lends })
    }

    fn names_one_group(&self) -> bool {
        !self.limits.pattern.contains(['*', '?', '[', '\\'])
    }
}

fn parts_of(path: &str) -> usize {
    path.split('/').count()
}

impl GroupPattern {
    pub(crate) const EXPECTED: &str = "the parts of a client id that name its groups, such as {org}/{team}/*";
    pub const MAX_LEVELS: usize = 4;

    pub fn new(text: &str) -> Result<GroupPattern, GroupPatternError> {
        let mut parts: Vec<PatternPart> = Vec::new();
        let mut names: Vec<&str> = Vec::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            rest = &rest[first.len_utf8()..];
            let part = match first {
                '{' => {
                    let (name, after) = rest.split_once('}').ok_or(GroupPatternError::Unclosed)?;
                    rest = after;
                    check_name(name, &names)?;
                    names.push(name);
                    PatternPart::Text { is_level: true }
                }
                '*' if rest.is_empty() => PatternPart::Rest,
                '*' => PatternPart::Text { is_level: false },
                '}' => return Err(GroupPatternError::Unopened),
                '?' | '[' | ']' | '\\' => return Err(GroupPatternError::BadCharacter(first)),
                literal => {
                    match parts.last_mut() {
                        Some(PatternPart::Literal(text)) => text.push(literal),
                        _ => parts.push(PatternPart::Literal(literal.into())),
                    }
                    continue;
                }
            };
            if matches!(parts.last(), Some(PatternPart::Text { .. })) {
                return Err(GroupPatternError::Adjacent);
            }
            parts.push(part);
        }
        match names.len() {
            0 => Err(GroupPatternError::NoLevel),
            levels if levels > Self::MAX_LEVELS => Err(GroupPatternError::TooManyLevels),
            levels => Ok(GroupPattern { text: text.into(), parts, levels }),
        }
    }

    /// The number of levels, at least one.
    pub fn levels(&self) -> usize {
        self.levels
    }

    /// The names of the groups of a client, from the first level down. `None` if the id does not match.
    pub fn groups_of<'i>(&self, id: &'i str) -> Option<Vec<&'i str>> {
        let mut groups = Vec::with_capacity(self.levels);
        let mut rest = id;
        for (at, part) in self.parts.iter().enumerate() {
            match part {
                PatternPart::Literal(text) => rest = rest.strip_prefix(text.as_str())?,
                PatternPart::Text { is_level } => {
                    let end = match self.parts.get(at + 1) {
                        Some(PatternPart::Literal(text)) => {
                            // At least one character is before the literal.
                            let first = rest.chars().next()?.len_utf8();
                            first + rest[first..].find(text.as_str())?
                        }
                        _ => rest.len(),
                    };
                    let (text, after) = rest.split_at(end);
                    if text.is_empty() || text.contains('/') {
                        return None;
                    }
                    if *is_level {
                        groups.push(text);
                    }
                    rest = after;
                }
                PatternPart::Rest => rest = "",
            }
        }
        rest.is_empty().then_some(groups)
    }
}

impl std::fmt::Display for GroupPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

fn check_name(name: &str, before: &[&str]) -> Result<(), GroupPatternError> {
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Err(GroupPatternError::BadName(name.to_owned()));
    }
    if before.contains(&name) { Err(GroupPatternError::Twice(name.to_owned())) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        policy::settings::{AlgorithmKind, Settings},
        types::Glob,
    };

    pub(crate) fn rule(pattern: &str, weight: u32, min: f64, max: Option<f64>, lends: bool) -> GroupRule {
        let mut limits = ClientRule::new(pattern, Glob::new(pattern).expect("a valid pattern"));
        (limits.weight, limits.min, limits.max) = (weight, Amount::clamped(min), max.map(Amount::clamped));
        GroupRule { limits, lends }
    }

    fn settings(from: &str, rules: Vec<GroupRule>) -> GroupSettings {
        let mut settings = GroupSettings::new(GroupPattern::new(from).expect(from));
        rules.into_iter().for_each(|rule| assert!(settings.push(rule)));
        settings
    }

    #[test]
    fn groups_are_parts_of_the_client_id() {
        for (pattern, id, groups) in [
            ("{org}/{team}/*", "acme/web/host/1", Some(&["acme", "web"][..])),
            ("{org}/{team}/*", "acme/web/", Some(&["acme", "web"])),
            ("{org}/{team}/*", "acme/web", None),
            ("{org}/{team}/*", "acme//x", None),
            ("{org}/{team}", "acme/web", Some(&["acme", "web"])),
            ("{org}/{team}", "acme/web/x", None),
            ("{team}:*", "web:1", Some(&["web"])),
            ("{team}:*", "web", None),
            ("{team}-{n}", "a-b-1", Some(&["a", "b-1"])),
            ("eu.*.{team}", "eu.x.web", Some(&["web"])),
            ("eu.*.{team}", "us.x.web", None),
            ("{tenant}", "a/b", None),
            ("{a}::{b}", "x:::y", Some(&["x", ":y"])),
            ("{a}:*", ":::", Some(&[":"])),
            ("{a}/*", "ä/b", Some(&["ä"])),
        ] {
            let found = GroupPattern::new(pattern).expect(pattern).groups_of(id);
            assert_eq!(found.as_deref(), groups, "{pattern} of {id}");
        }
    }

    #[test]
    fn bad_patterns_are_named() {
        for (pattern, error) in [
            ("*", GroupPatternError::NoLevel),
            ("", GroupPatternError::NoLevel),
            ("{a}/{b}/{c}/{d}/{e}", GroupPatternError::TooManyLevels),
            ("{a", GroupPatternError::Unclosed),
            ("a}", GroupPatternError::Unopened),
            ("{}", GroupPatternError::BadName(String::new())),
            ("{a b}", GroupPatternError::BadName("a b".into())),
            ("{a}/{a}", GroupPatternError::Twice("a".into())),
            ("{a}{b}", GroupPatternError::Adjacent),
            ("{a}*", GroupPatternError::Adjacent),
            ("{a}/[b]", GroupPatternError::BadCharacter('[')),
        ] {
            assert_eq!(GroupPattern::new(pattern), Err(error), "{pattern}");
        }
    }

    #[test]
    fn a_rule_matches_groups_of_one_level_only() {
        let of = |name| rule(name, 1, 0.0, None, true);
        let settings = settings("{org}/{team}/*", vec![of("a*"), of("*"), of("acme/*"), of("acme")]);
        let found = |path: &str| settings.number_of(path).map(RuleNumber::get);
        assert_eq!(found("acme"), Some(4), "the exact path goes first");
        assert_eq!(found("apex"), Some(1));
        assert_eq!(found("zeta"), Some(2));
        assert_eq!(found("acme/web"), Some(3));
        assert_eq!(found("zeta/web"), None);
    }

    #[test]
    fn groups_are_sent_to_child_nodes_as_parameters() {
        let rules = vec![rule("a b", 3, 0.5, Some(4.0), false), rule("*/x", 1, 0.0, None, true)];
        let mut sent = Settings::new(AlgorithmKind::FairShare, Amount::ZERO);
        sent.groups = Some(settings("{org}/{team}/*", rules).into());
        let parameters = sent.parameters();
        let text = |n: usize| format!("{} {}", parameters[n].name, parameters[n].value.as_deref().unwrap_or_default());
        assert_eq!([0, 1, 2].map(text), ["groups {org}/{team}/*", "group keep 3 0.5 4 a b", "group lend 1 0 - */x"]);
        let mut received = Settings::new(AlgorithmKind::FairShare, Amount::ZERO);
        for parameter in &parameters {
            received.apply(parameter).expect("valid");
        }
        assert_eq!(received, sent);
        let mut alone = Settings::new(AlgorithmKind::FairShare, Amount::ZERO);
        let error = alone.apply(&parameters[1]).expect_err("a rule without a pattern").to_string();
        assert!(error.contains("`group` is `keep 3 0.5 4 a b`"), "{error}");
    }

    #[test]
    fn impossible_rules_are_refused() {
        let check = |rules: Vec<GroupRule>| {
            let error = settings("{org}/{team}/*", rules).check(Amount::clamped(100.0), true);
            error.map_err(|error| error.to_string())
        };
        assert_eq!(check(vec![rule("a", 3, 20.0, Some(40.0), false), rule("b/c", 1, 0.0, None, true)]), Ok(()));
        for (rules, says) in [
            (vec![rule("a", 1, 50.0, Some(40.0), true)], "more than its `maximum` of 40"),
            (vec![rule("a*", 1, 101.0, None, true)], "more than the capacity of 100"),
            (vec![rule("a", 1, 2.5, None, true)], "`minimum` of 2.5"),
            (vec![rule("a", 1, 0.0, Some(2.5), true)], "`maximum` of 2.5"),
            (vec![rule("a/b/c", 1, 0.0, None, true)], "3 parts"),
            (vec![rule("a", 1, 0.0, None, false)], "set a `minimum`"),
            (vec![rule("a*", 1, 5.0, None, false)], "for the pattern `a*`"),
            (vec![rule("a", 1, 60.0, None, true), rule("b", 1, 50.0, None, true)], "minimums of 110 in all"),
        ] {
            let error = check(rules).expect_err(says);
            assert!(error.contains(says) && error.contains("`groups`"), "{error}");
        }
    }
}
