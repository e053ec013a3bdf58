//! Environment variables of flags, and invalid command lines.

use crate::harness::{
    config::{ConfigFile, Template},
    process::{Process, leaseway},
    server::{ANYWHERE, Server, addresses_of_its_own, free_addresses},
};

#[test]
fn environment_variables_set_addresses_and_names() {
    let [listen, http] = addresses_of_its_own();
    let config = ConfigFile::of(&[Template::fair("*", 77.0)]);
    let variables = [
        ("LEASEWAY_LISTEN", listen.as_str()),
        ("LEASEWAY_HTTP", http.as_str()),
        ("LEASEWAY_CONFIG", config.path()),
        ("LEASEWAY_ID", "by variable"),
        ("LEASEWAY_ADVERTISE", "example.test:5100"),
        ("LEASEWAY_THREADS", "1"),
        ("LEASEWAY_LOG", "error"),
    ];
    let server = Server::start(&[], &variables);
    assert_eq!((server.grpc().to_string(), server.http().to_string()), (listen, http));
    let status = server.status(&[]);
    assert_eq!(status["config"]["source"], config.path());
    assert_eq!((&status["server_id"], &status["master_address"]), (&"by variable".into(), &"example.test:5100".into()));
    let mastership = server.doorman().discovery().mastership.unwrap();
    assert_eq!(mastership.master_address.as_deref(), Some("example.test:5100"));
    assert_eq!(server.log(), "", "only errors are logged");
}

#[test]
fn clients_find_the_server_by_an_environment_variable() {
    let address = Server::shared().grpc().to_string();
    let ask = |flags: &[&str], server: &str| {
        let arguments = [&["get", "alice", "by variable", "1"], flags].concat();
        Process::start(&arguments, &[("LEASEWAY_SERVER", server), ("LEASEWAY_TIMEOUT", "10")]).finish()
    };
    assert_eq!(ask(&[], &address).code, Some(0));
    assert_eq!(ask(&["--server", &address], "127.0.0.1:1").code, Some(0), "the flag overrides the variable");
    assert_eq!(ask(&[], "127.0.0.1:1").code, Some(69));
}

/// Asserts that the server refuses these flags with this exit code and message.
#[track_caller]
fn refused(flags: &[&str], code: i32, says: &str) {
    let output = leaseway(&[&["serve"], flags].concat());
    assert!(output.code == Some(code) && output.stdout.is_empty(), "{flags:?}: {output:?}");
    assert!(output.stderr.contains(says), "`{says}` is not in {}", output.stderr);
}

#[test]
fn invalid_flags_are_refused_before_anything_starts() {
    let peers = |list: &'static str| ["--data", "/nowhere/at/all", "--id", "a", "--peers", list];
    for (flags, says) in [
        (&["--log", "info,openraft=verbose"][..], "unknown log level `verbose`"),
        (&["--clock-rate", "nan"], "expected a number from 0.01 to 100"),
        (&["--clock-offset-ms", "-9223372036854775808"], "a hundred years"),
        (&["--advertise", "0.0.0.0:5100"], "wildcard address"),
        (&["--threads", "5000"], "5000 is not in 1..=1024"),
        (&["--max-resources", "0"], "0 is not in"),
        (&["--max-message-bytes", "99999999999999"], "is not in 64..="),
        (&["--listen", "0.0.0.0:5901", "--http", "127.0.0.1:5901"], "--listen and --http use the same address"),
        (&["--listen", "127.0.0.1:5160", "--data", "/nowhere/at/all"], "--listen and --admin use the same address"),
        (&peers("a=127.0.0.1:5901,b=127.0.0.1:5901"), "a and b have the same address, 127.0.0.1:5901"),
        (&peers("a=127.0.0.1:5901,b=127.0.0.1"), "the port is missing"),
        (
            &peers("a=127.0.0.1:5100,b=127.0.0.1:5902"),
            "--listen and this peer's address in --peers use the same address",
        ),
    ] {
        refused(flags, 2, says);
    }
    let everywhere = [&["--listen", "0.0.0.0:5901"], &peers("a=127.0.0.1:5902,b=127.0.0.1:5903")[..]].concat();
    refused(&everywhere, 2, "with --advertise HOST:PORT");
}

#[test]
fn impossible_starts_are_refused_with_a_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let data = data.to_str().unwrap();
    let [peer, other, listen] = free_addresses(3)[..] else { unreachable!("three addresses were requested") };
    let (named, listen) = (format!("a={peer},b={other}"), listen.to_string());
    let templates = ConfigFile::of(&[Template::fair("*", 100.0)]);
    let own = ["--data", data, "--admin", ANYWHERE];
    for (flags, says) in [
        (&["--id", "c", "--peers", &named][..], "--id c is not among --peers (a, b)"),
        (&["--id", "a", "--peers", &named, "--peer-listen", "0.0.0.0:0"], "secret"),
        (&["--admin", "0.0.0.0:0"], "--admin-token-file"),
        (&["--timing", "100,50,20"], "two heartbeats"),
        (&["--parent", "127.0.0.1:1", "--config", templates.path()], "takes its templates from the parent"),
        (&["--parent", &listen], "cannot be its own parent"),
        (&["--node", "leaf"], "--parent"),
        (&["--parent", "127.0.0.1:1", "--id", "b", "--peers", &named], "--node NAME"),
    ] {
        let own = if flags[0] == "--admin" { &own[..2] } else { &own };
        let output = leaseway(&[&["serve", "--listen", &listen, "--http", ANYWHERE], own, flags].concat());
        assert!(output.code != Some(0) && output.stderr.contains(says), "{flags:?}: {output:?}");
    }
    let output = leaseway(&["serve", "--listen", ANYWHERE, "--http", ANYWHERE, "--peers", &named]);
    assert!(output.code != Some(0) && output.stderr.contains("--data"), "{output:?}");
}
