//! Load against the ceiling, both in this process. That it works, not how fast.

use std::net::{Ipv4Addr, TcpListener};

use clap::Parser;

use crate::{
    Cli, Command,
    ceiling::{Ceiling, Runtime},
    load::{self, Options},
    signal::Interrupt,
};

/// What the command line would make of it, so that defaults are tested as well.
fn common(flags: &str) -> load::Common {
    let line = format!("leaseway-bench load --target 127.0.0.1:1 {flags}");
    match Cli::try_parse_from(line.split_ascii_whitespace()).unwrap().command {
        Command::Load(args) => args.common,
        _ => unreachable!("the line says load"),
    }
}

#[test]
fn load_is_answered_by_the_ceiling_on_either_runtime() {
    for runtime in [Runtime::CurrentThread, Runtime::MultiThread] {
        let ceiling = Ceiling::start((Ipv4Addr::LOCALHOST, 0).into(), runtime, 2).unwrap();
        let common = common("--warmup 0.1 --seconds 0.3 --resources 5 --resources-per-request 2 --threads 2");
        let options = Options {
            target: ceiling.address(),
            clients: 100,
            connections: 3,
            in_flight: 4,
            server_pid: Some(std::process::id()),
            common: &common,
        };
        load::find_master(options.target).unwrap();
        let mut observed = 0;
        let measured = load::run(&options, &Interrupt::default(), |live| observed = live.requests).unwrap();

        assert!(measured.requests > 0 && measured.errors.is_empty(), "{measured:?}");
        assert_eq!((measured.granted, measured.ignored), (2 * measured.requests, 0));
        assert!(measured.seconds >= 0.3 && measured.latency_ms.p50 <= measured.latency_ms.max);
        assert!(observed > 0 && measured.server.is_some() && measured.generator.threads == 2);
    }
}

#[test]
fn nobody_there_is_said_plainly() {
    let ceiling = Ceiling::start((Ipv4Addr::LOCALHOST, 0).into(), Runtime::CurrentThread, 1).unwrap();
    let target = ceiling.address();
    drop(ceiling);
    let error = load::find_master(target).unwrap_err().to_string();
    assert_eq!(error, format!("cannot reach {target}: connection refused — is the server running?"));
}

#[test]
fn errors_are_counted_while_a_server_is_away() {
    let ceiling = Ceiling::start((Ipv4Addr::LOCALHOST, 0).into(), Runtime::CurrentThread, 1).unwrap();
    let target = ceiling.address();
    drop(ceiling);
    let common = common("--warmup 0 --seconds 0.3");
    let options = Options { target, clients: 10, connections: 1, in_flight: 4, server_pid: None, common: &common };
    let measured = load::run(&options, &Interrupt::default(), |_| {}).unwrap();
    assert!(measured.errors.keys().eq(["cannot connect"]), "{:?}", measured.errors);
    // It pauses between attempts.
    assert!((1..=4).contains(&measured.error_count()) && measured.requests == measured.error_count(), "{measured:?}");
}

#[test]
fn a_server_that_never_answers_cannot_prolong_a_run() {
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let target = silent.local_addr().unwrap();
    let common = common("--warmup 0 --seconds 0.2");
    let options = Options { target, clients: 10, connections: 2, in_flight: 4, server_pid: None, common: &common };
    let measured = load::run(&options, &Interrupt::default(), |_| {}).unwrap();
    assert_eq!(measured.requests, 0);
    assert!(measured.lines().contains(&"nothing was answered".into()));
}
