//! A running door, and what Envoy would ask it.

use std::net::SocketAddr;

use leaseway_proto::envoy::ratelimit::{
    RateLimitDescriptor, RateLimitRequest, RateLimitResponse,
    rate_limit_descriptor::Entry,
    rate_limit_response::{Code, DescriptorStatus},
    rate_limit_service_client::RateLimitServiceClient,
};
use rustix::process::Signal;
use tonic::{Status, transport::Channel};

use super::{
    config::ConfigFile,
    peers::channel,
    process::{Process, Said},
    seats::Seat,
    server::ANYWHERE,
    wait::{block_on, eventually},
};

pub(crate) struct Door {
    process: Process,
    rls: SocketAddr,
    metrics: SocketAddr,
    _seat: Seat,
}

/// Entries of a descriptor.
pub(crate) type Entries<'a> = &'a [(&'a str, &'a str)];

impl Door {
    /// With rules of envoyproxy/ratelimit, at servers of a cluster. Its first requests wait for as long as it takes.
    pub(crate) fn start(servers: &[String], rules: &ConfigFile, flags: &[&str]) -> Door {
        let seat = Seat::take();
        let servers = servers.join(",");
        let own = ["--rls", ANYWHERE, "--ratelimit-config", rules.path(), "--metrics", ANYWHERE, "--server", &servers];
        let patient = ["--first-wait-ms", "20000"];
        let patient = if flags.contains(&"--first-wait-ms") { &[][..] } else { &patient };
        let process = Process::start(&[&["door"], &own[..], patient, flags].concat(), &[]);
        let (rls, metrics) = eventually("the door says where it serves", || {
            let ended = process.ended();
            assert!(ended.is_none(), "the door ended at once: {}", process.stderr());
            addresses(&process.stdout())
        });
        Door { process, rls, metrics, _seat: seat }
    }

    pub(crate) fn rls(&self) -> SocketAddr {
        self.rls
    }

    pub(crate) fn metrics(&self) -> SocketAddr {
        self.metrics
    }

    pub(crate) fn log(&self) -> String {
        self.process.stderr()
    }

    /// SIGTERM, and until it has ended.
    pub(crate) fn stop(self) -> Said {
        self.process.signal(Signal::TERM);
        self.process.finish()
    }

    /// SIGKILL.
    pub(crate) fn kill(self) {
        self.process.signal(Signal::KILL);
        self.process.finish();
    }

    /// An Envoy's connection to it.
    pub(crate) fn caller(&self) -> RlsCaller {
        RlsCaller(RateLimitServiceClient::new(channel(self.rls)))
    }
}

fn addresses(stdout: &str) -> Option<(SocketAddr, SocketAddr)> {
    let of = |what: &str| {
        let line = stdout.split_inclusive('\n').find_map(|line| line.strip_suffix('\n')?.strip_prefix(what))?;
        line.parse().ok()
    };
    Some((of("serving RLS on ")?, of("serving metrics on ")?))
}

/// Asks as Envoy does.
#[derive(Clone)]
pub(crate) struct RlsCaller(RateLimitServiceClient<Channel>);

/// A descriptor without a limit or hits of its own.
pub(crate) fn descriptor(entries: Entries<'_>) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).to_owned(), value: (*value).to_owned() };
    RateLimitDescriptor { entries: entries.iter().map(entry).collect(), ..RateLimitDescriptor::default() }
}

pub(crate) fn request(domain: &str, descriptors: &[RateLimitDescriptor]) -> RateLimitRequest {
    RateLimitRequest { domain: domain.to_owned(), descriptors: descriptors.to_vec(), hits_addend: 0 }
}

impl RlsCaller {
    pub(crate) async fn should_rate_limit(&self, request: RateLimitRequest) -> Result<RateLimitResponse, Status> {
        Ok(self.0.clone().should_rate_limit(request).await?.into_inner())
    }

    pub(crate) fn ask(&self, request: RateLimitRequest) -> RateLimitResponse {
        block_on(self.should_rate_limit(request)).unwrap()
    }

    /// Whether a request with one descriptor passes.
    pub(crate) fn passes(&self, domain: &str, entries: Entries<'_>) -> bool {
        self.ask(request(domain, &[descriptor(entries)])).passes()
    }

    /// How many of so many requests pass, one after the other.
    pub(crate) fn count(&self, domain: &str, entries: Entries<'_>, requests: usize) -> usize {
        (0..requests).filter(|_| self.passes(domain, entries)).count()
    }
}

/// What an answer says.
pub(crate) trait Answered {
    fn passes(&self) -> bool;
    /// Of each descriptor.
    fn all_pass(&self) -> Vec<bool>;
}

impl Answered for RateLimitResponse {
    fn passes(&self) -> bool {
        let code = self.overall_code();
        assert_ne!(code, Code::Unknown, "{self:?}");
        code == Code::Ok
    }

    fn all_pass(&self) -> Vec<bool> {
        self.statuses.iter().map(|status: &DescriptorStatus| status.code() == Code::Ok).collect()
    }
}
