//! Preloaded libraries that change what a process sees of its machine.

use std::{path::Path, process::Command};

/// Compiles a C fixture for `LD_PRELOAD`.
pub(crate) fn library(directory: &Path, name: &str) -> String {
    let library = directory.join(format!("{name}.so")).display().to_string();
    let source = format!("{}/fixtures/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let built = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o", &library, &source]).status().unwrap();
    assert!(built.success());
    library
}
