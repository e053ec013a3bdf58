//! The cost of taking an available permit, and of charging, refunding, reserving and settling, on one thread,
//! including the clock; and of taking permits of several limiters at once.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use leaseway_client::{
    Capacity,
    limiter::{AnyLimiter, Burst, Claim, JointLimiter, LimiterRef, RateLimiter, try_acquire_all},
};

/// Never empty: permits recharge faster than they are taken.
fn limiter() -> RateLimiter {
    let limiter = RateLimiter::new(Burst::Permits(1e9));
    limiter.set_capacity(Capacity::of(1e12));
    std::thread::sleep(std::time::Duration::from_millis(10));
    limiter
}

fn permits(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("limiter");
    group.throughput(Throughput::Elements(1));
    let full = limiter();
    group.bench_function("try_acquire", |bencher| bencher.iter(|| full.try_acquire(1)));
    group.bench_function("charge", |bencher| bencher.iter(|| full.charge(1)));
    group.bench_function("try_acquire and refund", |bencher| {
        bencher.iter(|| {
            let taken = full.try_acquire(1);
            full.refund(1);
            taken
        });
    });
    group.bench_function("try_reserve and drop", |bencher| bencher.iter(|| full.try_reserve(1).map(drop)));
    group.bench_function("try_reserve and settle", |bencher| {
        bencher.iter(|| full.try_reserve(2).map(|reserved| reserved.settle(1)));
    });
    // Always in debt.
    let poor = RateLimiter::new(Burst::Smooth);
    poor.set_max_debt(1_000_000_000_000);
    poor.set_capacity(Capacity::of(1.0));
    group.bench_function("charge, in debt", |bencher| bencher.iter(|| poor.charge(1)));
    group.bench_function("try_acquire, in debt", |bencher| bencher.iter(|| poor.try_acquire(1)));
    group.finish();
}

fn several(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("several limiters");
    for many in [1, 2, 4, 8] {
        let limiters: Vec<RateLimiter> = (0..many).map(|_| limiter()).collect();
        let joint = JointLimiter::new(limiters.iter().map(|limiter| (AnyLimiter::Rate(limiter.clone()), 1)));
        group.bench_function(BenchmarkId::new("try_acquire", many), |bencher| bencher.iter(|| joint.try_acquire()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        group.bench_function(BenchmarkId::new("acquire", many), |bencher| {
            bencher.iter(|| runtime.block_on(joint.acquire()));
        });
        group.bench_function(BenchmarkId::new("try_reserve and settle", many), |bencher| {
            let used = vec![1; many];
            bencher.iter(|| joint.try_reserve().map(|reserved| reserved.settle(&used)));
        });
        let borrowed: Vec<LimiterRef<'_>> = limiters.iter().map(LimiterRef::Rate).collect();
        group.bench_function(BenchmarkId::new("try_acquire_all", many), |bencher| {
            bencher.iter(|| try_acquire_all(&borrowed, &mut vec![Claim::of(1); many], false));
        });
        // The last one refuses.
        let empty = RateLimiter::new(Burst::Smooth);
        empty.set_capacity(Capacity::of(1e-3));
        let parts = limiters[1..].iter().chain([&empty]).map(|limiter| (AnyLimiter::Rate(limiter.clone()), 1));
        let refused = JointLimiter::new(parts);
        group.bench_function(BenchmarkId::new("try_acquire, refused", many), |bencher| {
            bencher.iter(|| refused.try_acquire());
        });
    }
    group.finish();
}

criterion_group!(benches, permits, several);
criterion_main!(benches);
