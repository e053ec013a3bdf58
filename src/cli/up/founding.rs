//! From before its peers are first started until a master has been seen, a node is being founded: all its peers get
//! `--bootstrap` (or `--take-over`), also those that are started later (`--only`) or again (after a port was in use).
//! From then on none gets it, so that one whose directory was wiped learns from the others instead of claiming that
//! nothing was ever promised. A file in the node's directory says so.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The file, in the directory of a node.
pub(super) fn file(directory: &Path) -> PathBuf {
    directory.join("founding")
}

/// What it says: its peers are started with this flag.
pub(super) fn text(flag: &str) -> String {
    format!("This node has had no master yet: its peers are started with\n{flag}\n")
}

/// Whether no master of this node has been seen yet.
pub(super) fn is_under_way(directory: &Path) -> bool {
    file(directory).exists()
}

/// What its peers are started with until then, if that is known.
pub(super) fn flag(directory: &Path) -> Option<String> {
    let text = fs::read_to_string(file(directory)).ok()?;
    text.lines().last().filter(|flag| flag.starts_with("--")).map(str::to_owned)
}

/// A master has been seen. If that cannot be noted nothing is lost: a peer with `--bootstrap` joins those that have
/// state.
pub(super) fn end(directory: &Path) {
    let _ = fs::remove_file(file(directory));
}
