//! What each holder of a budget has spent in a period, for bills and reports.
//!
//! A row is the sum that one incarnation of a holder has reported. A later row of the same incarnation and period
//! replaces it, so a row may be stored twice. Rows are [`Notes`](crate::resource::Notes): no answer waits for them.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::Arc,
};

use crate::{
    policy::period::Span,
    resource::{Resource, Spent, budget::spender_id},
    types::{Amount, HolderKind, Millis, Sum},
};

/// A row is written this long after the change, so that a holder that spends all the time writes two rows a minute.
const WRITE_AFTER: Millis = Millis(30_000);
/// Maximum number of rows that wait to be written. Later ones are left out, so that clients that come and go, or report
/// without a record, cannot make the memory grow.
const MAX_READY: usize = 10_000;
/// Approximate size of a row without its texts.
const ROW_BYTES: usize = 48;

/// What one incarnation of a holder has spent in a period.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct UsageRow {
    pub period: Span,
    pub kind: HolderKind,
    /// The holder and its incarnation, see [`holder_of_record`](super::holder_of_record).
    pub record: Arc<str>,
    /// The path of its group, if clients are grouped.
    pub group: Option<Arc<str>>,
    pub spent: Amount,
    /// What it had in advance, and has not reported before it was gone. It counts as spent.
    pub lost: Amount,
    pub update: UsageUpdate,
}

/// What a row does to the stored one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum UsageUpdate {
    Replace,
    /// Only raises a stored sum: it was reported after the period, or without a record, and may have been delayed.
    /// Anybody can report anything without a record, so that makes no row.
    Raise,
    /// As [`Raise`](Self::Raise), but makes a row if there is none: holders that are gone have spent as much.
    RaiseOrAdd,
}

#[derive(Debug, Default)]
pub(super) struct Usage {
    /// The slots of holders that have reported something since their last row.
    changed: BTreeSet<u32>,
    /// What the last row of a holder says, by slot.
    written: HashMap<u32, Amount>,
    /// Rows of holders that are gone.
    ready: VecDeque<UsageRow>,
    /// Rows that may not be stored yet.
    under_way: Vec<UsageRow>,
    /// What was reported without a record in this period, and may make rows.
    unknown: Sum,
    /// When to write, if there is something to write.
    due: Option<Millis>,
}

impl Usage {
    fn push(&mut self, row: UsageRow, now: Millis) {
        if self.ready.len() < MAX_READY {
            self.ready.push_back(row);
        }
        self.write_later(now);
    }

    fn write_later(&mut self, now: Millis) {
        self.due.get_or_insert(now.plus(WRITE_AFTER));
    }

    pub(super) fn forget(&mut self, slot: u32) {
        self.changed.remove(&slot);
        self.written.remove(&slot);
    }
}

impl Resource {
    /// Notes that a holder has reported what it has spent.
    pub(super) fn note_usage(&mut self, slot: u32, now: Millis) {
        if !self.book.keeps_promises() {
            return;
        }
        let spent = self.book.ledger().holder(slot).leases.reported();
        let Some(budget) = &mut self.budget else { return };
        if budget.usage.written.get(&slot).copied().unwrap_or_default() != spent {
            budget.usage.changed.insert(slot);
            budget.usage.write_later(now);
        }
    }

    /// Adds the last row of a holder whose record is about to be dropped. `spent`, if it says so itself.
    pub(super) fn finish_usage(&mut self, slot: u32, spent: Option<Amount>, lost: Amount, now: Millis) {
        let Some(row) = self.usage_row(slot, spent, lost) else { return };
        let Some(budget) = &mut self.budget else { return };
        let has_changed = budget.usage.written.get(&slot).copied().unwrap_or_default() != row.spent;
        if has_changed || lost > Amount::ZERO {
            budget.usage.push(row, now);
        }
    }

    /// Adds the last rows of all holders, because their period ends.
    pub(super) fn finish_period_usage(&mut self, now: Millis) {
        let Some(budget) = &mut self.budget else { return };
        budget.usage.unknown = Sum::ZERO;
        for slot in std::mem::take(&mut budget.usage.changed) {
            self.finish_usage(slot, None, Amount::ZERO, now);
        }
    }

    /// Adds what a client reports of the period before, if that has just ended: its last report did not arrive in time.
    pub(super) fn note_late_usage(&mut self, kind: HolderKind, id: &Arc<str>, spent: &Spent, now: Millis) {
        let before = self.settings.budget.periods.at(spent.period);
        let current = self.budget.as_ref().and_then(|budget| budget.period);
        if current.is_some_and(|span| before.end == span.start) && before.start == spent.period {
            let record = spender_id(kind, id, spent.incarnation, None);
            self.raise_usage(kind, record, before, spent.amount, UsageUpdate::Raise, now);
        }
    }

    /// Adds what a client reports without a record, for example after a change of master. Rows that this makes have
    /// together at most what is spent by holders that are gone.
    pub(super) fn note_unknown_usage(
        &mut self,
        kind: HolderKind,
        record: Arc<str>,
        period: Span,
        spent: Amount,
        now: Millis,
    ) {
        let gone = Sum::from(self.book.unclaimed());
        let Some(budget) = &mut self.budget else { return };
        let mut unknown = budget.usage.unknown;
        unknown += spent;
        let mut update = UsageUpdate::Raise;
        if unknown <= gone {
            (budget.usage.unknown, update) = (unknown, UsageUpdate::RaiseOrAdd);
        }
        self.raise_usage(kind, record, period, spent, update, now);
    }

    fn raise_usage(
        &mut self,
        kind: HolderKind,
        record: Arc<str>,
        period: Span,
        spent: Amount,
        update: UsageUpdate,
        now: Millis,
    ) {
        let Some(budget) = self.budget.as_mut().filter(|_| self.book.keeps_promises()) else { return };
        if spent > Amount::ZERO && kind == HolderKind::Client {
            let (spent, lost) = (spent.min(budget.amount), Amount::ZERO);
            budget.usage.push(UsageRow { period, kind, record, group: None, spent, lost, update }, now);
        }
    }

    fn usage_row(&self, slot: u32, spent: Option<Amount>, lost: Amount) -> Option<UsageRow> {
        let period = self.budget.as_ref()?.period.filter(|_| self.book.keeps_promises())?;
        let holder = self.book.ledger().holder(slot);
        let groups = self.settings.groups.as_ref().filter(|_| holder.kind == HolderKind::Client);
        let group = groups.and_then(|groups| groups.from.groups_of(self.id_of(holder)));
        Some(UsageRow {
            period,
            kind: holder.kind,
            record: Arc::clone(&holder.id),
            group: group.map(|levels| levels.join("/").into()),
            spent: spent.unwrap_or(holder.leases.reported()),
            lost,
            update: UsageUpdate::Replace,
        })
    }

    /// Whether rows are due. With `all`: whether there are any.
    pub(in crate::resource) fn has_usage(&self, now: Millis, all: bool) -> bool {
        let due = self.budget.as_ref().and_then(|budget| budget.usage.due);
        due.is_some_and(|due| all || due <= now)
    }

    /// Takes at most `most` rows of about `bytes` together.
    pub(in crate::resource) fn take_usage(&mut self, now: Millis, most: usize, bytes: usize) -> Vec<UsageRow> {
        let (mut rows, mut left) = (Vec::new(), bytes);
        while let Some(row) = self.next_usage_row() {
            left =
                left.saturating_sub(ROW_BYTES + row.record.len() + row.group.as_ref().map_or(0, |group| group.len()));
            rows.push(row);
            if rows.len() == most || left == 0 {
                break;
            }
        }
        if let Some(budget) = &mut self.budget {
            let usage = &mut budget.usage;
            // What is left is written as soon as possible.
            usage.due = (!usage.ready.is_empty() || !usage.changed.is_empty()).then_some(now);
            usage.under_way.extend(rows.iter().cloned());
        }
        rows
    }

    fn next_usage_row(&mut self) -> Option<UsageRow> {
        loop {
            let usage = &mut self.budget.as_mut()?.usage;
            if let Some(row) = usage.ready.pop_front() {
                return Some(row);
            }
            let slot = usage.changed.pop_first()?;
            let row = self.usage_row(slot, None, Amount::ZERO)?;
            if self.budget.as_mut()?.usage.written.insert(slot, row.spent) != Some(row.spent) {
                return Some(row);
            }
        }
    }

    /// All rows that were taken are stored.
    pub(crate) fn usage_stored(&mut self) {
        if let Some(budget) = &mut self.budget {
            budget.usage.under_way.clear();
        }
    }

    /// Rows that were taken may be lost: takes them again.
    pub(in crate::resource) fn write_usage_again(&mut self) {
        if let Some(budget) = &mut self.budget {
            let usage = &mut budget.usage;
            let lost = std::mem::take(&mut usage.under_way);
            lost.into_iter().rev().for_each(|row| usage.ready.push_front(row));
            usage.due = (!usage.ready.is_empty() || !usage.changed.is_empty()).then_some(Millis(0));
        }
    }
}
