//! What all pictures have in common: the document around them, axes with round numbers, lines and their names.

use std::fmt::Write as _;

pub(super) const WIDTH: f64 = 960.0;
pub(super) const HEIGHT: f64 = 300.0;
/// Room around a picture: for its title, and for the numbers at its sides.
const LEFT: f64 = 60.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 40.0;

/// For a name in the legend.
const NAME: f64 = 96.0;

/// A document of its own: one picture below the other.
pub(super) fn document(pictures: &[String]) -> String {
    let (width, height) = (LEFT + WIDTH + RIGHT, (TOP + HEIGHT + BOTTOM) * pictures.len() as f64);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (row, picture) in pictures.iter().enumerate() {
        let top = TOP + row as f64 * (TOP + HEIGHT + BOTTOM);
        let _ = writeln!(svg, "<g transform=\"translate({LEFT} {top})\">{picture}</g>");
    }
    svg.push_str("</svg>\n");
    svg
}

/// The frame of a picture, with its title above.
pub(super) fn frame(svg: &mut String, title: &str) {
    let _ = writeln!(
        svg,
        "<text x=\"0\" y=\"-24\" font-size=\"14\">{}</text>\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"none\" stroke=\"#333\"/>",
        escaped(title)
    );
}

/// A mark at the left side, and a line through the picture.
pub(super) fn mark_left(svg: &mut String, y: f64, text: &str) {
    let _ = writeln!(
        svg,
        "<line x1=\"0\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#eee\"/>\
         <text x=\"-8\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
        y + 4.0,
        escaped(text)
    );
}

/// A mark below the picture.
pub(super) fn mark_below(svg: &mut String, x: f64, text: &str) {
    let _ = writeln!(
        svg,
        "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{HEIGHT}\" y2=\"{}\" stroke=\"#333\"/>\
         <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
        HEIGHT + 5.0,
        HEIGHT + 20.0,
        escaped(text)
    );
}

/// What each colour stands for, above the picture at the right.
pub(super) fn legend(svg: &mut String, names: &[(&str, &str)]) {
    let begin = WIDTH - NAME * names.len() as f64 + 10.0;
    for (place, (colour, name)) in names.iter().enumerate() {
        let x = begin + place as f64 * NAME;
        let _ = writeln!(
            svg,
            "<line x1=\"{x}\" x2=\"{}\" y1=\"-10\" y2=\"-10\" stroke=\"{colour}\" stroke-width=\"3\"/>\
             <text x=\"{}\" y=\"-6\">{}</text>",
            x + 18.0,
            x + 23.0,
            escaped(name)
        );
    }
}

/// As text of a document.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
