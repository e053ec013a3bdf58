//! Plots survive a change of master, and show what happened.

use serde_json::Value;

use super::peers::three;
use crate::harness::{http, peers::Peers, wait::eventually};

/// The times of the samples that a peer has of the resource `r`.
fn times(peers: &Peers, peer: usize, span: &str) -> Vec<String> {
    let answer = http::get(peers.http(peer), &format!("/api/v1/history?resource=r&span={span}")).body;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let samples = answer["samples"].as_array().unwrap_or_else(|| panic!("{answer}")).iter();
    samples.map(|sample| sample["at"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_next_master_plots_what_the_last_one_sampled() {
    let mut peers = three();
    let mut ann = peers.client("ann");
    peers.operated(peers.master(), &["capacity", "r", "70", "--for", "10m", "--why", "a replica is down"]);
    let (first, sampled) = eventually("the master has samples", || {
        // A master samples the resources that were asked for since its election. The same peer may be elected again.
        ann.ask(&peers, "r", 500.0);
        let master = peers.master();
        let times = times(&peers, master, "15m");
        (times.len() >= 2).then_some((master, times))
    });
    let others: Vec<usize> = peers.all().filter(|peer| *peer != first).collect();
    for other in &others {
        eventually("a follower copies them", || {
            let copied = times(&peers, *other, "15m");
            sampled.iter().all(|at| copied.contains(at)).then_some(())
        });
        for span in ["6h", "7d"] {
            // Two if an interval has just begun.
            assert!((1..=2).contains(&times(&peers, *other, span).len()), "{span}");
        }
        let page = http::get(peers.http(*other), "/resource?resource=r&span=15m");
        assert_eq!(page.status, 200, "{page:?}");
        let master = format!("href=\"//{}/resource?resource=r\"", peers.http(first));
        assert!(page.body.contains("class=\"line held\" d=\"M") && page.body.contains(&master), "{page:?}");
    }
    peers.kill(first);
    let second = peers.master_but(&[first]);
    ann.ask(&peers, "r", 500.0);
    let newer = eventually("the next master samples", || {
        let times = times(&peers, second, "15m");
        times.last().filter(|last| Some(*last) > sampled.last()).cloned()
    });
    assert!(sampled.iter().all(|at| times(&peers, second, "15m").contains(at)), "{sampled:?}");
    for span in ["15m", "6h", "7d"] {
        let page = http::get(peers.http(second), &format!("/resource?resource=r&span={span}")).body;
        assert!(page.contains("class=\"line held\" d=\"M"), "{span}: {page}");
        assert!(page.contains("class=\"event election\""), "{span}: {page}");
        let title = "UTC: `r` is set to 70 by anonymous: a replica is down</title>";
        assert_eq!(page.matches(title).count(), 1, "{span}: {page}");
    }
    // A peer that was down gets everything from the master.
    peers.run(first, &[]);
    eventually("the killed peer has copied the history", || {
        let copied = times(&peers, first, "15m");
        (sampled.iter().all(|at| copied.contains(at)) && copied.contains(&newer)).then_some(())
    });
}
