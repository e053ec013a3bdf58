//! The C interface, from programs in C, C++ and Node.

use std::{path::Path, process::Command};

use crate::harness::{
    binary,
    config::{ConfigFile, Template},
    foreign,
    server::Server,
};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Every resource has a capacity of 100, except for budgets of 300.
fn server() -> Server {
    let budget = |glob: &str, period: &str| {
        format!(
            "- identifier_glob: \"{glob}\"\n  capacity: 300\n  algorithm: {{kind: BUDGET, lease_length: 10, \
             refresh_interval: 1, learning_mode_duration: 0, parameters: {{period: {period}}}}}\n"
        )
    };
    let others = Template { lease: 60, refresh: 5, ..Template::fair("*", 100.0) }.text();
    Server::with_config(&ConfigFile::new(&format!(
        "resources:\n{}{}{others}",
        budget("budget/*", "none"),
        budget("daily/*", "day"),
    )))
}

#[track_caller]
fn holds(program: &mut Command, server: &Server) {
    let output = program.arg(server.grpc().to_string()).output().unwrap();
    let (printed, complaint) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && printed == "all checks passed\n", "{printed}{complaint}");
}

/// Builds a program of tests/fixtures.
fn compile(compiler: &Path, flags: &[&str], source: &str, directory: &Path, library: &Path) -> Command {
    let program = directory.join("ffi");
    let built = Command::new(compiler)
        .args(flags)
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror"])
        .arg(format!("-I{ROOT}/src/ffi"))
        .arg(format!("{ROOT}/tests/fixtures/{source}"))
        .arg(library)
        .args(["-lpthread", "-lm", "-ldl", "-o"])
        .arg(&program)
        .status();
    assert!(built.unwrap().success());
    Command::new(program)
}

#[test]
fn c_programs_work_with_the_static_and_the_shared_library() {
    for library in binary::c_libraries() {
        let server = &server();
        let directory = tempfile::tempdir().unwrap();
        let flags = ["-std=c11", "-D_DEFAULT_SOURCE"];
        holds(&mut compile(Path::new("cc"), &flags, "ffi.c", directory.path(), &library), server);
        server.assert_alive();
    }
}

#[test]
#[cfg_attr(not(cxx), ignore = "needs LEASEWAY_TEST_CXX")]
fn cpp_objects_free_themselves() {
    let server = &server();
    let [_, library] = binary::c_libraries();
    let directory = tempfile::tempdir().unwrap();
    let compiler = foreign::path("LEASEWAY_TEST_CXX");
    holds(&mut compile(Path::new(&compiler), &["-std=c++17"], "ffi.cpp", directory.path(), &library), server);
    server.assert_alive();
}

#[test]
#[cfg_attr(not(koffi), ignore = "needs LEASEWAY_TEST_KOFFI")]
fn node_programs_wait_without_blocking_their_event_loop() {
    let server = &Server::development();
    let [library, _] = binary::c_libraries();
    let mut node = Command::new("node");
    node.env("NODE_PATH", foreign::path("LEASEWAY_TEST_KOFFI"));
    node.args([format!("{ROOT}/tests/fixtures/ffi.js"), format!("{ROOT}/src/ffi/node/leaseway.js")]).arg(library);
    holds(&mut node, server);
    server.assert_alive();
}
