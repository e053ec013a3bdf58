//! The binaries under test. `cargo test` builds the binaries of a package only for its own tests, so each is built here
//! with `cargo build`, which knows whether it is up to date and prints its path.

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

fn build(package: &str, kind: &str, name: &str) -> PathBuf {
    let built = artifacts(package, &[kind, name]);
    let mut executables = built.iter().filter_map(|message| message["executable"].as_str().map(PathBuf::from));
    executables.next().expect("cargo says what it has built")
}

/// The shared and the static library of the C interface.
pub(crate) fn c_libraries() -> [PathBuf; 2] {
    let built = artifacts("leaseway-ffi", &["--lib"]);
    let own =
        built.iter().rfind(|message| message["target"]["name"] == "leaseway").expect("cargo says what it has built");
    let files: Vec<PathBuf> = serde_json::from_value(own["filenames"].clone()).unwrap();
    let of = |extensions: &[&str]| {
        let mut files = files.iter();
        let is_of = |file: &&PathBuf| extensions.iter().any(|extension| file.extension().unwrap() == *extension);
        files.find(is_of).expect("both kinds are built").clone()
    };
    [of(&["so", "dylib"]), of(&["a"])]
}

/// The messages of cargo.
fn artifacts(package: &str, what: &[&str]) -> Vec<Value> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--package", package, "--message-format", "json-render-diagnostics"]).args(what);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    // Variables of this package would make build scripts run again, and everything above them be built again.
    for (name, _) in std::env::vars_os() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "OUT_DIR"].iter().any(|prefix| name.to_string_lossy().starts_with(prefix))
        {
            cargo.env_remove(name);
        }
    }
    cargo.arg("--target-dir").arg(target_directory());
    let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "the binary to be tested cannot be built");
    let messages = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    messages.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

/// The directory of this test binary: `TARGET/debug/deps/e2e-…`.
fn target_directory() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    tests.ancestors().nth(3).expect("cargo puts tests three folders deep").to_owned()
}
