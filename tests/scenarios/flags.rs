//! Every flag can be given as a variable, and a flag on the command line wins.

use tonic::Code;

use crate::harness::{
    config::{ConfigFile, Template},
    doorman::{assert_left_out, assert_refused, entry, node_request, request},
    process::{Process, leaseway},
    server::{ANYWHERE, Server, addresses_of_its_own},
};

#[test]
fn help_names_the_variable_of_every_flag() {
    for command in ["serve", "get", "release", "status"] {
        let help = leaseway(&[command, "--help"]).stdout;
        let unwrapped = help.split_whitespace().collect::<Vec<_>>().join(" ");
        // Only flags that ask this or that of a server have no variable: they differ from call to call.
        let own = ["--all", "--help", "--here", "--json", "--priority", "--rows"];
        let flags = help.lines().map(str::trim_start).filter(|line| line.starts_with("--") || line.starts_with("-h"));
        let flags = flags.map(|line| line.trim_start_matches("-h, ").split([' ', '=', '[']).next().unwrap());
        let mut found = 0;
        for flag in flags.filter(|flag| !own.contains(flag)) {
            let variable = format!("LEASEWAY_{}", flag.trim_start_matches('-').replace('-', "_").to_uppercase());
            assert!(unwrapped.contains(&format!("[env: {variable}=")), "{command}: {flag} without {variable}: {help}");
            found += 1;
        }
        assert!(found >= 2, "{command}: {help}");
    }
}

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
fn a_flag_wins_over_its_variable() {
    let [listen, http] = addresses_of_its_own();
    let config = ConfigFile::of(&[Template::fair("*", 77.0)]);
    let variables = [
        ("LEASEWAY_LISTEN", "127.0.0.1:1"),
        ("LEASEWAY_HTTP", "127.0.0.1:1"),
        ("LEASEWAY_CONFIG", "/no/such/file"),
        ("LEASEWAY_ID", "by variable"),
        ("LEASEWAY_MAX_RESOURCES", "0"),
    ];
    let flags =
        ["--listen", &listen, "--http", &http, "--config", config.path(), "--id", "by flag", "--max-resources", "1"];
    let server = Server::start(&flags, &variables);
    assert_eq!((server.grpc().to_string(), server.http().to_string()), (listen, http));
    assert_eq!(server.status(&[])["server_id"], "by flag");
    server.doorman().get(request("alice", vec![entry("mysql", 1.0)])).unwrap();
}

#[test]
fn limits_agree_with_their_variables() {
    for by_variable in [false, true] {
        let limits = [
            ("max-resources", "2"),
            ("max-clients-per-resource", "2"),
            ("max-clients", "3"),
            ("max-resources-per-request", "2"),
            ("max-bands", "2"),
            ("max-id-bytes", "10"),
            ("max-message-bytes", "500"),
        ];
        let written = limits.map(|(name, value)| match by_variable {
            true => (format!("LEASEWAY_{}", name.replace('-', "_").to_uppercase()), value),
            false => (format!("--{name}"), value),
        });
        let written: Vec<(&str, &str)> = written.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let anywhere = ["--listen", ANYWHERE, "--http", ANYWHERE];
        let server = if by_variable {
            Server::start(&anywhere, &written)
        } else {
            let flags: Vec<&str> = written.iter().flat_map(|(name, value)| [*name, *value]).collect();
            Server::start(&[&anywhere[..], &flags].concat(), &[])
        };
        let doorman = server.doorman();
        let get = |client: &str, resources: &[&str]| {
            doorman.get(request(client, resources.iter().map(|resource| entry(resource, 1.0)).collect()))
        };
        get("1", &["a", "b"]).unwrap();
        assert_left_out(get("1", &["c"]), "too_many_resources", &["--max-resources"]);
        let problems = get("1", &["a", "a", "a"]).unwrap().problem;
        assert_eq!(problems[0].reason(), "too_many_in_request");
        get("2", &["a"]).unwrap();
        assert_left_out(get("3", &["a"]), "too_many_clients", &["--max-clients-per-resource"]);
        assert_left_out(get("2", &["b"]), "too_many_clients", &["--max-clients"]);
        assert_refused(get("12345678901", &["a"]), Code::InvalidArgument, &["at most 10"]);
        let answer = doorman.get_server(node_request("n", "a", &[(1, 1.0); 3]));
        assert_left_out(answer, "too_many_bands", &["--max-bands"]);
        assert_refused(get("1", &["a"; 100]), Code::OutOfRange, &["500"]);
    }
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
