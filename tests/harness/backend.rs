//! A backend behind Envoy that records requests.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Instant,
};

/// Answers every request, and records it.
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
}

struct Received {
    at: Instant,
    head: String,
}

impl Backend {
    /// Answers with this cost, for responses that are charged afterwards.
    pub(crate) fn start() -> Backend {
        Backend::answering("127.0.0.1:0", |_| ("X-Cost: 2\r\n".to_owned(), "hello\n".to_owned()))
    }

    /// Answers with the headers and the body that follow from the head of a request.
    pub(crate) fn answering(address: &str, answer: fn(&str) -> (String, String)) -> Backend {
        let listener = TcpListener::bind(address).unwrap();
        let backend = Backend { address: listener.local_addr().unwrap(), received: Arc::default() };
        let received = Arc::clone(&backend.received);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let received = Arc::clone(&received);
                thread::spawn(move || answer_all(stream, answer, &received));
            }
        });
        backend
    }

    /// The number of requests with this line in their head.
    pub(crate) fn count(&self, header: &str) -> usize {
        let received = self.received.lock().unwrap();
        received.iter().filter(|request| request.head.lines().any(|line| line.eq_ignore_ascii_case(header))).count()
    }

    /// The largest excess of arrivals over `rate` per second, in any span of time.
    pub(crate) fn excess(&self, rate: f64) -> f64 {
        let received = self.received.lock().unwrap();
        let (mut lowest, mut excess) = (f64::INFINITY, f64::NEG_INFINITY);
        for (before, request) in received.iter().enumerate() {
            let due = request.at.duration_since(received[0].at).as_secs_f64() * rate;
            lowest = lowest.min(before as f64 - due);
            excess = excess.max(before as f64 + 1.0 - due - lowest);
        }
        excess
    }
}

fn answer_all(stream: TcpStream, answer: fn(&str) -> (String, String), received: &Mutex<Vec<Received>>) {
    let mut stream = BufReader::new(stream);
    while let Some(head) = read(&mut stream) {
        let (headers, body) = answer(&head);
        received.lock().unwrap().push(Received { at: Instant::now(), head });
        let length = body.len();
        let response = format!("HTTP/1.1 200 OK\r\n{headers}Content-Length: {length}\r\n\r\n{body}");
        if stream.get_mut().write_all(response.as_bytes()).is_err() {
            return;
        }
    }
}

/// Reads a request, and returns its head. `None` at the end of the connection.
fn read(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let lower = head.to_lowercase();
    let value = |name: &str| lower.lines().find_map(|line| line.strip_prefix(name).map(str::trim));
    if value("transfer-encoding:").is_some() {
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).ok()?;
            let length = u64::from_str_radix(line.trim(), 16).ok()?;
            skip(stream, length + 2)?;
            if length == 0 {
                return Some(head);
            }
        }
    }
    let length = value("content-length:").map_or(Some(0), |length| length.parse().ok())?;
    skip(stream, length)?;
    Some(head)
}

fn skip(stream: &mut BufReader<TcpStream>, bytes: u64) -> Option<()> {
    std::io::copy(&mut stream.take(bytes), &mut std::io::sink()).ok().map(|_| ())
}
