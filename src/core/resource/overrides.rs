//! The overrides of a resource and of its groups.

use std::sync::Arc;

use crate::{
    planted::{self, Fault},
    policy::{
        groups::{GroupRule, GroupSettings},
        overrides::{Override, ResourceOverrides},
        settings::Settings,
    },
    resource::Resource,
    types::{Amount, Millis},
};

/// The effect of an override on the capacity of a resource.
#[derive(Debug, Clone, PartialEq)]
pub struct Overridden {
    pub by: Arc<Override>,
    pub capacity: Amount,
    /// The capacity without the override: that of the template, with what was carried over, or of the parent's lease.
    pub template: Amount,
}

impl Overridden {
    pub fn sentence(&self, now: Millis) -> String {
        self.by.sentence(self.capacity, self.template, now)
    }
}

/// The effect of an override on a group.
#[derive(Debug, Clone, PartialEq)]
pub struct OverriddenGroup {
    pub by: Arc<Override>,
    /// The path of the group.
    pub group: Arc<str>,
    /// The rule of the template for it, if there is one.
    pub template: Option<GroupRule>,
}

impl OverriddenGroup {
    pub fn sentence(&self, now: Millis) -> String {
        self.by.sentence_of_group(self.template.as_ref(), now)
    }
}

/// The overrides of the groups of a resource.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct GroupOverrides {
    by: ResourceOverrides,
    /// The groups of the template.
    template: Arc<GroupSettings>,
}

impl GroupOverrides {
    /// Replaces the rules of the template. `None` if there are no overrides or no groups.
    pub(super) fn put_into(by: ResourceOverrides, settings: &mut Arc<Settings>) -> Option<Box<GroupOverrides>> {
        let template = settings.groups.clone().filter(|_| !by.groups.is_empty())?;
        let rules = by.rules(&template, settings.whole_units);
        Arc::make_mut(settings).groups = Some(rules.into());
        Some(Box::new(GroupOverrides { by, template }))
    }

    pub(super) fn reapply(self, settings: &mut Arc<Settings>) -> Option<Box<GroupOverrides>> {
        GroupOverrides::put_into(self.by, settings)
    }
}

impl Resource {
    /// Sets all overrides in place of earlier ones. Leases stay, and capacity that is cut becomes free as they end.
    /// Below a parent, the groups stay those of the parent.
    pub fn set_overrides(&mut self, now: Millis, mut overrides: ResourceOverrides) {
        self.override_capacity(now, overrides.capacity.take());
        self.override_groups(overrides);
    }

    fn override_capacity(&mut self, now: Millis, overridden: Option<Arc<Override>>) {
        if self.capacity_inputs.overridden == overridden {
            return;
        }
        self.capacity_inputs.overridden = overridden;
        let before = self.settings.capacity;
        self.update_capacity();
        if planted::is(Fault::CutLowersUnclaimed) {
            let change = self.book.cap_unclaimed(self.settings.capacity);
            self.apply_change(change);
        }
        if self.book.has_inherited() && self.is_learning(now) && !planted::is(Fault::RaiseIsFree) {
            // Earlier masters may have granted the difference.
            self.raise_unclaimed(before);
        }
    }

    fn override_groups(&mut self, by: ResourceOverrides) {
        let before = self.group_overrides.take();
        if self.has_parent() || before.is_none() && by.groups.is_empty() {
            return;
        }
        let mut settings = Arc::clone(&self.settings);
        if let Some(before) = before {
            Arc::make_mut(&mut settings).groups = Some(before.template);
        }
        self.group_overrides = GroupOverrides::put_into(by, &mut settings);
        if settings != self.settings {
            self.put_in_force(settings);
        }
    }

    /// The overrides of its groups.
    pub fn overridden_groups(&self) -> Vec<OverriddenGroup> {
        let Some(overrides) = &self.group_overrides else { return Vec::new() };
        let of_group = |by: &Arc<Override>| {
            let group = by.target.group.clone()?;
            let template = overrides.template.rule_for(&group).cloned();
            Some(OverriddenGroup { by: Arc::clone(by), group, template })
        };
        overrides.by.groups.iter().filter_map(of_group).collect()
    }

    pub fn overridden(&self) -> Option<Overridden> {
        let by = Arc::clone(self.capacity_inputs.overridden.as_ref()?);
        Some(Overridden { by, capacity: self.available(), template: self.capacity_inputs.usual() })
    }
}
