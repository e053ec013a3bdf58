//! Finds the master of a node from `/readyz`, which answers every caller even under a policy that gives `up` no access.

use std::{path::PathBuf, time::Duration};

use leaseway_tls::{ClientTls, Credentials, Files, Protocol};
use tokio::time::sleep;

use super::process::Served;
use crate::{connect::pages::Pages, error::CliError};

const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The interval once a master is known.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// The maximum size of a page, more than enough for `/readyz`.
const MAX_BYTES: u64 = 4096;

/// The client for pages of peers with certificates of this CA, or without TLS.
pub(super) fn pages(ca: Option<PathBuf>) -> Result<Pages, CliError> {
    let Some(ca) = ca else { return Ok(Pages::default()) };
    let credentials = Credentials::load(Files { ca: Some(ca), ..Files::default() })?;
    Ok(Pages { tls: Some(ClientTls::for_protocol(Protocol::Http1, &credentials, None)?), ..Pages::default() })
}

/// Calls `report` with each new master, until it returns false.
pub(super) async fn watch(peers: Vec<(String, Served)>, pages: Pages, mut report: impl AsyncFnMut(String) -> bool) {
    let mut known = None;
    loop {
        let master = look_for(&peers, &pages).await;
        if known.as_ref() != Some(&master) {
            known = Some(master.clone());
            if !report(master).await {
                return;
            }
        }
        sleep(WATCH_INTERVAL).await;
    }
}

/// Polls until one of the peers knows the master. Returns its label, or its address if it is started elsewhere.
async fn look_for(peers: &[(String, Served)], pages: &Pages) -> String {
    loop {
        for (label, at) in peers {
            let Some(page) = pages.get(&at.http, "/readyz", ANSWER_WITHIN, MAX_BYTES).await else { continue };
            match named_on(&page) {
                // Another peer is master, but the policy hides its address.
                None | Some("the master is known") => {}
                Some("master") => return label.clone(),
                Some(words) => {
                    let master = words.strip_prefix("the master is ").unwrap_or(words);
                    let known = peers.iter().find(|(_, at)| at.grpc == master);
                    return known.map_or_else(|| format!("the peer at {master}"), |(label, _)| label.clone());
                }
            }
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// The text after `ready:`.
fn named_on(page: &str) -> Option<&str> {
    page.lines().find_map(|line| line.strip_prefix("ready: "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_names_the_master_or_none() {
        let page = |body: &str| format!("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{body}\n");
        assert_eq!(named_on(&page("ready: master")), Some("master"));
        assert_eq!(named_on(&page("ready: the master is 127.0.0.1:5100")), Some("the master is 127.0.0.1:5100"));
        assert_eq!(named_on(&page("not ready: no master is known")), None);
    }
}
