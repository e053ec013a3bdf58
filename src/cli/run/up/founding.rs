//! The note in a node's directory that it is being founded: from before its peers are first started until a master has
//! been seen.

use std::{fs, io, path::Path};

const FOUNDING: &str = "founding";
const FOUNDING_TEXT: &str = "This node has had no master yet: its peers are started with\n";

/// Its peers are started with this flag until there is a master.
pub(super) fn begin(directory: &Path, flag: &str) -> io::Result<()> {
    fs::write(directory.join(FOUNDING), format!("{FOUNDING_TEXT}{flag}\n"))
}

/// Whether no master of this node has been seen yet.
pub(super) fn is_on(directory: &Path) -> bool {
    directory.join(FOUNDING).exists()
}

/// What its peers are started with until then, if that is known.
pub(super) fn flag(directory: &Path) -> Option<String> {
    let text = fs::read_to_string(directory.join(FOUNDING)).ok()?;
    text.lines().last().filter(|flag| flag.starts_with("--")).map(str::to_owned)
}

/// A master has been seen. If that cannot be noted nothing is lost: a peer with `--bootstrap` joins those that have
/// state.
pub(super) fn end(directory: &Path) {
    let _ = fs::remove_file(directory.join(FOUNDING));
}
