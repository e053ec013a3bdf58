//! Go with grpc-go: a gRPC client that shares no code with ours, and no TLS library. Its source is in `tests/go`.

use std::process::{Command, Stdio};

use super::foreign;

pub(crate) fn call(arguments: &[&str]) -> String {
    let mut program = Command::new(foreign::path("LEASEWAY_TEST_GO_CLIENT"));
    let output = program.args(arguments).stderr(Stdio::inherit()).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}
