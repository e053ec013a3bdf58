//! What goes wrong, and what clients change their minds about.

use leaseway_core::{Amount, Millis, invariant::Violation};

use crate::{
    node::ROOT,
    scenario::{Fault, Handover},
    units::Between,
    world::{Event, World},
};

impl World<'_> {
    /// One of the mishaps of a list; the next one is due later.
    pub(super) fn mishap(&mut self, number: usize) -> Result<(), Violation> {
        if self.quiet {
            return Ok(());
        }
        let mishaps = &self.plan.scenario.mishaps[number];
        self.queue.put(self.now.plus(mishaps.every.pick(&mut self.rng)), Event::Mishap(number));
        let mut ticket = self.rng.u32(0..mishaps.one_of.iter().map(|chance| chance.weight).sum());
        for chance in &mishaps.one_of {
            match ticket.checked_sub(chance.weight) {
                Some(left) => ticket = left,
                None => return self.inflict(&chance.what),
            }
        }
        Ok(())
    }

    /// Lets something happen.
    pub(super) fn inflict(&mut self, fault: &Fault) -> Result<(), Violation> {
        match fault {
            Fault::LoseMaster { node, back } => {
                let node = self.some_node(node.as_deref());
                if self.lose_master(node)?
                    && let Some(back) = back
                {
                    let at = self.later(*back);
                    self.queue.put(at, Event::Elect(node));
                }
                Ok(())
            }
            Fault::Election { node } => {
                let node = self.some_node(node.as_deref());
                self.elect(node)
            }
            Fault::Spike { clients, by } => {
                self.some_clients(*clients).into_iter().try_for_each(|client| self.want_more(client, *by))
            }
            Fault::Want { clients, amount } => {
                self.some_clients(*clients).into_iter().try_for_each(|client| self.want(client, *amount))
            }
            Fault::Use { clients, part } => {
                self.some_clients(*clients).into_iter().for_each(|client| self.use_part(client, *part));
                Ok(())
            }
            Fault::Crash { clients } => {
                self.some_clients(*clients).into_iter().try_for_each(|client| self.replace_client(client))
            }
            Fault::Restart { clients } => {
                self.some_clients(*clients).into_iter().try_for_each(|client| self.restart_client(client))
            }
            Fault::Leave { clients, back } => {
                for client in self.some_clients(*clients) {
                    if self.send_away(client)? {
                        let at = self.later(*back);
                        self.queue.put(at, Event::Return(client));
                    }
                }
                Ok(())
            }
            Fault::CutClients { clients, back } => {
                for client in self.some_clients(*clients) {
                    self.clients[client].cut_until = self.later(*back);
                }
                Ok(())
            }
            Fault::CutUplink { node, back } => {
                let node = self.some_node(node.as_deref());
                self.nodes[node].uplink_cut_until = self.later(*back);
                Ok(())
            }
            Fault::Isolate { node, back } => {
                let node = self.some_node(node.as_deref());
                self.nodes[node].isolated_until = self.later(*back);
                Ok(())
            }
            Fault::Lease { length } => self.lease_length(length.0),
            // A master that knows nothing cannot know of what there was before.
            Fault::Capacity { .. } if self.plan.handover(ROOT) == Handover::Learning => Ok(()),
            Fault::Override(set) => self.set_override(set),
            Fault::BreakStreams { clients } => {
                self.some_clients(*clients).into_iter().try_for_each(|client| self.break_stream(client))
            }
            Fault::KillGateways { clients } => {
                self.some_clients(*clients).into_iter().try_for_each(|client| self.kill_gateway(client))
            }
            Fault::Forge { requests } => {
                (0..*requests).for_each(|_| self.forge());
                Ok(())
            }
            Fault::Capacity { amount } => self.set_capacity(Amount::clamped(*amount)),
        }
    }

    fn lease_length(&mut self, length: Millis) -> Result<(), Violation> {
        self.settings.lease = length;
        self.configure()
    }

    fn set_capacity(&mut self, capacity: Amount) -> Result<(), Violation> {
        self.settings.capacity = capacity;
        self.books.advance(self.now);
        self.measure_root();
        self.configure()
    }

    fn configure(&mut self) -> Result<(), Violation> {
        let settings = self.settings.clone();
        self.input(ROOT, |engine, moment, buffers| engine.configure(moment, settings, &mut buffers.effects))
    }

    pub(super) fn later(&mut self, after: Between) -> Millis {
        self.now.plus(after.pick(&mut self.rng))
    }

    /// One of those with that name, or one of all.
    pub(super) fn some_node(&mut self, name: Option<&str>) -> usize {
        let plan = self.plan;
        match name {
            None => self.rng.usize(0..self.nodes.len()),
            Some(name) => {
                let named = plan.tree.named(&plan.scenario, name);
                named[self.rng.usize(0..named.len())]
            }
        }
    }

    /// So many different ones, or all if there are no more.
    fn some_clients(&mut self, count: u32) -> Vec<usize> {
        let all = self.clients.len();
        self.rng.choose_multiple(0..all, all.min(count as usize))
    }
}
