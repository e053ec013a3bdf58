//! The flags for TLS and identity, shared by all commands that connect.

use std::{fs, path::PathBuf};

use clap::builder::NonEmptyStringValueParser;
use leaseway_client::endpoint::Endpoint;
use leaseway_client::{ClientTls, Credentials, Files, Token, Transport, endpoint};

use leaseway_tls::Protocol;

use crate::connect::pages::Pages;
use crate::error::CliError;

#[derive(clap::Args, Clone)]
#[command(next_help_heading = "TLS and identity")]
pub(crate) struct Security {
    /// Use TLS, and trust the system's CAs. Other --tls flags, and https:// before an address, also enable TLS
    #[arg(long, env = "LEASEWAY_TLS")]
    tls: bool,
    #[command(flatten)]
    files: TlsFlags,
    /// Name in the servers' certificates [default: the host that is contacted]
    #[arg(
        long,
        env = "LEASEWAY_TLS_SERVER_NAME",
        value_name = "NAME",
        value_parser = NonEmptyStringValueParser::new()
    )]
    tls_server_name: Option<String>,
    /// File with the caller's token. It is sent only over TLS or to loopback
    #[arg(long, env = "LEASEWAY_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Send the token without TLS. Use it only through an encrypted tunnel
    #[arg(long, env = "LEASEWAY_INSECURE")]
    insecure: bool,
}

impl Security {
    /// The transport to these servers.
    pub(crate) fn transport(&self, servers: &[Endpoint]) -> Result<Transport, CliError> {
        let mut transport = self.without_token(servers)?;
        if let Some(file) = &self.token_file {
            transport = transport.with_token(Token::file(file)?);
        }
        Ok(if self.insecure { transport.with_clear_token() } else { transport })
    }

    /// The file with the caller's token.
    pub(crate) fn token_file(&self) -> Option<&PathBuf> {
        self.token_file.as_ref()
    }

    /// The client for pages of these servers.
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

    /// The same flags, with TLS enabled if `servers` use it.
    pub(crate) fn as_secured_as(&self, servers: &[Endpoint]) -> Security {
        // Contradictions are reported when the servers are asked.
        Security { tls: self.is_secured(servers).unwrap_or(self.tls), ..self.clone() }
    }

    fn is_secured(&self, servers: &[Endpoint]) -> Result<bool, CliError> {
        let wanted = self.tls || self.files.files().are_given() || self.tls_server_name.is_some();
        endpoint::over_tls(servers, wanted).map_err(|error| CliError::Flags(error.to_string()))
    }

    /// Like [`transport`](Self::transport), without the token.
    pub(crate) fn without_token(&self, servers: &[Endpoint]) -> Result<Transport, CliError> {
        if !self.is_secured(servers)? {
            return Ok(Transport::new());
        }
        let credentials = Credentials::load(self.files.files())?;
        Ok(Transport::new().with_tls(ClientTls::new(&credentials, self.tls_server_name.as_deref())?))
    }
}

/// A certificate with its key, and the CA of others. Servers, gateways and clients share these flags.
#[derive(clap::Args, Clone)]
pub(crate) struct TlsFlags {
    /// File with this program's certificate chain (PEM). Servers use it for their listeners, and for connections to
    /// parent and peers. Other commands send it if a server requests a certificate
    #[arg(long, env = "LEASEWAY_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// File with the private key of --tls-cert (PEM)
    #[arg(long, env = "LEASEWAY_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// File with the CA (PEM) that must have issued the certificates of other programs
    #[arg(long, env = "LEASEWAY_TLS_CA", value_name = "FILE")]
    tls_ca: Option<PathBuf>,
}

impl TlsFlags {
    pub(crate) fn files(&self) -> Files {
        Files { certificate: self.tls_cert.clone(), key: self.tls_key.clone(), ca: self.tls_ca.clone() }
    }
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
    fn contradictory_flags_are_refused() {
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
