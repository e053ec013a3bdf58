//! Capacities that operators have set for a time: as they are remembered.

use std::sync::Arc;

use leaseway_core::Load;
use serde::{Deserialize, Serialize};

/// A capacity that an operator has set for some resources, in place of what their templates say.
///
/// It ends by the clock on the wall, so that it means the same to all peers, and after all of them were down.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptOverride {
    /// How much there is, or which part of what there would be.
    pub capacity: Load,
    /// Whether it may be more than the template says.
    pub above: bool,
    /// Since when, in milliseconds since the epoch.
    pub from_unix_ms: u64,
    pub until_unix_ms: u64,
    /// The operator, for people.
    pub by: Arc<str>,
    /// The reason, for people.
    pub why: Arc<str>,
}

/// Puts an override at the end of all, in place of an earlier one for the same pattern, or takes that away. Those that
/// are over when a new one begins are forgotten.
pub(crate) fn apply(overrides: &mut Vec<(Arc<str>, KeptOverride)>, pattern: &Arc<str>, set: Option<&KeptOverride>) {
    let now = set.map_or(0, |set| set.from_unix_ms);
    overrides.retain(|(other, one)| other != pattern && one.until_unix_ms > now);
    overrides.extend(set.map(|set| (Arc::clone(pattern), set.clone())));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_comes_last_and_those_that_are_over_are_forgotten() {
        let mut all = Vec::new();
        let mut put = |pattern: &str, from_unix_ms, until_unix_ms| {
            let set = KeptOverride {
                capacity: Load::Factor(0.5),
                above: false,
                from_unix_ms,
                until_unix_ms,
                by: "ada".into(),
                why: "a test".into(),
            };
            apply(&mut all, &pattern.into(), Some(&set));
            all.iter().map(|(pattern, _)| pattern.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(put("a", 0, 100), ["a"]);
        assert_eq!(put("b", 10, 50), ["a", "b"]);
        assert_eq!(put("a", 20, 300), ["b", "a"]);
        assert_eq!(put("c", 50, 300), ["a", "c"]);
        apply(&mut all, &"a".into(), None);
        apply(&mut all, &"unknown".into(), None);
        assert_eq!(all.iter().map(|(pattern, _)| &**pattern).collect::<Vec<_>>(), ["c"]);
    }
}
