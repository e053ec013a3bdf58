//! The clients of a run: what they share, and that what they want changes now and then.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use leaseway_client::{Client, LeaseTrace, Resource, Transport};
use tokio::{runtime::Handle, task::JoinHandle};

use super::args::{ChaosArgs, WANTS};
use crate::{
    clients::{LibraryClients, has_lease},
    error::Error,
};

/// What all clients share, and what only every tenth client asks for, so that there is always some of it left.
pub(super) const SCARCE: &str = "chaos";
pub(super) const PLENTY: &str = "plenty";
const EVERY: usize = 10;

/// How often a client wants something else.
const STIR: Duration = Duration::from_millis(50);

pub(super) struct ClientCrowd {
    clients: Arc<LibraryClients>,
    plenty: Vec<Resource>,
    stirring: JoinHandle<()>,
}

/// When the lease of each client was to end, at one moment.
pub(super) struct Leases(Vec<Option<Instant>>);

impl ClientCrowd {
    pub(super) fn gather(
        args: &ChaosArgs,
        transport: &Transport,
        peers: &[SocketAddr],
        book: &LeaseTrace,
        runtime: &Handle,
    ) -> Result<ClientCrowd, Error> {
        let _inside = runtime.enter();
        let mut random = fastrand::Rng::with_seed(args.seed);
        let (mut clients, mut plenty) = (LibraryClients::new(transport.clone(), args.seed), Vec::new());
        for n in 0..args.clients.get() {
            let builder = Client::builder().endpoints(peers.iter().map(ToString::to_string)).lease_trace(book);
            let client = clients.join(builder.id(format!("client:{n}")), SCARCE, draw(&mut random))?;
            if n.is_multiple_of(EVERY) {
                plenty.push(client.resource(PLENTY).wants(draw(&mut random)).open().map_err(Error::usage)?);
            }
        }
        let clients = Arc::new(clients);
        let stirring = runtime.spawn(stir(Arc::clone(&clients), random));
        Ok(ClientCrowd { clients, plenty, stirring })
    }

    pub(super) fn size(&self) -> usize {
        self.clients.len()
    }

    /// How many leases there are.
    pub(super) fn leased(&self) -> usize {
        self.clients.leased() + self.plenty.iter().filter(|resource| has_lease(resource)).count()
    }

    /// Whether anything is given to newcomers: while a server learns they have leases of nothing.
    pub(super) fn is_served(&self) -> bool {
        self.plenty.iter().any(|resource| resource.capacity().get() > 0.0)
    }

    /// How many there could be.
    pub(super) fn leases(&self) -> usize {
        self.clients.len() + self.plenty.len()
    }

    pub(super) fn complaint(&self) -> String {
        self.clients.complaint()
    }

    pub(super) fn ends(&self) -> Leases {
        Leases(self.clients.resources.iter().map(ends).collect())
    }

    /// Forgets those in `left` that have a lease by now that is newer than `before`, and ask `master`.
    pub(super) fn renewed(&self, left: &mut Vec<usize>, before: &Leases, master: SocketAddr) {
        let master = master.to_string();
        left.retain(|&n| {
            let end = ends(&self.clients.resources[n]);
            let newer = end.is_some_and(|end| before.0[n].is_none_or(|before| end > before + ROUNDING));
            !(newer && self.clients.clients[n].health().server == master)
        });
    }

    pub(super) async fn leave(self) {
        self.stirring.abort();
        self.clients.leave().await;
    }
}

impl Drop for ClientCrowd {
    fn drop(&mut self) {
        self.stirring.abort();
    }
}

/// A lease counts in whole milliseconds: the same one may seem to end a little later when one looks again.
const ROUNDING: Duration = Duration::from_millis(3);

fn ends(resource: &Resource) -> Option<Instant> {
    resource.lease().map(|(_, left)| Instant::now() + left)
}

pub(super) fn draw(random: &mut fastrand::Rng) -> f64 {
    WANTS.start + random.f64() * (WANTS.end - WANTS.start)
}

/// Capacity has to move for rules about moving it to be broken.
async fn stir(clients: Arc<LibraryClients>, mut random: fastrand::Rng) {
    let mut beat = tokio::time::interval(STIR);
    loop {
        beat.tick().await;
        // Refused only once the client is closed.
        let _ = clients.want(random.usize(..clients.len()), draw(&mut random));
    }
}
