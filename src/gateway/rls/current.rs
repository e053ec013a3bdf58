//! The rules in force. A request looks at one number that rarely changes, and takes no lock: each thread keeps what it
//! has seen.

use std::{
    cell::RefCell,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use super::rules::Rules;

/// Versions of all rules of this process: two never share one.
static VERSIONS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static SEEN: RefCell<Option<(u64, Arc<Rules>)>> = const { RefCell::new(None) };
}

/// The rules in force.
#[derive(Debug)]
pub struct CurrentRules {
    version: AtomicU64,
    newest: Mutex<(u64, Arc<Rules>)>,
}

impl CurrentRules {
    /// These, to begin with.
    pub fn new(rules: Rules) -> CurrentRules {
        let version = VERSIONS.fetch_add(1, Ordering::Relaxed);
        CurrentRules { version: AtomicU64::new(version), newest: Mutex::new((version, Arc::new(rules))) }
    }

    /// Puts others in force.
    pub fn replace(&self, rules: Rules) {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        *newest = (VERSIONS.fetch_add(1, Ordering::Relaxed), Arc::new(rules));
        self.version.store(newest.0, Ordering::Release);
    }

    /// Does something by the rules in force. It must not come back here.
    pub fn with<R>(&self, act: impl FnOnce(&Rules) -> R) -> R {
        let version = self.version.load(Ordering::Acquire);
        SEEN.with_borrow_mut(|seen| match seen {
            Some((known, rules)) if *known == version => act(rules),
            seen => {
                let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let (_, rules) = seen.insert(newest);
                act(rules)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_sees_the_newest_rules_of_whichever_gateway_it_serves() {
        let (one, other) = (CurrentRules::new(Rules::default()), CurrentRules::new(Rules::default()));
        let at = |rules: &CurrentRules| rules.with(std::ptr::from_ref::<Rules>).addr();
        assert_ne!(at(&one), at(&other));
        let before = at(&one);
        assert_eq!(before, at(&one));
        let kept = one.newest.lock().expect("no panic").1.clone();
        one.replace(Rules::default());
        assert_ne!(at(&one), std::ptr::from_ref::<Rules>(&kept).addr());
    }
}
