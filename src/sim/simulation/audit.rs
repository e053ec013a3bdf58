//! The safety invariant, checked after every event: each node counts at least the capacity that its holders believe
//! they may use.

use leaseway_core::{
    policy::settings::Reuse,
    resource::invariant::Violation,
    types::{Amount, ClusterClock, Millis, Sum},
};

use crate::{
    node::{Node, Proposed, ROOT},
    scenario::Handover,
    simulation::Simulation,
};

impl Simulation<'_> {
    /// Checks the safety invariant for every node, and for every master that could be elected now.
    pub(crate) fn audit(&mut self) -> Result<(), Violation> {
        // A budget is checked by the books of its clients alone.
        if self.pools.is_some()
            || self.plan.is_budget()
            || !self.settings.shares()
            || self.settings.reuse != Reuse::Confirmed
        {
            return Ok(());
        }
        if let Some(master) = self.nodes[ROOT].master.as_ref().filter(|_| self.is_cut) {
            // A successor may still count all stored promises.
            let stored = survivors(&self.nodes[ROOT], self.now).map(Sum::from);
            self.accounting.held(stored.fold(master.engine.resource().sums().held, Sum::max));
        }
        let believed = self.believed();
        for (index, (node, believed)) in self.nodes.iter().zip(&believed).enumerate() {
            let keeps_promises = self.plan.handover(index) == Handover::Promises;
            // A learning child node only knows its own supply, and its predecessor may have had a larger one.
            let knows = keeps_promises || index == ROOT;
            if let Some(master) = node.master.as_ref().filter(|_| knows) {
                let held = master.engine.resource().sums().held;
                self.check_counted(index, "Σ held + unclaimed ≥ Σ believed", held, *believed)?;
            }
            if keeps_promises {
                for total in survivors(node, self.now) {
                    self.check_counted(index, "T ≥ Σ believed", total.into(), *believed)?;
                }
            }
        }
        for (index, believed) in believed.into_iter().enumerate() {
            self.check_set(index, believed)?;
        }
        Ok(())
    }

    fn check_counted(
        &self,
        index: usize,
        invariant: &'static str,
        counted: Sum,
        believed: Sum,
    ) -> Result<(), Violation> {
        // Dues are rounded one by one, so after a cut their sum may exceed the capacity a little.
        let is_close = self.is_cut && believed.get() <= counted.get() * (1.0 + 1e-12);
        let mut with_digits = counted;
        with_digits += self.plan.digits();
        if with_digits >= believed || is_close {
            return Ok(());
        }
        let name = &self.plan.tree.nodes[index].name;
        let missing = believed - counted;
        let detail =
            format!("{name} counts {counted:?}, but its holders believe {believed:?}, which is {missing:?} more");
        Err(Violation { invariant, detail })
    }

    /// For each node, the capacity that all its holders believe they may use. A holder that is a child node counts with
    /// its supply, or with the sum of its own holders if that is larger.
    fn believed(&self) -> Vec<Sum> {
        let mut believed = vec![Sum::ZERO; self.nodes.len()];
        for (place, client) in self.plan.tree.clients.iter().zip(&self.clients) {
            believed[place.node] += client.believes;
        }
        // Parents come before their children.
        for (index, place) in self.plan.tree.nodes.iter().enumerate().rev() {
            if let Some(parent) = place.parent {
                let below = believed[index].max(self.lent(index).into());
                believed[parent] += below;
            }
        }
        believed
    }

    fn lent(&self, index: usize) -> Amount {
        let Some(master) = &self.nodes[index].master else { return Amount::ZERO };
        let lives = master.own_end.is_some_and(|end| self.now < end);
        if !lives {
            return Amount::ZERO;
        }
        let resource = master.engine.resource();
        resource.overridden().map_or(resource.settings().capacity, |overridden| overridden.template)
    }

    /// Called when a client with demand is about to lose its whole capacity.
    pub(crate) fn check_cut(&self, index: usize) -> Result<(), Violation> {
        let (scenario, client) = (&self.plan.scenario, &self.clients[index]);
        let is_exempt = !client.kind.reports_leases() || client.cut_until > self.now;
        if !scenario.no_total_loss || !self.checks_invariants || is_exempt || self.now < scenario.measure_from.0 {
            return Ok(());
        }
        let detail = format!("client {} had {:?} and wants {:?}", client.name, client.believes, client.wants());
        Err(Violation { invariant: "no total loss", detail })
    }
}

/// The totals that a master elected now might inherit, for every prefix of the uncommitted log.
pub(crate) fn survivors(node: &Node, now: Millis) -> impl Iterator<Item = Amount> {
    // Count in the way of a master that is elected now.
    let (promises, clock) = (&node.promises, ClusterClock::new(node.reached, now));
    let moment = clock.at(now);
    let stored = promises.believed_until(clock, now, now).map_or(Amount::ZERO, |_| promises.total_at(moment));
    let mut is_covered = now < clock.local(promises.until());
    let of_log = node.log.iter().map(move |Proposed { changes, .. }| {
        is_covered |= changes.horizon.is_some();
        if is_covered { changes.total_at(moment) } else { Amount::ZERO }
    });
    std::iter::once(stored).chain(of_log)
}
