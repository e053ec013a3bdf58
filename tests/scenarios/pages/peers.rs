//! The status page of a follower, during an election, and while its server is unreachable.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::SocketAddr,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use rustix::process::Signal;
use serde_json::Value;

use super::status::Live;
use crate::harness::{
    config::{ConfigFile, Template},
    foreign, http,
    peers::Peers,
    process::leaseway,
    wait::eventually,
};

const NAMES: [&str; 3] = ["a", "b", "c"];

pub(super) fn three() -> Peers {
    Peers::start(3, ConfigFile::of(&[Template::fair("*", 100.0)]), &[])
}

fn link(peers: &Peers, peer: usize) -> String {
    format!("href=\"//{}/\"", peers.http(peer))
}

/// Reads messages until a part of the page satisfies the condition.
fn until(live: &mut Live, part: &str, is_so: impl Fn(&str) -> bool) -> String {
    loop {
        let message = live.next();
        if let Some(text) = message[part].as_str().filter(|text| is_so(text)) {
            return text.to_owned();
        }
    }
}

#[test]
fn an_open_page_follows_changes_of_mastership() {
    let mut peers = three();
    let first = peers.master();
    let mut others: Vec<(usize, Live)> = peers
        .all()
        .filter(|peer| *peer != first)
        .map(|peer| (peer, Live::open(peers.http(peer), "/live?view=%2F")))
        .collect();
    for (_, live) in &mut others {
        until(live, "notice", |notice| notice.contains(&link(&peers, first)));
    }
    peers.kill(first);
    let second = peers.master_but(&[first]);
    peers.client("ann").ask(&peers, "r", 500.0);
    let at = others.iter().position(|(peer, _)| *peer == second).unwrap();
    let (_, mut of_second) = others.remove(at);
    until(&mut of_second, "contended", |part| part.contains("resource=r"));
    let page = http::get(peers.http(second), "/").body;
    assert!(!page.contains("This peer is not the master"), "{page}");
    let (last, mut of_last) = others.remove(0);
    let notice = until(&mut of_last, "notice", |notice| notice.contains(&link(&peers, second)));
    assert!(!notice.contains(&link(&peers, first)), "{notice}");
    // Without a majority there is no master. The last peer must not name the dead master.
    peers.kill(second);
    let notice = until(&mut of_last, "notice", |notice| !notice.contains("href"));
    assert!(notice.contains("does not know the resources") && !notice.contains("href"), "{notice}");
    eventually("the page shows a bad verdict", || {
        let page = http::get(peers.http(last), "/").body;
        page.contains("class=\"verdict bad\"").then_some(())
    });
}

#[test]
fn a_follower_shows_no_numbers_that_only_the_master_knows() {
    let peers = three();
    let (master, follower) = (peers.master(), peers.follower());
    peers.client("ann").ask(&peers, "r", 10.0);
    let status = |peer| -> Value { serde_json::from_str(&http::get(peers.http(peer), "/api/v1/status").body).unwrap() };
    for (name, at_master) in [("resources", 1), ("holders", 1), ("clients", 1)] {
        assert_eq!(status(master)[name], at_master, "{name}");
        assert_eq!(status(follower)[name], Value::Null, "{name}");
    }
    for view in ["/", "/resources", "/resource?resource=r", "/why?resource=r&holder=ann"] {
        let page = http::get(peers.http(follower), view).body;
        assert!(page.contains("only the master knows"), "{view}: {page}");
        for stated in
            ["No resources yet", "No resource is over", "No resource is contended", "No such resource", ">0</a>"]
        {
            assert!(!page.contains(stated), "{view} states `{stated}`: {page}");
        }
    }
    let output = leaseway_status(&peers, follower);
    assert!(output.contains("only the master knows"), "{output}");
}

fn leaseway_status(peers: &Peers, peer: usize) -> String {
    let server = peers.grpc(peer).to_string();
    leaseway(&["status", "--here", "--server", &server]).stdout
}

/// A page in a real browser.
struct OpenPage {
    process: Child,
    ask: Option<ChildStdin>,
    told: BufReader<ChildStdout>,
}

impl OpenPage {
    fn open(server: SocketAddr, path: &str) -> OpenPage {
        let mut process = Command::new("node")
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/browser/follow.js"))
            .arg(format!("http://{server}{path}"))
            .env("CHROMIUM", foreign::path("LEASEWAY_TEST_CHROMIUM"))
            .env("NODE_PATH", foreign::path("LEASEWAY_TEST_NODE_MODULES"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("node runs");
        let (ask, told) = (process.stdin.take(), BufReader::new(process.stdout.take().unwrap()));
        OpenPage { process, ask, told }
    }

    /// Waits until an expression is true in the page.
    fn until(&mut self, expression: &str) {
        writeln!(self.ask.as_mut().unwrap(), "{expression}").unwrap();
        let mut told = String::new();
        self.told.read_line(&mut told).unwrap();
        assert_eq!(told, "true\n", "{expression}");
    }
}

impl Drop for OpenPage {
    fn drop(&mut self) {
        // The script closes the browser at the end of its input. A kill would leave the browser running.
        drop(self.ask.take());
        let _ = self.process.wait();
    }
}

#[test]
#[cfg_attr(not(chromium), ignore = "needs LEASEWAY_TEST_CHROMIUM and LEASEWAY_TEST_NODE_MODULES")]
fn an_open_page_shows_an_outage_and_recovers_after_it() {
    const LOST: &str = "document.body.classList.contains('lost') && !document.getElementById('lost').hidden && \
                        document.getElementById('lost').textContent.includes('cannot be reached') && \
                        getComputedStyle(document.querySelector('h1')).filter.includes('grayscale')";
    const BACK: &str = "!document.body.classList.contains('lost') && document.getElementById('lost').hidden && \
                        document.getElementById('live-said').textContent === 'Live'";
    let mut peers = three();
    let (master, follower) = (peers.master(), peers.follower());
    let mut page = OpenPage::open(peers.http(follower), "/resource?resource=r");
    page.until("document.body.innerText.includes('only the master knows')");
    page.until(BACK);
    peers.operated(master, &["transfer", NAMES[follower]]);
    peers.client("ann").ask(&peers, "r", 10.0);
    page.until("document.querySelector('#rows') && document.querySelector('#rows').innerText.includes('ann')");
    // A stopped process keeps its connections open, but answers nothing.
    peers.signal(follower, Signal::STOP);
    page.until(LOST);
    peers.signal(follower, Signal::CONT);
    page.until(BACK);
    peers.kill(follower);
    page.until(LOST);
    peers.run(follower, &[]);
    page.until(BACK);
}
