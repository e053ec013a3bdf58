//! A minimal HTTP client for the pages of a server.

use std::time::Duration;

use leaseway_tls::ClientTls;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

#[derive(Default)]
pub(crate) struct Pages {
    pub(crate) tls: Option<ClientTls>,
    /// The caller's bearer token.
    pub(crate) token: Option<String>,
    /// Also send the token to other machines without TLS.
    pub(crate) insecure: bool,
}

impl Pages {
    /// The head and the body, truncated to `most` bytes; `None` if there is no answer in time.
    pub(crate) async fn get(&self, address: &str, path: &str, limit: Duration, most: u64) -> Option<String> {
        timeout(limit, self.answer(address, path, most)).await.ok().flatten()
    }

    /// The body of a page with status 200.
    pub(crate) async fn body(&self, address: &str, path: &str, limit: Duration, most: u64) -> Result<String, String> {
        let page = self.get(address, path, limit, most).await;
        let page = page.ok_or_else(|| format!("{address} does not answer HTTP"))?;
        let (head, body) = page.split_once("\r\n\r\n").unwrap_or((&page, ""));
        let first = head.lines().next().unwrap_or_default();
        if first.split(' ').nth(1) == Some("200") {
            Ok(body.to_owned())
        } else {
            Err(format!("{address}{path}: {first}"))
        }
    }

    async fn answer(&self, address: &str, path: &str, most: u64) -> Option<String> {
        let stream = TcpStream::connect(address).await.ok()?;
        let is_here = stream.peer_addr().is_ok_and(|peer| peer.ip().to_canonical().is_loopback());
        let may_tell = self.tls.is_some() || is_here || self.insecure;
        let token = self.token.as_ref().filter(|_| may_tell);
        let who = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{who}Connection: close\r\n\r\n");
        match &self.tls {
            None => exchange(stream, &request, most).await,
            Some(tls) => {
                let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
                exchange(tls.connect(host, stream).await.ok()?, &request, most).await
            }
        }
    }
}

async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str, most: u64) -> Option<String> {
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut page = Vec::new();
    // A truncated page is still useful.
    let _ = stream.take(most).read_to_end(&mut page).await;
    Some(String::from_utf8_lossy(&page).into_owned())
}
