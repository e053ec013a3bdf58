//! What holders of budgets have spent, in pages.

use std::sync::Arc;

use leaseway_core::{
    policy::{
        access::{AccessRequest, Action},
        period::Span,
    },
    resource::budget::{
        holder_of_record, incarnation_of_record,
        usage::{UsageRow, UsageUpdate},
    },
    types::{Amount, Glob, HolderKind},
};
use leaseway_proto::status::{ListUsageRequest, ListUsageResponse, UsageRow as WireRow};
use tonic::Status;

use crate::{auth::Admitted, node::NodeHandle};

/// Maximum number of rows in a page.
pub(super) const PAGE: usize = 1000;
/// Rows that are read at once. Between reads, changes can be applied.
const READ_AT_ONCE: usize = 4096;

/// The next page of rows that the caller asks for and may read.
pub(super) fn list(
    node: &NodeHandle,
    admitted: &Admitted,
    request: &ListUsageRequest,
) -> Result<ListUsageResponse, Status> {
    let pattern = if request.resource.is_empty() { "*" } else { &request.resource };
    let pattern = Glob::new(pattern).map_err(|error| Status::invalid_argument(format!("resource: {error}")))?;
    let is_wanted = |(resource, row): &(Arc<str>, UsageRow)| {
        pattern.matches(resource)
            && is_within(row.period, request)
            && (admitted.reads_everything() || admitted.may(&AccessRequest::on(Action::Read, resource)))
    };
    let mut last: Option<(Arc<str>, UsageRow)> =
        request.after.as_ref().map(|row| (row.resource_id.as_str().into(), from_wire(row)));
    let mut answer = ListUsageResponse { is_kept: true, ..ListUsageResponse::default() };
    loop {
        let after = last.as_ref().map(|(resource, row)| (&**resource, row));
        let rows = node.read_usage(|usage| usage.page(after, READ_AT_ONCE));
        let Some(rows) = rows else { return Ok(ListUsageResponse::default()) };
        let is_end = rows.len() < READ_AT_ONCE;
        last = rows.last().cloned();
        for (resource, row) in rows.into_iter().filter(is_wanted) {
            if answer.row.len() == PAGE {
                answer.more = true;
                return Ok(answer);
            }
            answer.row.push(to_wire(&resource, &row));
        }
        if is_end {
            return Ok(answer);
        }
    }
}

/// Whether the middle of the period is within the bounds. So days of any time zone belong to the month of their name.
fn is_within(period: Span, request: &ListUsageRequest) -> bool {
    let middle = period.start.saturating_add(period.seconds() / 2);
    request.from_unix.is_none_or(|from| middle >= from) && request.until_unix.is_none_or(|until| middle < until)
}

fn to_wire(resource: &str, row: &UsageRow) -> WireRow {
    WireRow {
        resource_id: resource.to_owned(),
        period_start: row.period.start,
        period_end: (!row.period.is_unending()).then_some(row.period.end),
        holder_id: holder_of_record(&row.record).to_owned(),
        incarnation: incarnation_of_record(&row.record).to_owned(),
        is_server: row.kind == HolderKind::Node,
        group: row.group.as_deref().unwrap_or_default().to_owned(),
        spent: row.spent.get(),
        lost: row.lost.get(),
    }
}

/// The row to continue from. Its amounts do not matter.
fn from_wire(row: &WireRow) -> UsageRow {
    UsageRow {
        period: Span { start: row.period_start, end: row.period_end.unwrap_or(i64::MAX) },
        kind: if row.is_server { HolderKind::Node } else { HolderKind::Client },
        record: format!("{} ({})", row.holder_id, row.incarnation).into(),
        group: None,
        spent: Amount::ZERO,
        lost: Amount::ZERO,
        update: UsageUpdate::Replace,
    }
}
