//! The dependencies of the client library.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

/// `UPDATE_GOLDENFILES=1 cargo test -p leaseway-tests dependencies` rewrites the list.
#[test]
fn the_client_library_has_only_the_listed_dependencies() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/client-dependencies.txt");
    let arguments = "tree --locked --offline --package leaseway-client --edges normal --prefix none --format {p} \
                     --target x86_64-unknown-linux-gnu";
    let output = Command::new(env!("CARGO"))
        .args(arguments.split_whitespace())
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Names only. Cargo.lock has the versions.
    let names: BTreeSet<_> = std::str::from_utf8(&output.stdout)
        .unwrap()
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect();
    for heavy in ["actix", "actix-rt", "openraft", "axum", "clap", "leaseway", "leaseway-server", "redb"] {
        assert!(!names.contains(heavy), "the client depends on {heavy}");
    }
    let tree = names.into_iter().map(|name| name + "\n").collect::<String>();
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        fs::write(&golden, &tree).unwrap();
    }
    let written = fs::read_to_string(&golden).unwrap();
    assert_eq!(tree, written, "the client's dependencies have changed: if that is meant, see the comment of this test");
}
