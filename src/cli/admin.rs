//! Asking a peer what operators ask: over its admin address, with a token if need be, and at the master if it must be there.

use std::{fs, path::PathBuf, time::Duration};

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
    connect::{MOST_REDIRECTS, connect, refused},
    error::CliError,
};

/// What a configuration may be larger than itself by, on the wire.
const MESSAGE_OVERHEAD: usize = 64 << 10;

/// Where to find a peer's admin address.
#[derive(clap::Args)]
pub(crate) struct AdminTarget {
    /// The admin address of any peer of the node; what needs the master finds it from there. Several, with commas: where one
    /// cannot be reached the next is asked, and about pools also where it knows no master
    #[arg(
        long,
        env = "LEASEWAY_ADMIN",
        default_value = "127.0.0.1:5160",
        value_delimiter = ',',
        value_name = "HOST:PORT,…"
    )]
    admin: Vec<String>,
    /// A file with the token that the peers were started with
    #[arg(long, env = "LEASEWAY_ADMIN_TOKEN_FILE", value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    /// Give up after so many seconds
    #[arg(long, env = "LEASEWAY_TIMEOUT", default_value_t = 5, value_name = "SECONDS")]
    timeout: u64,
}

/// What sends the token with everything.
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
    /// The address that was given; the first, if there are several.
    pub(crate) fn address(&self) -> &str {
        self.admin.first().map_or("", String::as_str)
    }

    /// Asks the peer, and the master instead if the peer says that it takes the master.
    pub(crate) async fn ask<T>(&self, ask: impl AsyncFn(Client) -> Result<Response<T>, Status>) -> Result<T, CliError> {
        self.ask_through(node_client, ask, false).await
    }

    /// As [`ask`](Self::ask), about pools.
    pub(crate) async fn ask_pools<T>(
        &self,
        ask: impl AsyncFn(Pools) -> Result<Response<T>, Status>,
    ) -> Result<T, CliError> {
        self.ask_through(PoolsClient::new, ask, true).await
    }

    /// At one address after the other. `may_repeat`: what is asked twice is as if it had been asked once.
    async fn ask_through<C, T>(
        &self,
        client: impl Fn(Guarded) -> C,
        ask: impl AsyncFn(C) -> Result<Response<T>, Status>,
        may_repeat: bool,
    ) -> Result<T, CliError> {
        let token = Bearer(self.token()?);
        let mut first = None;
        for address in &self.admin {
            match self.ask_from(address, &token, &client, &ask).await {
                // Nothing was asked there.
                Err(error @ CliError::NoAdmin { .. }) => first = first.or(Some(error)),
                // Another may know better; it may have been done already.
                Err(error @ (CliError::NoMasterNow { .. } | CliError::CutOff { .. })) if may_repeat => {
                    first = first.or(Some(error))
                }
                other => return other,
            }
        }
        Err(first.unwrap_or(CliError::NoAdmin { address: String::new(), why: "no address is given".into() }))
    }

    /// From this peer on.
    async fn ask_from<C, T>(
        &self,
        address: &str,
        token: &Bearer,
        client: &impl Fn(Guarded) -> C,
        ask: &impl AsyncFn(C) -> Result<Response<T>, Status>,
    ) -> Result<T, CliError> {
        let mut address = address.to_owned();
        for _ in 0..=MOST_REDIRECTS {
            let status = match ask(client(self.guarded(&address, token.clone()).await?)).await {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) => status,
            };
            match master(&status) {
                Some(elsewhere) => address = elsewhere,
                None => return Err(explained(&address, &status)),
            }
        }
        Err(CliError::TooManyRedirects { count: MOST_REDIRECTS, last: address })
    }

    /// Asks at one address, and nowhere else.
    pub(crate) async fn ask_at<T>(
        &self,
        address: &str,
        ask: impl AsyncFn(Client) -> Result<Response<T>, Status>,
    ) -> Result<T, CliError> {
        let guarded = self.guarded(address, Bearer(self.token()?)).await?;
        ask(node_client(guarded)).await.map(Response::into_inner).map_err(|status| explained(address, &status))
    }

    async fn guarded(&self, address: &str, token: Bearer) -> Result<Guarded, CliError> {
        let unreachable = |why| CliError::NoAdmin { address: address.to_owned(), why };
        let channel = connect(address, Duration::from_secs(self.timeout)).await?.map_err(unreachable)?;
        Ok(InterceptedService::new(channel, token))
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

fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    std::iter::successors(Some(error), |error| error.source()).last().unwrap_or(error).to_string()
}

/// What to do next, where the answer does not say it.
fn explained(address: &str, status: &Status) -> CliError {
    let (address, why) = (address.to_owned(), status.message().to_owned());
    // What the server says itself has no source: this is from below.
    if let (Code::Unknown, Some(below)) = (status.code(), std::error::Error::source(status)) {
        return CliError::CutOff { address, why: root_cause(below) };
    }
    match status.code() {
        Code::FailedPrecondition if status.metadata().contains_key(PARENT_METADATA) => {
            CliError::HasParent { address, why }
        }
        Code::Unimplemented => CliError::NotAdmin { address },
        Code::Unauthenticated | Code::PermissionDenied => CliError::WrongToken { address, why },
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
