//! The flags for authentication. The configuration has the access policy.

use std::path::PathBuf;

use clap::{Args, builder::NonEmptyStringValueParser};
use leaseway_server::{AccessOptions, AuditTarget, JwtOptions};

/// How callers authenticate, and the audit log.
#[derive(Args)]
#[command(next_help_heading = "Access (policy: `access:` in the configuration)")]
pub(crate) struct AccessFlags {
    /// File with accepted tokens. Each line is `IDENTITY sha256:HEX`, as `leaseway token new` prints it. Reloaded when
    /// it changes
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// File with the JSON Web Key Set of the JWT issuer. Keys are read from this file only. Reloaded when it changes
    #[arg(long, value_name = "FILE", requires = "jwt_issuer", requires = "jwt_audience")]
    jwks: Option<PathBuf>,
    /// Required `iss` claim of JWTs
    #[arg(long, value_name = "NAME", requires = "jwks", value_parser = NonEmptyStringValueParser::new())]
    jwt_issuer: Option<String>,
    /// Audience that the `aud` claim of a JWT must contain
    #[arg(long, value_name = "NAME", requires = "jwks", value_parser = NonEmptyStringValueParser::new())]
    jwt_audience: Option<String>,
    /// JWT claim with the identity
    #[arg(long, value_name = "CLAIM", default_value = "sub")]
    jwt_claim: String,
    /// File for the audit log of changes and denials, one JSON object per line; `-` is standard output
    #[arg(long, value_name = "FILE|-", value_parser = audit_target)]
    audit: Option<AuditTarget>,
    /// Accept connections from other machines even without TLS or an access policy. A gateway also sends its token
    /// without TLS. Use it only on a trusted network
    #[arg(long)]
    insecure: bool,
    /// Host names that HTTP listeners without TLS accept, besides IP addresses, localhost and --advertise. Other names
    /// are refused, to prevent DNS rebinding
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    http_names: Vec<String>,
}

fn audit_target(text: &str) -> Result<AuditTarget, String> {
    match text {
        "" => Err("expected a file, or `-` for standard output".to_owned()),
        "-" => Ok(AuditTarget::Stdout),
        path => Ok(AuditTarget::File(path.into())),
    }
}

impl AccessFlags {
    /// Whether to serve other machines without TLS or without a policy.
    pub(crate) fn insecure(&self) -> bool {
        self.insecure
    }

    pub(crate) fn options(self) -> AccessOptions {
        let AccessFlags { tokens, jwks, jwt_issuer, jwt_audience, jwt_claim: claim, audit, insecure, http_names } =
            self;
        let jwt = match (jwks, jwt_issuer, jwt_audience) {
            (Some(jwks), Some(issuer), Some(audience)) => Some(JwtOptions { jwks, issuer, audience, claim }),
            _ => None,
        };
        AccessOptions { tokens, jwt, audit, webhook: None, insecure, http_names }
    }
}
