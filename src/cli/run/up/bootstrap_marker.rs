//! The bootstrap file in a node's directory, which holds the flag for the first start of its peers. It exists from
//! before the first start until a master is seen.

use std::{fs, io, path::Path};

const FOUNDING: &str = "founding";
const FOUNDING_TEXT: &str = "This node has had no master yet: its peers are started with\n";

/// Writes the file with the flag that peers get until there is a master.
pub(super) fn begin(directory: &Path, flag: &str) -> io::Result<()> {
    fs::write(directory.join(FOUNDING), format!("{FOUNDING_TEXT}{flag}\n"))
}

/// Whether the node has had no master yet.
pub(super) fn is_on(directory: &Path) -> bool {
    directory.join(FOUNDING).exists()
}

/// The flag in the file.
pub(super) fn flag(directory: &Path) -> Option<String> {
    let text = fs::read_to_string(directory.join(FOUNDING)).ok()?;
    text.lines().last().filter(|flag| flag.starts_with("--")).map(str::to_owned)
}

/// Removes the file, because there was a master. A failure is harmless: a peer with `--bootstrap` joins peers that have
/// state.
pub(super) fn end(directory: &Path) {
    let _ = fs::remove_file(directory.join(FOUNDING));
}
