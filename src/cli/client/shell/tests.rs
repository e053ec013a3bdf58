//! The shell with a session that keeps books, and a user that is played.

use std::{
    collections::BTreeMap,
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    sync::{Notify, mpsc::UnboundedReceiver},
    time::{sleep, timeout},
};

use super::{
    lines::{Lines, Purpose, Request},
    user::Screen,
    *,
};

/// What was printed, each line marked `out:`, `above:` or `err:`.
#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<String>>>);

impl Paper {
    fn write(&self, mark: &str, text: &str) {
        let mut lines = self.0.lock().expect("no panic while it was locked");
        lines.extend(text.split('\n').map(|line| format!("{mark}: {line}").trim_end().to_owned()));
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().expect("no panic while it was locked").clone()
    }
}

impl Screen for Paper {
    fn say(&mut self, text: &str) -> Result<(), CliError> {
        self.write("out", text);
        Ok(())
    }

    fn say_above(&mut self, text: &str) -> Result<(), CliError> {
        self.write("above", text);
        Ok(())
    }

    fn complain(&mut self, text: &str) {
        self.write("err", text);
    }
}

/// Gives half of what is wanted. The resource `far` is on a server that does not answer, `broken` on one that refuses,
/// and `fading` is gone after it was looked at once.
#[derive(Default)]
struct Books {
    held: BTreeMap<(String, String), f64>,
    looked: usize,
    closes_never: bool,
    paper: Paper,
}

fn broken() -> CliError {
    CliError::Refused { address: "here:1".into(), code: tonic::Code::Internal, why: "broken".into() }
}

impl Session for Books {
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
            "missing" => Err(CliError::NoSuchResource(resource.to_owned())),
            "fading" if self.looked > 1 => Err(broken()),
            _ => Ok(Resource { capacity: 100.0, wants: self.looked as f64, subclients: 3, ..Resource::default() }),
        }
    }

    async fn close(self) -> Result<(), CliError> {
        self.paper.write("closed", &self.held.len().to_string());
        if self.closes_never { pending().await } else { Ok(()) }
    }
}

/// A user, what answers for lines, and where it is all printed.
fn user(present: bool) -> (User, UnboundedReceiver<Request>, Paper) {
    let (lines, requests) = Lines::answered_by();
    let paper = Paper::default();
    (User::new(lines, Box::new(paper.clone()), present, Arc::default()), requests, paper)
}

/// Plays these lines to the end.
async fn play(mut requests: UnboundedReceiver<Request>, lines: Vec<Line>) {
    for line in lines {
        let request = requests.recv().await.expect("the shell asks for lines");
        assert_eq!(request.purpose, Purpose::Command);
        request.reply.send(line).expect("the shell waits for its line");
    }
}

/// How a shell with these lines ends, and what it prints.
async fn shell(present: bool, lines: &[&str]) -> (Ended, Vec<String>) {
    let (user, requests, paper) = user(present);
    let lines = lines.iter().map(|line| Line::Text((*line).to_owned())).collect();
    let books = Books { paper: paper.clone(), ..Books::default() };
    let (ended, ()) = tokio::join!(carry_out(books, user), play(requests, lines));
    (ended, paper.lines())
}

#[tokio::test]
async fn what_was_asked_for_is_shown_by_resource_and_client() {
    let lines = ["get bob b 40", "get alice b 10", "get carol a 1", "get alice b 5", "show", "master", "quit"];
    let (ended, printed) = shell(false, &lines).await;
    let expected = [
        "out: client: \"carol\"",
        "out: resource: \"a\"",
        "out: capacity: 0.5",
        "out: ends in: 60 s",
        "out:",
        "out: client: \"alice\"",
        "out: resource: \"b\"",
        "out: capacity: 2.5",
        "out: ends in: 60 s",
        "out:",
        "out: client: \"bob\"",
        "out: resource: \"b\"",
        "out: capacity: 20",
        "out: ends in: 60 s",
        "out:",
        "out: alice: here:1",
        "out: bob: here:1",
        "out: carol: here:1",
        "closed: 3",
    ];
    assert_eq!((ended, printed), (Ended::Well, expected.map(str::to_owned).to_vec()));
}

#[tokio::test]
async fn nothing_to_show_prints_nothing() {
    assert_eq!(shell(false, &["show", "master", "", "bye"]).await, (Ended::Well, vec!["closed: 0".to_owned()]));
}

#[tokio::test]
async fn failures_in_a_file_name_the_line_and_do_not_stop_it() {
    let (ended, printed) = shell(false, &["gett a b 1", "get a broken 1", "release a b", "get a b 1", "q"]).await;
    let expected = [
        "err: leaseway: line 1: there is no command `gett` (did you mean `get`?); `help` lists them all",
        "err: leaseway: line 2: the server at here:1 refused: broken (Internal)",
        "err: leaseway: line 3: a has asked for no `b` in this shell; `show` lists what has been asked for",
        "closed: 1",
    ];
    assert_eq!((ended, printed), (Ended::WithFailures, expected.map(str::to_owned).to_vec()));
}

#[tokio::test]
async fn at_a_terminal_failures_have_no_line_numbers_and_no_exit_code() {
    let (ended, printed) = shell(true, &["xyz", "quit"]).await;
    let expected = ["err: there is no command `xyz`; `help` lists them all", "closed: 0"];
    assert_eq!((ended, printed), (Ended::Well, expected.map(str::to_owned).to_vec()));
}

#[tokio::test]
async fn a_release_gives_back_once() {
    let (ended, printed) = shell(false, &["get a b 1", "release a b", "release a b", "quit"]).await;
    assert_eq!((ended, printed.len()), (Ended::WithFailures, 2));
    assert!(printed[0].starts_with("err: leaseway: line 3: a has asked for no `b`"));
}

#[tokio::test]
async fn the_end_of_input_gives_everything_back_and_ctrl_c_at_the_prompt_only_drops_the_line() {
    let (user, requests, paper) = user(true);
    let books = Books { paper: paper.clone(), ..Books::default() };
    let lines = vec![Line::Interrupted, Line::Text("get a b 1".into()), Line::Interrupted, Line::End];
    let (ended, ()) = tokio::join!(carry_out(books, user), play(requests, lines));
    assert_eq!((ended, paper.lines()), (Ended::Well, vec!["closed: 1".to_owned()]));
}

#[tokio::test]
async fn input_that_fails_ends_the_shell_with_failures() {
    let (user, requests, paper) = user(false);
    let books = Books { paper: paper.clone(), ..Books::default() };
    let (ended, ()) = tokio::join!(carry_out(books, user), play(requests, vec![Line::Failed("no disk".into())]));
    let expected = vec!["err: leaseway: line 1: no disk".to_owned(), "closed: 0".to_owned()];
    assert_eq!((ended, paper.lines()), (Ended::WithFailures, expected));
}

/// Many times as long as it takes, on a paused clock.
const TIMEOUT: Duration = Duration::from_secs(1000);

/// Ctrl-C after so many seconds, again and again.
async fn interrupt_each(seconds: u64, interrupt: Arc<Notify>) {
    loop {
        sleep(Duration::from_secs(seconds)).await;
        interrupt.notify_waiters();
    }
}

#[tokio::test(start_paused = true)]
async fn ctrl_c_gives_up_a_command_that_takes_long_and_then_the_end_if_that_does_too() {
    let (user, requests, paper) = user(true);
    let interrupts = tokio::spawn(interrupt_each(10, Arc::clone(&user.interrupt)));
    let books = Books { paper: paper.clone(), closes_never: true, ..Books::default() };
    let lines = ["get a far 1", "get a b 1", "quit"].map(|line| Line::Text(line.into())).to_vec();
    let played = async { tokio::join!(carry_out(books, user), play(requests, lines)) };
    let (ended, ()) = timeout(TIMEOUT, played).await.expect("it can be interrupted");
    interrupts.abort();
    let expected = [
        "err: interrupted; it may have been done all the same",
        "closed: 1",
        "err: interrupted; what was not given back is free again when its lease ends",
    ];
    assert_eq!((ended, paper.lines()), (Ended::Well, expected.map(str::to_owned).to_vec()));
}

#[tokio::test(start_paused = true)]
async fn ctrl_c_ends_a_file_that_is_waited_for_and_gives_everything_back() {
    let (user, _requests, paper) = user(false);
    let interrupts = tokio::spawn(interrupt_each(10, Arc::clone(&user.interrupt)));
    let books = Books { paper: paper.clone(), ..Books::default() };
    let ended = timeout(TIMEOUT, carry_out(books, user)).await.expect("it can be interrupted");
    interrupts.abort();
    let expected = vec!["err: leaseway: line 1: interrupted".to_owned(), "closed: 0".to_owned()];
    assert_eq!((ended, paper.lines()), (Ended::WithFailures, expected));
}

/// A user that watches, and stops after so long.
async fn watch_for(mut requests: UnboundedReceiver<Request>, resource: &str, time: Duration, stop: Line) {
    let request = requests.recv().await.expect("the shell asks for a command");
    request.reply.send(Line::Text(format!("watch {resource}"))).expect("the shell waits for it");
    let request = requests.recv().await.expect("the shell asks when to stop");
    assert_eq!(request.purpose, Purpose::Stop);
    sleep(time).await;
    request.reply.send(stop).expect("it still watches");
    play(requests, vec![Line::Text("quit".into())]).await;
}

async fn watched(resource: &str, stop: Line) -> Vec<String> {
    let (user, requests, paper) = user(true);
    let books = Books { paper: paper.clone(), ..Books::default() };
    let time = Duration::from_millis(2500);
    tokio::join!(carry_out(books, user), watch_for(requests, resource, time, stop));
    paper.lines()
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
async fn what_goes_wrong_while_watching_takes_the_place_of_a_row() {
    let printed = watched("fading", Line::Interrupted).await;
    let refused = "above: the server at here:1 refused: broken (Internal)";
    assert_eq!(printed[2..], [refused, refused, "closed: 0"]);
}

#[tokio::test]
async fn without_a_terminal_a_resource_is_watched_once() {
    let (ended, printed) = shell(false, &["watch mysql", "quit"]).await;
    assert_eq!((ended, printed.len()), (Ended::Well, 3));
    let (ended, printed) = shell(true, &["watch missing", "quit"]).await;
    assert_eq!((ended, printed.len()), (Ended::Well, 2));
    assert!(printed[0].starts_with("err: there is no resource `missing`"));
}
