//! The flags for authentication. The configuration has the access policy.

use std::path::PathBuf;

use clap::{Args, builder::NonEmptyStringValueParser};
use leaseway_server::{AccessOptions, AuditTarget, JwtOptions};

/// How callers authenticate, and the audit log.
#[derive(Args)]
#[command(next_help_heading = "Access (`access:` in the configuration says who may do what)")]
pub(crate) struct AccessFlags {
    /// The tokens that prove who calls: lines of `IDENTITY sha256:HEX`, as `leaseway token new` prints them. Read again
    /// when it changes
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// The public keys of an issuer of JWTs: a JSON Web Key Set. Read again when it changes; nothing is fetched
    #[arg(long, value_name = "FILE", requires = "jwt_issuer", requires = "jwt_audience")]
    jwks: Option<PathBuf>,
    /// The issuer of JWTs: what their `iss` must be
    #[arg(long, value_name = "NAME", requires = "jwks", value_parser = NonEmptyStringValueParser::new())]
    jwt_issuer: Option<String>,
    /// Whom JWTs are for: what their `aud` must be, or have among others
    #[arg(long, value_name = "NAME", requires = "jwks", value_parser = NonEmptyStringValueParser::new())]
    jwt_audience: Option<String>,
    /// The claim of a JWT that is the caller's identity
    #[arg(long, value_name = "CLAIM", default_value = "sub")]
    jwt_claim: String,
    /// Where it is written down who changed what and what was denied, a line of JSON each; `-` is standard output
    #[arg(long, value_name = "FILE|-", value_parser = audit_target)]
    audit: Option<AuditTarget>,
    /// Starts although other machines reach it and there is no TLS, or no policy: for networks where only those reach
    /// it that may do everything
    #[arg(long)]
    insecure: bool,
    /// Names under which browsers and proxies reach an HTTP port without TLS, besides its address, localhost and
    /// --advertise: requests for other names are refused (DNS rebinding)
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
        AccessOptions { tokens, jwt, audit, insecure, http_names }
    }
}
