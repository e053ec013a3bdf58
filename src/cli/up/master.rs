//! Which peer of a node is master, as `/readyz` says: that is answered to every caller, also under a policy that lets
//! `up` itself do nothing.

use std::{path::PathBuf, time::Duration};

use leaseway_tls::{ClientTls, Credentials, Files, Protocol};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    time::{sleep, timeout},
};

use super::process::Served;
use crate::error::CliError;

const LOOK_EVERY: Duration = Duration::from_millis(100);
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// Far more than such a page has.
const MOST_BYTES: u64 = 4096;

/// How pages of peers are asked for, whose certificates this CA has signed, if they have any.
pub(super) fn pages(ca: Option<PathBuf>) -> Result<Option<ClientTls>, CliError> {
    let Some(ca) = ca else { return Ok(None) };
    let credentials = Credentials::load(Files { ca: Some(ca), ..Files::default() })?;
    Ok(Some(ClientTls::speaking(Protocol::Http1, &credentials, None)?))
}

/// The label of the master, once one of these peers knows it. It is one started elsewhere, perhaps: then it is named by
/// its address.
pub(super) async fn look_for(peers: Vec<(String, Served)>, tls: Option<ClientTls>) -> String {
    loop {
        for (label, at) in &peers {
            let asked = timeout(ANSWER_WITHIN, page(&at.http, tls.as_ref())).await;
            let Some(page) = asked.ok().flatten() else { continue };
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
        sleep(LOOK_EVERY).await;
    }
}

/// What follows `ready:`.
fn named_on(page: &str) -> Option<&str> {
    page.lines().find_map(|line| line.strip_prefix("ready: "))
}

async fn page(address: &str, tls: Option<&ClientTls>) -> Option<String> {
    let stream = TcpStream::connect(address).await.ok()?;
    match tls {
        None => asked(address, stream).await,
        Some(tls) => {
            let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
            asked(address, tls.connect(host, stream).await.ok()?).await
        }
    }
}

async fn asked(address: &str, mut stream: impl AsyncRead + AsyncWrite + Unpin) -> Option<String> {
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut page = Vec::new();
    // What is there after an error is as good.
    let _ = stream.take(MOST_BYTES).read_to_end(&mut page).await;
    String::from_utf8(page).ok()
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
