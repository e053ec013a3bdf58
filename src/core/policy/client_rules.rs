//! Client rules: the weight, minimum and maximum due of clients, selected by client id.
//!
//! An id is matched when its record is created and when the rules change. The claim stores the rule's number, so the
//! number of rules does not affect the cost of a request.

use std::sync::Arc;

use crate::types::{Amount, Glob, RuleNumber};

#[derive(Debug, Clone, PartialEq)]
pub struct ClientRule {
    /// A client id, or a pattern of client ids.
    pub pattern: Arc<str>,
    glob: Glob,
    /// A client counts as this many clients when capacity is shared.
    pub weight: u32,
    /// Minimum due, if the client wants that much.
    pub min: Amount,
    pub max: Option<Amount>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClientRules(Option<Arc<Vec<ClientRule>>>);

/// Why client rules are invalid in combination with the other settings.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ClientRuleError {
    #[error(
        "`clients` is not allowed with PRIORITY_POOL; remove `clients`, and assign capacity with `leaseway pool set`"
    )]
    OfPool,
    #[error(
        "`clients` gives `{pattern}` a `{field}`, but {kind} does not share capacity between clients; set only `max`"
    )]
    NotShared { pattern: Arc<str>, field: &'static str, kind: &'static str },
    #[error("`clients` gives `{0}` a `min`, but `reserve` is set, too; remove one of the two")]
    WithReserve(Arc<str>),
    #[error("`clients` gives `{pattern}` a `min` of {min}, more than {what} of {most}; lower the `min`")]
    TooMuch { pattern: Arc<str>, min: Amount, what: &'static str, most: Amount },
    #[error("`clients` gives `{pattern}` a `{field}` of {amount}, but `whole_units` is true; use a whole number")]
    NotWhole { pattern: Arc<str>, field: &'static str, amount: Amount },
}

impl ClientRule {
    pub const MAX_WEIGHT: u32 = 1_000;
    /// The format of a rule in the parameters sent to child nodes.
    pub(crate) const EXPECTED: &str = "a weight from 1 to 1000, a minimum, a maximum or `-`, and a pattern";

    /// A rule without effect.
    pub fn new(pattern: &str, glob: Glob) -> ClientRule {
        ClientRule { pattern: pattern.into(), glob, weight: 1, min: Amount::ZERO, max: None }
    }

    pub(crate) fn matches(&self, id: &str) -> bool {
        self.glob.matches(id)
    }

    /// Encodes the rule for child nodes. The pattern comes last, because it may contain spaces.
    pub fn written(&self) -> String {
        let max = self.max.map_or_else(|| "-".to_owned(), |max| max.to_string());
        format!("{} {} {max} {}", self.weight, self.min, self.pattern)
    }

    pub(crate) fn read(text: &str) -> Option<ClientRule> {
        let mut parts = text.splitn(4, ' ');
        let mut next = || parts.next();
        let (weight, min, max, pattern) = (next()?, next()?, next()?, next()?);
        let amount = |text: &str| Amount::new(text.parse().ok()?).ok();
        Some(ClientRule {
            weight: weight.parse().ok().filter(|weight| (1..=Self::MAX_WEIGHT).contains(weight))?,
            min: amount(min)?,
            max: if max == "-" { None } else { Some(amount(max)?) },
            ..ClientRule::new(pattern, Glob::new(pattern).ok()?)
        })
    }

    pub fn in_words(&self) -> String {
        let min = (self.min > Amount::ZERO).then(|| format!("at least {}", self.min));
        let max = self.max.map(|max| format!("at most {max}"));
        let weight = (self.weight != 1).then(|| format!("weight {}", self.weight));
        let all: Vec<String> = [weight, min, max].into_iter().flatten().collect();
        let said = if all.is_empty() { "as any client".to_owned() } else { all.join(", ") };
        format!("{}: {said}", self.pattern)
    }
}

impl ClientRules {
    /// The maximum in a template. A claim stores the number of its rule in one byte.
    pub const MAX_RULES: usize = 100;

    /// Appends a rule. Returns false if the maximum number of rules is reached.
    pub fn push(&mut self, rule: ClientRule) -> bool {
        let rules = Arc::make_mut(self.0.get_or_insert_default());
        let fits = rules.len() < Self::MAX_RULES;
        if fits {
            rules.push(rule);
        }
        fits
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub fn iter(&self) -> impl Iterator<Item = &ClientRule> {
        self.0.iter().flat_map(|rules| rules.iter())
    }

    pub fn get(&self, number: Option<RuleNumber>) -> Option<&ClientRule> {
        self.0.as_ref()?.get(usize::from(number?.get()) - 1)
    }

    /// The number of the rule for a client. An exact id takes precedence over the first matching pattern.
    pub fn number_of(&self, id: &str) -> Option<RuleNumber> {
        let exact = self.iter().position(|rule| &*rule.pattern == id);
        let index = exact.or_else(|| self.iter().position(|rule| rule.glob.matches(id)))?;
        RuleNumber::new(u8::try_from(index + 1).ok()?)
    }

    /// Whether any rule sets a minimum.
    pub(crate) fn have_minimums(&self) -> bool {
        self.iter().any(|rule| rule.min > Amount::ZERO)
    }
}

/// Without a check of their number.
impl FromIterator<ClientRule> for ClientRules {
    fn from_iter<I: IntoIterator<Item = ClientRule>>(rules: I) -> ClientRules {
        let rules: Vec<ClientRule> = rules.into_iter().collect();
        ClientRules((!rules.is_empty()).then(|| rules.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> ClientRule {
        ClientRule::read(text).expect(text)
    }

    fn rules(texts: &[&str]) -> ClientRules {
        let mut rules = ClientRules::default();
        texts.iter().for_each(|text| assert!(rules.push(rule(text))));
        rules
    }

    #[test]
    fn an_exact_id_wins_then_the_first_pattern() {
        let rules = rules(&["1 0 5 batch-*", "2 0 - batch-9", "1 0 7 b*", "3 0 - x y"]);
        let found = |id: &str| rules.get(rules.number_of(id)).map(|rule| rule.pattern.to_string());
        assert_eq!(found("batch-1").as_deref(), Some("batch-*"));
        assert_eq!(found("batch-9").as_deref(), Some("batch-9"));
        assert_eq!(found("bat").as_deref(), Some("b*"));
        assert_eq!(found("x y").as_deref(), Some("x y"), "a pattern may contain spaces");
        assert_eq!(found("web"), None);
    }

    #[test]
    fn rules_round_trip() {
        for text in ["1 0 - *", "1000 2.5 1000000000000000 a/[b-d]?", "1 0 0 \\*"] {
            assert_eq!(rule(text).written(), text);
        }
        for text in ["", "1 0 -", "0 0 - a", "1001 0 - a", "1 -1 - a", "1 0 NaN a", "1 0 - [", "x 0 - a"] {
            assert_eq!(ClientRule::read(text), None, "{text}");
        }
    }
}
