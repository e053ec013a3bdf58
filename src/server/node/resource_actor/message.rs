//! What is sent to a resource besides requests.

use std::sync::Arc;

use actix::Message;
use leaseway_core::{DemandSummary, Millis, Resource, Settings, Supply};
use tokio::sync::oneshot;

use super::{
    super::{
        commit::{Commit, CommitProgress},
        config_in_force::ConfigInForce,
    },
    Status,
};

/// Everything but requests.
pub(in super::super) enum ResourceMessage {
    /// Time has passed.
    Tick {
        config: Arc<ConfigInForce>,
    },
    /// The parent has lent this, to be divided so.
    Supply {
        supply: Supply,
        settings: Box<Settings>,
    },
    /// The parent is about to be asked.
    Condense {
        reply: oneshot::Sender<DemandSummary>,
    },
    /// An operator wants this done.
    Operate {
        work: Work,
    },
    Part {
        reply: oneshot::Sender<Option<NotesUnderWay>>,
    },
    /// What the resource says about itself, with a page of holders.
    Report {
        from: usize,
        limit: usize,
        reply: oneshot::Sender<Status>,
    },
}

impl Message for ResourceMessage {
    type Result = ();
}

/// Something to be done with a resource, by an operator.
pub(super) type Work = Box<dyn FnOnce(&mut Resource, Millis) + Send>;

/// Notes of a pool that the quorum may not have stored yet.
#[derive(Debug)]
pub(in super::super) struct NotesUnderWay {
    pub(super) progress: Arc<CommitProgress>,
    pub(super) newest: u64,
}

impl NotesUnderWay {
    /// Whether the quorum has stored them, or never will.
    pub(in super::super) fn is_over(&self) -> bool {
        matches!(self.progress.now(), Commit::Lost) || self.progress.now() == Commit::UpTo(self.newest)
    }
}
