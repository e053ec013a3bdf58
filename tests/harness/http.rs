//! As much of HTTP as a page needs. A client library would hide what the server really says: redirects, for one.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
};

use super::wait::PATIENCE;

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
}

pub(crate) fn get(server: SocketAddr, path: &str) -> Response {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").expect("head and body");
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).expect("a status line").parse().unwrap();
    let headers = lines.map(|line| line.split_once(": ").expect("name: value"));
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let response = Response { status, headers, body: body.to_owned() };
    assert_eq!(response.header("transfer-encoding"), None, "this client reads no chunks");
    response
}
