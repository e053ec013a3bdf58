//! One peer as a process: started, listened to, asked to stop.

use std::{
    io,
    path::Path,
    process::{ExitStatus, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    process::{Child, Command},
    sync::{mpsc, watch},
};

use super::{
    lines::{Speaker, Stream, relay},
    plan::PeerPlan,
    tether,
};
use crate::error::CliError;

/// What is told about the processes, in the order it happens.
#[derive(Debug)]
pub(super) enum Event {
    /// It serves, there.
    Ready { peer: usize, at: Served },
    /// It has ended, and all that it said has been passed on.
    Ended { peer: usize, how: io::Result<ExitStatus> },
    /// The peer with this label is master of the node.
    Master { node: usize, label: String },
}

/// Where a peer serves: known once it says so, because the system may have chosen the ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Served {
    pub(super) grpc: String,
    pub(super) http: String,
    pub(super) admin: String,
}

/// What all processes are to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Run,
    Stop,
    Die,
}

/// Starts `program` as a peer. From then on events tell of it; the last says that it has ended.
pub(super) fn start(
    program: &Path,
    plan: &PeerPlan,
    speaker: Speaker,
    events: mpsc::Sender<Event>,
    orders: watch::Receiver<Order>,
) -> Result<(), CliError> {
    let cannot = |error| CliError::Spawn { label: plan.label.clone(), error };
    let mut command = std::process::Command::new(program);
    // What is set for one server (an address, a name) is not meant for each of several; what to log is.
    let variables = std::env::vars_os().map(|(name, _)| name);
    let ours = |name: &std::ffi::OsString| name.as_encoded_bytes().starts_with(b"LEASEWAY_") && name != "LEASEWAY_LOG";
    variables.filter(ours).for_each(|name| {
        command.env_remove(name);
    });
    tether::tie(&mut command);
    command.args(&plan.arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut command = Command::from(command);
    // In a group of its own: Ctrl-C reaches `up` alone, which asks all to stop and waits for them.
    let child = command.process_group(0).kill_on_drop(true).spawn().map_err(cannot)?;
    tokio::spawn(attend(child, speaker, events, orders));
    Ok(())
}

/// Until it has ended.
async fn attend(mut child: Child, speaker: Speaker, events: mpsc::Sender<Event>, orders: watch::Receiver<Order>) {
    let peer = speaker.index;
    // Waiting would close it, and end the process with that.
    let tether = child.stdin.take();
    let output = child.stdout.take().expect("it was piped");
    let errors = child.stderr.take().expect("it was piped");
    let mut announced = Announced::default();
    let ready = events.clone();
    let heard = move |line: &str| {
        if let Some(at) = announced.hear(line) {
            // There is room for one of each peer; if not, nobody waits for it any more.
            let _ = ready.try_send(Event::Ready { peer, at });
        }
    };
    let ((), (), how) = tokio::join!(
        relay(output, Stream::Output, speaker.clone(), heard),
        relay(errors, Stream::Errors, speaker, |_| ()),
        wait(&mut child, orders)
    );
    drop(tether);
    // An error means that nobody asks any more.
    let _ = events.send(Event::Ended { peer, how }).await;
}

async fn wait(child: &mut Child, mut orders: watch::Receiver<Order>) -> io::Result<ExitStatus> {
    loop {
        tokio::select! {
            how = child.wait() => return how,
            Ok(()) = orders.changed() => {
                let signal = match *orders.borrow_and_update() {
                    Order::Run => continue,
                    Order::Stop => Signal::TERM,
                    Order::Die => Signal::KILL,
                };
                // Without an id it has ended just now.
                if let Some(id) = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)) {
                    kill_process(id, signal)?;
                }
            }
        }
    }
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
        assert_eq!(announced.hear("peer x of nobody"), None);
        assert_eq!(announced.hear("serving gRPC on 127.0.0.1:5100, HTTP on 127.0.0.1:5150"), None);
        assert_eq!(announced.hear("  ask it:   leaseway get alice mysql 40 --server 127.0.0.1:5100"), None);
        let served =
            Served { grpc: "127.0.0.1:5100".into(), http: "127.0.0.1:5150".into(), admin: "127.0.0.1:1".into() };
        assert_eq!(announced.hear("peer a on 127.0.0.1:5120, admin on 127.0.0.1:1"), Some(served));
        assert_eq!(announced.hear("peer a on 127.0.0.1:5120, admin on 127.0.0.1:1"), None, "once");
    }
}
