//! How a command protects its connections, and says who asks: the same flags for all commands that connect.

use std::{fs, path::PathBuf};

use clap::builder::NonEmptyStringValueParser;
use leaseway_client::{
    ClientTls, Credentials, Files, Token, Transport,
    endpoint::{self, Endpoint},
};

use leaseway_tls::Protocol;

use crate::{
    connect::{pages::Pages, tls_flags::TlsFlags},
    error::CliError,
};

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

    /// The file with the token that says who asks.
    pub(crate) fn token_file(&self) -> Option<&PathBuf> {
        self.token_file.as_ref()
    }

    /// How pages of these servers are asked for.
    pub(crate) fn pages(&self, servers: &[Endpoint]) -> Result<Pages, CliError> {
        let files = self.is_secured(servers)?.then(|| self.files.files());
        let name = self.tls_server_name.as_deref();
        let tls = files
            .map(|files| ClientTls::for_protocol(Protocol::Http1, &Credentials::load(files)?, name))
            .transpose()?;
        let read =
            |path: &PathBuf| fs::read_to_string(path).map_err(|error| CliError::File { path: path.clone(), error });
        let token = self.token_file.as_ref().map(read).transpose()?.map(|token| token.trim().to_owned());
        Ok(Pages { tls, token, insecure: self.insecure })
    }

    /// Over TLS if these servers are.
    pub(crate) fn as_secured_as(&self, servers: &[Endpoint]) -> Security {
        // What contradicts itself is refused where the servers are asked.
        Security { tls: self.is_secured(servers).unwrap_or(self.tls), ..self.clone() }
    }

    fn is_secured(&self, servers: &[Endpoint]) -> Result<bool, CliError> {
        let wanted = self.tls || self.files.files().are_given() || self.tls_server_name.is_some();
        endpoint::over_tls(servers, wanted).map_err(|error| CliError::Flags(error.to_string()))
    }

    /// As [`transport`](Self::transport), where there is another way to say who asks.
    pub(crate) fn without_token(&self, servers: &[Endpoint]) -> Result<Transport, CliError> {
        let files = self.is_secured(servers)?.then(|| self.files.files());
        secured(files, self.tls_server_name.as_deref())
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
