//! The ceiling: a capacity server that does nothing. It reads the same messages and writes answers of the same size, so
//! what it costs per request is what gRPC costs, served as tonic is meant to be, with the allocator that the server
//! has. A server that goes past tonic for its most frequent call starts below it.
//!
//! It comes in three runtimes, because where tonic runs matters more than most logic: one multi-thread runtime that
//! steals work, or one current-thread runtime per thread, where a request never changes thread and answers leave in
//! fewer writes. To these, connections are dealt out by an acceptor, evenly; or each has a listener of its own on the
//! same port and the kernel chooses, which saves the acceptor and may give one thread all of them.

use std::{
    fs, io,
    net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream},
    path::PathBuf,
    thread::{self, JoinHandle},
};

use clap::ValueEnum;
use leaseway_process::tether;
use leaseway_proto::doorman::capacity_server::CapacityServer;
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    runtime,
    sync::{mpsc, watch},
};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tonic::transport::{Identity, Server, ServerTlsConfig, server::TcpIncoming};

use crate::{
    error::Error,
    output::{note, print},
    runtime::current_thread,
    signal::Signals,
};

use self::service::Fixed;

mod service;

/// Connections accepted but not yet taken by their thread; beyond it the acceptor waits, and the kernel's backlog
/// grows.
const DEALT_MAX: usize = 64;

/// Connections that the kernel keeps for a thread that has not accepted them yet.
const BACKLOG: u32 = 1024;

/// Serves the Doorman protocol with no logic: the most that tonic allows on this machine.
///
/// Prints `listening on ADDRESS` once it accepts connections; stops on Ctrl-C or SIGTERM.
#[derive(clap::Args)]
pub(crate) struct CeilingArgs {
    /// Where to listen; port 0 picks a free one.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// What tonic runs on.
    #[arg(long, value_enum, default_value_t = Runtime::CurrentThread)]
    runtime: Runtime,
    /// Threads that serve connections; default: one per core.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Serve over TLS, as tonic does it, with this certificate, as PEM.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its key, as PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

impl CeilingArgs {
    fn tls(&self) -> Result<Option<ServerTlsConfig>, Error> {
        let Some((certificate, key)) = self.tls_cert.as_ref().zip(self.tls_key.as_ref()) else { return Ok(None) };
        let read = |path: &PathBuf| fs::read(path).map_err(Error::io(format!("read {}", path.display())));
        Ok(Some(ServerTlsConfig::new().identity(Identity::from_pem(read(certificate)?, read(key)?))))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Runtime {
    /// One single-threaded runtime per thread; one acceptor deals connections out to them in turn.
    CurrentThread,
    /// One work-stealing runtime over all threads.
    MultiThread,
    /// One single-threaded runtime per thread, each with a listener of its own (SO_REUSEPORT). The kernel deals by
    /// chance: a few connections may all meet the same thread.
    ReusePort,
}

pub(crate) fn main(args: &CeilingArgs) -> Result<(), Error> {
    tether::obey();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.map_or(cores, usize::from);
    let waiting = current_thread().map_err(Error::io("start a runtime"))?;
    let mut signals = waiting.block_on(async { Signals::new() }).map_err(Error::io("watch for signals"))?;

    let tls = args.tls()?;
    let ceiling = Ceiling::start(args.listen, args.runtime, threads, tls)
        .map_err(Error::io(format!("listen on {}", args.listen)))?;
    print(&format!("listening on {}", ceiling.address()))?;
    waiting.block_on(signals.any());
    Ok(())
}

/// A running ceiling; stops when dropped.
pub(crate) struct Ceiling {
    address: SocketAddr,
    stop: Option<watch::Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl Ceiling {
    pub(crate) fn start(
        listen: SocketAddr,
        runtime: Runtime,
        threads: usize,
        tls: Option<ServerTlsConfig>,
    ) -> io::Result<Ceiling> {
        let (stop, stopped) = watch::channel(());
        let server = server(tls)?;
        let (address, threads) = match runtime {
            Runtime::MultiThread => {
                let listener = bind(listen)?;
                (listener.local_addr()?, vec![shared(listener, threads, server, stopped)?])
            }
            Runtime::CurrentThread => {
                let listener = bind(listen)?;
                (listener.local_addr()?, dealt(listener, threads, &server, stopped)?)
            }
            Runtime::ReusePort => reused(listen, threads, &server, &stopped)?,
        };
        Ok(Ceiling { address, stop: Some(stop), threads })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Ceiling {
    fn drop(&mut self) {
        self.stop = None; // the acceptor sees it, drops its side of the channels, and the serving threads end
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// As a user of tonic sets it up.
fn server(tls: Option<ServerTlsConfig>) -> io::Result<Server> {
    match tls {
        None => Ok(Server::builder()),
        Some(tls) => Server::builder().tls_config(tls).map_err(io::Error::other),
    }
}

fn bind(listen: SocketAddr) -> io::Result<StdListener> {
    let listener = StdListener::bind(listen)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// One work-stealing runtime: the usual way to run tonic.
fn shared(
    listener: StdListener,
    threads: usize,
    server: Server,
    stopped: watch::Receiver<()>,
) -> io::Result<JoinHandle<()>> {
    let tokio = runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    let listener = tokio.block_on(async { TcpListener::from_std(listener) })?;
    spawn("serve".into(), move || {
        // Spawned: this thread is not one of the runtime's own.
        let serving = tokio.spawn(serve(listener, server, stopped));
        tokio.block_on(serving).expect("tonic does not panic");
    })
}

async fn serve(listener: TcpListener, mut server: Server, mut stopped: watch::Receiver<()>) {
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let service = CapacityServer::new(Fixed::new());
    tokio::select! {
        served = server.add_service(service).serve_with_incoming(incoming) => complain(served),
        _ = stopped.changed() => {}
    }
}

/// Single-threaded runtimes that accept for themselves.
fn reused(
    listen: SocketAddr,
    threads: usize,
    server: &Server,
    stopped: &watch::Receiver<()>,
) -> io::Result<(SocketAddr, Vec<JoinHandle<()>>)> {
    // The first one finds a free port if none was named, and the others join it there.
    let mut address = listen;
    let mut handles = Vec::with_capacity(threads);
    for n in 0..threads {
        let tokio = current_thread()?;
        let listener = tokio.block_on(async { reusing(address) })?;
        address = listener.local_addr()?;
        let (server, stopped) = (server.clone(), stopped.clone());
        handles.push(spawn(format!("serve-{n}"), move || tokio.block_on(serve(listener, server, stopped)))?);
    }
    Ok((address, handles))
}

fn reusing(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?; // as the standard listener does: a port is free again as soon as its server has ended
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Single-threaded runtimes, and one more thread that accepts connections for them.
fn dealt(
    listener: StdListener,
    threads: usize,
    server: &Server,
    stopped: watch::Receiver<()>,
) -> io::Result<Vec<JoinHandle<()>>> {
    let mut queues = Vec::with_capacity(threads);
    let mut handles = Vec::with_capacity(threads + 1);
    for n in 0..threads {
        let (queue, connections) = mpsc::channel::<StdStream>(DEALT_MAX);
        let (tokio, mut server) = (current_thread()?, server.clone());
        queues.push(queue);
        handles.push(spawn(format!("serve-{n}"), move || {
            let incoming = ReceiverStream::new(connections).map(TcpStream::from_std);
            let service = CapacityServer::new(Fixed::new());
            let served = tokio.block_on(server.add_service(service).serve_with_incoming(incoming));
            complain(served);
        })?);
    }
    let tokio = current_thread()?;
    let listener = tokio.block_on(async { TcpListener::from_std(listener) })?;
    handles.push(spawn("accept".into(), move || tokio.block_on(accept(&listener, &queues, stopped)))?);
    Ok(handles)
}

/// Deals connections out in turn. A connection that cannot be prepared is dropped: its client sees it closed.
async fn accept(listener: &TcpListener, queues: &[mpsc::Sender<StdStream>], mut stopped: watch::Receiver<()>) {
    for queue in queues.iter().cycle() {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.changed() => return,
        };
        // The stream must leave this thread's runtime before another can adopt it.
        let stream = accepted.and_then(|(stream, _)| {
            stream.set_nodelay(true)?;
            stream.into_std()
        });
        match stream {
            Ok(stream) => {
                if queue.send(stream).await.is_err() {
                    return; // its thread has ended, and said why
                }
            }
            Err(error) => note(&format!("a connection was lost while it was accepted: {error}")),
        }
    }
}

fn complain(served: Result<(), tonic::transport::Error>) {
    if let Err(error) = served {
        note(&format!("error: serving ended: {error}"));
    }
}

fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name).spawn(body)
}
