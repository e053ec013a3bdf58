//! Calls to the admin service of a peer, with a token if one is set, and to the master where it is needed.

use std::{fs, path::PathBuf, time::Duration};

use leaseway_client::endpoint;
use leaseway_proto::{
    admin::{MASTER_METADATA, PARENT_METADATA, node_client::NodeClient},
    pools::pools_client::PoolsClient,
};
use leaseway_server::config::MAX_BYTES;
use tonic::{
    Code, Request, Response, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::Channel,
};

use crate::{
    connect::{TimeLimit, connect, from_below, not_grpc, refused, within},
    error::CliError,
    ports::{self, Wanted},
    search::{Attempt, Attempted, Patience, search},
};

/// Where operators are served if no port is named: the default of `--admin`.
const DEFAULT_PORT: u16 = 5160;

/// The framing of a configuration on the wire, in bytes.
const MESSAGE_OVERHEAD: usize = 64 << 10;

/// Where to find a peer's admin address.
#[derive(clap::Args)]
pub(crate) struct AdminTarget {
    /// The admin address of any peer of the node; what needs the master finds it from there. Several, with commas:
    /// where one cannot answer the next is asked
    #[arg(
        long,
        env = "LEASEWAY_ADMIN",
        default_value = "127.0.0.1:5160",
        value_delimiter = ',',
        value_parser = admin_endpoint,
        value_name = "HOST:PORT,…"
    )]
    admin: Vec<String>,
    /// A file with the token that the peers were started with
    #[arg(long, env = "LEASEWAY_ADMIN_TOKEN_FILE", value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    #[command(flatten)]
    limit: TimeLimit,
}

fn admin_endpoint(text: &str) -> Result<String, endpoint::BadEndpoint> {
    endpoint::parse_with(text, DEFAULT_PORT)
}

/// A channel that adds the token to every request.
type Guarded = InterceptedService<Channel, Bearer>;

/// Asks about configurations and peers.
pub(crate) type Client = NodeClient<Guarded>;

/// Asks about pools.
pub(crate) type Pools = PoolsClient<Guarded>;

/// The token, if there is one.
#[derive(Clone)]
pub(crate) struct Bearer(Option<MetadataValue<Ascii>>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert("authorization", token.clone());
        }
        Ok(request)
    }
}

impl AdminTarget {
    /// The addresses that were given.
    pub(crate) fn addresses(&self) -> String {
        self.admin.join(",")
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
        client: impl Fn(Guarded) -> C,
        ask: impl AsyncFn(C) -> Result<Response<T>, Status>,
        may_repeat: bool,
    ) -> Result<T, CliError> {
        let token = Bearer(self.token()?);
        search(&self.admin, Patience::of(self.limit.timeout), async |address: &str, attempt: Attempt| {
            let channel = match connect(address, attempt).await {
                Ok(channel) => channel,
                Err(broken) => {
                    let error = CliError::NoAdmin { address: address.to_owned(), why: broken.why };
                    return if broken.refused { Attempted::NothingListens(error) } else { Attempted::NotNow(error) };
                }
            };
            let guarded = client(InterceptedService::new(channel.clone(), token.clone()));
            let limit = if may_repeat { attempt.patience } else { attempt.left };
            match within(limit, ask(guarded)).await {
                Ok(answer) => Attempted::Answer(answer.into_inner()),
                Err(status) => failed(address, channel, &status, may_repeat).await,
            }
        })
        .await
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
        let unreachable = |why| CliError::NoAdmin { address: address.to_owned(), why };
        let channel =
            connect(address, Attempt::within(self.limit())).await.map_err(|broken| unreachable(broken.why))?;
        let guarded = node_client(InterceptedService::new(channel, Bearer(self.token()?)));
        ask(guarded).await.map(Response::into_inner).map_err(|status| explained(address, &status))
    }

    fn token(&self) -> Result<Option<MetadataValue<Ascii>>, CliError> {
        let Some(path) = &self.admin_token_file else { return Ok(None) };
        let bad = |why: String| CliError::Token { path: path.clone(), why };
        let text = fs::read_to_string(path).map_err(|error| bad(error.to_string()))?;
        // The server leaves the line break away, too.
        let token = text.trim_end_matches(['\r', '\n']);
        if token.is_empty() {
            return Err(bad("it is empty".into()));
        }
        // Other characters could be sent, but not be read by all that is between.
        let visible = token.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
        let value = visible.then(|| MetadataValue::try_from(format!("Bearer {token}")).ok()).flatten();
        let mut value = value.ok_or_else(|| bad("a token is one line of visible ASCII characters".into()))?;
        // It does not appear where requests are logged.
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

fn node_client(guarded: Guarded) -> Client {
    NodeClient::new(guarded).max_decoding_message_size(MAX_BYTES + MESSAGE_OVERHEAD)
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
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Flags {
        #[command(flatten)]
        target: AdminTarget,
    }

    fn target(arguments: &[&str]) -> AdminTarget {
        Flags::parse_from([&["test"], arguments].concat()).target
    }

    fn with_token(text: &str) -> Result<Option<String>, String> {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        fs::write(file.path(), text).expect("written");
        let path = file.path().to_str().expect("UTF-8");
        let token = target(&["--admin-token-file", path]).token().map_err(|error| error.to_string());
        token.map(|token| token.map(|token| token.to_str().expect("ASCII").to_owned()))
    }

    #[test]
    fn a_token_is_one_line_of_its_file() {
        assert_eq!(with_token("secret\n"), Ok(Some("Bearer secret".into())));
        assert_eq!(target(&[]).token().expect("no file, no mistake"), None);
        for (text, why) in [("\n", "it is empty"), ("a\nb", "one line"), ("ä", "ASCII")] {
            let error = with_token(text).expect_err(text);
            assert!(error.contains(why), "{error}");
        }
        let missing = target(&["--admin-token-file", "/no/such/file"]).token();
        assert!(missing.expect_err("there is no such file").to_string().contains("/no/such/file"));
    }

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
