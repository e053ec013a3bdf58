//! `leaseway peers` and `leaseway transfer`: the peers of a node, and which of them is the master.

use std::io::{self, IsTerminal as _};

use clap::{Args, Subcommand};
use leaseway_client::endpoint::{self, DEFAULT_PORT};
use leaseway_core::types::escaped;
use leaseway_proto::admin::{
    AddPeerRequest, ListPeersRequest, ListPeersResponse, PeerReport, RemovePeerRequest, Role, TransferMastershipRequest,
};
use serde_json::{Value, json};
use tonic::Code;

use crate::connect::block_on;
use crate::error::CliError;
use crate::operate::admin::{AdminTarget, Client};
use crate::output::{Output, note, number, print, progress, table};
use crate::{Outcome, output};

#[derive(Subcommand)]
pub(crate) enum PeersCommand {
    /// List peers, master and replication lag
    List(List),
    /// Add a running peer. If it does not run, prints the command to start it
    Add(Add),
    /// Remove a peer permanently
    Remove(Remove),
}

impl PeersCommand {
    pub(crate) fn run(self) -> Outcome {
        match self {
            PeersCommand::List(list) => list.run(),
            PeersCommand::Add(add) => block_on(add.run()),
            PeersCommand::Remove(remove) => block_on(remove.run()),
        }
    }
}

#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: AdminTarget,
}

impl List {
    fn run(self) -> Outcome {
        let answer = block_on(ask(&self.target))?;
        self.output.print(|| as_text(&answer), || as_json(&answer))
    }
}

/// Asks the master for the list, because all peers report to it. Without a master, asks the given peer.
async fn ask(target: &AdminTarget) -> Result<ListPeersResponse, CliError> {
    let list = async |mut client: Client| client.list_peers(ListPeersRequest {}).await;
    let answer = target.ask(list).await?;
    if answer.name == answer.master || answer.master_admin_address.is_empty() {
        return Ok(answer);
    }
    Ok(target.ask_at(&answer.master_admin_address, list).await.unwrap_or(answer))
}

fn as_text(answer: &ListPeersResponse) -> String {
    let heading = ["NAME", "ROLE", "RAFT TERM", "POSITION", "LAG", "LAST CONTACT", "PEERS AT", "CLIENTS AT"];
    let master = match answer.master.as_str() {
        "" => "no master at the moment".to_owned(),
        master => format!("{} is master", escaped(master)),
    };
    let (cluster, name) = (escaped(&answer.cluster_id), escaped(&answer.name));
    format!("cluster {cluster}, as {name} sees it: {master}\n\n{}", table(&heading, answer.peer.iter().map(row)))
}

fn row(peer: &PeerReport) -> Vec<String> {
    let contact = match peer.last_contact_ms {
        _ if peer.self_ => "(asked)".to_owned(),
        None => "never".to_owned(),
        Some(ms @ 0..1000) => format!("{ms} ms ago"),
        Some(ms) => format!("{} s ago", number((ms / 100) as f64 / 10.0)),
    };
    let clients = if peer.grpc_address.is_empty() { "-" } else { &peer.grpc_address };
    vec![
        peer.name.clone(),
        role(peer.role()).to_owned(),
        peer.term.to_string(),
        known(peer.log_position),
        known(peer.lag),
        contact,
        peer.peer_address.clone(),
        clients.to_owned(),
    ]
}

fn known(number: Option<u64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Unspecified => "unknown",
        Role::Master => "master",
        Role::Follower => "follower",
        Role::Learner => "learner",
        Role::Unreachable => "unreachable",
    }
}

pub(crate) fn as_json(answer: &ListPeersResponse) -> Value {
    let peer = |peer: &PeerReport| {
        json!({
            "name": peer.name, "role": role(peer.role()), "term": peer.term, "log_position": peer.log_position,
            "lag": peer.lag, "last_contact_ms": peer.last_contact_ms, "peer_address": peer.peer_address,
            "grpc_address": peer.grpc_address, "self": peer.self_,
        })
    };
    json!({
        "cluster_id": answer.cluster_id, "name": answer.name, "master": answer.master,
        "master_admin_address": answer.master_admin_address, "peers": answer.peer.iter().map(peer).collect::<Vec<_>>(),
    })
}

#[derive(Args)]
pub(crate) struct Add {
    /// Unique name of the peer
    name: String,
    /// Address of its peer listener [default port: 5120]
    #[arg(value_name = "HOST:PORT", value_parser = peer_endpoint)]
    address: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: AdminTarget,
}

impl Add {
    async fn run(self) -> Outcome {
        let Add { name, address, output, target } = &self;
        let peers = ask(target).await?;
        if let Some(other) = peers.peer.iter().find(|peer| peer.name != *name && peer.peer_address == *address) {
            let (host, offset) = (host(address), free_offset(name, host(address), &peers));
            return Err(CliError::Flags(format!(
                "{address} is already the address of peer `{}`: use another port, such as {host}:{}",
                escaped(&other.name),
                PEER_PORT + offset
            )));
        }
        let request = AddPeerRequest { name: name.clone(), address: address.clone() };
        let progress = progress("catching up");
        let added = target.ask_once(async |mut client| client.add_peer(request.clone()).await).await;
        drop(progress);
        match added {
            Ok(_) => {
                let text = || {
                    format!(
                        "{} is added, and votes as soon as it has caught up. Add it to --peers of the other peers at \
                         their next restart",
                        escaped(name)
                    )
                };
                output.print(text, || json!({ "added": name, "peer_address": address }))
            }
            Err(refused @ CliError::Refused { code: Code::Aborted, .. }) => {
                note(format_args!(
                    "A peer must be running to be added. If it is not, start it on its machine, and then try again:\n\n  {}\n\n\
                     Use an empty data directory, no --bootstrap, and the same --timing, --handover and --peer-secret-file as the other peers\n",
                    command(name, address, &peers)
                ));
                Err(refused)
            }
            Err(other) => Err(other),
        }
    }
}

/// The default port of peers. Several peers on one host use the following ports.
const PEER_PORT: u16 = 5120;

fn peer_endpoint(text: &str) -> Result<String, endpoint::BadEndpoint> {
    endpoint::parse_with(text, PEER_PORT)
}

fn host(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

/// An offset from the default ports that no listed peer on this host uses.
fn free_offset(name: &str, on: &str, peers: &ListPeersResponse) -> u16 {
    let others = peers.peer.iter().filter(|peer| peer.name != name);
    let used = others.flat_map(|peer| [(&peer.peer_address, PEER_PORT), (&peer.grpc_address, DEFAULT_PORT)]);
    let used = used.filter(|(address, _)| host(address) == on).filter_map(|(address, first)| {
        let port: u16 = address.rsplit_once(':')?.1.parse().ok()?;
        port.checked_sub(first).filter(|offset| *offset < MAX_OFFSET)
    });
    used.max().map_or(0, |offset| offset + 1)
}

/// Ports beyond this offset are not counted as offsets from the default port.
const MAX_OFFSET: u16 = 20;

/// The command that starts the new peer. It assumes that clients reach the host of the peer listener.
fn command(name: &str, address: &str, peers: &ListPeersResponse) -> String {
    let others = peers.peer.iter().filter(|peer| peer.name != name);
    let mut all: Vec<String> = others.map(|peer| format!("{}={}", peer.name, peer.peer_address)).collect();
    all.push(format!("{name}={address}"));
    let (host, offset) = (host(address), free_offset(name, host(address), peers));
    // The default admin address is port 5160 of loopback, which another peer on this host may use.
    let admin = if offset > 0 { format!(" --admin 127.0.0.1:{}", 5160 + offset) } else { String::new() };
    format!(
        "leaseway serve --id {name} --data ./leaseway-data/{name} --peers {} --listen {host}:{} --http {host}:{}{admin}",
        all.join(","),
        DEFAULT_PORT + offset,
        5150 + offset
    )
}

#[derive(Args)]
pub(crate) struct Remove {
    /// Name of the peer
    name: String,
    /// Skip the confirmation. Required without a terminal and with -o json
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: AdminTarget,
}

impl Remove {
    async fn run(self) -> Outcome {
        self.obtain_consent().await?;
        let request = RemovePeerRequest { name: self.name.clone() };
        self.target.ask_once(async |mut client| client.remove_peer(request.clone()).await).await?;
        let text = || {
            format!(
                "{} is removed: stop it if it still runs, delete its data directory, and remove it from --peers of the \
                 other peers at their next restart",
                escaped(&self.name)
            )
        };
        self.output.print(text, || json!({ "removed": self.name }))
    }

    /// Asks at a terminal, and shows how many peers may fail afterwards.
    async fn obtain_consent(&self) -> Outcome {
        if self.yes {
            return Ok(());
        }
        if self.output.is_json() || !io::stdout().is_terminal() {
            return Err(CliError::NotConfirmed);
        }
        let peers = ask(&self.target).await?;
        print(left_without(&self.name, &peers))?;
        output::confirm("remove it permanently? [y/N] ")
    }
}

/// The effect of a removal.
fn left_without(name: &str, peers: &ListPeersResponse) -> String {
    let voters = peers.peer.iter().filter(|peer| peer.name != name && peer.role() != Role::Learner).count();
    let may_fail = voters.saturating_sub(1) / 2;
    let warning = if may_fail == 0 { "; while one of them is down, no leases are granted" } else { "" };
    format!("without {} there are {voters} voting peers, of which {may_fail} may fail{warning}", escaped(name))
}

#[derive(Args)]
#[command(after_help = "\
Clients keep their leases. A master that is stopped (SIGTERM) transfers mastership by itself. For a rolling restart,
restart the other peers first, then transfer mastership to one of them and restart the former master.")]
pub(crate) struct Transfer {
    /// Name of the new master [default: the most up-to-date peer]
    peer: Option<String>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: AdminTarget,
}

impl Transfer {
    pub(crate) fn run(self) -> Outcome {
        let request = TransferMastershipRequest { to: self.peer.unwrap_or_default() };
        let transfer = async |mut client: Client| client.transfer_mastership(request.clone()).await;
        let answer = block_on(self.target.ask_once(transfer))?;
        let text = || {
            let (master, clients) = (escaped(&answer.master), escaped(&answer.master_grpc_address));
            format!(
                "{master} is the master now, after {} ms without one; its client address is {clients}",
                answer.took_ms
            )
        };
        let json = || {
            json!({
                "master": answer.master, "master_grpc_address": answer.master_grpc_address,
                "master_admin_address": answer.master_admin_address, "took_ms": answer.took_ms,
            })
        };
        self.output.print(text, json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> ListPeersResponse {
        let peer = |name: &str, port, role: Role, last_contact_ms| PeerReport {
            name: name.into(),
            peer_address: format!("127.0.0.1:{port}"),
            grpc_address: format!("127.0.0.1:{}", port - 20),
            role: role.into(),
            term: 3,
            log_position: (role != Role::Unreachable).then_some(120),
            lag: match role {
                Role::Master => Some(0),
                Role::Unreachable => None,
                _ => Some(2),
            },
            last_contact_ms,
            self_: last_contact_ms.is_none() && role == Role::Master,
        };
        ListPeersResponse {
            cluster_id: "5a".into(),
            name: "a".into(),
            master: "a".into(),
            master_admin_address: "127.0.0.1:5160".into(),
            peer: vec![
                peer("a", 5120, Role::Master, None),
                peer("b", 5121, Role::Follower, Some(40)),
                PeerReport { grpc_address: String::new(), ..peer("c", 5122, Role::Unreachable, None) },
                peer("d", 5123, Role::Learner, Some(12_345)),
            ],
        }
    }

    #[test]
    fn the_list_shows_each_peers_role() {
        assert_eq!(
            as_text(&answer()),
            "cluster 5a, as a sees it: a is master\n\n\
             NAME         ROLE  RAFT TERM  POSITION  LAG  LAST CONTACT        PEERS AT      CLIENTS AT\n\
             a          master          3       120    0       (asked)  127.0.0.1:5120  127.0.0.1:5100\n\
             b        follower          3       120    2     40 ms ago  127.0.0.1:5121  127.0.0.1:5101\n\
             c     unreachable          3         -    -         never  127.0.0.1:5122               -\n\
             d         learner          3       120    2    12.3 s ago  127.0.0.1:5123  127.0.0.1:5103"
        );
        let without_master = ListPeersResponse { master: String::new(), ..answer() };
        assert!(as_text(&without_master).starts_with("cluster 5a, as a sees it: no master at the moment\n"));
    }

    #[test]
    fn the_start_command_of_a_new_peer_names_every_peer_once() {
        let expected = "leaseway serve --id e --data ./leaseway-data/e --peers \
            a=127.0.0.1:5120,b=127.0.0.1:5121,c=127.0.0.1:5122,d=127.0.0.1:5123,e=10.0.0.5:5120 \
            --listen 10.0.0.5:5100 --http 10.0.0.5:5150";
        assert_eq!(command("e", "10.0.0.5:5120", &answer()), expected);
        assert_eq!(command("d", "10.0.0.5:5120", &answer()).matches("d=").count(), 1, "it may be listed already");
    }

    #[test]
    fn the_start_command_of_a_new_peer_avoids_used_ports() {
        let said = command("e", "127.0.0.1:5124", &answer());
        let ports = "--listen 127.0.0.1:5104 --http 127.0.0.1:5154 --admin 127.0.0.1:5164";
        assert!(said.ends_with(ports), "{said}");
        assert_eq!(peer_endpoint("127.0.0.1").as_deref(), Ok("127.0.0.1:5120"));
        assert!(peer_endpoint("127.0.0.1:port").is_err());
    }

    #[test]
    fn the_confirmation_of_a_removal_shows_how_many_peers_may_fail() {
        assert_eq!(left_without("d", &answer()), "without d there are 3 voting peers, of which 1 may fail");
        let two = left_without("c", &answer());
        assert_eq!(
            two,
            "without c there are 2 voting peers, of which 0 may fail; while one of them is down, no leases are granted"
        );
    }
}
