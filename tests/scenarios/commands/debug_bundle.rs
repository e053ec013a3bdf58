//! `leaseway debug bundle`: its contents, and the absence of secrets.

use std::{fs, io::Read as _};

use serde_json::Value;

use crate::harness::{
    config::{ConfigFile, Template},
    peers::Peers,
    process::leaseway,
};

const SECRETS: [&str; 2] = ["operators-0a1b2c3d4e5f", "peers-5f4e3d2c1b0a99887766"];

#[test]
fn the_bundle_contains_the_state_of_every_server_and_no_secrets() {
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name).display().to_string();
    let (token, secret, log, file) = (place("token"), place("secret"), place("leaseway.log"), place("bundle.tar.gz"));
    fs::write(&token, SECRETS[0]).unwrap();
    fs::write(&secret, SECRETS[1]).unwrap();
    let flags = ["--admin-token-file", &token, "--peer-secret-file", &secret];
    let mut peers = Peers::start(3, ConfigFile::of(&[Template::fair("my*", 100.0)]), &flags);
    peers.client("alice").ask(&peers, "mysql", 10.0);
    let lines = format!("the oldest line\n{}last: {} Bearer {}\n", "line\n".repeat(3000), SECRETS[0], SECRETS[1]);
    fs::write(&log, lines).unwrap();
    let dead = peers.follower();
    peers.kill(dead);

    let servers = peers.endpoints().join(",");
    let arguments = ["debug", "bundle", &file, "--server", &servers, "--admin-token-file", &token, "--log", &log];
    let output = leaseway(&[&arguments[..], &["-o", "json"]].concat());
    assert_eq!(output.code, Some(0), "{output:?}");
    let told: Value = serde_json::from_str(&output.stdout).unwrap();
    let missing = told["missing"].as_array().unwrap();
    assert!(missing.len() == 1 && missing[0].as_str().unwrap().contains(&dead_name(&peers, dead)), "{told}");
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(fs::File::open(&file).unwrap()).read_to_end(&mut bytes).unwrap();
    let text = String::from_utf8_lossy(&bytes);
    for secret in SECRETS {
        assert!(!text.contains(secret), "the bundle contains {secret}");
    }
    for part in [
        "leaseway-debug/contents.txt",
        "leaseway-debug/check.json",
        "leaseway-debug/configuration.yaml",
        "identifier_glob: \"my*\"",
        "leaseway_is_master 1",
        "\"kind\": \"election\"",
        "last: (hidden) Bearer (hidden)",
    ] {
        assert!(text.contains(part) || text.contains(&part.replace(": \"e", ":\"e")), "`{part}` is missing");
    }
    assert!(!text.contains("the oldest line"), "the bundle has only the last lines of a log");
    let status =
        told["files"].as_array().unwrap().iter().filter(|name| name.as_str().unwrap().ends_with("status.json"));
    assert_eq!(status.count(), 2, "{told}");
    let again = leaseway(&arguments);
    assert!(again.code == Some(1) && again.stderr.contains("--force"), "{again:?}");
}

fn dead_name(peers: &Peers, dead: usize) -> String {
    peers.grpc(dead).to_string().replace(':', "_")
}
