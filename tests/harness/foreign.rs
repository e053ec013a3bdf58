//! Programs that are not part of this workspace. A variable `LEASEWAY_TEST_…` has the path of each. Without it
//! `build.rs` marks the tests as ignored.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The value of `LEASEWAY_TEST_…`, a path that exists.
pub(crate) fn path(variable: &str) -> PathBuf {
    let path = PathBuf::from(std::env::var_os(variable).unwrap_or_else(|| panic!("{variable} is not set")));
    assert!(path.exists(), "{variable} points to a missing file: {}", path.display());
    path
}

/// Prints the answer of a unary call, or the code and message of its failure. Arguments: address, method, request in
/// hexadecimal, CA, and optionally key and certificate.
const PYTHON_CALL: &str = r#"
import sys, grpc
address, method, request, ca, *own = sys.argv[1:]
read = lambda path: open(path, "rb").read()
key, certificate = (read(own[0]), read(own[1])) if own else (None, None)
credentials = grpc.ssl_channel_credentials(read(ca), key, certificate)
with grpc.secure_channel(address, credentials) as channel:
    call = channel.unary_unary(method)
    try:
        print("ok", call(bytes.fromhex(request), timeout=20).hex())
    except grpc.RpcError as error:
        print("failed", error.code().name, error.details())
"#;

/// Makes a call with Python's grpcio.
pub(crate) fn call_with_python(arguments: &[&str]) -> String {
    let output = output(Command::new(path("LEASEWAY_TEST_PYTHON")).args(["-c", PYTHON_CALL]).args(arguments));
    output.lines().next().expect("the program reports the outcome").to_owned()
}

/// Makes calls with grpc-go, by the program in `tests/go`.
pub(crate) fn call_with_go(arguments: &[&str]) -> String {
    output(Command::new(path("LEASEWAY_TEST_GO_CLIENT")).args(arguments))
}

fn output(command: &mut Command) -> String {
    String::from_utf8(command.stderr(Stdio::inherit()).output().unwrap().stdout).unwrap()
}

/// Compiles a C fixture for `LD_PRELOAD`. Such a library simulates a faulty clock or disk.
pub(crate) fn preload_library(directory: &Path, name: &str) -> String {
    let library = directory.join(format!("{name}.so")).display().to_string();
    let source = format!("{}/fixtures/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let built = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o", &library, &source]).status().unwrap();
    assert!(built.success());
    library
}
