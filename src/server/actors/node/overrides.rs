//! Overrides: what operators have set for a time in place of what templates say, as the quorum keeps it.
//!
//! Every peer looks at it with the facts, so that a new master begins with it, and that it ends by itself: no message
//! and no commit is needed for that.

use std::sync::Arc;

use leaseway_core::{Millis, Override, Overrides};
use leaseway_quorum::KeptOverride;

use super::{super::config_in_force::ConfigInForce, actor::NodeActor};
use crate::changes::{Change, ChangeKind};

impl NodeActor {
    /// Puts in force what the quorum keeps and is not over.
    pub(super) fn follow_overrides(&mut self) {
        let Some(membership) = &self.membership else { return };
        let (unix_ms, known) = (self.clock.unix_ms(), &self.kept_overrides);
        let changed = membership.quorum.read(|facts| {
            let in_force = facts.overrides().iter().filter(|one| one.until_unix_ms > unix_ms);
            (!in_force.clone().eq(known)).then(|| in_force.cloned().collect::<Vec<_>>())
        });
        let Some(in_force) = changed else { return };
        let patterns: Vec<&str> = in_force.iter().map(|one| &*one.pattern).collect();
        tracing::info!(?patterns, "other capacities than templates say are in force");
        self.tell_overrides(&in_force);
        let at = self.clock.at();
        self.overrides = Arc::new(Overrides::new(in_force.iter().map(|kept| of_core(kept, unix_ms, at))));
        self.kept_overrides = in_force;
        let config = ConfigInForce::clone(&self.config());
        self.publish(config);
    }
}

impl NodeActor {
    /// What has come and what is over, for pages.
    fn tell_overrides(&self, in_force: &[KeptOverride]) {
        let missing = |from: &[KeptOverride], one: &KeptOverride| from.iter().all(|other| other.pattern != one.pattern);
        let set = in_force.iter().filter(|one| !self.kept_overrides.contains(one)).map(|one| {
            let set_to = of_core(one, 0, Millis(0)).set_to();
            let what = format!("`{}` is set to {set_to} by {}: {}", one.pattern, one.by, one.why);
            (one, what)
        });
        let over = self.kept_overrides.iter().filter(|one| missing(in_force, one));
        let over = over.map(|one| (one, format!("what was set for `{}` is over", one.pattern)));
        for (one, what) in set.chain(over) {
            let resource = one.pattern.to_string();
            let change = Change { resource, ..Change::new(ChangeKind::Override, what) };
            self.shared.gate.audit().changes().tell(change);
        }
    }
}

fn of_core(kept: &KeptOverride, unix_ms: u64, at: Millis) -> Override {
    Override {
        pattern: Arc::clone(&kept.pattern),
        capacity: kept.capacity,
        above: kept.above,
        ends: at.plus(Millis(kept.until_unix_ms.saturating_sub(unix_ms))),
        by: Arc::clone(&kept.by),
        why: Arc::clone(&kept.why),
    }
}
