//! The programs under test. `cargo test` builds the binaries of a package only for its own tests, so the tests build
//! them with `cargo build`, which prints their paths.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

use serde_json::Value;

/// `leaseway`.
pub(crate) fn path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| build_binary("leaseway"))
}

/// `leaseway-bench`.
pub(crate) fn bench() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| build_binary("leaseway-bench"))
}

/// An example of the client library.
pub(crate) fn example(name: &str) -> PathBuf {
    build(&["--example", name], name, "example")["executable"].as_str().expect("an example has a path").into()
}

/// The shared and the static library of the C interface.
pub(crate) fn c_libraries() -> [PathBuf; 2] {
    let built = build(&["--lib"], "leaseway", "cdylib");
    let files: Vec<PathBuf> = serde_json::from_value(built["filenames"].clone()).unwrap();
    [&["so", "dylib"][..], &["a"]].map(|extensions| {
        let mut files = files.iter();
        let found = files.find(|file| extensions.iter().any(|extension| file.extension().unwrap() == *extension));
        found.expect("cargo builds the shared and the static library").clone()
    })
}

fn build_binary(name: &str) -> PathBuf {
    build(&["--bin", name], name, "bin")["executable"].as_str().expect("a binary has a path").into()
}

/// Builds targets of the workspace, and returns cargo's message about one of them.
///
/// With `--workspace` and a test among the targets, cargo selects the same features of all dependencies as for
/// `cargo test --workspace`, so that nothing is compiled a second time after that command.
fn build(targets: &[&str], name: &str, kind: &str) -> Value {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--workspace", "--test", "tidy", "--message-format", "json-render-diagnostics"]).args(targets);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    // With this package's variables, cargo would run build scripts again and recompile their dependents.
    for (name, _) in std::env::vars_os() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "OUT_DIR"].iter().any(|prefix| name.to_string_lossy().starts_with(prefix))
        {
            cargo.env_remove(name);
        }
    }
    cargo.arg("--target-dir").arg(target_directory());
    let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "cargo cannot build {name}");
    let messages = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let mut messages = messages.map(|line| serde_json::from_slice::<Value>(line).unwrap());
    let is_wanted = |message: &Value| {
        let kinds = message["target"]["kind"].as_array();
        message["target"]["name"] == name && kinds.is_some_and(|kinds| kinds.iter().any(|one| one == kind))
    };
    messages.find(is_wanted).expect("cargo reports the artifact")
}

/// The directory of this test binary: `TARGET/debug/deps/e2e-…`.
fn target_directory() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    tests.ancestors().nth(3).expect("cargo puts tests three folders deep").to_owned()
}
