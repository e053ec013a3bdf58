//! The reader beneath configurations, for other YAML files of Leaseway's (`leaseway up` has one): all mistakes of a
//! file at once, each with line and column. The caller defines what a file may contain, with the same typed readers.

pub use super::{
    ConfigError, Diagnostic,
    access::read_access,
    diagnostic::Findings,
    read::{Field, Fields, unknown},
    template::read_resources,
};
use super::{MAX_BYTES, Position, diagnostic::Lines, node};

/// A file without mistakes.
#[derive(Debug)]
pub struct Document<'b, T> {
    pub content: T,
    /// The text that says it.
    pub text: &'b str,
    /// What is allowed but probably not meant, in the order of the file.
    pub warnings: Vec<Diagnostic>,
}

/// Reads a file that is in memory. `file` is what complaints call it, `what` what they call the whole of it; `empty` is
/// said when there is nothing in it. What `walk` makes is used only if it finds no mistakes; the rest are warnings.
pub fn read<'b, T>(
    file: &str,
    bytes: &'b [u8],
    what: &str,
    empty: &str,
    walk: impl FnOnce(&Field<'_, '_>, &mut Findings) -> T,
) -> Result<Document<'b, T>, ConfigError> {
    let mut found = Findings::new(file);
    let walked = text(bytes, &mut found).and_then(|text| match node::parse(text, &mut found) {
        Some(root) if !root.is_nothing() => Some((walk(&Field::element(what, &root), &mut found), text)),
        _ => {
            // Text that is not YAML is no empty file, and has been complained about.
            if !found.any() {
                found.error(Position::START, empty);
            }
            None
        }
    });
    let warnings = found.finish()?;
    let (content, text) = walked.expect("what could not be walked through has a finding");
    Ok(Document { content, text, warnings })
}

fn text<'b>(bytes: &'b [u8], found: &mut Findings) -> Option<&'b str> {
    if bytes.len() > MAX_BYTES {
        found.error(Position::START, format!("larger than {MAX_BYTES} bytes"));
        return None;
    }
    match std::str::from_utf8(bytes) {
        // The mark that some editors put in front; it is no character of the first line.
        Ok(text) => Some(text.strip_prefix('\u{feff}').unwrap_or(text)),
        Err(error) => {
            let good = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
            found.error(Lines::of(&good).end(), "not UTF-8: save the file with that encoding");
            None
        }
    }
}
