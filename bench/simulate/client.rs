//! A client: the real session, and what it may use.

use std::sync::Arc;

use leaseway_core::{Amount, Millis};
use leaseway_session::{Session, Wants as Asked};

use super::uses::Habit;

/// One client, or the one that came in its place.
pub(super) struct Client {
    pub(super) session: Session<Asked>,
    pub(super) name: Arc<str>,
    pub(super) life: u32,
    pub(super) wants: Amount,
    /// Not while it has given back what it had.
    pub(super) is_here: bool,
    /// What its book says that it may use.
    pub(super) believes: Amount,
    /// How it uses that, if it says.
    pub(super) habit: Option<Habit>,
    /// When it will be woken next, if that is known.
    pub(super) woken_at: Option<Millis>,
    pub(super) cut_until: Millis,
}

impl Client {
    /// What it wants now; nothing while it is not here.
    pub(super) fn wants(&self) -> Amount {
        if self.is_here { self.wants } else { Amount::ZERO }
    }

    /// What it uses now, as far as it says; one that does not say uses all it has.
    pub(super) fn uses(&self) -> Amount {
        if self.habit.as_ref().is_none_or(Habit::is_busy) { self.believes } else { Amount::ZERO }
    }
}
