//! Hand-made messages to a peer.

use leaseway_proto::peer::{PeerInfo, PeerRequest, PeerResponse};

use crate::{
    log::{
        codec::{self, FORMAT, Kind},
        directory::{Identity, read_one},
    },
    settings::Secret,
    tests::harness::cluster::{Cluster, SECRET},
    transport::{Method, client::Connection, proof::Prover},
};

pub(crate) fn identity(cluster: &Cluster, name: &str) -> Identity {
    read_one(&cluster.data(name).join("identity"), Kind::Identity).expect("it is readable").expect("it is there")
}

/// The info of a peer of this cluster.
pub(crate) fn peer_info(cluster: &Cluster, name: &str, peer: u64) -> PeerInfo {
    let cluster = identity(cluster, &cluster.names[0]).cluster.expect("it belongs to one");
    PeerInfo {
        format: u32::from(FORMAT),
        cluster: cluster.to_be_bytes().to_vec(),
        peer,
        name: name.to_owned(),
        advertise: String::new(),
        election_timeout_ms: 400,
        bootstraps: Vec::new(),
        take_over_ms: 0,
        backup: 0,
        incarnation: 0,
        started_with: None,
    }
}

/// Asks a peer for its vote.
pub(crate) async fn ask_for_vote(
    cluster: &Cluster,
    of: &str,
    to: u64,
    from: PeerInfo,
    vote: openraft::raft::VoteRequest<u64>,
) -> Result<openraft::raft::VoteResponse<u64>, tonic::Status> {
    let request = PeerRequest { from: Some(from), to, payload: codec::encode(&vote), proof: None };
    let answer = ask(cluster, of, SECRET, Method::Vote, request).await?;
    Ok(codec::decode(&answer.payload).expect("it decodes"))
}

/// Sends a request with a proof of this secret.
pub(crate) async fn ask(
    cluster: &Cluster,
    of: &str,
    secret: &str,
    method: Method,
    request: PeerRequest,
) -> Result<PeerResponse, tonic::Status> {
    let address = cluster.peer(of).local_addr().expect("it listens");
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}")).expect("an address");
    let connection = Connection::over(endpoint.connect().await.expect("it accepts"));
    let prover = Prover::new(Some(&Secret::new(secret)));
    let (answer, is_proven) = connection.ask(&prover, of, method, request).await?;
    assert!(is_proven, "the answer comes from a peer");
    Ok(answer)
}
