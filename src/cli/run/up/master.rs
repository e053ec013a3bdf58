//! Which peer of a node is master, as `/readyz` says: that is answered to every caller, also under a policy that lets
//! `up` itself do nothing.

use std::{path::PathBuf, time::Duration};

use leaseway_tls::{ClientTls, Credentials, Files, Protocol};
use tokio::time::sleep;

use super::process::Served;
use crate::{connect::pages::Pages, error::CliError};

const POLL_INTERVAL: Duration = Duration::from_millis(100);
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// Far more than such a page has.
const MAX_BYTES: u64 = 4096;

/// How pages of peers are asked for, whose certificates this CA has signed, if they have any.
pub(super) fn pages(ca: Option<PathBuf>) -> Result<Pages, CliError> {
    let Some(ca) = ca else { return Ok(Pages::default()) };
    let credentials = Credentials::load(Files { ca: Some(ca), ..Files::default() })?;
    Ok(Pages { tls: Some(ClientTls::for_protocol(Protocol::Http1, &credentials, None)?), ..Pages::default() })
}

/// The label of the master, once one of these peers knows it. It is one started elsewhere, perhaps: then it is named by
/// its address.
pub(super) async fn look_for(peers: Vec<(String, Served)>, pages: Pages) -> String {
    loop {
        for (label, at) in &peers {
            let Some(page) = pages.get(&at.http, "/readyz", ANSWER_WITHIN, MAX_BYTES).await else { continue };
            match named_on(&page) {
                // Another is, which a policy keeps to itself.
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

/// What follows `ready:`.
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
