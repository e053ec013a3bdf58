//! The C interface, from programs in C and Node.

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use crate::harness::{
    binary,
    config::{ConfigFile, Template},
    server::Server,
};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

#[track_caller]
fn holds(program: &mut Command, server: &Server) {
    let output = program.arg(server.grpc().to_string()).output().unwrap();
    let (said, complaint) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said == "all of it holds\n", "{said}{complaint}");
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
fn programs_in_c_have_leases_wait_and_fork_linked_with_either_library() {
    let server = Server::with_config(&ConfigFile::of(&[Template::fair("*", 100.0)]));
    for library in binary::c_libraries() {
        let directory = tempfile::tempdir().unwrap();
        holds(&mut compile(directory.path(), &library), &server);
    }
    server.assert_alive();
}

/// A Node that has koffi. `.ci/run` installs it and names where; elsewhere there may be none, and then it is said where
/// no test runner keeps it to itself.
fn node() -> Option<Command> {
    let mut node = Command::new("node");
    let named = std::env::var_os("LEASEWAY_TEST_KOFFI");
    if let Some(modules) = &named {
        node.env("NODE_PATH", modules);
    }
    let asked = Command::new("node")
        .envs(node.get_envs().filter_map(|(key, value)| Some((key, value?))))
        .args(["-e", "require('koffi')"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if asked.is_ok_and(|status| status.success()) {
        return Some(node);
    }
    assert!(named.is_none(), "LEASEWAY_TEST_KOFFI has no koffi that node can load");
    let told = "SKIPPED: no node with koffi (npm install koffi; LEASEWAY_TEST_KOFFI names its node_modules)\n";
    std::io::stderr().write_all(told.as_bytes()).unwrap();
    None
}

#[test]
fn programs_of_node_wait_while_their_loop_goes_on() {
    let Some(mut node) = node() else { return };
    let server = Server::with_config(&ConfigFile::of(&[Template::fair("*", 100.0)]));
    let [library, _] = binary::c_libraries();
    node.args([format!("{ROOT}/tests/fixtures/ffi.js"), format!("{ROOT}/src/ffi/node/leaseway.js")]).arg(library);
    holds(&mut node, &server);
    server.assert_alive();
}
