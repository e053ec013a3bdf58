//! The HTTP gateway against its OpenAPI document: schemathesis sends valid and invalid requests, and checks every
//! answer.

use std::process::Command;

use crate::harness::{
    config::{ConfigFile, Template},
    foreign,
    gateway::Gateway,
    server::Server,
};

#[test]
#[cfg_attr(not(schemathesis), ignore = "needs LEASEWAY_TEST_SCHEMATHESIS")]
fn the_gateway_conforms_to_its_openapi_document() {
    // With this capacity requests rarely wait.
    let server = Server::with_config(&ConfigFile::of(&[Template::fair("*", 1e9)]));
    let gateway = Gateway::for_http(&server.grpc().to_string(), &[]);
    let directory = tempfile::tempdir().unwrap();
    let document = format!("http://{}/openapi.json", gateway.http());
    let asked = Command::new(foreign::path("LEASEWAY_TEST_SCHEMATHESIS"))
        .current_dir(directory.path())
        .args(["run", &document, "--checks", "all", "--max-examples", "40", "--seed", "1", "--no-color"])
        // A request may ask to wait for a minute.
        .args(["--max-response-time", "90"])
        // Ids are limited in bytes, which a schema cannot express.
        .args(["--generation-codec", "ascii", "--suppress-health-check", "all", "--request-timeout", "90"])
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&asked.stdout);
    assert!(asked.status.success(), "{output}");
    assert!(output.contains("Tested: 12"), "every operation was tested: {output}");
    gateway.assert_alive();
}
