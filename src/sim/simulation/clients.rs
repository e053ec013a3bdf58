//! Events of clients.

use std::{sync::Arc, time::Duration};

use leaseway_client::limiter::Window;
use leaseway_client::session::{self, Body, BudgetUse, Outgoing, Pace, Session, Wants as Asked};
use leaseway_core::{
    self as core,
    pool::PoolFields,
    resource::{Request, Spent, invariant::Violation},
    types::{Amount, Claim, Claims, HolderKind, Millis, Token},
};

use crate::{
    client::{
        Client, ClientMachine,
        envoy::EnvoyClient,
        legacy::LegacyClient,
        limiter::LimiterClient,
        spender::Spender,
        usage::{self, UsagePattern},
    },
    network::message::{Message, Participant, Reply, ReplyBody, RequestMessage, Sender, given, has},
    node::peer_of,
    scenario::ClientKind,
    simulation::{Event, Simulation, streams},
    units::Part,
};

impl Simulation<'_> {
    pub(crate) fn arrive(&mut self, index: usize) {
        let seed = self.rng.u64(..);
        let plan = &self.plan.tree.clients[index];
        let mut wants = plan.wants.first(&mut self.rng);
        if let Some((stepped, every)) = plan.wants.step(wants, &mut self.rng) {
            wants = stepped;
            self.queue.put(every.0, Event::Walk(index));
        }
        let usage_pattern = plan.uses.filter(|_| self.pools.is_some());
        let usage_pattern = usage_pattern.map(|uses| UsagePattern::new(uses, self.now, &mut self.rng));
        let (machine, spender) = (self.machine(index, seed), self.spender(seed));
        self.clients.push(Client {
            machine,
            spender,
            kind: plan.kind,
            name: client_name(index, plan.kind, 0),
            names: 0,
            incarnation: 0,
            wants: Amount::ZERO,
            is_here: true,
            believes: Amount::ZERO,
            usage_pattern,
            woken_at: None,
            cut_until: Millis(0),
            waits_since: None,
        });
        self.set_wants(index, wants);
        self.wake_at(index, self.now);
        self.set_burst(index);
    }

    pub(crate) fn burst(&mut self, index: usize, generation: u32) {
        if self.clients[index]
            .usage_pattern
            .as_ref()
            .is_some_and(|usage_pattern| usage_pattern.generation == generation)
        {
            self.change_usage_pattern(index, |usage_pattern, _| usage_pattern.change());
        }
    }

    pub(crate) fn use_part(&mut self, index: usize, part: Part) {
        self.change_usage_pattern(index, |usage_pattern, rng| usage_pattern.use_part(part, rng));
    }

    fn change_usage_pattern(&mut self, index: usize, change: impl FnOnce(&mut UsagePattern, &mut fastrand::Rng)) {
        let (now, client) = (self.now, &mut self.clients[index]);
        let before = client.uses();
        let Some(usage_pattern) = &mut client.usage_pattern else { return };
        usage_pattern.count(now, client.believes);
        change(usage_pattern, &mut self.rng);
        let after = client.uses();
        if let Some(pools) = &mut self.pools {
            pools.uses(now, before, after);
        }
        self.set_burst(index);
    }

    fn set_burst(&mut self, index: usize) {
        let Some(usage_pattern) = &self.clients[index].usage_pattern else { return };
        if let Some(after) = usage_pattern.next(&mut self.rng) {
            self.queue.put(self.now.plus(after), Event::Burst { client: index, generation: usage_pattern.generation });
        }
    }

    fn machine(&self, index: usize, seed: u64) -> ClientMachine {
        let place = &self.plan.tree.clients[index];
        let (endpoints, deadline) = (self.nodes[place.node].endpoints.clone(), self.network.deadline());
        if !place.kind.is_ours() {
            return ClientMachine::Legacy(Box::new(LegacyClient::new(
                Arc::clone(&self.resource),
                endpoints,
                deadline,
                seed,
            )));
        }
        let pace = Pace { deadline, ..Pace::default() };
        let settings = session::Settings { endpoints, pace, resources_per_request: 1, seed };
        if place.kind == ClientKind::Envoy {
            let envoy = EnvoyClient::new(self.now, Arc::clone(&self.resource), settings, seed);
            return ClientMachine::Envoy(Box::new(envoy));
        }
        if place.kind == ClientKind::Limiter {
            let length = Duration::from_millis(place.window.0);
            let window = Window { length, rate: self.plan.settings.capacity.get(), slides: false };
            let limiter = LimiterClient::new(Arc::clone(&self.resource), window, settings, seed);
            return ClientMachine::Limiter(Box::new(limiter));
        }
        ClientMachine::Session(Box::new(Session::new(settings)))
    }

    /// Whoever takes part in a budget keeps a book.
    fn spender(&self, seed: u64) -> Option<Box<Spender>> {
        self.plan.is_budget().then(|| Box::new(Spender::new(self.now, seed | 1)))
    }

    /// Spends what the allowance of a client covers, and updates its report.
    fn spend(&mut self, index: usize) -> Result<(), Violation> {
        let (now, client) = (self.now, &mut self.clients[index]);
        let Some(spender) = client.spender.as_mut().filter(|_| client.is_here) else { return Ok(()) };
        if let ClientMachine::Session(session) = &client.machine {
            spender.take(now, session.lease(now, &self.resource), || self.rng.u64(..) | 1);
        }
        let (spent, period) = spender.spend(now, client.wants.get());
        let priority = self.plan.tree.clients[index].priority.into();
        let asked = spender.asked(now, priority);
        client.machine.want(now, &self.resource, asked);
        // Often enough to see each lease, and rarely in runs over months.
        self.wake_at(index, now.plus(Millis((self.plan.scenario.resource.refresh.0.0 / 8).max(500))));
        let unix = self.unix(now);
        match self.budget.as_mut().filter(|_| self.checks_invariants) {
            Some(budget) => budget.spent(unix, period, spent, self.capacity),
            None => Ok(()),
        }
    }

    pub(crate) fn break_stream(&mut self, index: usize) -> Result<(), Violation> {
        if let ClientMachine::Envoy(envoy) = &mut self.clients[index].machine {
            envoy.break_stream(self.now);
        }
        self.step_client(index)
    }

    /// Replaces the gateway of an Envoy or limiter.
    pub(crate) fn kill_gateway(&mut self, index: usize) -> Result<(), Violation> {
        if let ClientMachine::Limiter(_) = self.clients[index].machine {
            return self.restart_client(index);
        }
        let client = &mut self.clients[index];
        if let ClientMachine::Envoy(envoy) = &mut client.machine {
            client.incarnation += 1;
            envoy.kill_gateway(self.now);
        }
        self.step_client(index)
    }

    fn set_wants(&mut self, index: usize, wants: f64) {
        let wants = Amount::clamped(wants);
        let client = &mut self.clients[index];
        let before = std::mem::replace(&mut client.wants, wants);
        if client.is_here {
            self.accounting.want(self.now, before, wants);
            let priority = self.plan.tree.clients[index].priority.into();
            let asked = match &mut client.spender {
                Some(spender) => spender.asked(self.now, priority),
                None => Asked { amount: wants.get(), priority, ..Asked::default() },
            };
            client.machine.want(self.now, &self.resource, asked);
        }
    }

    pub(crate) fn want(&mut self, index: usize, wants: f64) -> Result<(), Violation> {
        self.set_wants(index, wants);
        self.step_client(index)
    }

    pub(crate) fn want_more(&mut self, index: usize, by: f64) -> Result<(), Violation> {
        self.want(index, (self.clients[index].wants.get() + by).max(0.0))
    }

    pub(crate) fn walk(&mut self, index: usize) -> Result<(), Violation> {
        if self.quiet {
            return Ok(());
        }
        let wants = self.clients[index].wants.get();
        let step = self.plan.tree.clients[index].wants.step(wants, &mut self.rng);
        let Some((wants, every)) = step else { return Ok(()) };
        self.queue.put(self.now.plus(every.0), Event::Walk(index));
        self.want(index, wants)
    }

    pub(crate) fn wake_client(&mut self, index: usize) -> Result<(), Violation> {
        // The wake-up was rescheduled, or belongs to an earlier incarnation.
        if self.clients[index].woken_at != Some(self.now) {
            return Ok(());
        }
        self.clients[index].woken_at = None;
        self.step_client(index)
    }

    pub(crate) fn hint_client(&mut self, index: usize, name: u32) -> Result<(), Violation> {
        if self.clients[index].names != name {
            return Ok(());
        }
        self.clients[index].machine.hint(self.now, &self.resource);
        self.step_client(index)
    }

    pub(crate) fn answer_client(&mut self, index: usize, reply: &Reply) -> Result<(), Violation> {
        let begins = self.plan.scenario.begins.0;
        let (now, client) = (self.now, &mut self.clients[index]);
        if client.incarnation != reply.incarnation {
            return Ok(());
        }
        match &reply.what {
            ReplyBody::Granted(lease) => {
                if let Some(usage_pattern) = &mut client.usage_pattern {
                    usage_pattern.count(now, client.believes);
                    usage_pattern.answered(lease.pool.as_ref());
                }
                client.machine.answered(
                    now,
                    reply.number,
                    Some(given(&self.resource, lease)),
                    written_end(lease, begins),
                );
            }
            ReplyBody::Supplied(supplied) => {
                let lease = &supplied.lease;
                client.machine.answered(
                    now,
                    reply.number,
                    Some(given(&self.resource, lease)),
                    written_end(lease, begins),
                );
            }
            ReplyBody::Stream(answer) => {
                client.machine.stream_answered(now, reply.number, streams::reply(&self.resource, answer.as_ref()));
            }
            ReplyBody::Nothing => client.machine.answered(now, reply.number, None, now),
            ReplyBody::Redirect(peer) => {
                let master = peer.map(|peer| Arc::clone(&self.nodes[reply.from].endpoints[usize::from(peer)]));
                client.machine.redirected(now, reply.number, master.as_deref());
            }
        }
        self.step_client(index)
    }

    pub(crate) fn replace_client(&mut self, index: usize) -> Result<(), Violation> {
        self.rename(index);
        self.restart_process(index)?;
        self.move_assignment(index)?;
        let wants = self.clients[index].wants.get();
        self.want(index, wants)
    }

    /// Restarts a client under the same name.
    pub(crate) fn restart_client(&mut self, index: usize) -> Result<(), Violation> {
        self.restart_process(index)?;
        let wants = self.clients[index].wants.get();
        self.want(index, wants)
    }

    fn rename(&mut self, index: usize) {
        let client = &mut self.clients[index];
        client.names += 1;
        client.name = client_name(index, client.kind, client.names);
    }

    fn restart_process(&mut self, index: usize) -> Result<(), Violation> {
        let seed = self.rng.u64(..);
        let (machine, spender) = (self.machine(index, seed), self.spender(seed));
        let client = &mut self.clients[index];
        client.incarnation += 1;
        (client.machine, client.woken_at, client.spender) = (machine, None, spender);
        self.forget_lease(index)?;
        if let Some(usage_pattern) = &mut self.clients[index].usage_pattern {
            usage_pattern.forget();
        }
        self.note_arrival(index);
        Ok(())
    }

    /// The client releases its lease and leaves. Returns false if it was away already.
    pub(crate) fn leave(&mut self, index: usize) -> Result<bool, Violation> {
        let client = &mut self.clients[index];
        if !std::mem::replace(&mut client.is_here, false) {
            return Ok(false);
        }
        client.machine.release(self.now, &self.resource);
        if let Some(spender) = &mut client.spender {
            // The release reports what it has spent; it returns as another incarnation.
            **spender = Spender::new(self.now, self.rng.u64(..) | 1);
        }
        client.waits_since = None;
        let wants = client.wants;
        self.accounting.want(self.now, wants, Amount::ZERO);
        self.forget_lease(index)?;
        self.step_client(index)?;
        Ok(true)
    }

    pub(crate) fn rejoin(&mut self, index: usize) -> Result<(), Violation> {
        let client = &mut self.clients[index];
        if std::mem::replace(&mut client.is_here, true) {
            return Ok(());
        }
        let wants = std::mem::take(&mut client.wants);
        if !client.kind.is_ours() {
            // The release names no lease, so a late one would release the next lease of this name.
            self.rename(index);
            self.restart_process(index)?;
        }
        self.note_arrival(index);
        self.want(index, wants.get())
    }

    fn forget_lease(&mut self, index: usize) -> Result<(), Violation> {
        self.set_usable(index, Amount::ZERO)
    }

    /// A client has arrived without a lease. Starts to measure its waiting time if it arrived after a failover.
    fn note_arrival(&mut self, index: usize) {
        let node = &self.nodes[self.plan.tree.clients[index].node];
        let is_after_failover = node.incarnation > 1 && self.now < node.failed_over.plus(self.settings.lease);
        self.clients[index].waits_since = is_after_failover.then_some(self.now);
    }

    fn set_usable(&mut self, index: usize, after: Amount) -> Result<(), Violation> {
        let (now, client) = (self.now, &mut self.clients[index]);
        if client.believes == after {
            return Ok(());
        }
        if let Some(usage_pattern) = &mut client.usage_pattern {
            usage_pattern.count(now, client.believes);
        }
        let used = client.uses();
        let before = std::mem::replace(&mut client.believes, after);
        if let Some(pools) = &mut self.pools {
            pools.uses(now, used, client.uses());
        }
        self.accounting.believe(now, index, before, after)
    }

    /// Polls a client: sends its request, records its usable capacity, and schedules its wake-up.
    fn step_client(&mut self, index: usize) -> Result<(), Violation> {
        self.report(index);
        self.spend(index)?;
        let (now, client) = (self.now, &mut self.clients[index]);
        if client.kind == ClientKind::Stream {
            client.machine.offer_stream();
        }
        let outgoing = client.machine.poll(now);
        if let Some(usable) = client.machine.usable(now).filter(|_| client.spender.is_none()) {
            let wants = client.wants();
            if usable == Amount::ZERO && client.believes > Amount::ZERO && wants > Amount::ZERO {
                self.check_cut(index)?;
            }
            self.set_usable(index, usable)?;
        }
        if let Some(broken) = self.clients[index].take_broken().filter(|_| self.checks_invariants) {
            return Err(broken);
        }
        if let Some(outgoing) = outgoing {
            self.send_request(index, outgoing);
        }
        if let Some(wake) = self.clients[index].machine.wake(now) {
            self.wake_at(index, wake.max(now.plus(Millis(1))));
        }
        Ok(())
    }

    /// Updates the usage in the next request.
    fn report(&mut self, index: usize) {
        let (now, client) = (self.now, &mut self.clients[index]);
        let Some(usage_pattern) = client.usage_pattern.as_mut().filter(|_| client.is_here) else { return };
        usage_pattern.count(now, client.believes);
        if let Some(usage) = usage_pattern.usage() {
            let asked = Asked { amount: client.wants.get(), usage: Some(usage), ..Asked::default() };
            client.machine.want(now, &self.resource, asked);
        }
    }

    fn wake_at(&mut self, index: usize, at: Millis) {
        let client = &mut self.clients[index];
        // Waking a client early is harmless.
        if client.woken_at.is_none_or(|earlier| at < earlier) {
            client.woken_at = Some(at);
            self.queue.put(at, Event::WakeClient(index));
        }
    }

    fn send_request(&mut self, index: usize, outgoing: Outgoing<Asked>) {
        let client = &mut self.clients[index];
        let (node, peer) = (self.plan.tree.clients[index].node, peer_of(&outgoing.target));
        let from = Sender {
            participant: Participant::Client(index),
            incarnation: client.incarnation,
            number: outgoing.number,
            stream: None,
        };
        let request = match outgoing.body {
            Body::Ask(asks) => {
                let Some(ask) = asks.into_iter().next() else { return };
                if let Some(usage_pattern) = &mut client.usage_pattern {
                    usage_pattern.sent(ask.demand.usage);
                }
                Request::Ask(client.ask(&ask))
            }
            Body::Stream(request) => {
                let message = streams::message(client, from, node, peer, request);
                return self.send(Message::Stream(Box::new(message)));
            }
            // The original protocol has no release for child nodes.
            Body::Release(_) if client.kind == ClientKind::DoormanNode => return,
            Body::Release(releases) => Request::Release(core::resource::Release {
                kind: HolderKind::Client,
                id: Arc::clone(&client.name),
                token: releases.first().and_then(|release| release.token).and_then(Token::new),
                instance: None,
                spent: releases.first().and_then(|release| release.spent.as_ref()).map(report),
            }),
        };
        let forged_by = None;
        self.send(Message::Request(Box::new(RequestMessage { from, node, peer, request, forged_by })));
    }
}

/// The lease that gave the allowance of a budget, as the client's transport writes it.
fn allowance(spent: &BudgetUse, lease: Option<session::Lease>) -> Option<core::lease::holder::ShownLease> {
    let lease = lease.filter(|lease| lease.token.is_some() && lease.token == spent.token);
    has(lease)
        .map(|has| core::lease::holder::ShownLease { capacity: has.capacity.max(Amount::clamped(spent.spent)), ..has })
}

fn report(spent: &BudgetUse) -> Box<Spent> {
    Box::new(Spent {
        amount: Amount::clamped(spent.spent),
        period: spent.period,
        incarnation: spent.incarnation,
        need: Amount::clamped(spent.need),
    })
}

impl Client {
    /// The request of this client, as its server reads it.
    pub(crate) fn ask(&self, ask: &session::Ask<Asked>) -> core::resource::Ask {
        let usage = ask.demand.usage.map(usage::to_core);
        let wants = Amount::clamped(ask.demand.amount);
        let now = has(ask.has).filter(|_| self.kind.reports_leases());
        let spent = ask.demand.spent;
        let now = match &spent {
            Some(spent) => allowance(spent, ask.has.or(ask.had)),
            None => now,
        };
        // A request only has the outstanding amount if it exceeds the capacity of the lease that it names.
        let named = now.map_or(Amount::ZERO, |has| has.capacity);
        let in_use = Amount::clamped(ask.demand.outstanding);
        let token = |has: &core::lease::holder::ShownLease| has.token.filter(|_| self.kind != ClientKind::Doorman);
        core::resource::Ask {
            kind: kind(self.kind),
            id: Arc::clone(&self.name),
            claims: Claims::from_slice(&[Claim::of_client(wants, ask.demand.priority)]),
            has: now.map(|has| core::lease::holder::ShownLease { token: token(&has), ..has }),
            had: has(ask.had).filter(|_| self.kind.is_ours() && spent.is_none()),
            outstanding: match self.kind {
                ClientKind::Liar => Some(Amount::MAX),
                _ => Some(in_use).filter(|in_use| *in_use > named),
            },
            learning: false,
            drops_late: self.kind.is_ours(),
            is_gateway: matches!(self.kind, ClientKind::Envoy | ClientKind::Limiter),
            instance: None,
            groups: Vec::new(),
            spent: spent.as_ref().map(report),
            pool_fields: usage.map(|usage| Box::new(PoolFields { key: None, usage: Some(usage) })),
            charged_to: core::types::ChargedTo::default(),
        }
    }
}

fn client_name(index: usize, kind: ClientKind, number: u32) -> Arc<str> {
    let name = Participant::Client(index).name(number);
    // A prefix, because the name must differ from those of simulated nodes.
    if kind == ClientKind::DoormanNode { format!("go{name}").into() } else { name.into() }
}

fn kind(kind: ClientKind) -> HolderKind {
    if kind == ClientKind::DoormanNode { HolderKind::Node } else { HolderKind::Client }
}

/// The expiry of a lease, in whole seconds as on the wire. `begins`: when the run begins, in Unix seconds.
fn written_end(lease: &core::resource::Lease, begins: i64) -> Millis {
    Millis::from_secs(u64::try_from(lease.expiry_time - begins).unwrap_or_default())
}
