//! Policies and tokens that change while a server runs, policies of child nodes, and the audit log.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    rand::SystemRandom,
    signature::{Ed25519KeyPair, KeyPair as _},
};
use rustix::process::Signal;
use serde_json::{Value, json};
use tonic::Code;

use crate::harness::{
    bearer::TokenFiles,
    config::{self, ConfigFile, Template},
    doorman::{Doorman, assert_refused, capacity, node_request, unix_now},
    peers::{Peers, channel},
    process::leaseway,
    server::Server,
    wait::eventually,
};

const OPS: &str = "- {name: ops, who: ops, may: [read, configure, peers, pools, override]}\n";

fn with_rules(rules: &str) -> String {
    let template = Template { kind: "NO_ALGORITHM", ..Template::fair("*", 100.0) };
    format!("{}access:\n{OPS}{rules}", config::text(&[template]))
}

fn asks(caller: &Doorman, name: &str) -> Result<f64, Code> {
    // Without a lease from its parent a node leaves the entry out of its answer.
    let lease = caller.ask(name, "db", 1.0, None).map_err(|status| status.code())?;
    Ok(lease.map_or(0.0, |lease| capacity(Some(lease))))
}

/// Stops the load when dropped, even if the test fails.
struct EndLoad<'a>(&'a AtomicBool);

impl Drop for EndLoad<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn policy_and_tokens_reload_under_load_without_failing_allowed_calls() {
    let web_1 = "- {name: first, who: web-1, may: ask}\n";
    let both = "- {name: first, who: [web-1, web-2], may: ask}\n";
    let tokens = TokenFiles::of(&["ops", "web-1", "web-2"]);
    let file = ConfigFile::new(&with_rules(web_1));
    let server = Server::with_flags(&["--config", file.path(), "--tokens", &tokens.server()]);
    let caller = |identity: &str| Doorman::with_token(server.channel(), &tokens.token(identity));
    let (first, second) = (caller("web-1"), caller("web-2"));
    let (stop, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(asks(&first, "web-1"), Ok(1.0));
                answered.fetch_add(1, Ordering::Relaxed);
            }
        });
        let end = EndLoad(&stop);
        for round in 0..3 {
            let (rules, expected) = if round % 2 == 0 { (both, Ok(1.0)) } else { (web_1, Err(Code::PermissionDenied)) };
            file.replace(&with_rules(rules));
            server.signal(Signal::HUP);
            eventually("the policy is in force", || (asks(&second, "web-2") == expected).then_some(()));
        }
        // An invalid file of tokens changes nothing.
        let before = tokens.lines();
        tokens.write("web-1 sha256:0123\n");
        server.signal(Signal::HUP);
        eventually("the file is refused", || server.log().contains("line 1: expected").then_some(()));
        tokens.write(&before);
        tokens.remove("web-2");
        server.signal(Signal::HUP);
        let withdrawn = Err(Code::Unauthenticated);
        eventually("the token is withdrawn", || (asks(&second, "web-2") == withdrawn).then_some(()));
        tokens.add("web-3");
        tokens.add("web-2");
        let again = caller("web-2");
        eventually("a new token is accepted without a signal", || (asks(&again, "web-2") == Ok(1.0)).then_some(()));
        drop(end);
        load.join().expect("every allowed call succeeded");
    });
    assert!(answered.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_leaf_has_its_own_policy_and_its_parent_lends_only_to_it() {
    let lend = "- {name: leaf, who: anonymous, may: lend, nodes: leaf}\n";
    let root = ConfigFile::new(&format!("{}access:\n{OPS}{lend}", config::text(&[Template::fair("*", 100.0)])));
    let root = Server::with_config(&root);
    let parent = root.grpc().to_string();
    let tokens = TokenFiles::of(&["ops", "web-1", "web-2"]);
    let rules = ConfigFile::new(&format!("access:\n{OPS}- {{name: web, who: web-1, may: ask}}\n"));
    let data = tempfile::tempdir().unwrap();
    let flags = [
        ["--parent", &parent],
        ["--node", "leaf"],
        ["--config", rules.path()],
        ["--tokens", &tokens.server()],
        ["--data", data.path().to_str().unwrap()],
        ["--admin", "127.0.0.1:0"],
    ];
    let leaf = Server::with_flags(&[flags.concat(), vec!["--bootstrap"]].concat());
    let caller = |identity: &str| Doorman::with_token(leaf.channel(), &tokens.token(identity));
    let (first, second) = (caller("web-1"), caller("web-2"));
    eventually("the leaf has a lease", || (asks(&first, "web-1") == Ok(1.0)).then_some(()));
    assert_eq!(asks(&second, "web-2"), Err(Code::PermissionDenied));

    // The parent lends to this node only.
    let stranger = Doorman::over(root.channel());
    let posed = stranger.get_server(node_request("other", "db", &[(1, 1.0)]));
    assert_refused(posed, Code::PermissionDenied, &["as child node `other`"]);

    // The node's own peers store its policy.
    let ops = ["--admin", &leaf.admin(), "--admin-token-file", &tokens.of_identity("ops")].map(str::to_owned);
    let operate = |arguments: &[&str]| {
        let ops: Vec<&str> = ops.iter().map(String::as_str).collect();
        leaseway(&[arguments, &ops].concat())
    };
    let both = ConfigFile::new(&format!("access:\n{OPS}- {{name: web, who: 'web-*', may: ask}}\n"));
    let output = operate(&["config", "apply", both.path(), "--yes"]);
    assert!(output.code == Some(0) && output.stdout.contains("access rule `web`: who web-1 → web-*"), "{output:?}");
    eventually("the policy is in force", || (asks(&second, "web-2") == Ok(1.0)).then_some(()));
    assert!(operate(&["config", "show"]).stdout.contains("web-*"));
    let templates = ConfigFile::new(&with_rules(""));
    let output = operate(&["config", "apply", templates.path(), "--yes"]);
    assert!(output.code != Some(0) && output.stderr.contains("takes its templates from the parent"), "{output:?}");

    let output = leaseway(&["serve", "--parent", &parent, "--node", "leaf", "--config", templates.path()]);
    assert!(output.code == Some(78) && output.stderr.contains("takes its templates from the parent"), "{output:?}");
}

/// An issuer of JWTs with one key.
struct Issuer(Ed25519KeyPair);

impl Issuer {
    fn new() -> Issuer {
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Issuer(Ed25519KeyPair::from_pkcs8(key.as_ref()).unwrap())
    }

    fn jwks(&self) -> String {
        let key = json!({ "kty": "OKP", "crv": "Ed25519", "x": URL_SAFE_NO_PAD.encode(self.0.public_key()) });
        json!({ "keys": [key] }).to_string()
    }

    fn token(&self, name: &str, lasts: i64) -> String {
        let claims = json!({ "sub": name, "iss": "issuer", "aud": "leaseway", "exp": unix_now() + lasts });
        let [header, claims] = [json!({ "alg": "EdDSA" }), claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let signed = format!("{header}.{claims}");
        let signature = URL_SAFE_NO_PAD.encode(self.0.sign(signed.as_bytes()));
        format!("{signed}.{signature}")
    }
}

#[test]
fn a_jwt_is_accepted_only_while_valid_and_signed_by_a_known_key() {
    let (issuer, next) = (Issuer::new(), Issuer::new());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("jwks.json");
    std::fs::write(&path, issuer.jwks()).unwrap();
    let config = ConfigFile::new(&with_rules("- {name: web, who: web-1, may: ask}\n"));
    let flags = ["--config", config.path(), "--jwks", path.to_str().unwrap(), "--jwt-issuer", "issuer"];
    let server = Server::with_flags(&[&flags[..], &["--jwt-audience", "leaseway"]].concat());
    let caller = |token: &str| Doorman::with_token(server.channel(), token);
    let web = caller(&issuer.token("web-1", 600));
    assert_eq!(asks(&web, "web-1"), Ok(1.0));
    assert_eq!(asks(&web, "web-2"), Err(Code::PermissionDenied));
    assert_eq!(asks(&caller(&issuer.token("web-2", 600)), "web-2"), Err(Code::PermissionDenied));
    let expired = caller(&issuer.token("web-1", -600)).ask("web-1", "db", 1.0, None);
    assert_refused(expired, Code::Unauthenticated, &["it has expired"]);
    let stranger = caller(&next.token("web-1", 600));
    assert_refused(stranger.ask("web-1", "db", 1.0, None), Code::Unauthenticated, &["its signature is invalid"]);

    std::fs::write(&path, next.jwks()).unwrap();
    server.signal(Signal::HUP);
    eventually("the new key is accepted", || (asks(&stranger, "web-1") == Ok(1.0)).then_some(()));
    assert_eq!(asks(&web, "web-1"), Err(Code::Unauthenticated), "the old key is refused");
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_audit_log_records_changes_and_denials_with_identities() {
    let directory = tempfile::tempdir().unwrap();
    let audit = directory.path().join("audit.jsonl");
    let tokens = TokenFiles::of(&["ops", "web-1"]);
    let probe = super::policy::PROBE;
    let config = ConfigFile::new(&with_rules(probe));
    let flags = ["--tokens", &tokens.server(), "--audit", audit.to_str().unwrap()];
    let peers = Peers::start(1, config, &flags);
    let file = ConfigFile::new(&with_rules(&format!("{probe}- {{name: web, who: web-1, may: ask, resources: db}}\n")));
    let operate = |identity: &str, arguments: &[&str]| {
        peers.operate(0, &[arguments, &["--admin-token-file", &tokens.of_identity(identity)]].concat())
    };
    assert_eq!(operate("web-1", &["config", "apply", file.path(), "--yes"]).code, Some(77));
    assert_eq!(operate("ops", &["config", "apply", file.path(), "--yes"]).code, Some(0));
    assert_ne!(operate("ops", &["peers", "remove", "nobody", "--yes"]).code, Some(0));
    let web = Doorman::with_token(channel(peers.grpc(0)), &tokens.token("web-1"));
    assert_refused(web.ask("bob", "db", 1.0, None), Code::PermissionDenied, &["as client `bob`"]);

    let find = |what: &str, who: &str| {
        eventually(what, || lines(&audit).into_iter().find(|line| line["what"] == what && line["who"] == who))
    };
    let applied = find("config_applied", "ops");
    assert_eq!((&applied["outcome"], &applied["version"]), (&"done".into(), &2.into()));
    assert_eq!((&applied["source"], &applied["address"]), (&file.path().into(), &"127.0.0.1".into()));
    assert_ne!(find("peer_removed", "ops")["outcome"], "done");
    let denied = find("denied", "web-1");
    assert!(denied["outcome"].as_str().unwrap().contains("may not") && denied["call"].is_string(), "{denied}");
    let text = std::fs::read_to_string(&audit).unwrap();
    for identity in ["ops", "web-1"] {
        assert!(!text.contains(&tokens.token(identity)), "the log contains no tokens");
    }
}
