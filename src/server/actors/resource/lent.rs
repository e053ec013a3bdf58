//! A resource of a node with a parent: what the parent lends it, what it tells of its holders, and who waits for that.
//!
//! A request that comes before the parent has lent anything is *parked*: the core hears what is wanted, so that the
//! parent can be told, and the answer waits for the supply, which most often takes one round trip. After a second it
//! goes without: "not yet", and the holder keeps what it has. Parked requests count as waiting ones, and there are no
//! more of both than the queue may have.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use actix::{AsyncContext as _, Context};
use leaseway_core::{Answer, Condensed, Millis, Request, Settings, Supply};
use tokio::sync::oneshot;

use super::{
    super::uplink::{Notice, Notices},
    ResourceActor,
    handle::Command,
    living::Living,
    outbox::{Lapsed, Reply},
    round::Round,
};

/// For so long a request waits for the first supply. The protocol's clients ask again in a second anyway.
const PATIENCE: Millis = Millis::from_secs(1);

/// Until when a life listens that does not know all that holders may have. How long that is the parent says: leases are
/// as long as it says.
#[derive(Debug, Clone, Copy)]
pub(in super::super) enum Listens {
    /// As long as the settings say, from when this master began.
    AsSettingsSay(Millis),
    /// Until no lease given before this moment can be believed.
    OneLease(Millis),
}

impl Listens {
    /// When that is, if leases are as `settings` say.
    pub(in super::super) fn until(self, settings: &Settings) -> Millis {
        match self {
            Listens::AsSettingsSay(since) => settings.learning_until(since),
            Listens::OneLease(since) => settings.last_lease_over(since),
        }
    }
}

/// What a resource has to do with the parent of its node.
pub(in super::super) struct Upward {
    notices: Arc<Notices>,
    /// If not all that was promised before is known.
    listens: Option<Listens>,
    /// When this master began.
    since: Millis,
    /// On the list of the uplink.
    asked: bool,
    /// In the order in which they came.
    parked: VecDeque<Parked>,
}

/// A request that waits for the first supply.
struct Parked {
    until: Millis,
    request: Request,
    reply: Reply,
}

impl Upward {
    pub(in super::super) fn new(notices: Arc<Notices>, listens: Option<Listens>, since: Millis) -> Upward {
        Upward { notices, listens, since, asked: false, parked: VecDeque::new() }
    }

    /// Until when this life listens, now that it is known how long leases are.
    fn listening(&self, settings: &Settings, has_met_strangers: bool) -> Millis {
        let listens = self.listens.map_or(Millis(0), |listens| listens.until(settings));
        let strangers = if has_met_strangers { settings.last_lease_over(self.since) } else { Millis(0) };
        listens.max(strangers)
    }
}

impl Living {
    /// Keeps in those of the round's answers that say "not yet"; `requests` are those of the round.
    pub(super) fn park(&mut self, requests: Vec<Request>, now: Millis, round: &mut Round) {
        let Some(upward) = &mut self.upward else { return };
        if upward.parked.is_empty() {
            self.duties.look_after = Some(PATIENCE);
        }
        let (replies, answers) = (std::mem::take(&mut round.replies), std::mem::take(&mut round.answers));
        for ((request, reply), answer) in requests.into_iter().zip(replies).zip(answers) {
            if answer == Answer::NotYet {
                upward.parked.push_back(Parked { until: now.plus(PATIENCE), request, reply });
            } else {
                round.replies.push(reply);
                round.answers.push(answer);
            }
        }
    }

    /// The parent has lent something: whoever waits for that is answered.
    pub(super) fn supplied(&mut self, supply: Supply, settings: Settings) {
        let now = self.clock.at();
        if !self.reigns(now) {
            return;
        }
        let Some(upward) = &self.upward else { return };
        if self.core.awaits_supply() {
            let has_met_strangers = self.core.counters().unaccounted > 0;
            self.core.listen_until(upward.listening(&settings, has_met_strangers));
        }
        self.core.configure(settings);
        self.core.supply(supply);
        self.remember_what_was_said(now);
        let Some(upward) = &mut self.upward else { return };
        if upward.parked.is_empty() {
            self.hinting.after_tick(&mut self.core, now);
            self.ask_early();
            return;
        }
        let (requests, replies) = upward.parked.drain(..).map(|parked| (parked.request, parked.reply)).unzip();
        self.round(&mut Round { requests, replies, ..Round::default() });
    }

    /// What the parent is told. Without a reign nothing is said: somebody else may be asking in the node's name.
    pub(super) fn condense(&mut self, reply: oneshot::Sender<Condensed>) {
        let now = self.clock.at();
        if !self.reigns(now) {
            return;
        }
        if let Some(upward) = &mut self.upward {
            upward.asked = false;
        }
        // If it comes too late the next request tells it.
        let _ = reply.send(self.core.condense(now));
    }

    /// Tells the uplink if the parent should hear of this resource now.
    pub(super) fn ask_early(&mut self) {
        let Some(upward) = &mut self.upward else { return };
        if !upward.asked && self.core.asks_early() {
            upward.asked = true;
            upward.notices.post(Notice::Asks(Arc::clone(&self.id)));
        }
    }

    /// Those who have waited long enough go without.
    pub(super) fn answer_parked(&mut self, now: Millis) {
        if self.upward.as_ref().is_none_or(|upward| upward.parked.is_empty()) {
            return;
        }
        if !self.reigns(now) {
            self.refuse_parked();
            return;
        }
        let Some(upward) = &mut self.upward else { return };
        let over = upward.parked.partition_point(|parked| parked.until <= now);
        for parked in upward.parked.drain(..over) {
            self.queued.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
            let _ = parked.reply.send(Ok(Answer::NotYet));
        }
        if let Some(next) = upward.parked.front() {
            self.duties.look_after = Some(next.until.since(now));
        }
    }

    /// Nobody may decide now.
    pub(super) fn refuse_parked(&mut self) {
        let Some(upward) = &mut self.upward else { return };
        self.queued.fetch_sub(upward.parked.len(), std::sync::atomic::Ordering::Relaxed);
        for parked in upward.parked.drain(..) {
            let _ = parked.reply.send(Err(Lapsed));
        }
    }
}

/// From outside the actor, where a flooded mailbox starves nobody: has it look after so long. Should the mailbox be
/// full then, the next tick does as well.
pub(super) fn remind(after: Millis, ctx: &Context<ResourceActor>, clock: crate::clock::Clock) {
    let resource = ctx.address().downgrade();
    actix_rt::spawn(async move {
        tokio::time::sleep(Duration::from_millis(after.0)).await;
        if let Some(resource) = resource.upgrade() {
            let _ = resource.try_send(Command::Look { now: clock.at() });
        }
    });
}
