//! What pages and the JSON of `/api/v1` show: gathered once, read by both.

mod findings;
mod holders;
mod node;
mod resources;
mod why;

pub(super) use self::{
    findings::{Finding, Severity, verdict},
    holders::{HolderPage, HolderQuery, HolderRow, HolderSort, holders},
    node::{ChildRow, LimitRow, NodeView, ParentRow, PeerRow, node},
    resources::{ResourceCache, ResourceDetail, ResourceQuery, ResourceRow, ResourceSort, resource},
    why::{Explained, WhyQuery, explain},
};

/// The most rows of a page.
pub(super) const PAGE_ROWS: usize = 1000;
