//! Python with grpcio: a gRPC client that shares no code with ours, nor a TLS library.

use std::{
    io::Write as _,
    path::PathBuf,
    process::{Command, Stdio},
};

/// The Python that `.ci/run` names. Without one the test is skipped, and says so on standard error.
pub(crate) fn with_grpcio() -> Option<PathBuf> {
    let named = std::env::var_os("LEASEWAY_TEST_PYTHON").map(PathBuf::from);
    let python = named.clone().unwrap_or_else(|| "python3".into());
    let asked = Command::new(&python).args(["-c", "import grpc"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if asked.is_ok_and(|status| status.success()) {
        return Some(python);
    }
    assert!(named.is_none(), "LEASEWAY_TEST_PYTHON has no grpcio");
    let told = "SKIPPED: no python3 with grpcio (pip install grpcio; LEASEWAY_TEST_PYTHON names another)\n";
    std::io::stderr().write_all(told.as_bytes()).unwrap();
    None
}

/// Prints the answer of a unary call, or the code and message of its failure. Arguments: address, method, request in
/// hexadecimal, CA, and optionally key and certificate.
const CALL: &str = r#"
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

pub(crate) fn call(python: &PathBuf, arguments: &[&str]) -> String {
    let output = Command::new(python).arg("-c").arg(CALL).args(arguments).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().next().unwrap_or_default().to_owned()
}
