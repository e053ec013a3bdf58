//! `leaseway config …` and `leaseway peers …` against real peers.

use serde_json::Value;

use crate::harness::{
    config::{self, ConfigFile, Template},
    peers::Peers,
    process::{Output, Process, leaseway},
};

fn fair(capacity: f64) -> ConfigFile {
    ConfigFile::of(&[Template::fair("*", capacity)])
}

fn one_peer(flags: &[&str]) -> Peers {
    Peers::start(1, fair(500.0), flags)
}

fn json(output: &Output) -> Value {
    serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

#[test]
fn a_configuration_is_applied_and_rolled_back() {
    let peers = one_peer(&[]);
    let (first, second) = (fair(500.0), fair(400.0));
    let difference = "*: capacity 500 → 400\n";
    assert_eq!(peers.operated(0, &["config", "diff", second.path()]), difference);
    let output = peers.operate(0, &["config", "diff", second.path(), "--exit-code", "--json"]);
    assert_eq!(output.code, Some(1));
    assert_eq!((&json(&output)["version"], &json(&output)["differences"][0]["field"]), (&1.into(), &"capacity".into()));
    let unconfirmed = peers.operate(0, &["config", "apply", second.path()]);
    assert!(unconfirmed.code == Some(2) && unconfirmed.stderr.contains("--yes"), "{unconfirmed:?}");
    assert_eq!(peers.operated(0, &["config", "diff", second.path()]), difference, "nothing has changed");
    let applied = peers.operated(0, &["config", "apply", second.path(), "--yes"]);
    assert!(applied.starts_with(difference) && applied.ends_with("version 2 is in force\n"), "{applied}");
    let again = peers.operated(0, &["config", "apply", second.path(), "--yes"]);
    assert_eq!(again, "version 2 already has this text; nothing has changed\n");
    let back = peers.operated(0, &["config", "rollback", "1", "--yes"]);
    assert_eq!(back, "*: capacity 400 → 500\nversion 3 is in force\n");
    assert_eq!(peers.operated(0, &["config", "diff", first.path(), "--exit-code"]), "no difference\n");
    let shown = peers.operate(0, &["config", "show"]);
    assert_eq!(shown.stdout, config::text(&[Template::fair("*", 500.0)]));
    assert!(shown.stderr.starts_with("# version 3 from rollback to version 1, applied 2"), "{shown:?}");
    let history = peers.operated(0, &["config", "history"]);
    let versions: Vec<_> = history.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(versions, ["VERSION", "1", "2", "3*"]);
}

#[test]
fn concurrent_changes_of_the_configuration_are_not_overwritten() {
    let peers = one_peer(&[]);
    peers.operated(0, &["config", "apply", fair(2.0).path(), "--yes"]);
    let output = peers.operate(0, &["config", "apply", fair(3.0).path(), "--expect", "1", "--yes"]);
    assert_eq!(output.code, Some(1));
    assert!(output.stderr.contains("version 2 is in force"), "{output:?}");
    peers.operated(0, &["config", "apply", fair(3.0).path(), "--expect", "2", "--yes"]);

    let wrong = ConfigFile::new("resources:\n- {identifier_glob: a, capacity: -1}\n- {identifier_glob: b}\n");
    for command in ["apply", "diff", "plan"] {
        let output = peers.operate(0, &["config", command, wrong.path()]);
        assert_eq!(output.code, Some(78), "{output:?}");
        assert!(
            output.stderr.contains(":2:34: ") && output.stderr.contains(":3:21: "),
            "both mistakes are reported: {output:?}"
        );
    }
}

#[test]
fn wrong_admin_tokens_and_unreachable_servers_have_different_errors() {
    let (right, wrong) = (ConfigFile::new("open sesame\n"), ConfigFile::new("sesame"));
    let peers = one_peer(&["--admin-token-file", right.path()]);
    peers.operated(0, &["peers", "list", "--admin-token-file", right.path()]);
    for arguments in [&["peers", "list"][..], &["peers", "list", "--admin-token-file", wrong.path()]] {
        let output = peers.operate(0, arguments);
        assert_eq!(output.code, Some(77), "{output:?}");
        assert!(output.stderr.contains("--admin-token-file"), "{output:?}");
    }
    let admin = peers.admin(0).to_string();
    let variables = [("LEASEWAY_ADMIN", admin.as_str()), ("LEASEWAY_ADMIN_TOKEN_FILE", right.path())];
    assert_eq!(Process::start(&["peers", "list"], &variables).finish().code, Some(0));
    let nothing = leaseway(&["peers", "list", "--admin", "127.0.0.1:1"]);
    assert_eq!(nothing.code, Some(69));
    assert!(nothing.stderr.contains("127.0.0.1:1") && nothing.stderr.contains("--data"), "{nothing:?}");
}
