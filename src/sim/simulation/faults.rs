//! Fault injection.

use leaseway_core::{
    resource::invariant::Violation,
    types::{Amount, Millis},
};

use crate::{
    node::ROOT,
    scenario::{Handover, fault::Fault},
    simulation::{Event, Simulation},
    units::Between,
};

impl Simulation<'_> {
    /// Injects a random fault of a sequence, and schedules the next one.
    pub(crate) fn random_fault(&mut self, number: usize) -> Result<(), Violation> {
        if self.quiet {
            return Ok(());
        }
        let random_faults = &self.plan.scenario.random_faults[number];
        self.queue.put(self.now.plus(random_faults.every.pick(&mut self.rng)), Event::RandomFault(number));
        let mut ticket = self.rng.u32(0..random_faults.one_of.iter().map(|chance| chance.weight).sum());
        for chance in &random_faults.one_of {
            match ticket.checked_sub(chance.weight) {
                Some(left) => ticket = left,
                None => return self.inject(&chance.what),
            }
        }
        Ok(())
    }

    pub(crate) fn inject(&mut self, fault: &Fault) -> Result<(), Violation> {
        match fault {
            Fault::LoseMaster { node, back } => self.lose_master_for(node.as_deref(), *back),
            Fault::Election { node } => {
                let node = self.pick_node(node.as_deref());
                self.elect(node)
            }
            Fault::Spike { clients, by } => {
                self.pick_clients(*clients).into_iter().try_for_each(|client| self.want_more(client, *by))
            }
            Fault::Want { clients, amount } => {
                self.pick_clients(*clients).into_iter().try_for_each(|client| self.want(client, *amount))
            }
            Fault::Use { clients, part } => {
                self.pick_clients(*clients).into_iter().for_each(|client| self.use_part(client, *part));
                Ok(())
            }
            Fault::Crash { clients } => {
                self.pick_clients(*clients).into_iter().try_for_each(|client| self.replace_client(client))
            }
            Fault::Restart { clients } => {
                self.pick_clients(*clients).into_iter().try_for_each(|client| self.restart_client(client))
            }
            Fault::Leave { clients, back } => self.leave_for(*clients, *back),
            Fault::CutClients { clients, back } => {
                for client in self.pick_clients(*clients) {
                    self.clients[client].cut_until = self.time_after(*back);
                }
                Ok(())
            }
            Fault::CutUplink { node, back } => {
                let node = self.pick_node(node.as_deref());
                self.nodes[node].uplink_cut_until = self.time_after(*back);
                Ok(())
            }
            Fault::Isolate { node, back } => {
                let node = self.pick_node(node.as_deref());
                self.nodes[node].isolated_until = self.time_after(*back);
                Ok(())
            }
            Fault::Lease { length } => self.lease_length(length.0),
            // A learning master cannot know that the capacity was higher before.
            Fault::Capacity { .. } if self.plan.handover(ROOT) == Handover::Learning => Ok(()),
            Fault::Override(set) => self.set_override(set),
            Fault::BreakStreams { clients } => {
                self.pick_clients(*clients).into_iter().try_for_each(|client| self.break_stream(client))
            }
            Fault::KillGateways { clients } => {
                self.pick_clients(*clients).into_iter().try_for_each(|client| self.kill_gateway(client))
            }
            Fault::Forge { requests } => {
                (0..*requests).for_each(|_| self.forge());
                Ok(())
            }
            Fault::Capacity { amount } => self.set_capacity(Amount::clamped(*amount)),
        }
    }

    /// A node loses its master, until an election after `back`, if present.
    fn lose_master_for(&mut self, node: Option<&str>, back: Option<Between>) -> Result<(), Violation> {
        let node = self.pick_node(node);
        if self.lose_master(node)?
            && let Some(back) = back
        {
            let at = self.time_after(back);
            self.queue.put(at, Event::Elect(node));
        }
        Ok(())
    }

    /// Clients leave, and return after `back`.
    fn leave_for(&mut self, clients: u32, back: Between) -> Result<(), Violation> {
        for client in self.pick_clients(clients) {
            if self.leave(client)? {
                let at = self.time_after(back);
                self.queue.put(at, Event::Return(client));
            }
        }
        Ok(())
    }

    fn lease_length(&mut self, length: Millis) -> Result<(), Violation> {
        self.settings.lease = length;
        self.configure()
    }

    fn set_capacity(&mut self, capacity: Amount) -> Result<(), Violation> {
        self.settings.capacity = capacity;
        self.accounting.advance(self.now);
        self.update_root_capacity();
        self.configure()
    }

    fn configure(&mut self) -> Result<(), Violation> {
        let settings = self.settings.clone();
        self.input(ROOT, |engine, moment, buffers| engine.configure(moment, settings, &mut buffers.effects))
    }

    pub(crate) fn time_after(&mut self, after: Between) -> Millis {
        self.now.plus(after.pick(&mut self.rng))
    }

    /// A random node; if a name is given, a random node with that name.
    pub(crate) fn pick_node(&mut self, name: Option<&str>) -> usize {
        let plan = self.plan;
        match name {
            None => self.rng.usize(0..self.nodes.len()),
            Some(name) => {
                let named = plan.tree.named(&plan.scenario, name);
                named[self.rng.usize(0..named.len())]
            }
        }
    }

    /// `count` random clients.
    fn pick_clients(&mut self, count: u32) -> Vec<usize> {
        let all = self.clients.len();
        self.rng.choose_multiple(0..all, all.min(count as usize))
    }
}
