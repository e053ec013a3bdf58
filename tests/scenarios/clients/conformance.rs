//! The client library and its C++ interface keep the rules of docs/reference/client-protocol.md.

use std::{path::Path, process::Command};

use crate::harness::{binary, foreign};

#[track_caller]
fn conforms(driver: &Path, passed: &str) {
    let output = Command::new(binary::bench()).args(["conform", "--"]).arg(driver).output().unwrap();
    let text = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text)).concat();
    assert!(output.status.success() && text.contains(passed), "{text}");
}

#[test]
fn the_rust_library_conforms() {
    conforms(&binary::example("conform"), "74 cases passed");
}

#[test]
#[cfg_attr(not(cxx), ignore = "needs LEASEWAY_TEST_CXX")]
fn the_cpp_interface_conforms() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let directory = tempfile::tempdir().unwrap();
    let driver = directory.path().join("conform");
    let [_, library] = binary::c_libraries();
    let built = Command::new(foreign::path("LEASEWAY_TEST_CXX"))
        .args(["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"])
        .arg(root.join("src/ffi"))
        .arg(root.join("tests/fixtures/conform.cpp"))
        .arg(library)
        .args(["-lpthread", "-lm", "-ldl", "-o"])
        .arg(&driver)
        .status();
    assert!(built.unwrap().success());
    conforms(&driver, "72 cases passed, 2 not offered by the library");
}
