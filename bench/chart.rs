//! Pictures: bars and lines, with axes, legends and colours, as parts of a page or as a document of their own.

pub(crate) mod axis;
pub(crate) mod bars;
pub(crate) mod lines;

use maud::{Markup, PreEscaped, html};

/// Of every picture; its height depends on what is in it.
pub(crate) const WIDTH: f64 = 640.0;

/// Colours that can be told apart, also by the colour-blind; beyond them they repeat.
pub(crate) const SERIES: usize = 6;

/// In a page the colours follow its scheme, and so they do in a picture that stands alone.
pub(crate) const STYLE: &str = "
:root { --paper: #ffffff; --card: #f7f7f9; --ink: #1c1f24; --soft: #667080; --rule: #dfe3e8;
  --s0: #0b63c5; --s1: #d9620b; --s2: #12805c; --s3: #a8329e; --s4: #8a6d00; --s5: #5b6472; --warn: #8a4b00; --warnbg: #fff4e0; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171c; --card: #1c2027; --ink: #e8eaee; --soft: #98a2b1; --rule: #323844;
  --s0: #63a8ff; --s1: #ff9d52; --s2: #45c99a; --s3: #e07fd8; --s4: #dcc04a; --s5: #a9b3c2; --warn: #ffc980; --warnbg: #38290f; } }
svg { font: 12px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; }
svg text { fill: var(--ink); } svg text.soft { fill: var(--soft); } svg text.strong { font-weight: 600; }
svg text.end { text-anchor: end; } svg text.middle { text-anchor: middle; }
.grid { stroke: var(--rule); stroke-width: 1; } .axis { stroke: var(--soft); stroke-width: 1; }
.range { stroke: var(--ink); stroke-width: 1.2; } .line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.band { opacity: .16; } .bar { opacity: .85; }
.f0 { fill: var(--s0); } .f1 { fill: var(--s1); } .f2 { fill: var(--s2); } .f3 { fill: var(--s3); } .f4 { fill: var(--s4); } .f5 { fill: var(--s5); }
.k0 { stroke: var(--s0); } .k1 { stroke: var(--s1); } .k2 { stroke: var(--s2); } .k3 { stroke: var(--s3); } .k4 { stroke: var(--s4); } .k5 { stroke: var(--s5); }
";

/// A picture, without its frame.
pub(crate) struct Chart {
    pub(crate) title: String,
    /// How to read it.
    pub(crate) note: String,
    pub(crate) height: f64,
    pub(crate) body: Markup,
}

impl Chart {
    /// As part of a page.
    pub(crate) fn figure(&self) -> Markup {
        html! {
            figure {
                figcaption { strong { (self.title) } span { (self.note) } }
                svg viewBox=(format!("0 0 {WIDTH} {}", self.height)) role="img" aria-label=(self.title) { (self.body) }
            }
        }
    }
}

/// Below each other, as a document of its own.
pub(crate) fn stacked(title: &str, charts: &[&Chart]) -> String {
    const HEAD: f64 = 44.0;
    const EDGE: f64 = 20.0;
    let mut top = 50.0;
    let placed: Vec<_> = charts
        .iter()
        .map(|chart| {
            let at = top;
            top += HEAD + chart.height + EDGE;
            (at, chart)
        })
        .collect();
    let (width, height) = (WIDTH + 2.0 * EDGE, top);
    let document = html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {width} {height}")) width=(width) height=(height) {
            style { (PreEscaped(STYLE)) }
            rect width="100%" height="100%" style="fill: var(--paper)" {}
            text.strong x=(EDGE) y="30" style="font-size: 17px" { (title) }
            @for (at, chart) in placed {
                g transform=(format!("translate({EDGE} {at})")) {
                    text.strong y="14" style="font-size: 14px" { (chart.title) }
                    text.soft y="31" { (chart.note) }
                    g transform=(format!("translate(0 {HEAD})")) { (chart.body) }
                }
            }
        }
    };
    document.into_string() + "\n"
}

/// Letters are not measured here; this is the width of a wide one.
const LETTER: f64 = 7.6;
const SQUARE: f64 = 17.0;
const LEGEND_ROW: f64 = 18.0;

/// Which colour each series has, in as many rows as it takes, and how high that is. Nothing of fewer than two.
pub(crate) fn legend(names: &[(usize, &str)]) -> (f64, Markup) {
    if names.len() < 2 {
        return (0.0, Markup::default());
    }
    let (mut x, mut row) = (0.0, 0.0);
    let mut placed = Vec::with_capacity(names.len());
    for (series, name) in names {
        let width = SQUARE + name.chars().count() as f64 * LETTER;
        if x > 0.0 && x + width > WIDTH {
            (x, row) = (0.0, row + 1.0);
        }
        placed.push((x, 12.0 + row * LEGEND_ROW, series % SERIES, name));
        x += width + 10.0;
    }
    let markup = html! {
        @for (x, y, series, name) in placed {
            rect.{ "f" (series) } x=(at(x)) y=(at(y - 10.0)) width="12" height="12" rx="2" {}
            text x=(at(x + SQUARE)) y=(at(y)) { (name) }
        }
    };
    ((row + 1.0) * LEGEND_ROW + 4.0, markup)
}

/// A coordinate, to a tenth.
pub(crate) fn at(value: f64) -> String {
    format!("{value:.1}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_legend_has_as_many_rows_as_its_names_need() {
        let (one, two) = ("n".repeat(30), "m".repeat(60));
        let (height, markup) = legend(&[(0, &one), (1, &one), (2, &two), (3, "short")]);
        let svg = markup.into_string();
        assert_eq!(svg.matches("y=\"12.0\"").count(), 2, "two fit beside each other: {svg}");
        assert_eq!(svg.matches("y=\"30.0\"").count(), 2, "{svg}");
        assert_eq!(svg.matches("<text x=\"17.0\"").count(), 2, "each row begins at the left: {svg}");
        assert_eq!(height, 2.0 * LEGEND_ROW + 4.0);
        assert_eq!(legend(&[(0, &one)]).0, 0.0, "one needs none");
    }
}
