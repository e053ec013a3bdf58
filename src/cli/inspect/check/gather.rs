//! Observes the servers of a node, and of the nodes above it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use leaseway_proto::admin::{ListPeersRequest, ListPeersResponse};
use leaseway_proto::status::{GetStatusRequest, GetStatusResponse, Resource};
use leaseway_server::checkup::{NodeObservation, Observation, PeersObservation, ServerObservation};
use tokio::time::{Instant, sleep};

use crate::connect::{Observed, Target, get_status, within};
use crate::error::CliError;
use crate::operate::admin::AdminTarget;

/// The maximum depth of a tree, in case parents name each other.
const LEVELS: usize = 16;
/// The maximum number of servers to ask per node.
const MAX_SERVERS: usize = 64;
/// Page size in rows.
const PAGE: u32 = 1000;
/// The maximum number of resources to read.
const MAX_RESOURCES: usize = 100_000;
/// The pause before a node without a master is asked again: an election may be under way.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Observes the target's node, then its parent, and so on. Fails if no server of the first node answers.
pub(super) async fn gather(target: &Target, admin_token: Option<&PathBuf>) -> Result<Observation, CliError> {
    let mut seen = Observation { nodes: Vec::new(), unix: (unix_ms() / 1000) as i64 };
    let (mut above, mut known) = (None, BTreeSet::new());
    while seen.nodes.len() < LEVELS {
        let target = above.as_ref().unwrap_or(target);
        let (node, first_error) = settled(target, admin_token).await;
        if seen.nodes.is_empty()
            && let Some(error) = first_error
        {
            return Err(error);
        }
        let next = node.statuses().find_map(|(_, status)| status.uplink.as_ref()).map(|uplink| uplink.parent.clone());
        seen.nodes.push(node);
        let Some(parent) = next.filter(|parent| known.insert(parent.clone())) else { break };
        above = Some(target.with_servers(&parent)?);
    }
    Ok(seen)
}

/// Observes a node once it has a master, or when time is up. Returns an error if no server answers.
async fn settled(target: &Target, admin_token: Option<&PathBuf>) -> (NodeObservation, Option<CliError>) {
    let begun = Instant::now();
    loop {
        let (node, error) = look(target, admin_token).await;
        let is_over = begun.elapsed() + RETRY_DELAY >= target.timeout();
        if node.master().is_some() || error.is_some() || is_over {
            return (node, error);
        }
        sleep(RETRY_DELAY).await;
    }
}

/// Observes the given servers, the master that they name, and the peers that it lists.
async fn look(target: &Target, admin_token: Option<&PathBuf>) -> (NodeObservation, Option<CliError>) {
    let mut node = NodeObservation { name: target.addresses().join(","), ..NodeObservation::default() };
    let mut error = ask_all(target, &mut node.servers, target.addresses()).await;
    let masters: Vec<String> = node.statuses().map(|(_, status)| status.master_address.clone()).collect();
    ask_all(target, &mut node.servers, masters).await;
    node.peers = peers(target, admin_token, &node).await;
    if let PeersObservation::Listed(list) = &node.peers {
        let addresses = list.peer.iter().map(|peer| peer.grpc_address.clone()).collect();
        ask_all(target, &mut node.servers, addresses).await;
    }
    let called = node.statuses().map(|(_, status)| status.uplink.as_ref().map(|uplink| uplink.node.clone())).next();
    if let Some(called) = called {
        error = None;
        node.name = called.unwrap_or(node.name);
    }
    (node, error)
}

/// Asks the servers not asked yet, concurrently. Returns the first error.
async fn ask_all(target: &Target, servers: &mut Vec<ServerObservation>, addresses: Vec<String>) -> Option<CliError> {
    let is_known = |address: &str| {
        servers.iter().any(|server| {
            let advertised =
                server.answer.as_ref().ok().filter(|status| status.is_master).map(|status| &*status.master_address);
            server.address == address || advertised == Some(address)
        })
    };
    let room = MAX_SERVERS.saturating_sub(servers.len());
    let new: BTreeSet<String> = addresses.into_iter().filter(|at| !at.is_empty() && !is_known(at)).take(room).collect();
    let mut first = None;
    for (address, answer) in join_all(new.into_iter().map(|address| ask(target, address))).await {
        let (answer, clock_ms) = match answer {
            Ok((status, clock)) => (Ok(status), clock),
            Err(error) => {
                let why = error.brief();
                first.get_or_insert(error);
                (Err(why), None)
            }
        };
        servers.push(ServerObservation { address, answer, clock_ms });
    }
    first
}

type Answer = Result<(GetStatusResponse, Option<(i64, u64)>), CliError>;

/// The status of one server; of the master with all its resources.
async fn ask(target: &Target, address: String) -> (String, Answer) {
    let asked = async {
        let request = GetStatusRequest { page_size: PAGE, ..GetStatusRequest::default() };
        let Observed { mut status, channel, .. } = target.observe_at(&address, &request).await?;
        while !status.next_page_token.is_empty() && status.resources.len() < MAX_RESOURCES {
            let page_token = std::mem::take(&mut status.next_page_token);
            let next = get_status(&channel, GetStatusRequest { page_token, ..request.clone() });
            // The resources on missing pages are not checked.
            let Ok(next) = within(target.timeout(), next).await else { break };
            status.resources.extend(next.resources);
            status.next_page_token = next.next_page_token;
        }
        name_gateways(target, &channel, &mut status).await;
        let clock = clock(target, &channel).await;
        Ok((status, clock))
    };
    let answer = Box::pin(asked).await;
    (address, answer)
}

/// Adds the holders of the resource of which one gateway holds the largest part, as far as the totals tell.
async fn name_gateways(target: &Target, channel: &leaseway_client::Channel, status: &mut GetStatusResponse) {
    let share = |resource: &Resource| resource.held_by_gateways / resource.gateways as f64 / resource.capacity;
    let leased = status.resources.iter_mut().filter(|resource| resource.gateways > 0);
    let Some(largest) = leased.max_by(|one, other| share(one).total_cmp(&share(other))) else { return };
    let request =
        GetStatusRequest { resource_id: largest.resource_id.clone(), page_size: PAGE, ..GetStatusRequest::default() };
    if let Ok(answer) = within(target.timeout(), get_status(channel, request)).await
        && let Some(named) = answer.resources.into_iter().next()
    {
        largest.holder = named.holder;
    }
}

/// The offset of a server's clock and its uncertainty in milliseconds, from a short call on an open connection.
async fn clock(target: &Target, channel: &leaseway_client::Channel) -> Option<(i64, u64)> {
    let request = GetStatusRequest { page_size: 1, ..GetStatusRequest::default() };
    let (before, begun) = (unix_ms(), Instant::now());
    let status = within(target.timeout(), get_status(channel, request)).await.ok()?;
    let half = begun.elapsed().as_millis() as u64 / 2;
    let theirs = status.health?.unix_ms;
    Some((theirs.wrapping_sub(before.saturating_add(half)) as i64, half + 1))
}

/// The peers as listed by the master, because all of them report to it; else as listed by another server.
async fn peers(target: &Target, admin_token: Option<&PathBuf>, node: &NodeObservation) -> PeersObservation {
    let mut statuses: Vec<_> = node.statuses().map(|(_, status)| status).collect();
    statuses.sort_by_key(|status| !status.is_master);
    let mut seen = PeersObservation::Alone;
    for status in statuses {
        let Some(health) = &status.health else {
            seen = PeersObservation::Unknown(
                "its admin address is visible only to callers that may read all resources".into(),
            );
            continue;
        };
        if health.admin_address.is_empty() {
            continue;
        }
        match list(target, admin_token, &health.admin_address).await {
            Ok(list) => return PeersObservation::Listed(list),
            // A server with --admin but without --data has an admin address and no peers.
            Err(CliError::NotAdmin { .. }) => {}
            Err(error) => seen = PeersObservation::Unknown(error.to_string()),
        }
    }
    seen
}

async fn list(target: &Target, admin_token: Option<&PathBuf>, address: &str) -> Result<ListPeersResponse, CliError> {
    let admin = AdminTarget::beside(target, address, admin_token.cloned())?;
    admin.ask_at(address, async |mut client| client.list_peers(ListPeersRequest {}).await).await
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}
