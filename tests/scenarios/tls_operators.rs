//! Operators' commands over TLS.

use std::net::SocketAddr;

use leaseway_tls::Files;

use crate::harness::{
    authority::{Authority, Valid},
    config::{self, ConfigFile, Template},
    process::{Said, leaseway},
    server::{Server, free_addresses},
    tls::flags,
    wait::eventually,
};

const RULES: &str = "access:
- {name: web, who: 'spiffe://acme/web/*', may: ask, resources: 'db/*', max_priority: 5}
- {name: ops, who: ops, may: [read, configure, peers]}
- {name: reader, who: reader, may: read}
";

/// A cluster of three, one of which has been founded alone.
struct TlsCluster {
    authority: Authority,
    peers: Vec<Server>,
    addresses: Vec<SocketAddr>,
}

impl TlsCluster {
    /// The first peer, with a policy.
    fn founded() -> TlsCluster {
        let addresses = free_addresses(3);
        let mut cluster = TlsCluster { authority: Authority::new("ours"), peers: Vec::new(), addresses };
        cluster.serve("a", 1, &["--bootstrap"]);
        cluster
    }

    /// One more, which names those up to this one.
    fn serve(&mut self, name: &str, number: usize, more: &[&str]) {
        let hosts: Vec<String> = self.addresses.iter().map(|address| address.ip().to_string()).collect();
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).chain(["127.0.0.1"]).collect();
        let files = flags(&self.authority.issue(name, &hosts, Valid::Now));
        let named = ["a", "b", "c"].iter().zip(&self.addresses).take(number);
        let named = named.map(|(name, address)| format!("{name}={address}")).collect::<Vec<_>>().join(",");
        let config = ConfigFile::new(&format!("{}{RULES}", config::text(&[Template::fair("*", 100.0)])));
        let data = self.authority.path(&format!("data-{name}")).display().to_string();
        let own = ["--id", name, "--peers", &named, "--data", &data, "--timing", "100,500,900"];
        let shared = ["--admin", "127.0.0.1:0", "--config", config.path()];
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        self.peers.push(Server::with_flags(&[&own[..], &shared, &files, more].concat()));
    }

    /// What an operator with these files is told by a peer.
    fn operate(&self, peer: usize, files: &Files, words: &[&str]) -> Said {
        let (admin, flags) = (self.peers[peer].admin(), flags(files));
        let target = ["--admin", admin.as_str()];
        leaseway(&[words, &target, &flags.iter().map(String::as_str).collect::<Vec<_>>()].concat())
    }

    fn identity(&self, name: &str) -> Files {
        self.authority.issue(name, &[name], Valid::Now)
    }
}

#[test]
fn peers_are_let_in_over_tls_by_an_operator_with_the_right_and_all_decide_by_the_policy_in_force() {
    let mut cluster = TlsCluster::founded();
    let (ops, reader) = (cluster.identity("ops"), cluster.identity("reader"));
    for (number, name) in [(2, "b"), (3, "c")] {
        cluster.serve(name, number, &[]);
        let address = cluster.addresses[number - 1].to_string();
        let add = ["peers", "add", name, address.as_str()];
        let refused = cluster.operate(0, &reader, &add);
        assert!(refused.code == Some(77) && refused.stderr.contains("`reader` may not"), "{refused:?}");
        let bare = cluster.operate(0, &cluster.authority.trust(), &add);
        assert!(bare.code == Some(69) && bare.stderr.contains("--tls-cert and --tls-key"), "{bare:?}");
        eventually("it is let in", || {
            let added = cluster.operate(0, &ops, &add);
            assert!(!added.stderr.contains("TLS") && added.code != Some(77), "{added:?}");
            let listed = cluster.operate(0, &ops, &["peers", "list"]);
            (listed.code == Some(0) && listed.stdout.contains(&address)).then_some(())
        });
    }
    for peer in 0..3 {
        for (identity, resource, priority, code, says) in [
            ("spiffe://acme/web/1", "db/x", "5", 0, "allowed"),
            ("spiffe://acme/web/1", "db/x", "6", 77, "`web`, has a lower max_priority"),
            ("spiffe://acme/web/1", "queue", "0", 77, "denied"),
            ("mallory", "db/x", "0", 77, "denied"),
        ] {
            eventually("the policy has come", || {
                let asked = ["access", "test", identity, resource, "--priority", priority];
                let said = cluster.operate(peer, &reader, &asked);
                (said.code == Some(code) && said.stdout.contains(says)).then_some(())
            });
        }
        // It is not shown to all.
        let mallory = cluster.operate(peer, &cluster.identity("mallory"), &["access", "test", "mallory", "db/x"]);
        assert!(mallory.code == Some(77) && mallory.stderr.contains("`mallory` may not read"), "{mallory:?}");
    }
}

#[test]
fn every_command_of_operators_takes_an_https_address() {
    let cluster = TlsCluster::founded();
    let (peer, ops) = (&cluster.peers[0], cluster.identity("ops"));
    let files = flags(&ops);
    let config = ConfigFile::new(&format!("{}{RULES}", config::text(&[Template::fair("*", 50.0)])));
    let backup = cluster.authority.path("backup.jsonl").display().to_string();
    let bundle = cluster.authority.path("bundle.tar.gz").display().to_string();
    let (admin, server) = (format!("https://{}", peer.admin()), format!("https://{}", peer.grpc()));
    for words in [
        &["config", "show"][..],
        &["config", "history"],
        &["config", "diff", config.path()],
        &["config", "plan", config.path()],
        &["config", "apply", config.path()],
        &["config", "rollback", "1"],
        &["peers", "list"],
        &["capacity"],
        &["access", "test", "ops", "db/x"],
        &["backup", &backup],
        &["pool", "show", "r"],
    ] {
        let told = [words, &["--admin", &admin]].concat();
        let said = leaseway(&[&told[..], &files.iter().map(String::as_str).collect::<Vec<_>>()].concat());
        // What the node refuses was asked over TLS, too.
        assert!(![None, Some(2), Some(69)].contains(&said.code), "{words:?}: {said:?}");
    }
    for words in [&["check"][..], &["status"], &["debug", "bundle", &bundle]] {
        let told = [words, &["--server", &server]].concat();
        let said = leaseway(&[&told[..], &files.iter().map(String::as_str).collect::<Vec<_>>()].concat());
        assert!([Some(0), Some(3), Some(4)].contains(&said.code), "{words:?}: {said:?}");
        assert!(!said.stdout.contains("they are not known"), "{said:?}");
    }
}
