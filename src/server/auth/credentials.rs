//! The credentials of callers: certificates, and bearer tokens that are checked against files of the server.

use std::{
    path::PathBuf,
    time::{Duration, SystemTime},
};

use http::HeaderValue;
use leaseway_core::policy::access::Identity;
use subtle::ConstantTimeEq as _;

use super::{
    jwt::{JwtError, JwtOptions, Jwts},
    tokens::Tokens,
};
use crate::{config::read_secret, listen::Caller};

/// A JWT is verified again after this time, even if it is valid for longer.
const RECHECK_INTERVAL: Duration = Duration::from_secs(300);

/// The files with tokens and keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CredentialFiles {
    pub(crate) tokens: Option<PathBuf>,
    /// `--jwks`, and the requirements for a token.
    pub(crate) jwt: Option<JwtOptions>,
    /// `--admin-token-file`.
    pub(crate) operator: Option<PathBuf>,
}

#[derive(Default)]
pub(crate) struct Credentials {
    operator: Option<String>,
    tokens: Option<Tokens>,
    jwts: Option<Jwts>,
}

/// Why a caller is not authenticated.
#[derive(Debug, thiserror::Error)]
pub(super) enum CredentialError {
    /// Not a bearer token.
    #[error("malformed `authorization` header: expected `Bearer` and a token")]
    Scheme,
    #[error(
        "unknown token: it is mistyped or was withdrawn, or its line is missing in the --tokens file of this server"
    )]
    Unknown,
    /// The JWT was not verified, because its address has sent too many invalid ones.
    #[error("too many failed logins from this address; try again in a second")]
    TooMany,
    #[error("the token is not accepted: {0}")]
    Jwt(#[from] JwtError),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Proved {
    pub(super) identity: Identity,
    /// When it must be authenticated again.
    pub(super) expires: Option<SystemTime>,
}

impl CredentialFiles {
    pub(crate) fn read(&self) -> Result<Credentials, UnusableFile> {
        let unusable = |path: &PathBuf, why: String| UnusableFile { path: path.clone(), why };
        let text = |path: &PathBuf| std::fs::read_to_string(path).map_err(|error| unusable(path, error.to_string()));
        let tokens = match &self.tokens {
            Some(path) => Some(Tokens::parse(&text(path)?).map_err(|error| unusable(path, error.to_string()))?),
            None => None,
        };
        let jwts = match &self.jwt {
            Some(options) => {
                let jwks = text(&options.jwks)?;
                Some(Jwts::new(options, &jwks).map_err(|error| unusable(&options.jwks, error.to_string()))?)
            }
            None => None,
        };
        let operator = match &self.operator {
            Some(path) => Some(read_secret(path).map_err(|error| unusable(path, error.to_string()))?),
            None => None,
        };
        Ok(Credentials { operator, tokens, jwts })
    }

    /// The files that are read again when they change.
    pub(crate) fn watched(&self) -> Vec<PathBuf> {
        self.tokens.iter().chain(self.jwt.as_ref().map(|jwt| &jwt.jwks)).cloned().collect()
    }
}

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use {}: {why}", path.display())]
pub(crate) struct UnusableFile {
    path: PathBuf,
    why: String,
}

impl Credentials {
    /// Authenticates a caller. A token takes precedence over a certificate, which may be that of a proxy.
    pub(super) fn identify(
        &self,
        header: Option<&HeaderValue>,
        caller: Option<&Caller>,
        now: SystemTime,
    ) -> Result<Proved, CredentialError> {
        // Without any known tokens, the header is ignored.
        match header.filter(|_| self.operator.is_some() || self.tokens.is_some() || self.jwts.is_some()) {
            Some(header) => self.bearer(header, caller, now),
            None => {
                let certified = caller.and_then(Caller::certified);
                Ok(Proved { identity: certified.unwrap_or(Identity::Anonymous), expires: None })
            }
        }
    }

    fn bearer(
        &self,
        header: &HeaderValue,
        caller: Option<&Caller>,
        now: SystemTime,
    ) -> Result<Proved, CredentialError> {
        let (scheme, token) = header.as_bytes().split_at_checked("Bearer ".len()).ok_or(CredentialError::Scheme)?;
        if !scheme.eq_ignore_ascii_case(b"Bearer ") {
            return Err(CredentialError::Scheme);
        }
        if self.operator.as_ref().is_some_and(|operator| is_equal(operator, token)) {
            return Ok(Proved { identity: Identity::Operator, expires: None });
        }
        if let Some(identity) = self.tokens.as_ref().and_then(|tokens| tokens.holder(token)) {
            return Ok(Proved { identity: identity.clone(), expires: None });
        }
        let Some(jwts) = self.jwts.as_ref().filter(|_| token.iter().filter(|byte| **byte == b'.').count() == 2) else {
            return Err(CredentialError::Unknown);
        };
        if caller.is_some_and(|caller| !caller.connection.may_prove()) {
            return Err(CredentialError::TooMany);
        }
        let (identity, expires) = jwts.verify(token)?;
        Ok(Proved { identity, expires: Some(expires.min(now + RECHECK_INTERVAL)) })
    }

    /// Whether this header has the operator's token. True if the server has none.
    pub(crate) fn is_operators(&self, header: Option<&HeaderValue>) -> bool {
        let Some(operator) = &self.operator else { return true };
        let sent = header.map_or(&b""[..], |header| header.as_bytes());
        sent.split_at_checked("Bearer ".len())
            .is_some_and(|(scheme, token)| scheme == b"Bearer " && is_equal(operator, token))
    }

    pub(crate) fn has_operators_token(&self) -> bool {
        self.operator.is_some()
    }

    /// The number of tokens and keys, in words.
    pub(crate) fn in_words(&self) -> String {
        let tokens = self.tokens.as_ref().map(|tokens| format!("{} tokens", tokens.len()));
        let keys = self.jwts.as_ref().map(|jwts| format!("{} JWT keys", jwts.keys()));
        tokens.into_iter().chain(keys).collect::<Vec<_>>().join(", ")
    }
}

/// Compares in constant time.
fn is_equal(token: &str, sent: &[u8]) -> bool {
    sent.ct_eq(token.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::listen::open_connections::OpenConnections;

    /// A valid public key (the generator of P-256), for which no test has the private key.
    const KEYS: &str = r#"{"keys": [{"kty": "EC", "crv": "P-256",
        "x": "axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY", "y": "T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU"}]}"#;
    /// `{"alg":"ES256"}` without a valid signature.
    const JWT: &str = "Bearer eyJhbGciOiJFUzI1NiJ9.e30.AAAA";

    #[test]
    fn a_jwt_is_not_verified_if_its_address_has_sent_too_many_invalid_ones() {
        let [issuer, audience, claim] = ["issuer", "leaseway", "sub"].map(str::to_owned);
        let options = JwtOptions { jwks: "keys".into(), issuer, audience, claim };
        let jwts = Some(Jwts::new(&options, KEYS).expect("keys"));
        let tokens = Some(Tokens::parse("").expect("none"));
        let credentials = Credentials { operator: None, tokens, jwts };
        let open = OpenConnections::at_most(10);
        let permits = [1, 2].map(|last| open.admit([10, 0, 0, last].into()).expect("a permit"));
        let looked_at = |index: usize, header: &'static str| {
            let connection = Arc::clone(&permits[index].connection);
            let caller = Caller { address: connection.origin().address, names: None, is_in_process: false, connection };
            let header = HeaderValue::from_static(header);
            let refused = credentials.identify(Some(&header), Some(&caller), SystemTime::now()).expect_err("no token");
            !matches!(refused, CredentialError::TooMany)
        };
        assert!(looked_at(0, JWT));
        while permits[0].connection.may_prove() {
            permits[0].connection.refused_token();
        }
        assert!(!looked_at(0, JWT));
        assert!(looked_at(1, JWT), "from another address");
        assert!(looked_at(0, "Bearer lwt_unknown"), "no signature is checked for it");
    }
}
