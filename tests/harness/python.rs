//! Python with grpcio: a gRPC client that shares no code with ours, and no TLS library.

use std::process::{Command, Stdio};

use super::foreign;

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

pub(crate) fn call(arguments: &[&str]) -> String {
    let mut python = Command::new(foreign::path("LEASEWAY_TEST_PYTHON"));
    let output = python.arg("-c").arg(CALL).args(arguments).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().next().unwrap_or_default().to_owned()
}
