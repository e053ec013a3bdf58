//! Supervision of processes that start and end, with shell scripts in place of servers.

use std::{fs, net::SocketAddr, time::Duration};

use tokio::time::sleep;

use super::super::file::Peer;
use super::super::plan::NodePlan;
use super::*;

/// Functions for the scripts, which leave notes as files. The announced addresses never name a master.
const WORDS: &str = "
serve() { echo 'serving gRPC on 127.0.0.1:1, HTTP on 127.0.0.1:1'; echo 'peer x on 127.0.0.1:1, admin on 127.0.0.1:1'; }
note() { : > \"$dir/$me-$1\"; }
await() { while ! [ -e \"$dir/$1\" ]; do sleep 0.01; done; }
linger() { n=0; while [ $n -lt 3000 ]; do sleep 0.01; n=$((n + 1)); done; }
stop_if_asked() { trap 'note stopped; exit 0' TERM; note ready; linger; }
never_stop() { trap '' TERM; note ready; linger; }
";

/// A node whose peers `a`, `b`, … are these scripts.
struct Scripts {
    directory: tempfile::TempDir,
    plan: Plan,
}

impl Scripts {
    /// A tree: the last script is the only peer of a leaf, the others are peers of the root, which has `size` in all.
    fn tree(scripts: &[&str], size: usize) -> Scripts {
        let mut set = Scripts::new(scripts);
        let root = &mut set.plan.nodes[0];
        root.members.resize(size, root.members[0].clone());
        let leaf = NodePlan {
            name: "leaf".into(),
            parent: Some(root.name.clone()),
            directory: root.directory.clone(),
            inline: None,
            members: vec![root.members[0].clone()],
            peers: root.peers.split_off(scripts.len() - 1),
            first: None,
        };
        set.plan.nodes.push(leaf);
        set
    }

    fn new(scripts: &[&str]) -> Scripts {
        let directory = tempfile::tempdir().expect("a directory");
        let nowhere: SocketAddr = ([127, 0, 0, 1], 0).into();
        let peers = scripts.iter().zip('a'..).map(|(script, name)| {
            let label = name.to_string();
            let script = format!("dir='{}'; me={name}; {WORDS} {script}", directory.path().display());
            PeerPlan {
                data: directory.path().join(&label),
                addresses: Peer { name: label.clone(), grpc: nowhere, http: nowhere, admin: nowhere, peer: nowhere },
                label,
                arguments: vec!["-c".into(), script],
            }
        });
        let peers: Vec<PeerPlan> = peers.collect();
        let members = peers.iter().map(|peer| peer.addresses.clone()).collect();
        let (name, directory_of_node) = ("root".to_owned(), directory.path().to_owned());
        let node =
            NodePlan { name, parent: None, directory: directory_of_node, inline: None, peers, members, first: None };
        Scripts { plan: Plan { nodes: vec![node], certificates: None }, directory }
    }

    /// Runs the peers while `operator` requests stops.
    async fn run(&self, operator: impl AsyncFnOnce(mpsc::Sender<()>)) -> Outcome {
        let (ask, mut asked) = mpsc::channel(1);
        let stop = async || {
            if asked.recv().await.is_none() {
                std::future::pending().await
            }
        };
        let supervised = supervise(&self.plan, Path::new("/bin/sh"), "leaseway up", |_| Ok(None), stop);
        tokio::join!(supervised, operator(ask)).0
    }

    /// Waits for these notes.
    async fn noted(&self, notes: &[&str]) {
        while !notes.iter().all(|note| self.directory.path().join(note).exists()) {
            sleep(Duration::from_millis(5)).await;
        }
    }

    fn notes(&self) -> Vec<String> {
        let entries = fs::read_dir(self.directory.path()).expect("it is there");
        let names = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names.filter(|name| name.contains('-')).collect();
        names.sort_unstable();
        names
    }
}

#[tokio::test]
async fn if_a_peer_does_not_start_the_error_names_it_and_the_others_are_stopped() {
    let scripts = Scripts::new(&["serve; stop_if_asked", "await a-ready; exit 3"]);
    let error = scripts.run(async |_| ()).await.expect_err("b did not start").to_string();
    assert_eq!(error, "b did not start (exit status: 3): see its log above. All other peers have been stopped");
    assert_eq!(scripts.notes(), ["a-ready", "a-stopped"]);
}

#[tokio::test]
async fn a_peer_that_exits_with_success_is_not_a_failure() {
    let scripts = Scripts::new(&["serve; note ready; await b-ready", "serve; note ready; await a-ready; sleep 0.2"]);
    let outcome = scripts.run(async |_| ()).await;
    assert!(outcome.is_ok(), "{outcome:?}");
}

#[tokio::test]
async fn a_peer_that_is_killed_is_named_at_the_end_and_the_others_go_on() {
    let scripts = Scripts::new(&["serve; stop_if_asked", "serve; note ready; await go; kill -KILL $$"]);
    let operator = async |ask: mpsc::Sender<()>| {
        scripts.noted(&["a-ready", "b-ready"]).await;
        // The first pause is for output to arrive; after the second `a` would be stopped, if it were.
        for note in ["go", "gone"] {
            sleep(Duration::from_millis(300)).await;
            fs::write(scripts.directory.path().join(note), "").expect("written");
        }
        assert_eq!(scripts.notes(), ["a-ready", "b-ready"]);
        ask.send(()).await.expect("the set listens");
    };
    let error = scripts.run(operator).await.expect_err("b was killed").to_string();
    assert_eq!(error, "exited unexpectedly: b");
    assert_eq!(scripts.notes(), ["a-ready", "a-stopped", "b-ready"]);
}

#[tokio::test]
async fn a_second_stop_request_kills_the_peers() {
    let scripts = Scripts::new(&["serve; never_stop"]);
    let begun = Instant::now();
    let operator = async |ask: mpsc::Sender<()>| {
        scripts.noted(&["a-ready"]).await;
        for _ in 0..2 {
            ask.send(()).await.expect("the set listens");
        }
    };
    let outcome = scripts.run(operator).await;
    assert!(outcome.is_ok(), "it was asked for: {outcome:?}");
    assert!(begun.elapsed() < tether::STOP_TIMEOUT, "it was not waited for");
}

#[tokio::test]
async fn a_program_that_cannot_be_started_is_named() {
    let scripts = Scripts::new(&[""]);
    let program = Path::new("/no/such/program");
    let outcome = supervise(&scripts.plan, program, "leaseway up", |_| Ok(None), std::future::pending).await;
    assert!(outcome.expect_err("there is none").to_string().starts_with("cannot start a: "));
}

#[test]
fn one_error_lists_all_ports_in_use() {
    let taken = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    let [grpc, peer] = taken.each_ref().map(|listener| listener.local_addr().expect("bound"));
    let mut plan = Scripts::new(&[""]).plan;
    assert!(check_ports(&plan).is_ok());
    let addresses = &mut plan.nodes[0].peers[0].addresses;
    (addresses.grpc, addresses.peer) = (grpc, peer);
    let error = check_ports(&plan).expect_err("both are taken").to_string();
    assert!(
        error.contains(&format!("grpc of a: {grpc}: ")) && error.contains(&format!("peer of a: {peer}: ")),
        "{error}"
    );
    assert!(!error.contains("http of a"), "{error}");
}

#[tokio::test]
async fn a_child_waits_while_its_parent_may_get_a_master() {
    let scripts = Scripts::tree(&["serve; stop_if_asked", "serve; stop_if_asked", "note started"], 2);
    let operator = async |ask: mpsc::Sender<()>| {
        scripts.noted(&["a-ready", "b-ready"]).await;
        // By then it would have started, if it did.
        sleep(Duration::from_millis(300)).await;
        ask.send(()).await.expect("the set listens");
    };
    let outcome = scripts.run(operator).await;
    assert!(outcome.is_ok(), "{outcome:?}");
    assert_eq!(scripts.notes(), ["a-ready", "a-stopped", "b-ready", "b-stopped"]);
}

#[tokio::test]
async fn a_child_does_not_wait_for_an_impossible_master() {
    let outcome = async |scripts: Scripts, gone: &[&str]| {
        let operator = async |ask: mpsc::Sender<()>| {
            scripts.noted(gone).await;
            scripts.noted(&["b-ready"]).await;
            ask.send(()).await.expect("the set listens");
        };
        scripts.run(operator).await
    };
    let in_part = outcome(Scripts::tree(&["serve; stop_if_asked", "serve; stop_if_asked"], 3), &["a-ready"]).await;
    assert!(in_part.is_ok(), "too few of its parent's peers are here: {in_part:?}");
    let gone = outcome(Scripts::tree(&["serve; note gone", "serve; stop_if_asked"], 1), &["a-gone"]).await;
    assert!(gone.is_ok(), "all of its parent's peers have ended: {gone:?}");
}
