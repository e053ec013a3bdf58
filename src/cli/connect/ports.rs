//! What answers at an address when it is not what was asked for: the ports of a server are easily mistaken for each
//! other.

use std::time::Duration;

use leaseway_client::Channel;
use leaseway_proto::{
    doorman::{DiscoveryRequest, capacity_client::CapacityClient},
    pools::{GetPoolRequest, pools_client::PoolsClient},
    status::{GetStatusRequest, status_client::StatusClient},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tonic::{Code, Status};

use crate::error::CliError;

/// Finding out what is there takes no longer than this.
const TIMEOUT: Duration = Duration::from_millis(500);

/// What a command wanted to talk to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Clients,
    /// `leaseway status`.
    Status,
    Admin,
}

impl Wanted {
    /// Where it would be found.
    fn place(self) -> &'static str {
        match self {
            Wanted::Clients | Wanted::Status => "clients use --listen, 5100 by default",
            Wanted::Admin => {
                "operators use --admin, 5160 by default; a server without --data has one only if it is told so"
            }
        }
    }
}

/// What is wrong with a port on which gRPC broke, if it is the port: it speaks something else.
pub(crate) async fn speaks_otherwise(address: &str, wanted: Wanted) -> Option<CliError> {
    let first = timeout(TIMEOUT, first_words(address)).await.ok()??;
    let place = wanted.place();
    let what = match first.as_slice() {
        words if words.windows(SPEAKS_TLS.len()).any(|part| part == SPEAKS_TLS) => needs_tls(place),
        words if words.starts_with(b"HTTP/1.") => {
            let ours = words.windows(7).any(|part| part == b"ready: " || part == b"t ready");
            let guess = if ours {
                "this is the --http port of a server"
            } else {
                "this looks like the --http port of a server"
            };
            format!("answers HTTP, not gRPC: {guess}; {place}")
        }
        // A TLS alert.
        [0x15, 0x03, ..] => needs_tls(place),
        _ => return None,
    };
    Some(CliError::WrongPort { address: address.to_owned(), what })
}

/// What a server of ours says to a client that speaks no TLS.
const SPEAKS_TLS: &[u8] = b"this server speaks TLS";

fn needs_tls(place: &str) -> String {
    format!(
        "speaks TLS, and was asked without: name the file with its CA (--tls-ca), or write https:// if this system \
         trusts it. Otherwise it is another port; {place}"
    )
}

async fn first_words(address: &str) -> Option<Vec<u8>> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut words = Vec::new();
    // What is there after an error is as good.
    let _ = stream.take(1024).read_to_end(&mut words).await;
    Some(words)
}

/// What is wrong with a port whose gRPC does not know the service, if that can be told.
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
    let place = wanted.place();
    let what = match (found.await.ok()?, wanted) {
        ((true, true, _), Wanted::Admin) => format!("is the --listen port of a server, for clients; {place}"),
        ((_, _, true), Wanted::Clients | Wanted::Status) => {
            format!("is the --admin port of a server, for operators; {place}")
        }
        ((true, false, _), Wanted::Status) => {
            "grants capacity, but has no status to ask for: this looks like a Doorman server, which shows it as a page \
             at /debug/status of its HTTP port"
                .to_owned()
        }
        ((true, false, _), Wanted::Admin) => {
            format!("grants capacity and has nothing for operators: this looks like a Doorman server; {place}")
        }
        ((false, false, false), _) => {
            format!(
                "speaks gRPC, but is neither for clients nor for operators: perhaps the port of a peer, 5120 by \
                 custom; {place}"
            )
        }
        _ => return None,
    };
    Some(CliError::WrongPort { address: address.to_owned(), what })
}

/// Any answer will do: it knows the service.
fn is_known(asked: Result<(), Status>) -> bool {
    asked.map_or_else(|status| status.code() != Code::Unimplemented, |()| true)
}
