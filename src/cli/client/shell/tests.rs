//! The shell with a fake session and scripted input.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::sleep;

use super::lines::{Lines, Purpose, Request};
use super::user::Screen;
use super::*;

/// Printed lines, each marked `out:`, `above:` or `err:`.
#[derive(Clone, Default)]
struct Transcript(Arc<Mutex<Vec<String>>>);

impl Transcript {
    fn write(&self, mark: &str, text: &str) {
        let mut lines = self.0.lock().expect("no panic while it was locked");
        lines.extend(text.split('\n').map(|line| format!("{mark}: {line}").trim_end().to_owned()));
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().expect("no panic while it was locked").clone()
    }
}

impl Screen for Transcript {
    fn print(&mut self, text: &str) -> Result<(), CliError> {
        self.write("out", text);
        Ok(())
    }

    fn print_above(&mut self, text: &str) -> Result<(), CliError> {
        self.write("above", text);
        Ok(())
    }

    fn print_error(&mut self, text: &str) {
        self.write("err", text);
    }
}

/// Grants half of what is wanted. A request for `far` never completes, one for `broken` fails, and the status of
/// `fading` fails after the first query.
#[derive(Default)]
struct FakeSession {
    held: BTreeMap<(String, String), f64>,
    looked: usize,
    closes_never: bool,
    transcript: Transcript,
}

fn broken() -> CliError {
    CliError::Refused { address: "here:1".into(), code: tonic::Code::Internal, why: "broken".into() }
}

impl Session for FakeSession {
    async fn get(&mut self, client: &str, resource: &str, wants: Amount) -> Result<(), CliError> {
        match resource {
            "far" => pending().await,
            "broken" => Err(broken()),
            _ => {
                self.held.insert((client.to_owned(), resource.to_owned()), wants.get() / 2.0);
                Ok(())
            }
        }
    }

    async fn release(&mut self, client: &str, resource: &str) -> Result<bool, CliError> {
        Ok(self.held.remove(&(client.to_owned(), resource.to_owned())).is_some())
    }

    fn held(&self) -> Vec<Held> {
        let held = |((client, resource), capacity): (&(String, String), &f64)| Held {
            client: client.clone(),
            resource: resource.clone(),
            capacity: *capacity,
            left: Some(Duration::from_secs(60)),
        };
        self.held.iter().map(held).collect()
    }

    fn masters(&self) -> Vec<(String, String)> {
        self.held.keys().rev().map(|(client, _)| (client.clone(), "here:1".to_owned())).collect()
    }

    async fn resource(&mut self, resource: &str) -> Result<Resource, CliError> {
        self.looked += 1;
        match resource {
            "fading" if self.looked > 1 => Err(broken()),
            _ => Ok(Resource { capacity: 100.0, wants: self.looked as f64, subclients: 3, ..Resource::default() }),
        }
    }

    async fn close(self) -> Result<(), CliError> {
        self.transcript.write("closed", &self.held.len().to_string());
        if self.closes_never { pending().await } else { Ok(()) }
    }
}

/// A user, the requests for its lines, and a session with the same transcript.
fn setup(present: bool) -> (User, UnboundedReceiver<Request>, FakeSession) {
    let (lines, requests) = Lines::channel();
    let session = FakeSession::default();
    let user = User::new(lines, Box::new(session.transcript.clone()), present, Arc::default());
    (user, requests, session)
}

/// Answers requests with these lines.
async fn play(mut requests: UnboundedReceiver<Request>, lines: Vec<Line>) {
    for line in lines {
        let request = requests.recv().await.expect("the shell asks for lines");
        assert_eq!(request.purpose, Purpose::Command);
        request.reply.send(line).expect("the shell waits for its line");
    }
}

/// Runs a shell with these lines, and compares what it prints. Returns how it ended.
async fn shell(present: bool, lines: &[&str], expected: &[&str]) -> Ended {
    let lines = lines.iter().map(|line| Line::Text((*line).to_owned())).collect();
    shell_with_input(present, lines, expected).await
}

async fn shell_with_input(present: bool, lines: Vec<Line>, expected: &[&str]) -> Ended {
    let (user, requests, session) = setup(present);
    let transcript = session.transcript.clone();
    let (ended, ()) = tokio::join!(run_commands(session, user), play(requests, lines));
    assert_eq!(transcript.lines(), expected);
    ended
}

#[tokio::test]
async fn held_capacity_is_shown_by_resource_and_client() {
    let lines = ["get bob b 40", "get alice b 10", "get carol a 1", "get alice b 5", "show", "master", "quit"];
    let expected = "out: client: \"carol\"\nout: resource: \"a\"\nout: capacity: 0.5\nout: ends in: 60 s\nout:\n\
                    out: client: \"alice\"\nout: resource: \"b\"\nout: capacity: 2.5\nout: ends in: 60 s\nout:\n\
                    out: client: \"bob\"\nout: resource: \"b\"\nout: capacity: 20\nout: ends in: 60 s\nout:\n\
                    out: alice: here:1\nout: bob: here:1\nout: carol: here:1\nclosed: 3";
    let expected: Vec<&str> = expected.lines().collect();
    assert_eq!(shell(false, &lines, &expected).await, Ended::Well);
    assert_eq!(shell(false, &["show", "master", "", "bye"], &["closed: 0"]).await, Ended::Well);
}

#[tokio::test]
async fn failures_in_a_file_name_the_line_and_do_not_stop_it() {
    let lines = ["gett a b 1", "get a broken 1", "release a b", "get a b 1", "q"];
    let expected = [
        "err: leaseway: line 1: unknown command `gett` (did you mean `get`?); `help` lists all commands",
        "err: leaseway: line 2: the server at here:1 refused: broken (Internal)",
        "err: leaseway: line 3: a has not requested `b` in this shell; `show` lists all requests",
        "closed: 1",
    ];
    assert_eq!(shell(false, &lines, &expected).await, Ended::WithFailures);
    let expected = ["err: leaseway: line 1: no disk", "closed: 0"];
    assert_eq!(shell_with_input(false, vec![Line::Failed("no disk".into())], &expected).await, Ended::WithFailures);
}

#[tokio::test]
async fn at_a_terminal_failures_have_no_line_numbers_and_no_exit_code() {
    let expected = ["err: unknown command `xyz`; `help` lists all commands", "closed: 0"];
    assert_eq!(shell(true, &["xyz", "quit"], &expected).await, Ended::Well);
}

#[tokio::test]
async fn the_end_of_input_releases_everything_and_ctrl_c_at_the_prompt_drops_the_line() {
    let lines = vec![Line::Interrupted, Line::Text("get a b 1".into()), Line::Interrupted, Line::End];
    assert_eq!(shell_with_input(true, lines, &["closed: 1"]).await, Ended::Well);
}

/// Sends Ctrl-C every ten seconds. Ends long after it should have had an effect.
async fn interrupt_repeatedly(interrupt: Arc<Notify>) {
    for _ in 0..100 {
        sleep(Duration::from_secs(10)).await;
        interrupt.notify_waiters();
    }
}

#[tokio::test(start_paused = true)]
async fn ctrl_c_cancels_a_slow_command_and_then_a_slow_exit() {
    let (user, requests, session) = setup(true);
    let (interrupt, transcript) = (Arc::clone(&user.interrupt), session.transcript.clone());
    let session = FakeSession { closes_never: true, ..session };
    let lines = ["get a far 1", "get a b 1", "quit"].map(|line| Line::Text(line.into())).to_vec();
    tokio::select! {
        (ended, ()) = async { tokio::join!(run_commands(session, user), play(requests, lines)) } => {
            assert_eq!(ended, Ended::Well);
        }
        () = interrupt_repeatedly(interrupt) => panic!("Ctrl-C has no effect"),
    }
    let expected = [
        "err: interrupted; the command may have taken effect",
        "closed: 1",
        "err: interrupted; leases that were not released will expire",
    ];
    assert_eq!(transcript.lines(), expected);
}

#[tokio::test(start_paused = true)]
async fn ctrl_c_ends_a_shell_that_waits_for_input_and_releases_everything() {
    let (user, _requests, session) = setup(false);
    let (interrupt, transcript) = (Arc::clone(&user.interrupt), session.transcript.clone());
    tokio::select! {
        ended = run_commands(session, user) => assert_eq!(ended, Ended::WithFailures),
        () = interrupt_repeatedly(interrupt) => panic!("Ctrl-C has no effect"),
    }
    assert_eq!(transcript.lines(), ["err: leaseway: line 1: interrupted", "closed: 0"]);
}

/// The transcript of a shell that watches a resource, with this line after 2.5 seconds.
async fn watched(resource: &str, stop: Line) -> Vec<String> {
    let (user, mut requests, session) = setup(true);
    let transcript = session.transcript.clone();
    let input = async {
        let request = requests.recv().await.expect("the shell asks for a command");
        request.reply.send(Line::Text(format!("watch {resource}"))).expect("the shell waits for it");
        let request = requests.recv().await.expect("the shell asks when to stop");
        assert_eq!(request.purpose, Purpose::Stop);
        sleep(Duration::from_millis(2500)).await;
        request.reply.send(stop).expect("it still watches");
        play(requests, vec![Line::Text("quit".into())]).await;
    };
    tokio::join!(run_commands(session, user), input);
    transcript.lines()
}

#[tokio::test(start_paused = true)]
async fn a_watched_resource_is_printed_each_second_until_stopped() {
    for stop in [Line::Text(String::new()), Line::Interrupted, Line::End] {
        let expected = [
            "out:   AFTER      CAPACITY         WANTS       GRANTED          HELD       CLIENTS      LEARNING",
            "out:     0 s           100             1             0             0             3            no",
            "above:     1 s           100             2             0             0             3            no",
            "above:     2 s           100             3             0             0             3            no",
            "closed: 0",
        ];
        assert_eq!(watched("mysql", stop).await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_while_watching_is_printed_in_place_of_a_row() {
    let printed = watched("fading", Line::Interrupted).await;
    let refused = "above: the server at here:1 refused: broken (Internal)";
    assert_eq!(printed[2..], [refused, refused, "closed: 0"]);
}
