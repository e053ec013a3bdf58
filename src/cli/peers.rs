//! `leaseway peers`.

use clap::{Args, Subcommand};
use leaseway_core::escaped;
use leaseway_proto::admin::{AddPeerRequest, ListPeersRequest, ListPeersResponse, PeerReport, RemovePeerRequest, Role};
use serde_json::{Value, json};
use tonic::Code;

use crate::{
    Outcome,
    admin::{AdminTarget, Client},
    connect::block_on,
    error::CliError,
    format::number,
    output::{Output, note, progress, table},
};

#[derive(Subcommand)]
pub(crate) enum PeersCommand {
    /// Shows the peers, the master, and how far each lags behind, as the peer that is asked sees it
    List(List),
    /// Lets a peer in that has been started; says how to start it if it has not
    Add(Add),
    /// Sends a peer away for good
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

/// Shows the peers, the master, and how far each lags behind, as the peer that is asked sees it.
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

/// As the master sees them, since it hears from all; if it cannot be asked, as the peer at hand does.
async fn ask(target: &AdminTarget) -> Result<ListPeersResponse, CliError> {
    let list = async |mut client: Client| client.list_peers(ListPeersRequest {}).await;
    let answer = target.ask(list).await?;
    if answer.name == answer.master || answer.master_admin_address.is_empty() {
        return Ok(answer);
    }
    Ok(target.ask_at(&answer.master_admin_address, list).await.unwrap_or(answer))
}

fn as_text(answer: &ListPeersResponse) -> String {
    let heading = ["NAME", "ROLE", "TERM", "POSITION", "LAG", "LAST CONTACT", "PEERS AT", "CLIENTS AT"];
    let heading = heading.map(str::to_owned).to_vec();
    let rows: Vec<_> = std::iter::once(heading).chain(answer.peer.iter().map(row)).collect();
    let master = match answer.master.as_str() {
        "" => "no master at the moment".to_owned(),
        master => format!("{} is master", escaped(master)),
    };
    let (cluster, name) = (escaped(&answer.cluster_id), escaped(&answer.name));
    format!("cluster {cluster}, as {name} sees it: {master}\n\n{}", table(&rows))
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

/// Lets a peer in that has been started with an empty directory. It learns first, and votes once it has caught up.
#[derive(Args)]
pub(crate) struct Add {
    /// What it is called; no other peer is
    name: String,
    /// Where its peers will reach it: its peer listener
    #[arg(value_name = "HOST:PORT")]
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
        let request = AddPeerRequest { name: name.clone(), address: address.clone() };
        let added = target.ask_once(async |mut client| {
            let request = request.clone();
            client.add_peer(request).await
        });
        let progress = progress("it gets what the others have");
        let added = added.await;
        drop(progress);
        match added {
            Ok(_) => {
                let text = || {
                    format!(
                        "{} is let in, and votes as soon as it has caught up. Name it in the --peers of the others \
                         when they are next started",
                        escaped(name)
                    )
                };
                output.print(text, || json!({ "added": name, "peer_address": address }))
            }
            Err(refused @ CliError::Refused { code: Code::Aborted, .. }) => {
                note(format_args!(
                    "A peer must run to be let in. If it does not, start it there, and then try again:\n\n  {}\n\n\
                     with an empty directory, without --bootstrap, and with the --timing, --handover and --peer-secret-file of the others\n",
                    command(name, address, &peers)
                ));
                Err(refused)
            }
            Err(other) => Err(other),
        }
    }
}

/// What to start on the new machine. Where clients and operators reach it is for it to say; beside its peer listener is
/// a good place.
fn command(name: &str, address: &str, peers: &ListPeersResponse) -> String {
    let others = peers.peer.iter().filter(|peer| peer.name != name);
    let mut all: Vec<String> = others.map(|peer| format!("{}={}", peer.name, peer.peer_address)).collect();
    all.push(format!("{name}={address}"));
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    format!(
        "leaseway serve --id {name} --data ./leaseway-data/{name} --peers {} --listen {host}:5100 --http {host}:5150",
        all.join(",")
    )
}

/// Sends a peer away for good: it has no vote any more, and does not come back by itself.
#[derive(Args)]
pub(crate) struct Remove {
    /// Which
    name: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    target: AdminTarget,
}

impl Remove {
    async fn run(self) -> Outcome {
        let request = RemovePeerRequest { name: self.name.clone() };
        self.target
            .ask_once(async |mut client| {
                let request = request.clone();
                client.remove_peer(request).await
            })
            .await?;
        let text = || {
            format!(
                "{} is a peer no more: stop it if it still runs, delete its data directory, and take it out of the \
                 --peers of the others when they are next started",
                escaped(&self.name)
            )
        };
        self.output.print(text, || json!({ "removed": self.name }))
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
             NAME         ROLE  TERM  POSITION  LAG  LAST CONTACT        PEERS AT      CLIENTS AT\n\
             a          master     3       120    0       (asked)  127.0.0.1:5120  127.0.0.1:5100\n\
             b        follower     3       120    2     40 ms ago  127.0.0.1:5121  127.0.0.1:5101\n\
             c     unreachable     3         -    -         never  127.0.0.1:5122               -\n\
             d         learner     3       120    2    12.3 s ago  127.0.0.1:5123  127.0.0.1:5103"
        );
        let without_master = ListPeersResponse { master: String::new(), ..answer() };
        assert!(as_text(&without_master).starts_with("cluster 5a, as a sees it: no master at the moment\n"));
    }

    #[test]
    fn json_has_everything() {
        let json = as_json(&answer());
        assert_eq!(json["master"], "a");
        assert_eq!(json["peers"][0]["self"], true);
        assert_eq!(json["peers"][1]["last_contact_ms"], 40);
        assert_eq!(json["peers"][2]["last_contact_ms"], Value::Null);
        assert_eq!(json["peers"][3]["role"], "learner");
    }

    #[test]
    fn a_new_peer_is_started_with_all_peers_named_once() {
        let expected = "leaseway serve --id e --data ./leaseway-data/e --peers \
            a=127.0.0.1:5120,b=127.0.0.1:5121,c=127.0.0.1:5122,d=127.0.0.1:5123,e=10.0.0.5:5120 \
            --listen 10.0.0.5:5100 --http 10.0.0.5:5150";
        assert_eq!(command("e", "10.0.0.5:5120", &answer()), expected);
        assert_eq!(command("d", "10.0.0.5:5120", &answer()).matches("d=").count(), 1, "it may be listed already");
    }
}
