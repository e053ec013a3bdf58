//! The cost of a pick among 4 to 4,096 backends, with random weights from 1 to 1,000, and with equal weights, where no
//! backend overtakes another.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fastrand::Rng;
use leaseway_client::balancer::Balancer;

const SIZES: [usize; 4] = [4, 64, 1_024, 4_096];

fn picks(criterion: &mut Criterion) {
    let mut rng = Rng::with_seed(42);
    bench(criterion, "pick/random", || rng.u32(1..=1_000));
    bench(criterion, "pick/equal", || 1);
}

fn bench(criterion: &mut Criterion, name: &str, mut weight: impl FnMut() -> u32) {
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Elements(1));
    for size in SIZES {
        let balancer = Balancer::weighted((0..size).map(|backend| (backend, weight())));
        group.bench_function(BenchmarkId::new("balancer", size), |bencher| {
            bencher.iter(|| balancer.pick().map(|pick| *pick.backend()));
        });
    }
}

criterion_group!(benches, picks);
criterion_main!(benches);
