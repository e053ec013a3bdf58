//! The actor of an uplink: it owns the machine, and does nothing else.

use actix::{Actor, Addr, Context, Handler, Message, MessageResult};
use leaseway_core::Millis;
use leaseway_uplink::{UplinkEffects, UplinkEngine, UplinkInput};

/// Only the asker sends, one message after the other.
pub(super) const MAILBOX: usize = 4;

/// What has happened since the run before.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) now: Millis,
    pub(super) inputs: Vec<UplinkInput>,
}

impl Message for Run {
    type Result = UplinkEffects;
}

pub(super) struct UplinkActor(UplinkEngine);

impl UplinkActor {
    pub(super) fn start(engine: UplinkEngine) -> Addr<UplinkActor> {
        UplinkActor::create(|ctx: &mut Context<UplinkActor>| {
            ctx.set_mailbox_capacity(MAILBOX);
            UplinkActor(engine)
        })
    }
}

impl Actor for UplinkActor {
    type Context = Context<Self>;
}

impl Handler<Run> for UplinkActor {
    type Result = MessageResult<Run>;

    fn handle(&mut self, run: Run, _: &mut Context<Self>) -> MessageResult<Run> {
        #[cfg(test)]
        assert!(!super::tests::panics(&run.inputs), "a planted fault");
        MessageResult(self.0.run(run.now, run.inputs))
    }
}
