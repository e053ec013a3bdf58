//! What pages and the JSON of `/api/v1` show: gathered once, read by both.

mod holders;
mod node;
mod overrides;
mod resources;
mod why;

pub(super) use self::{
    holders::{HolderPage, HolderQuery, HolderRow, HolderSort, holders},
    node::{ChildRow, LimitRow, MasterSeen, MasterView, NodeView, ParentRow, PeerRow, node, verdict},
    overrides::OverrideRow,
    resources::{ResourceCache, ResourceDetail, ResourceQuery, ResourceRow, ResourceSort, resource},
    why::{Explained, WhyQuery, explain},
};

/// The most rows of a page.
pub(super) const PAGE_ROWS: usize = 1000;
