//! The cost of a pick among 4 to 4,096 members: the schedule, compared with a literal implementation of the algorithm,
//! which visits every member.
//!
//! Factors are random, from 1 to 1,000. `equal` has equal factors, where no member overtakes another. `balancer` is the
//! schedule with its lock.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fastrand::Rng;
use leaseway_client::balancer::{Balancer, Factor, Schedule};

const SIZES: [usize; 4] = [4, 64, 1_024, 4_096];

/// The algorithm as it is documented.
struct Documented {
    /// Factor and status.
    members: Vec<(i64, i64)>,
}

impl Documented {
    fn pick(&mut self) -> usize {
        let (mut total, mut candidate, mut largest) = (0, 0, i64::MIN);
        for (index, (factor, status)) in self.members.iter_mut().enumerate() {
            *status += *factor;
            total += *factor;
            if *status > largest {
                (candidate, largest) = (index, *status);
            }
        }
        self.members[candidate].1 -= total;
        candidate
    }
}

fn random(members: usize) -> Vec<u32> {
    let mut rng = Rng::with_seed(42);
    (0..members).map(|_| rng.u32(1..=1_000)).collect()
}

fn picks(criterion: &mut Criterion) {
    bench(criterion, "pick/random", random);
    bench(criterion, "pick/equal", |members| vec![1; members]);
}

fn bench(criterion: &mut Criterion, name: &str, factors: impl Fn(usize) -> Vec<u32>) {
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Elements(1));
    for size in SIZES {
        let factors = factors(size);
        let members = factors.iter().map(|factor| (i64::from(*factor), 0)).collect();
        let mut documented = Documented { members };
        group.bench_function(BenchmarkId::new("documented", size), |bencher| {
            bencher.iter(|| black_box(documented.pick()));
        });
        let mut schedule = Schedule::new();
        factors.iter().for_each(|factor| {
            schedule.add(Factor::from(*factor));
        });
        group.bench_function(BenchmarkId::new("schedule", size), |bencher| {
            bencher.iter(|| black_box(schedule.pick()));
        });
        let balancer = Balancer::weighted(factors.into_iter().enumerate());
        group.bench_function(BenchmarkId::new("balancer", size), |bencher| {
            bencher.iter(|| balancer.pick().map(|pick| *pick.backend()));
        });
    }
}

criterion_group!(benches, picks);
criterion_main!(benches);
