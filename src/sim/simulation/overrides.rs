//! Overrides by operators: replicated, and applied by each master.

use std::sync::Arc;

use leaseway_core::{
    policy::overrides::{Override, OverrideTarget, OverrideValue, ResourceOverrides},
    resource::invariant::Violation,
    types::{Amount, Sum},
};

use crate::{
    node::ROOT,
    scenario::{Handover, fault::OverrideSpec},
    simulation::{Event, RESOURCE, Simulation, audit},
};

impl Simulation<'_> {
    /// Sets an override at a node that has a master, until it expires.
    pub(crate) fn set_override(&mut self, set: &OverrideSpec) -> Result<(), Violation> {
        let (index, ends) = (self.pick_node(set.node.as_deref()), self.time_after(set.ends));
        let one = Override {
            target: OverrideTarget { pattern: RESOURCE.into(), group: None },
            value: OverrideValue::Capacity { load: set.load().expect("a valid override"), above: set.above },
            ends,
            by: "operator".into(),
            why: "an injected fault".into(),
        };
        // A learning master cannot know that the capacity was higher before.
        let learns = self.plan.handover(index) == Handover::Learning;
        let cuts = index != ROOT || one.instead_of(self.settings.capacity) < self.capacity;
        if self.nodes[index].master.is_none() || (learns && cuts) {
            return Ok(());
        }
        let node = &mut self.nodes[index];
        node.sets += 1;
        node.set = Some(Arc::new(one));
        self.queue.put(ends, Event::OverrideEnds { node: index, number: node.sets });
        Ok(())
    }

    /// Ends an override, unless another one was set since. The master notices at its next tick.
    pub(crate) fn end_override(&mut self, index: usize, number: u32) {
        let node = &mut self.nodes[index];
        if node.sets == number && self.plan.handover(index) == Handover::Promises {
            node.set = None;
        }
    }

    pub(crate) fn end_overrides(&mut self) -> Result<(), Violation> {
        for index in 0..self.nodes.len() {
            self.end_override(index, self.nodes[index].sets);
            self.follow_override(index)?;
        }
        Ok(())
    }

    /// Applies the stored override to the master.
    pub(crate) fn follow_override(&mut self, index: usize) -> Result<(), Violation> {
        let node = &mut self.nodes[index];
        let set = node.set.clone();
        let Some(master) = node.master.as_mut().filter(|master| master.follows != set) else {
            // The override that its predecessor applied may have ended meanwhile.
            if index == ROOT && node.sets > 0 {
                self.update_root_capacity();
            }
            return Ok(());
        };
        let before = master.engine.resource().settings().capacity;
        master.follows.clone_from(&set);
        if index == ROOT {
            self.update_root_capacity();
        }
        self.input(index, |engine, moment, buffers| {
            let set = ResourceOverrides { capacity: set, ..ResourceOverrides::default() };
            engine.operate(moment, |resource, now| resource.set_overrides(now, set), &mut buffers.effects);
        })?;
        let after = self.nodes[index].master.as_ref().map(|master| master.engine.resource().settings().capacity);
        self.is_cut |= after.is_some_and(|after| after < before);
        Ok(())
    }

    /// Recomputes the capacity at the root from its settings and override.
    pub(crate) fn update_root_capacity(&mut self) {
        let follows = self.nodes[ROOT].master.as_ref().and_then(|master| master.follows.as_ref());
        let template = self.settings.capacity;
        let capacity = follows.map_or(template, |set| set.instead_of(template));
        if capacity == self.capacity {
            return;
        }
        self.is_cut |= capacity < self.capacity;
        self.capacity = capacity;
        self.accounting.set_capacity(self.now, capacity);
    }

    /// Checks an override below the root. Once the amount held at a child node has fallen, the capacity that its
    /// holders believe in must not grow again until the override or the supply of the node grows.
    pub(crate) fn check_set(&mut self, index: usize, believed: Sum) -> Result<(), Violation> {
        let now = self.now;
        let node = &mut self.nodes[index];
        if index == ROOT || self.plan.handover(index) == Handover::Learning {
            return Ok(());
        }
        let Some(master) = node.master.as_ref() else { return Ok(()) };
        if master.follows.is_none() {
            node.most = None;
            return Ok(());
        }
        let resource = master.engine.resource();
        let stored = audit::survivors(node, now).map(Sum::from);
        let held = stored.fold(resource.sums().held, Sum::max);
        // Dues are rounded one by one, so their sum may exceed the capacity a little.
        let close = Amount::clamped(resource.settings().capacity.get() * (1.0 + 1e-12));
        let most = node.most.map_or(held, |most| most.min(held)).max(close.into());
        node.most = Some(most);
        if believed <= most {
            return Ok(());
        }
        let name = &self.plan.tree.nodes[index].name;
        let detail = format!("{name} has an override: its holders believe {believed:?}, but the bound is {most:?}");
        Err(Violation { invariant: "I2 below the root", detail })
    }
}
