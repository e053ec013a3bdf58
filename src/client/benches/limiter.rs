//! The cost of taking an available permit, and of charging, refunding, reserving and settling, on one thread,
//! including the clock.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use leaseway_client::{
    Capacity,
    limiter::{Burst, RateLimiter},
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

criterion_group!(benches, permits);
criterion_main!(benches);
