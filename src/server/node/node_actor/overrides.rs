//! Overrides: what operators have set for a time in place of what templates say, as the quorum keeps it.
//!
//! Every peer looks at it with the facts, so that a new master begins with it, and that it ends by itself: no message
//! and no commit is needed for that.

use std::sync::Arc;

use leaseway_core::{Millis, Override, Overrides};
use leaseway_raft::KeptOverride;

use super::{super::config_in_force::ConfigInForce, actor::NodeActor};
use crate::observe::changes::{Change, ChangeKind};

/// For which resources, and what.
type Kept = (Arc<str>, KeptOverride);

impl NodeActor {
    /// Puts in force what the quorum keeps and is not over.
    pub(super) fn follow_overrides(&mut self) {
        let Some(membership) = &self.membership else { return };
        let (unix_ms, known) = (self.clock.unix_ms(), &self.kept_overrides);
        let changed = membership.quorum.read(|state| {
            let in_force = state.overrides_in_force(unix_ms);
            (!in_force.clone().eq(known)).then(|| in_force.cloned().collect::<Vec<_>>())
        });
        let Some(in_force) = changed else { return };
        let patterns: Vec<&str> = in_force.iter().map(|(pattern, _)| &**pattern).collect();
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
    fn tell_overrides(&self, in_force: &[Kept]) {
        let is_over = |(pattern, _): &&Kept| in_force.iter().all(|(other, _)| other != pattern);
        let set = in_force.iter().filter(|one| !self.kept_overrides.contains(one)).map(|one| {
            let set_to = of_core(one, 0, Millis(0)).set_to();
            let (pattern, kept) = one;
            (pattern, format!("`{pattern}` is set to {set_to} by {}: {}", kept.by, kept.why))
        });
        let over = self.kept_overrides.iter().filter(is_over);
        let over = over.map(|(pattern, _)| (pattern, format!("what was set for `{pattern}` is over")));
        for (pattern, what) in set.chain(over) {
            let resource = pattern.to_string();
            let change = Change { resource, ..Change::new(ChangeKind::Override, what) };
            self.shared.authorizer.audit().changes().tell(change);
        }
    }
}

fn of_core((pattern, kept): &Kept, unix_ms: u64, at: Millis) -> Override {
    Override {
        pattern: Arc::clone(pattern),
        capacity: kept.capacity,
        above: kept.above,
        ends: at.plus(Millis(kept.until_unix_ms.saturating_sub(unix_ms))),
        by: Arc::clone(&kept.by),
        why: Arc::clone(&kept.why),
    }
}
