//! Real clients of the client library, whose wants change now and then.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use leaseway_client::{Basis, Book, Client, Resource, Transport};
use tokio::{
    runtime::Handle,
    task::{JoinHandle, JoinSet},
};

use super::args::{ChaosArgs, WANTS};
use crate::error::Error;

/// What all clients share, and what only every tenth client asks for, so that there is always some of it left.
pub(super) const SCARCE: &str = "chaos";
pub(super) const PLENTY: &str = "plenty";
const EVERY: usize = 10;

/// How often a client wants something else.
const STIR: Duration = Duration::from_millis(50);

/// How many clients give their leases back at the same time.
const LEAVING: usize = 64;

pub(super) struct ClientCrowd {
    clients: Vec<Client>,
    scarce: Arc<Vec<Resource>>,
    plenty: Vec<Resource>,
    stirring: JoinHandle<()>,
}

/// When the lease of each client was to end, at one moment.
pub(super) struct Leases(Vec<Option<Instant>>);

impl ClientCrowd {
    pub(super) fn gather(
        args: &ChaosArgs,
        peers: &[SocketAddr],
        book: &Book,
        runtime: &Handle,
    ) -> Result<ClientCrowd, Error> {
        let _inside = runtime.enter();
        let mut random = fastrand::Rng::with_seed(args.seed);
        // It opens a connection for about every forty clients.
        let transport = Transport::new();
        let usage = |error: &dyn std::fmt::Display| Error::Usage(error.to_string());
        let (mut clients, mut scarce, mut plenty) = (Vec::new(), Vec::new(), Vec::new());
        for n in 0..args.clients.get() {
            let builder = Client::builder().endpoints(peers.iter().map(ToString::to_string)).book(book);
            let builder = builder.transport(&transport).seed(args.seed.wrapping_add(n as u64));
            let client = builder.id(format!("client:{n}")).build().map_err(|error| usage(&error))?;
            let open = |resource, wants| client.resource(resource).wants(wants).open().map_err(|error| usage(&error));
            scarce.push(open(SCARCE, draw(&mut random))?);
            if n.is_multiple_of(EVERY) {
                plenty.push(open(PLENTY, draw(&mut random))?);
            }
            clients.push(client);
        }
        let scarce = Arc::new(scarce);
        let stirring = runtime.spawn(stir(Arc::clone(&scarce), random));
        Ok(ClientCrowd { clients, scarce, plenty, stirring })
    }

    pub(super) fn size(&self) -> usize {
        self.clients.len()
    }

    /// How many have leases.
    pub(super) fn leased(&self) -> usize {
        self.scarce.iter().chain(&self.plenty).filter(|resource| resource.usable().basis == Basis::Lease).count()
    }

    /// Whether anything is given to newcomers: while a server learns they have leases of nothing.
    pub(super) fn is_served(&self) -> bool {
        self.plenty.iter().any(|resource| resource.capacity().get() > 0.0)
    }

    /// How many there could be.
    pub(super) fn leases(&self) -> usize {
        self.scarce.len() + self.plenty.len()
    }

    /// Why the first that has none has none.
    pub(super) fn complaint(&self) -> String {
        let without =
            self.scarce.iter().zip(&self.clients).find(|(resource, _)| resource.usable().basis != Basis::Lease);
        without.and_then(|(_, client)| client.health().last_error).unwrap_or_else(|| "no error".into())
    }

    pub(super) fn ends(&self) -> Leases {
        Leases(self.scarce.iter().map(ends).collect())
    }

    /// Forgets those in `left` who have a lease by now that is newer than `before`, and ask `master`.
    pub(super) fn renewed(&self, left: &mut Vec<usize>, before: &Leases, master: SocketAddr) {
        let master = master.to_string();
        left.retain(|&n| {
            let newer =
                ends(&self.scarce[n]).is_some_and(|end| before.0[n].is_none_or(|before| end > before + ROUNDING));
            !(newer && self.clients[n].health().server == master)
        });
    }

    /// Every client gives back all it has.
    pub(super) async fn leave(mut self) {
        self.stirring.abort();
        let mut leaving = JoinSet::new();
        for client in std::mem::take(&mut self.clients) {
            if leaving.len() >= LEAVING {
                leaving.join_next().await;
            }
            leaving.spawn(async move { client.close().await });
        }
        leaving.join_all().await;
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

fn draw(random: &mut fastrand::Rng) -> f64 {
    WANTS.start + random.f64() * (WANTS.end - WANTS.start)
}

/// Now and then a client wants something else: capacity has to move for rules about moving it to be broken.
async fn stir(resources: Arc<Vec<Resource>>, mut random: fastrand::Rng) {
    let mut beat = tokio::time::interval(STIR);
    loop {
        beat.tick().await;
        let resource = &resources[random.usize(..resources.len())];
        // Refused only once the client is closed.
        let _ = resource.set_wants(draw(&mut random));
    }
}
