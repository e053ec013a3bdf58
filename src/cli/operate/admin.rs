//! Calls to the admin service of a peer, with a token if one is set, and to the master where it is needed.

use std::{path::PathBuf, time::Duration};

use leaseway_client::{
    Channel, Token, Transport,
    endpoint::{self, Endpoint},
    tls_error,
};
use leaseway_proto::{
    admin::{MASTER_METADATA, PARENT_METADATA, node_client::NodeClient},
    pools::pools_client::PoolsClient,
};
use leaseway_server::config::MAX_BYTES;
use tonic::{Code, Response, Status};

use crate::{
    connect::{
        Security, Target, TimeLimit, connect, found, from_below, not_grpc,
        ports::{self, Wanted},
        refused,
        run_file::Found,
        search::{Attempt, Attempted, Patience, search},
        within,
    },
    error::{CliError, address_source::Port},
};

/// Where operators are served if no port is named: the default of `--admin`.
const DEFAULT_PORT: u16 = 5160;

/// The framing of a configuration on the wire, in bytes.
const MESSAGE_OVERHEAD: usize = 64 << 10;

/// Where to find a peer's admin address.
#[derive(clap::Args)]
pub(crate) struct AdminTarget {
    /// The admin address of any peer of the node; what needs the master finds it from there. Several, with commas:
    /// where one cannot answer the next is asked [default: the peers of a running leaseway up, else 127.0.0.1:5160]
    #[arg(
        long,
        env = "LEASEWAY_ADMIN",
        value_delimiter = ',',
        value_parser = admin_endpoint,
        value_name = "HOST:PORT,…"
    )]
    admin: Vec<Endpoint>,
    /// A file with the token that the peers were started with; instead of --token-file
    #[arg(long, env = "LEASEWAY_ADMIN_TOKEN_FILE", value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    #[command(flatten)]
    limit: TimeLimit,
    #[command(flatten)]
    security: Security,
}

fn admin_endpoint(text: &str) -> Result<Endpoint, endpoint::BadEndpoint> {
    endpoint::read_with(text, DEFAULT_PORT)
}

/// Asks about configurations and peers.
pub(crate) type Client = NodeClient<Channel>;

/// Asks about pools.
pub(crate) type Pools = PoolsClient<Channel>;

impl AdminTarget {
    /// The admin address that a server has told, reached as the server was.
    pub(crate) fn beside(target: &Target, address: &str, token: Option<PathBuf>) -> Result<AdminTarget, CliError> {
        let admin = admin_endpoint(address).map_err(|error| CliError::Client(error.to_string()))?;
        let (limit, security) = (target.limit.clone(), target.security_beside());
        Ok(AdminTarget { admin: vec![admin], admin_token_file: token, limit, security })
    }

    /// Where to ask, with commas.
    pub(crate) fn addresses(&self) -> String {
        found(Port::Operators, &self.admin).addresses.join(",")
    }

    /// How they are reached.
    fn transport(&self) -> Result<Transport, CliError> {
        match &self.admin_token_file {
            // It is sent without TLS, too: a server beyond this machine would not start with it otherwise.
            Some(file) => {
                Ok(self.security.without_token(&self.admin)?.with_token(Token::file(file)?).with_clear_token())
            }
            None => self.security.transport(&self.admin),
        }
    }

    /// Makes a call that may be repeated: to a peer, and to the master if the peer says that the master is needed.
    pub(crate) async fn ask<T>(&self, ask: impl AsyncFn(Client) -> Result<Response<T>, Status>) -> Result<T, CliError> {
        self.ask_through(node_client, ask, true).await
    }

    /// As [`ask`](Self::ask), for calls that must not be carried out twice: once one may have been, it is not repeated.
    pub(crate) async fn ask_once<T>(
        &self,
        ask: impl AsyncFn(Client) -> Result<Response<T>, Status>,
    ) -> Result<T, CliError> {
        self.ask_through(node_client, ask, false).await
    }

    /// As [`ask`](Self::ask), about pools.
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
        let answer = search(&addresses, Patience::of(self.limit.timeout), async |address: &str, attempt: Attempt| {
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

    fn limit(&self) -> Duration {
        Patience::of(self.limit.timeout).limit
    }

    /// Asks at one address, and nowhere else.
    pub(crate) async fn ask_at<T>(
        &self,
        address: &str,
        ask: impl AsyncFn(Client) -> Result<Response<T>, Status>,
    ) -> Result<T, CliError> {
        let unreachable = |why| CliError::NoAdmin { address: address.to_owned(), why, origin: None };
        let connected = connect(&self.transport()?, address, Attempt::within(self.limit())).await;
        let channel = connected.map_err(|broken| unreachable(broken.to_string()))?;
        ask(node_client(channel)).await.map(Response::into_inner).map_err(|status| explained(address, &status))
    }
}

fn node_client(channel: Channel) -> Client {
    NodeClient::new(channel).max_decoding_message_size(MAX_BYTES + MESSAGE_OVERHEAD)
}

/// Where the master is, if that is the answer.
fn master(status: &Status) -> Option<String> {
    if status.code() != Code::FailedPrecondition {
        return None;
    }
    let address = status.metadata().get(MASTER_METADATA)?.to_str().ok()?;
    (!address.is_empty()).then(|| address.to_owned())
}

/// What follows from an error instead of an answer.
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
        // A server says so before it changes anything.
        error @ CliError::NoMasterNow { .. } if may_repeat || status.metadata().contains_key(MASTER_METADATA) => {
            Attempted::NotNow(error)
        }
        error @ CliError::CutOff { .. } if may_repeat => Attempted::NotNow(error),
        error => Attempted::Never(error),
    }
}

/// What to do next, where the answer does not say it.
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
    fn only_a_peer_that_is_not_the_master_sends_elsewhere() {
        let mut status = Status::failed_precondition("not the master");
        assert_eq!(master(&status), None);
        status.metadata_mut().insert(MASTER_METADATA, "127.0.0.1:5161".parse().expect("ASCII"));
        assert_eq!(master(&status).as_deref(), Some("127.0.0.1:5161"));
        let mut other = Status::aborted("version 4 is in force");
        other.metadata_mut().insert(MASTER_METADATA, "127.0.0.1:5161".parse().expect("ASCII"));
        assert_eq!(master(&other), None);
    }

    #[test]
    fn a_node_with_a_parent_is_no_node_without_a_master() {
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
