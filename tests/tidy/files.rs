//! The files of the repository.

use std::{
    fs,
    path::{Path, PathBuf},
};

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A path relative to the root, for messages.
pub(crate) fn short(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// All files with these extensions and their text, sorted by path. Skips build results and generated code.
pub(crate) fn files(extensions: &[&str]) -> Vec<(PathBuf, String)> {
    files_below(&root(), extensions)
}

pub(crate) fn files_below(folder: &Path, extensions: &[&str]) -> Vec<(PathBuf, String)> {
    let (mut folders, mut found) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() {
                if !name.starts_with('.')
                    && !["target", "generated", "book", "leaseway-data", "node_modules"].contains(&name)
                {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extensions.contains(&extension.to_str().unwrap())) {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    assert!(!found.is_empty());
    found.sort();
    found
}

#[track_caller]
pub(crate) fn complain(what: &str, complaints: &[String]) {
    assert!(complaints.is_empty(), "{what}:\n{}", complaints.join("\n"));
}

/// Fails unless both sets are equal.
#[track_caller]
pub(crate) fn assert_same<'a>(
    (one, ones): (&str, impl IntoIterator<Item = &'a String>),
    (other, others): (&str, impl IntoIterator<Item = &'a String>),
) {
    use std::collections::BTreeSet;
    let (ones, others) = (ones.into_iter().collect::<BTreeSet<_>>(), others.into_iter().collect::<BTreeSet<_>>());
    assert!(!ones.is_empty(), "found nothing in {one}");
    let missing = ones.difference(&others).map(|name| format!("{name}: in {one}, not in {other}"));
    let unknown = others.difference(&ones).map(|name| format!("{name}: in {other}, not in {one}"));
    complain(&format!("{one} and {other} differ"), &missing.chain(unknown).collect::<Vec<_>>());
}
