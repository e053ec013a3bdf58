//! Draws boxes and links from top to bottom. The height follows from the contents.

use maud::{Markup, Render, html};

const PADDING: f64 = 12.0;
const GAP: f64 = 10.0;
const CELL_HEIGHT: f64 = 46.0;
/// With a second label and a bar.
const TALL_CELL_HEIGHT: f64 = 72.0;
const LINE_HEIGHT: f64 = 15.0;
/// The indentation of boxes that hang on a rail.
const RAIL: f64 = 20.0;
const LINK_HEIGHT: f64 = 40.0;
const MIN_CELL_WIDTH: f64 = 190.0;
const MAX_CELL_WIDTH: f64 = 300.0;
const BAR_HEIGHT: f64 = 6.0;
/// The average width of a letter in names, which are bold, and in labels. Names that are too wide are cut.
const NAME_LETTER: f64 = 7.4;
const LABEL_LETTER: f64 = 6.2;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Health {
    Fine,
    Warn,
    Bad,
    /// Another peer knows.
    #[default]
    Unknown,
}

impl Health {
    fn class(self) -> &'static str {
        match self {
            Health::Fine => "fine",
            Health::Warn => "warn",
            Health::Bad => "bad",
            Health::Unknown => "unknown",
        }
    }
}

/// A box with a name, a label, and perhaps a bar.
#[derive(Debug, Clone, Default)]
pub(super) struct Cell {
    pub(super) health: Health,
    pub(super) name: String,
    pub(super) label: String,
    /// A second label.
    pub(super) detail: String,
    /// The host and port of its page.
    pub(super) href: Option<String>,
    /// Drawn as a star.
    pub(super) is_master: bool,
    /// The filled part of the bar, which may be more than 1. Without it there is no bar.
    pub(super) part: Option<f64>,
}

/// A link from top to bottom.
#[derive(Debug, Clone, Default)]
pub(super) struct Link {
    pub(super) is_cut: bool,
    pub(super) label: String,
}

/// A drawing that grows downwards.
pub(super) struct Canvas {
    width: f64,
    height: f64,
    pieces: Vec<Markup>,
}

/// Equal columns, centred.
struct Columns {
    number: usize,
    cell: f64,
    left: f64,
}

impl Columns {
    fn of(cells: usize, left: f64, width: f64) -> Columns {
        let fit = ((width + GAP) / (MIN_CELL_WIDTH + GAP)).floor().max(1.0) as usize;
        let number = cells.clamp(1, fit);
        let gaps = GAP * (number - 1) as f64;
        let cell = ((width - gaps) / number as f64).min(MAX_CELL_WIDTH);
        Columns { number, cell, left: left + (width - gaps - cell * number as f64) / 2.0 }
    }

    fn x(&self, index: usize) -> f64 {
        self.left + (self.cell + GAP) * (index % self.number) as f64
    }
}

impl Canvas {
    pub(super) fn new(width: f64) -> Canvas {
        Canvas { width, height: 1.0, pieces: Vec::new() }
    }

    /// A box in the middle, above the node.
    pub(super) fn above(&mut self, cell: &Cell) {
        let columns = Columns::of(1, 0.0, self.width);
        self.pieces.push(boxed(cell, columns.x(0), self.height, columns.cell, CELL_HEIGHT));
        self.height += CELL_HEIGHT;
    }

    /// A link from the last box to the next.
    pub(super) fn link(&mut self, link: &Link) {
        let (left, top) = (Columns::of(1, 0.0, self.width).left, self.height);
        let x = left + 2.0 * PADDING;
        let room = self.width - x - 2.0 * PADDING;
        self.pieces.push(html! {
            (line(x, top, x, top + LINK_HEIGHT, link.is_cut))
            @if link.is_cut { (cross(x, top + LINK_HEIGHT / 2.0)) }
            (label(&link.label, x + PADDING, top + LINK_HEIGHT / 2.0 + 4.0, room))
        });
        self.height += LINK_HEIGHT;
    }

    /// The node: a frame with a title, its peers, and its use.
    pub(super) fn node(&mut self, title: &str, peers: &[Cell], used: &Cell) {
        let (top, inner) = (self.height, self.width - 2.0 * PADDING);
        let columns = Columns::of(peers.len(), PADDING, inner);
        let rows = peers.len().div_ceil(columns.number);
        let peers_top = top + 32.0;
        let peers_bottom = peers_top + rows as f64 * (CELL_HEIGHT + GAP);
        let lines = if used.detail.is_empty() { 0.0 } else { LINE_HEIGHT };
        let height = peers_bottom + 32.0 + lines - top;
        self.pieces.push(html! {
            rect.node x="0.5" y=(at(top)) width=(at(self.width - 1.0)) height=(at(height)) rx="6" {}
            (name(title, PADDING, top + 21.0, inner))
            @for (index, peer) in peers.iter().enumerate() {
                @let y = peers_top + (index / columns.number) as f64 * (CELL_HEIGHT + GAP);
                (boxed(peer, columns.x(index), y, columns.cell, CELL_HEIGHT))
            }
            (label(&used.label, PADDING, peers_bottom + 8.0, inner))
            (label(&used.detail, PADDING, peers_bottom + 8.0 + LINE_HEIGHT, inner))
            @if let Some(part) = used.part { (bar(part, PADDING, peers_bottom + 15.0 + lines, inner)) }
        });
        self.height = top + height;
    }

    /// Boxes below the node. A row hangs on a link each; several rows hang on a rail for each column.
    pub(super) fn children(&mut self, cells: &[Cell]) {
        let columns = Columns::of(cells.len(), 0.0, self.width);
        let (top, first) = (self.height, self.height + LINK_HEIGHT);
        let has_rails = cells.len() > columns.number;
        let indented = if has_rails { RAIL } else { 0.0 };
        let y = |index: usize| first + (index / columns.number) as f64 * (TALL_CELL_HEIGHT + GAP);
        let middle = |index: usize| y(index) + CELL_HEIGHT / 2.0;
        self.pieces.push(html! {
            @for (index, cell) in cells.iter().enumerate() {
                @let left = columns.x(index);
                @if has_rails {
                    @let from = if index < columns.number { top } else { middle(index - columns.number) };
                    (line(left + 6.0, from, left + 6.0, middle(index), false))
                    (line(left + 6.0, middle(index), left + RAIL, middle(index), false))
                } @else {
                    (line(left + columns.cell / 2.0, top, left + columns.cell / 2.0, first, false))
                }
                (boxed(cell, left + indented, y(index), columns.cell - indented, TALL_CELL_HEIGHT))
            }
        });
        self.height = y(cells.len() - 1) + TALL_CELL_HEIGHT;
    }

    pub(super) fn finish(self, class: &'static str, description: &str) -> Markup {
        html! {
            svg.(class) viewBox={ "0 0 " (self.width) " " (at(self.height + 1.0)) } role="group" aria-label=(description) {
                @for piece in &self.pieces { (piece) }
            }
        }
    }
}

/// A coordinate.
fn at(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or_else(|| text.clone(), str::to_owned)
}

fn line(x1: f64, y1: f64, x2: f64, y2: f64, is_cut: bool) -> Markup {
    html! { line.link.cut[is_cut] x1=(at(x1)) y1=(at(y1)) x2=(at(x2)) y2=(at(y2)) {} }
}

fn cross(x: f64, y: f64) -> Markup {
    html! { path.cross d={ "M" (at(x - 5.0)) " " (at(y - 5.0)) "l10 10m0 -10l-10 10" } {} }
}

fn boxed(cell: &Cell, x: f64, y: f64, width: f64, height: f64) -> Markup {
    let room = width - 38.0;
    let contents = html! {
        rect.(cell.health.class()) x=(at(x + 0.5)) y=(at(y)) width=(at(width - 1.0)) height=(at(height)) rx="4" {}
        (Glyph { cell, x: x + 17.0, y: y + CELL_HEIGHT / 2.0 })
        (name(&cell.name, x + 31.0, y + 19.0, room))
        (label(&cell.label, x + 31.0, y + 36.0, room))
        (label(&cell.detail, x + 31.0, y + 36.0 + LINE_HEIGHT, room))
        @if let Some(part) = cell.part { (bar(part, x + 12.0, y + height - 13.0, width - 24.0)) }
    };
    html! {
        @match &cell.href {
            Some(page) => a href={ "//" (page) "/" } { (contents) },
            None => g { (contents) },
        }
    }
}

/// The state of a box as a shape: a star, a disc, a triangle, a cross, or a ring.
struct Glyph<'a> {
    cell: &'a Cell,
    x: f64,
    y: f64,
}

impl Render for Glyph<'_> {
    fn render(&self) -> Markup {
        let (x, y, class) = (self.x, self.y, self.cell.health.class());
        let path = |d: &str| format!("M{} {}{d}", at(x), at(y));
        html! {
            @match self.cell.health {
                Health::Fine if self.cell.is_master => path.glyph.fine.master d=(path("m0 -9l2.6 5.4 6 .8-4.4 4.2 1.1 6-5.3-2.9-5.3 2.9 1.1-6-4.4-4.2 6-.8z")) {},
                Health::Fine => circle.glyph.fine cx=(at(x)) cy=(at(y)) r="6" {},
                Health::Warn => path.glyph.warn d=(path("m0 -7.5l8 14h-16z")) {},
                Health::Bad => path.glyph.bad d=(path("m-6 -6l12 12m0 -12l-12 12")) {},
                Health::Unknown => circle.glyph.(class) cx=(at(x)) cy=(at(y)) r="5.5" {},
            }
        }
    }
}

/// A bar, filled to a part of its width. Beyond 1 it is full and marked.
fn bar(part: f64, x: f64, y: f64, width: f64) -> Markup {
    let filled = width * part.clamp(0.0, 1.0);
    html! {
        rect.free x=(at(x)) y=(at(y)) width=(at(width)) height=(BAR_HEIGHT) rx="2" {}
        rect.used.over[part > 1.0 + 1e-9] x=(at(x)) y=(at(y)) width=(at(filled)) height=(BAR_HEIGHT) rx="2" {}
    }
}

fn name(text: &str, x: f64, y: f64, room: f64) -> Markup {
    html! { text.title x=(at(x)) y=(at(y)) { (fitted(text, room, NAME_LETTER)) } }
}

fn label(text: &str, x: f64, y: f64, room: f64) -> Markup {
    html! { @if !text.is_empty() { text x=(at(x)) y=(at(y)) { (fitted(text, room, LABEL_LETTER)) } } }
}

/// The text, or its beginning with the whole as a tooltip.
fn fitted(text: &str, room: f64, letter: f64) -> Markup {
    let most = (room / letter).floor().max(1.0) as usize;
    if text.chars().nth(most).is_none() {
        return html! { (text) };
    }
    let shown: String = text.chars().take(most - 1).collect();
    html! { (shown) "…" title { (text) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_share_rows_and_never_leave_the_canvas() {
        for (cells, width, columns) in [(1, 328.0, 1), (3, 328.0, 1), (3, 304.0, 1), (3, 880.0, 3), (12, 880.0, 4)] {
            let found = Columns::of(cells, 0.0, width);
            assert_eq!(found.number, columns, "{cells} in {width}");
            let end = found.x(found.number - 1) + found.cell;
            assert!(found.left >= 0.0 && end <= width + 1e-9, "{cells} in {width}: {end}");
        }
    }

    #[test]
    fn a_bar_beyond_its_end_is_full_and_marked() {
        assert!(bar(1.5, 0.0, 0.0, 100.0).into_string().contains("class=\"used over\" x=\"0\" y=\"0\" width=\"100\""));
        assert!(bar(0.25, 0.0, 0.0, 100.0).into_string().contains("class=\"used\" x=\"0\" y=\"0\" width=\"25\""));
    }

    #[test]
    fn texts_are_cut_by_letters_and_not_by_bytes() {
        assert_eq!(fitted("üüüüü", 30.0, 10.0).into_string(), "üü…<title>üüüüü</title>");
        assert_eq!(fitted("abc", 30.0, 10.0).into_string(), "abc");
    }
}
