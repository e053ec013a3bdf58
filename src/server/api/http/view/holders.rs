//! The holders of a resource, searched and sorted. A resource says its holders in the order that it keeps them in, a
//! part at a time and between other work; what is not among the rows asked for is let go on the way.

use std::cmp::Ordering;

use leaseway_core::{HolderKind, HolderReport, Millis};
use serde::{Deserialize, Serialize};

use super::{super::Pages, PAGE_ROWS};

/// Holders that a resource is asked for at a time: one or two milliseconds of it.
const MAX_EXAMINED: usize = 10_000;
/// Holders that can be reached by paging; those further on by searching.
const REACHED: usize = 100_000;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(in super::super) struct HolderRow {
    pub(in super::super) holder: String,
    /// `client`, `node` or `gateway`: a client that limits others with what it has.
    pub(in super::super) kind: &'static str,
    pub(in super::super) priority: i16,
    pub(in super::super) clients: u64,
    pub(in super::super) wants: f64,
    pub(in super::super) due: f64,
    pub(in super::super) has: f64,
    pub(in super::super) held: f64,
    /// 0: its lease has ended.
    pub(in super::super) remaining_ms: u64,
}

impl HolderRow {
    pub(super) fn of(holder: &HolderReport, at: Millis) -> HolderRow {
        HolderRow {
            holder: holder.id.to_string(),
            kind: match holder.kind {
                HolderKind::Node => "node",
                HolderKind::Client if holder.is_gateway => "gateway",
                HolderKind::Client => "client",
            },
            priority: holder.priority,
            clients: holder.subclients,
            wants: holder.wants.get(),
            due: holder.due.get(),
            has: holder.granted.get(),
            held: holder.held.get(),
            remaining_ms: holder.end.since(at).0,
        }
    }
}

/// What holders are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(in super::super) enum HolderSort {
    Holder,
    #[default]
    Wants,
    Due,
    Has,
    Held,
    Clients,
    Priority,
    /// What it lacks of its due.
    Short,
}

impl HolderSort {
    pub(in super::super) fn name(self) -> &'static str {
        match self {
            HolderSort::Holder => "holder",
            HolderSort::Wants => "wants",
            HolderSort::Due => "due",
            HolderSort::Has => "has",
            HolderSort::Held => "held",
            HolderSort::Clients => "clients",
            HolderSort::Priority => "priority",
            HolderSort::Short => "short",
        }
    }

    fn key(self, holder: &HolderReport) -> f64 {
        match self {
            HolderSort::Holder => 0.0,
            HolderSort::Wants => holder.wants.get(),
            HolderSort::Due => holder.due.get(),
            HolderSort::Has => holder.granted.get(),
            HolderSort::Held => holder.held.get(),
            HolderSort::Clients => holder.subclients as f64,
            HolderSort::Priority => f64::from(holder.priority),
            HolderSort::Short => holder.due.get() - holder.granted.get(),
        }
    }

    /// Numbers from the largest, ids from the smallest.
    fn order(self, one: &HolderReport, other: &HolderReport) -> Ordering {
        self.key(other).total_cmp(&self.key(one)).then_with(|| one.id.cmp(&other.id))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct HolderQuery {
    pub(in super::super) resource: String,
    /// A part of the id.
    pub(in super::super) search: String,
    pub(in super::super) sort: HolderSort,
    /// The first is 1.
    pub(in super::super) page: usize,
}

/// A page of holders.
#[derive(Debug, Default, PartialEq)]
pub(in super::super) struct HolderPage {
    pub(in super::super) rows: Vec<HolderRow>,
    /// Holders that were searched for.
    pub(in super::super) matching: usize,
    /// Pages that can be asked for.
    pub(in super::super) pages: usize,
}

/// The best of what has been looked at.
struct Selection<'a> {
    query: &'a HolderQuery,
    from: usize,
    best: Vec<HolderReport>,
    matching: usize,
}

impl<'a> Selection<'a> {
    fn new(query: &'a HolderQuery) -> Selection<'a> {
        let from = query.page.saturating_sub(1).saturating_mul(PAGE_ROWS);
        Selection { query, from, best: Vec::new(), matching: 0 }
    }

    fn needed(&self) -> usize {
        if self.from < REACHED { self.from + PAGE_ROWS } else { 0 }
    }

    fn look_at(&mut self, holders: Vec<HolderReport>) {
        let before = self.best.len();
        self.best.extend(holders.into_iter().filter(|holder| holder.id.contains(&self.query.search)));
        self.matching += self.best.len() - before;
        if self.best.len() > 2 * self.needed() {
            self.keep_best();
        }
    }

    fn keep_best(&mut self) {
        let (sort, needed) = (self.query.sort, self.needed());
        if (1..self.best.len()).contains(&needed) {
            self.best.select_nth_unstable_by(needed, |one, other| sort.order(one, other));
        }
        self.best.truncate(needed);
    }

    fn finish(mut self, at: Millis) -> HolderPage {
        self.keep_best();
        let sort = self.query.sort;
        self.best.sort_unstable_by(|one, other| sort.order(one, other));
        let rows = self.best.iter().skip(self.from).map(|holder| HolderRow::of(holder, at)).collect();
        HolderPage { rows, matching: self.matching, pages: self.matching.min(REACHED).div_ceil(PAGE_ROWS) }
    }
}

/// A page of holders; none if the resource is not known here.
pub(in super::super) async fn holders(pages: &Pages, query: &HolderQuery) -> Option<HolderPage> {
    let _turn = pages.snapshots.holders.acquire().await;
    let mut selection = Selection::new(query);
    let mut from = 0;
    loop {
        let status = pages.node.resource_status(&query.resource, from, MAX_EXAMINED).await?;
        let (next, at) = (status.next, status.at);
        selection.look_at(status.holders);
        match next {
            Some(next) => from = next,
            None => return Some(selection.finish(at)),
        }
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use leaseway_core::Amount;

    use super::*;

    fn report(number: usize) -> HolderReport {
        let amount = |value: usize| Amount::clamped(value as f64);
        HolderReport {
            id: format!("client-{number:06}").into(),
            kind: HolderKind::Client,
            is_gateway: false,
            priority: 0,
            subclients: 1,
            // Each once, in no order.
            wants: amount(number * 7919 % 30_011),
            due: amount(10),
            granted: amount(10),
            held: amount(10),
            end: Millis(number as u64),
        }
    }

    fn page(query: &HolderQuery, number: usize) -> HolderPage {
        let mut selection = Selection::new(query);
        let all: Vec<HolderReport> = (0..number).map(report).collect();
        all.chunks(MAX_EXAMINED / 10).for_each(|part| {
            selection.look_at(part.to_vec());
            assert!(selection.best.len() <= 2 * selection.needed() + MAX_EXAMINED, "what is kept is bounded");
        });
        selection.finish(Millis(5))
    }

    #[test]
    fn a_page_is_what_sorting_all_of_them_would_give() {
        let mut all: Vec<HolderReport> = (0..30_011).map(report).collect();
        all.sort_by(|one, other| HolderSort::Wants.order(one, other));
        for number in [0, 1, 2, 17, 30] {
            let query = HolderQuery { page: number, ..HolderQuery::default() };
            let page = page(&query, 30_011);
            let from = number.saturating_sub(1) * PAGE_ROWS;
            let expected: Vec<&str> = all[from..].iter().take(PAGE_ROWS).map(|holder| &*holder.id).collect();
            assert_eq!(page.rows.iter().map(|row| &*row.holder).collect::<Vec<_>>(), expected, "page {number}");
            assert_eq!((page.matching, page.pages), (30_011, 31));
        }
    }

    #[test]
    fn holders_are_searched_and_what_is_beyond_reach_is_not_kept() {
        let query = HolderQuery { search: "0012".into(), sort: HolderSort::Holder, ..HolderQuery::default() };
        let found = page(&query, 30_011);
        assert_eq!((found.rows[0].holder.as_str(), found.matching), ("client-000012", 113));
        let beyond = page(&HolderQuery { page: usize::MAX, ..HolderQuery::default() }, 3000);
        assert_eq!((beyond.rows.len(), beyond.matching), (0, 3000));
    }

    #[test]
    fn a_lease_that_has_ended_has_nothing_left() {
        let page = page(&HolderQuery { sort: HolderSort::Holder, ..HolderQuery::default() }, 10);
        assert_eq!((page.rows[0].remaining_ms, page.rows[9].remaining_ms), (0, 4));
    }
}
