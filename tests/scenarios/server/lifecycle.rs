//! How servers start and stop.

use std::{os::unix::net::UnixDatagram, thread, time::Duration};

use leaseway_proto::doorman::GetCapacityRequest;
use rustix::process::Signal;
use tempfile::TempDir;
use tonic::{Code, Status};
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};

use crate::harness::{
    doorman::{entry, request},
    process::leaseway,
    server::{ANYWHERE, Server},
    wait::{block_on, eventually, runtime},
};

#[test]
fn a_second_server_on_the_same_port_is_refused() {
    let server = Server::development();
    let (grpc, http) = (server.grpc().to_string(), server.http().to_string());
    for (listen, http, taken, flag) in
        [(grpc.as_str(), ANYWHERE, &grpc, "--listen"), (ANYWHERE, http.as_str(), &http, "--http")]
    {
        let output = leaseway(&["serve", "--listen", listen, "--http", http]);
        assert_eq!((output.code, output.stdout.as_str()), (Some(1), ""));
        for part in [format!("cannot listen on {taken}").as_str(), "another program listens there", flag] {
            assert!(output.stderr.contains(part), "`{part}` is not in {}", output.stderr);
        }
    }
    server.assert_alive();
}

#[test]
fn health_watchers_are_notified_of_a_shutdown() {
    let server = Server::development();
    let mut health = HealthClient::new(server.channel());
    let mut watches = ["", "doorman.Capacity"].map(|service| {
        let request = HealthCheckRequest { service: service.into() };
        let mut watch = block_on(health.watch(request)).unwrap().into_inner();
        let first = block_on(watch.message()).unwrap().expect("a first status");
        assert_eq!(first.status(), ServingStatus::Serving);
        watch
    });
    server.signal(Signal::TERM);
    for watch in &mut watches {
        let next = block_on(watch.message()).unwrap().expect("another status, while the connection drains");
        assert_eq!(next.status(), ServingStatus::NotServing);
    }
    drop((watches, health));
    assert_eq!(server.finish().code, Some(0));
}

#[test]
fn requests_during_a_shutdown_are_answered_or_refused_cleanly() {
    let server = Server::development();
    let (answered, mut some_are) = tokio::sync::watch::channel(0);
    let tasks: Vec<_> = (0..16)
        .map(|n| {
            let (mut doorman, answered) = (server.doorman().inner(), answered.clone());
            runtime().spawn(async move {
                let ask: GetCapacityRequest = request(&format!("client {n}"), vec![entry("mysql", 1.0)]);
                loop {
                    match doorman.get_capacity(ask.clone()).await {
                        Ok(answer) => assert_eq!(answer.into_inner().response.len(), 1),
                        Err(status) => return status,
                    }
                    answered.send_modify(|answered| *answered += 1);
                }
            })
        })
        .collect();
    block_on(some_are.wait_for(|answered| *answered > 100)).unwrap();
    server.signal(Signal::TERM);
    for task in tasks {
        let status = block_on(task).unwrap();
        assert!(is_clean_refusal(&status), "{status:?}");
    }
    let output = server.finish();
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(!output.stderr.contains("panicked"), "{output:?}");
}

/// Whether the server refused the request, or there was no connection. If the server closes the connection (GOAWAY with
/// NO_ERROR) while the client sends a request, the client library reports an internal error.
fn is_clean_refusal(status: &Status) -> bool {
    match status.code() {
        Code::Unavailable | Code::Unknown | Code::Cancelled => true,
        Code::Internal => format!("{status:?}").contains("NO_ERROR"),
        _ => false,
    }
}

/// A supervisor that receives notifications of the service (sd_notify).
struct Supervisor {
    socket: UnixDatagram,
    path: TempDir,
}

impl Supervisor {
    fn start() -> Supervisor {
        let path = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(path.path().join("notify")).unwrap();
        Supervisor { socket, path }
    }

    fn variable(&self) -> String {
        self.path.path().join("notify").to_str().unwrap().to_owned()
    }

    /// Waits for a notification.
    fn hear(&self, word: &str) {
        self.socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        let mut buffer = [0; 256];
        eventually(&format!("the supervisor receives {word}"), || {
            let length = self.socket.recv(&mut buffer).ok()?;
            (buffer[..length].trim_ascii() == word.as_bytes()).then_some(())
        });
    }

    /// Discards pending notifications. Returns whether no other arrives within this time.
    fn is_silent(&self, time: Duration) -> bool {
        self.socket.set_nonblocking(true).unwrap();
        let mut buffer = [0; 256];
        while self.socket.recv(&mut buffer).is_ok() {}
        self.socket.set_nonblocking(false).unwrap();
        self.socket.set_read_timeout(Some(time)).unwrap();
        self.socket.recv(&mut buffer).is_err()
    }
}

#[test]
fn systemd_is_notified_of_ready_watchdog_and_stopping() {
    let supervisor = Supervisor::start();
    let server =
        Server::start(&["--listen", ANYWHERE, "--http", ANYWHERE], &[("NOTIFY_SOCKET", &supervisor.variable())]);
    supervisor.hear("READY=1");
    supervisor.hear("WATCHDOG=1");
    server.signal(Signal::STOP);
    // The server may send notifications until the signal takes effect.
    thread::sleep(Duration::from_millis(200));
    assert!(supervisor.is_silent(Duration::from_secs(3)), "a stopped server sends no watchdog notifications");
    server.signal(Signal::CONT);
    supervisor.hear("WATCHDOG=1");
    server.signal(Signal::TERM);
    supervisor.hear("STOPPING=1");
    assert_eq!(server.finish().code, Some(0));
}
