//! The picture of the cluster: the parent above, this node with its peers, and its child nodes below. The server draws
//! it as inline SVG, once wide and once for phones; the style sheet shows the one that fits. States differ by shape and
//! label, not only by colour.

mod drawing;

use leaseway_core::types::escaped;
use maud::{Markup, html};

use self::drawing::{Canvas, Cell, Health, Link};
use crate::api::pages::{
    text,
    view::{
        children::{ChildUse, Use},
        node::{ChildRow, NodeView, ParentRow, PeerRow},
        resources::ResourceRow,
    },
};

/// The widths of the two drawings, in pixels.
const WIDE: f64 = 880.0;
const NARROW: f64 = 328.0;
/// Maximum number of child nodes that are drawn. The table below the picture has all.
pub(super) const MAX_CHILDREN: usize = 12;
/// Child nodes ask every few seconds.
const CHILD_SILENT_MS: u64 = 60_000;
/// A parent answers every few seconds.
const PARENT_SILENT_MS: u64 = 30_000;

/// The data of the picture.
pub(super) struct Cluster<'a> {
    pub(super) view: &'a NodeView,
    /// The divided resource with the largest part of its capacity held; none at a peer that is not the master.
    pub(super) most_used: Option<Use>,
    pub(super) children: &'a [ChildUse],
}

pub(super) fn picture(cluster: &Cluster<'_>) -> Markup {
    html! {
        figure.cluster {
            (draw(cluster, WIDE, "wide"))
            (draw(cluster, NARROW, "narrow"))
            figcaption.unseen { "The tables below show the same as text." }
        }
    }
}

fn draw(cluster: &Cluster<'_>, width: f64, class: &'static str) -> Markup {
    let mut canvas = Canvas::new(width);
    if let Some(parent) = &cluster.view.parent {
        canvas.above(&parent_cell(parent, cluster.view.is_master));
        canvas.link(&parent_link(cluster));
    }
    canvas.node(&title(cluster.view), &peers(cluster.view), &used(cluster));
    let children = children(cluster);
    if !children.is_empty() {
        canvas.children(&children);
    }
    canvas.finish(class, &description(cluster.view))
}

fn title(view: &NodeView) -> String {
    match &view.parent {
        Some(parent) => format!("Node {}", escaped(&parent.node)),
        None => "Root node".to_owned(),
    }
}

fn description(view: &NodeView) -> String {
    let above = if view.parent.is_some() { "Its parent is above it" } else { "It is the root of the tree" };
    let below = match children_known(view).len() {
        _ if !view.is_master => "only the master knows the child nodes".to_owned(),
        0 => "no child node is below it".to_owned(),
        1 => "1 child node is below it".to_owned(),
        number => format!("{} child nodes are below it", text::count(number)),
    };
    let peers = match view.peers.len() {
        0 | 1 => "a single server".to_owned(),
        number => format!("{number} peers"),
    };
    format!("Picture of the cluster: this node is {peers}. {above}, and {below}.")
}

fn parent_cell(parent: &ParentRow, is_master: bool) -> Cell {
    let health = match parent.answered_ms {
        _ if !is_master => Health::Unknown,
        None => Health::Bad,
        Some(ago) if ago > PARENT_SILENT_MS => Health::Bad,
        Some(_) if parent.failures > 0 => Health::Warn,
        Some(_) => Health::Fine,
    };
    let label = match health {
        Health::Unknown => "the master asks it",
        Health::Fine => "answers",
        Health::Warn => "its last answer failed",
        Health::Bad => "does not answer",
    };
    Cell {
        health,
        name: format!("Parent at {}", escaped(&parent.addresses.join(", "))),
        label: label.to_owned(),
        href: parent.http.clone(),
        ..Cell::default()
    }
}

fn parent_link(cluster: &Cluster<'_>) -> Link {
    let is_cut = cluster.view.is_master && parent_cell_is_bad(cluster.view);
    let label = match &cluster.most_used {
        Some(most) => format!("lends {} units of {}", text::number(most.capacity), escaped(&most.resource)),
        None => String::new(),
    };
    Link { is_cut, label }
}

fn parent_cell_is_bad(view: &NodeView) -> bool {
    view.parent.as_ref().is_some_and(|parent| parent_cell(parent, view.is_master).health == Health::Bad)
}

fn peers(view: &NodeView) -> Vec<Cell> {
    if view.peers.is_empty() {
        let name = format!("{} (this server)", escaped(&view.server));
        return vec![Cell {
            health: Health::Fine,
            name,
            label: "master, without peers".to_owned(),
            is_master: true,
            ..Cell::default()
        }];
    }
    view.peers.iter().map(|peer| peer_cell(peer, view)).collect()
}

fn peer_cell(peer: &PeerRow, view: &NodeView) -> Cell {
    let is_ineligible = peer.is_here && view.ineligible.is_some();
    let (health, label) = match peer.role {
        _ if is_ineligible => (Health::Bad, "ineligible"),
        "unreachable" => (Health::Bad, "unreachable"),
        "master" => (Health::Fine, "master"),
        // It receives the log and has no vote yet.
        "learner" => (Health::Warn, "learner, no vote yet"),
        _ if !view.is_master && !peer.is_here => (Health::Unknown, "follower, seen by the master"),
        _ => (Health::Fine, "follower"),
    };
    let here = if peer.is_here { " (this peer)" } else { "" };
    let is_linked = !peer.is_here && !peer.http.is_empty() && health != Health::Bad;
    Cell {
        health,
        name: format!("{}{here}", escaped(&peer.peer)),
        label: label.to_owned(),
        href: is_linked.then(|| peer.http.clone()),
        is_master: peer.role == "master",
        ..Cell::default()
    }
}

/// The use of the node, in words and as parts of a bar.
fn used(cluster: &Cluster<'_>) -> Cell {
    let view = cluster.view;
    let resources = view.resources.unwrap_or_default();
    let label = match (&cluster.most_used, resources) {
        _ if !view.is_master => "Only the master knows the resources.".to_owned(),
        (_, 0) => "No resource yet.".to_owned(),
        (None, _) => "No resource has a capacity to divide.".to_owned(),
        (Some(most), 1) => format!("Resource {}:", escaped(&most.resource)),
        (Some(most), _) => format!("{} resources, most used {}:", text::count(resources), escaped(&most.resource)),
    };
    let detail = cluster.most_used.as_ref().map(Use::sentence).unwrap_or_default();
    Cell { label, detail, part: cluster.most_used.as_ref().map(Use::part), ..Cell::default() }
}

fn children(cluster: &Cluster<'_>) -> Vec<Cell> {
    let all = children_known(cluster.view);
    let is_cut = all.len() > MAX_CHILDREN;
    let drawn = if is_cut { MAX_CHILDREN - 1 } else { all.len() };
    let of = |child: &ChildRow| cluster.children.iter().find(|one| one.node == child.node);
    let mut cells: Vec<Cell> = all.iter().take(drawn).map(|child| child_cell(child, of(child))).collect();
    if is_cut {
        let name = format!("{} more", text::count(all.len() - drawn));
        cells.push(Cell { health: Health::Unknown, name, label: "see the table below".to_owned(), ..Cell::default() });
    }
    cells
}

/// A former master remembers the child nodes that asked it, but they ask another peer now.
fn children_known(view: &NodeView) -> &[ChildRow] {
    if view.is_master { &view.children } else { &[] }
}

fn child_cell(child: &ChildRow, used: Option<&ChildUse>) -> Cell {
    let is_silent = child.asked_ms > CHILD_SILENT_MS;
    let most = used.and_then(|used| used.most.as_ref());
    let label = match most {
        _ if is_silent => format!("silent for {}", text::length(child.asked_ms / 60_000 * 60_000)),
        Some(most) => escaped(&most.resource).into_owned(),
        None if child.resources == 0 => "asks for nothing".to_owned(),
        None => "holds nothing".to_owned(),
    };
    Cell {
        health: if is_silent { Health::Warn } else { Health::Fine },
        name: escaped(&child.node).into_owned(),
        label,
        detail: most.map(Use::sentence).unwrap_or_default(),
        part: most.map(Use::part),
        ..Cell::default()
    }
}

/// The divided resource with the largest part of its capacity held.
pub(super) fn most_used(rows: &[ResourceRow]) -> Option<Use> {
    let divided = rows.iter().filter(|row| row.is_divided && row.capacity > 0.0);
    let part = |row: &&ResourceRow| row.held / row.capacity;
    let most = divided.max_by(|one, other| part(one).total_cmp(&part(other)).then(one.held.total_cmp(&other.held)))?;
    Some(Use { resource: most.resource.clone(), held: most.held, capacity: most.capacity })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(name: &str, role: &'static str) -> PeerRow {
        PeerRow { peer: name.into(), role, http: format!("{name}:5150"), is_here: name == "a", ..PeerRow::default() }
    }

    fn view(children: usize) -> NodeView {
        let child = |number: usize| ChildRow { node: format!("east-{number}"), resources: 1, asked_ms: 10 };
        NodeView {
            server: "a".into(),
            is_master: true,
            resources: Some(1),
            peers: vec![peer("a", "master"), peer("b", "follower"), peer("c", "unreachable")],
            parent: Some(ParentRow {
                node: "eu".into(),
                addresses: vec!["p:5100".into()],
                answered_ms: Some(1),
                ..ParentRow::default()
            }),
            children: (0..children).map(child).collect(),
            ..NodeView::default()
        }
    }

    fn drawn(view: &NodeView) -> String {
        let most = Use { resource: "mysql".into(), held: 60.0, capacity: 100.0 };
        let children = [ChildUse { node: "east-0".into(), most: Some(Use { held: 40.0, ..most.clone() }) }];
        picture(&Cluster { view, most_used: Some(most), children: &children }).into_string()
    }

    #[test]
    fn the_picture_has_the_parent_the_peers_and_the_children_with_their_use() {
        let picture = drawn(&view(2));
        for part in [
            "Node eu",
            "Parent at p:5100",
            "lends 100 units of mysql",
            "a (this peer)",
            "unreachable",
            "href=\"//b:5150/\"",
            "Resource mysql:",
            "60 of 100 units held (60 %)",
            "40 of 100 units held (40 %)",
            "holds nothing",
            "viewBox=\"0 0 880 ",
            "viewBox=\"0 0 328 ",
        ] {
            assert!(picture.contains(part), "`{part}` is not in {picture}");
        }
        assert!(!picture.contains("href=\"//c:5150/\""), "an unreachable peer is no link: {picture}");
        assert!(!picture.contains("style=") && !picture.contains("NaN"), "{picture}");
    }

    #[test]
    fn a_state_is_a_shape_and_a_label_and_not_only_a_colour() {
        let picture = drawn(&view(0));
        for (shape, label) in
            [("glyph fine master", ">master<"), ("glyph fine", ">follower<"), ("glyph bad", ">unreachable<")]
        {
            assert!(picture.contains(shape) && picture.contains(label), "{shape}, {label}: {picture}");
        }
    }

    #[test]
    fn many_children_are_counted_and_not_drawn() {
        let picture = drawn(&view(1000));
        assert!(picture.contains("989 more") && !picture.contains("east-11<"), "{picture}");
        assert!(picture.len() < 40_000, "{}", picture.len());
    }

    #[test]
    fn names_are_text_and_are_cut_to_their_place() {
        let mut view = view(1);
        view.children[0].node = format!("<b>{}", "x".repeat(500));
        let picture = drawn(&view);
        assert!(!picture.contains("<b>") && picture.contains('…'), "{picture}");
        assert!(picture.contains("<title>&lt;b&gt;xxx"), "the title has all of it");
    }

    #[test]
    fn a_peer_that_is_not_master_says_what_it_does_not_know() {
        let view = NodeView {
            is_master: false,
            parent: None,
            peers: vec![peer("a", "follower"), peer("b", "follower"), peer("c", "master")],
            ..view(2)
        };
        let picture = picture(&Cluster { view: &view, most_used: None, children: &[] }).into_string();
        assert!(
            picture.contains("Only the master knows")
                && !picture.contains("east-0")
                && picture.contains("glyph unknown"),
            "{picture}"
        );
    }
}
