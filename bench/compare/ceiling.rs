//! A bare tonic service to compare with. It decodes the same requests, answers with messages of the same size, and has
//! no logic, so its cost per request is the cost of gRPC itself.
//!
//! It supports two runtimes, because the difference between them is larger than the cost of most logic.
//! `current-thread`, the default, is the runtime of the Leaseway server: one single-threaded runtime per core, to which
//! one acceptor distributes connections in turn. `multi-thread` is the usual runtime of tonic: one work-stealing
//! runtime.

use std::{
    fs, io,
    net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream},
    path::PathBuf,
    thread,
    time::{Duration, SystemTime},
};

use clap::ValueEnum;
use leaseway_process::tether;
use leaseway_proto::doorman::{
    DiscoveryRequest, DiscoveryResponse, GetCapacityRequest, GetCapacityResponse, GetServerCapacityRequest,
    GetServerCapacityResponse, Lease, Mastership, ReleaseCapacityRequest, ReleaseCapacityResponse, ResourceResponse,
    capacity_server::{Capacity, CapacityServer},
};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime,
    sync::mpsc,
};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tonic::{
    Request, Response, Status,
    transport::{Identity, Server, ServerTlsConfig, server::TcpIncoming},
};

use crate::common::{
    current_thread,
    error::Error,
    output::{note, print},
    server::Signals,
};

/// The maximum number of accepted connections that wait for a thread. Beyond it the acceptor waits.
const MAX_DEALT: usize = 64;

/// Serve the Doorman protocol without logic, to measure the limit of tonic on this machine.
///
/// Prints `listening on ADDRESS` once it accepts connections; stops on Ctrl-C or SIGTERM.
#[derive(clap::Args)]
pub(crate) struct CeilingArgs {
    /// The listen address. Port 0 picks a free port.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// The tokio runtime.
    #[arg(long, value_enum, default_value_t = Runtime::CurrentThread)]
    runtime: Runtime,
    /// Number of threads that serve connections. [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Serve over tonic's TLS, with this certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The key of the certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Runtime {
    /// One single-threaded runtime per thread; one acceptor deals connections to them in turn.
    CurrentThread,
    /// One work-stealing runtime over all threads.
    MultiThread,
}

pub(crate) fn main(args: &CeilingArgs) -> Result<(), Error> {
    tether::obey();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.map_or(cores, usize::from);
    let waiting = current_thread().map_err(Error::io("start a runtime"))?;
    let mut signals = waiting.block_on(async { Signals::new() }).map_err(Error::io("watch for signals"))?;
    let server = args.server()?;
    let listener = StdListener::bind(args.listen).map_err(Error::io(format!("listen on {}", args.listen)))?;
    let address = listener.local_addr().map_err(Error::io("read the address of a socket"))?;
    let started = listener.set_nonblocking(true).and_then(|()| match args.runtime {
        Runtime::CurrentThread => deal(listener, threads, &server),
        Runtime::MultiThread => serve_multi_threaded(listener, threads, server),
    });
    started.map_err(Error::io("start the service"))?;
    print(&format!("listening on {address}"))?;
    waiting.block_on(signals.any());
    Ok(())
}

impl CeilingArgs {
    fn server(&self) -> Result<Server, Error> {
        let Some((certificate, key)) = self.tls_cert.as_ref().zip(self.tls_key.as_ref()) else {
            return Ok(Server::builder());
        };
        let read = |path: &PathBuf| fs::read(path).map_err(Error::io(format!("read {}", path.display())));
        let tls = ServerTlsConfig::new().identity(Identity::from_pem(read(certificate)?, read(key)?));
        Server::builder().tls_config(tls).map_err(Error::usage)
    }
}

fn serve_multi_threaded(listener: StdListener, threads: usize, mut server: Server) -> io::Result<()> {
    let tokio = runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    let listener = tokio.block_on(async { TcpListener::from_std(listener) })?;
    spawn("serve".into(), move || {
        // Spawn the service, because this thread is not a worker of the runtime.
        let serving = tokio.spawn(async move {
            let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
            complain(server.add_service(CapacityServer::new(Fixed::new())).serve_with_incoming(incoming).await);
        });
        tokio.block_on(serving).expect("tonic does not panic");
    })
}

fn deal(listener: StdListener, threads: usize, server: &Server) -> io::Result<()> {
    let mut queues = Vec::with_capacity(threads);
    for n in 0..threads {
        let (queue, connections) = mpsc::channel::<StdStream>(MAX_DEALT);
        let (tokio, mut server) = (current_thread()?, server.clone());
        queues.push(queue);
        spawn(format!("serve-{n}"), move || {
            let incoming = ReceiverStream::new(connections).map(TcpStream::from_std);
            let service = CapacityServer::new(Fixed::new());
            complain(tokio.block_on(server.add_service(service).serve_with_incoming(incoming)));
        })?;
    }
    let tokio = current_thread()?;
    let listener = tokio.block_on(async { TcpListener::from_std(listener) })?;
    spawn("accept".into(), move || tokio.block_on(accept(&listener, &queues)))
}

async fn accept(listener: &TcpListener, queues: &[mpsc::Sender<StdStream>]) {
    for queue in queues.iter().cycle() {
        // Deregister the stream from this runtime, so that another one can register it.
        let stream = listener.accept().await.and_then(|(stream, _)| {
            stream.set_nodelay(true)?;
            stream.into_std()
        });
        match stream {
            Ok(stream) => {
                if queue.send(stream).await.is_err() {
                    return; // its thread has ended and logged the error
                }
            }
            Err(error) => note(&format!("lost a connection while accepting it: {error}")),
        }
    }
}

fn complain(served: Result<(), tonic::transport::Error>) {
    if let Err(error) = served {
        note(&format!("error: serving ended: {error}"));
    }
}

fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name).spawn(body).map(drop)
}

/// Renewals do not extend leases, so they must be longer than any measurement.
const LEASE: Duration = Duration::from_secs(7 * 24 * 3600);

/// A token with the encoded length of a real one.
const TOKEN: u64 = (1 << 40) | 1_000_000;

/// Grants the same lease to every client.
#[derive(Clone, Copy)]
struct Fixed {
    lease: Lease,
}

impl Fixed {
    fn new() -> Fixed {
        // Computed once, because reading the clock would count as logic. The encoded size is the same.
        let expiry = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default() + LEASE;
        Fixed {
            lease: Lease {
                expiry_time: Some(expiry.as_secs().cast_signed()),
                refresh_interval: Some(16),
                capacity: Some(25.0),
                token: Some(TOKEN),
                remaining_ms: Some(60_000),
            },
        }
    }
}

#[tonic::async_trait]
impl Capacity for Fixed {
    async fn discovery(&self, _: Request<DiscoveryRequest>) -> Result<Response<DiscoveryResponse>, Status> {
        Ok(Response::new(DiscoveryResponse {
            mastership: Some(Mastership::default()),
            is_master: Some(true),
            ..DiscoveryResponse::default()
        }))
    }

    async fn get_capacity(
        &self,
        request: Request<GetCapacityRequest>,
    ) -> Result<Response<GetCapacityResponse>, Status> {
        let granted = |asked: leaseway_proto::doorman::ResourceRequest| ResourceResponse {
            resource_id: asked.resource_id,
            gets: Some(self.lease),
            safe_capacity: Some(1.0),
            pool: None,
            priority: asked.priority,
            budget: None,
            unlimited: None,
        };
        let response = request.into_inner().resource.into_iter().map(granted).collect();
        Ok(Response::new(GetCapacityResponse { response, ..Default::default() }))
    }

    async fn get_server_capacity(
        &self,
        _: Request<GetServerCapacityRequest>,
    ) -> Result<Response<GetServerCapacityResponse>, Status> {
        Err(Status::unimplemented("the ceiling serves clients only, not child nodes"))
    }

    async fn release_capacity(
        &self,
        _: Request<ReleaseCapacityRequest>,
    ) -> Result<Response<ReleaseCapacityResponse>, Status> {
        Ok(Response::new(ReleaseCapacityResponse::default()))
    }
}
