//! Operators' commands over TLS.

use crate::harness::{
    authority::{Authority, Valid},
    config::{self, ConfigFile, Template},
    process::leaseway,
    server::Server,
    tls::flags,
};

const RULES: &str = "access:
- {name: ops, who: ops, may: [read, configure, peers]}
- {name: reader, who: reader, may: read}
";

#[test]
fn every_operator_command_works_over_mutual_tls() {
    let authority = Authority::new("ours");
    let config_of = |capacity| ConfigFile::new(&(config::text(&[Template::fair("*", capacity)]) + RULES));
    let (config, changed) = (config_of(100.0), config_of(50.0));
    let data = authority.path("data").display().to_string();
    let own = flags(&authority.issue("a", &["127.0.0.1"], Valid::Now));
    let own: Vec<&str> = own.iter().map(String::as_str).collect();
    let flags_of_peer = ["--data", &data, "--bootstrap", "--admin", "127.0.0.1:0", "--config", config.path()];
    let peer = Server::with_flags(&[&flags_of_peer[..], &own].concat());
    let (admin, server) = (format!("https://{}", peer.admin()), format!("https://{}", peer.grpc()));
    let run = |identity: Option<&str>, words: &[&str], address: [&str; 2]| {
        let files = identity.map_or_else(|| authority.trust(), |name| authority.issue(name, &[name], Valid::Now));
        let files = flags(&files);
        leaseway(&[words, &address, &files.iter().map(String::as_str).collect::<Vec<_>>()].concat())
    };
    let backup = authority.path("backup.jsonl").display().to_string();
    let bundle = authority.path("bundle.tar.gz").display().to_string();
    for words in [
        &["config", "show"][..],
        &["config", "history"],
        &["config", "diff", changed.path()],
        &["config", "plan", changed.path()],
        &["config", "apply", changed.path(), "--yes"],
        &["config", "rollback", "1", "--yes"],
        &["peers", "list"],
        &["capacity"],
        &["access", "test", "ops", "db/x"],
        &["backup", &backup],
        &["pool", "show", "r"],
    ] {
        let output = run(Some("ops"), words, ["--admin", &admin]);
        // Also succeeds if the node refuses the command, because that is an answer over TLS.
        assert!(![None, Some(2), Some(69)].contains(&output.code), "{words:?}: {output:?}");
    }
    for words in [&["check"][..], &["status"], &["debug", "bundle", &bundle]] {
        let output = run(Some("ops"), words, ["--server", &server]);
        assert!([Some(0), Some(3), Some(4)].contains(&output.code), "{words:?}: {output:?}");
        assert!(!output.stdout.contains("the peers are unknown"), "{output:?}");
    }
    let add = ["peers", "add", "b", "127.0.0.1:1"];
    for (identity, code, says) in [(Some("reader"), 77, "`reader` may not"), (None, 69, "--tls-cert and --tls-key")] {
        let output = run(identity, &add, ["--admin", &admin]);
        assert!(output.code == Some(code) && output.stderr.contains(says), "{output:?}");
    }
}
