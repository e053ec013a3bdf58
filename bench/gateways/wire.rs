//! Connections to gateways, over gRPC or HTTP/1.1 keep-alive, with little code between a request and the socket: the
//! load generator shares the machine with the gateway.

use std::{cell::RefCell, fmt::Write as _, net::SocketAddr, rc::Rc};

use leaseway_proto::envoy::ratelimit::{
    RateLimitDescriptor, RateLimitRequest, RateLimitResponse, rate_limit_descriptor::Entry,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::spawn_local,
};

use crate::{
    gateways::{Protocol, Served},
    load::{
        connection::{Connection, Failure, Path},
        socket::Dialer,
    },
};

/// The domain of all descriptors.
pub(crate) const DOMAIN: &str = "bench";

/// The key of their only entry.
pub(crate) const KEY: &str = "k";

const SHOULD_RATE_LIMIT: &str = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// The maximum length of the head of an answer.
const HEAD_MAX: usize = 4096;

pub(crate) enum GatewayAsker {
    Rls { connection: Connection, path: Path, request: RateLimitRequest },
    Http(HttpLane),
}

/// A connection, shared by as many lanes as it has requests in flight.
#[derive(Clone)]
pub(crate) enum Line {
    Rls { connection: Connection, path: Path },
    Http(Rc<RefCell<Option<HttpLane>>>),
}

impl Line {
    pub(crate) async fn open(served: Served) -> Result<Line, String> {
        match served.protocol {
            Protocol::Rls => {
                let dialer = Dialer::default();
                let path = Path::of(&dialer, served.address, SHOULD_RATE_LIMIT);
                let (connection, driver) = Connection::open(&dialer, served.address).await?;
                spawn_local(driver);
                Ok(Line::Rls { connection, path })
            }
            Protocol::Http => {
                let lane = HttpLane::open(served.address).await?;
                Ok(Line::Http(Rc::new(RefCell::new(Some(lane)))))
            }
        }
    }

    /// HTTP/1.1 has one lane for each connection.
    pub(crate) fn asker(&self) -> Option<GatewayAsker> {
        match self {
            Line::Rls { connection, path } => {
                let entry = Entry { key: KEY.to_owned(), value: String::new() };
                let descriptor = RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() };
                let request =
                    RateLimitRequest { domain: DOMAIN.to_owned(), descriptors: vec![descriptor], hits_addend: 0 };
                Some(GatewayAsker::Rls { connection: connection.clone(), path: path.clone(), request })
            }
            Line::Http(lane) => lane.take().map(GatewayAsker::Http),
        }
    }
}

impl GatewayAsker {
    /// Whether one request passes under this descriptor.
    pub(crate) async fn passes(&mut self, descriptor: u32) -> Result<bool, Failure> {
        match self {
            GatewayAsker::Rls { connection, path, request } => {
                let value = &mut request.descriptors[0].entries[0].value;
                value.clear();
                write!(value, "{descriptor}").expect("writing to a string cannot fail");
                let answer: RateLimitResponse = connection.call(path, &*request).await?;
                Ok(answer.overall_code == 1)
            }
            GatewayAsker::Http(lane) => {
                let path = format!("/v1/resources/{DOMAIN}%2F{KEY}={descriptor}/acquire");
                match lane.post(&path, "{\"permits\": 1}").await.map_err(Failure::Connection)? {
                    200 => Ok(true),
                    429 | 503 => Ok(false),
                    other => Err(Failure::Garbage(format!("HTTP status {other}"))),
                }
            }
        }
    }
}

/// An HTTP/1.1 connection.
pub(crate) struct HttpLane {
    stream: TcpStream,
    host: String,
    buffer: Vec<u8>,
}

impl HttpLane {
    pub(crate) async fn open(address: SocketAddr) -> Result<HttpLane, String> {
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        Ok(HttpLane { stream, host: address.to_string(), buffer: Vec::new() })
    }

    async fn post(&mut self, path: &str, body: &str) -> Result<u16, String> {
        let (host, length) = (&self.host, body.len());
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: \
             {length}\r\n\r\n{body}"
        );
        Ok(self.exchange(&request).await?.0)
    }

    /// Reads a page.
    pub(crate) async fn get(&mut self, path: &str) -> Result<String, String> {
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", self.host);
        Ok(self.exchange(&request).await?.1)
    }

    async fn exchange(&mut self, request: &str) -> Result<(u16, String), String> {
        self.stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
        self.buffer.clear();
        let (status, start, length) = loop {
            if let Some(head) = head(&self.buffer)? {
                break head;
            }
            if self.buffer.len() > HEAD_MAX {
                return Err("the head of an answer does not end".into());
            }
            self.read().await?;
        };
        while self.buffer.len() < start + length {
            self.read().await?;
        }
        Ok((status, String::from_utf8_lossy(&self.buffer[start..start + length]).into_owned()))
    }

    async fn read(&mut self) -> Result<(), String> {
        match self.stream.read_buf(&mut self.buffer).await {
            Ok(0) => Err("the connection was closed".into()),
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// The status, the offset of the body and its length, once the head is complete.
fn head(buffer: &[u8]) -> Result<Option<(u16, usize, usize)>, String> {
    const END: &[u8] = b"\r\n\r\n";
    let Some(end) = buffer.windows(END.len()).position(|window| window == END) else { return Ok(None) };
    let text = String::from_utf8_lossy(&buffer[..end]).to_ascii_lowercase();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
    match status.zip(length) {
        Some((status, length)) => Ok(Some((status, end + END.len(), length))),
        None => Err(format!("an answer without status or length: {text}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_when_it_is_there() {
        assert_eq!(head(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n").unwrap(), None);
        let whole = b"HTTP/1.1 429 Too Many\r\ndate: x\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(head(whole).unwrap(), Some((429, whole.len() - 2, 2)));
        assert!(head(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }
}
