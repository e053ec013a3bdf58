//! Access policies on a running cluster that the tests share. Each row of a table is tried on every peer.

use std::sync::OnceLock;

use leaseway_proto::doorman::{PriorityBandAggregate, ResourceRequest, ServerCapacityResourceRequest};
use tonic::{Code, Status};

use crate::harness::{
    authority::{Authority, Valid},
    bearer::TokenFiles,
    config::{self, ConfigFile, Template},
    doorman::{Doorman, assert_problem, assert_refused, entry, node_request, request},
    http,
    peers::{Peers, channel},
    process::{Output, leaseway},
    prometheus::Scrape,
    server::Server,
    tls,
    wait::{block_on, eventually},
};

const IDENTITIES: [&str; 8] = ["web-1", "web-2", "db-1", "region-1", "reader", "auditor", "ops", "stranger"];

/// The rule for the harness's own requests, by which it finds the master.
pub(crate) const PROBE: &str = "- {name: probe, who: anonymous, may: ask, resources: probe, clients: probe}\n";

const RULES: &str = "\
- {name: web, who: 'web-*', may: ask, resources: ['db/*', cache], max_priority: 5}
- {name: db, who: db-1, may: ask, resources: 'db/*', clients: ['{identity}', 'batch-*']}
- {name: regions, who: 'region-*', may: lend, resources: 'db/*', max_priority: 3}
- {name: reader, who: reader, may: read, resources: 'db/*'}
- {name: auditor, who: auditor, may: read}
- {name: ops, who: ops, may: [read, configure, peers, pools, override]}
";

fn config_text(rules: &str) -> String {
    let templates = config::text(&[Template { kind: "NO_ALGORITHM", ..Template::fair("*", 1000.0) }]);
    format!("{templates}access:\n{PROBE}{rules}")
}

/// Three peers under [`RULES`]. Mastership does not move, and no test changes the policy.
struct Cluster {
    peers: Peers,
    tokens: TokenFiles,
    master: usize,
}

impl Cluster {
    fn shared() -> &'static Cluster {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(|| {
            let tokens = TokenFiles::of(&IDENTITIES);
            let config = ConfigFile::new(&config_text(RULES));
            let peers = Peers::start_shared(3, config, &["--tokens", &tokens.server()]);
            let master = peers.master();
            Cluster { peers, tokens, master }
        })
    }

    fn client(&self, peer: usize, identity: &str) -> Doorman {
        let channel = channel(self.peers.grpc(peer));
        match identity {
            "anonymous" => Doorman::over(channel),
            identity => Doorman::with_token(channel, &self.tokens.token(identity)),
        }
    }

    fn operate(&self, identity: &str, arguments: &[&str]) -> Output {
        let file = self.tokens.of_identity(identity);
        self.peers.operate(self.master, &[arguments, &["--admin-token-file", &file]].concat())
    }
}

/// A call that a caller makes.
enum PolicyCall {
    Ask { resource: &'static str, client: &'static str, priority: i64 },
    Release { resource: &'static str, client: &'static str },
    ReleaseNode { resource: &'static str, node: &'static str },
    Lend { resource: &'static str, node: &'static str, priority: i64 },
    Watch { client: &'static str },
    Status { resource: &'static str },
    Discovery,
}

impl PolicyCall {
    /// Fails if the policy denies the call. Ignores the answer.
    fn make(&self, caller: &Doorman) -> Result<(), Status> {
        match *self {
            PolicyCall::Ask { resource, client, priority } => {
                let entry = ResourceRequest { priority: Some(priority), ..entry(resource, 1.0) };
                caller.get(request(client, vec![entry])).map(drop)
            }
            PolicyCall::Release { resource, client } => caller.try_release(client, &[resource], false).map(drop),
            PolicyCall::ReleaseNode { resource, node } => caller.try_release(node, &[resource], true).map(drop),
            PolicyCall::Lend { resource, node, priority } => {
                let mut asked = node_request(node, resource, &[(1, 1.0)]);
                let band = |priority| PriorityBandAggregate {
                    priority: Some(priority),
                    num_clients: Some(1),
                    wants: Some(1.0),
                };
                let ServerCapacityResourceRequest { wants, .. } = &mut asked.resource[0];
                *wants = vec![band(0), band(priority)];
                caller.get_server(asked).map(drop)
            }
            PolicyCall::Watch { client } => match caller.watch(client) {
                // Only the master sends hints.
                Err(status) if status.code() == Code::FailedPrecondition => Ok(()),
                answer => answer.map(drop),
            },
            PolicyCall::Status { resource } => caller.status(resource).map(drop),
            PolicyCall::Discovery => caller.try_discovery().map(drop),
        }
    }
}

const fn ask(resource: &'static str, client: &'static str, priority: i64) -> PolicyCall {
    PolicyCall::Ask { resource, client, priority }
}

const fn lend(resource: &'static str, node: &'static str, priority: i64) -> PolicyCall {
    PolicyCall::Lend { resource, node, priority }
}

const ALLOWED: &str = "";

/// Identity, call, and a part of the denial's text.
const TABLE: [(&str, PolicyCall, &str); 39] = [
    ("web-1", ask("db/1", "web-1", 0), ALLOWED),
    ("web-1", ask("cache", "web-1", 0), ALLOWED),
    ("web-1", ask("db/1", "web-1/worker", 0), ALLOWED),
    ("web-1", ask("db/1", "web-1", 5), ALLOWED),
    ("web-1", ask("db/1", "web-1", -40_000), ALLOWED),
    ("web-1", ask("db/1", "web-1", 6), "max_priority"),
    ("web-1", ask("db/1", "web-1", 32_767), "at priority 32767"),
    ("web-1", ask("db/1", "web-2", 0), "as client `web-2`"),
    ("web-1", ask("db/1", "web-10", 0), "does not cover this client"),
    ("web-1", ask("db/1", "web-1/a/b", 0), "does not cover this client"),
    ("web-1", ask("queue", "web-1", 0), "`queue`"),
    ("web-1", ask("db/1/x", "web-1", 0), "does not cover this resource"),
    ("web-1", lend("db/1", "web-1", 0), "be lent `db/1` as child node `web-1`"),
    ("web-1", PolicyCall::Release { resource: "db/1", client: "web-1" }, ALLOWED),
    ("web-1", PolicyCall::Release { resource: "db/1", client: "web-2" }, "as client `web-2`"),
    ("web-1", PolicyCall::ReleaseNode { resource: "db/1", node: "web-1" }, "as child node `web-1`"),
    ("web-1", PolicyCall::Watch { client: "web-1" }, ALLOWED),
    ("web-1", PolicyCall::Watch { client: "web-2" }, "as client `web-2`"),
    ("web-1", PolicyCall::Status { resource: "" }, "`web-1` may not read about this server"),
    ("web-1", PolicyCall::Discovery, ALLOWED),
    ("web-2", ask("db/1", "web-2", 0), ALLOWED),
    ("db-1", ask("db/1", "batch-7", 32_767), ALLOWED),
    ("db-1", ask("cache", "db-1", 0), "`db`, does not cover this resource"),
    ("db-1", ask("db/1", "web-1", 0), "as client `web-1`"),
    ("region-1", lend("db/1", "region-1", 3), ALLOWED),
    ("region-1", lend("db/1", "region-1", 4), "max_priority"),
    ("region-1", lend("db/1", "region-2", 0), "does not cover this child node"),
    ("region-1", ask("db/1", "region-1", 0), "`region-1` may not ask for `db/1`"),
    ("region-1", PolicyCall::ReleaseNode { resource: "db/1", node: "region-1" }, ALLOWED),
    ("reader", PolicyCall::Status { resource: "" }, ALLOWED),
    ("reader", PolicyCall::Status { resource: "db/1" }, ALLOWED),
    ("reader", PolicyCall::Status { resource: "cache" }, "`reader` may not read `cache`"),
    ("reader", ask("db/1", "reader", 0), "`reader` may not ask for `db/1`"),
    ("stranger", ask("db/1", "web-1", 0), "no rule applies to this identity"),
    ("stranger", PolicyCall::Discovery, "no rule applies to this identity"),
    ("stranger", PolicyCall::Status { resource: "" }, "no rule applies to this identity"),
    ("anonymous", ask("probe", "probe", 0), ALLOWED),
    ("anonymous", ask("db/1", "web-1", 0), "`anonymous` may not ask for `db/1`"),
    ("anonymous", PolicyCall::Watch { client: "web-1" }, "as client `web-1`"),
];

#[test]
fn every_peer_enforces_the_policy() {
    let cluster = Cluster::shared();
    for peer in cluster.peers.all() {
        for (row, (identity, call, denial)) in TABLE.iter().enumerate() {
            let made = call.make(&cluster.client(peer, identity));
            let context = format!("row {row}, {identity}, peer {peer}");
            match *denial {
                ALLOWED => assert!(made.is_ok(), "{context}: {made:?}"),
                says => {
                    let status = made.expect_err(&context);
                    assert_eq!(status.code(), Code::PermissionDenied, "{context}: {status:?}");
                    assert!(status.message().contains(says), "{context}: {}", status.message());
                    assert!(status.message().contains(&format!("`{identity}`")), "{context}: {}", status.message());
                }
            }
        }
    }
    // `leaseway access test` agrees.
    for (row, (identity, call, denial)) in TABLE.iter().enumerate() {
        let PolicyCall::Ask { resource, client, priority } = call else { continue };
        let priority = (*priority).clamp(-32_768, 32_767).to_string();
        let asked = ["access", "test", identity, resource, "--client", client, "--priority", &priority];
        let output = cluster.operate("ops", &asked);
        let expected = if *denial == ALLOWED { (Some(0), "allowed: ") } else { (Some(77), "denied: ") };
        assert!(output.code == expected.0 && output.stdout.starts_with(expected.1), "row {row}: {output:?}");
    }
}

#[test]
fn a_denied_entry_does_not_affect_the_others_of_its_request() {
    let cluster = Cluster::shared();
    let web = cluster.client(cluster.master, "web-1");
    let entries = ["db/1", "queue", "cache"].map(|resource| entry(resource, 1.0)).to_vec();
    let answer = web.get(request("web-1", entries)).unwrap();
    let answered: Vec<&str> = answer.response.iter().map(|response| response.resource_id()).collect();
    assert_eq!(answered, ["db/1", "cache"]);
    assert_problem(&answer.problem, "denied", &["`web-1` may not ask for `queue` as client `web-1`"]);
}

#[test]
fn operators_may_run_the_commands_that_rules_allow() {
    let cluster = Cluster::shared();
    let file = ConfigFile::new(&format!("# another version\n{}", config_text(RULES)));
    for (identity, arguments, allowed) in [
        ("web-1", vec!["config", "apply", file.path(), "--yes"], false),
        ("auditor", vec!["config", "apply", file.path(), "--yes"], false),
        ("auditor", vec!["config", "show"], true),
        ("auditor", vec!["config", "history"], true),
        ("auditor", vec!["peers", "list"], true),
        ("auditor", vec!["peers", "remove", "c", "--yes"], false),
        ("auditor", vec!["pool", "load", "db/1", "5"], false),
        ("auditor", vec!["pool", "set", "web-1", "db/1", "5"], false),
        ("reader", vec!["peers", "list"], true),
        ("web-1", vec!["peers", "list"], false),
        ("web-1", vec!["config", "show"], false),
        ("web-1", vec!["pool", "show", "db/1"], false),
        ("ops", vec!["config", "apply", file.path(), "--yes"], true),
    ] {
        let output = cluster.operate(identity, &arguments);
        let expected = if allowed { 0 } else { 77 };
        assert_eq!(output.code, Some(expected), "{identity} {arguments:?}: {output:?}");
        assert!(allowed || output.stderr.contains("may not"), "{output:?}");
    }
    // These fail because there is no such pool, and not with a denial.
    for arguments in [&["pool", "set", "web-1", "db/1", "5"][..], &["pool", "load", "db/1", "5"]] {
        let output = cluster.operate("ops", arguments);
        assert!(output.code != Some(0) && output.code != Some(77), "{output:?}");
    }
    let output = cluster.peers.operate(cluster.master, &["config", "show"]);
    assert!(output.code == Some(77) && output.stderr.contains("`anonymous` may not"), "{output:?}");
}

#[test]
fn status_shows_only_resources_that_the_caller_may_read() {
    let cluster = Cluster::shared();
    let web = cluster.client(cluster.master, "web-1");
    for resource in ["db/1", "db/2", "cache"] {
        web.ask("web-1", resource, 1.0, None).unwrap();
    }
    let seen = |identity: &str| {
        let status = cluster.client(cluster.master, identity).status("").unwrap();
        assert_eq!(status.resources_total, status.resources.len() as u64, "{identity}");
        status.resources.into_iter().map(|row| row.resource_id).collect::<Vec<_>>()
    };
    assert!(seen("reader").iter().all(|resource| resource.starts_with("db/")));
    assert!(seen("auditor").contains(&"cache".to_owned()));
}

#[test]
fn pages_need_permission_to_read_everything_and_probes_need_none() {
    let cluster = Cluster::shared();
    let server = cluster.peers.http(cluster.master);
    for (identity, status) in [("anonymous", 401), ("web-1", 403), ("reader", 403), ("auditor", 200)] {
        let token = (identity != "anonymous").then(|| cluster.tokens.token(identity));
        let header = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
        for page in ["/metrics", "/", "/resources"] {
            let response = http::get_with(server, page, &header);
            assert_eq!(response.status, status, "{identity} {page}: {}", response.body);
            assert!(status == 200 || response.body.contains("may not read"), "{}", response.body);
        }
        assert_eq!(http::get_with(server, "/healthz", &header).status, 200);
        let ready = http::get_with(server, "/readyz", &header);
        assert_eq!((ready.status, &*ready.body), (200, "ready: master\n"), "{identity}");
    }
    for peer in cluster.peers.all().filter(|peer| *peer != cluster.master) {
        let ready = http::get_with(cluster.peers.http(peer), "/readyz", "");
        assert_eq!((ready.status, &*ready.body), (200, "ready: the master is known\n"));
    }
    let wrong = http::get_with(server, "/metrics", "Authorization: Bearer nonsense\r\n");
    assert_eq!((wrong.status, wrong.header("www-authenticate")), (401, Some("Bearer")));
    let header = format!("Authorization: Bearer {}\r\n", cluster.tokens.token("auditor"));
    let metrics = Scrape::parse(&http::get_with(server, "/metrics", &header).body);
    assert!(metrics.find("leaseway_access_denied_total", "call", "HTTP").unwrap() >= 9.0);
}

#[test]
fn an_unknown_token_is_refused_and_not_treated_as_anonymous() {
    let cluster = Cluster::shared();
    let caller = Doorman::with_token(channel(cluster.peers.grpc(cluster.master)), "lwt_0123");
    assert_refused(caller.get(request("probe", vec![entry("probe", 1.0)])), Code::Unauthenticated, &["--tokens"]);
    assert_refused(caller.try_discovery(), Code::Unauthenticated, &["unknown token"]);
}

#[test]
fn an_applied_policy_reaches_all_peers_and_closes_denied_streams() {
    let tokens = TokenFiles::of(&IDENTITIES);
    let open = config::text(&[Template::fair("*", 100.0)]);
    let peers = Peers::start(3, ConfigFile::new(&open), &["--tokens", &tokens.server()]);
    let master = peers.master();
    let stranger = Doorman::with_token(channel(peers.grpc(master)), &tokens.token("stranger"));
    stranger.ask("web-1", "db/1", 100.0, None).unwrap().expect("without a policy everything is allowed");
    let mut hints = stranger.watch("web-1").unwrap();
    let next = |hints: &mut tonic::Streaming<_>| block_on(hints.message());
    assert!(next(&mut hints).unwrap().is_some());

    let file = ConfigFile::new(&format!("{open}access:\n{PROBE}{RULES}"));
    let shown = peers.operated(master, &["config", "diff", file.path()]);
    assert!(shown.contains("access: default allowed → denied"), "{shown}");
    assert!(shown.contains("access rule `web`: new, with who web-*, may ask"), "{shown}");
    peers.operated(master, &["config", "apply", file.path(), "--yes"]);
    assert_refused(stranger.ask("web-1", "db/1", 0.0, None), Code::PermissionDenied, &["`stranger`"]);
    for peer in peers.all() {
        let stranger = Doorman::with_token(channel(peers.grpc(peer)), &tokens.token("stranger"));
        eventually("each peer enforces the policy", || {
            stranger.try_discovery().is_err_and(|status| status.code() == Code::PermissionDenied).then_some(())
        });
    }
    // The open stream is closed, although there is no hint to send.
    assert_refused(next(&mut hints), Code::PermissionDenied, &["as client `web-1`"]);
}

#[test]
fn a_child_node_authenticates_at_its_parent_with_a_token() {
    let tokens = TokenFiles::of(&["region-1"]);
    let config = ConfigFile::new(&config_text(RULES));
    let above = Server::with_flags(&["--config", config.path(), "--tokens", &tokens.server()]);
    let (parent, token) = (above.grpc().to_string(), tokens.of_identity("region-1"));
    let leaf = |flags: &[&str]| Server::with_flags(&[&["--parent", &parent, "--node", "region-1"], flags].concat());
    let (known, unknown) = (leaf(&["--parent-token-file", &token]), leaf(&[]));
    eventually("the parent lends", || {
        let answer = known.doorman().get(request("alice", vec![entry("db/1", 7.0)])).ok()?;
        (answer.response.first()?.gets.as_ref()?.capacity == Some(7.0)).then_some(())
    });
    eventually("the log has the reason of the denial", || {
        unknown.doorman().get(request("alice", vec![entry("db/1", 7.0)])).ok();
        unknown.log().contains("`anonymous` may not be lent `db/1`").then_some(())
    });
    let serve = ["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--parent", "10.0.0.1:1"];
    let output = leaseway(&[&serve[..], &["--parent-token-file", &token]].concat());
    assert!(output.code == Some(78) && output.stderr.contains("without TLS"), "{output:?}");
}

#[test]
fn rules_match_certificate_identities_and_a_token_takes_precedence() {
    let authority = Authority::new("ours");
    let issue = |name: &str, names: &[&str]| authority.issue(name, names, Valid::Now);
    let tokens = TokenFiles::of(&["db-1"]);
    let rules = "- {name: web, who: 'spiffe://acme/web/*', may: ask, clients: 'web-*'}\n\
                 - {name: db, who: db-1, may: ask}\n";
    let config = ConfigFile::new(&config_text(rules));
    let files = tls::flags(&issue("server", &["127.0.0.1"]));
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    // With TLS and a policy the server may listen on all addresses.
    let flags = ["--listen", "0.0.0.0:0", "--http", "127.0.0.1:0", "--config", config.path()];
    let server = Server::start(&[&flags[..], &["--tokens", &tokens.server()], &files].concat(), &[]);
    assert!(!server.log().contains("--insecure"), "{}", server.log());
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], server.grpc().port()));
    let web = issue("web-1", &["spiffe://acme/web/1", "web.acme"]);
    let caller = |files: &_| Doorman::over(tls::channel(address, files));
    assert!(caller(&web).ask("web-1", "db/1", 1.0, None).unwrap().is_some());
    assert_refused(caller(&web).ask("db-1", "db/1", 1.0, None), Code::PermissionDenied, &["`spiffe://acme/web/1`"]);
    let named = issue("spiffe-like", &["web.acme"]);
    assert_refused(caller(&named).ask("web-1", "db/1", 1.0, None), Code::PermissionDenied, &["`web.acme`"]);
    let with_token = Doorman::with_token(tls::channel(address, &web), &tokens.token("db-1"));
    assert!(with_token.ask("db-1", "db/1", 1.0, None).unwrap().is_some());
    assert_refused(with_token.ask("web-1", "db/1", 1.0, None), Code::PermissionDenied, &["`db-1` may not"]);
}
