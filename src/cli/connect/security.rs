//! How a command protects its connections, and says who asks: the same flags for all commands that connect.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use leaseway_client::{
    ClientTls, Credentials, Files, Token, Transport,
    endpoint::{self, Endpoint},
};

use crate::{error::CliError, tls_flags::TlsFlags};

/// TLS, and who asks. Any of the --tls flags means TLS, and so does https:// before an address.
#[derive(clap::Args, Clone)]
#[command(next_help_heading = "TLS and identity")]
pub(crate) struct Security {
    /// Connects over TLS, and trusts the CAs of this system. So do the other flags of this kind, and https:// before
    /// an address
    #[arg(long, env = "LEASEWAY_TLS")]
    tls: bool,
    #[command(flatten)]
    files: TlsFlags,
    /// What the servers' certificates must be for [default: the host that is asked]
    #[arg(
        long,
        env = "LEASEWAY_TLS_SERVER_NAME",
        value_name = "NAME",
        value_parser = NonEmptyStringValueParser::new()
    )]
    tls_server_name: Option<String>,
    /// A file with a token that says who asks: sent over TLS, or to this machine
    #[arg(long, env = "LEASEWAY_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Sends the token also without TLS to other machines: what is between is a tunnel
    #[arg(long, env = "LEASEWAY_INSECURE")]
    insecure: bool,
}

impl Security {
    /// How these servers are reached.
    pub(crate) fn transport(&self, servers: &[Endpoint]) -> Result<Transport, CliError> {
        let mut transport = self.without_token(servers)?;
        if let Some(file) = &self.token_file {
            transport = transport.with_token(Token::file(file)?);
        }
        Ok(if self.insecure { transport.with_clear_token() } else { transport })
    }

    /// As [`transport`](Self::transport), where there is another way to say who asks.
    pub(crate) fn without_token(&self, servers: &[Endpoint]) -> Result<Transport, CliError> {
        let Security { tls, tls_server_name, .. } = self;
        let files = self.files.files();
        let wanted = *tls || files.are_given() || tls_server_name.is_some();
        let is_secured = endpoint::over_tls(servers, wanted).map_err(|error| CliError::Flags(error.to_string()))?;
        secured(is_secured.then_some(files), tls_server_name.as_deref())
    }
}

/// Over TLS with these files, if there are any.
fn secured(files: Option<Files>, server_name: Option<&str>) -> Result<Transport, CliError> {
    let Some(files) = files else { return Ok(Transport::new()) };
    Ok(Transport::new().with_tls(ClientTls::new(&Credentials::load(files)?, server_name)?))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Flags {
        #[command(flatten)]
        security: Security,
    }

    fn transport(server: &str, arguments: &[&str]) -> Result<Transport, String> {
        let flags = Flags::try_parse_from([&["test"], arguments].concat()).map_err(|error| error.to_string())?;
        flags.security.transport(&[endpoint::read(server).expect("an address")]).map_err(|error| error.to_string())
    }

    #[test]
    fn without_a_word_of_it_there_is_no_tls() {
        assert!(transport("a:1", &[]).is_ok_and(|transport| !transport.is_secured()));
    }

    #[test]
    fn what_contradicts_itself_is_refused_in_words() {
        for (server, arguments, says) in [
            ("http://a:1", &["--tls-ca", "x"][..], "write https://"),
            ("a:1", &["--tls-cert", "x"], "--tls-key"),
            ("a:1", &["--tls-key", "x"], "--tls-cert"),
            ("a:1", &["--tls-ca", "/no/such/file"], "/no/such/file"),
            ("a:1", &["--token-file", "/no/such/token"], "/no/such/token"),
        ] {
            let error = transport(server, arguments).map(drop).expect_err(server);
            assert!(error.contains(says), "{error}");
        }
    }
}
