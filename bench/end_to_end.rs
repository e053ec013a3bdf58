//! Load against the ceiling, both in this process. That it works, not how fast.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    thread,
    time::Duration,
};

use clap::{Parser, ValueEnum};
use tonic::transport::{Identity, ServerTlsConfig};

use self::servers::OddServer;
use crate::{
    Cli, Command,
    ceiling::{Ceiling, Runtime},
    error::Error,
    load::{self, Counts, Crowd, Dialer, Measurement, Options},
    signal::Interrupt,
};

mod servers;

/// What the command line would make of it, so that defaults are tested as well.
fn common(flags: &str) -> load::Common {
    let line = format!("leaseway-bench load --target 127.0.0.1:1 {flags}");
    match Cli::try_parse_from(line.split_ascii_whitespace()).unwrap().command {
        Command::Load(args) => args.common,
        _ => unreachable!("the line says load"),
    }
}

fn start(runtime: Runtime) -> Ceiling {
    Ceiling::start((Ipv4Addr::LOCALHOST, 0).into(), runtime, 2, None).unwrap()
}

fn options(target: SocketAddr, common: &load::Common) -> Options<'_> {
    Options {
        targets: vec![target],
        clients: 100,
        resources: 5,
        connections: 3,
        in_flight: 4,
        server_pid: None,
        dialer: Dialer::default(),
        common,
    }
}

fn measure(options: &Options<'_>) -> Measurement {
    load::run(options, &mut Crowd::new(options), &Interrupt::default(), |_, _| {}).unwrap()
}

#[test]
fn load_is_answered_by_the_ceiling_on_any_runtime() {
    for &runtime in Runtime::value_variants() {
        let ceiling = start(runtime);
        let common = common("--warmup 0.1 --seconds 0.6 --resources-per-request 2 --threads 2");
        let options = Options { server_pid: Some(std::process::id()), ..options(ceiling.address(), &common) };
        load::find_master(ceiling.address(), &Dialer::default()).unwrap();
        let mut observed = String::new();
        let mut crowd = Crowd::new(&options);
        let measured = load::run(&options, &mut crowd, &Interrupt::default(), |_, live| {
            observed = live.text().to_owned();
        });
        let measured = measured.unwrap();

        assert!(measured.requests > 0 && measured.counts.errors.is_empty(), "{measured:?}");
        assert_eq!((measured.counts.granted, measured.counts.ignored), (2 * measured.requests, 0));
        assert!(measured.seconds >= 0.6 && measured.latency_ms.p50 <= measured.latency_ms.max);
        assert!(measured.server.is_some() && measured.generator.threads == 2 && measured.schedule.is_none());
        assert!(observed.contains("requests/s"), "{observed}");
    }
}

#[test]
fn load_is_answered_over_tls_as_tonic_serves_it() {
    let directory = tempfile::tempdir().unwrap();
    let files = ["right.pem", "wrong.pem"].map(|name| directory.path().join(name));
    let [right, wrong] = files.each_ref().map(|file| {
        let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        fs::write(file, certified.cert.pem()).unwrap();
        certified
    });
    drop(wrong);
    let dialer = |flags: &load::Common| Dialer::new(flags.tls.client().unwrap());
    let [right_flags, wrong_flags] =
        files.each_ref().map(|file| common(&format!("--warmup 0.1 --seconds 0.6 --tls-ca {}", file.display())));
    for &runtime in Runtime::value_variants() {
        let identity = Identity::from_pem(right.cert.pem(), right.signing_key.serialize_pem());
        let tls = Some(ServerTlsConfig::new().identity(identity));
        let ceiling = Ceiling::start((Ipv4Addr::LOCALHOST, 0).into(), runtime, 2, tls).unwrap();
        load::find_master(ceiling.address(), &dialer(&right_flags)).unwrap();
        let error = load::find_master(ceiling.address(), &dialer(&wrong_flags)).unwrap_err().to_string();
        assert!(error.contains("not issued by a CA that is trusted here"), "{error}");
        let options = Options { dialer: dialer(&right_flags), ..options(ceiling.address(), &right_flags) };
        let measured = measure(&options);
        assert!(measured.requests > 0 && measured.counts.errors.is_empty(), "{measured:?}");
    }
}

#[test]
fn threads_may_share_a_port_and_only_those_that_said_so() {
    let first = start(Runtime::ReusePort);
    assert!(Ceiling::start(first.address(), Runtime::ReusePort, 1, None).is_ok());
    assert!(Ceiling::start(first.address(), Runtime::CurrentThread, 1, None).is_err());
}

#[test]
fn an_open_loop_keeps_its_schedule() {
    let ceiling = start(Runtime::CurrentThread);
    let common = common("--warmup 0.1 --seconds 0.5 --rate 400 --threads 2");
    let measured = measure(&options(ceiling.address(), &common));
    let kept = measured.schedule.unwrap();
    // Seconds are what they turned out to be; each of two threads may have one more or less than its share.
    assert!((kept.due as f64 - measured.seconds * 400.0).abs() <= 4.0, "{kept:?} in {} s", measured.seconds);
    assert!(measured.requests > 0 && measured.requests <= kept.due + 100, "{} of {kept:?}", measured.requests);
}

#[test]
fn requests_that_a_slow_server_lets_wait_count_from_when_they_were_due() {
    let slow = OddServer::slow(Duration::from_millis(50));
    // One at a time makes twenty in a second: of the hundred that are due, each has waited longer than the one before.
    let common = common("--warmup 0 --seconds 1 --rate 100");
    let options = Options { connections: 1, in_flight: 1, ..options(slow.address, &common) };
    let measured = measure(&options);
    assert!(measured.latency_ms.max >= 500.0, "{:?}", measured.latency_ms.max);
    let kept = measured.schedule.as_ref().unwrap();
    assert!(kept.begun * 3 < kept.due && kept.late_max_ms > 400.0, "{kept:?}");
    assert!(measured.doubts(None).iter().any(|doubt| doubt.contains("the schedule was not kept")));
    // A closed loop asks less, and notices nothing.
    let common = self::common("--warmup 0 --seconds 0.5");
    let measured = measure(&Options { connections: 1, in_flight: 1, ..self::options(slow.address, &common) });
    assert!(measured.latency_ms.p50 < 500.0, "{:?}", measured.latency_ms.p50);
}

#[test]
fn requests_that_wait_until_the_end_are_said() {
    const DOUBT: &str = "at the end a request had waited";
    let doubted = |measured: &Measurement| measured.doubts(None).iter().any(|doubt| doubt.starts_with(DOUBT));
    for flags in ["--warmup 0 --seconds 1 --rate 100", "--warmup 0 --seconds 1"] {
        let (hanging, common) = (OddServer::hanging(30), common(flags));
        let measured = measure(&options(hanging.address, &common));
        // Thirty of a hundred are answered in the first third; the next one then waits for the rest of the time.
        assert!(measured.requests == 30 && measured.unanswered_ms > 300.0, "{flags}: {}", measured.unanswered_ms);
        assert!(doubted(&measured), "{flags}");
        // With one in flight all others are waiting for it.
        let measured = measure(&Options { connections: 1, in_flight: 1, ..options(hanging.address, &common) });
        assert!(measured.requests == 0 && measured.unanswered_ms > 900.0 && doubted(&measured), "{flags}");
    }
}

#[test]
fn a_connection_that_breaks_fails_what_was_under_way_and_no_more() {
    let ceiling = start(Runtime::CurrentThread);
    let common = common("--warmup 0 --seconds 1.5 --rate 200");
    let options = Options { connections: 1, in_flight: 100, ..options(ceiling.address(), &common) };
    let end = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        drop(ceiling);
    });
    let measured = measure(&options);
    end.join().unwrap();
    // A hundred lanes would each have found out by a request of their own: more than that many were due afterwards.
    let lost = measured.counts.errors.get("connection lost").copied().unwrap_or_default();
    assert!(
        measured.counts.granted > 0 && lost < 50 && measured.counts.errors.contains_key("cannot connect"),
        "{measured:?}"
    );
}

#[test]
fn all_clients_have_a_lease_before_it_begins_and_keep_it_for_the_next_run() {
    let ceiling = start(Runtime::CurrentThread);
    let common = common("--warmup 0 --seconds 0.1 --threads 2 --fill --rate 10 --churn 20");
    let options =
        Options { clients: 1000, server_pid: Some(std::process::id()), ..options(ceiling.address(), &common) };
    let mut crowd = Crowd::new(&options);
    let mut most = 0;
    crowd.fill(&options, &Interrupt::default(), |live| most = live.leased()).unwrap();
    let filled = crowd.filled.unwrap();
    assert!(filled.clients == 1000 && most <= 1000, "{filled:?}");
    for _ in 0..2 {
        let measured = load::run(&options, &mut crowd, &Interrupt::default(), |_, _| {}).unwrap();
        // One that has just come may be without.
        assert!(measured.leased > 950 && measured.requests < 50, "{measured:?}");
    }
}

#[test]
fn clients_leave_and_others_come() {
    let ceiling = start(Runtime::CurrentThread);
    let common = common("--warmup 0.1 --seconds 0.3 --churn 50");
    let measured = measure(&Options { clients: 5, connections: 1, ..options(ceiling.address(), &common) });
    let (requests, Counts { newcomers, releases, .. }) = (measured.requests, measured.counts.clone());
    assert!(measured.counts.errors.is_empty() && newcomers > 0 && newcomers < requests, "{measured:?}");
    assert!(releases > 0 && releases < newcomers, "{releases} of {newcomers}");
    assert!(measured.lines().iter().any(|line| line.contains("gave back what they had")));
}

#[test]
fn a_server_that_names_the_master_is_left_for_it() {
    let ceiling = start(Runtime::CurrentThread);
    let elsewhere = OddServer::elsewhere(Some(ceiling.address()));
    assert_eq!(load::follow_to_master(&[elsewhere.address], &Dialer::default()).unwrap(), ceiling.address());
    let error = load::find_master(elsewhere.address, &Dialer::default()).unwrap_err().to_string();
    assert!(error.ends_with(&format!("is not the master; {} is", ceiling.address())), "{error}");

    // It was the master when the load began, as far as this load knows.
    let common = common("--warmup 0 --seconds 0.6");
    let options = options(elsewhere.address, &common);
    let measured = measure(&options);
    assert!(measured.counts.granted > 0, "{measured:?}");
    // Not so if it is this server's time that is measured.
    let measured = measure(&Options { server_pid: Some(std::process::id()), ..options });
    assert!(measured.counts.granted == 0 && measured.counts.error_count() > 0, "{measured:?}");
}

#[test]
fn a_circle_of_servers_is_not_followed_for_ever() {
    let elsewhere = OddServer::elsewhere(None);
    let error = load::follow_to_master(&[elsewhere.address], &Dialer::default()).unwrap_err();
    assert!(matches!(error, Error::NotMaster { .. }) && error.to_string().contains("named each other"), "{error}");
}

#[test]
fn another_server_that_was_named_is_asked_when_one_is_away() {
    let (away, ceiling) = (start(Runtime::CurrentThread), start(Runtime::CurrentThread));
    let targets = vec![away.address(), ceiling.address()];
    drop(away);
    assert_eq!(load::follow_to_master(&targets, &Dialer::default()).unwrap(), ceiling.address());
    let common = common("--warmup 0 --seconds 0.6");
    let measured = measure(&Options { targets, ..options(ceiling.address(), &common) });
    assert!(measured.counts.granted > 0, "{measured:?}");
}

#[test]
fn clients_that_get_no_lease_are_not_waited_for_for_ever() {
    let elsewhere = OddServer::elsewhere(None);
    let common = common("--fill");
    let options = Options { server_pid: Some(std::process::id()), ..options(elsewhere.address, &common) };
    let error = Crowd::new(&options).fill(&options, &Interrupt::default(), |_| {}).unwrap_err();
    assert!(matches!(error, Error::Unfilled { leased: 0, clients: 100, .. }), "{error}");
}

#[test]
fn a_server_that_is_not_there_is_said_plainly() {
    let ceiling = Ceiling::start((Ipv4Addr::LOCALHOST, 0).into(), Runtime::CurrentThread, 1, None).unwrap();
    let target = ceiling.address();
    drop(ceiling);
    let error = load::find_master(target, &Dialer::default()).unwrap_err().to_string();
    assert_eq!(error, format!("cannot reach {target}: connection refused — is the server running?"));
}

#[test]
fn errors_are_counted_while_a_server_is_away() {
    let ceiling = Ceiling::start((Ipv4Addr::LOCALHOST, 0).into(), Runtime::CurrentThread, 1, None).unwrap();
    let target = ceiling.address();
    drop(ceiling);
    let common = common("--warmup 0 --seconds 0.3");
    let measured = measure(&Options { connections: 1, ..options(target, &common) });
    assert!(measured.counts.errors.keys().eq(["cannot connect"]), "{:?}", measured.counts.errors);
    // It pauses between attempts.
    assert!(
        (1..=4).contains(&measured.counts.error_count()) && measured.requests == measured.counts.error_count(),
        "{measured:?}"
    );
}

#[test]
fn a_server_that_never_answers_cannot_prolong_a_run() {
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let target = silent.local_addr().unwrap();
    let common = common("--warmup 0 --seconds 0.2");
    let measured = measure(&options(target, &common));
    assert_eq!(measured.requests, 0);
    assert!(measured.lines().contains(&"nothing was answered: no errors".into()));
}
