//! Go with grpc-go: a gRPC client that shares no code with ours, nor a TLS library. Its source is in `tests/go`.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Builds the program in `directory`, unless `.ci/run` names one. Without Go the test is skipped, and says so on
/// standard error.
pub(crate) fn client(directory: &Path) -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("LEASEWAY_TEST_GO_CLIENT") {
        return Some(named.into());
    }
    let program = directory.join("go-client");
    let build = concat!(env!("CARGO_MANIFEST_DIR"), "/go/build");
    let built = Command::new(build).arg(&program).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if built.is_ok_and(|status| status.success()) {
        return Some(program);
    }
    let told = "SKIPPED: no Go with grpc-go (`tests/go/build FILE` says what it needs; LEASEWAY_TEST_GO_CLIENT names \
                what it has built)\n";
    std::io::stderr().write_all(told.as_bytes()).unwrap();
    None
}

pub(crate) fn call(program: &Path, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).stderr(Stdio::inherit()).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}
