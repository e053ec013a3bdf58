//! A minimal HTTP client, which does not hide what the server says, such as redirects.

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpStream},
};

use super::{http2::dial_plainly, wait::PATIENCE};

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
    let (head, body) = ask(server, path, "");
    response(&head, String::from_utf8(body).unwrap())
}

/// As from another machine.
pub(crate) fn get_from(address: IpAddr, server: SocketAddr, path: &str) -> Response {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n\r\n");
    let (head, body) = exchange_over(dial_plainly(server, Some(address)), &request);
    response(&head, String::from_utf8(body).unwrap())
}

/// Each header ends with a line break.
pub(crate) fn get_with(server: SocketAddr, path: &str, headers: &str) -> Response {
    let (head, body) = ask(server, path, headers);
    response(&head, String::from_utf8(body).unwrap())
}

/// Each header ends with a line break.
pub(crate) fn post(server: SocketAddr, path: &str, headers: &str, body: &str) -> Response {
    let head = format!("POST {path} HTTP/1.1\r\nHost: {server}\r\n{headers}Content-Length: {}\r\n", body.len());
    let (head, body) = exchange(server, &format!("{head}Connection: close\r\n\r\n{body}"));
    response(&head, String::from_utf8(body).unwrap())
}

fn ask(server: SocketAddr, path: &str, headers: &str) -> (String, Vec<u8>) {
    exchange(server, &format!("GET {path} HTTP/1.1\r\nHost: {server}\r\n{headers}Connection: close\r\n\r\n"))
}

fn exchange(server: SocketAddr, request: &str) -> (String, Vec<u8>) {
    exchange_over(TcpStream::connect(server).unwrap(), request)
}

fn exchange_over(mut stream: TcpStream, request: &str) -> (String, Vec<u8>) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("head and body");
    let body = bytes.split_off(end + 4);
    (String::from_utf8(bytes).unwrap(), body)
}

fn response(head: &str, body: String) -> Response {
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).expect("a status line").parse().unwrap();
    let headers = lines.filter(|line| !line.is_empty()).map(|line| line.split_once(": ").expect("name: value"));
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let response = Response { status, headers, body };
    assert_eq!(response.header("transfer-encoding"), None, "this client reads no chunks");
    response
}
