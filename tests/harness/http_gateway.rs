//! Clients of an HTTP gateway.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Instant,
};

use serde_json::Value;

use super::wait::PATIENCE;

#[derive(Debug)]
pub(crate) struct HttpAnswer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) text: String,
}

impl HttpAnswer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The detail and the type of a problem. The answer has to be one.
    pub(crate) fn problem(&self) -> (String, String) {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let json = self.json();
        assert_eq!(json["status"].as_u64(), Some(self.status.into()), "{self:?}");
        ["reason", "detail"].map(|name| json[name].as_str().unwrap().to_owned()).into()
    }
}

/// A keep-alive connection.
pub(crate) struct Connected {
    stream: BufReader<TcpStream>,
}

impl Connected {
    pub(crate) fn to(address: SocketAddr) -> Connected {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Connected { stream: BufReader::new(stream) }
    }

    pub(crate) fn ask(&mut self, method: &str, path: &str, body: &Value) -> HttpAnswer {
        self.ask_with(method, path, "", body)
    }

    /// Each header ends with a line break. `null` is no body.
    pub(crate) fn ask_with(&mut self, method: &str, path: &str, headers: &str, body: &Value) -> HttpAnswer {
        let (kind, body) = match body {
            Value::Null => ("", String::new()),
            body => ("Content-Type: application/json\r\n", body.to_string()),
        };
        let length = body.len();
        self.say(
            format!(
                "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}{kind}Content-Length: {length}\r\n\r\n{body}"
            )
            .as_bytes(),
        );
        self.answer().expect("an answer")
    }

    /// Sends any bytes. The gateway may hang up meanwhile.
    pub(crate) fn say(&mut self, bytes: &[u8]) {
        let _ = self.stream.get_mut().write_all(bytes);
    }

    /// The next answer. None: the gateway hung up.
    pub(crate) fn answer(&mut self) -> Option<HttpAnswer> {
        let mut line = String::new();
        let mut next = |stream: &mut BufReader<TcpStream>| {
            line.clear();
            match stream.read_line(&mut line) {
                Ok(0) | Err(_) => None,
                Ok(_) => Some(line.trim_end().to_owned()),
            }
        };
        let status = next(&mut self.stream)?.split(' ').nth(1)?.parse().ok()?;
        let mut headers = Vec::new();
        loop {
            let header = next(&mut self.stream)?;
            if header.is_empty() {
                break;
            }
            let (name, value) = header.split_once(": ")?;
            headers.push((name.to_owned(), value.to_owned()));
        }
        let mut told = HttpAnswer { status, headers, text: String::new() };
        let length = told.header("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).ok()?;
        told.text = String::from_utf8(body).unwrap();
        Some(told)
    }
}

/// When permits were requested, when they were granted, and how many.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Permitted {
    pub(crate) asked: Instant,
    pub(crate) told: Instant,
    pub(crate) permits: u32,
}

/// Fails if more were granted in any span of time than rate and burst allow.
pub(crate) fn assert_never_above(permitted: &[Permitted], per_second: f64, burst: f64) {
    assert!(permitted.len() > 100, "{} say little", permitted.len());
    let mut by_end = permitted.to_vec();
    by_end.sort_by_key(|one| one.told);
    let mut starts: Vec<Instant> = permitted.iter().map(|one| one.asked).collect();
    starts.sort();
    // Checks spans that begin at every fiftieth grant, which is close enough.
    for begin in starts.iter().step_by(50) {
        let mut sum = 0;
        // Requests sent earlier may have been granted earlier.
        for one in by_end.iter().filter(|one| one.asked >= *begin) {
            sum += one.permits;
            let span = one.told.duration_since(*begin).as_secs_f64();
            let most = per_second * span + burst;
            assert!(f64::from(sum) <= most, "{sum} permits in {span} s, more than {most}");
        }
    }
}
