//! The client library keeps the rules of docs/reference/client-protocol.md.

use std::process::Command;

use crate::harness::binary;

#[test]
fn the_client_library_conforms() {
    let output =
        Command::new(binary::bench()).args(["conform", "--"]).arg(binary::example("conform")).output().unwrap();
    let text = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text)).concat();
    assert!(output.status.success() && text.contains("39 cases passed"), "{text}");
}
