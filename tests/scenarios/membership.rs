//! Directories and `--peers` that contradict each other, growth from one peer to several, and peers that cannot take
//! part.

use std::{fs, net::SocketAddr, path::PathBuf, thread, time::Duration};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};

use crate::harness::{
    config::{ConfigFile, Template},
    doorman::{Asks as _, Client, Doorman, entry, request},
    http,
    peers::channel,
    process::{Process, Said, leaseway},
    prometheus::Scrape,
    server::free_addresses,
    slots::ServerSlot,
    wait::{block_on, eventually},
};

/// Peers that are started one by one, each as a test says.
struct Site {
    config: ConfigFile,
    directory: TempDir,
    peers: Vec<(&'static str, Vec<SocketAddr>)>,
    _slot: ServerSlot,
}

impl Site {
    fn of(names: &[&'static str]) -> Site {
        let peers = names.iter().map(|name| (*name, free_addresses(4))).collect();
        let config = ConfigFile::of(&[Template::fair("*", 100.0)]);
        Site { config, directory: tempfile::tempdir().unwrap(), peers, _slot: ServerSlot::take() }
    }

    /// gRPC, HTTP, admin, peer.
    fn at(&self, name: &str) -> &[SocketAddr] {
        let (_, addresses) = self.peers.iter().find(|(peer, _)| *peer == name).expect("it is one of them");
        addresses
    }

    fn data(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The value of `--peers` that names these.
    fn named(&self, names: &[&str]) -> String {
        names.iter().map(|name| format!("{name}={}", self.at(name)[3])).collect::<Vec<_>>().join(",")
    }

    /// Starts a peer with these `--peers`; none: without.
    fn start(&self, name: &str, peers: &[&str], flags: &[&str]) -> Process {
        let data = self.data(name);
        let values =
            [("--listen", 0), ("--http", 1), ("--admin", 2)].map(|(flag, at)| (flag, self.at(name)[at].to_string()));
        let mut words = vec!["serve", "--id", name, "--data", data.to_str().unwrap()];
        words.extend(values.iter().flat_map(|(flag, value)| [*flag, value]));
        words.extend(["--timing", "100,500,900", "--threads", "2", "--config", self.config.path()]);
        let named = self.named(peers);
        if !peers.is_empty() {
            words.extend(["--peers", &named]);
        }
        Process::start(&[&words, flags].concat(), &[])
    }

    /// As [`start`](Self::start), until it serves.
    fn serve(&self, name: &str, peers: &[&str], flags: &[&str]) -> Process {
        let process = self.start(name, peers, flags);
        eventually("it serves", || {
            let ended = process.ended();
            assert!(ended.is_none(), "{name} ended at once: {}", process.stderr());
            process.stdout().contains("admin on").then_some(())
        });
        process
    }

    /// As [`start`](Self::start), for a start that must be refused: what it says.
    #[track_caller]
    fn refused(&self, name: &str, peers: &[&str], flags: &[&str]) -> String {
        let said = self.start(name, peers, flags).finish();
        assert_eq!(said.code, Some(78), "{said:?}");
        said.stderr
    }

    fn doorman(&self, name: &str) -> Doorman {
        Doorman::over(channel(self.at(name)[0]))
    }

    fn client(&self, id: &str, at: &str) -> Client {
        Client::new(self.doorman(at), id)
    }

    /// Waits until one of these is master.
    fn master(&self, of: &[&'static str]) -> &'static str {
        eventually("there is a master", || {
            let leads = |name: &&str| self.doorman(name).try_discovery().is_ok_and(|said| said.is_master == Some(true));
            of.iter().copied().find(leads)
        })
    }

    /// Runs a command of operators at this peer.
    fn operate(&self, name: &str, arguments: &[&str]) -> Said {
        leaseway(&[arguments, &["--admin", &self.at(name)[2].to_string()]].concat())
    }

    /// As [`operate`](Self::operate), for what must succeed.
    #[track_caller]
    fn operated(&self, name: &str, arguments: &[&str]) -> String {
        let said = self.operate(name, arguments);
        assert_eq!(said.code, Some(0), "{said:?}");
        said.stdout
    }

    /// Waits until this peer says everywhere that it takes no part, for `reason`, in words that contain `says`.
    fn takes_no_part(&self, name: &str, process: &Process, reason: &str, says: &str) {
        let http = self.at(name)[1];
        let health = eventually("it is not healthy", || {
            let health = http::get(http, "/healthz");
            (health.status != 200 && health.body.contains(says)).then_some(health)
        });
        assert_eq!(health.status, 503, "{health:?}");
        let ready = http::get(http, "/readyz");
        assert!(ready.status == 503 && ready.body.contains(says), "{ready:?}");
        let metrics = Scrape::parse(&http::get(http, "/metrics").body);
        assert_eq!(metrics.find("leaseway_peer_takes_no_part", "reason", reason), Some(1.0));
        let others = metrics.series("leaseway_peer_takes_no_part").iter().filter(|series| series.value != 0.0).count();
        assert_eq!(others, 1, "one reason at a time");
        assert!(http::get(http, "/debug/status").body.contains(says));
        let mut checked = HealthClient::new(channel(self.at(name)[0]));
        eventually("gRPC health says so", || {
            let checked = block_on(checked.check(HealthCheckRequest::default())).ok()?.into_inner();
            (checked.status() == ServingStatus::NotServing).then_some(())
        });
        let server = self.at(name)[0].to_string();
        let status = leaseway(&["status", "--here", "--server", &server]);
        assert!(status.stdout.contains(says), "{status:?}");
        let json = leaseway(&["status", "--here", "--json", "--server", &server]);
        let json: Value = serde_json::from_str(&json.stdout).unwrap();
        assert_eq!(json["takes_no_part"]["reason"], reason, "{json}");
        let log = process.stderr();
        let errors = log.lines().filter(|line| line.contains("ERROR")).filter(|line| line.contains(says));
        assert_eq!(errors.count(), 1, "once: {log}");
    }

    /// Waits until this peer says that it takes part.
    fn takes_part(&self, name: &str) {
        eventually("it is healthy and ready", || {
            let well = |path| http::get(self.at(name)[1], path).status == 200;
            (well("/healthz") && well("/readyz")).then_some(())
        });
        let metrics = Scrape::parse(&http::get(self.at(name)[1], "/metrics").body);
        let series = metrics.series("leaseway_peer_takes_no_part");
        assert!(series.len() == 4 && series.iter().all(|series| series.value == 0.0));
    }
}

const ABC: [&str; 3] = ["a", "b", "c"];

fn kill(process: Process) {
    process.signal(Signal::KILL);
    process.finish();
}

/// Those that run. They end when they are dropped.
struct Running(Vec<(&'static str, Process)>);

/// a, b and c, for the first time.
fn founded(site: &Site) -> Running {
    let running = ABC.map(|name| (name, site.serve(name, &ABC, &["--bootstrap"])));
    site.master(&ABC);
    Running(running.into())
}

impl Running {
    fn take(&mut self, name: &str) -> Process {
        let at = self.0.iter().position(|(running, _)| *running == name).expect("it runs");
        self.0.remove(at).1
    }

    fn kill(&mut self, name: &str) {
        kill(self.take(name));
    }

    fn kill_all(self) {
        self.0.into_iter().for_each(|(_, process)| kill(process));
    }
}

#[test]
fn a_directory_of_a_lone_server_does_not_go_on_alone_among_others() {
    let site = Site::of(&ABC);
    let lone = site.serve("c", &[], &["--bootstrap"]);
    site.master(&["c"]);
    assert_eq!(site.client("alice", "c").ask("r", 1000.0), 100.0);
    kill(lone);
    let data = site.data("c");
    for flags in [&[][..], &["--bootstrap"]] {
        let said = site.refused("c", &ABC, flags);
        let named = site.named(&["c"]);
        let ways =
            [data.to_str().unwrap(), "only c", "a, b", "empty", &format!("--peers {named}"), "leaseway peers add"];
        for part in ways {
            assert!(said.contains(part), "`{part}` is not in: {said}");
        }
    }
    // It can go on as what it is, with a listener or without one.
    kill(site.serve("c", &["c"], &[]));
    kill(site.serve("c", &[], &[]));
    // And it can become one of the others.
    fs::remove_dir_all(data).unwrap();
    let _others = ["a", "b"].map(|name| site.serve(name, &ABC, &["--bootstrap"]));
    let _emptied = site.serve("c", &ABC, &["--bootstrap"]);
    site.master(&ABC);
}

#[test]
fn a_directory_of_several_peers_does_not_go_on_alone_or_among_strangers() {
    let site = Site::of(&["a", "b", "c", "d", "e"]);
    founded(&site).kill_all();
    let all = format!("--peers {}", site.named(&ABC));
    let alone = site.refused("a", &[], &[]);
    for part in ["a, b, c", "without --peers", &all] {
        assert!(alone.contains(part), "`{part}` is not in: {alone}");
    }
    let among_strangers = site.refused("a", &["a", "d", "e"], &[]);
    for part in ["a, b, c", "d, e", "empty", &all] {
        assert!(among_strangers.contains(part), "`{part}` is not in: {among_strangers}");
    }
}

#[test]
fn a_peer_that_has_missed_changes_goes_on_and_says_what_differs() {
    let site = Site::of(&["a", "b", "c", "d"]);
    let mut others = founded(&site);
    others.kill("a");
    let master = site.master(&["b", "c"]);
    let _d = site.serve("d", &["b", "c", "d"], &[]);
    eventually("d is let in", || {
        let added = site.operate(master, &["peers", "add", "d", &site.at("d")[3].to_string()]);
        (added.code == Some(0)).then_some(())
    });
    let a = site.serve("a", &["a", "b", "d"], &[]);
    let log = a.stderr();
    let warned = log.lines().find(|line| line.contains("WARN") && line.contains("--peers")).expect("it warns");
    assert!(warned.contains("a, b, c") && warned.contains("a, b, d"), "{warned}");
    site.takes_part("a");
    // Only itself is named, as after it has grown: the others are known from the directory.
    kill(a);
    let _a = site.serve("a", &["a"], &[]);
    site.takes_part("a");
}

#[test]
fn one_server_grows_into_three_without_losing_a_promise() {
    let site = Site::of(&ABC);
    let lone = site.serve("a", &[], &["--bootstrap"]);
    site.master(&["a"]);
    let mut alice = site.client("alice", "a");
    assert_eq!(alice.ask("r", 40.0), 40.0);
    // Others cannot reach it: it says how they could.
    let to_b = site.at("b")[3].to_string();
    let said = site.operate("a", &["peers", "add", "b", &to_b]);
    assert_ne!(said.code, Some(0), "{said:?}");
    for part in ["--id a", "--peers a=HOST:PORT", "same --data"] {
        assert!(said.stderr.contains(part), "`{part}` is not in: {said:?}");
    }
    kill(lone);
    let grown = site.serve("a", &["a"], &[]);
    site.master(&["a"]);
    alice.moves_to(site.doorman("a"));
    assert_eq!(alice.ask("r", 40.0), 40.0);
    let _others: Vec<Process> = ["b", "c"]
        .into_iter()
        .map(|name| {
            let process = site.serve(name, &ABC, &[]);
            site.operated("a", &["peers", "add", name, &site.at(name)[3].to_string()]);
            process
        })
        .collect();
    let list = site.operated("a", &["peers", "list"]);
    assert_eq!(list.matches("follower").count(), 2, "{list}");
    // The first is gone for good, and the others know what it has promised.
    kill(grown);
    let master = site.master(&["b", "c"]);
    let bob = site.client("bob", master).ask("r", 1000.0);
    assert!(bob > 0.0 && bob <= 60.0, "{bob} of what alice has left");
    alice.moves_to(site.doorman(master));
    assert_eq!(alice.ask("r", 40.0), 40.0);
}

#[test]
fn a_peer_that_was_removed_says_so() {
    let site = Site::of(&ABC);
    let mut running = founded(&site);
    let master = site.master(&ABC);
    let removed = ABC.into_iter().find(|name| *name != master).unwrap();
    site.takes_part(removed);
    eventually("it is removed", || (site.operate(master, &["peers", "remove", removed]).code == Some(0)).then_some(()));
    let process = running.take(removed);
    site.takes_no_part(removed, &process, "removed", "was removed");
    // Also when it is started again.
    kill(process);
    let again = site.serve(removed, &ABC, &[]);
    site.takes_no_part(removed, &again, "removed", "was removed");
    // And it comes back when it is let in with an empty directory.
    kill(again);
    fs::remove_dir_all(site.data(removed)).unwrap();
    let _back = site.serve(removed, &ABC, &[]);
    let address = site.at(removed)[3].to_string();
    eventually("it is let in", || {
        (site.operate(master, &["peers", "add", removed, &address]).code == Some(0)).then_some(())
    });
    site.takes_part(removed);
}

#[test]
fn a_peer_whose_old_directory_comes_back_says_that_a_newer_one_has_its_place() {
    let site = Site::of(&ABC);
    let mut others = founded(&site);
    others.kill("c");
    let (data, old) = (site.data("c"), site.directory.path().join("old"));
    fs::rename(&data, &old).unwrap();
    let new = site.serve("c", &ABC, &[]);
    eventually("it has a vote again", || {
        others.0.iter().any(|(_, peer)| peer.stderr().contains("a peer has joined")).then_some(())
    });
    kill(new);
    fs::remove_dir_all(&data).unwrap();
    fs::rename(&old, &data).unwrap();
    let restored = site.serve("c", &ABC, &[]);
    site.takes_no_part("c", &restored, "replaced", "a newer directory");
}

#[test]
fn a_peer_of_another_cluster_says_so_and_peers_with_a_master_go_on() {
    let site = Site::of(&ABC);
    founded(&site).kill_all();
    for name in ["a", "b"] {
        fs::remove_dir_all(site.data(name)).unwrap();
    }
    let old = site.directory.path().join("old");
    fs::rename(site.data("c"), &old).unwrap();
    let mut others = founded(&site);
    others.kill("c");
    fs::remove_dir_all(site.data("c")).unwrap();
    fs::rename(&old, site.data("c")).unwrap();
    let other = site.serve("c", &ABC, &[]);
    site.takes_no_part("c", &other, "other_cluster", "another cluster");
    // Also when its consensus has begun, which remembers a master of the former cluster.
    eventually("it knows no master", || other.stderr().contains("knows no master").then_some(()));
    thread::sleep(Duration::from_secs(1));
    assert!(!other.stderr().contains("takes part again"), "{}", other.stderr());
    for name in ["a", "b"] {
        site.takes_part(name);
    }
}

#[test]
fn a_peer_whose_disk_has_failed_says_so() {
    let site = Site::of(&ABC);
    let mut running = founded(&site);
    let master = site.master(&ABC);
    let failing = ABC.into_iter().find(|name| *name != master).unwrap();
    site.takes_part(failing);
    // A vote is written beside the old one first: that cannot be done any more.
    fs::create_dir(site.data(failing).join("vote.new")).unwrap();
    running.kill(master);
    let process = running.take(failing);
    site.takes_no_part(failing, &process, "failed", "vote.new");
}

#[test]
fn a_peer_just_restarted_knows_the_master_when_it_is_first_asked() {
    let site = Site::of(&ABC);
    let mut running = founded(&site);
    let master = site.master(&ABC);
    let expected = Some(site.at(master)[0].to_string());
    for name in ABC.into_iter().filter(|name| *name != master) {
        running.kill(name);
        running.0.push((name, site.serve(name, &ABC, &[])));
        let got = site.doorman(name).get(request("alice", vec![entry("r", 1.0)])).unwrap();
        assert_eq!((got.response.len(), got.mastership.unwrap().master_address), (0, expected.clone()), "{name}");
        let released = site.doorman(name).try_release("alice", &["r"]).unwrap();
        assert_eq!(released.mastership.unwrap().master_address, expected);
    }
    // The others stand by the one that was master until just now: it does not send clients to itself.
    running.kill(master);
    running.0.push((master, site.serve(master, &ABC, &[])));
    eventually("a lease, or another is named", || {
        let got = site.doorman(master).get(request("alice", vec![entry("r", 1.0)])).unwrap();
        let named = got.mastership.map(|mastership| mastership.master_address);
        assert_ne!(named, Some(expected.clone()), "it is not the master, or it would have given a lease");
        (named != Some(None)).then_some(())
    });
}

#[test]
fn a_peer_that_has_waited_for_a_master_in_vain_says_so() {
    let site = Site::of(&ABC);
    founded(&site).kill_all();
    let _alone = site.serve("a", &ABC, &[]);
    // However long it is asked: the first answer may take a little, and has no address.
    for _ in 0..3 {
        let got = site.doorman("a").get(request("alice", vec![entry("r", 1.0)])).unwrap();
        assert_eq!((got.response.len(), got.mastership.unwrap().master_address), (0, None));
    }
    assert_eq!(http::get(site.at("a")[1], "/readyz").status, 503);
    assert_eq!(http::get(site.at("a")[1], "/healthz").status, 200, "a majority may come back");
}
