//! `--jwks FILE`: JSON Web Tokens, verified by the public keys of a file. Keys are never fetched.
//!
//! The key determines which algorithms are accepted; the token does not. Algorithms without a public key (`none`,
//! `HS256`, …) are refused.

mod ring_provider;

use std::{
    path::PathBuf,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use jsonwebtoken::{
    Algorithm, DecodingKey, Validation, decode, decode_header,
    errors::{Error, ErrorKind},
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, PublicKeyUse},
};
use leaseway_core::policy::access::{Identity, IdentityError};
use serde_json::{Map, Value};

/// Accepted difference between the clocks of issuers and of this server, in seconds.
const LEEWAY: u64 = 30;

/// The last second of the year 9999. A later expiry is a mistake of the issuer.
const LATEST_EXP: f64 = 253_402_300_799.0;

/// The requirements for a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JwtOptions {
    /// The file with the issuer's public keys: `{"keys": […]}`.
    pub jwks: PathBuf,
    /// The required `iss`.
    pub issuer: String,
    /// The required `aud`, alone or among others.
    pub audience: String,
    /// The claim with the identity.
    pub claim: String,
}

/// Why a JWT or a file of keys is not accepted.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum JwtError {
    #[error("not a JSON Web Key Set: {0}; expected {{\"keys\": […]}} (RFC 7517)")]
    KeySet(String),
    /// It has no keys of a supported kind.
    #[error("no usable key: expected RSA, EC (P-256, P-384) or Ed25519")]
    NoKeys,
    #[error("unsupported or malformed JWT: {0}")]
    Malformed(String),
    #[error("the --jwks file of this server has no key for {algorithm}{}", with_id(.key.as_deref()))]
    NoKey { algorithm: String, key: Option<String> },
    /// It was not signed by the issuer, or was changed.
    #[error("its signature is invalid")]
    Signature,
    /// `exp` has passed.
    #[error("it has expired")]
    Expired,
    /// `nbf` is in the future.
    #[error("it is not valid yet")]
    NotYet,
    #[error("it has no claim `{0}`")]
    Missing(String),
    #[error("its issuer (`iss`) does not match --jwt-issuer")]
    Issuer,
    #[error("its audience (`aud`) does not match --jwt-audience")]
    Audience,
    #[error("its claim `{claim}` is not a valid identity: {error}")]
    Identity { claim: String, error: IdentityError },
}

fn with_id(key: Option<&str>) -> String {
    key.map_or_else(String::new, |key| format!(" with the id `{}`", leaseway_core::types::escaped(key)))
}

/// The keys of a file, and the requirements for tokens.
pub(super) struct Jwts {
    keys: Vec<VerifyingKey>,
    validation: Validation,
    claim: String,
}

struct VerifyingKey {
    id: Option<String>,
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

impl Jwts {
    pub(super) fn new(options: &JwtOptions, jwks: &str) -> Result<Jwts, JwtError> {
        ring_provider::install();
        let set: JwkSet = serde_json::from_str(jwks).map_err(|error| JwtError::KeySet(error.to_string()))?;
        let keys: Vec<VerifyingKey> = set.keys.iter().filter_map(VerifyingKey::of).collect();
        if keys.is_empty() {
            return Err(JwtError::NoKeys);
        }
        let mut validation = Validation { leeway: LEEWAY, validate_nbf: true, ..Validation::default() };
        validation.set_issuer(&[&options.issuer]);
        validation.set_audience(&[&options.audience]);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        Ok(Jwts { keys, validation, claim: options.claim.clone() })
    }

    pub(super) fn keys(&self) -> usize {
        self.keys.len()
    }

    /// Verifies a token. Returns its identity and its expiry.
    pub(super) fn verify(&self, token: &[u8]) -> Result<(Identity, SystemTime), JwtError> {
        let header = decode_header(token).map_err(|error| malformed(&error))?;
        if header.crit.is_some() {
            return Err(JwtError::Malformed("it has critical extensions (`crit`), which are not supported".into()));
        }
        let mut validation = self.validation.clone();
        validation.algorithms = vec![header.alg];
        let is_meant = |key: &&VerifyingKey| {
            key.algorithms.contains(&header.alg) && (header.kid.is_none() || key.id.is_none() || key.id == header.kid)
        };
        let mut why = JwtError::NoKey { algorithm: format!("{:?}", header.alg), key: header.kid.clone() };
        for key in self.keys.iter().filter(is_meant) {
            match decode::<Map<String, Value>>(token, &key.key, &validation) {
                Ok(token) => return Jwts::check_form(&token.claims).and_then(|()| self.identity(&token.claims)),
                Err(error) => why = in_words(&error),
            }
            if why != JwtError::Signature {
                break;
            }
        }
        Err(why)
    }

    /// Refuses claims that the library accepts: a list of issuers, which RFC 7519 does not allow, and an absurd `exp`.
    fn check_form(claims: &Map<String, Value>) -> Result<(), JwtError> {
        if !claims.get("iss").is_some_and(Value::is_string) {
            return Err(JwtError::Malformed("its claim `iss` is not a string".into()));
        }
        let exp = claims.get("exp").and_then(Value::as_f64).unwrap_or(f64::INFINITY);
        if !(0.0..=LATEST_EXP).contains(&exp) {
            return Err(JwtError::Malformed(
                "its claim `exp` is beyond the year 9999; it counts seconds since 1970, not milliseconds".into(),
            ));
        }
        Ok(())
    }

    fn identity(&self, claims: &Map<String, Value>) -> Result<(Identity, SystemTime), JwtError> {
        let claim = claims.get(&self.claim).and_then(Value::as_str);
        let name = claim.ok_or_else(|| JwtError::Missing(self.claim.clone()))?;
        let identity = Identity::named(name);
        let identity = identity.map_err(|error| JwtError::Identity { claim: self.claim.clone(), error })?;
        // The library ignores a fraction of a second, too.
        let seconds = claims.get("exp").and_then(Value::as_f64).unwrap_or_default() as u64;
        let until = UNIX_EPOCH.checked_add(Duration::from_secs(seconds.saturating_add(LEEWAY)));
        Ok((identity, until.unwrap_or_else(SystemTime::now)))
    }
}

impl VerifyingKey {
    fn of(jwk: &Jwk) -> Option<VerifyingKey> {
        if jwk.common.public_key_use.as_ref().is_some_and(|usage| *usage != PublicKeyUse::Signature) {
            return None;
        }
        let mut algorithms = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => vec![Algorithm::RS256, Algorithm::RS384, Algorithm::RS512],
            AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => vec![Algorithm::ES256],
            AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P384 => vec![Algorithm::ES384],
            AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => vec![Algorithm::EdDSA],
            _ => return None,
        };
        if let Some(only) = jwk.common.key_algorithm {
            algorithms.retain(|algorithm| Algorithm::try_from(only).is_ok_and(|only| only == *algorithm));
        }
        let key = DecodingKey::from_jwk(jwk).ok().filter(|_| !algorithms.is_empty())?;
        Some(VerifyingKey { id: jwk.common.key_id.clone(), algorithms, key })
    }
}

fn malformed(error: &Error) -> JwtError {
    JwtError::Malformed(error.to_string())
}

fn in_words(error: &Error) -> JwtError {
    match error.kind() {
        ErrorKind::InvalidSignature => JwtError::Signature,
        ErrorKind::ExpiredSignature => JwtError::Expired,
        ErrorKind::ImmatureSignature => JwtError::NotYet,
        ErrorKind::InvalidIssuer => JwtError::Issuer,
        ErrorKind::InvalidAudience => JwtError::Audience,
        ErrorKind::MissingRequiredClaim(claim) => JwtError::Missing(claim.clone()),
        _ => malformed(error),
    }
}

#[cfg(test)]
mod tests;
