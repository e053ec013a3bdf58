//! Modules of a folder have no cyclic dependencies.
//!
//! A file `x.rs` and the files below `x/` are one module. A parent and its children may use each other, so only cycles
//! between the children of a folder are errors.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use crate::{
    files::{complain, root, short},
    modules::{Graph, graph},
};

/// The root files of all crates.
fn crates() -> Vec<PathBuf> {
    let mut folders = vec![root().join("proto"), root().join("bench"), root().join("tests")];
    folders.extend(std::fs::read_dir(root().join("src")).unwrap().map(|entry| entry.unwrap().path()));
    folders.sort();
    let roots = folders.iter().flat_map(|folder| ["lib.rs", "main.rs"].map(|name| folder.join(name)));
    let found: Vec<PathBuf> = roots.filter(|root| root.exists()).collect();
    assert!(found.len() >= 8, "{found:?}");
    found
}

/// The strongly connected components that contain a cycle.
fn circles<N: Ord + Clone>(edges: &BTreeMap<N, BTreeSet<N>>) -> Vec<BTreeSet<N>> {
    let reach = |from: &N| {
        let (mut seen, mut ahead) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(at) = ahead.pop() {
            for next in edges.get(&at).into_iter().flatten() {
                if seen.insert(next.clone()) {
                    ahead.push(next.clone());
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&N, BTreeSet<N>> = edges.keys().map(|node| (node, reach(node))).collect();
    let mut found = BTreeSet::new();
    for (node, ahead) in &reached {
        let comes_back = |other: &&N| reached.get(other).is_some_and(|back| back.contains(node));
        let circle: BTreeSet<N> = ahead.iter().filter(comes_back).cloned().collect();
        if !circle.is_empty() {
            found.insert(circle);
        }
    }
    found.into_iter().collect()
}

/// The graph of groups of files. Ignores files whose group is `None`.
fn grouped(graph: &Graph, group: impl Fn(&Path) -> Option<String>) -> BTreeMap<String, BTreeSet<String>> {
    let mut edges = BTreeMap::<String, BTreeSet<String>>::new();
    for (file, used) in graph {
        let Some(own) = group(file) else { continue };
        let others = used.keys().filter_map(|file| group(file)).filter(|other| *other != own);
        edges.entry(own.clone()).or_default().extend(others);
    }
    edges
}

/// Lists each use between two members of a cycle, one per line.
fn uses_within(graph: &Graph, member: impl Fn(&Path) -> Option<String>, circle: &BTreeSet<String>) -> Vec<String> {
    let mut lines = vec![format!("cycle of {}:", circle.iter().cloned().collect::<Vec<_>>().join(", "))];
    for (file, used) in graph {
        for (other, names) in used {
            let (Some(from), Some(to)) = (member(file), member(other)) else { continue };
            if from != to && circle.contains(&from) && circle.contains(&to) {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                lines.push(format!("  {} uses {} of {}", short(file), names.join(", "), short(other)));
            }
        }
    }
    lines
}

/// The cycles of the modules in `folder`. Ignores the crate's root file, which may use all modules and be used by them.
fn complaints(graph: &Graph, folder: &Path, crate_root: &Path) -> Vec<String> {
    let module = |file: &Path| {
        let below = file.strip_prefix(folder).ok()?.with_extension("");
        let name = below.components().next()?.as_os_str().to_str()?;
        (file != crate_root).then(|| short(&folder.join(name)))
    };
    circles(&grouped(graph, module)).iter().flat_map(|circle| uses_within(graph, module, circle)).collect()
}

/// Folders whose modules may have cycles.
const AMONG_MODULES: [&str; 0] = [];

#[test]
fn modules_of_a_folder_have_no_cycles() {
    let mut found = Vec::new();
    for crate_root in crates() {
        let graph = graph(&crate_root);
        let folders: BTreeSet<&Path> = graph.keys().filter_map(|file| file.parent()).collect();
        let folders = folders.into_iter().filter(|folder| !AMONG_MODULES.contains(&&*short(folder)));
        found.extend(folders.flat_map(|folder| complaints(&graph, folder, &crate_root)));
    }
    complain("modules with cyclic dependencies", &found);
}

/// A crate on disk: `a` re-exports what `a/b` defines, `a/b` uses an item of `a`, and `c` uses `a/b` by way of `a`.
#[test]
fn reexports_are_followed_to_the_definition() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    };
    let lib = write("lib.rs", "mod a;\nmod c;\n#[cfg(test)]\nmod tests;\n");
    let a = write("a.rs", "mod b;\npub(crate) use self::b::{B, Unused};\npub(crate) struct A;\n");
    let b = write("a/b.rs", "use super::A;\npub(crate) struct B(A);\npub(crate) struct Unused;\n");
    let c = write("c.rs", "use crate::{a::B, a as other};\nfn c(_: B) { println!(\"{}\", other::A::NAME); }\n");
    let assert_uses = |file: &PathBuf, expected: &[&PathBuf], why: &str| {
        let expected: BTreeSet<PathBuf> = expected.iter().copied().cloned().collect();
        assert_eq!(graph(&lib)[file].keys().cloned().collect::<BTreeSet<_>>(), expected, "{why}");
    };
    assert_uses(&lib, &[], "lib.rs only declares modules");
    assert_uses(&a, &[], "a.rs only re-exports");
    assert_uses(&b, &[&a], "b.rs uses an item of its parent");
    assert_uses(&c, &[&a, &b], "c.rs uses A in a macro, too");
    write("a.rs", "mod b;\npub(crate) use self::b::B;\npub(crate) struct A;\nfn a(_: B) {}\n");
    assert_uses(&a, &[&b], "a.rs uses a name that it re-exports");
}
