//! Environment variables of flags, and command lines that are refused before anything is started.

use crate::harness::{
    config::{ConfigFile, Template},
    process::{Process, leaseway},
    server::{Server, addresses_of_its_own},
};

#[test]
fn addresses_and_names_can_be_given_by_variables() {
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
fn clients_are_told_by_a_variable_where_the_server_is() {
    let server = Server::development();
    let address = server.grpc().to_string();
    let ask = |flags: &[&str], server: &str| {
        let arguments = [&["get", "alice", "mysql", "1"], flags].concat();
        Process::start(&arguments, &[("LEASEWAY_SERVER", server), ("LEASEWAY_TIMEOUT", "10")]).finish()
    };
    assert_eq!(ask(&[], &address).code, Some(0));
    assert_eq!(ask(&["--server", &address], "127.0.0.1:1").code, Some(0), "the flag wins");
    assert_eq!(ask(&[], "127.0.0.1:1").code, Some(69));
}

#[test]
fn what_cannot_work_is_refused_in_words_before_anything_is_started() {
    let peers = |list: &'static str| ["--data", "/nowhere/at/all", "--id", "a", "--peers", list];
    for (flags, says) in [
        (&["--log", "wat"][..], "`wat` is no level"),
        (&["--log", "info,openraft=verbose"], "`verbose` is no level"),
        (&["--clock-rate", "0"], "expected a number from 0.01 to 100"),
        (&["--clock-rate", "-1"], "expected a number from 0.01 to 100"),
        (&["--clock-rate", "nan"], "expected a number from 0.01 to 100"),
        (&["--clock-offset-ms", "-9223372036854775808"], "a hundred years"),
        (&["--advertise", "nowhere"], "there is no port"),
        (&["--advertise", "https://a:1"], "TLS"),
        (&["--advertise", "0.0.0.0:5100"], "every address"),
        (&["--advertise", "a:99999"], "from 1 to 65535"),
        (&["--threads", "5000"], "5000 is not in 1..=1024"),
        (&["--threads", "0"], "0 is not in 1..=1024"),
        (&["--id", ""], "--id"),
        (&["--max-resources", "0"], "0 is not in"),
        (&["--max-clients", "0"], "0 is not in"),
        (&["--max-clients-per-resource", "0"], "0 is not in"),
        (&["--max-resources-per-request", "0"], "0 is not in"),
        (&["--max-connections", "0"], "0 is not in"),
        (&["--max-queue", "0"], "0 is not in"),
        (&["--max-bands", "0"], "0 is not in"),
        (&["--max-id-bytes", "0"], "0 is not in"),
        (&["--max-message-bytes", "0"], "0 is not in"),
        (&["--max-message-bytes", "99999999999999"], "is not in 64..="),
        (&["--idle-secs", "99999999999999999"], "is not in 0..="),
        (&["--listen", "127.0.0.1:5901", "--http", "127.0.0.1:5901"], "--listen and --http are the same port"),
        (&["--listen", "0.0.0.0:5901", "--http", "127.0.0.1:5901"], "--listen and --http are the same port"),
        (&["--listen", "127.0.0.1:5160", "--data", "/nowhere/at/all"], "--listen and --admin are the same port"),
        (&peers("a=127.0.0.1:5901,b=127.0.0.1:5901"), "a and b have the same address, 127.0.0.1:5901"),
        (&peers("a=127.0.0.1:5901,b=127.0.0.1"), "there is no port"),
        (&peers("a=127.0.0.1:5100,b=127.0.0.1:5902"), "--listen and this peer's address in --peers are the same port"),
    ] {
        let said = leaseway(&[&["serve"], flags].concat());
        assert!(said.code == Some(2) && said.stdout.is_empty(), "{flags:?}: {said:?}");
        assert!(said.stderr.contains(says), "`{says}` is not in {}", said.stderr);
    }
    let everywhere = [&["serve", "--listen", "0.0.0.0:5901"], &peers("a=127.0.0.1:5902,b=127.0.0.1:5903")[..]].concat();
    let said = leaseway(&everywhere);
    assert!(said.code == Some(2) && said.stderr.contains("with --advertise HOST:PORT"), "{said:?}");
}
