//! All peers of a plan as processes, from their start until the last has ended.

use std::{net::TcpListener, path::Path, process::ExitStatus, time::Duration};

use leaseway_proto::doorman::{DiscoveryRequest, capacity_client::CapacityClient};
use leaseway_server::StopSignals;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, sleep_until},
};

use super::{
    data,
    lines::Speaker,
    plan::{PeerPlan, Plan},
    process::{self, Event, Order, Served},
    tether,
};
use crate::{
    Outcome,
    connect::connect,
    error::CliError,
    output::{say, table},
};

const LOOK_FOR_MASTER_EVERY: Duration = Duration::from_millis(100);
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// Before anything is started or deleted: whether every port can be had. All that cannot are told at once.
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

/// Runs until all have ended; SIGTERM and Ctrl-C stop them. `again` is the command that starts a peer once more, without its
/// name.
pub(super) async fn run(plan: &Plan, again: &str) -> Outcome {
    // Before there is anything to stop.
    let mut signals = StopSignals::new().map_err(CliError::Runtime)?;
    let program = std::env::current_exe().map_err(CliError::Runtime)?;
    supervise(plan, &program, again, async || signals.received().await).await
}

/// Each time `stop` is through somebody wants them to stop.
async fn supervise(plan: &Plan, program: &Path, again: &str, mut stop: impl AsyncFnMut()) -> Outcome {
    let peers: Vec<&PeerPlan> = plan.peers().collect();
    let width = peers.iter().map(|peer| peer.label.len()).max().unwrap_or_default();
    // Each peer becomes ready once and ends once, each node gets a master once.
    let (events, mut arrived) = mpsc::channel(3 * peers.len());
    let (order, orders) = watch::channel(Order::Run);
    for (index, peer) in peers.iter().enumerate() {
        let speaker = Speaker { index, label: peer.label.clone(), width };
        process::start(program, peer, speaker, events.clone(), orders.clone())?;
    }
    let mut set =
        Set { plan, peers, again, events, order, states: Vec::new(), stop: None, refused: None, failed: Vec::new() };
    set.states.resize_with(set.peers.len(), || State::Starting);
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
    Starting,
    Ready(Served),
    Ended,
}

/// The processes, and how things stand.
struct Set<'p> {
    plan: &'p Plan,
    peers: Vec<&'p PeerPlan>,
    again: &'p str,
    events: mpsc::Sender<Event>,
    order: watch::Sender<Order>,
    states: Vec<State>,
    /// They are stopping; those that run then are killed.
    stop: Option<Instant>,
    /// Why they could not all be started.
    refused: Option<CliError>,
    failed: Vec<String>,
}

impl Set<'_> {
    fn take(&mut self, event: Event) -> Outcome {
        match event {
            Event::Ready { peer, at } => {
                self.states[peer] = State::Ready(at);
                if self.stop.is_none() && self.states.iter().all(|state| matches!(state, State::Ready(_))) {
                    self.introduce()?;
                }
                Ok(())
            }
            Event::Ended { peer, how } => self.ended(peer, how),
            Event::Master { node, label } => {
                data::founded(&self.plan.nodes[node].directory);
                say(format_args!("{label} is master"))
            }
        }
    }

    fn ended(&mut self, peer: usize, how: std::io::Result<ExitStatus>) -> Outcome {
        let before = std::mem::replace(&mut self.states[peer], State::Ended);
        let label = &self.peers[peer].label;
        let died = *self.order.borrow() == Order::Die;
        let fine = how.as_ref().is_ok_and(ExitStatus::success);
        let how = how.map_or_else(|error| error.to_string(), |status| status.to_string());
        match before {
            State::Starting if self.stop.is_none() => {
                self.refused = Some(CliError::PeerDidNotStart { label: label.clone(), how });
                self.begin_to_stop();
                return Ok(());
            }
            _ if fine || died => {}
            _ => self.failed.push(label.clone()),
        }
        if self.stop.is_some() {
            return if fine { Ok(()) } else { say(format_args!("{label} ended: {how}")) };
        }
        let left = self.states.iter().filter(|state| !matches!(state, State::Ended)).count();
        match left {
            0 => say(format_args!("{label} ended: {how}; it was the last")),
            _ => say(format_args!(
                "{label} ended: {how}; {left} go on. To start it again: {} --only {label}",
                self.again
            )),
        }
    }

    fn asked_to_stop(&mut self) -> Outcome {
        if self.stop.is_some() {
            self.order.send_replace(Order::Die);
            return say("killing");
        }
        self.begin_to_stop();
        say("stopping (once more kills)")
    }

    fn begin_to_stop(&mut self) {
        self.stop = Some(Instant::now() + tether::PATIENCE);
        self.order.send_replace(Order::Stop);
    }

    fn out_of_patience(&mut self) -> Outcome {
        // Whoever survives that has been told all there is to tell.
        self.stop = Some(Instant::now() + tether::PATIENCE);
        if self.order.send_replace(Order::Die) == Order::Die {
            return Ok(());
        }
        let running = self.states.iter().zip(&self.peers).filter(|(state, _)| !matches!(state, State::Ended));
        let names: Vec<&str> = running.map(|(_, peer)| &*peer.label).collect();
        say(format_args!("{} did not stop for {} s: killing", names.join(", "), tether::PATIENCE.as_secs()))
    }

    /// All serve: where to look. And who is master, as soon as somebody is.
    fn introduce(&self) -> Outcome {
        let mut rows = vec![["PEER", "CLIENTS (gRPC)", "PAGES (HTTP)", "ADMIN"].map(str::to_owned).to_vec()];
        let mut first = None;
        for (state, peer) in self.states.iter().zip(&self.peers) {
            if let State::Ready(at) = state {
                rows.push(vec![peer.label.clone(), at.grpc.clone(), format!("http://{}", at.http), at.admin.clone()]);
                first = first.or(Some(at));
            }
        }
        let hints = first.map(hints).unwrap_or_default();
        say(format_args!("\n{}\n\n{hints}\nCtrl-C stops {}\n", table(&rows), all(self.peers.len())))?;
        let mut index = 0;
        for (node, plan) in self.plan.nodes.iter().enumerate() {
            let states = &self.states[index..index + plan.peers.len()];
            index += plan.peers.len();
            let most = plan.size / 2 + 1;
            if plan.peers.len() < most {
                let (count, size) = (plan.peers.len(), plan.size);
                say(format_args!("{count} of {size} peers run here; there is a master only while {most} run"))?;
            }
            let served = states.iter().zip(&plan.peers).filter_map(|(state, peer)| match state {
                State::Ready(at) => Some((peer.label.clone(), at.grpc.clone())),
                State::Starting | State::Ended => None,
            });
            tokio::spawn(look_for_master(node, served.collect(), self.events.clone()));
        }
        Ok(())
    }
}

fn all(count: usize) -> String {
    if count == 1 { "it".to_owned() } else { format!("all {count}") }
}

/// Commands that show what this is about. What is the default need not be said.
fn hints(at: &Served) -> String {
    let server = if at.grpc == "127.0.0.1:5100" { String::new() } else { format!(" --server {}", at.grpc) };
    let admin = if at.admin == "127.0.0.1:5160" { String::new() } else { format!(" --admin {}", at.admin) };
    format!(
        "  leaseway get alice mysql 40{server}\n  leaseway status{server}\n  leaseway shell{server}\n  leaseway peers list{admin}\n"
    )
}

/// Until one of the peers says that it is master. It is one started elsewhere, perhaps: then it is named by its address.
async fn look_for_master(node: usize, peers: Vec<(String, String)>, events: mpsc::Sender<Event>) {
    loop {
        for (label, grpc) in &peers {
            let Some(master) = master_according_to(grpc).await else { continue };
            let known = peers.iter().find(|(_, grpc)| *grpc == master);
            let label = match known {
                Some((label, _)) => label.clone(),
                None if master == *grpc => label.clone(),
                None => format!("the peer at {master}"),
            };
            // An error means that all have ended.
            let _ = events.send(Event::Master { node, label }).await;
            return;
        }
        sleep(LOOK_FOR_MASTER_EVERY).await;
    }
}

async fn master_according_to(grpc: &str) -> Option<String> {
    let channel = connect(grpc, ANSWER_WITHIN).await.ok()?.ok()?;
    let answer = CapacityClient::new(channel).discovery(DiscoveryRequest {}).await.ok()?.into_inner();
    match answer.is_master {
        Some(true) => Some(grpc.to_owned()),
        _ => answer.mastership.and_then(|mastership| mastership.master_address).filter(|address| !address.is_empty()),
    }
}

#[cfg(test)]
mod tests;
