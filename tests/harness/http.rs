//! An HTTP/1.1 client that returns responses unchanged and follows no redirects.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpStream},
};

use serde_json::Value;

use super::{http2::connect_tcp, wait::PATIENCE};

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The reason and the detail of an error of the HTTP gateway.
    pub(crate) fn problem(&self) -> (String, String) {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let json = self.json();
        assert_eq!(json["status"].as_u64(), Some(self.status.into()), "{self:?}");
        ["reason", "detail"].map(|name| json[name].as_str().unwrap().to_owned()).into()
    }
}

/// A keep-alive connection.
pub(crate) struct Connection(BufReader<TcpStream>);

impl Connection {
    pub(crate) fn open(server: SocketAddr) -> Connection {
        Connection::over(TcpStream::connect(server).unwrap())
    }

    fn over(stream: TcpStream) -> Connection {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Connection(BufReader::new(stream))
    }

    /// Sends a request with a JSON body, or without a body if it is null.
    pub(crate) fn request(&mut self, method: &str, path: &str, body: &Value) -> Response {
        self.request_with(method, path, "", body)
    }

    /// Like [`request`](Self::request). Each header ends with a line break.
    pub(crate) fn request_with(&mut self, method: &str, path: &str, headers: &str, body: &Value) -> Response {
        let (kind, body) = match body {
            Value::Null => ("", String::new()),
            body => ("Content-Type: application/json\r\n", body.to_string()),
        };
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}{kind}Content-Length: {length}");
        self.send(format!("{head}\r\n\r\n{body}").as_bytes());
        self.receive().expect("the server sends a response")
    }

    /// Sends raw bytes. Ignores errors, because the server may close the connection first.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let _ = self.0.get_mut().write_all(bytes);
    }

    /// Reads the next response. `None` if the server has closed the connection.
    pub(crate) fn receive(&mut self) -> Option<Response> {
        let mut line = String::new();
        let mut next = |stream: &mut BufReader<TcpStream>| {
            line.clear();
            match stream.read_line(&mut line) {
                Ok(0) | Err(_) => None,
                Ok(_) => Some(line.trim_end().to_owned()),
            }
        };
        let status = next(&mut self.0)?.split(' ').nth(1)?.parse().ok()?;
        let mut headers = Vec::new();
        loop {
            let header = next(&mut self.0)?;
            if header.is_empty() {
                break;
            }
            let (name, value) = header.split_once(": ")?;
            headers.push((name.to_owned(), value.to_owned()));
        }
        let mut response = Response { status, headers, body: String::new() };
        let is_chunked = response.header("transfer-encoding") == Some("chunked");
        loop {
            let length = match response.header("content-length") {
                _ if is_chunked => usize::from_str_radix(&next(&mut self.0)?, 16).ok()?,
                length => length.map_or(0, |length| length.parse().unwrap()),
            };
            let mut body = vec![0; length];
            self.0.read_exact(&mut body).ok()?;
            response.body += &String::from_utf8(body).unwrap();
            if is_chunked {
                next(&mut self.0)?;
            }
            if !is_chunked || length == 0 {
                break;
            }
        }
        Some(response)
    }
}

pub(crate) fn get(server: SocketAddr, path: &str) -> Response {
    get_with(server, path, "")
}

/// Each header ends with a line break.
pub(crate) fn get_with(server: SocketAddr, path: &str, headers: &str) -> Response {
    exchange(Connection::open(server), &format!("GET {path} HTTP/1.1\r\nHost: {server}\r\n{headers}"), "")
}

/// Connects from another address of this machine.
pub(crate) fn get_from(address: IpAddr, server: SocketAddr, path: &str) -> Response {
    let connection = Connection::over(connect_tcp(server, Some(address)));
    exchange(connection, &format!("GET {path} HTTP/1.1\r\nHost: {server}\r\n"), "")
}

/// Sends a request with these headers, which end with line breaks, and no others but for the length of the body.
pub(crate) fn send(server: SocketAddr, method: &str, path: &str, headers: &str, body: &str) -> Response {
    let head = format!("{method} {path} HTTP/1.1\r\n{headers}Content-Length: {}\r\n", body.len());
    exchange(Connection::open(server), &head, body)
}

/// Each header ends with a line break.
pub(crate) fn post(server: SocketAddr, path: &str, headers: &str, body: &str) -> Response {
    let head = format!("POST {path} HTTP/1.1\r\nHost: {server}\r\n{headers}Content-Length: {}\r\n", body.len());
    exchange(Connection::open(server), &head, body)
}

fn exchange(mut connection: Connection, head: &str, body: &str) -> Response {
    connection.send(format!("{head}Connection: close\r\n\r\n{body}").as_bytes());
    connection.receive().expect("the server sends a response")
}
