//! The load on gateways, as a closed loop: each lane sends a request, waits for the answer, and sends the next one.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    fmt::Write as _,
    net::SocketAddr,
    rc::Rc,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use leaseway_process::usage;
use leaseway_proto::envoy::ratelimit::{
    RateLimitDescriptor, RateLimitRequest, RateLimitResponse, rate_limit_descriptor::Entry,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::{LocalSet, spawn_local},
    time::{MissedTickBehavior, interval, sleep},
};

use crate::{
    common::{current_thread, error::Error, server::Interrupt},
    gateways::{AskArgs, Protocol, Served},
    load::{
        connection::{Connection, Dialer, Failure, Path},
        measurement::histogram,
    },
};

/// The result of a run.
#[derive(Clone, Debug)]
pub(crate) struct LaneResult {
    pub(crate) per_second: f64,
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
    /// CPU time of the measured process per request.
    pub(crate) cpu_us: f64,
    pub(crate) refused: u64,
    pub(crate) errors: BTreeMap<String, u64>,
}

struct LaneCounters {
    is_counting: Cell<bool>,
    latency_us: RefCell<Histogram<u64>>,
    refused: Cell<u64>,
    errors: RefCell<BTreeMap<String, u64>>,
    descriptors: u32,
    next: Cell<u32>,
}

impl LaneCounters {
    fn new(descriptors: u32) -> LaneCounters {
        let latency_us = histogram();
        LaneCounters {
            is_counting: Cell::new(false),
            latency_us: RefCell::new(latency_us),
            refused: Cell::new(0),
            errors: RefCell::default(),
            descriptors,
            next: Cell::new(0),
        }
    }

    /// The next descriptor. Visits all of them in large steps, so that neighbours in a table are not visited in
    /// sequence.
    fn descriptor(&self) -> u32 {
        let next = self.next.get();
        self.next.set((next + 1) % self.descriptors);
        next
    }

    async fn lane(self: Rc<Self>, mut asker: GatewayAsker) {
        loop {
            let descriptor = self.descriptor();
            let began = Instant::now();
            let answer = asker.passes(descriptor).await;
            let took = began.elapsed();
            if self.is_counting.get() {
                match &answer {
                    Ok(passed) => {
                        self.latency_us.borrow_mut().saturating_record(took.as_micros() as u64);
                        self.refused.set(self.refused.get() + u64::from(!passed));
                    }
                    Err(failure) => *self.errors.borrow_mut().entry(failure.kind()).or_default() += 1,
                }
            }
            if matches!(answer, Err(Failure::Connection(_))) {
                return;
            }
        }
    }
}

/// Runs the load described by `args`.
pub(crate) fn run_lanes(
    served: Served,
    args: &AskArgs,
    descriptors: u32,
    interrupt: &Interrupt,
) -> Result<LaneResult, Error> {
    let counters = Rc::new(LaneCounters::new(descriptors));
    let runtime = current_thread().map_err(Error::io("start a runtime"))?;
    let cpu_time = || usage::cpu_time(served.pid).map_err(Error::process(served.pid));
    let (cpu, elapsed) = LocalSet::new().block_on(&runtime, async {
        for _ in 0..args.connections.get() {
            let line = Line::open(served).await;
            let line = line.map_err(|reason| Error::Unreachable { target: served.address, reason })?;
            for asker in (0..args.in_flight.get()).filter_map(|_| line.asker()) {
                spawn_local(Rc::clone(&counters).lane(asker));
            }
        }
        pause(args.warmup, interrupt).await?;
        let (began, before) = (Instant::now(), cpu_time()?);
        counters.is_counting.set(true);
        pause(args.seconds, interrupt).await?;
        counters.is_counting.set(false);
        Ok::<_, Error>((cpu_time()?.saturating_sub(before), began.elapsed()))
    })?;
    let latency = counters.latency_us.borrow();
    let requests = latency.len() as f64;
    Ok(LaneResult {
        per_second: requests / elapsed.as_secs_f64(),
        p50_us: latency.value_at_quantile(0.5),
        p99_us: latency.value_at_quantile(0.99),
        cpu_us: cpu.as_secs_f64() * 1e6 / requests.max(1.0),
        refused: counters.refused.get(),
        errors: counters.errors.borrow().clone(),
    })
}

/// Sends one request for each of these descriptors. Returns those that were denied.
pub(crate) async fn ask_all(served: Served, args: &AskArgs, descriptors: Vec<u32>) -> Result<Vec<u32>, Error> {
    let unreachable = |reason| Error::Unreachable { target: served.address, reason };
    let (left, refused) = (Rc::new(RefCell::new(descriptors)), Rc::<RefCell<Vec<u32>>>::default());
    let mut lanes = Vec::new();
    for _ in 0..args.connections.get() {
        let line = Line::open(served).await.map_err(unreachable)?;
        for mut asker in (0..args.in_flight.get()).filter_map(|_| line.asker()) {
            let (left, refused) = (Rc::clone(&left), Rc::clone(&refused));
            let next = move || left.borrow_mut().pop();
            lanes.push(spawn_local(async move {
                while let Some(descriptor) = next() {
                    if !asker.passes(descriptor).await.map_err(Failure::reason)? {
                        refused.borrow_mut().push(descriptor);
                    }
                }
                Ok(())
            }));
        }
    }
    for lane in lanes {
        lane.await.expect("lanes do not panic").map_err(unreachable)?;
    }
    Ok(refused.take())
}

/// Sleeps, unless interrupted.
pub(crate) async fn pause(span: Duration, interrupt: &Interrupt) -> Result<(), Error> {
    let until = Instant::now() + span;
    while Instant::now() < until {
        interrupt.check()?;
        sleep(Duration::from_millis(50).min(until.saturating_duration_since(Instant::now()))).await;
    }
    Ok(())
}

/// The domain of all descriptors.
pub(crate) const DOMAIN: &str = "bench";

/// The key of the only entry of each descriptor.
pub(crate) const KEY: &str = "k";

const SHOULD_RATE_LIMIT: &str = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// The maximum length of the status line and headers of an answer.
const HEAD_MAX: usize = 4096;

pub(crate) enum GatewayAsker {
    Rls { connection: Connection, path: Path, request: RateLimitRequest },
    Http(HttpLane),
}

/// A connection. Each request in flight has its own lane on it.
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

    /// A new lane on this connection. `None` for HTTP/1.1 beyond the first lane.
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
    /// Sends one request with this descriptor. Returns whether the gateway allows it.
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
                return Err("the headers of an answer are too long".into());
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

/// The interval at which requests are sent.
const TICK: Duration = Duration::from_millis(2);

/// The requests that all gateways together allowed, and the latency of answers.
pub(crate) struct Traffic {
    /// Milliseconds since the beginning, in order.
    pub(crate) passed_ms: Vec<u32>,
    pub(crate) latency_us: Histogram<u64>,
    pub(crate) failed: u64,
}

struct TrafficState {
    began: Instant,
    traffic: RefCell<Traffic>,
}

/// Sends traffic in phases, each with a rate for every gateway. All requests have the same descriptor.
pub(crate) async fn run_phases(
    gateways: &[Served],
    phases: &[Vec<f64>],
    phase: Duration,
    interrupt: &Interrupt,
) -> Result<Traffic, Error> {
    let mut lines = Vec::new();
    for served in gateways {
        let line = Line::open(*served).await;
        lines.push(line.map_err(|reason| Error::Unreachable { target: served.address, reason })?);
    }
    let latency_us = histogram();
    let traffic = RefCell::new(Traffic { passed_ms: Vec::new(), latency_us, failed: 0 });
    let state = Rc::new(TrafficState { began: Instant::now(), traffic });
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for (nth, rates) in phases.iter().enumerate() {
        let start = phase * nth as u32;
        let mut sent = vec![0_u64; lines.len()];
        loop {
            ticks.tick().await;
            interrupt.check()?;
            let elapsed = state.began.elapsed().saturating_sub(start);
            for ((line, rate), sent) in lines.iter().zip(rates).zip(&mut sent) {
                let due = (elapsed.min(phase).as_secs_f64() * rate) as u64;
                for _ in *sent..due {
                    ask(line, &state);
                }
                *sent = due;
            }
            if elapsed >= phase {
                break;
            }
        }
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut traffic = state.traffic.borrow_mut();
    traffic.passed_ms.sort_unstable();
    Ok(Traffic {
        passed_ms: std::mem::take(&mut traffic.passed_ms),
        latency_us: traffic.latency_us.clone(),
        failed: traffic.failed,
    })
}

fn ask(line: &Line, state: &Rc<TrafficState>) {
    let Some(mut asker) = line.asker() else { return };
    let state = Rc::clone(state);
    spawn_local(async move {
        let sent = Instant::now();
        let answer = asker.passes(0).await;
        let mut traffic = state.traffic.borrow_mut();
        traffic.latency_us.saturating_record(sent.elapsed().as_micros() as u64);
        match answer {
            Ok(true) => traffic.passed_ms.push(state.began.elapsed().as_millis() as u32),
            Ok(false) => {}
            Err(_) => traffic.failed += 1,
        }
    });
}

impl Traffic {
    /// The maximum number of requests that passed in any second.
    pub(crate) fn most_in_a_second(&self) -> usize {
        let passed = &self.passed_ms;
        let mut first = 0;
        let windows = passed.iter().enumerate().map(|(at, end)| {
            while passed[first] + 1_000 <= *end {
                first += 1;
            }
            at + 1 - first
        });
        windows.max().unwrap_or_default()
    }

    /// The number of requests that passed in this span.
    pub(crate) fn passed(&self, from: Duration, to: Duration) -> usize {
        let at = |moment: Duration| self.passed_ms.partition_point(|ms| u128::from(*ms) < moment.as_millis());
        at(to) - at(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_head_is_parsed_once_it_is_complete() {
        assert_eq!(head(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n").unwrap(), None);
        let whole = b"HTTP/1.1 429 Too Many\r\ndate: x\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(head(whole).unwrap(), Some((429, whole.len() - 2, 2)));
        assert!(head(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }

    #[test]
    fn the_busiest_second_may_begin_at_any_time() {
        let latency_us = Histogram::new(3).unwrap();
        let traffic = Traffic { passed_ms: vec![0, 600, 900, 1_000, 1_599, 1_600, 5_000], latency_us, failed: 0 };
        assert_eq!(traffic.most_in_a_second(), 4);
        assert_eq!(traffic.passed(Duration::from_millis(900), Duration::from_millis(1_600)), 3);
    }
}
