//! Why a holder has what it has.

use leaseway_core::{HolderKind, Millis};
use serde::{Deserialize, Serialize};

use super::{super::Pages, holders::HolderRow, node::ParentRow, node::parent};

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct WhyQuery {
    pub(in super::super) resource: String,
    pub(in super::super) holder: String,
    /// `client` or `node`; empty: whichever there is.
    pub(in super::super) kind: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(in super::super) struct Explained {
    #[serde(flatten)]
    pub(in super::super) holder: HolderRow,
    pub(in super::super) resource: String,
    pub(in super::super) capacity: f64,
    /// Below zero while more is held than there is.
    pub(in super::super) free: f64,
    /// What its due comes from.
    pub(in super::super) rule: &'static str,
    /// What keeps it from having just that.
    pub(in super::super) blocks: Vec<&'static str>,
    /// When it is to ask again.
    pub(in super::super) asks_ms: Option<u64>,
    /// When all that blocks it is over at the latest.
    pub(in super::super) latest_ms: Option<u64>,
    pub(in super::super) sentences: Vec<String>,
    /// Where what this node has to give is explained; absent at a root.
    pub(in super::super) parent: Option<ParentRow>,
}

/// Explains a holder; none if it is not known here.
pub(in super::super) async fn explain(pages: &Pages, query: &WhyQuery) -> Option<Explained> {
    let _turn = pages.snapshots.holders.acquire().await;
    let mut explanation = None;
    for (name, kind) in [("client", HolderKind::Client), ("node", HolderKind::Node)] {
        if explanation.is_none() && (query.kind.is_empty() || query.kind == name) {
            explanation = pages.node.explain(&query.resource, kind, query.holder.clone()).await;
        }
    }
    let explanation = explanation?;
    let ahead = |at: Option<Millis>| at.map(|at| at.since(explanation.at).0);
    Some(Explained {
        holder: HolderRow::of(&explanation.holder, explanation.at),
        resource: query.resource.clone(),
        capacity: explanation.capacity.get(),
        free: explanation.free.get(),
        rule: explanation.rule.name(),
        blocks: explanation.blocks.iter().map(leaseway_core::Block::name).collect(),
        asks_ms: ahead(explanation.asks),
        latest_ms: ahead(explanation.latest),
        sentences: explanation.sentences(),
        parent: parent(pages),
    })
}
