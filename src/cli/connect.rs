//! Finding the master, for commands that ask once.

use std::{future::Future, time::Duration};

use leaseway_proto::doorman::Mastership;
use tonic::{
    Status,
    transport::{Channel, Endpoint},
};

use crate::error::CliError;

/// Servers that name each other are not followed for ever.
pub(crate) const MOST_REDIRECTS: usize = 5;

/// A server that does not answer a ping for so long is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Where to find a server.
#[derive(clap::Args)]
pub(crate) struct Target {
    /// Any server of the node; it names the master if it is not
    #[arg(long, env = "LEASEWAY_SERVER", default_value = "127.0.0.1:5100", value_name = "HOST:PORT")]
    server: String,
    /// Give up after so many seconds
    #[arg(long, env = "LEASEWAY_TIMEOUT", default_value_t = 5, value_name = "SECONDS")]
    timeout: u64,
}

impl Target {
    /// The address that was given.
    pub(crate) fn address(&self) -> &str {
        &self.server
    }

    /// How long to wait for an answer.
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    /// A connection to a server of the node.
    pub(crate) async fn connect_to(&self, address: &str) -> Result<Channel, CliError> {
        let unreachable = |why| CliError::Unreachable { address: address.to_owned(), why };
        connect(address, self.timeout()).await?.map_err(unreachable)
    }

    /// Asks the server, and whoever it says is master instead.
    pub(crate) async fn ask_master<T, F: Future<Output = Result<T, Status>>>(
        &self,
        ask: impl Fn(Channel) -> F,
        mastership: impl Fn(&T) -> Option<&Mastership>,
    ) -> Result<T, CliError> {
        let mut address = self.server.clone();
        for _ in 0..=MOST_REDIRECTS {
            let channel = self.connect_to(&address).await?;
            let answer = ask(channel).await.map_err(|status| refused(&address, &status))?;
            let Some(elsewhere) = mastership(&answer) else { return Ok(answer) };
            match &elsewhere.master_address {
                Some(master) => address.clone_from(master),
                None => return Err(CliError::NoMaster { address }),
            }
        }
        Err(CliError::TooManyRedirects { count: MOST_REDIRECTS, last: address })
    }
}

/// A connection, or why there is none: what that means depends on what was expected there.
pub(crate) async fn connect(address: &str, limit: Duration) -> Result<Result<Channel, String>, CliError> {
    let bad = |why: String| CliError::BadAddress { address: address.to_owned(), why };
    if !address.contains(':') {
        return Err(bad("there is no port".into()));
    }
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|error| bad(error.to_string()))?;
    // Whoever waits for events would not notice otherwise that nobody sends any.
    let endpoint = endpoint.connect_timeout(limit).timeout(limit).http2_keep_alive_interval(KEEP_ALIVE);
    let endpoint = endpoint.keep_alive_timeout(KEEP_ALIVE);
    Ok(endpoint.connect().await.map_err(|error| root(&error)))
}

/// What a server said instead of an answer.
pub(crate) fn refused(address: &str, status: &Status) -> CliError {
    CliError::Refused { address: address.to_owned(), code: status.code(), why: status.message().to_owned() }
}

/// The innermost reason: "connection refused" rather than "transport error".
fn root(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// Runs a command that asks.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CliError::Runtime)?;
    runtime.block_on(work)
}
