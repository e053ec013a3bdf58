//! A client: the real session, and what it may use.

use std::sync::Arc;

use leaseway_core::{Amount, Millis};
use leaseway_session::{Session, Wants as Asked};

use crate::uses::Habit;

/// One client, or the one that came in its place.
pub(crate) struct Client {
    pub(crate) session: Session<Asked>,
    pub(crate) name: Arc<str>,
    pub(crate) incarnation: u32,
    pub(crate) wants: Amount,
    /// Not while it has given back what it had.
    pub(crate) is_here: bool,
    /// What its book says that it may use.
    pub(crate) believes: Amount,
    /// How it uses that, if it says.
    pub(crate) habit: Option<Habit>,
    /// When it will be woken next, if that is known.
    pub(crate) woken_at: Option<Millis>,
    pub(crate) cut_until: Millis,
}

impl Client {
    /// What it wants now; nothing while it is not here.
    pub(crate) fn wants(&self) -> Amount {
        if self.is_here { self.wants } else { Amount::ZERO }
    }

    /// What it uses now, as far as it says; one that does not say uses all it has.
    pub(crate) fn uses(&self) -> Amount {
        if self.habit.as_ref().is_none_or(Habit::is_busy) { self.believes } else { Amount::ZERO }
    }
}
