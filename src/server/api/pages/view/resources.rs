//! Resources and their holders.

use std::{
    cmp::Ordering,
    sync::Arc,
    time::{Duration, Instant},
};

use leaseway_core::{
    allocation::{division::Terms, groups::GroupReport},
    policy::overrides::Override,
    resource::HolderReport,
    resource::OverriddenGroup,
    types::{Amount, HolderKind, Millis, readable},
};
use leaseway_proto::status::{Resource, Supply};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::{
    api::{pages::Pages, status::history::Span},
    node::Status,
};

/// Maximum number of rows of a page.
pub(crate) const PAGE_ROWS: usize = 1000;
/// Maximum number of rows that are kept. With more resources, those under the most pressure are kept.
const MAX_ROWS: usize = 20_000;
/// Minimum time between two reads of all resources.
const MIN_AGE: Duration = Duration::from_secs(1);
/// The same as a multiple of the duration of the last read, so that reads take at most a twentieth of a thread.
const REST: u32 = 20;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ResourceRow {
    pub(crate) resource: Arc<str>,
    pub(crate) algorithm: &'static str,
    /// None if no template matches.
    pub(crate) template: Option<String>,
    /// Whether the capacity is divided, and so limits the holders.
    pub(crate) is_divided: bool,
    pub(crate) capacity: f64,
    pub(crate) wants: f64,
    pub(crate) granted: f64,
    pub(crate) held: f64,
    pub(crate) holders: usize,
    pub(crate) clients: u64,
    /// Number of gateways among the holders, and their part of `held`.
    pub(crate) gateways: u64,
    pub(crate) held_by_gateways: f64,
    /// Time left in learning mode; 0 if it is over.
    pub(crate) learning_ms: u64,
    /// Version and remaining time of the parent's lease. None at a root.
    #[serde(skip)]
    supply: Option<(u64, u64)>,
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
            supply: report.supply.as_ref().map(|supply| (supply.version, supply.remaining.0)),
        }
    }

    /// The fields that checks need.
    pub(crate) fn to_status(&self) -> Resource {
        let supply = self.supply.map(|(version, remaining_ms)| Supply { version, remaining_ms, ..Supply::default() });
        Resource {
            resource_id: self.resource.to_string(),
            template: self.template.clone().unwrap_or_default(),
            capacity: self.capacity,
            held: self.held,
            learning_ms: self.learning_ms,
            unbounded: !self.is_divided,
            supply,
            ..Resource::default()
        }
    }

    /// The amount by which `held` exceeds the capacity.
    pub(crate) fn over(&self) -> f64 {
        if self.is_divided { (self.held - self.capacity).max(0.0) } else { 0.0 }
    }

    /// Wants as a multiple of the capacity.
    pub(crate) fn pressure(&self) -> f64 {
        match () {
            () if !self.is_divided || self.wants <= 0.0 => 0.0,
            () if self.capacity <= 0.0 => f64::MAX,
            () => self.wants / self.capacity,
        }
    }
}

/// The resources at one time, in the order of their ids.
#[derive(Debug, Default)]
pub(crate) struct ResourceRows {
    pub(crate) rows: Vec<ResourceRow>,
    /// Resources beyond [`MAX_ROWS`].
    pub(crate) left_out: usize,
}

/// A cache of all resources.
#[derive(Default)]
pub(crate) struct ResourceCache(Mutex<Option<CachedRows>>);

struct CachedRows {
    at: Instant,
    took: Duration,
    rows: Arc<ResourceRows>,
}

impl ResourceCache {
    /// The resources, at most [`MIN_AGE`] old, or [`REST`] times the duration of a read if that is longer.
    pub(crate) async fn get(&self, pages: &Pages) -> Arc<ResourceRows> {
        let mut last = self.0.lock().await;
        if let Some(cached) = last.as_ref().filter(|cached| cached.at.elapsed() < MIN_AGE.max(cached.took * REST)) {
            return Arc::clone(&cached.rows);
        }
        let began = Instant::now();
        let mut all = ResourceRows::default();
        pages.node.for_each_status(|status| all.add(ResourceRow::of(&status), MAX_ROWS)).await;
        let rows = Arc::new(all.finish(MAX_ROWS));
        let now = Instant::now();
        *last = Some(CachedRows { at: now, took: now - began, rows: Arc::clone(&rows) });
        rows
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ResourceSort {
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
    pub(crate) fn name(self) -> &'static str {
        ["resource", "capacity", "wants", "granted", "held", "clients", "pressure", "over"][self as usize]
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
pub(crate) struct ResourceQuery {
    /// Substring of the id.
    pub(crate) search: String,
    pub(crate) sort: ResourceSort,
    /// Starts at 1.
    pub(crate) page: usize,
}

impl ResourceRows {
    /// Adds a row. There are never more than twice `most` rows.
    fn add(&mut self, row: ResourceRow, most: usize) {
        self.rows.push(row);
        if self.rows.len() >= 2 * most {
            self.keep(most);
        }
    }

    /// Keeps the rows of the resources under the most pressure.
    fn keep(&mut self, most: usize) {
        if self.rows.len() > most {
            let rank = |row: &ResourceRow| (row.over(), row.pressure(), row.wants);
            let order = |one: &ResourceRow, other: &ResourceRow| {
                let (one, other) = (rank(one), rank(other));
                other.0.total_cmp(&one.0).then(other.1.total_cmp(&one.1)).then(other.2.total_cmp(&one.2))
            };
            self.rows.select_nth_unstable_by(most, order);
            self.left_out += self.rows.len() - most;
            self.rows.truncate(most);
        }
    }

    fn finish(mut self, most: usize) -> ResourceRows {
        self.keep(most);
        self.rows.sort_unstable_by(|one, other| one.resource.cmp(&other.resource));
        self
    }

    /// A page of the matching resources, and their number. Numbers are sorted descending, ids ascending.
    pub(crate) fn page(&self, query: &ResourceQuery) -> (Vec<&ResourceRow>, usize) {
        let mut rows: Vec<&ResourceRow> = self.rows.iter().filter(|row| row.resource.contains(&query.search)).collect();
        // A stable sort keeps the order of the ids.
        rows.sort_by(|one, other| query.sort.key(other).total_cmp(&query.sort.key(one)));
        let matching = rows.len();
        let from = query.page.saturating_sub(1).saturating_mul(PAGE_ROWS);
        (rows.into_iter().skip(from).take(PAGE_ROWS).collect(), matching)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct OverrideRow {
    pub(crate) pattern: String,
    /// The path of a group; absent: it overrides the capacity.
    pub(crate) group: Option<String>,
    /// `40`, `50 %`, or `maximum 40, weight 2`.
    pub(crate) set_to: String,
    pub(crate) remaining_ms: u64,
    pub(crate) by: String,
    pub(crate) why: String,
}

impl OverrideRow {
    pub(crate) fn of(one: &Override, at: Millis) -> OverrideRow {
        OverrideRow {
            pattern: one.target.pattern.to_string(),
            group: one.target.group.as_deref().map(str::to_owned),
            set_to: one.set_to(),
            remaining_ms: one.ends.since(at).0,
            by: one.by.to_string(),
            why: one.why.to_string(),
        }
    }
}

/// A resource in detail.
pub(crate) struct ResourceDetail {
    pub(crate) row: ResourceRow,
    pub(crate) status: Status,
}

/// The details of a resource. `None` if it is unknown here.
pub(crate) async fn resource(pages: &Pages, id: &str) -> Option<ResourceDetail> {
    let status = pages.node.resource_status(id, 0, 0).await?;
    Some(ResourceDetail { row: ResourceRow::of(&status), status })
}

impl ResourceDetail {
    pub(crate) fn free(&self) -> f64 {
        self.row.capacity - self.row.held
    }

    /// The rules by which the parent divides the capacity, one for each priority.
    pub(crate) fn terms(&self) -> Vec<String> {
        let supply = self.status.report.supply.iter();
        supply.flat_map(|supply| &supply.terms).map(|(priority, terms)| terms_text(*priority, terms)).collect()
    }

    /// The groups directly in the one with this path, the largest wants first.
    pub(crate) fn groups_in(&self, path: &str) -> Vec<&GroupReport> {
        let is_in = |group: &&GroupReport| group.path.rsplit_once('/').map_or("", |(above, _)| above) == path;
        let mut groups: Vec<_> = self.status.report.groups.iter().filter(is_in).collect();
        groups.sort_by(|one, other| other.wants.cmp(&one.wants).then_with(|| one.path.cmp(&other.path)));
        groups
    }

    pub(crate) fn to_json(&self) -> Value {
        let Status { report, promises, pool, limit, at, .. } = &self.status;
        let mut value = json!(self.row);
        value["free"] = json!(self.free());
        value["lease_ms"] = json!(report.settings.lease.0);
        value["refresh_ms"] = json!(report.settings.refresh.0);
        value["lent"] = json!(report.supply.as_ref().map(|supply| json!({
            "version": supply.version,
            "remaining_ms": supply.remaining.0,
            "outstanding": supply.outstanding.map(Amount::get),
            "terms": self.terms(),
        })));
        value["promised"] = json!(promises.as_ref().map(|promises| json!({
            "total": promises.total.get(),
            "unclaimed": promises.unclaimed.get(),
            "unclaimed_ms": promises.unclaimed_until.since(*at).0,
            "horizon_ms": promises.horizon.since(*at).0,
        })));
        value["group_count"] = json!(report.group_count);
        value["groups"] = report.groups.iter().map(group_as_json).collect();
        value["pool"] = json!(pool.as_ref().map(|pool| json!({
            "total": pool.total.get(),
            "connected": pool.connected.get(),
            "priority_connected": pool.priority_connected.get(),
            "assigned": pool.priority_assigned.get(),
            "recharging": pool.used.get(),
            "waiting": pool.free_waiting + pool.priority_waiting,
            "overloads": pool.overloads,
        })));
        value["budget"] = json!(report.budget.as_ref().map(|budget| json!({
            "period_start": budget.period.start,
            "period_end": (!budget.period.is_unending()).then_some(budget.period.end),
            "spent": budget.spent.get(),
            "gone": budget.gone.get(),
            "reserved": budget.reserved.get(),
            "left": budget.left.get(),
            "pace": budget.pace,
            "forecast": budget.forecast.map(|forecast| forecast.spent),
            "carried": budget.carried.get(),
            "runs_out": budget.forecast.and_then(|forecast| forecast.runs_out),
        })));
        value["limit"] =
            json!(limit.as_ref().map(|limit| {
                json!({ "capacity": limit.capacity.get(), "at_unix": limit.at_unix, "by": limit.by })
            }));
        value["overridden"] = json!(report.overridden.as_ref().map(|overridden| {
            let mut value = json!(OverrideRow::of(&overridden.by, *at));
            value["template_capacity"] = json!(overridden.template.get());
            value["sentence"] = json!(overridden.sentence(*at));
            value
        }));
        let of_group = |overridden: &OverriddenGroup| {
            let mut value = json!(OverrideRow::of(&overridden.by, *at));
            value["sentence"] = json!(overridden.sentence(*at));
            value
        };
        value["overridden_groups"] = report.overridden_groups.iter().map(of_group).collect();
        value
    }
}

fn group_as_json(group: &GroupReport) -> Value {
    json!({
        "path": group.path, "wants": group.wants.get(), "share": group.share.get(), "held": group.held.get(),
        "weight": group.weight, "minimum": group.minimum.get(), "maximum": group.maximum.map(Amount::get),
        "lends": group.lends, "members": group.members,
    })
}

fn terms_text(priority: i16, terms: &Terms) -> String {
    let by = match terms {
        Terms::Wants => "all wants".to_owned(),
        Terms::Each(most) => format!("{most} for each client"),
        Terms::Level(level) => format!("at most {} for each client", readable(*level)),
        Terms::Minimums(level) => format!("minimums only, at most {} for each client", readable(*level)),
        Terms::Share { equal, top_up } => {
            format!("{} for each client and {} % of what is wanted beyond", readable(*equal), readable(top_up * 100.0))
        }
    };
    format!("priority {priority}: {by}")
}

/// Maximum number of holders read at a time, which takes a resource one or two milliseconds.
const MAX_EXAMINED: usize = 10_000;
/// Maximum number of holders reachable by paging; others can be searched for.
const REACHABLE: usize = 100_000;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct HolderRow {
    pub(crate) holder: String,
    /// `client`, `node`, or `gateway` (a client that limits others).
    pub(crate) kind: &'static str,
    pub(crate) priority: i16,
    pub(crate) clients: u64,
    pub(crate) wants: f64,
    pub(crate) due: f64,
    pub(crate) has: f64,
    pub(crate) held: f64,
    /// Time left of the lease; 0 if it has expired.
    pub(crate) remaining_ms: u64,
}

pub(crate) fn kind_name(holder: &HolderReport) -> &'static str {
    match holder.kind {
        HolderKind::Node => "node",
        HolderKind::Client if holder.is_gateway => "gateway",
        HolderKind::Client => "client",
    }
}

impl HolderRow {
    pub(crate) fn of(holder: &HolderReport, at: Millis) -> HolderRow {
        HolderRow {
            holder: holder.id.to_string(),
            kind: kind_name(holder),
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HolderSort {
    Holder,
    #[default]
    Wants,
    Due,
    Has,
    Held,
    Clients,
    Priority,
    /// By the amount that is missing to the due.
    Short,
}

impl HolderSort {
    pub(crate) fn name(self) -> &'static str {
        ["holder", "wants", "due", "has", "held", "clients", "priority", "short"][self as usize]
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

    /// Orders by key, descending, and then by id, ascending.
    fn order(self, one: &HolderReport, other: &HolderReport) -> Ordering {
        self.key(other).total_cmp(&self.key(one)).then_with(|| one.id.cmp(&other.id))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct HolderQuery {
    pub(crate) resource: String,
    /// Substring of the id.
    pub(crate) search: String,
    pub(crate) sort: HolderSort,
    /// Starts at 1.
    pub(crate) page: usize,
    /// The length of the plot.
    pub(crate) span: Span,
    /// The path of the group whose groups are shown. Empty: those of the first level.
    pub(crate) group: String,
}

/// Number of holders in each list of [`TopHolders`].
const TOP: usize = 5;

/// The holders that hold the most, and those that lack the most of what they want. Sorted, the largest first.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct TopHolders {
    pub(crate) held: Vec<HolderRow>,
    pub(crate) lacking: Vec<HolderRow>,
}

impl HolderRow {
    /// What it wants beyond its lease.
    pub(crate) fn lacks(&self) -> f64 {
        (self.wants - self.has).max(0.0)
    }
}

/// Adds those holders to a sorted list of the largest by a key, leaving out zeros.
fn keep_largest(list: &mut Vec<HolderReport>, holders: &[HolderReport], key: fn(&HolderReport) -> f64) {
    let is_before = |one: &HolderReport, other: &HolderReport| {
        key(other).total_cmp(&key(one)).then_with(|| one.id.cmp(&other.id)) == Ordering::Less
    };
    for holder in holders.iter().filter(|holder| key(holder) > 0.0) {
        let index = list.partition_point(|listed| is_before(listed, holder));
        if index < TOP {
            list.insert(index, holder.clone());
            list.truncate(TOP);
        }
    }
}

/// A page of holders.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct HolderPage {
    pub(crate) top: TopHolders,
    pub(crate) rows: Vec<HolderRow>,
    /// Number of matching holders.
    pub(crate) matching: usize,
    /// Number of reachable pages.
    pub(crate) pages: usize,
}

/// The first rows of the holders examined so far, in the order of the query.
struct Selection<'a> {
    query: &'a HolderQuery,
    from: usize,
    best: Vec<HolderReport>,
    matching: usize,
    top_held: Vec<HolderReport>,
    top_lacking: Vec<HolderReport>,
}

impl<'a> Selection<'a> {
    fn new(query: &'a HolderQuery) -> Selection<'a> {
        let from = query.page.saturating_sub(1).saturating_mul(PAGE_ROWS);
        Selection { query, from, best: Vec::new(), matching: 0, top_held: Vec::new(), top_lacking: Vec::new() }
    }

    fn needed(&self) -> usize {
        if self.from < REACHABLE { self.from + PAGE_ROWS } else { 0 }
    }

    fn examine(&mut self, holders: Vec<HolderReport>) {
        keep_largest(&mut self.top_held, &holders, |holder| holder.held.get());
        // Up to rounding.
        let lacks = |holder: &HolderReport| {
            let (wants, has) = (holder.wants.get(), holder.granted.get());
            if wants > has * (1.0 + 1e-9) { wants - has } else { 0.0 }
        };
        keep_largest(&mut self.top_lacking, &holders, lacks);
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
        let row = |holder: &HolderReport| HolderRow::of(holder, at);
        let held = self.top_held.iter().map(row).collect();
        let top = TopHolders { held, lacking: self.top_lacking.iter().map(row).collect() };
        HolderPage { top, rows, matching: self.matching, pages: self.matching.min(REACHABLE).div_ceil(PAGE_ROWS) }
    }
}

/// A page of holders. `None` if the resource is unknown here. Reads holders in chunks, and keeps only the rows needed.
pub(crate) async fn holders(pages: &Pages, query: &HolderQuery) -> Option<HolderPage> {
    let _permit = pages.snapshots.holder_reads.acquire().await;
    let mut selection = Selection::new(query);
    let mut from = 0;
    loop {
        let status = pages.node.resource_status(&query.resource, from, MAX_EXAMINED).await?;
        let (next, at) = (status.next, status.at);
        selection.examine(status.holders);
        match next {
            Some(next) => from = next,
            None => return Some(selection.finish(at)),
        }
        tokio::task::yield_now().await;
    }
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
            supply: None,
        }
    }

    #[test]
    fn resources_under_the_least_pressure_are_left_out() {
        let mut rows = ResourceRows::default();
        (0..1000).for_each(|number| rows.add(row(&format!("r{number:03}"), 100.0, f64::from(number % 500), 1.0), 10));
        let rows = rows.finish(10);
        let ids: Vec<&str> = rows.rows.iter().map(|row| &*row.resource).collect();
        assert_eq!(ids, ["r495", "r496", "r497", "r498", "r499", "r995", "r996", "r997", "r998", "r999"]);
        assert_eq!(rows.left_out, 990);
    }

    #[test]
    fn resources_are_searched_sorted_and_paged() {
        let rows = (0..2500).map(|number| row(&format!("r{number:04}"), 100.0, f64::from(number), 1.0)).collect();
        let rows = ResourceRows { rows, left_out: 0 };
        let query = ResourceQuery { sort: ResourceSort::Wants, page: 3, search: "r".into() };
        let (page, matching) = rows.page(&query);
        assert_eq!((page.len(), matching), (500, 2500));
        assert_eq!((&*page[0].resource, &*page[499].resource), ("r0499", "r0000"));
        let (page, matching) = rows.page(&ResourceQuery { search: "24".into(), ..ResourceQuery::default() });
        assert_eq!((&*page[0].resource, matching), ("r0024", 154));
        assert_eq!(rows.page(&ResourceQuery { page: usize::MAX, ..ResourceQuery::default() }).0.len(), 0);
    }

    #[test]
    fn undivided_resources_are_neither_over_capacity_nor_contended() {
        let free = ResourceRow { is_divided: false, ..row("a", 0.0, 5.0, 5.0) };
        assert_eq!((free.over(), free.pressure()), (0.0, 0.0));
        assert_eq!(row("a", 10.0, 20.0, 15.0).over(), 5.0);
        assert_eq!((row("a", 10.0, 20.0, 5.0).pressure(), row("a", 0.0, 0.0, 0.0).pressure()), (2.0, 0.0));
    }

    fn report(number: usize) -> HolderReport {
        let amount = |value: usize| Amount::clamped(value as f64);
        HolderReport {
            id: format!("client-{number:06}").into(),
            kind: HolderKind::Client,
            is_gateway: false,
            priority: 0,
            subclients: 1,
            // A permutation.
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
            selection.examine(part.to_vec());
            assert!(selection.best.len() <= 2 * selection.needed() + MAX_EXAMINED, "memory is bounded");
        });
        selection.finish(Millis(5))
    }

    #[test]
    fn pages_are_slices_of_all_holders_sorted() {
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
    fn holders_are_searched_and_unreachable_ones_are_dropped() {
        let query = HolderQuery { search: "0012".into(), sort: HolderSort::Holder, ..HolderQuery::default() };
        let found = page(&query, 30_011);
        assert_eq!((found.rows[0].holder.as_str(), found.matching), ("client-000012", 113));
        let beyond = page(&HolderQuery { page: usize::MAX, ..HolderQuery::default() }, 3000);
        assert_eq!((beyond.rows.len(), beyond.matching), (0, 3000));
    }

    #[test]
    fn the_top_holders_are_those_of_all_chunks_whatever_is_searched() {
        let found = page(&HolderQuery { search: "nobody".into(), ..HolderQuery::default() }, 30_011);
        let wants: Vec<f64> = found.top.lacking.iter().map(|row| row.wants).collect();
        assert_eq!(wants, [30_010.0, 30_009.0, 30_008.0, 30_007.0, 30_006.0]);
        assert_eq!((found.top.held.len(), found.top.lacking[0].lacks()), (TOP, 30_000.0));
        assert_eq!(page(&HolderQuery::default(), 0).top, TopHolders::default());
    }

    #[test]
    fn an_expired_lease_has_no_time_left() {
        let page = page(&HolderQuery { sort: HolderSort::Holder, ..HolderQuery::default() }, 10);
        assert_eq!((page.rows[0].remaining_ms, page.rows[9].remaining_ms), (0, 4));
    }
}
