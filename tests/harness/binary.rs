//! The binaries under test.
//!
//! `cargo test` builds the binaries of a package only for that package's own tests, so this crate has each built once,
//! as `cargo build` would: cargo knows best whether what is there is up to date, and says where it is.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

use serde_json::Value;

/// `leaseway`.
pub(crate) fn path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| build("leaseway", "--bin", "leaseway"))
}

/// `leaseway-bench`.
pub(crate) fn bench() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| build("leaseway-bench", "--bin", "leaseway-bench"))
}

/// An example of the client library.
pub(crate) fn example(name: &str) -> PathBuf {
    build("leaseway-client", "--example", name)
}

fn build(package: &str, kind: &str, name: &str) -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--package", package, kind, name, "--message-format", "json-render-diagnostics"]);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    cargo.arg("--target-dir").arg(target_directory());
    let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "the binary to be tested cannot be built");
    let messages = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let messages = messages.map(|line| serde_json::from_slice::<Value>(line).unwrap());
    let mut executables = messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from));
    executables.next().expect("cargo says what it has built")
}

/// Where these tests were built: `TARGET/debug/deps/e2e-…`.
fn target_directory() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    tests.ancestors().nth(3).expect("cargo puts tests three folders deep").to_owned()
}
