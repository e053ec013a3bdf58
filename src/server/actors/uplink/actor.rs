//! The actor: the state machine, taking turns with the driver.

use std::sync::Arc;

use actix::{Actor, Addr, Context, Handler, Message, MessageResult};
use leaseway_client::{
    session::Outgoing,
    uplink::{Granted, Uplink},
};
use leaseway_core::{Condensed, Millis, Supply};

use super::super::notices::Notice;

/// Only the driver sends, one message after the other.
pub(super) const MAILBOX: usize = 4;

/// What has become of a request.
#[derive(Debug)]
pub(super) enum Landed {
    /// The parent's master has answered.
    Granted(Vec<Granted>),
    /// Another has to be asked, if it is known who.
    Elsewhere(Option<String>),
    /// No answer.
    Failed,
}

/// What has happened since the turn before.
#[derive(Debug, Default)]
pub(super) struct Turn {
    pub(super) now: Millis,
    pub(super) notices: Vec<Notice>,
    /// Resources that the parent has hinted.
    pub(super) hinted: Vec<String>,
    /// It has hinted all of them.
    pub(super) everything_hinted: bool,
    pub(super) landed: Option<(u64, Landed)>,
}

/// What is to be done.
#[derive(Debug)]
pub(super) struct Turned {
    /// To be given to the resources, before any of them is condensed.
    pub(super) supplies: Vec<(Arc<str>, Supply)>,
    /// Something is to be sent. These are to be condensed for that; if there are none, something is given back.
    pub(super) due: Option<Vec<Arc<str>>>,
    pub(super) standing: Standing,
}

/// How things stand after a turn.
#[derive(Debug)]
pub(super) struct Standing {
    /// The request whose answer still counts.
    pub(super) under_way: Option<u64>,
    /// The next turn is then, at the latest.
    pub(super) wake: Option<Millis>,
    pub(super) target: Arc<str>,
    pub(super) failures: u32,
    pub(super) resources: usize,
}

/// What the resources that are due say.
#[derive(Debug)]
pub(super) struct Send {
    pub(super) now: Millis,
    pub(super) condensed: Vec<(Arc<str>, Condensed)>,
}

impl Message for Turn {
    type Result = Turned;
}

impl Message for Send {
    type Result = (Option<Outgoing<Condensed>>, Standing);
}

pub(super) struct UplinkActor(Uplink);

impl UplinkActor {
    pub(super) fn start(uplink: Uplink) -> Addr<UplinkActor> {
        UplinkActor::create(|ctx: &mut Context<UplinkActor>| {
            ctx.set_mailbox_capacity(MAILBOX);
            UplinkActor(uplink)
        })
    }

    fn standing(&self, now: Millis) -> Standing {
        let session = self.0.session();
        Standing {
            under_way: session.under_way(),
            wake: self.0.wake(now),
            target: Arc::clone(session.target()),
            failures: session.failures(),
            resources: session.resources(),
        }
    }

    fn landed(&mut self, now: Millis, number: u64, landed: Landed) -> Vec<(Arc<str>, Supply)> {
        match landed {
            Landed::Granted(granted) => return self.0.answered(now, number, granted).unwrap_or_default(),
            Landed::Elsewhere(master) => _ = self.0.redirected(now, number, master.as_deref()),
            Landed::Failed => _ = self.0.failed(now, number),
        }
        Vec::new()
    }
}

impl Actor for UplinkActor {
    type Context = Context<Self>;
}

impl Handler<Turn> for UplinkActor {
    type Result = MessageResult<Turn>;

    fn handle(&mut self, turn: Turn, _: &mut Context<Self>) -> MessageResult<Turn> {
        let now = turn.now;
        #[cfg(test)]
        assert!(!turn.hinted.iter().any(|id| id == super::tests::PANIC), "a planted fault");
        for notice in turn.notices {
            match notice {
                Notice::Asks(id) => self.0.want(now, &id),
                Notice::Retired(id) => self.0.release(&id),
            }
        }
        for id in &turn.hinted {
            self.0.hint(now, id);
        }
        if turn.everything_hinted {
            self.0.hint_all(now);
        }
        let supplies = turn.landed.map(|(number, landed)| self.landed(now, number, landed)).unwrap_or_default();
        let due = self.0.due(now);
        let due = self.0.session().is_due(now).then_some(due);
        MessageResult(Turned { supplies, due, standing: self.standing(now) })
    }
}

impl Handler<Send> for UplinkActor {
    type Result = MessageResult<Send>;

    fn handle(&mut self, send: Send, _: &mut Context<Self>) -> MessageResult<Send> {
        let outgoing = self.0.poll(send.now, send.condensed);
        MessageResult((outgoing, self.standing(send.now)))
    }
}
