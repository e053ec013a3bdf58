//! From the version before to this one and back, while clients ask.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use leaseway_proto::doorman::Lease;

use crate::harness::{
    binary,
    config::{ConfigFile, Template},
    doorman::{Doorman, one_of_ours},
    http,
    peers::{Peers, granted},
    previous,
    process::Process,
    wait::eventually,
};

const CAPACITY: f64 = 1000.0;
const CLIENTS: usize = 40;

/// A client's own book: what it was told last counts until it ends.
struct Book {
    id: String,
    lease: Option<Lease>,
}

impl Book {
    fn believes(&self) -> f64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
        let lease = self.lease.as_ref().filter(|lease| now < lease.expiry_time.unwrap());
        lease.map_or(0.0, |lease| lease.capacity.unwrap())
    }
}

#[derive(Debug, Default)]
struct Audit {
    answers: u64,
    most: f64,
    /// The longest that a client had to try.
    longest: Duration,
    ended: u64,
}

/// Asks for all clients in turn, for wants that change, until `stop`.
fn audited(endpoints: &[Doorman], stop: &AtomicBool) -> Audit {
    let mut books: Vec<_> = (0..CLIENTS).map(|n| Book { id: format!("client {n}"), lease: None }).collect();
    let mut random = fastrand::Rng::with_seed(1);
    let mut audit = Audit::default();
    while !stop.load(Ordering::Relaxed) {
        let place = random.usize(..CLIENTS);
        let (wants, book) = (f64::from(random.u32(1..200)), &books[place]);
        audit.ended +=
            u64::from(book.lease.is_some() && book.believes() == 0.0 && book.lease.unwrap().capacity() > 0.0);
        let began = Instant::now();
        let lease = eventually("a peer answers", || {
            endpoints.iter().find_map(|peer| granted(peer.get(one_of_ours(&book.id, "r", wants, book.lease))))
        });
        audit.longest = audit.longest.max(began.elapsed());
        audit.answers += 1;
        books[place].lease = Some(lease);
        audit.most = audit.most.max(books.iter().map(Book::believes).sum());
    }
    audit
}

/// One peer after the other, the master last.
fn replace_all(peers: &mut Peers, with: &Path) {
    let master = peers.master();
    let others: Vec<_> = peers.all().filter(|peer| *peer != master).collect();
    for peer in others.into_iter().chain([master]) {
        let said = peers.stop(peer);
        assert_eq!(said.code, Some(0), "{said:?}");
        peers.run_as(with, peer, &[]);
        eventually("it is ready", || (http::get(peers.http(peer), "/readyz").status == 200).then_some(()));
        peers.master();
    }
}

#[test]
fn peers_of_the_version_before_are_replaced_one_by_one_and_back_while_clients_ask() {
    let Some(before) = previous::binary() else { return };
    let config = ConfigFile::of(&[Template { refresh: 1, ..Template::fair("*", CAPACITY) }]);
    let mut peers = Peers::start_as(&before, 3, config);
    let (stop, endpoints) = (AtomicBool::new(false), peers.all().map(|peer| peers.doorman(peer).clone()));
    let endpoints: Vec<_> = endpoints.collect();
    let audit = thread::scope(|scope| {
        let audit = scope.spawn(|| audited(&endpoints, &stop));
        for with in [binary::path(), &*before, binary::path()] {
            replace_all(&mut peers, with);
        }
        stop.store(true, Ordering::Relaxed);
        audit.join().unwrap()
    });
    eprintln!("{audit:?}");
    assert!(audit.most <= CAPACITY + 1e-6, "{audit:?}");
    assert!(audit.answers > 100 && audit.ended == 0, "{audit:?}");
}

#[test]
fn what_the_version_before_does_not_know_waits_until_all_peers_know_it() {
    let Some(before) = previous::binary() else { return };
    let knows = Process::start_program(&before, &["capacity", "--help"], &[]).finish();
    if knows.code == Some(0) {
        return;
    }
    let mut peers = Peers::start_as(&before, 3, ConfigFile::of(&[Template::fair("*", CAPACITY)]));
    replace_all(&mut peers, binary::path());
    let older = peers.follower();
    peers.stop(older);
    peers.run_as(&before, older, &[]);
    let set = ["capacity", "r", "50%", "--for", "1m", "--why", "a test"];
    let refused = eventually("its version is known", || {
        let said = peers.operate(peers.master(), &set);
        said.stderr.contains("older version").then_some(said)
    });
    assert_ne!(refused.code, Some(0), "{refused:?}");
    peers.stop(older);
    peers.run(older, &[]);
    peers.operated(peers.master(), &set);
    eventually("it has it, too", || peers.log(older).contains("other capacities than templates say").then_some(()));
    peers.stop(older);
    let command = peers.command(older);
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let said = Process::start_program(&before, &words, &[]).finish();
    assert!(said.code != Some(0) && said.stderr.contains("use the version that wrote it"), "{said:?}");
    peers.run(older, &[]);
    assert!(peers.client("alice").ask(&peers, "r", 1000.0) <= CAPACITY / 2.0);
}
