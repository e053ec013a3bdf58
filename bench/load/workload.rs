//! The clients of a load and their requests. A workload is a part of all clients with their leases. It writes requests
//! as real clients do, with `has` and token, and keeps the leases of the answers. Clients may leave and be replaced.
//!
//! All choices are drawn from a seed. A client takes 4 bytes plus 40 for each of its resources (and 4 more with churn),
//! so that a million clients and the server fit into the memory of one machine.

use std::{fmt::Write, ops::RangeInclusive, str::FromStr};

use leaseway_proto::doorman::{
    GetCapacityRequest, GetCapacityResponse, Lease, ReleaseCapacityRequest, ResourceRequest,
};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum WantsPattern {
    /// A constant whole number for each client and resource.
    Uniform(RangeInclusive<u32>),
    /// A new whole number in every request.
    Changing(RangeInclusive<u32>),
    /// In this percentage of requests the client wants 1.5 times the capacity that it has, and starts over at 1 beyond
    /// 100. In other requests it wants the capacity that it has. If the capacity suffices for all, this percentage of
    /// requests raises a promise.
    Climbing(u8),
}

impl FromStr for WantsPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<WantsPattern, String> {
        let (kind, value) = text.split_once(':').unwrap_or((text, "1-100"));
        match kind {
            "uniform" => Ok(WantsPattern::Uniform(range(value)?)),
            "changing" => Ok(WantsPattern::Changing(range(value)?)),
            "climbing" => match value.parse() {
                Ok(percent @ 0..=100) => Ok(WantsPattern::Climbing(percent)),
                _ => Err(format!("`{value}` is not a percentage; expected one like climbing:20")),
            },
            _ => Err("expected uniform:1-100, changing, changing:1-100 or climbing:20".into()),
        }
    }
}

fn range(text: &str) -> Result<RangeInclusive<u32>, String> {
    let bounds = text.split_once('-').and_then(|(low, high)| Some(low.parse().ok()?..=high.parse().ok()?));
    bounds.filter(|range| !range.is_empty()).ok_or_else(|| format!("`{text}` is not a range such as 1-100"))
}

/// The parameters that all generator threads share.
#[derive(Clone, Debug)]
pub(crate) struct Population {
    pub(crate) clients: u32,
    pub(crate) resources: u32,
    pub(crate) resources_per_request: u32,
    pub(crate) resource_prefix: String,
    pub(crate) wants: WantsPattern,
    /// The percentage of requests from new clients.
    pub(crate) churn: f64,
    /// Whether clients ignore answers to all but their latest request, and tell the server so.
    pub(crate) drops_late: bool,
    pub(crate) seed: u64,
}

/// The clients of one generator thread.
pub(crate) struct Workload {
    population: Population,
    names: Vec<String>,
    /// The clients of this thread are `first`, `first + step`, `first + 2 * step` …
    first: u32,
    step: u32,
    walk: Walk,
    /// `resources_per_request` entries in a row for each client.
    held: Vec<Option<Held>>,
    /// The number of clients that have got a lease of their first resource, even if it has ended.
    leased: u32,
    /// The number of clients that have left each place. Empty without churn.
    generations: Vec<u32>,
    /// The number of the latest request of each client. Empty unless `drops_late`.
    latest: Vec<u8>,
    /// Whether clients may leave now.
    restless: bool,
    rng: fastrand::Rng,
}

/// The part of a lease that a client echoes.
#[derive(Clone, Copy)]
struct Held {
    expiry_time: i64,
    refresh_interval: i64,
    capacity: f64,
    token: Option<u64>,
}

/// The resources of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settled {
    pub(crate) granted: u32,
    /// Left out of the answer because of the minimum request interval.
    pub(crate) ignored: u32,
}

/// The client that sent a request. Pass the same value to [`Workload::settle`] with the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asker {
    place: u32,
    generation: u32,
    request: u8,
}

/// The client of the next request, and the change of clients that comes with it.
pub(crate) struct Turn {
    pub(crate) asker: Asker,
    pub(crate) newcomer: bool,
    /// The release of the client that it has replaced, if that one sends a release.
    pub(crate) release: Option<ReleaseCapacityRequest>,
}

impl Workload {
    /// The share of thread `part` of `parts`, which must not exceed the number of clients.
    pub(crate) fn part(population: Population, part: u32, parts: u32) -> Workload {
        let clients = (population.clients - part).div_ceil(parts);
        let mut rng = fastrand::Rng::with_seed(population.seed.wrapping_add(u64::from(part)));
        Workload {
            names: (0..population.resources).map(|n| format!("{}-{n}", population.resource_prefix)).collect(),
            first: part,
            step: parts,
            walk: Walk::new(clients, rng.fork()),
            held: vec![None; clients as usize * population.resources_per_request as usize],
            leased: 0,
            generations: if population.churn > 0.0 { vec![0; clients as usize] } else { Vec::new() },
            latest: if population.drops_late { vec![0; clients as usize] } else { Vec::new() },
            restless: true,
            rng,
            population,
        }
    }

    pub(crate) fn may_leave(&mut self, may: bool) {
        self.restless = may;
    }

    /// The number of clients that have got a lease, even if it has ended.
    pub(crate) fn leased(&self) -> u32 {
        self.leased
    }

    /// The number of clients with a lease that ends later than `now`, in Unix seconds.
    pub(crate) fn leased_beyond(&self, now: i64) -> u64 {
        let newest = self.held.iter().step_by(self.population.resources_per_request as usize);
        newest.flatten().filter(|held| held.expiry_time > now).count() as u64
    }

    /// The sum of leases that end later than `now`.
    pub(crate) fn held_beyond(&self, now: i64) -> f64 {
        self.held.iter().flatten().filter(|held| held.expiry_time > now).map(|held| held.capacity).sum()
    }

    /// Overwrites `request` with the request of the next client. Reusing it saves allocations.
    pub(crate) fn write(&mut self, request: &mut GetCapacityRequest) -> Turn {
        let place = self.walk.next();
        let (newcomer, release) =
            if self.restless && !self.generations.is_empty() { self.replace(place) } else { (false, None) };
        if let Some(latest) = self.latest.get_mut(place as usize) {
            *latest = latest.wrapping_add(1);
        }
        let asker = Asker { place, generation: self.generation(place), request: self.request(place) };
        let client = self.client(place);
        request.drops_late = self.population.drops_late.then_some(true);
        write_id(request.client_id.get_or_insert_default(), client, asker.generation);
        request.resource.resize_with(self.population.resources_per_request as usize, ResourceRequest::default);
        for (nth, asked) in request.resource.iter_mut().enumerate() {
            let resource = self.resource(client, nth);
            asked.resource_id.get_or_insert_default().clone_from(&self.names[resource]);
            asked.priority = Some(0);
            asked.has = self.held[self.slot(place, nth)].map(|held| Lease {
                expiry_time: Some(held.expiry_time),
                refresh_interval: Some(held.refresh_interval),
                capacity: Some(held.capacity),
                token: held.token,
                remaining_ms: None,
            });
            let has = asked.has.and_then(|has| has.capacity);
            asked.wants = Some(self.wants(client, asker.generation, nth, has));
        }
        Turn { asker, newcomer, release }
    }

    /// Replaces the client by a new one, at random. A client that has never had a lease stays.
    fn replace(&mut self, place: u32) -> (bool, Option<ReleaseCapacityRequest>) {
        let held = self.slot(place, 0)..self.slot(place + 1, 0);
        if self.held[held.start].is_none() || self.rng.f64() * 100.0 >= self.population.churn {
            return (false, None);
        }
        // On average every other client leaves without a release.
        let release = self.rng.bool().then(|| self.release(place));
        self.held[held].fill(None);
        self.leased -= 1;
        self.generations[place as usize] += 1;
        (true, release)
    }

    fn release(&self, place: u32) -> ReleaseCapacityRequest {
        let client = self.client(place);
        let mut release = ReleaseCapacityRequest::default();
        write_id(release.client_id.get_or_insert_default(), client, self.generation(place));
        for nth in 0..self.population.resources_per_request as usize {
            if let Some(held) = self.held[self.slot(place, nth)] {
                release.resource_id.push(self.names[self.resource(client, nth)].clone());
                release.token.extend(held.token);
            }
        }
        release
    }

    /// Stores the leases of an answer.
    pub(crate) fn settle(&mut self, asker: Asker, answer: &GetCapacityResponse) -> Settled {
        let mut settled = Settled::default();
        // The client may have left, or asked again, since the request was sent.
        let current = (self.generation(asker.place), self.request(asker.place)) == (asker.generation, asker.request);
        let client = self.client(asker.place);
        for nth in 0..self.population.resources_per_request as usize {
            let name = &self.names[self.resource(client, nth)];
            let answered = answer.response.iter().find(|response| response.resource_id.as_deref() == Some(name));
            let Some(lease) = answered.and_then(|response| response.gets) else {
                settled.ignored += 1;
                continue;
            };
            settled.granted += 1;
            if !current {
                continue;
            }
            let slot = self.slot(asker.place, nth);
            self.leased += u32::from(nth == 0 && self.held[slot].is_none());
            self.held[slot] = Some(Held {
                expiry_time: lease.expiry_time.unwrap_or_default(),
                refresh_interval: lease.refresh_interval.unwrap_or_default(),
                capacity: lease.capacity.unwrap_or_default(),
                token: lease.token,
            });
        }
        settled
    }

    /// The index of the nth resource of a client. Clients start at different resources and use the following ones, so
    /// that all resources have about the same number of clients.
    fn resource(&self, client: u32, nth: usize) -> usize {
        (client as usize + nth) % self.population.resources as usize
    }

    fn slot(&self, place: u32, nth: usize) -> usize {
        place as usize * self.population.resources_per_request as usize + nth
    }

    fn client(&self, place: u32) -> u32 {
        self.first + place * self.step
    }

    fn generation(&self, place: u32) -> u32 {
        self.generations.get(place as usize).copied().unwrap_or_default()
    }

    fn request(&self, place: u32) -> u8 {
        self.latest.get(place as usize).copied().unwrap_or_default()
    }

    fn wants(&mut self, client: u32, generation: u32, nth: usize, has: Option<f64>) -> f64 {
        match &self.population.wants {
            WantsPattern::Changing(range) => f64::from(self.rng.u32(range.clone())),
            WantsPattern::Climbing(percent) => match has {
                None => f64::from(self.rng.u32(1..=100)),
                Some(has) if self.rng.u8(0..100) >= *percent => has,
                Some(has) if has * 1.5 > 100.0 => 1.0,
                // 1.5 times 0 is 0, so want at least 1.
                Some(has) => (has * 1.5).max(1.0),
            },
            WantsPattern::Uniform(range) => {
                let name = (u64::from(client) << 32 | nth as u64) ^ (u64::from(generation) << 20);
                f64::from(fastrand::Rng::with_seed(self.population.seed ^ name).u32(range.clone()))
            }
        }
    }
}

/// `client-3`; the clients that replace it are `client-3-1`, `client-3-2` …
fn write_id(id: &mut String, client: u32, generation: u32) {
    id.clear();
    let written = match generation {
        0 => write!(id, "client-{client}"),
        _ => write!(id, "client-{client}-{generation}"),
    };
    written.expect("writing to a string cannot fail");
}

/// Visits all numbers of `0..count` in random order, then again in another order, so that every client sends requests
/// and the server's caches see no pattern.
struct Walk {
    order: Vec<u32>,
    next: usize,
    rng: fastrand::Rng,
}

impl Walk {
    fn new(count: u32, rng: fastrand::Rng) -> Walk {
        Walk { order: (0..count).collect(), next: 0, rng }
    }

    /// The next number. Shuffles one step per visit, because a complete shuffle at the start of each round would delay
    /// requests.
    fn next(&mut self) -> u32 {
        let other = self.rng.usize(self.next..self.order.len());
        self.order.swap(self.next, other);
        let client = self.order[self.next];
        self.next = (self.next + 1) % self.order.len();
        client
    }
}

#[cfg(test)]
mod tests;
