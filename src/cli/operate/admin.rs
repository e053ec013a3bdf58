//! Calls to the admin services of a peer. Calls that need the master follow redirects to it.

use std::path::PathBuf;

use leaseway_client::endpoint::Endpoint;
use leaseway_client::{Channel, Token, Transport, endpoint, tls_error};
use leaseway_proto::admin::node_client::NodeClient;
use leaseway_proto::admin::{MASTER_METADATA, PARENT_METADATA};
use leaseway_proto::pools::pools_client::PoolsClient;
use leaseway_server::config::MAX_BYTES;
use tonic::{Code, Response, Status};

use crate::connect::ports::Wanted;
use crate::connect::run_file::Found;
use crate::connect::search::{Attempt, Attempted, SearchLimits, search};
use crate::connect::{Security, Target, TimeLimit, connect, found, from_below, not_grpc, ports, refused, within};
use crate::error::{CliError, Port};

/// The default port of `--admin`.
const DEFAULT_PORT: u16 = 5160;

/// The overhead of a message that carries a configuration, in bytes.
const MESSAGE_OVERHEAD: usize = 64 << 10;

#[derive(clap::Args)]
pub(crate) struct AdminTarget {
    /// Admin addresses of the cluster. They are tried in order, and any of them redirects to the master [default: the
    /// peers of a running leaseway up, else 127.0.0.1:5160]
    #[arg(
        long,
        env = "LEASEWAY_ADMIN",
        value_delimiter = ',',
        value_parser = admin_endpoint,
        value_name = "HOST:PORT,…"
    )]
    admin: Vec<Endpoint>,
    /// File with the operators' token. Replaces --token-file
    #[arg(long, env = "LEASEWAY_ADMIN_TOKEN_FILE", value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    #[command(flatten)]
    limit: TimeLimit,
    #[command(flatten)]
    security: Security,
}

pub(crate) fn admin_endpoint(text: &str) -> Result<Endpoint, endpoint::BadEndpoint> {
    endpoint::read_with(text, DEFAULT_PORT)
}

/// The client of the service for configurations and peers.
pub(crate) type Client = NodeClient<Channel>;

/// The client of the service for pools.
pub(crate) type Pools = PoolsClient<Channel>;

impl AdminTarget {
    /// The admin address that a server reported, reached with the server's credentials.
    pub(crate) fn beside(target: &Target, address: &str, token: Option<PathBuf>) -> Result<AdminTarget, CliError> {
        let admin = admin_endpoint(address).map_err(|error| CliError::Client(error.to_string()))?;
        let (limit, security) = (target.limit.clone(), target.security_beside());
        Ok(AdminTarget { admin: vec![admin], admin_token_file: token, limit, security })
    }

    /// The addresses to ask, separated by commas.
    pub(crate) fn addresses(&self) -> String {
        found(Port::Operators, &self.admin).addresses.join(",")
    }

    fn transport(&self) -> Result<Transport, CliError> {
        match &self.admin_token_file {
            // May be sent without TLS: a server beyond loopback starts without TLS only with --insecure.
            Some(file) => {
                Ok(self.security.without_token(&self.admin)?.with_token(Token::file(file)?).with_clear_token())
            }
            None => self.security.transport(&self.admin),
        }
    }

    /// Makes an idempotent call to a peer, or to the master if the peer names it.
    pub(crate) async fn ask<T>(&self, ask: impl AsyncFn(Client) -> Result<Response<T>, Status>) -> Result<T, CliError> {
        self.ask_through(node_client, ask, true).await
    }

    /// Like [`ask`](Self::ask), for calls that must not be executed twice: they are not repeated once they may have
    /// been.
    pub(crate) async fn ask_once<T>(
        &self,
        ask: impl AsyncFn(Client) -> Result<Response<T>, Status>,
    ) -> Result<T, CliError> {
        self.ask_through(node_client, ask, false).await
    }

    /// Like [`ask`](Self::ask), for the service of pools.
    pub(crate) async fn ask_pools<T>(
        &self,
        ask: impl AsyncFn(Pools) -> Result<Response<T>, Status>,
    ) -> Result<T, CliError> {
        self.ask_through(PoolsClient::new, ask, true).await
    }

    /// `may_repeat`: the call is idempotent.
    async fn ask_through<C, T>(
        &self,
        client: impl Fn(Channel) -> C,
        ask: impl AsyncFn(C) -> Result<Response<T>, Status>,
        may_repeat: bool,
    ) -> Result<T, CliError> {
        let transport = self.transport()?;
        let Found { addresses, origin } = found(Port::Operators, &self.admin);
        let answer =
            search(&addresses, SearchLimits::of(self.limit.timeout), async |address: &str, attempt: Attempt| {
                let unreachable = |why| CliError::NoAdmin { address: address.to_owned(), why, origin: None };
                let channel = match connect(&transport, address, attempt).await {
                    Ok(channel) => channel,
                    Err(broken) => return broken.attempted(address, unreachable),
                };
                let limit = if may_repeat { attempt.patience } else { attempt.left };
                match within(limit, ask(client(channel.clone()))).await {
                    Ok(answer) => Attempted::Answer(answer.into_inner()),
                    Err(status) => failed(address, channel, &status, may_repeat).await,
                }
            });
        answer.await.map_err(|error| error.with_origin(origin))
    }

    /// Calls one address only.
    pub(crate) async fn ask_at<T>(
        &self,
        address: &str,
        ask: impl AsyncFn(Client) -> Result<Response<T>, Status>,
    ) -> Result<T, CliError> {
        let unreachable = |why| CliError::NoAdmin { address: address.to_owned(), why, origin: None };
        let limit = SearchLimits::of(self.limit.timeout).limit;
        let connected = connect(&self.transport()?, address, Attempt::within(limit)).await;
        let channel = connected.map_err(|broken| unreachable(broken.to_string()))?;
        ask(node_client(channel)).await.map(Response::into_inner).map_err(|status| explained(address, &status))
    }
}

fn node_client(channel: Channel) -> Client {
    NodeClient::new(channel).max_decoding_message_size(MAX_BYTES + MESSAGE_OVERHEAD)
}

/// The address of the master, if the status is a redirect.
fn master(status: &Status) -> Option<String> {
    if status.code() != Code::FailedPrecondition {
        return None;
    }
    let address = status.metadata().get(MASTER_METADATA)?.to_str().ok()?;
    (!address.is_empty()).then(|| address.to_owned())
}

/// Classifies an error.
async fn failed<T>(address: &str, channel: Channel, status: &Status, may_repeat: bool) -> Attempted<T> {
    if let Some(master) = master(status) {
        return Attempted::Elsewhere(master);
    }
    if let Some(why) = tls_error(status) {
        return Attempted::Never(CliError::Tls { address: address.to_owned(), why });
    }
    let wrong = match status.code() {
        _ if not_grpc(status).is_some() => ports::speaks_otherwise(address, Wanted::Admin).await,
        Code::Unimplemented => ports::serves_otherwise(address, channel, Wanted::Admin).await,
        _ => None,
    };
    match wrong.unwrap_or_else(|| explained(address, status)) {
        // The server refuses the call before it changes anything.
        error @ CliError::NoMasterNow { .. } if may_repeat || status.metadata().contains_key(MASTER_METADATA) => {
            Attempted::NotNow(error)
        }
        error @ CliError::CutOff { .. } if may_repeat => Attempted::NotNow(error),
        error => Attempted::Never(error),
    }
}

/// The error for a status, with advice if the message has none.
fn explained(address: &str, status: &Status) -> CliError {
    let (address, why) = (address.to_owned(), status.message().to_owned());
    if let Some(why) = from_below(status) {
        return CliError::CutOff { address, why };
    }
    match status.code() {
        Code::DeadlineExceeded | Code::Cancelled => CliError::CutOff { address, why },
        Code::FailedPrecondition if status.metadata().contains_key(PARENT_METADATA) => {
            CliError::HasParent { address, why }
        }
        Code::Unimplemented => CliError::NotAdmin { address },
        Code::Unauthenticated => CliError::WrongToken { address, why },
        Code::PermissionDenied => CliError::Denied { address, why },
        Code::FailedPrecondition | Code::Unavailable => CliError::NoMasterNow { address, why },
        _ => refused(&address, status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_peer_that_is_not_the_master_redirects() {
        let mut status = Status::failed_precondition("not the master");
        assert_eq!(master(&status), None);
        status.metadata_mut().insert(MASTER_METADATA, "127.0.0.1:5161".parse().expect("ASCII"));
        assert_eq!(master(&status).as_deref(), Some("127.0.0.1:5161"));
        let mut other = Status::aborted("version 4 is in force");
        other.metadata_mut().insert(MASTER_METADATA, "127.0.0.1:5161".parse().expect("ASCII"));
        assert_eq!(master(&other), None);
    }

    #[test]
    fn a_node_with_a_parent_is_told_from_one_without_a_master() {
        let mut status = Status::failed_precondition("it has a parent");
        status.metadata_mut().insert(PARENT_METADATA, "10.0.0.1:5100".parse().expect("ASCII"));
        assert!(matches!(explained("127.0.0.1:5160", &status), CliError::HasParent { .. }));
    }

    #[test]
    fn errors_say_what_to_do_next() {
        for (status, next) in [
            (Status::unimplemented(""), "--data"),
            (Status::unauthenticated("no token"), "--admin-token-file"),
            (Status::failed_precondition("another is master"), "peers list"),
            (Status::unavailable("there is no master; try again in a second"), "in a second"),
            (Status::aborted("version 4 is in force"), "version 4 is in force"),
        ] {
            let error = explained("127.0.0.1:5160", &status).to_string();
            assert!(error.contains(next) && error.contains("127.0.0.1:5160"), "{error}");
        }
    }
}
