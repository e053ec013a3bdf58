//! First steps at the command line: `get`, `status`, completions, manual pages, and the examples in documents.

use std::{fs, path::Path, process::Command};

use crate::harness::{
    config::ConfigFile,
    doorman::Asks as _,
    process::leaseway,
    server::{ANYWHERE, Server},
};

#[test]
fn get_and_status_work_without_a_configuration() {
    let server = Server::development();
    let output = server.cli(&["status"]);
    assert!(output.stdout.contains("no resources yet: the first request for one creates it"), "{output:?}");
    let output = server.cli(&["get", "alice", "mysql", "40"]);
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
    assert_eq!(
        output.stdout,
        "alice may use 40 of `mysql` (wanted 40) for 60 s; refresh in 5 s; fallback without a server: 100\n"
    );
    assert!(server.log().contains("development server"), "{}", server.log());

    let output = server.cli(&["status"]);
    assert!(output.stdout.contains(&format!("server {}", server.grpc())), "{output:?}");
    assert!(output.stdout.contains("configuration: development default, version 1"), "{output:?}");
    let row = output.stdout.lines().find(|line| line.starts_with("mysql")).expect("a row for the resource");
    assert!(row.split_whitespace().eq(["mysql", "100", "40", "40", "40", "1", "no", "FAIR_SHARE", "*"]), "{row}");
    let output = server.cli(&["status", "mysql"]);
    let row = output.stdout.lines().find(|line| line.starts_with("alice")).expect("a row for the client");
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells[..7], ["alice", "40", "40", "40", "40", "0", "1"], "{row}");
    let output = server.cli(&["status", "postgres"]);
    assert_eq!(output.code, Some(1));
    assert!(output.stderr.contains("there is no resource `postgres` on this server"), "{output:?}");
}

#[test]
fn errors_about_an_unreachable_server_name_it_and_a_remedy() {
    // Port 1 (tcpmux) serves no gRPC.
    for command in [&["get", "alice", "mysql", "1"][..], &["release", "alice", "mysql"], &["status"]] {
        let output = leaseway(&[command, &["--server", "127.0.0.1:1"]].concat());
        assert_eq!((output.code, output.stdout.as_str()), (Some(69), ""), "{output:?}");
        for part in ["cannot reach a server at 127.0.0.1:1", "refused", "--server takes several addresses"] {
            assert!(output.stderr.contains(part), "`{part}` is not in {}", output.stderr);
        }
        assert!(
            !output.stderr.contains("leaseway serve"),
            "the remedy must not be a second server, which would not know the promises: {output:?}"
        );
    }
}

#[test]
fn the_guide_quotes_the_quickstart_exactly() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let guide = fs::read_to_string(root.join("docs/guide/rust.md")).unwrap();
    let example = fs::read_to_string(root.join("src/client/examples/quickstart.rs")).unwrap();
    let (_, code) = example.split_once("use leaseway_client").unwrap();
    assert!(
        guide.contains(&format!("```rust\nuse leaseway_client{code}```")),
        "docs/guide/rust.md differs from the quickstart"
    );
}

const TWO_MISTAKES: &str = "resources:
- identifier_glob: a
  capacity: many
- identifier_glob: b
  capacity: 1
  algoritm: {kind: FAIR_SHARE}
";

#[test]
fn a_bad_configuration_is_refused_before_ports_are_opened() {
    let file = ConfigFile::new(TWO_MISTAKES);
    // The port is taken, so a server that opened it first would report that instead.
    let taken = std::net::TcpListener::bind(ANYWHERE).unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = leaseway(&["serve", "--listen", &address, "--http", ANYWHERE, "--config", file.path()]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(78), ""));
    assert!(!output.stderr.contains("cannot listen"), "{output:?}");
    for (place, what) in [("3:13", "many"), ("6:3", "did you mean `algorithm`?")] {
        let start = format!("{}:{place}: ", file.path());
        assert!(output.stderr.lines().any(|line| line.contains(&start) && line.contains(what)), "{output:?}");
    }
}

#[test]
fn the_example_configuration_is_valid_and_serves() {
    let output = leaseway(&["config", "example"]);
    assert_eq!(output.code, Some(0));
    let file = ConfigFile::new(&output.stdout);
    let checked = leaseway(&["config", "check", file.path()]);
    assert!(checked.code == Some(0) && checked.stdout.contains(&format!("{} is valid", file.path())), "{checked:?}");
    let server = Server::with_config(&file);
    assert_eq!(server.client("alice").ask("mysql", 1000.0), 100.0);
    assert_eq!(server.status(&[])["config"]["source"], file.path());
}

#[test]
fn bash_completes_commands_flags_and_values() {
    let script = leaseway(&["completions", "bash"]);
    assert_eq!(script.code, Some(0), "{script:?}");
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("leaseway.bash");
    fs::write(&file, script.stdout).unwrap();
    let completed = |words: &str| {
        let ask = "COMP_CWORD=$((${#COMP_WORDS[@]}-1)); \
                   _leaseway leaseway \"${COMP_WORDS[-1]}\" \"${COMP_WORDS[-2]}\"; echo \"${COMPREPLY[@]}\"";
        let script = format!("source '{}'\nCOMP_WORDS=({words})\n{ask}", file.display());
        let output = Command::new("bash").args(["--norc", "-c", &script]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(completed("leaseway exp"), "explain");
    assert_eq!(completed("leaseway config roll"), "rollback");
    assert_eq!(completed("leaseway serve --log-format j"), "json");
}

#[test]
fn every_command_has_a_manual_page() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("share/man1");
    let output = leaseway(&["man", directory.to_str().unwrap()]);
    assert_eq!(output.code, Some(0), "{output:?}");
    for page in ["leaseway.1", "leaseway-config-rollback.1", "leaseway-man.1"] {
        assert!(directory.join(page).exists(), "{page}");
    }
    let page = fs::read_to_string(directory.join("leaseway-serve.1")).unwrap();
    assert!(page.contains(".TH") && page.contains("LEASEWAY_LISTEN"), "{page}");
}

#[test]
fn certs_creates_working_certificates_and_says_how_to_use_them() {
    use std::os::unix::fs::PermissionsExt as _;
    let temporary = tempfile::tempdir().unwrap();
    let directory = temporary.path().join("set");
    let certs = |words: &[&str]| {
        let output = leaseway(&[&["certs"], words, &["--dir", directory.to_str().unwrap()]].concat());
        assert_eq!(output.code, Some(0), "{output:?}");
        output.stdout
    };
    let init = certs(&["init"]);
    let [ca, ca_key] = ["ca.pem", "ca.key"].map(|file| directory.join(file).display().to_string());
    assert!(init.contains(&ca) && init.contains(&ca_key) && init.contains("--tls-ca"), "{init}");
    let node = certs(&["issue", "node", "--host", "A.internal,127.0.0.1"]);
    assert!(node.contains("certificate of `a.internal`, a server"), "{node}");
    assert!(node.contains(&format!("leaseway serve --tls-cert {}", directory.join("node.pem").display())), "{node}");
    let alice = certs(&["issue", "alice"]);
    assert!(alice.contains("certificate of `alice`, a client") && alice.contains("leaseway get alice"), "{alice}");
    let mode = |file: &str| fs::metadata(directory.join(file)).unwrap().permissions().mode();
    assert_eq!((mode("node.key") & 0o777, mode("node.pem") & 0o077), (0o600, 0o044));
    let shown = leaseway(&["certs", "show", directory.to_str().unwrap()]).stdout;
    assert!(shown.contains("node.pem: node") && shown.contains("names   a.internal, 127.0.0.1"), "{shown}");
    assert!(!shown.contains("PRIVATE"), "{shown}");
    let file = |name: &str| directory.join(name).display().to_string();
    let [node, node_key, alice, alice_key] = ["node.pem", "node.key", "alice.pem", "alice.key"].map(file);
    let server = Server::with_flags(&["--tls-cert", &node, "--tls-key", &node_key, "--tls-ca", &ca]);
    let tls = ["--tls-cert", &alice, "--tls-key", &alice_key, "--tls-ca", &ca];
    let output = server.cli(&[&["get", "alice", "mysql", "40"][..], &tls].concat());
    assert!(output.code == Some(0) && output.stdout.contains("alice may use 40"), "{output:?}");
}
