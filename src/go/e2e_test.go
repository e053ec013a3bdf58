package leaseway_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leaseway/leaseway/src/go"
)

func TestRateIsHeldToItsLease(t *testing.T) {
	server := serve(t, []template{{glob: "searches", capacity: 200, lease: 60, refresh: 1}})
	client := dial(t, server.address)
	searches := must(client.Rate("searches"))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if searches.Allow() {
		t.Error("a permit without a lease")
	}
	if err := searches.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	// A caller in a loop wants all of it within a few seconds.
	for searches.Limit() < 200 {
		if err := searches.Wait(ctx); err != nil {
			t.Fatal(err)
		}
	}
	start, passed := time.Now(), 0
	for time.Since(start) < 2*time.Second {
		if err := searches.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		passed++
	}
	bound := time.Since(start).Seconds()*200 + searches.Burst() + 1
	if float64(passed) > bound || float64(passed) < 200 {
		t.Errorf("%d permits in 2 s at 200 per second", passed)
	}
	if _, basis := searches.Capacity(); basis != leaseway.Leased {
		t.Errorf("basis %v", basis)
	}
	t.Logf("%d permits in 2 s; stats %+v", passed, client.Stats())
}

func TestGaugeGivesPermitsAndReportsThoseInUseAfterACut(t *testing.T) {
	server := serve(t, []template{{glob: "jobs", capacity: 4, lease: 60, refresh: 1}})
	client := dial(t, server.address)
	jobs := must(client.Gauge("jobs", leaseway.WithWants(4)))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var releases []func()
	for range 4 {
		releases = append(releases, must(jobs.Acquire(ctx)))
	}
	if _, ok := jobs.TryAcquire(); ok {
		t.Error("a fifth permit")
	}
	// Another client wants half. It gets nothing that is still in use.
	other := dial(t, server.address)
	others := must(other.Gauge("jobs", leaseway.WithWants(4)))
	eventually(t, "the lease is cut", func() bool { return capacityOf(&jobs.Resource) == 2 })
	if _, ok := others.TryAcquire(); ok {
		t.Error("permits in use were given to another client")
	}
	for _, release := range releases {
		release()
		release()
	}
	if jobs.InUse() != 0 {
		t.Errorf("%d in use", jobs.InUse())
	}
	releaseOthers, err := others.AcquireN(ctx, 2)
	if err != nil {
		t.Fatal(err)
	}
	releaseOthers()
}

func capacityOf(resource *leaseway.Resource) float64 {
	capacity, _ := resource.Capacity()
	return capacity
}

func TestModesDecideWhenAServerIsGoneAndBack(t *testing.T) {
	address := freeAddress(t)
	templates := []template{{glob: "r", capacity: 90, lease: 3, refresh: 1, safe: "5"}}
	server := serve(t, templates, "--listen", address)
	type holder struct {
		mode     leaseway.Mode
		fallback float64
		rate     *leaseway.Rate
	}
	var holders []*holder
	for _, h := range []holder{{leaseway.Safe, 5, nil}, {leaseway.Pessimistic, 0, nil}, {leaseway.Optimistic, 40, nil}} {
		client := dial(t, address, h.mode)
		h.rate = must(client.Rate("r", leaseway.WithWants(40)))
		ready(t, client)
		holders = append(holders, &h)
	}
	server.kill()
	killed := time.Now()
	for time.Since(killed) < 500*time.Millisecond {
		for _, h := range holders {
			if capacity, basis := h.rate.Capacity(); basis != leaseway.Leased || capacity == 0 {
				t.Fatalf("%v: %g (%v) while the lease lasts", h.mode, capacity, basis)
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	for _, h := range holders {
		eventually(t, "the lease expires", func() bool { _, basis := h.rate.Capacity(); return basis == leaseway.Fallback })
		if h.rate.Limit() != h.fallback {
			t.Errorf("%v: %g after the expiry", h.mode, h.rate.Limit())
		}
	}
	if after := time.Since(killed); after > 6*time.Second {
		t.Errorf("leases of 3 s were used for %v", after)
	}
	serve(t, templates, "--listen", address)
	back := time.Now()
	for _, h := range holders {
		eventually(t, "a new lease", func() bool { _, basis := h.rate.Capacity(); return basis == leaseway.Leased })
	}
	if after := time.Since(back); after > 15*time.Second {
		t.Errorf("new leases after %v", after)
	} else {
		t.Logf("new leases after %v", after)
	}
}

func TestHintsMoveCapacityInRoundTrips(t *testing.T) {
	server := serve(t, []template{{glob: "r", capacity: 100, lease: 60, refresh: 30}})
	first := must(dial(t, server.address).Rate("r", leaseway.WithWants(100)))
	eventually(t, "all of it", func() bool { return first.Limit() == 100 })
	time.Sleep(300 * time.Millisecond) // the stream of hints is open
	begun := time.Now()
	second := must(dial(t, server.address).Rate("r", leaseway.WithWants(100)))
	eventually(t, "half of it", func() bool { return first.Limit() == 50 && second.Limit() == 50 })
	if took := time.Since(begun); took > 15*time.Second {
		t.Errorf("it took %v with a refresh interval of 30 s", took)
	} else {
		t.Logf("it took %v with a refresh interval of 30 s", took)
	}
}

func TestClosingReleasesLeases(t *testing.T) {
	server := serve(t, []template{{glob: "r", capacity: 100, lease: 60, refresh: 30}})
	first, err := leaseway.Dial(server.address)
	if err != nil {
		t.Fatal(err)
	}
	rate := must(first.Rate("r", leaseway.WithWants(100)))
	ready(t, first)
	closed := make(chan error, 1)
	go func() { closed <- rate.WaitN(context.Background(), 1_000_000) }()
	eventually(t, "it waits", func() bool { return first.Stats().Resources[0].Waiting > 0 })
	begun := time.Now()
	_ = first.Close()
	_ = first.Close()
	if err := <-closed; err != leaseway.ErrClosed {
		t.Error(err)
	}
	second := must(dial(t, server.address).Rate("r", leaseway.WithWants(100)))
	eventually(t, "all of it", func() bool { return second.Limit() == 100 })
	if took := time.Since(begun); took > 15*time.Second {
		t.Errorf("it took %v", took)
	}
	if _, err := first.Rate("r"); err != leaseway.ErrClosed {
		t.Error(err)
	}
	// A handle releases its lease, too.
	second.Close()
	third := must(dial(t, server.address).Rate("r", leaseway.WithWants(100)))
	eventually(t, "all of it", func() bool { return third.Limit() == 100 })
}

// Three peers, whose master is killed.
func TestAFailoverKeepsLeasesAndServesNewcomers(t *testing.T) {
	peers := startPeers(t, []template{{glob: "r", capacity: 99, lease: 20, refresh: 1}})
	client := dial(t, peers[0].address)
	rate := must(client.Rate("r", leaseway.WithWants(60)))
	ready(t, client)
	eventually(t, "it learns the peers", func() bool { return len(client.Health().Endpoints) == 3 })
	master := client.Health().Server
	for _, peer := range peers {
		if peer.address == master {
			peer.kill()
		}
	}
	killed := time.Now()
	var others []string
	for _, peer := range peers {
		if peer.address != master {
			others = append(others, peer.address)
		}
	}
	newcomer := dial(t, others[0], leaseway.WithEndpoints(others[1]))
	new := must(newcomer.Rate("r", leaseway.WithWants(30)))
	eventually(t, "the newcomer has a lease", func() bool { return new.Limit() > 0 })
	served := time.Since(killed)
	eventually(t, "the client has found the new master", func() bool {
		health := client.Health()
		return health.Server != master && health.Failures == 0
	})
	found := time.Since(killed)
	if _, basis := rate.Capacity(); basis != leaseway.Leased {
		t.Errorf("basis %v", basis)
	}
	t.Logf("newcomer served after %v, new master found after %v", served, found)
}

// A client with many leases renews them by a stream, also at the next master.
func TestManyLeasesAreRenewedByAStream(t *testing.T) {
	peers := startPeers(t, []template{{glob: "r*", capacity: 99, lease: 20, refresh: 1}})
	client := dial(t, peers[0].address, leaseway.WithEndpoints(peers[1].address, peers[2].address))
	var rates []*leaseway.Rate
	for i := range 150 {
		rates = append(rates, must(client.Rate(fmt.Sprintf("r%d", i), leaseway.WithWants(10))))
	}
	ready(t, client)
	eventually(t, "a stream", func() bool { return client.RenewalStream() != 0 })
	// Leases that are not renewed would be shorter than that by then.
	time.Sleep(5 * time.Second)
	allLast := func(least time.Duration) bool {
		return !slices.ContainsFunc(rates, func(rate *leaseway.Rate) bool {
			capacity, left := rate.Lease()
			return capacity != 10 || left < least
		})
	}
	eventually(t, "all leases are renewed", func() bool { return allLast(17 * time.Second) })
	if err := rates[7].SetWants(50); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the changed demand is met", func() bool { return rates[7].Limit() == 50 })
	requests := client.Stats().Requests
	time.Sleep(2 * time.Second)
	t.Logf("%d messages in 2 s for %d leases", client.Stats().Requests-requests, len(rates))

	if err := rates[7].SetWants(10); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a stream", func() bool { return client.RenewalStream() != 0 })
	master, stream := client.Health().Server, client.RenewalStream()
	for _, peer := range peers {
		if peer.address == master {
			peer.kill()
		}
	}
	eventually(t, "a stream with the next master", func() bool {
		return client.Health().Server != master && client.RenewalStream() > stream
	})
	time.Sleep(5 * time.Second)
	eventually(t, "all leases are renewed", func() bool { return allLast(15 * time.Second) })
}

func TestTokensAndTLS(t *testing.T) {
	dir := t.TempDir()
	run(t, dir, "certs", "init", "--dir", dir)
	run(t, dir, "certs", "issue", "server", "--host", "localhost,127.0.0.1", "--dir", dir)
	server := serve(t, nil, "--tls-cert", dir+"/server.pem", "--tls-key", dir+"/server.key")
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(must(os.ReadFile(dir + "/ca.pem"))) {
		t.Fatal("no CA")
	}
	client := dial(t, "https://"+server.address, leaseway.WithTLS(&tls.Config{RootCAs: roots}))
	must(client.Rate("r", leaseway.WithWants(1)))
	ready(t, client)

	for _, c := range []struct {
		says     string
		endpoint string
	}{
		{"speaks TLS", server.address},
		{"certificate", "https://" + server.address},
	} {
		wrong := dial(t, c.endpoint)
		must(wrong.Rate("r", leaseway.WithWants(1)))
		eventually(t, "a request fails", func() bool { return wrong.Health().Failures > 0 })
		if failed := wrong.Health().LastError; !strings.Contains(failed, c.says) {
			t.Errorf("%q does not say %q", failed, c.says)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		var notReady *leaseway.NotReadyError
		if err := wrong.Ready(ctx); !errors.As(err, &notReady) || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		cancel()
	}
}

func TestTheEnvironmentConfiguresTLSAndAToken(t *testing.T) {
	dir := t.TempDir()
	run(t, dir, "certs", "init", "--dir", dir)
	run(t, dir, "certs", "issue", "server", "--host", "localhost,127.0.0.1", "--dir", dir)
	run(t, dir, "certs", "issue", "carol", "--dir", dir)
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const secret = "lwt_test"
	tokens := write("tokens", fmt.Sprintf("alice sha256:%x\n", sha256.Sum256([]byte(secret))))
	server := serveText(t, `resources:
- identifier_glob: "*"
  capacity: 100
  algorithm: {kind: FAIR_SHARE, lease_length: 60, refresh_interval: 1, learning_mode_duration: 0}
access:
- {name: clients, who: ["alice", "carol"], may: ask, clients: "*"}
`, "--tls-cert", dir+"/server.pem", "--tls-key", dir+"/server.key", "--tls-ca", dir+"/ca.pem", "--tls-client-auth", "optional",
		"--tokens", tokens)
	t.Setenv("LEASEWAY_SERVER", server.address)
	t.Setenv("LEASEWAY_TLS_CA", dir+"/ca.pem")
	connect := func() *leaseway.Client {
		t.Helper()
		client := must(leaseway.DialEnv(leaseway.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))))
		t.Cleanup(func() { _ = client.Close() })
		must(client.Rate("r", leaseway.WithWants(1)))
		return client
	}
	// A client that proves nothing is denied. A certificate or a token proves who it is.
	anonymous := connect()
	eventually(t, "it is denied", func() bool { return anonymous.Health().Failures > 0 })
	t.Log(anonymous.Health().LastError)
	t.Setenv("LEASEWAY_TLS_CERT", dir+"/carol.pem")
	t.Setenv("LEASEWAY_TLS_KEY", dir+"/carol.key")
	ready(t, connect())
	t.Setenv("LEASEWAY_TLS_CERT", "")
	t.Setenv("LEASEWAY_TLS_KEY", "")
	file := write("token", "wrong\n")
	t.Setenv("LEASEWAY_TOKEN_FILE", file)
	client := connect()
	eventually(t, "the token is refused", func() bool { return strings.Contains(client.Health().LastError, "Unauthenticated") })
	write("token", secret+"\n")
	ready(t, client)
}

func TestClosedClientsLeaveNoGoroutines(t *testing.T) {
	server := serve(t, nil)
	before := runtime.NumGoroutine()
	for range 5 {
		client := dial(t, server.address)
		rate := must(client.Rate("r"))
		if err := rate.Wait(context.Background()); err != nil {
			t.Fatal(err)
		}
		_ = client.Close()
	}
	eventually(t, "all goroutines have ended", func() bool { return runtime.NumGoroutine() <= before })
}

// Doorman's library lets 192 per second through at a capacity of 99.
func TestWorkersInALoopPassTheCapacityAndNoMore(t *testing.T) {
	const capacity, workers, seconds = 99, 64, 4
	server := serve(t, []template{{glob: "r", capacity: capacity, lease: 60, refresh: 1}})
	client := dial(t, server.address)
	rate := must(client.Rate("r"))
	var passed atomic.Int64
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range workers {
		all.Add(1)
		go func() {
			defer all.Done()
			for rate.Wait(ctx) == nil {
				passed.Add(1)
			}
		}()
	}
	eventually(t, "the whole capacity", func() bool { return rate.Limit() == capacity })
	begun, before := time.Now(), passed.Load()
	time.Sleep(seconds * time.Second)
	count, took := float64(passed.Load()-before), time.Since(begun).Seconds()
	cancel()
	all.Wait()
	t.Logf("%.1f per second at a capacity of %d", count/took, capacity)
	// A slow machine loses permits, because the burst is short.
	if count > capacity*took+rate.Burst()+1 || count < 0.5*capacity*took {
		t.Errorf("%g permits in %.3f s", count, took)
	}
}

// Clients spend a budget while its master is killed. They come and go, and come back under their names.
func TestABudgetIsNeverOverspent(t *testing.T) {
	const amount, enough = 3_000, 2_400
	peers := startPeers(t, []template{{glob: "tokens*", kind: "BUDGET", capacity: amount, lease: 10, refresh: 1}})
	var addresses []string
	for _, peer := range peers {
		addresses = append(addresses, peer.address)
	}
	var spent atomic.Int64
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	// spend spends costs of 1 to 5 until the condition is false, or a caller has waited for long. It reserves some of them.
	spend := func(name string, goesOn func(spends int) bool) {
		client := dial(t, addresses[0], leaseway.WithEndpoints(addresses[1:]...), leaseway.WithID(name))
		defer client.Close()
		tokens := must(client.Budget("tokens"))
		for i := 0; goesOn(i); i++ {
			cost := int64(i%5 + 1)
			wait, stop := context.WithTimeout(ctx, 5*time.Second)
			err := spendOrReserve(wait, tokens, float64(cost), i%2 == 0)
			stop()
			if err != nil {
				return
			}
			spent.Add(cost)
		}
	}
	var all sync.WaitGroup
	for n := range 4 {
		all.Add(1)
		go func() {
			defer all.Done()
			for ctx.Err() == nil && spent.Load() < enough {
				spend(fmt.Sprintf("spender-%d", n), func(spends int) bool { return spends < 200 && spent.Load() < enough })
			}
		}()
	}
	eventually(t, "a third is spent", func() bool { return spent.Load() > amount/3 })
	killMaster(t, peers)
	all.Wait()
	if spent.Load() < enough {
		t.Errorf("%d of %d spent", spent.Load(), amount)
	}
	spend("last", func(int) bool { return true })
	t.Logf("%d of %d spent", spent.Load(), amount)
	if spent.Load() > amount {
		t.Errorf("%d of %d spent", spent.Load(), amount)
	}
}

// spendOrReserve spends a cost, or reserves twice as much and settles for it.
func spendOrReserve(ctx context.Context, budget *leaseway.Budget, cost float64, reserves bool) error {
	if !reserves {
		return budget.Spend(ctx, cost)
	}
	reservation, err := budget.Reserve(ctx, 2*cost)
	if err != nil {
		return err
	}
	return reservation.Settle(cost)
}

func killMaster(t *testing.T, peers []*server) {
	t.Helper()
	client := dial(t, peers[0].address)
	must(client.Budget("tokens-of-others"))
	ready(t, client)
	for _, peer := range peers {
		if peer.address == client.Health().Server {
			peer.kill()
		}
	}
}

// A caller that never waits gets an allowance, too.
func TestAmountsThatWereRefusedAreAskedFor(t *testing.T) {
	server := serve(t, []template{{glob: "tokens*", kind: "BUDGET", capacity: 1_000, lease: 10, refresh: 1}})
	tokens := must(dial(t, server.address).Budget("tokens"))
	eventually(t, "it is spent", func() bool {
		time.Sleep(300 * time.Millisecond)
		return tokens.TrySpend(5)
	})
}

func TestWhatAReservationDoesNotNeedIsSpentByAnotherClient(t *testing.T) {
	server := serve(t, []template{{glob: "tokens*", kind: "BUDGET", capacity: 1_000, lease: 10, refresh: 1}})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	client := dial(t, server.address)
	tokens := must(client.Budget("tokens"))
	reservation := must(tokens.Reserve(ctx, 600))
	// A refresh reports it as spent.
	time.Sleep(1500 * time.Millisecond)
	if err := errors.Join(reservation.Settle(100), must(tokens.Reserve(ctx, 10)).Settle(30), tokens.Charge(70)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "what is owed is paid", func() bool { return tokens.Owed() == 0 })
	if tokens.Spent() != 200 {
		t.Error(tokens.Spent())
	}
	_ = client.Close()

	other := must(dial(t, server.address).Budget("tokens"))
	if err := other.Spend(ctx, 790); err != nil {
		t.Fatal(err)
	}
	if err := other.Charge(15); err != nil {
		t.Error(err)
	}
	eventually(t, "the rest is spent", func() bool { return other.Spent() == 800 })
	short, stop := context.WithTimeout(ctx, 3*time.Second)
	defer stop()
	if err := other.Spend(short, 0); !errors.Is(err, context.DeadlineExceeded) || other.Owed() != 5 || other.Left() != 0 {
		t.Error(err, other.Owed(), other.Left())
	}
}

// Clients name the same limits in opposite orders. Their allowances are smaller than what they spend in a second.
func TestSeveralBudgetsAndAGaugeAreTakenTogether(t *testing.T) {
	const amount, enough, workers = 600, 500, 4
	server := serve(t, []template{
		{glob: "dollars", kind: "BUDGET", capacity: amount, lease: 10, refresh: 1},
		{glob: "tokens", kind: "BUDGET", capacity: 2 * amount, lease: 10, refresh: 1},
		{glob: "slots", capacity: 4, lease: 10, refresh: 1},
	})
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	var mu sync.Mutex
	dollarsUsed, tokensUsed := 0.0, 0.0
	used := func(dollars, tokens float64) float64 {
		mu.Lock()
		defer mu.Unlock()
		dollarsUsed, tokensUsed = dollarsUsed+dollars, tokensUsed+tokens
		return dollarsUsed
	}
	begun := time.Now()
	var all sync.WaitGroup
	for n := range 2 {
		client := dial(t, server.address)
		dollars, tokens := must(client.Budget("dollars")), must(client.Budget("tokens"))
		slots := must(client.Gauge("slots"))
		costs := []leaseway.Cost{dollars.Of(8), tokens.Of(16), slots.Of(1)}
		if n == 1 {
			slices.Reverse(costs)
		}
		limits := must(client.Limits(costs...))
		for range workers {
			all.Add(1)
			go func() {
				defer all.Done()
				for used(0, 0) < enough {
					reservation, err := limits.Reserve(ctx)
					if err != nil {
						t.Error(err, used(0, 0))
						return
					}
					time.Sleep(5 * time.Millisecond)
					numbers := []float64{6, 12, 1}
					if n == 1 {
						slices.Reverse(numbers)
					}
					if err := reservation.Settle(numbers...); err != nil {
						t.Error(err)
					}
					used(6, 12)
				}
			}()
		}
	}
	all.Wait()
	t.Logf("%g dollars and %g tokens in %v", dollarsUsed, tokensUsed, time.Since(begun))
	if dollarsUsed > amount || tokensUsed > 2*amount {
		t.Errorf("%g dollars and %g tokens used", dollarsUsed, tokensUsed)
	}
}
