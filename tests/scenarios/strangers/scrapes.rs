//! Names that make pages long.

use std::{collections::BTreeSet, thread};

use super::Victim;
use crate::harness::{
    doorman::{Doorman, entry, request},
    http,
    prometheus::Scrape,
};

#[test]
fn long_names_make_no_long_labels_and_scrapes_take_turns() {
    let victim = Victim::with_flags(&[]);
    let doorman = Doorman::over(victim.server.channel());
    // They differ at their ends.
    let entries = (0..500).map(|n| entry(&format!("\u{1b}{}\n{n:03}", "ü".repeat(120)), 1.0)).collect();
    assert_eq!(doorman.get(request("a stranger", entries)).unwrap().response.len(), 500);
    let http = victim.server.http();
    let scrapes: Vec<_> = (0..4).map(|_| thread::spawn(move || http::get(http, "/metrics").body)).collect();
    victim.serves_others();
    for page in scrapes.into_iter().map(|scrape| scrape.join().unwrap()) {
        let metrics = Scrape::parse(&page);
        let has = metrics.series("doorman_server_has");
        let labels: BTreeSet<&str> = has.iter().map(|series| series.labels["resource"].as_str()).collect();
        assert_eq!(labels.len(), 501);
        assert!(labels.iter().all(|label| label.len() <= 128), "{labels:?}");
        assert!(!page.contains(|c: char| c.is_control() && c != '\n'), "{page}");
    }
}
