//! All resources, looked at no more than once a second however many pages show them, and one in detail.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use leaseway_core::{Amount, PoolReport, Terms, readable};
use leaseway_proto::status::{Resource, Supply};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::{super::Pages, PAGE_ROWS, overrides::OverriddenView};
use crate::node::Status;

/// Resources are looked at again no sooner than this.
const FRESH: Duration = Duration::from_secs(1);
/// Nor sooner than so many times as long as it took: looking takes a twentieth of a thread at most.
const REST: u32 = 20;

/// A resource at a glance.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(in super::super) struct ResourceRow {
    pub(in super::super) resource: Arc<str>,
    pub(in super::super) algorithm: &'static str,
    /// None: it matches none.
    pub(in super::super) template: Option<String>,
    /// Whether the capacity binds its holders.
    pub(in super::super) is_divided: bool,
    pub(in super::super) capacity: f64,
    pub(in super::super) wants: f64,
    pub(in super::super) granted: f64,
    pub(in super::super) held: f64,
    pub(in super::super) holders: usize,
    pub(in super::super) clients: u64,
    /// Holders that are gateways, and what of `held` they have.
    pub(in super::super) gateways: u64,
    pub(in super::super) held_by_gateways: f64,
    /// 0 when it divides.
    pub(in super::super) learning_ms: u64,
    /// Which loan of the parent it is, and for how long; absent at a root.
    #[serde(skip)]
    loan: Option<(u64, u64)>,
}

impl ResourceRow {
    fn of(status: &Status) -> ResourceRow {
        let report = &status.report;
        ResourceRow {
            resource: Arc::clone(&status.id),
            algorithm: report.settings.kind.name(),
            template: status.template.clone(),
            is_divided: report.is_divided(),
            capacity: report.settings.capacity.get(),
            wants: report.sums.wants.get(),
            granted: report.sums.granted.get(),
            held: report.sums.held.get(),
            holders: report.holders,
            clients: report.sums.subclients,
            gateways: report.sums.gateways,
            held_by_gateways: report.sums.held_by_gateways.get(),
            learning_ms: report.learning.0,
            loan: report.supply.as_ref().map(|supply| (supply.version, supply.remaining.0)),
        }
    }

    /// What verdicts rest on.
    pub(super) fn seen(&self) -> Resource {
        let loan = self.loan.map(|(edition, remaining_ms)| Supply { edition, remaining_ms, ..Supply::default() });
        Resource {
            resource_id: self.resource.to_string(),
            template: self.template.clone().unwrap_or_default(),
            capacity: self.capacity,
            held: self.held,
            learning_ms: self.learning_ms,
            unbounded: !self.is_divided,
            supply: loan,
            ..Resource::default()
        }
    }

    /// What is held beyond the capacity.
    pub(in super::super) fn over(&self) -> f64 {
        if self.is_divided { (self.held - self.capacity).max(0.0) } else { 0.0 }
    }

    /// Wants as a multiple of the capacity.
    pub(in super::super) fn pressure(&self) -> f64 {
        match () {
            () if !self.is_divided || self.wants <= 0.0 => 0.0,
            () if self.capacity <= 0.0 => f64::MAX,
            () => self.wants / self.capacity,
        }
    }
}

/// The resources, as they were when they were looked at.
#[derive(Debug, Default)]
pub(in super::super) struct ResourceRows {
    pub(in super::super) rows: Vec<ResourceRow>,
}

/// What was looked at last.
#[derive(Default)]
pub(in super::super) struct ResourceCache(Mutex<Option<LastLook>>);

struct LastLook {
    at: Instant,
    took: Duration,
    rows: Arc<ResourceRows>,
}

impl ResourceCache {
    /// The resources, of a second ago at the most; of longer ago where there are very many.
    pub(in super::super) async fn get(&self, pages: &Pages) -> Arc<ResourceRows> {
        let mut last = self.0.lock().await;
        if let Some(look) = last.as_ref().filter(|look| look.at.elapsed() < FRESH.max(look.took * REST)) {
            return Arc::clone(&look.rows);
        }
        let began = Instant::now();
        let (statuses, _) = pages.node.statuses("", usize::MAX).await;
        let rows = Arc::new(ResourceRows { rows: statuses.iter().map(ResourceRow::of).collect() });
        let now = Instant::now();
        *last = Some(LastLook { at: now, took: now - began, rows: Arc::clone(&rows) });
        rows
    }
}

/// What resources are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(in super::super) enum ResourceSort {
    #[default]
    Resource,
    Capacity,
    Wants,
    Granted,
    Held,
    Clients,
    Pressure,
    Over,
}

impl ResourceSort {
    pub(in super::super) fn name(self) -> &'static str {
        match self {
            ResourceSort::Resource => "resource",
            ResourceSort::Capacity => "capacity",
            ResourceSort::Wants => "wants",
            ResourceSort::Granted => "granted",
            ResourceSort::Held => "held",
            ResourceSort::Clients => "clients",
            ResourceSort::Pressure => "pressure",
            ResourceSort::Over => "over",
        }
    }

    fn key(self, row: &ResourceRow) -> f64 {
        match self {
            ResourceSort::Resource => 0.0,
            ResourceSort::Capacity => row.capacity,
            ResourceSort::Wants => row.wants,
            ResourceSort::Granted => row.granted,
            ResourceSort::Held => row.held,
            ResourceSort::Clients => row.clients as f64,
            ResourceSort::Pressure => row.pressure(),
            ResourceSort::Over => row.over(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct ResourceQuery {
    /// A part of the id.
    pub(in super::super) search: String,
    pub(in super::super) sort: ResourceSort,
    /// The first is 1.
    pub(in super::super) page: usize,
}

impl ResourceRows {
    /// A page of those that are asked for, and how many there are; numbers from the largest, ids from the smallest.
    pub(in super::super) fn page(&self, query: &ResourceQuery) -> (Vec<&ResourceRow>, usize) {
        let mut rows: Vec<&ResourceRow> = self.rows.iter().filter(|row| row.resource.contains(&query.search)).collect();
        // Stable: they are in the order of their ids.
        rows.sort_by(|one, other| query.sort.key(other).total_cmp(&query.sort.key(one)));
        let matching = rows.len();
        let from = query.page.saturating_sub(1).saturating_mul(PAGE_ROWS);
        (rows.into_iter().skip(from).take(PAGE_ROWS).collect(), matching)
    }
}

/// A resource in detail.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(in super::super) struct ResourceDetail {
    #[serde(flatten)]
    pub(in super::super) row: ResourceRow,
    pub(in super::super) free: f64,
    pub(in super::super) lease_ms: u64,
    pub(in super::super) refresh_ms: u64,
    /// Absent at a root.
    pub(in super::super) lent: Option<LentView>,
    /// Absent where promises are not kept.
    pub(in super::super) promised: Option<PromisedView>,
    /// Absent if it is no pool.
    pub(in super::super) pool: Option<PoolView>,
    /// Absent where the template's capacity is in force.
    pub(in super::super) overridden: Option<OverriddenView>,
}

/// What the parent has lent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(in super::super) struct LentView {
    /// 0 while the first loan is awaited.
    pub(in super::super) edition: u64,
    pub(in super::super) remaining_ms: u64,
    /// What the parent was last told.
    pub(in super::super) outstanding: Option<f64>,
    /// What the parent divides by.
    pub(in super::super) terms: Vec<String>,
}

/// What the peers keep as promised.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(in super::super) struct PromisedView {
    pub(in super::super) total: f64,
    /// What earlier masters promised and no holder has named yet.
    pub(in super::super) estate: f64,
    pub(in super::super) estate_ms: u64,
    pub(in super::super) horizon_ms: u64,
}

/// A pool at a glance.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(in super::super) struct PoolView {
    pub(in super::super) total: f64,
    pub(in super::super) connected: f64,
    pub(in super::super) priority_connected: f64,
    pub(in super::super) assigned: f64,
    pub(in super::super) recharging: f64,
    pub(in super::super) waiting: usize,
    pub(in super::super) overloads: u64,
}

impl PoolView {
    fn of(pool: &PoolReport) -> PoolView {
        PoolView {
            total: pool.total.get(),
            connected: pool.connected.get(),
            priority_connected: pool.priority_connected.get(),
            assigned: pool.priority_assigned.get(),
            recharging: pool.used.get(),
            waiting: pool.free_waiting + pool.priority_waiting,
            overloads: pool.overloads,
        }
    }
}

/// One resource; none if it is not known here.
pub(in super::super) async fn resource(pages: &Pages, id: &str) -> Option<ResourceDetail> {
    let status = pages.node.resource_status(id, 0, 0).await?;
    let row = ResourceRow::of(&status);
    let settings = &status.report.settings;
    let lent = status.report.supply.as_ref().map(|supply| LentView {
        edition: supply.version,
        remaining_ms: supply.remaining.0,
        outstanding: supply.told.map(Amount::get),
        terms: supply.terms.iter().map(|(priority, terms)| said(*priority, terms)).collect(),
    });
    let promised = status.promises.map(|promises| PromisedView {
        total: promises.total.get(),
        estate: promises.unclaimed.get(),
        estate_ms: promises.unclaimed_until.since(status.at).0,
        horizon_ms: promises.horizon.since(status.at).0,
    });
    Some(ResourceDetail {
        free: row.capacity - row.held,
        lease_ms: settings.lease.0,
        refresh_ms: settings.refresh.0,
        lent,
        promised,
        pool: status.pool.as_ref().map(PoolView::of),
        overridden: status.report.overridden.as_ref().map(|overridden| OverriddenView::of(overridden, status.at)),
        row,
    })
}

fn said(priority: i16, terms: &Terms) -> String {
    let by = match terms {
        Terms::Wants => "all that is wanted".to_owned(),
        Terms::Each(most) => format!("{most} for each client"),
        Terms::Level(level) => format!("at most {} for each client", readable(*level)),
        Terms::Minimums(level) => format!("minimums alone, at most {} for each client", readable(*level)),
        Terms::Share { equal, top_up } => {
            format!("{} for each client and {} % of what is wanted beyond", readable(*equal), readable(top_up * 100.0))
        }
    };
    format!("priority {priority}: {by}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: &str, capacity: f64, wants: f64, held: f64) -> ResourceRow {
        ResourceRow {
            resource: id.into(),
            algorithm: "FAIR_SHARE",
            template: None,
            is_divided: true,
            capacity,
            wants,
            granted: held,
            held,
            holders: 1,
            clients: 1,
            gateways: 0,
            held_by_gateways: 0.0,
            learning_ms: 0,
            loan: None,
        }
    }

    #[test]
    fn resources_are_searched_sorted_and_paged() {
        let rows = (0..2500).map(|number| row(&format!("r{number:04}"), 100.0, f64::from(number), 1.0)).collect();
        let rows = ResourceRows { rows };
        let query = ResourceQuery { sort: ResourceSort::Wants, page: 3, search: "r".into() };
        let (page, matching) = rows.page(&query);
        assert_eq!((page.len(), matching), (500, 2500));
        assert_eq!((&*page[0].resource, &*page[499].resource), ("r0499", "r0000"));
        let (page, matching) = rows.page(&ResourceQuery { search: "24".into(), ..ResourceQuery::default() });
        assert_eq!((&*page[0].resource, matching), ("r0024", 154));
        assert_eq!(rows.page(&ResourceQuery { page: usize::MAX, ..ResourceQuery::default() }).0.len(), 0);
    }

    #[test]
    fn what_is_not_divided_is_neither_over_nor_contended() {
        let free = ResourceRow { is_divided: false, ..row("a", 0.0, 5.0, 5.0) };
        assert_eq!((free.over(), free.pressure()), (0.0, 0.0));
        assert_eq!(row("a", 10.0, 20.0, 15.0).over(), 5.0);
        assert_eq!((row("a", 10.0, 20.0, 5.0).pressure(), row("a", 0.0, 0.0, 0.0).pressure()), (2.0, 0.0));
    }
}
