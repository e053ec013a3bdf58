//! Valid tokens, and each way in which a token can be invalid.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use leaseway_core::policy::access::Identity;
use ring::{
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
        RsaPublicKeyComponents,
    },
};
use serde_json::json;

use super::*;

/// An RSA key for these tests only, from a file because no library here can generate one.
const RSA: &[u8] = include_bytes!("tests/rsa.der");

fn base64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// An issuer with a key of each kind, made for the test.
struct Issuer {
    chance: SystemRandom,
    p256: EcdsaKeyPair,
    ed25519: Ed25519KeyPair,
    rsa: RsaKeyPair,
}

impl Issuer {
    fn new() -> Issuer {
        let chance = SystemRandom::new();
        let p256 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &chance).expect("a key");
        let p256 = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, p256.as_ref(), &chance).expect("a key");
        let ed25519 = Ed25519KeyPair::generate_pkcs8(&chance).expect("a key");
        let ed25519 = Ed25519KeyPair::from_pkcs8(ed25519.as_ref()).expect("a key");
        Issuer { chance, p256, ed25519, rsa: RsaKeyPair::from_der(RSA).expect("a key") }
    }

    fn jwks(&self) -> String {
        let point = self.p256.public_key().as_ref();
        let rsa = RsaPublicKeyComponents::<Vec<u8>>::from(self.rsa.public());
        let keys = json!([
            { "kty": "EC", "crv": "P-256", "kid": "ES256", "x": base64(&point[1..33]), "y": base64(&point[33..]) },
            { "kty": "OKP", "crv": "Ed25519", "kid": "EdDSA", "use": "sig", "x": base64(self.ed25519.public_key()) },
            { "kty": "RSA", "kid": "RS256", "n": base64(rsa.n), "e": base64(rsa.e) },
            { "kty": "oct", "kid": "HS256", "alg": "HS256", "k": base64("a secret") },
            { "kty": "of the future" },
        ]);
        json!({ "keys": keys }).to_string()
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let signed = format!("{}.{}", base64(header.to_string()), base64(claims.to_string()));
        let signature = match header["alg"].as_str() {
            Some("ES256") => self.p256.sign(&self.chance, signed.as_bytes()).expect("signed").as_ref().to_vec(),
            Some("EdDSA") => self.ed25519.sign(signed.as_bytes()).as_ref().to_vec(),
            Some("RS256") => {
                let mut signature = vec![0; self.rsa.public().modulus_len()];
                self.rsa.sign(&RSA_PKCS1_SHA256, &self.chance, signed.as_bytes(), &mut signature).expect("signed");
                signature
            }
            Some("HS256") => {
                let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, b"a secret");
                ring::hmac::sign(&key, signed.as_bytes()).as_ref().to_vec()
            }
            _ => Vec::new(),
        };
        format!("{signed}.{}", base64(signature))
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

fn claims() -> Value {
    json!({ "sub": "web-1", "team": "search", "iss": "https://issuer.test", "aud": "leaseway", "exp": now() + 3600 })
}

fn with(mut base: Value, name: &str, value: Value) -> Value {
    if value.is_null() {
        base.as_object_mut().expect("a map").remove(name);
    } else {
        base[name] = value;
    }
    base
}

fn options() -> JwtOptions {
    let [issuer, audience, claim] = ["https://issuer.test", "leaseway", "sub"].map(str::to_owned);
    JwtOptions { jwks: "jwks.json".into(), issuer, audience, claim }
}

fn verified(issuer: &Issuer, token: &str) -> Result<String, JwtError> {
    let jwts = Jwts::new(&options(), &issuer.jwks()).expect("keys");
    jwts.verify(token.as_bytes()).map(|(identity, _)| identity.text().to_owned())
}

#[test]
fn tokens_signed_by_each_kind_of_key_are_accepted() {
    let issuer = Issuer::new();
    for algorithm in ["ES256", "EdDSA", "RS256"] {
        for header in [json!({ "alg": algorithm, "kid": algorithm, "typ": "JWT" }), json!({ "alg": algorithm })] {
            assert_eq!(verified(&issuer, &issuer.sign(&header, &claims())).as_deref(), Ok("web-1"), "{header}");
        }
    }
}

#[test]
fn the_identity_claim_is_configurable_and_the_expiry_includes_the_leeway() {
    let issuer = Issuer::new();
    let jwts = Jwts::new(&JwtOptions { claim: "team".into(), ..options() }, &issuer.jwks()).expect("keys");
    assert_eq!(jwts.keys(), 3, "secret keys and keys of unknown kinds are left out");
    let claims = claims();
    let (identity, until) = jwts.verify(issuer.sign(&json!({ "alg": "EdDSA" }), &claims).as_bytes()).expect("a token");
    assert_eq!(identity, Identity::named("search").expect("a name"));
    let expected = claims["exp"].as_u64().expect("a number") + LEEWAY;
    assert_eq!(until, UNIX_EPOCH + Duration::from_secs(expected));
}

#[test]
fn algorithms_without_a_public_key_are_refused() {
    let issuer = Issuer::new();
    for algorithm in ["none", "None", "HS256", "HS384", "ES512", "PS256", ""] {
        let header = json!({ "alg": algorithm });
        let error = verified(&issuer, &issuer.sign(&header, &claims())).expect_err(algorithm);
        assert!(matches!(error, JwtError::NoKey { .. } | JwtError::Malformed(_)), "{algorithm}: {error}");
    }
    // A token signed with the public key as the secret of HS256.
    let jwks: Value = serde_json::from_str(&issuer.jwks()).expect("JSON");
    let signed = format!("{}.{}", base64(r#"{"alg":"HS256","kid":"RS256"}"#), base64(claims().to_string()));
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, jwks["keys"][2]["n"].as_str().expect("text").as_bytes());
    let token = format!("{signed}.{}", base64(ring::hmac::sign(&key, signed.as_bytes())));
    assert!(matches!(verified(&issuer, &token), Err(JwtError::NoKey { .. })));
}

#[test]
fn invalid_claims_are_named() {
    let issuer = Issuer::new();
    let missing = |claim: &str| JwtError::Missing(claim.into());
    for (claims, error) in [
        (with(claims(), "exp", json!(now() - LEEWAY - 60)), JwtError::Expired),
        (with(claims(), "exp", Value::Null), missing("exp")),
        (with(claims(), "nbf", json!(now() + LEEWAY + 60)), JwtError::NotYet),
        (with(claims(), "iss", json!("https://other.test")), JwtError::Issuer),
        (with(claims(), "iss", Value::Null), missing("iss")),
        (with(claims(), "aud", json!("other")), JwtError::Audience),
        (with(claims(), "aud", json!(["other", "another"])), JwtError::Audience),
        (with(claims(), "aud", Value::Null), missing("aud")),
        (with(claims(), "sub", Value::Null), missing("sub")),
        (with(claims(), "sub", json!(7)), missing("sub")),
        (
            with(claims(), "sub", json!("operator")),
            JwtError::Identity { claim: "sub".into(), error: IdentityError::Reserved },
        ),
        (
            with(claims(), "sub", json!("a\nb")),
            JwtError::Identity { claim: "sub".into(), error: IdentityError::Unseen },
        ),
    ] {
        let token = issuer.sign(&json!({ "alg": "EdDSA" }), &claims);
        assert_eq!(verified(&issuer, &token), Err(error), "{claims}");
    }
    for claims in [
        with(claims(), "aud", json!(["other", "leaseway"])),
        with(claims(), "nbf", json!(now() - 1)),
        with(claims(), "exp", json!(now() - 1)),
    ] {
        let token = issuer.sign(&json!({ "alg": "EdDSA" }), &claims);
        assert!(verified(&issuer, &token).is_ok(), "{claims}: clocks differ by a little");
    }
}

#[test]
fn a_list_of_issuers_and_an_absurd_expiry_are_refused() {
    let issuer = Issuer::new();
    for (name, value) in [
        ("iss", json!(["https://issuer.test"])),
        ("iss", json!(["https://other.test", "https://issuer.test"])),
        ("iss", json!(7)),
        ("exp", json!(1e300)),
        ("exp", json!(u64::MAX)),
        ("exp", json!((now() + 3600) * 1000)),
        ("exp", json!((now() + 3600).to_string())),
        ("exp", json!(-1)),
    ] {
        let claims = with(claims(), name, value);
        let token = issuer.sign(&json!({ "alg": "EdDSA" }), &claims);
        assert!(verified(&issuer, &token).is_err(), "{claims}");
    }
    let last = with(claims(), "exp", json!(LATEST_EXP));
    assert!(verified(&issuer, &issuer.sign(&json!({ "alg": "EdDSA" }), &last)).is_ok());
}

#[test]
fn altered_tokens_and_tokens_of_other_issuers_are_refused() {
    let (issuer, other) = (Issuer::new(), Issuer::new());
    for algorithm in ["ES256", "EdDSA"] {
        let header = json!({ "alg": algorithm });
        assert_eq!(verified(&issuer, &other.sign(&header, &claims())), Err(JwtError::Signature));
    }
    let token = issuer.sign(&json!({ "alg": "RS256" }), &claims());
    let [header, _, signature] = token.split('.').collect::<Vec<_>>()[..] else { panic!("three parts") };
    let changed = base64(with(claims(), "sub", json!("db-1")).to_string());
    assert_eq!(verified(&issuer, &format!("{header}.{changed}.{signature}")), Err(JwtError::Signature));
    let unsigned = format!("{header}.{changed}.");
    assert!(verified(&issuer, &unsigned).is_err());
    for wrong in ["", ".", "..", "a.b.c", "a.b.c.d", "é.é.é"] {
        assert!(matches!(verified(&issuer, wrong), Err(JwtError::Malformed(_))), "{wrong}");
    }
    let critical = issuer.sign(&json!({ "alg": "EdDSA", "crit": ["exp"] }), &claims());
    assert!(matches!(verified(&issuer, &critical), Err(JwtError::Malformed(_))));
    let unknown = issuer.sign(&json!({ "alg": "EdDSA", "kid": "another" }), &claims());
    let error = verified(&issuer, &unknown).expect_err("no such key");
    assert_eq!(error.to_string(), "the --jwks file of this server has no key for EdDSA with the id `another`");
}

#[test]
fn files_without_keys_are_refused() {
    for text in ["", "{}", "[]", r#"{"keys": 1}"#] {
        assert!(matches!(Jwts::new(&options(), text), Err(JwtError::KeySet(_))), "{text}");
    }
    for text in [r#"{"keys": []}"#, r#"{"keys": [{"kty": "oct", "k": "YQ"}]}"#] {
        assert!(matches!(Jwts::new(&options(), text), Err(JwtError::NoKeys)), "{text}");
    }
}
