//! Runs the peers of a plan as processes until the last has ended. A node starts once its parent has a master that can
//! answer it.

use std::{io, net::TcpListener, ops::Range, path::Path, process::ExitStatus};

use leaseway_process::{Process, Signal, tether};
use leaseway_server::StopSignals;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::banner::running;
use super::plan::{PeerPlan, Plan};
use super::process::{Event, Served, Speaker};
use super::{banner, bootstrap_marker, master, process};
use crate::Outcome;
use crate::connect::run_file;
use crate::connect::run_file::{RunFileGuard, Running};
use crate::error::CliError;
use crate::output::{note, print};

/// Checks that every port is free, before anything is started or deleted. Reports all that are not.
pub(super) fn check_ports(plan: &Plan) -> Outcome {
    let mut taken = Vec::new();
    for peer in plan.peers() {
        let at = &peer.addresses;
        for (key, address) in [("grpc", at.grpc), ("http", at.http), ("admin", at.admin), ("peer", at.peer)] {
            if let Err(error) = TcpListener::bind(address) {
                taken.push(format!("\n  {key} of {}: {address}: {error}", peer.label));
            }
        }
    }
    if taken.is_empty() { Ok(()) } else { Err(CliError::Ports(taken.concat())) }
}

/// Runs until all peers have ended. SIGTERM and Ctrl-C stop them. `again` is the command that restarts a peer, up to
/// the peer's name.
pub(super) async fn run(plan: &Plan, again: &str) -> Outcome {
    // Registered before there is anything to stop.
    let mut signals = StopSignals::new().map_err(CliError::Runtime)?;
    let program = std::env::current_exe().map_err(CliError::Runtime)?;
    supervise(plan, &program, again, run_file::write, async || signals.received().await).await
}

/// Writes the run file.
type WriteRunFile = fn(&Running) -> io::Result<Option<RunFileGuard>>;

/// When `stop` first returns, all peers are asked to stop; the second time they are killed.
async fn supervise(
    plan: &Plan,
    program: &Path,
    again: &str,
    write: WriteRunFile,
    mut stop: impl AsyncFnMut(),
) -> Outcome {
    let peers: Vec<&PeerPlan> = plan.peers().collect();
    let width = peers.iter().map(|peer| peer.label.len()).max().unwrap_or_default();
    // Each peer becomes ready once and ends once; each node gets a master once.
    let (events, mut arrived) = mpsc::channel(3 * peers.len());
    let mut set = Set {
        plan,
        program,
        again,
        width,
        events,
        is_killing: false,
        states: Vec::new(),
        processes: Vec::new(),
        has_master: vec![false; plan.nodes.len()],
        has_banner: false,
        write,
        run_file: None,
        stop: None,
        refused: None,
        failed: Vec::new(),
        peers,
    };
    set.states.resize_with(set.peers.len(), || State::Waiting);
    set.processes.resize_with(set.peers.len(), || None);
    set.start()?;
    while set.states.iter().any(|state| !matches!(state, State::Ended)) {
        let deadline = set.stop.unwrap_or_else(Instant::now);
        tokio::select! {
            Some(event) = arrived.recv() => set.take(event)?,
            () = stop() => set.asked_to_stop()?,
            () = sleep_until(deadline), if set.stop.is_some() => set.out_of_patience()?,
        }
    }
    match (set.refused, set.failed.is_empty()) {
        (Some(error), _) => Err(error),
        (None, true) => Ok(()),
        (None, false) => Err(CliError::PeersFailed(set.failed.join(", "))),
    }
}

enum State {
    /// The node's parent has no master yet.
    Waiting,
    Starting,
    Ready(Served),
    Ended,
}

impl State {
    fn served(&self) -> Option<&Served> {
        match self {
            State::Ready(at) => Some(at),
            State::Waiting | State::Starting | State::Ended => None,
        }
    }
}

/// The processes and their states.
struct Set<'p> {
    plan: &'p Plan,
    /// The peers of the first node, then those of the next.
    peers: Vec<&'p PeerPlan>,
    program: &'p Path,
    again: &'p str,
    /// The width of the longest label.
    width: usize,
    events: mpsc::Sender<Event>,
    /// Peers that did not stop in time have been killed.
    is_killing: bool,
    states: Vec<State>,
    processes: Vec<Option<Process>>,
    /// Whether each node has been seen with a master.
    has_master: Vec<bool>,
    has_banner: bool,
    write: WriteRunFile,
    /// Kept until this process ends.
    run_file: Option<RunFileGuard>,
    /// Set while the peers stop: the deadline after which they are killed.
    stop: Option<Instant>,
    /// Why a peer did not start.
    refused: Option<CliError>,
    failed: Vec<String>,
}

impl Set<'_> {
    /// Starts every node that does not have to wait for its parent.
    fn start(&mut self) -> Outcome {
        for node in 0..self.plan.nodes.len() {
            let members = self.members(node);
            if self.stop.is_some() || self.must_wait(node) || !matches!(self.states[members.start], State::Waiting) {
                continue;
            }
            for index in members {
                let speaker = Speaker { index, label: self.peers[index].label.clone(), width: self.width };
                let process = process::start(self.program, self.peers[index], &speaker, self.events.clone())?;
                self.processes[index] = Some(process);
                self.states[index] = State::Starting;
            }
        }
        Ok(())
    }

    /// Whether the node has to wait: its parent has no master yet, but enough of the parent's peers run here to elect
    /// one. If too few run here, the children retry the parent themselves, as they do after it fails later.
    fn must_wait(&self, node: usize) -> bool {
        self.plan.parent_of(&self.plan.nodes[node]).is_some_and(|parent| {
            let states = &self.states[self.members(parent)];
            let here = states.iter().filter(|state| !matches!(state, State::Ended)).count();
            !self.has_master[parent] && here >= self.plan.nodes[parent].majority()
        })
    }

    /// The indices of a node's peers.
    fn members(&self, node: usize) -> Range<usize> {
        let before = self.plan.nodes[..node].iter().map(|node| node.peers.len()).sum();
        before..before + self.plan.nodes[node].peers.len()
    }

    fn take(&mut self, event: Event) -> Outcome {
        match event {
            Event::Ready { peer, at } => self.ready(peer, at),
            Event::Ended { peer } => {
                self.ended(peer)?;
                self.start()
            }
            Event::Master { .. } if self.stop.is_some() => Ok(()),
            Event::Master { node, label } if self.has_master[node] => print(format_args!("{label} is the master now")),
            Event::Master { node, label } => {
                bootstrap_marker::end(&self.plan.nodes[node].directory);
                print(format_args!("{label} is the master"))?;
                self.has_master[node] = true;
                self.start()
            }
        }
    }

    /// Once all peers are ready, prints the banner. Once all peers of a node are ready, looks for its master.
    fn ready(&mut self, peer: usize, at: Served) -> Outcome {
        self.states[peer] = State::Ready(at);
        let serve = |states: &[State]| !states.iter().any(|state| matches!(state, State::Waiting | State::Starting));
        if self.stop.is_none() && !self.has_banner && serve(&self.states) {
            self.has_banner = true;
            let served: Vec<_> = self.states.iter().map(State::served).collect();
            print(banner::text(self.plan, &served))?;
            self.run_file = (self.write)(&running(self.plan, &served)).unwrap_or_else(|error| {
                note(format_args!("cannot write the run file: {error}. Pass --server and --admin to other commands"));
                None
            });
        }
        let node = (0..self.plan.nodes.len()).find(|node| self.members(*node).contains(&peer));
        let node = node.expect("every peer is one of a node");
        if self.stop.is_none() && serve(&self.states[self.members(node)]) { self.watch(node) } else { Ok(()) }
    }

    /// Prints which peer of a node is master, whenever that changes.
    fn watch(&self, node: usize) -> Outcome {
        let (plan, members) = (&self.plan.nodes[node], self.members(node));
        let (here, size, most) = (plan.peers.len(), plan.members.len(), plan.majority());
        if here < most {
            let name = &plan.name;
            print(format_args!(
                "{here} of the {size} peers of {name} run here; {name} needs {most} running peers to have a master"
            ))?;
        }
        let served = members.filter_map(|peer| {
            let at = self.states[peer].served()?;
            Some((self.peers[peer].label.clone(), at.clone()))
        });
        let (served, pages, events) = (served.collect(), master::pages(plan.ca())?, self.events.clone());
        tokio::spawn(master::watch(served, pages, async move |label| {
            // An error means that all peers have ended.
            events.send(Event::Master { node, label }).await.is_ok()
        }));
        Ok(())
    }

    fn ended(&mut self, peer: usize) -> Outcome {
        let how = self.processes[peer].take().and_then(|process| process.ended());
        let before = std::mem::replace(&mut self.states[peer], State::Ended);
        let label = &self.peers[peer].label;
        let fine = how.as_ref().is_some_and(ExitStatus::success);
        let how = how.map_or_else(|| "exit status unknown".to_owned(), |status| status.to_string());
        match before {
            State::Starting if self.stop.is_none() => {
                self.refused = Some(CliError::PeerDidNotStart { label: label.clone(), how });
                self.begin_to_stop();
                return Ok(());
            }
            _ if fine || self.is_killing => {}
            _ => self.failed.push(label.clone()),
        }
        if self.stop.is_some() {
            return if fine { Ok(()) } else { print(format_args!("{label} ended: {how}")) };
        }
        let left = self.states.iter().filter(|state| !matches!(state, State::Ended)).count();
        match left {
            0 => print(format_args!("{label} ended: {how}; it was the last peer")),
            _ => print(format_args!(
                "{label} ended: {how}; {left} still run. To restart it: {} --only {label}",
                self.again
            )),
        }
    }

    fn asked_to_stop(&mut self) -> Outcome {
        if self.stop.is_some() {
            self.kill();
            return print("killing");
        }
        self.begin_to_stop();
        print("stopping; press Ctrl-C again to kill the peers")
    }

    fn begin_to_stop(&mut self) {
        self.states.iter_mut().filter(|state| matches!(state, State::Waiting)).for_each(|state| *state = State::Ended);
        self.stop = Some(Instant::now() + tether::STOP_TIMEOUT);
        self.signal(Signal::TERM);
    }

    fn kill(&mut self) {
        self.is_killing = true;
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        self.processes.iter().flatten().for_each(|process| process.signal(signal));
    }

    fn out_of_patience(&mut self) -> Outcome {
        // A process that survives SIGKILL is waited for.
        self.stop = Some(Instant::now() + tether::STOP_TIMEOUT);
        if self.is_killing {
            return Ok(());
        }
        self.kill();
        let running = self.states.iter().zip(&self.peers).filter(|(state, _)| !matches!(state, State::Ended));
        let names: Vec<&str> = running.map(|(_, peer)| &*peer.label).collect();
        print(format_args!("{} did not stop within {} s: killing", names.join(", "), tether::STOP_TIMEOUT.as_secs()))
    }
}

#[cfg(test)]
mod tests;
