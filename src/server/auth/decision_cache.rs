//! A cache of decisions, so that a request costs one lookup per entry.
//!
//! A slot is one number: part of the hash of a question, and the highest allowed priority. A new decision overwrites
//! the slot. There is no lock, and the table never grows. The hash has a random key per process, so a caller cannot
//! search for two questions that collide in all bits. The version of the policy is part of the question, so no decision
//! outlives its policy.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use leaseway_core::policy::access::{Action, Identity};

/// Number of cached decisions: half a megabyte.
const SLOTS: usize = 1 << 16;
/// The lower bits of a slot hold the decision.
const VALUE_BITS: u32 = 17;
/// The value for: denied at any priority.
const DENIED: u64 = 1;
/// The value for the lowest priority. 0 is an empty slot.
const LOWEST: u64 = 2;

/// Version of the policy, caller, action, holder and resource.
pub(super) type Question<'a> = (u64, &'a Identity, Action, &'a str, &'a str);

pub(super) struct DecisionCache {
    hashes: RandomState,
    /// Allocated by the first decision.
    slots: OnceLock<Box<[AtomicU64]>>,
}

impl DecisionCache {
    pub(super) fn new() -> DecisionCache {
        DecisionCache { hashes: RandomState::new(), slots: OnceLock::new() }
    }

    /// The highest allowed priority, cached or decided now. `None` if denied.
    pub(super) fn get(&self, question: Question<'_>, decide: impl FnOnce() -> Option<i16>) -> Option<i16> {
        let slots = self.slots.get_or_init(|| std::iter::repeat_with(AtomicU64::default).take(SLOTS).collect());
        let hash = self.hashes.hash_one(question);
        let slot = &slots[hash as usize % SLOTS];
        let tag = hash >> VALUE_BITS << VALUE_BITS;
        let known = slot.load(Ordering::Relaxed);
        let value = known & ((1 << VALUE_BITS) - 1);
        if value != 0 && known - value == tag {
            return ceiling(value);
        }
        let decided = decide();
        slot.store(tag | encoded(decided), Ordering::Relaxed);
        decided
    }
}

fn encoded(ceiling: Option<i16>) -> u64 {
    ceiling.map_or(DENIED, |ceiling| LOWEST + u64::from(ceiling.abs_diff(i16::MIN)))
}

fn ceiling(value: u64) -> Option<i16> {
    let above = value.checked_sub(LOWEST)?;
    i16::try_from(i64::from(i16::MIN) + above as i64).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_decision_is_cached_unchanged() {
        for decided in [None, Some(i16::MIN), Some(-1), Some(0), Some(7), Some(i16::MAX)] {
            assert_eq!(ceiling(encoded(decided)), decided);
            assert!(encoded(decided) >> VALUE_BITS == 0 && encoded(decided) != 0);
            let cache = DecisionCache::new();
            let question = (1, &Identity::Anonymous, Action::Ask, "alice", "db");
            assert_eq!(cache.get(question, || decided), decided);
            assert_eq!(cache.get(question, || panic!("it is cached")), decided);
        }
    }

    #[test]
    fn different_questions_are_decided_separately() {
        let cache = DecisionCache::new();
        let web = Identity::named("web").expect("a name");
        let base = (1, &web, Action::Ask, "a", "bc");
        assert_eq!(cache.get(base, || Some(1)), Some(1));
        let others = [
            (2, &web, Action::Ask, "a", "bc"),
            (1, &Identity::Anonymous, Action::Ask, "a", "bc"),
            (1, &web, Action::Lend, "a", "bc"),
            (1, &web, Action::Ask, "ab", "c"),
            (1, &web, Action::Ask, "a", "bd"),
        ];
        for other in others {
            assert_eq!(cache.get(other, || None), None, "{other:?}");
        }
    }

    #[test]
    fn more_decisions_than_slots_are_correct() {
        let cache = DecisionCache::new();
        for round in 0..2 {
            for n in 0..2 * SLOTS {
                let (resource, decided) = (n.to_string(), (n % 3 != 0).then_some((n % 100) as i16));
                let question = (1, &Identity::Anonymous, Action::Ask, "alice", resource.as_str());
                assert_eq!(cache.get(question, || decided), decided, "round {round}, {n}");
            }
        }
    }
}
