//! First steps at the command line: `get`, `status`, completions, manual pages, and the examples in documents.

use std::{fs, path::Path, process::Command};

use crate::harness::{
    config::ConfigFile,
    doorman::Asks as _,
    process::leaseway,
    server::{ANYWHERE, Server},
};

#[test]
fn a_first_get_on_a_server_without_a_configuration_is_answered_and_shown_by_status() {
    let server = Server::development();
    let said = server.cli(&["status"]);
    assert!(said.stdout.contains("no resources yet: the first request for one creates it"), "{said:?}");
    let said = server.cli(&["get", "alice", "mysql", "40"]);
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    assert_eq!(
        said.stdout,
        "alice may use 40 of `mysql` (wanted 40) for 60 s; refresh in 5 s; fallback without a server: 100\n"
    );
    assert!(server.log().contains("development server"), "{}", server.log());

    let said = server.cli(&["status"]);
    assert!(said.stdout.contains(&format!("server {}", server.grpc())), "{said:?}");
    assert!(said.stdout.contains("configuration: development default, version 1"), "{said:?}");
    let row = said.stdout.lines().find(|line| line.starts_with("mysql")).expect("a row for the resource");
    assert!(row.split_whitespace().eq(["mysql", "100", "40", "40", "40", "1", "no", "FAIR_SHARE", "*"]), "{row}");
    let said = server.cli(&["status", "mysql"]);
    let row = said.stdout.lines().find(|line| line.starts_with("alice")).expect("a row for the client");
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells[..7], ["alice", "40", "40", "40", "40", "0", "1"], "{row}");
    let said = server.cli(&["status", "postgres"]);
    assert_eq!(said.code, Some(1));
    assert!(said.stderr.contains("there is no resource `postgres` on this server"), "{said:?}");
}

#[test]
fn a_server_that_cannot_be_reached_is_named_with_what_to_do() {
    // Port 1 (tcpmux) serves no gRPC.
    for command in [&["get", "alice", "mysql", "1"][..], &["release", "alice", "mysql"], &["status"]] {
        let said = leaseway(&[command, &["--server", "127.0.0.1:1"]].concat());
        assert_eq!((said.code, said.stdout.as_str()), (Some(69), ""), "{said:?}");
        for part in ["cannot reach a server at 127.0.0.1:1", "refused", "--server takes several addresses"] {
            assert!(said.stderr.contains(part), "`{part}` is not in {}", said.stderr);
        }
        assert!(
            !said.stderr.contains("leaseway serve"),
            "a second server would give away what peers promised: {said:?}"
        );
    }
}

#[test]
fn the_guide_shows_the_quickstart_as_it_is() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let guide = fs::read_to_string(root.join("docs/guide/rust.md")).unwrap();
    let example = fs::read_to_string(root.join("src/client/examples/quickstart.rs")).unwrap();
    let (_, code) = example.split_once("use leaseway_client").unwrap();
    assert!(guide.contains(&format!("```rust\nuse leaseway_client{code}```")), "the guide shows another quickstart");
}

const TWO_MISTAKES: &str = "resources:
- identifier_glob: a
  capacity: many
- identifier_glob: b
  capacity: 1
  algoritm: {kind: FAIR_SHARE}
";

#[test]
fn a_server_refuses_to_start_on_a_bad_file_before_it_opens_a_port() {
    let file = ConfigFile::new(TWO_MISTAKES);
    // The port is taken: a server that tried to open it would complain.
    let taken = std::net::TcpListener::bind(ANYWHERE).unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = leaseway(&["serve", "--listen", &address, "--http", ANYWHERE, "--config", file.path()]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(78), ""));
    assert!(!said.stderr.contains("cannot listen"), "{said:?}");
    for (place, what) in [("3:13", "many"), ("6:3", "did you mean `algorithm`?")] {
        let start = format!("{}:{place}: ", file.path());
        assert!(said.stderr.lines().any(|line| line.contains(&start) && line.contains(what)), "{said:?}");
    }
}

#[test]
fn the_example_is_a_configuration_to_start_from() {
    let said = leaseway(&["config", "example"]);
    assert_eq!(said.code, Some(0));
    let file = ConfigFile::new(&said.stdout);
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
        let said = Command::new("bash").args(["--norc", "-c", &script]).output().unwrap();
        String::from_utf8(said.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(completed("leaseway exp"), "explain");
    assert_eq!(completed("leaseway config roll"), "rollback");
    assert_eq!(completed("leaseway serve --log-format j"), "json");
}

#[test]
fn every_command_has_a_manual_page() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("share/man1");
    let said = leaseway(&["man", directory.to_str().unwrap()]);
    assert_eq!(said.code, Some(0), "{said:?}");
    for page in ["leaseway.1", "leaseway-config-rollback.1", "leaseway-man.1"] {
        assert!(directory.join(page).exists(), "{page}");
    }
    let page = fs::read_to_string(directory.join("leaseway-serve.1")).unwrap();
    assert!(page.contains(".TH") && page.contains("LEASEWAY_LISTEN"), "{page}");
}

#[test]
fn three_commands_make_certificates_and_say_which_file_goes_where() {
    use std::os::unix::fs::PermissionsExt as _;
    let temporary = tempfile::tempdir().unwrap();
    let directory = temporary.path().join("set");
    let certs = |words: &[&str]| {
        let said = leaseway(&[&["certs"], words, &["--dir", directory.to_str().unwrap()]].concat());
        assert_eq!(said.code, Some(0), "{said:?}");
        said.stdout
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
    let said = server.cli(&[&["get", "alice", "mysql", "40"][..], &tls].concat());
    assert!(said.code == Some(0) && said.stdout.contains("alice may use 40"), "{said:?}");
}
