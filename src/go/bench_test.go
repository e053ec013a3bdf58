//go:build unix

package leaseway_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leaseway/leaseway/src/go"
)

func benchmarkRate(b *testing.B, capacity float64) *leaseway.Rate {
	client := dial(b, startFake(b, capacity).address)
	rate := must(client.Rate("r", leaseway.WithWants(capacity)))
	ready(b, client)
	time.Sleep(30 * time.Millisecond) // the burst has filled up
	return rate
}

// BenchmarkAllow is the cost of a permit that is available.
func BenchmarkAllow(b *testing.B) {
	rate := benchmarkRate(b, 16e6)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if !rate.Allow() {
			b.Fatal("no permit")
		}
	}
}

func BenchmarkWaitWithoutWaiting(b *testing.B) {
	rate := benchmarkRate(b, 16e6)
	ctx := context.Background()
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if err := rate.Wait(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAllowInParallel(b *testing.B) {
	rate := benchmarkRate(b, 16e6)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			rate.Allow()
		}
	})
}

func BenchmarkAcquireAndRelease(b *testing.B) {
	client := dial(b, startFake(b, 10).address)
	gauge := must(client.Gauge("g", leaseway.WithWants(10)))
	ready(b, client)
	ctx := context.Background()
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		release, err := gauge.Acquire(ctx)
		if err != nil {
			b.Fatal(err)
		}
		release()
	}
}

// BenchmarkPick is the cost of a pick among backends with different weights.
func BenchmarkPick(b *testing.B) {
	for _, count := range []int{4, 64, 1024, 4096} {
		b.Run(fmt.Sprintf("%d backends", count), func(b *testing.B) {
			backends := make([]leaseway.Weighted[int], count)
			for n := range backends {
				backends[n] = leaseway.Weighted[int]{Backend: n, Weight: uint32(n + 1)}
			}
			balancer := leaseway.NewWeightedBalancer(backends)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				if _, ok := balancer.Pick(); !ok {
					b.Fatal("no backend")
				}
			}
		})
	}
}

// inUse returns the memory of heap and stacks in use.
func inUse() float64 {
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return float64(memory.HeapInuse + memory.StackInuse)
}

// BenchmarkWaiters lets 50,000 goroutines wait, and then serves them at 100,000 permits per second, which takes half a
// second at least.
func BenchmarkWaiters(b *testing.B) {
	const waiters = 50_000
	for range b.N {
		server := startFake(b, 0)
		client := dial(b, server.address)
		rate := must(client.Rate("r", leaseway.WithWants(100_000)))
		ready(b, client)
		before := inUse()
		var all sync.WaitGroup
		begun := time.Now()
		for range waiters {
			all.Add(1)
			go func() {
				defer all.Done()
				_ = rate.Wait(context.Background())
			}()
		}
		for client.Stats().Resources[0].Waiting < waiters {
			time.Sleep(time.Millisecond)
		}
		b.ReportMetric(float64(time.Since(begun).Nanoseconds())/waiters, "ns/queued")
		b.ReportMetric((inUse()-before)/waiters, "B/waiter")
		server.set(func() { server.capacity = 100_000 })
		for rate.Limit() == 0 {
			time.Sleep(time.Millisecond)
		}
		begun = time.Now()
		all.Wait()
		b.ReportMetric(time.Since(begun).Seconds(), "s/served")
	}
}

// BenchmarkIdleClients is the memory of a client with one lease, and the processor time of its refreshes once a second.
func BenchmarkIdleClients(b *testing.B) {
	const clients = 500
	for range b.N {
		server := serve(b, []template{{glob: "r", capacity: 1000, lease: 60, refresh: 1}})
		before := inUse()
		all := make([]*leaseway.Client, clients)
		for n := range all {
			all[n] = dial(b, server.address)
			must(all[n].Rate("r", leaseway.WithWants(1)))
		}
		for _, client := range all {
			ready(b, client)
		}
		b.ReportMetric((inUse()-before)/clients, "B/client")
		const seconds = 3
		used := processorTime()
		time.Sleep(seconds * time.Second)
		b.ReportMetric(float64((processorTime()-used).Microseconds())/clients/seconds, "µs/client/s")
		for _, client := range all {
			_ = client.Close()
		}
	}
}

// processorTime returns the processor time of this process.
func processorTime() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
