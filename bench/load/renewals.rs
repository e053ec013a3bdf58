//! The cost of renewing many leases of one client: by a stream of renewals, and by GetCapacity. Each way first in a
//! closed loop, as fast as the server answers, then by an idle client of the library, which renews once per refresh
//! interval.

use std::{
    net::SocketAddr,
    num::NonZeroU32,
    time::{Duration, Instant},
};

use leaseway_client::{Client, Resource};
use leaseway_process::usage;
use leaseway_proto::{
    doorman::{GetCapacityRequest, Lease, ResourceRequest, capacity_client::CapacityClient},
    session::{Entry, Range, RenewRequest, RenewResponse, session_client::SessionClient},
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming, transport::Channel};

use crate::common::{
    error::Error,
    output::{self, print},
    server::Interrupt,
};

/// Entries of a GetCapacity, as the client library sends it.
const ENTRIES: usize = 1_000;

pub(crate) struct Renewals<'a> {
    pub(crate) target: SocketAddr,
    pub(crate) server_pid: u32,
    pub(crate) leases: NonZeroU32,
    pub(crate) prefix: &'a str,
    pub(crate) seconds: Duration,
    /// How long the idle client of the library is measured.
    pub(crate) idle: Duration,
}

/// CPU time and renewals of one way.
struct Measured {
    what: String,
    renewed: usize,
    took: Duration,
    server: Duration,
    client: Duration,
}

impl Measured {
    fn row(&self) -> [String; 6] {
        let (seconds, renewed) = (self.took.as_secs_f64(), self.renewed.max(1) as f64);
        let each = |cpu: Duration| format!("{:.2}", cpu.as_secs_f64() * 1e6 / renewed);
        let share = |cpu: Duration| format!("{:.4}", cpu.as_secs_f64() / seconds);
        let (server, client) = (self.server, self.client);
        let rate = format!("{:.0}", renewed / seconds);
        [self.what.clone(), rate, each(server), each(client), share(server), share(client)]
    }
}

/// CPU time so far.
struct Meter {
    pid: u32,
    at: Instant,
    server: Duration,
    client: Duration,
}

impl Meter {
    fn start(pid: u32) -> Result<Meter, Error> {
        let own = std::process::id();
        let client = usage::cpu_time(own).map_err(Error::process(own))?;
        let server = usage::cpu_time(pid).map_err(Error::process(pid))?;
        Ok(Meter { pid, at: Instant::now(), server, client })
    }

    fn stop(&self, what: String, renewed: usize) -> Result<Measured, Error> {
        let now = Meter::start(self.pid)?;
        let (server, client) = (now.server.saturating_sub(self.server), now.client.saturating_sub(self.client));
        Ok(Measured { what, renewed, took: now.at - self.at, server, client })
    }
}

impl Renewals<'_> {
    pub(crate) fn run(&self, interrupt: &Interrupt) -> Result<(), Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(Error::io("start a runtime"))?;
        let mut rows = Vec::new();
        let mut add = |measured: Measured| {
            rows.push(measured.row());
            interrupt.check()
        };
        runtime.block_on(async {
            let channel = Channel::from_shared(format!("http://{}", self.target)).map_err(Error::usage)?;
            let channel = channel.connect().await.map_err(Error::usage)?;
            let mut leases = Leases::fill(self, channel.clone()).await?;
            add(leases.renew_by_requests(self).await?)?;
            let mut stream = LeaseStream::open(self, channel, &leases).await?;
            for percent in [0, 1, 100] {
                add(stream.renew(self, percent).await?)?;
            }
            drop(stream);
            for by_stream in [true, false] {
                add(self.idle(by_stream).await?)?;
            }
            Ok(())
        })?;
        let head = ["way", "renewals/s", "server µs", "client µs", "server cores", "client cores"];
        print(&output::render(&head, 1, &rows))
    }

    fn entry(&self, index: usize, wants: f64, has: Option<Lease>) -> ResourceRequest {
        ResourceRequest {
            resource_id: Some(format!("{}-{index}", self.prefix)),
            priority: Some(0),
            has,
            wants: Some(wants),
            ..ResourceRequest::default()
        }
    }

    /// A client of the library whose demands do not change.
    async fn idle(&self, by_stream: bool) -> Result<Measured, Error> {
        let builder = Client::builder().id(format!("idle-{by_stream}")).endpoint(self.target.to_string()).gateway();
        let client = if by_stream { builder } else { builder.without_streams() }.build().map_err(Error::usage)?;
        let open = |index| client.resource(format!("{}-{index}", self.prefix)).wants(1.0).open();
        let opened: Result<Vec<Resource>, _> = (0..self.leases.get()).map(open).collect();
        let opened = opened.map_err(Error::usage)?;
        client.ready(Duration::from_secs(120)).await.map_err(Error::usage)?;
        // Leases are first renewed by a request for each, until the stream is open and promises are stored.
        tokio::time::sleep(self.idle).await;
        let meter = Meter::start(self.server_pid)?;
        tokio::time::sleep(self.idle).await;
        let way = if client.health().renews_by_stream { "a stream" } else { "GetCapacity" };
        // Renewed once per refresh interval of five seconds.
        let renewed = opened.len() * self.idle.as_millis() as usize / 5_000;
        let measured = meter.stop(format!("idle client of the library, {way}"), renewed);
        client.close().await;
        measured
    }
}

/// The leases of the closed loops.
struct Leases {
    client: CapacityClient<Channel>,
    has: Vec<Option<Lease>>,
}

impl Leases {
    async fn fill(renewals: &Renewals<'_>, channel: Channel) -> Result<Leases, Error> {
        let mut leases =
            Leases { client: CapacityClient::new(channel), has: vec![None; renewals.leases.get() as usize] };
        for first in (0..leases.has.len()).step_by(ENTRIES) {
            leases.ask(renewals, first).await?;
        }
        Ok(leases)
    }

    /// Asks for the leases from `first` on, as many as fit into a request. Returns their number.
    async fn ask(&mut self, renewals: &Renewals<'_>, first: usize) -> Result<usize, Error> {
        let indexes = first..(first + ENTRIES).min(self.has.len());
        let resource = indexes.clone().map(|index| renewals.entry(index, 1.0, self.has[index])).collect();
        let (client_id, drops_late) = (Some("closed-loop".to_owned()), Some(true));
        let request = GetCapacityRequest { client_id, resource, drops_late, is_gateway: None };
        let answer = self.client.get_capacity(request).await.map_err(Error::usage)?.into_inner();
        if answer.response.len() != indexes.len() {
            let problem = answer.problem.first().map(|problem| problem.message().to_owned()).unwrap_or_default();
            let count = answer.response.len();
            return Err(Error::Usage(format!("{count} of {} leases were answered: {problem}", indexes.len())));
        }
        for (index, response) in indexes.clone().zip(answer.response) {
            self.has[index] = response.gets.map(|lease| Lease { remaining_ms: None, ..lease });
        }
        Ok(indexes.len())
    }

    async fn renew_by_requests(&mut self, renewals: &Renewals<'_>) -> Result<Measured, Error> {
        let (meter, mut renewed, mut first) = (Meter::start(renewals.server_pid)?, 0, 0);
        while meter.at.elapsed() < renewals.seconds {
            renewed += self.ask(renewals, first).await?;
            first = if first + ENTRIES < self.has.len() { first + ENTRIES } else { 0 };
        }
        meter.stop(format!("GetCapacity with {ENTRIES} entries"), renewed)
    }
}

/// A stream in a closed loop.
struct LeaseStream {
    requests: mpsc::Sender<RenewRequest>,
    responses: Streaming<RenewResponse>,
    sequence: u64,
    has: Vec<Option<Lease>>,
    wants: f64,
}

impl LeaseStream {
    async fn open(renewals: &Renewals<'_>, channel: Channel, leases: &Leases) -> Result<LeaseStream, Error> {
        let (requests, receiver) = mpsc::channel(1);
        let opened = SessionClient::new(channel).renew(ReceiverStream::new(receiver)).await;
        let responses = opened.map_err(Error::usage)?.into_inner();
        let count = leases.has.len();
        let has = leases.has.clone();
        let mut stream = LeaseStream { requests, responses, sequence: 0, has, wants: 1.0 };
        for first in (0..count).step_by(ENTRIES) {
            let entries = (first..(first + ENTRIES).min(count))
                .map(|index| Entry {
                    index: index as u32,
                    request: Some(renewals.entry(index, 1.0, leases.has[index])),
                })
                .collect();
            stream.send(entries, Vec::new()).await?;
        }
        Ok(stream)
    }

    async fn send(&mut self, entry: Vec<Entry>, renew: Vec<Range>) -> Result<(), Error> {
        self.sequence += 1;
        let client_id = (self.sequence == 1).then(|| "closed-loop".to_owned());
        let message = RenewRequest { sequence: self.sequence, client_id, is_gateway: None, entry, renew };
        self.requests.send(message).await.map_err(Error::usage)?;
        let ended = || Status::unavailable("the stream has ended");
        let answer =
            self.responses.message().await.and_then(|answer| answer.ok_or_else(ended)).map_err(Error::usage)?;
        for grant in answer.grant {
            let lease = grant.response.and_then(|response| response.gets);
            self.has[grant.index as usize] = lease.map(|lease| Lease { remaining_ms: None, ..lease });
        }
        match (answer.restart, answer.left_out.len()) {
            (None, 0) => Ok(()),
            (why, left_out) => Err(Error::Usage(format!("{left_out} leases left out; restart: {why:?}"))),
        }
    }

    /// Renews all leases again and again; `percent` of them with a changed demand, at most as many as fit into a
    /// request.
    async fn renew(&mut self, renewals: &Renewals<'_>, percent: u32) -> Result<Measured, Error> {
        let leases = self.has.len() as u32;
        let changed = (leases * percent / 100).min(ENTRIES as u32);
        let whole = Range { first: changed, count: if percent == 100 { 0 } else { leases - changed } };
        // The first pass lets the server move horizons.
        self.send(Vec::new(), vec![Range { first: 0, count: leases }]).await?;
        let (meter, mut renewed) = (Meter::start(renewals.server_pid)?, 0);
        while meter.at.elapsed() < renewals.seconds {
            self.wants = 3.0 - self.wants;
            let entry = |index: u32| {
                let has = self.has[index as usize];
                Entry { index, request: Some(renewals.entry(index as usize, self.wants, has)) }
            };
            let entries: Vec<Entry> = (0..changed).map(entry).collect();
            self.send(entries, vec![whole]).await?;
            renewed += (changed + whole.count) as usize;
        }
        meter.stop(format!("a stream, {percent} % changed"), renewed)
    }
}
