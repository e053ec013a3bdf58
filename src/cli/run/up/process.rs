//! One peer as a process: how it is started, and what it says of where it serves.

use std::path::Path;

use leaseway_process::{Output, Process, Start};
use tokio::sync::mpsc;

use super::{
    lines::{Speaker, Stream},
    plan::PeerPlan,
};
use crate::error::CliError;

/// What is told about the processes, in the order it happens.
#[derive(Debug)]
pub(super) enum Event {
    Ready {
        peer: usize,
        at: Served,
    },
    /// It has ended, and all that it said has been passed on.
    Ended {
        peer: usize,
    },
    /// The peer with this label is master of the node.
    Master {
        node: usize,
        label: String,
    },
}

/// Where a peer serves: known once it says so, because the system may have chosen the ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Served {
    pub(super) grpc: String,
    pub(super) http: String,
    pub(super) admin: String,
}

/// Starts `program` as a peer. From then on events tell of it; the last says that it has ended.
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
        pass_on(line);
        if let Some(at) = announced.hear(line) {
            // There is room for one of each peer; an error means that the receiver is gone.
            let _ = ready.try_send(Event::Ready { peer, at });
        }
    };
    let errors = speaker.passes_on(Stream::Errors);
    let process = Start::new(program)
        .arguments(&plan.arguments)
        // What is set for one server (an address, a name) is not meant for each of several; what to log is.
        .without("LEASEWAY_", Some("LEASEWAY_LOG"))
        .tethered()
        // Ctrl-C reaches `up` alone, which asks all to stop and waits for them.
        .in_group()
        .output(Output::Lines(Box::new(output)), Output::Lines(Box::new(errors)));
    let mut process = process.start().map_err(cannot)?;
    process.on_end(move || {
        // An error means that the receiver is gone.
        let _ = events.blocking_send(Event::Ended { peer });
    });
    Ok(process)
}

/// The two lines by which a server with peers says that it serves.
#[derive(Debug, Default)]
struct Announced {
    clients: Option<(String, String)>,
}

impl Announced {
    /// Where everything is, with the line that completes it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_ready_when_it_has_said_both() {
        let mut announced = Announced::default();
        assert_eq!(announced.hear("peer x of three"), None);
        assert_eq!(announced.hear("serving gRPC on 127.0.0.1:5100, HTTP on 127.0.0.1:5150"), None);
        assert_eq!(announced.hear("  ask it:   leaseway get alice mysql 40 --server 127.0.0.1:5100"), None);
        let served =
            Served { grpc: "127.0.0.1:5100".into(), http: "127.0.0.1:5150".into(), admin: "127.0.0.1:1".into() };
        assert_eq!(announced.hear("peer a on 127.0.0.1:5120, admin on 127.0.0.1:1"), Some(served));
        assert_eq!(announced.hear("peer a on 127.0.0.1:5120, admin on 127.0.0.1:1"), None, "once");
    }
}
