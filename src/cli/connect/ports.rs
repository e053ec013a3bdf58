//! Identifies the service at an address if it is not the expected one, because the ports of a server are easily
//! confused.

use std::time::Duration;

use leaseway_client::Channel;
use leaseway_proto::doorman::DiscoveryRequest;
use leaseway_proto::doorman::capacity_client::CapacityClient;
use leaseway_proto::pools::GetPoolRequest;
use leaseway_proto::pools::pools_client::PoolsClient;
use leaseway_proto::status::GetStatusRequest;
use leaseway_proto::status::status_client::StatusClient;
use tokio::time::timeout;
use tonic::{Code, Status};

use crate::{connect::pages::Pages, error::CliError};

/// The time limit of a probe.
const TIMEOUT: Duration = Duration::from_millis(500);

/// The service that a command needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Clients,
    /// `leaseway status`.
    Status,
    Admin,
}

impl Wanted {
    /// Where to find the service.
    fn where_to_ask(self) -> &'static str {
        match self {
            Wanted::Clients | Wanted::Status => "clients use --listen, 5100 by default",
            Wanted::Admin => {
                "operators use --admin, 5160 by default; a server without --data has an admin port only with --admin"
            }
        }
    }
}

/// The error for a port on which gRPC failed, if another protocol is recognized there.
pub(crate) async fn speaks_otherwise(address: &str, wanted: Wanted) -> Option<CliError> {
    let page = Pages::default().get(address, "/readyz", TIMEOUT, 1024).await?;
    let where_to_ask = wanted.where_to_ask();
    let what = if page.contains(SPEAKS_TLS) || page.starts_with(TLS_ALERT) {
        format!(
            "requires TLS: pass the file with its CA (--tls-ca), or write https:// if this system trusts the CA. If you \
meant another port: {where_to_ask}"
        )
    } else if page.starts_with("HTTP/1.") {
        let is_ours = page.contains("ready: ") || page.contains("t ready");
        let guess = if is_ours { "is" } else { "looks like" };
        format!("answers HTTP, not gRPC: this {guess} the --http port of a server; {where_to_ask}")
    } else {
        return None;
    };
    Some(CliError::WrongPort { address: address.to_owned(), what })
}

/// How a Leaseway server answers a client without TLS.
const SPEAKS_TLS: &str = "this server speaks TLS";

/// The first bytes of a TLS alert.
const TLS_ALERT: &str = "\u{15}\u{3}";

/// The error for a gRPC port without the service, if the port is recognized.
pub(crate) async fn serves_otherwise(address: &str, channel: Channel, wanted: Wanted) -> Option<CliError> {
    let clients = async {
        let asked = CapacityClient::new(channel.clone()).discovery(DiscoveryRequest {}).await;
        is_known(asked.map(drop))
    };
    let status = async {
        let request = GetStatusRequest { page_size: 1, ..GetStatusRequest::default() };
        is_known(StatusClient::new(channel.clone()).get_status(request).await.map(drop))
    };
    let admin = async {
        let asked = PoolsClient::new(channel.clone()).get_pool(GetPoolRequest::default()).await;
        is_known(asked.map(drop))
    };
    let found = timeout(TIMEOUT, async { (clients.await, status.await, admin.await) });
    let where_to_ask = wanted.where_to_ask();
    let what = match (found.await.ok()?, wanted) {
        ((true, true, _), Wanted::Admin) => format!("is the --listen port of a server, for clients; {where_to_ask}"),
        ((_, _, true), Wanted::Clients | Wanted::Status) => {
            format!("is the --admin port of a server, for operators; {where_to_ask}")
        }
        ((true, false, _), Wanted::Status) => {
            "grants capacity, but has no status service: this looks like a Doorman server; its status page is \
             /debug/status on its HTTP port"
                .to_owned()
        }
        ((true, false, _), Wanted::Admin) => {
            format!("grants capacity, but has no admin service: this looks like a Doorman server; {where_to_ask}")
        }
        ((false, false, false), _) => {
            format!(
                "speaks gRPC, but serves neither clients nor operators: perhaps the port of a peer, 5120 by default; \
                 {where_to_ask}"
            )
        }
        _ => return None,
    };
    Some(CliError::WrongPort { address: address.to_owned(), what })
}

/// Any answer except `Unimplemented` shows that the server has the service.
fn is_known(asked: Result<(), Status>) -> bool {
    asked.map_or_else(|status| status.code() != Code::Unimplemented, |()| true)
}
