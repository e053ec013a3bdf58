//! Library clients: some stay and change their wants, some crash and restart, and some arrive in herds.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use leaseway_client::{Basis, Client, LeaseChange, LeaseTrace, Resource, Transport};
use tokio::{runtime::Handle, sync::watch, task::JoinHandle};

use crate::{
    chaos::{
        args::{ChaosArgs, REFRESH},
        clients::{
            SCARCE, draw,
            raw::{CapacityRequest, Holder, RawClient},
        },
        cluster::Cluster,
        layout::POOL,
    },
    common::error::Error,
};

/// The interval at which a random client changes its wants.
const STIR: Duration = Duration::from_millis(50);

const HERD_WANTS: f64 = 100.0;

/// The number of clients at the root that share the pool, and the wants of each.
pub(crate) const POOL_CLIENTS: usize = 12;
const POOL_WANTS: f64 = 200.0;

pub(crate) struct LibraryClients {
    slots: Arc<Mutex<Vec<ClientSlot>>>,
    legacy_clients: Vec<JoinHandle<Vec<LeaseChange>>>,
    legacy_leave: watch::Sender<bool>,
    pool: Vec<(Client, Resource)>,
    herds: Vec<(usize, Vec<(Client, Resource)>)>,
    stirring: JoinHandle<()>,
    leaving: Vec<JoinHandle<()>>,
    lease_trace: LeaseTrace,
    transport: Transport,
    runtime: Handle,
}

/// A client. Empty while the client is down.
struct ClientSlot {
    id: String,
    endpoints: Vec<String>,
    wants: f64,
    client: Option<(Client, Resource)>,
}

impl LibraryClients {
    /// Starts the clients that stay, and distributes them over the nodes.
    pub(crate) fn gather(
        args: &ChaosArgs,
        seed: u64,
        legacy_clients: usize,
        cluster: &Cluster,
        lease_trace: &LeaseTrace,
        runtime: &Handle,
    ) -> Result<LibraryClients, Error> {
        let _inside = runtime.enter();
        let mut random = fastrand::Rng::with_seed(seed);
        let transport = cluster.transport()?;
        let nodes = &cluster.nodes;
        let mut slots = Vec::new();
        for number in 0..args.clients.get() {
            let endpoints = cluster.endpoints(nodes[number % nodes.len()].clone());
            let wants = draw(&mut random);
            slots.push(ClientSlot { id: format!("client:{number}"), endpoints, wants, client: None });
        }
        for slot in &mut slots {
            slot.connect(lease_trace, &transport)?;
        }
        let legacy_leave = watch::Sender::new(false);
        let legacy_client = |number: usize| {
            let request = CapacityRequest {
                client: format!("legacy:{number}").into(),
                resource: SCARCE.into(),
                wants: f64::NAN,
                drops_late: false,
            };
            let peers = cluster.peers[nodes[number % nodes.len()].clone()].iter();
            let peers = peers.map(|peer| RawClient::to(&transport, peer.grpc)).collect();
            let random = fastrand::Rng::with_seed(seed.wrapping_add(number as u64));
            let holder = Holder::new(peers, request, REFRESH, args.lease(), Some(random));
            runtime.spawn(holder.live(legacy_leave.subscribe()))
        };
        let legacy_clients = (0..legacy_clients).map(legacy_client).collect();
        let member = |number: usize| {
            let builder = Client::builder().endpoints(cluster.endpoints(nodes[0].clone())).lease_trace(lease_trace);
            let client = builder.id(pool_client(number)).transport(&transport).build().map_err(Error::usage)?;
            let resource = client.resource(POOL).wants(POOL_WANTS).open().map_err(Error::usage)?;
            Ok((client, resource))
        };
        let pool = (0..POOL_CLIENTS).map(member).collect::<Result<_, Error>>()?;
        let slots = Arc::new(Mutex::new(slots));
        let stirring = runtime.spawn(stir(Arc::clone(&slots), random));
        Ok(LibraryClients {
            slots,
            legacy_clients,
            legacy_leave,
            pool,
            herds: Vec::new(),
            stirring,
            leaving: Vec::new(),
            lease_trace: lease_trace.clone(),
            transport,
            runtime: runtime.clone(),
        })
    }

    /// Crashes `number` clients, beginning with `first`: they stop without a release. Returns their places.
    pub(crate) fn crash(&self, first: usize, number: usize) -> Vec<usize> {
        let mut slots = lock(&self.slots);
        let all = slots.len();
        let hit: Vec<usize> = (0..number.min(all)).map(|n| (first + n) % all).collect();
        for &place in &hit {
            if let Some((client, _)) = slots[place].client.take() {
                client.abandon();
            }
        }
        hit
    }

    /// Restarts the clients at these places, under their former ids.
    pub(crate) fn come_back(&self, places: &[usize]) -> Result<(), Error> {
        let _inside = self.runtime.enter();
        let mut slots = lock(&self.slots);
        let away = |place: &&usize| slots[**place].client.is_none();
        let away: Vec<usize> = places.iter().filter(away).copied().collect();
        away.into_iter().try_for_each(|place| slots[place].connect(&self.lease_trace, &self.transport))
    }

    /// Starts a herd: clients with new ids, all for a new resource.
    pub(crate) fn herd(&mut self, number: usize, size: usize, endpoints: &[String]) -> Result<(), Error> {
        let _inside = self.runtime.enter();
        let mut herd = Vec::new();
        for member in 0..size {
            let builder = Client::builder().endpoints(endpoints.iter().cloned()).lease_trace(&self.lease_trace);
            let client = builder.id(format!("herd:{number}:{member}")).transport(&self.transport);
            let client = client.build().map_err(Error::usage)?;
            let resource = client.resource(format!("herd-{number}")).wants(HERD_WANTS).open().map_err(Error::usage)?;
            herd.push((client, resource));
        }
        self.herds.push((number, herd));
        Ok(())
    }

    /// Ends a herd: every other client releases its lease, and the others crash.
    pub(crate) fn scatter(&mut self, number: usize) {
        let Some(at) = self.herds.iter().position(|(herd, _)| *herd == number) else { return };
        let (_, herd) = self.herds.swap_remove(at);
        for (place, (client, _resource)) in herd.into_iter().enumerate() {
            if place % 2 == 0 {
                self.leaving.push(self.runtime.spawn(async move { client.close().await }));
            } else {
                client.abandon();
            }
        }
    }

    /// Stops all changes of wants.
    pub(crate) fn calm(&self) {
        self.stirring.abort();
    }

    /// A description of the problem if clients hold less than the fraction `part` of the capacity that can be granted,
    /// or if one has no lease.
    pub(crate) fn complaint(&self, capacity: f64, part: f64) -> Option<String> {
        let slots = lock(&self.slots);
        let without =
            slots.iter().filter(|slot| !slot.client.as_ref().is_some_and(|(_, resource)| has_lease(resource)));
        let without: Vec<&ClientSlot> = without.collect();
        if let Some(slot) = without.first() {
            let why = slot.client.as_ref().and_then(|(client, _)| client.health().last_error);
            let why = why.unwrap_or_else(|| "no error".into());
            return Some(format!("{} clients have no lease; {} says: {why}", without.len(), slot.id));
        }
        let leases = slots.iter().filter_map(|slot| slot.client.as_ref()?.1.lease());
        let had: f64 = leases.map(|(capacity, _)| capacity.get()).sum();
        let wanted: f64 = slots.iter().map(|slot| slot.wants).sum();
        let least = wanted.min(capacity) * part;
        (had < least).then(|| format!("clients have {had:.1} of `{SCARCE}`; expected at least {least:.1}"))
    }

    /// Stops all clients. Returns the records of legacy clients.
    pub(crate) async fn leave(self) -> Vec<LeaseChange> {
        self.stirring.abort();
        let slots = std::mem::take(&mut *lock(&self.slots));
        let herds = self.herds.into_iter().flat_map(|(_, herd)| herd);
        let clients = slots.into_iter().filter_map(|slot| slot.client).chain(herds).chain(self.pool);
        let leaving = clients.map(|(client, _resource)| tokio::spawn(async move { client.close().await }));
        let leaving: Vec<_> = leaving.chain(self.leaving).collect();
        let mut entries = Vec::new();
        self.legacy_leave.send_replace(true);
        for client in self.legacy_clients {
            entries.extend(client.await.expect("a client of ours does not panic"));
        }
        for one in leaving {
            // The client stops even if the release fails.
            let _ = one.await;
        }
        entries
    }
}

impl ClientSlot {
    fn connect(&mut self, lease_trace: &LeaseTrace, transport: &Transport) -> Result<(), Error> {
        let builder =
            Client::builder().endpoints(self.endpoints.iter().cloned()).lease_trace(lease_trace).id(self.id.clone());
        let client = builder.transport(transport).build().map_err(Error::usage)?;
        let resource = client.resource(SCARCE).wants(self.wants).open().map_err(Error::usage)?;
        self.client = Some((client, resource));
        Ok(())
    }
}

pub(crate) fn pool_client(number: usize) -> String {
    format!("pool:{number}")
}

fn lock(slots: &Mutex<Vec<ClientSlot>>) -> MutexGuard<'_, Vec<ClientSlot>> {
    slots.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Changes the wants of clients, so that servers have to move capacity.
async fn stir(slots: Arc<Mutex<Vec<ClientSlot>>>, mut random: fastrand::Rng) {
    let mut beat = tokio::time::interval(STIR);
    loop {
        beat.tick().await;
        let mut slots = lock(&slots);
        let place = random.usize(..slots.len().max(1));
        let Some(slot) = slots.get_mut(place) else { return };
        slot.wants = draw(&mut random);
        if let Some((_, resource)) = &slot.client {
            // Fails only if the client has been closed.
            let _ = resource.set_wants(slot.wants);
        }
    }
}

fn has_lease(resource: &Resource) -> bool {
    resource.usable().basis == Basis::Lease
}
