//! Overrides: capacities that operators set for a limited time.
//!
//! At a root, an override replaces the template's capacity. Below a parent, it can only lower the capacity that the
//! parent lends. Leases stay valid: capacity that an override cuts becomes free as they expire.
//!
//! The server decides when an override ends and where it is stored.

use std::sync::Arc;

use crate::types::{Amount, Glob, Millis, escaped, readable};

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

/// A capacity that an operator has set for some resources.
#[derive(Debug, Clone, PartialEq)]
pub struct Override {
    /// A resource id, or a pattern of resource ids.
    pub pattern: Arc<str>,
    pub capacity: Load,
    /// Whether the override may exceed the template's capacity.
    pub above: bool,
    /// When it ends, on the clock of the process that runs the resource. For display only.
    pub ends: Millis,
    pub by: Arc<str>,
    pub why: Arc<str>,
}

impl Override {
    /// The capacity that replaces `template`.
    pub fn instead_of(&self, template: Amount) -> Amount {
        let capacity = match self.capacity {
            Load::Capacity(capacity) => capacity,
            Load::Factor(factor) => Amount::clamped(template.get() * factor),
        };
        if self.above { capacity } else { capacity.min(template) }
    }

    /// The capacity as it was set: `40`, or `50 %`.
    pub fn set_to(&self) -> String {
        match self.capacity {
            Load::Capacity(capacity) => readable(capacity.get()),
            Load::Factor(factor) => format!("{} %", readable(factor * 100.0)),
        }
    }

    /// Describes its effect on a resource in a sentence.
    pub fn sentence(&self, capacity: Amount, template: Amount, now: Millis) -> String {
        format!(
            "The capacity is {} in place of {}: {} has set `{}` to {} for another {} s, because: {}.",
            readable(capacity.get()),
            readable(template.get()),
            escaped(&self.by),
            escaped(&self.pattern),
            self.set_to(),
            self.ends.since(now).0.div_ceil(1000),
            escaped(self.why.trim_end_matches('.'))
        )
    }
}

/// All overrides in force, the newest last.
#[derive(Debug, Clone, Default)]
pub struct Overrides(Vec<(Arc<Override>, Option<Glob>)>);

impl Overrides {
    /// Keeps the order. An invalid pattern matches only the identical id.
    pub fn new(overrides: impl IntoIterator<Item = Override>) -> Overrides {
        let checked = |one: Override| {
            let glob = Glob::new(&one.pattern).ok();
            (Arc::new(one), glob)
        };
        Overrides(overrides.into_iter().map(checked).collect())
    }

    /// The override for a resource. One with its exact id takes precedence over the newest matching pattern.
    pub fn find(&self, id: &str) -> Option<&Arc<Override>> {
        let mut newest_first = self.0.iter().rev();
        let exact = newest_first.clone().find(|(one, _)| &*one.pattern == id);
        let matching = || newest_first.find(|(_, glob)| glob.as_ref().is_some_and(|glob| glob.matches(id)));
        exact.or_else(matching).map(|(one, _)| one)
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

    fn set(pattern: &str, capacity: Load) -> Override {
        let (by, why) = ("ada".into(), "a\nreason.".into());
        Override { pattern: pattern.into(), capacity, above: false, ends: Millis(9_001), by, why }
    }

    #[test]
    fn an_exact_id_wins_then_the_newest_pattern() {
        let all = [("db*", 0.1), ("db1", 0.2), ("d*", 0.3), ("[", 0.4)];
        let overrides = Overrides::new(all.map(|(pattern, factor)| set(pattern, Load::Factor(factor))));
        let found = |id: &str| overrides.find(id).map(|one| one.pattern.to_string());
        assert_eq!(found("db1").as_deref(), Some("db1"));
        assert_eq!(found("db2").as_deref(), Some("d*"), "the newest matching pattern");
        assert_eq!(found("[").as_deref(), Some("["), "an invalid pattern is an id");
        assert_eq!((found("x"), overrides.len()), (None, 4));
    }

    #[test]
    fn sentence_is_one_line() {
        let told = set("db*", Load::Factor(0.5)).sentence(Amount::clamped(50.0), Amount::clamped(100.0), Millis(1));
        assert_eq!(
            told,
            "The capacity is 50 in place of 100: ada has set `db*` to 50 % for another 9 s, because: a\\nreason."
        );
    }
}
