//! `leaseway config …` and `leaseway peers …`, against fake admin services.

use crate::harness::{
    config::{self, ConfigFile, Template},
    fake_admin::{FakeAdmin, FakeRole},
    process::{Process, Said, leaseway},
    server::Server,
};

fn ask(peer: &FakeAdmin, arguments: &[&str]) -> Said {
    leaseway(&[arguments, &["--admin", &peer.address()]].concat())
}

/// What it prints when all is well.
fn asked(peer: &FakeAdmin, arguments: &[&str]) -> String {
    let said = ask(peer, arguments);
    assert_eq!(said.code, Some(0), "{said:?}");
    said.stdout
}

fn fair(capacity: f64) -> ConfigFile {
    ConfigFile::of(&[Template::fair("*", capacity)])
}

#[test]
fn a_file_is_put_in_force_through_any_peer_and_can_be_taken_back() {
    let master = FakeAdmin::new(FakeRole::Master);
    let follower = master.follower();
    let (first, second) = (fair(500.0), fair(400.0));
    let applied = asked(&follower, &["config", "apply", first.path()]);
    assert!(applied.starts_with("*: new, with capacity 500, algorithm FAIR_SHARE"), "{applied}");
    assert!(applied.ends_with("version 1 is in force\n"), "{applied}");
    let expected = "*: capacity 500 → 400\n";
    assert_eq!(asked(&follower, &["config", "diff", second.path()]), expected);
    let said = ask(&master, &["config", "apply", second.path()]);
    assert_eq!((said.stdout, said.code), (format!("{expected}version 2 is in force\n"), Some(0)));
    assert!(said.stderr.contains("warning: a warning of the server"), "{}", said.stderr);
    assert_eq!(
        asked(&master, &["config", "apply", second.path()]),
        "version 2 is this text already; nothing has changed\n"
    );
    assert_eq!(asked(&follower, &["config", "rollback", "1"]), "*: capacity 400 → 500\nversion 3 is in force\n");
    assert_eq!(master.sources(), [first.path(), second.path(), "rollback to version 1"]);
    assert_eq!(asked(&follower, &["config", "diff", first.path(), "--exit-code"]), "no difference\n");
    let shown = ask(&follower, &["config", "show"]);
    assert_eq!(shown.stdout, config::text(&[Template::fair("*", 500.0)]));
    assert_eq!(shown.stderr, "# version 3 from rollback to version 1, applied 2023-11-14T22:13:20Z\n");
    let history = asked(&follower, &["config", "history"]);
    let versions: Vec<_> = history.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(versions, ["VERSION", "1", "2", "3*"]);
}

#[test]
fn what_others_have_changed_meanwhile_is_not_overwritten() {
    let master = FakeAdmin::new(FakeRole::Master);
    for capacity in [1.0, 2.0] {
        asked(&master, &["config", "apply", fair(capacity).path()]);
    }
    let said = ask(&master, &["config", "apply", fair(3.0).path(), "--expect", "1"]);
    assert_eq!(said.code, Some(1));
    assert!(said.stderr.contains("version 2 is in force"), "{said:?}");
    asked(&master, &["config", "apply", fair(3.0).path(), "--expect", "2"]);
}

#[test]
fn a_file_with_mistakes_is_not_sent_and_what_only_the_server_minds_is_shown() {
    let master = FakeAdmin::new(FakeRole::Master);
    let wrong = ConfigFile::new("resources:\n- {identifier_glob: a, capacity: -1}\n- {identifier_glob: b}\n");
    for command in ["apply", "diff"] {
        let said = ask(&master, &["config", command, wrong.path()]);
        assert_eq!(said.code, Some(78), "{said:?}");
        assert!(said.stderr.contains(":2:34: ") && said.stderr.contains(":3:21: "), "every mistake: {said:?}");
    }
    let minded = ConfigFile::new(&format!("{}# only this server minds", config::text(&[Template::fair("*", 1.0)])));
    let said = ask(&master, &["config", "apply", minded.path()]);
    assert_eq!(said.code, Some(78));
    assert!(said.stderr.contains(&format!("{}:1:1: minded", minded.path())), "{said:?}");
    assert_eq!(master.sources(), [""; 0]);
}

#[test]
fn differences_can_be_an_exit_code_and_json() {
    let master = FakeAdmin::new(FakeRole::Master);
    asked(&master, &["config", "apply", fair(1.0).path()]);
    let other = fair(2.0);
    assert_eq!(ask(&master, &["config", "diff", other.path()]).code, Some(0));
    let said = ask(&master, &["config", "diff", other.path(), "--exit-code", "--json"]);
    assert_eq!(said.code, Some(1));
    let json: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!((&json["version"], &json["differences"][0]["field"]), (&1.into(), &"capacity".into()));
}

#[test]
fn peers_come_and_go() {
    let master = FakeAdmin::new(FakeRole::Master);
    let follower = master.follower();
    asked(&follower, &["peers", "add", "a", "10.0.0.1:5120"]);
    let refused = ask(&follower, &["peers", "add", "b", "10.0.0.2:1"]);
    let command =
        "leaseway serve --id b --data ./leaseway-data/b --peers a=10.0.0.1:5120,b=10.0.0.2:1 --listen 10.0.0.2:5100";
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains(command) && refused.stderr.contains("does not answer"), "{refused:?}");
    asked(&follower, &["peers", "add", "b", "10.0.0.2:5120"]);
    let list = asked(&follower, &["peers", "list"]);
    assert!(list.contains("no master at the moment") && list.contains("10.0.0.2:5120"), "{list}");
    let json: serde_json::Value = serde_json::from_str(&asked(&master, &["peers", "list", "--json"])).unwrap();
    assert_eq!((&json["peers"][1]["name"], &json["peers"][1]["role"]), (&"b".into(), &"learner".into()));
    asked(&follower, &["peers", "remove", "b"]);
    let said = ask(&follower, &["peers", "remove", "a"]);
    assert_eq!(said.code, Some(1));
    assert!(said.stderr.contains("the rest would be no majority"), "{said:?}");
}

#[test]
fn a_token_is_sent_and_a_wrong_one_is_told_from_a_missing_server() {
    let guarded = FakeAdmin::with_token("open sesame");
    let (right, wrong) = (ConfigFile::new("open sesame\n"), ConfigFile::new("sesame"));
    asked(&guarded, &["peers", "list", "--admin-token-file", right.path()]);
    for arguments in [&["peers", "list"][..], &["peers", "list", "--admin-token-file", wrong.path()]] {
        let said = ask(&guarded, arguments);
        assert_eq!(said.code, Some(77), "{said:?}");
        assert!(said.stderr.contains("--admin-token-file"), "{said:?}");
    }
    let variables = [("LEASEWAY_ADMIN", guarded.address()), ("LEASEWAY_ADMIN_TOKEN_FILE", right.path().to_owned())];
    let variables = variables.each_ref().map(|(name, value)| (*name, value.as_str()));
    assert_eq!(Process::start(&["peers", "list"], &variables).finish().code, Some(0));
}

#[test]
fn errors_of_a_peer_that_cannot_help_say_what_to_do_next() {
    let without_master = FakeAdmin::new(FakeRole::NoMaster);
    let said = ask(&without_master, &["peers", "remove", "a"]);
    assert_eq!(said.code, Some(69));
    assert!(said.stderr.contains("no master at the moment") && said.stderr.contains("peers list"), "{said:?}");

    let nothing = leaseway(&["peers", "list", "--admin", "127.0.0.1:1"]);
    assert_eq!(nothing.code, Some(69));
    assert!(nothing.stderr.contains("127.0.0.1:1") && nothing.stderr.contains("--data"), "{nothing:?}");

    let server = Server::development();
    let elsewhere = leaseway(&["config", "show", "--admin", &server.grpc().to_string()]);
    assert_eq!(elsewhere.code, Some(69));
    assert!(
        elsewhere.stderr.contains("is the --listen port") && elsewhere.stderr.contains("without --data"),
        "{elsewhere:?}"
    );
}

#[test]
fn peers_that_name_each_other_are_not_followed_for_ever() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let one = FakeAdmin::new(FakeRole::FollowerOf(address));
    let said = ask(&one, &["peers", "remove", "a"]);
    assert_eq!(said.code, Some(69), "it names one that is not there: {said:?}");
    let mut chain = FakeAdmin::new(FakeRole::Master);
    for _ in 0..6 {
        chain = chain.follower();
    }
    let said = ask(&chain, &["peers", "remove", "a"]);
    assert_eq!(said.code, Some(69), "{said:?}");
    assert!(said.stderr.contains("followed 5 redirects"), "{said:?}");
}
