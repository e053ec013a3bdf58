//! The cost of one refresh in the core, with 10 to a million clients.
//!
//! Each iteration is a whole round of one request: a client, in random order, echoes its lease and changes its wants.
//! Time advances so that each client refreshes every 16 s and leases expire at a realistic rate. `spread` draws wants
//! from 0 to 100, and `close` from 100 to 100.000001, the worst case for an index of wants. `children` sends the
//! requests of child nodes: 64 slices of 50 clients each. `groups` has a million clients in 10,000 groups, and prints
//! the cost as a multiple of that without groups.

use std::{ops::Range, time::Duration};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use leaseway_core::{
    lease::{holder::ShownLease, promises::Inherited},
    policy::{
        groups::{GroupPattern, GroupSettings},
        settings::{AlgorithmKind, Settings},
    },
    resource::{Answer, Ask, Lease, Request, Resource, ResourceOptions, RoundScratch},
    types::{Amount, ChargedTo, Claim, Claims, Epoch, HolderKind, Millis, Now},
};

const REFRESH_NS: u64 = 16_000_000_000;
/// The number of requests built before the clock starts, so that the benchmark measures the core and not its callers.
const CHUNK: usize = 64;
const SIZES: [u32; 4] = [10, 1_000, 100_000, 1_000_000];
/// The maximum number of slices that a child node reports for the clients of one priority.
const SLICES: usize = 64;
/// Clients in a slice.
const IN_A_SLICE: u32 = 50;
/// The number of groups, if there are any.
const GROUPS: u32 = 10_000;

/// The CPU time of this thread: other processes of the machine do not count.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn options(settings: Settings, askers: u32, inherited: Option<Inherited>) -> ResourceOptions {
    ResourceOptions {
        source: leaseway_core::resource::supply::Source::Own,
        settings: settings.into(),
        epoch: Epoch(1 << 40),
        since: Millis(0),
        learning_until: Millis(0),
        inherited,
        max_holders: askers as usize * SLICES,
        seed: 42,
    }
}

#[derive(Clone, Copy, PartialEq)]
enum AskerKind {
    Clients,
    Children,
}

impl AskerKind {
    /// The number of clients behind each asker.
    fn clients(self) -> u32 {
        match self {
            AskerKind::Clients => 1,
            AskerKind::Children => SLICES as u32 * IN_A_SLICE,
        }
    }
}

#[derive(Clone, Copy)]
enum WantsRange {
    Spread,
    Close,
}

impl WantsRange {
    fn name(self) -> &'static str {
        match self {
            WantsRange::Spread => "spread",
            WantsRange::Close => "close",
        }
    }

    fn draw(self, random: u64) -> Amount {
        let unit = (random >> 11) as f64 / (1u64 << 53) as f64;
        Amount::clamped(match self {
            WantsRange::Spread => unit * 100.0,
            WantsRange::Close => 100.0 + unit * 1e-6,
        })
    }
}

struct Refreshers {
    asker: AskerKind,
    resource: Resource,
    leases: Vec<Option<Lease>>,
    /// Every client once, in random order. The next to refresh is at `next`.
    order: Vec<u32>,
    next: usize,
    /// The positions in `order` of the clients of the current requests.
    asking: Range<usize>,
    /// Number of requests per round.
    round: usize,
    wants: WantsRange,
    random: u64,
    elapsed_ns: u64,
    epoch: Epoch,
    answers: Vec<Answer>,
    scratch: RoundScratch,
}

impl Refreshers {
    /// Starts with two requests of each client.
    fn new(asker: AskerKind, kind: AlgorithmKind, clients: u32, wants: WantsRange, round: usize) -> Refreshers {
        let settings = Settings::new(kind, Amount::clamped(f64::from(clients * asker.clients()) * 25.0));
        Refreshers::with_settings(asker, settings, clients, wants, round)
    }

    fn with_settings(
        asker: AskerKind,
        mut settings: Settings,
        clients: u32,
        wants: WantsRange,
        round: usize,
    ) -> Refreshers {
        settings.min_request_interval = Millis(0);
        let mut refreshers = Refreshers {
            asker,
            resource: Resource::new(options(settings, clients, None)),
            leases: vec![None; clients as usize],
            order: (0..clients).collect(),
            next: 0,
            asking: 0..0,
            round,
            wants,
            random: 1,
            elapsed_ns: 0,
            epoch: Epoch(1 << 40),
            answers: Vec::new(),
            scratch: RoundScratch::default(),
        };
        refreshers.measure(u64::from(clients) * 2);
        refreshers
    }

    /// Replaces the master. If the new one `remembers`, it has inherited the leases; otherwise every client is new to
    /// it.
    fn lose_master(&mut self, remembers: bool) {
        let settings = self.resource.settings().clone();
        let askers = self.leases.len() as u32;
        let inherited = remembers.then(|| Inherited {
            total: settings.capacity,
            wants: self.resource.summarize(self.now().at).claims,
            newest: Some(self.epoch),
            until: self.now().at.plus(Millis(1 << 40)),
            ..Inherited::default()
        });
        self.epoch = Epoch(self.epoch.0 + Inherited::EPOCHS_APART);
        let options = options(settings, askers, inherited);
        self.resource = Resource::new(ResourceOptions { epoch: self.epoch, since: self.now().at, ..options });
        if !remembers {
            self.leases.fill(None);
        }
        self.shuffle();
    }

    /// Runs this number of refreshes, each the first of its client at a new master. Returns the time spent in the core.
    fn measure_returns(&mut self, refreshes: u64, remembers: bool) -> Duration {
        let mut spent = Duration::ZERO;
        let mut left = refreshes;
        while left > 0 {
            if self.next == self.order.len() {
                self.lose_master(remembers);
            }
            let some = left.min((self.order.len() - self.next) as u64);
            spent += self.measure(some);
            left -= some;
        }
        spent
    }

    fn now(&self) -> Now {
        let at = Millis(self.elapsed_ns / 1_000_000);
        Now { at, unix: 1_700_000_000 + (at.0 / 1000) as i64 }
    }

    fn next_random(&mut self) -> u64 {
        // splitmix64
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Runs this number of refreshes. Returns the time spent in the core.
    fn measure(&mut self, refreshes: u64) -> Duration {
        let mut spent = Duration::ZERO;
        let mut left = refreshes as usize;
        while left > 0 {
            let mut rounds = self.requests(left.min(CHUNK));
            left -= self.asking.len();
            let since = cpu_time();
            for (now, requests) in &mut rounds {
                self.resource.round(*now, requests, &mut self.answers, &mut self.scratch);
            }
            spent += cpu_time().saturating_sub(since);
            self.hear();
        }
        spent
    }

    fn requests(&mut self, most: usize) -> Vec<(Now, Vec<Request>)> {
        if self.next == self.order.len() {
            self.shuffle();
        }
        let until = (self.next + most).min(self.order.len());
        self.asking = self.next..until;
        self.next = until;
        let requests: Vec<(Now, Request)> =
            self.asking.clone().map(|position| self.request(self.order[position])).collect();
        let rounds =
            requests.chunks(self.round).map(|round| (round[0].0, round.iter().map(|ask| ask.1.clone()).collect()));
        rounds.collect()
    }

    fn shuffle(&mut self) {
        for last in (1..self.order.len()).rev() {
            let other = (self.next_random() % (last as u64 + 1)) as usize;
            self.order.swap(last, other);
        }
        self.next = 0;
    }

    fn request(&mut self, client: u32) -> (Now, Request) {
        self.elapsed_ns += REFRESH_NS / self.order.len() as u64;
        let has = self.leases[client as usize].map(|lease| ShownLease {
            token: Some(lease.token),
            capacity: lease.capacity,
            expiry_time: lease.expiry_time,
        });
        let (kind, outstanding) = match self.asker {
            AskerKind::Clients => (HolderKind::Client, None),
            AskerKind::Children => (HolderKind::Node, Some(has.map_or(Amount::ZERO, |has| has.capacity))),
        };
        let ask = Ask {
            kind,
            // A new allocation, as if it had just been decoded, so it is in the cache.
            id: format!("host-{:04}.example.com:1234:{client}", client % GROUPS).into(),
            claims: self.claims(),
            has,
            had: None,
            outstanding,
            learning: false,
            drops_late: true,
            is_gateway: false,
            instance: None,
            pool_fields: None,
            spent: None,
            groups: Vec::new(),
            charged_to: ChargedTo::default(),
        };
        (self.now(), Request::Ask(ask))
    }

    fn claims(&mut self) -> Claims {
        let random = self.next_random();
        if self.asker == AskerKind::Clients {
            return Claims::from_slice(&[Claim::of_client(self.wants.draw(random), 0)]);
        }
        let mut slice = || {
            let random = self.next_random();
            let wants = Amount::clamped(self.wants.draw(random).get() * f64::from(IN_A_SLICE));
            Claim::new(wants, IN_A_SLICE, 0)
        };
        (0..SLICES).map(|_| slice()).collect()
    }

    fn hear(&mut self) {
        for (position, answer) in self.asking.clone().zip(self.answers.drain(..)) {
            match answer {
                Answer::Granted(lease) => self.leases[self.order[position] as usize] = Some(lease),
                Answer::Supplied(supplied) => self.leases[self.order[position] as usize] = Some(supplied.lease),
                other => panic!("a refresh was answered with {other:?}"),
            }
        }
    }
}

fn refresh(criterion: &mut Criterion) {
    for kind in AlgorithmKind::ALL.into_iter().take(5) {
        for wants in [WantsRange::Spread, WantsRange::Close] {
            let name = format!("refresh/{}/{}", kind.name(), wants.name());
            bench(criterion, &name, AskerKind::Clients, kind, wants, 1, &SIZES);
        }
    }
    for kind in [AlgorithmKind::ProportionalShare, AlgorithmKind::FairShare] {
        let name = format!("children/{}", kind.name());
        bench(criterion, &name, AskerKind::Children, kind, WantsRange::Spread, 1, &[10, 1_000]);
    }
    // A busy resource handles all waiting requests in one round.
    bench(
        criterion,
        "round-of-64/FAIR_SHARE/spread",
        AskerKind::Clients,
        AlgorithmKind::FairShare,
        WantsRange::Spread,
        64,
        &SIZES,
    );
}

/// The first refresh of each client after a change of master: leases are inherited (`named`) or unknown (`newcomers`).
fn returns(criterion: &mut Criterion) {
    for (name, remembers) in [("named", true), ("newcomers", false)] {
        let mut group = criterion.benchmark_group(format!("returns/FAIR_SHARE/round-of-64/{name}"));
        group.throughput(Throughput::Elements(1));
        for clients in [1_000, 1_000_000] {
            let mut refreshers = None;
            group.bench_function(BenchmarkId::from_parameter(clients), |bencher| {
                let new = || {
                    Refreshers::new(AskerKind::Clients, AlgorithmKind::FairShare, clients, WantsRange::Spread, CHUNK)
                };
                let refreshers = refreshers.get_or_insert_with(new);
                bencher.iter_custom(|refreshes| refreshers.measure_returns(refreshes, remembers));
            });
        }
    }
}

/// The same clients with groups and without, measured in turns.
struct Pair {
    grouped: Refreshers,
    flat: Refreshers,
}

impl Pair {
    const CLIENTS: u32 = 1_000_000;
    const TURNS: usize = 11;

    fn new(round: usize) -> Pair {
        let flat = Settings::new(AlgorithmKind::FairShare, Amount::clamped(f64::from(Self::CLIENTS) * 25.0));
        let pattern = GroupPattern::new("{team}.example.com:*").expect("a valid pattern");
        let grouped = Settings { groups: Some(GroupSettings::new(pattern).into()), ..flat.clone() };
        let new = |settings| {
            Refreshers::with_settings(AskerKind::Clients, settings, Self::CLIENTS, WantsRange::Spread, round)
        };
        Pair { grouped: new(grouped), flat: new(flat) }
    }

    /// Prints the cost with groups as a multiple of that without.
    fn compare(&mut self, name: &str) {
        const REFRESHES: u64 = 200_000;
        let turn = |_| (self.grouped.measure(REFRESHES).as_secs_f64(), self.flat.measure(REFRESHES).as_secs_f64());
        let mut turns: Vec<(f64, f64)> = (0..Self::TURNS).map(turn).collect();
        let ratio = |(grouped, flat): &(f64, f64)| grouped / flat;
        turns.sort_by(|one, other| ratio(one).total_cmp(&ratio(other)));
        let (middle, nanoseconds) = (turns[Self::TURNS / 2], 1e9 / REFRESHES as f64);
        let bytes = |refreshers: &Refreshers| refreshers.resource.bytes() / Self::CLIENTS as usize;
        eprintln!(
            "{name}: {:.2} times the cost without groups ({:.2}..{:.2}), {:.0} ns beside {:.0} ns; {} bytes per lease beside {}",
            ratio(&middle),
            ratio(&turns[0]),
            ratio(&turns[Self::TURNS - 1]),
            middle.0 * nanoseconds,
            middle.1 * nanoseconds,
            bytes(&self.grouped),
            bytes(&self.flat),
        );
    }
}

/// A million clients in 10,000 groups.
fn groups(criterion: &mut Criterion) {
    for (name, round) in [("groups/FAIR_SHARE/spread", 1), ("groups/FAIR_SHARE/round-of-64", CHUNK)] {
        let mut pair = None;
        criterion.bench_function(name, |bencher| {
            let pair = pair.get_or_insert_with(|| {
                let mut pair = Pair::new(round);
                pair.compare(name);
                pair
            });
            bencher.iter_custom(|refreshes| pair.grouped.measure(refreshes));
        });
    }
}

fn bench(
    criterion: &mut Criterion,
    name: &str,
    asker: AskerKind,
    kind: AlgorithmKind,
    wants: WantsRange,
    round: usize,
    sizes: &[u32],
) {
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Elements(1));
    for &clients in sizes {
        let mut refreshers = None;
        group.bench_function(BenchmarkId::from_parameter(clients), |bencher| {
            let refreshers = refreshers.get_or_insert_with(|| Refreshers::new(asker, kind, clients, wants, round));
            bencher.iter_custom(|refreshes| refreshers.measure(refreshes));
        });
        if let Some(refreshers) = refreshers {
            eprintln!("    bytes per lease: {}", refreshers.resource.bytes() / clients as usize);
        }
    }
}

criterion_group!(benches, refresh, returns, groups);
criterion_main!(benches);
