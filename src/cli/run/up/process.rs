//! One peer as a process, and the addresses that it announces.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;

use anstyle::{AnsiColor, Style};
use leaseway_core::types::escaped;
use leaseway_process::{Output, Process, Start};
use tokio::sync::mpsc;

use super::plan::PeerPlan;
use crate::error::CliError;

/// Events of the processes, in order.
#[derive(Debug)]
pub(super) enum Event {
    Ready {
        peer: usize,
        at: Served,
    },
    /// The process has ended, and its output has been printed.
    Ended {
        peer: usize,
    },
    /// The peer with this label is the master of the node.
    Master {
        node: usize,
        label: String,
    },
}

/// The addresses of a peer. They are known once it prints them, because the system may choose the ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Served {
    pub(super) grpc: String,
    pub(super) http: String,
    pub(super) admin: String,
}

/// The log filter of peers without `log:` in the file. `up` itself prints the important events of level `info`.
const DEFAULT_LOG: &str = "warn,openraft=off";

/// Starts `program` as a peer. Its events are sent from then on; the last is `Ended`.
pub(super) fn start(
    program: &Path,
    plan: &PeerPlan,
    speaker: &Speaker,
    events: mpsc::Sender<Event>,
) -> Result<Process, CliError> {
    let cannot = |error| CliError::Spawn { label: plan.label.clone(), error };
    let (peer, ready) = (speaker.index, events.clone());
    let (mut announced, mut pass_on) = (Announced::default(), speaker.passes_on(Stream::Output));
    let output = move |line: &str| {
        if !is_announcement(line) {
            pass_on(line);
        }
        if let Some(at) = announced.hear(line) {
            // There is room for one event of each peer. An error means that the receiver is gone.
            let _ = ready.try_send(Event::Ready { peer, at });
        }
    };
    let errors = speaker.passes_on(Stream::Errors);
    let process = Start::new(program)
        .arguments(&plan.arguments)
        // Variables for a single server, such as its address, must not reach several. The log filter may.
        .without("LEASEWAY_", Some("LEASEWAY_LOG"))
        .variables(std::env::var_os("LEASEWAY_LOG").is_none().then_some(("LEASEWAY_LOG", DEFAULT_LOG)))
        .tethered()
        // Ctrl-C must reach `up` alone, which stops all and waits for them.
        .in_group()
        .output(Output::Lines(Box::new(output)), Output::Lines(Box::new(errors)));
    let mut process = process.start().map_err(cannot)?;
    process.on_end(move || {
        // An error means that the receiver is gone.
        let _ = events.blocking_send(Event::Ended { peer });
    });
    Ok(process)
}

/// Parses the two lines with which a server with peers announces its addresses.
#[derive(Debug, Default)]
struct Announced {
    clients: Option<(String, String)>,
}

impl Announced {
    /// Takes the next line. Returns the addresses with the line that completes them.
    fn hear(&mut self, line: &str) -> Option<Served> {
        if let Some(rest) = line.strip_prefix("serving gRPC on ") {
            let (grpc, http) = rest.split_once(", HTTP on ")?;
            self.clients = Some((grpc.to_owned(), http.to_owned()));
            return None;
        }
        let (_, admin) = line.strip_prefix("peer ")?.split_once(", admin on ")?;
        let (grpc, http) = self.clients.take()?;
        Some(Served { grpc, http, admin: admin.to_owned() })
    }
}

/// Whether a server prints this line when it is ready. `up` prints the addresses of all peers in one table instead.
fn is_announcement(line: &str) -> bool {
    ["serving gRPC on ", "  ask it: ", "  look: ", "capacity and templates come from ", "peer "]
        .iter()
        .any(|start| line.starts_with(start))
}

/// Easily distinguished, on dark and light backgrounds.
const COLOURS: [AnsiColor; 6] =
    [AnsiColor::Cyan, AnsiColor::Yellow, AnsiColor::Green, AnsiColor::Magenta, AnsiColor::Blue, AnsiColor::Red];

/// A standard stream. The two streams of a process stay separate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Output,
    Errors,
}

impl Stream {
    fn is_colourful(self) -> bool {
        // See no-color.org.
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        wanted
            && match self {
                Stream::Output => io::stdout().is_terminal(),
                Stream::Errors => io::stderr().is_terminal(),
            }
    }

    /// Writes a line at once, so that lines never mix. Ignores a closed stream: the processes go on.
    fn write(self, line: &[u8]) {
        let _ = match self {
            Stream::Output => io::stdout().lock().write_all(line),
            Stream::Errors => io::stderr().lock().write_all(line),
        };
    }
}

/// The prefix of a process's lines: its name, padded to `width`.
pub(super) fn prefix(label: &str, width: usize, colour: Option<usize>) -> String {
    let style = colour.map_or_else(Style::new, |index| COLOURS[index % COLOURS.len()].on_default());
    format!("{style}{label:<width$} |{style:#} ")
}

/// A process with output: its index, its name, and the width of the longest name.
#[derive(Debug)]
pub(super) struct Speaker {
    pub(super) index: usize,
    pub(super) label: String,
    pub(super) width: usize,
}

impl Speaker {
    /// The function that prints a line of the process.
    pub(super) fn passes_on(&self, to: Stream) -> impl FnMut(&str) + Send + 'static {
        let prefix = prefix(&self.label, self.width, to.is_colourful().then_some(self.index));
        // Processes escape their output themselves, except when they fail in an unforeseen way.
        move |line| to.write(format!("{prefix}{}\n", escaped(line)).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_ready_after_both_lines() {
        let mut announced = Announced::default();
        assert_eq!(announced.hear("peer x of three"), None);
        assert_eq!(announced.hear("serving gRPC on 127.0.0.1:5100, HTTP on 127.0.0.1:5150"), None);
        assert_eq!(announced.hear("  ask it:   leaseway get alice mysql 40 --server 127.0.0.1:5100"), None);
        let served =
            Served { grpc: "127.0.0.1:5100".into(), http: "127.0.0.1:5150".into(), admin: "127.0.0.1:1".into() };
        assert_eq!(announced.hear("peer a on 127.0.0.1:5120, admin on 127.0.0.1:1"), Some(served));
        assert_eq!(announced.hear("peer a on 127.0.0.1:5120, admin on 127.0.0.1:1"), None, "once");
    }

    #[test]
    fn announcements_are_distinguished_from_other_output() {
        for line in ["serving gRPC on 127.0.0.1:1, HTTP on 127.0.0.1:2", "peer a on 127.0.0.1:3, admin on 127.0.0.1:4"]
        {
            assert!(is_announcement(line), "{line}");
        }
        assert!(!is_announcement("gateway: HTTP on 127.0.0.1:5190"));
    }

    #[test]
    fn prefixes_line_up_and_are_coloured_only_if_asked() {
        assert_eq!(prefix("a", 6, None), "a      | ");
        assert_eq!(prefix("root/a", 6, None), "root/a | ");
        assert_eq!(prefix("a", 1, Some(0)), "\u{1b}[36ma |\u{1b}[0m ");
        assert_ne!(prefix("a", 1, Some(0)), prefix("a", 1, Some(1)));
        assert_eq!(prefix("a", 1, Some(0)), prefix("a", 1, Some(COLOURS.len())));
    }
}
