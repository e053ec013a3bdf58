//! Links are cut and restored, peers killed and restarted, at random. Meanwhile no two reigns ever hold at the same
//! moment; in the end everything that was acknowledged is there.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::watch;

use crate::{
    Clock, Fact, Mastership, ProposeError, Quorum, Reign,
    tests::world::{World, assigned, until},
};

/// Looks at all reigns there ever were, at one moment each time.
#[derive(Clone, Default)]
struct Watchman {
    peers: Arc<Mutex<Vec<watch::Receiver<Mastership>>>>,
    stop: Arc<AtomicBool>,
}

impl Watchman {
    fn watch(&self, peer: &Quorum) {
        self.peers.lock().unwrap().push(peer.mastership());
    }

    /// How many reigns it saw, and at how many moments one held.
    fn run(&self, clock: &Clock) -> (usize, usize) {
        let mut reigns: Vec<Reign> = Vec::new();
        let mut held = 0;
        while !self.stop.load(Ordering::SeqCst) {
            for peer in self.peers.lock().unwrap().iter() {
                if let Mastership::Master(reign) = &*peer.borrow()
                    && !reigns.iter().any(|known| known.number() == reign.number())
                {
                    reigns.push(reign.clone());
                }
            }
            let now = clock();
            // One that began after this moment does not count at it.
            let at_once: Vec<_> = reigns.iter().filter(|reign| reign.since() <= now && reign.holds(now)).collect();
            assert!(at_once.len() <= 1, "at {now:?} all of these hold: {at_once:?}");
            held += at_once.len();
            std::thread::sleep(Duration::from_micros(500));
        }
        (reigns.len(), held)
    }
}

fn fact(number: usize) -> Fact {
    assigned(&number.to_string(), 1.0)
}

fn known_to(peer: &Quorum) -> BTreeSet<usize> {
    peer.read(|facts| facts.assignments("r").filter_map(|(_, client, _)| client.parse().ok()).collect())
}

/// The outcomes of proposals.
#[derive(Default)]
struct Ledger {
    next: usize,
    acknowledged: BTreeSet<usize>,
    refused: BTreeSet<usize>,
}

async fn havoc(names: &[&str], steps: usize, seed: u64) {
    let mut world = World::new(names).await;
    let watchman = Watchman::default();
    let watching = std::thread::spawn({
        let (watchman, clock) = (watchman.clone(), world.clock());
        move || watchman.run(&clock)
    });
    world.bootstrap().await;
    for (_, peer) in world.running() {
        watchman.watch(peer);
    }
    world.master().await;
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let mut random = fastrand::Rng::with_seed(seed);
    let mut down: Vec<String> = Vec::new();
    for _ in 0..steps {
        let victim = match world.masters().first() {
            // The master more often than others.
            Some((master, _)) if random.bool() => master.clone(),
            _ => names[random.usize(..names.len())].to_owned(),
        };
        match random.u8(..6) {
            0 => world.isolate(&victim, true),
            1 => world.cut(&victim, names[random.usize(..names.len())], true),
            2 | 3 => names.iter().for_each(|name| world.isolate(name, false)),
            4 if down.len() < names.len() / 2 && !down.contains(&victim) => {
                if random.bool() {
                    let peer = world.peer(&victim).clone();
                    tokio::spawn(async move { peer.shutdown().await });
                }
                world.kill(&victim);
                down.push(victim);
            }
            _ => {
                if let Some(name) = down.pop() {
                    watchman.watch(&world.start(&name).await);
                }
            }
        }
        for (_, peer) in world.running() {
            let Mastership::Master(reign) = peer.mastership().borrow().clone() else { continue };
            let (peer, ledger) = (peer.clone(), Arc::clone(&ledger));
            tokio::spawn(async move {
                for _ in 0..20 {
                    let number = {
                        let mut ledger = ledger.lock().unwrap();
                        ledger.next += 1;
                        ledger.next
                    };
                    let result = peer.propose(&reign, vec![fact(number)]).await;
                    let mut ledger = ledger.lock().unwrap();
                    match result {
                        Ok(()) => drop(ledger.acknowledged.insert(number)),
                        Err(ProposeError::Deposed) => drop(ledger.refused.insert(number)),
                        Err(_) => {}
                    }
                }
            });
        }
        tokio::time::sleep(Duration::from_millis(random.u64(50..500))).await;
    }
    names.iter().for_each(|name| world.isolate(name, false));
    for name in down {
        watchman.watch(&world.start(&name).await);
    }
    world.propose(fact(0)).await;
    until("all agree", || {
        let mut of_all: Vec<_> = world.running().map(|(_, peer)| known_to(peer)).collect();
        of_all.dedup();
        of_all.len() == 1 && of_all[0].contains(&0)
    })
    .await;
    let there = known_to(world.peer(names[0]));
    {
        let ledger = ledger.lock().unwrap();
        let lost: Vec<_> = ledger.acknowledged.difference(&there).collect();
        let risen: Vec<_> = ledger.refused.intersection(&there).collect();
        assert!(lost.is_empty(), "acknowledged, and lost: {lost:?}");
        assert!(risen.is_empty(), "certainly not stored, and there: {risen:?}");
        assert!(!ledger.acknowledged.is_empty());
    }
    watchman.stop.store(true, Ordering::SeqCst);
    let (reigns, held) = watching.join().expect("no two reigns ever held at once");
    assert!(reigns > 1 && held > 0, "nothing happened: {reigns} reigns, {held} moments");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_peers_in_trouble_never_have_two_masters_and_lose_nothing() {
    havoc(&["a", "b", "c"], 40, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_peers_in_trouble_never_have_two_masters_and_lose_nothing() {
    havoc(&["a", "b", "c", "d", "e"], 40, 2).await;
}
