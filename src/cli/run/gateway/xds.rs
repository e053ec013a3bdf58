//! The flags of the control plane that a gateway takes its rules from.

use std::path::PathBuf;

use clap::{Args, builder::NonEmptyStringValueParser};
use leaseway_client::endpoint::{BadEndpoint, Endpoint, Scheme};
use leaseway_client::transport::is_loopback;
use leaseway_client::{ClientTls, Credentials, Files, Token, Transport, endpoint};
use leaseway_gateway::{XdsOptions, XdsVariant};

use crate::error::CliError;

/// As in envoyproxy/ratelimit.
const DEFAULT_PORT: u16 = 18_000;

#[derive(Args)]
#[command(next_help_heading = "Rules from a control plane (xDS)")]
pub(crate) struct XdsFlags {
    /// Address of the xDS control plane that sends the rules, instead of --ratelimit-config. The default port is 18000.
    /// To use TLS, write https:// before the address, or pass a CA. Until the first rules arrive, requests fail and
    /// /readyz answers 503; if the control plane is lost later, the last rules stay in force
    #[arg(long, value_name = "HOST:PORT", value_parser = address, requires = "gateway_rls")]
    rls_xds: Option<Endpoint>,
    /// Whether the control plane sends all rules or only changes
    #[arg(long, value_name = "VARIANT", value_enum, default_value = "sotw", requires = "rls_xds")]
    rls_xds_variant: VariantFlag,
    /// Node id sent to the control plane, which selects the rules by it
    #[arg(
        long,
        value_name = "ID",
        default_value = "default",
        value_parser = NonEmptyStringValueParser::new(),
        requires = "rls_xds"
    )]
    rls_xds_node: String,
    /// Node metadata sent to the control plane
    #[arg(long, value_name = "KEY=VALUE,…", value_delimiter = ',', value_parser = pair, requires = "rls_xds")]
    rls_xds_metadata: Vec<(String, String)>,
    /// CA of the control plane's certificate (PEM) [default: that of --tls-ca, else the system's]
    #[arg(long, value_name = "FILE", requires = "rls_xds")]
    rls_xds_ca: Option<PathBuf>,
    /// File with the token for the control plane. Sent only over TLS or to loopback
    #[arg(long, value_name = "FILE", requires = "rls_xds")]
    rls_xds_token_file: Option<PathBuf>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum VariantFlag {
    /// All rules in each response (state of the world)
    Sotw,
    /// Only the rules that have changed; needs ADS
    Delta,
}

impl XdsFlags {
    /// The control plane, if one is configured. The gateway presents the certificate in `files`.
    pub(crate) fn options(self, files: Files, merge_domains: bool) -> Result<Option<XdsOptions>, CliError> {
        let Some(Endpoint { address, scheme }) = self.rls_xds else { return Ok(None) };
        let files = Files { ca: self.rls_xds_ca.clone().or(files.ca), ..files };
        let over_tls = match scheme {
            Scheme::Plain => false,
            Scheme::Tls => true,
            Scheme::Unspecified => files.ca.is_some(),
        };
        if self.rls_xds_ca.is_some() && !over_tls {
            let message = format!("--rls-xds-ca needs TLS: write --rls-xds https://{address}");
            return Err(CliError::Flags(message));
        }
        let mut transport = Transport::new();
        if over_tls {
            transport = transport.with_tls(ClientTls::new(&Credentials::load(files)?, None)?);
        }
        if let Some(file) = &self.rls_xds_token_file {
            if !over_tls && !is_loopback(&address) {
                let message = format!(
                    "--rls-xds-token-file would be sent to {address} without TLS: write --rls-xds https://{address}"
                );
                return Err(CliError::Flags(message));
            }
            transport = transport.with_token(Token::file(file)?);
        }
        let (node, metadata) = (self.rls_xds_node, self.rls_xds_metadata);
        let variant = match self.rls_xds_variant {
            VariantFlag::Sotw => XdsVariant::StateOfTheWorld,
            VariantFlag::Delta => XdsVariant::Delta,
        };
        Ok(Some(XdsOptions { address, transport, node, metadata, merge_domains, variant }))
    }
}

fn address(text: &str) -> Result<Endpoint, BadEndpoint> {
    endpoint::read_with(text, DEFAULT_PORT)
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or("expected KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Flags {
        #[arg(id = "gateway_rls", long)]
        _rls: Option<String>,
        #[command(flatten)]
        xds: XdsFlags,
    }

    fn options(arguments: &[&str], files: Files) -> Result<Option<XdsOptions>, String> {
        let all = [&["test", "--gateway_rls", "x"], arguments].concat();
        let flags = Flags::try_parse_from(all).map_err(|error| error.to_string())?;
        flags.xds.options(files, false).map_err(|error| error.to_string())
    }

    #[test]
    fn the_address_decides_on_tls() {
        let system = |arguments: &[&str]| options(arguments, Files::default()).expect("valid").expect("an address");
        let local = system(&["--rls-xds", "localhost", "--rls-xds-metadata", "zone=a,x=y=z"]);
        assert_eq!((&*local.address, &*local.node), ("localhost:18000", "default"));
        assert_eq!(local.metadata, [("zone".to_owned(), "a".to_owned()), ("x".to_owned(), "y=z".to_owned())]);
        assert!(!local.transport.is_secured());
        let with_ca = Files { ca: Some("ca.pem".into()), ..Files::default() };
        let plain = options(&["--rls-xds", "http://a:1"], with_ca.clone()).expect("valid").expect("an address");
        assert!(!plain.transport.is_secured());
        assert!(options(&["--rls-xds", "a:1"], with_ca).is_err_and(|error| error.contains("ca.pem")), "TLS by the CA");
        assert!(options(&[], Files::default()).is_ok_and(|options| options.is_none()));
    }

    #[test]
    fn unsafe_and_contradictory_flags_are_refused() {
        for (arguments, says) in [
            (&["--rls-xds", "a:1/x"][..], "the port"),
            (&["--rls-xds", "a:1", "--rls-xds-metadata", "zone"], "expected KEY=VALUE"),
            (&["--rls-xds-node", "x"], "--rls-xds <HOST:PORT>"),
            (&["--rls-xds", "http://a:1", "--rls-xds-ca", "x"], "write --rls-xds https://a:1"),
            (&["--rls-xds", "a:1", "--rls-xds-token-file", "x"], "write --rls-xds https://a:1"),
        ] {
            let refused = options(arguments, Files::default()).expect_err(says);
            assert!(refused.contains(says), "{refused}");
        }
    }
}
