//! The C interface, from programs in C and Node.

use std::{path::Path, process::Command};

use crate::harness::{binary, foreign, server::Server};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

#[track_caller]
fn holds(program: &mut Command, server: &Server) {
    let output = program.arg(server.grpc().to_string()).output().unwrap();
    let (printed, complaint) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && printed == "all checks passed\n", "{printed}{complaint}");
}

fn compile(directory: &Path, library: &Path) -> Command {
    let program = directory.join("ffi");
    let built = Command::new("cc")
        .args(["-std=c11", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Wpedantic", "-Werror"])
        .arg(format!("-I{ROOT}/src/ffi"))
        .arg(format!("{ROOT}/tests/fixtures/ffi.c"))
        .arg(library)
        .args(["-lpthread", "-lm", "-ldl", "-o"])
        .arg(&program)
        .status();
    assert!(built.unwrap().success());
    Command::new(program)
}

#[test]
fn c_programs_work_with_the_static_and_the_shared_library() {
    let server = &Server::development();
    for library in binary::c_libraries() {
        let directory = tempfile::tempdir().unwrap();
        holds(&mut compile(directory.path(), &library), server);
    }
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
