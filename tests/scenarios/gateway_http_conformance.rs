//! The HTTP gateway against its OpenAPI document: schemathesis sends valid and invalid requests, and checks every
//! answer.

use std::{
    io::Write as _,
    path::PathBuf,
    process::{Command, Stdio},
};

use crate::harness::{
    config::{ConfigFile, Template},
    gateway::Gateway,
    server::Server,
};

/// `.ci/run` installs one and names it; elsewhere there may be none, and then it is said where no test runner keeps it
/// to itself.
fn schemathesis() -> Option<PathBuf> {
    let named = std::env::var_os("LEASEWAY_TEST_SCHEMATHESIS").map(PathBuf::from);
    let found = named.clone().unwrap_or_else(|| "schemathesis".into());
    let asked = Command::new(&found).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if asked.is_ok_and(|status| status.success()) {
        return Some(found);
    }
    assert!(named.is_none(), "LEASEWAY_TEST_SCHEMATHESIS cannot be run");
    let told = "SKIPPED: no schemathesis (pip install schemathesis; LEASEWAY_TEST_SCHEMATHESIS names another)\n";
    std::io::stderr().write_all(told.as_bytes()).unwrap();
    None
}

#[test]
fn the_gateway_does_what_its_document_says_and_refuses_the_rest() {
    let Some(schemathesis) = schemathesis() else { return };
    // So much that hardly a request waits.
    let server = Server::with_config(&ConfigFile::of(&[Template::fair("*", 1e9)]));
    let gateway = Gateway::for_http(&server.grpc().to_string(), &[]);
    let directory = tempfile::tempdir().unwrap();
    let document = format!("http://{}/openapi.json", gateway.http());
    let asked = Command::new(schemathesis)
        .current_dir(directory.path())
        .args(["run", &document, "--checks", "all", "--max-examples", "40", "--seed", "1", "--no-color"])
        // A request may ask to wait for a minute.
        .args(["--max-response-time", "90"])
        // Ids are bounded in bytes, which no schema can say.
        .args(["--generation-codec", "ascii", "--suppress-health-check", "all", "--request-timeout", "90"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&asked.stdout);
    assert!(asked.status.success(), "{said}");
    assert!(said.contains("Tested: 8"), "all of it was tested: {said}");
    gateway.assert_alive();
}
