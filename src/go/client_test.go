package leaseway_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leaseway/leaseway/src/go"
	"github.com/leaseway/leaseway/src/go/internal/wire"
)

func TestInvalidSettingsAreNamed(t *testing.T) {
	for says, dial := range map[string]func() (*leaseway.Client, error){
		"several colons":   func() (*leaseway.Client, error) { return leaseway.Dial("1:2:3") },
		"id of the client": func() (*leaseway.Client, error) { return leaseway.Dial("a", leaseway.WithID(strings.Repeat("x", 257))) },
		"deadline":         func() (*leaseway.Client, error) { return leaseway.Dial("a", leaseway.WithDeadline(0)) },
		"one line":         func() (*leaseway.Client, error) { return leaseway.Dial("a", leaseway.WithToken("a\nb")) },
		"set one of them": func() (*leaseway.Client, error) {
			return leaseway.Dial("a", leaseway.WithToken("a"), leaseway.WithTokenFile("b"))
		},
		"does not use TLS": func() (*leaseway.Client, error) {
			return leaseway.Dial("http://a", leaseway.WithEndpoints("https://b"))
		},
		"without TLS":        func() (*leaseway.Client, error) { return leaseway.Dial("192.0.2.1", leaseway.WithToken("secret")) },
		"conflicts with TLS": func() (*leaseway.Client, error) { return leaseway.Dial("http://a", leaseway.WithTLS(nil)) },
	} {
		if _, err := dial(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v does not say %q", err, says)
		}
	}
	client := dial(t, startFake(t, 1).address)
	must(client.Gauge("gauge"))
	_, kind := client.Rate("gauge")
	_, empty := client.Rate("")
	_, encoding := client.Rate("r\xff")
	_, wants := client.Rate("r", leaseway.WithWants(math.NaN()))
	_, burst := client.Rate("r", leaseway.WithBurst(math.NaN()))
	_, window := client.Rate("r", leaseway.WithWindow(-1))
	var kindError *leaseway.KindError
	if !errors.As(kind, &kindError) {
		t.Error(kind)
	}
	var option *leaseway.OptionError
	_, endpoint := leaseway.Dial("1:2:3")
	_, backoff := leaseway.Dial("a", leaseway.WithBackoffMax(-1))
	_, refresh := leaseway.Dial("a", leaseway.WithRefreshMin(-1))
	_, mode := leaseway.Dial("a", leaseway.WithMode(7))
	_, modeOfResource := client.Rate("r", leaseway.Mode(-1))
	_, token := leaseway.Dial("a", leaseway.WithToken("\n"))
	_, file := leaseway.Dial("a", leaseway.WithTokenFile(t.TempDir()+"/missing"))
	if !errors.Is(file, os.ErrNotExist) {
		t.Error(file)
	}
	rate, budget := must(client.Rate("rate")), must(client.Budget("budget"))
	_, limits := client.Limits(rate.Of(-1))
	_, cost := client.Limits(rate.Of(1), leaseway.Cost{})
	all := []error{empty, encoding, wants, burst, window, endpoint, token, file, limits, rate.Charge(-1), budget.Charge(-1),
		backoff, refresh, mode, modeOfResource, cost}
	for _, err := range all {
		if !errors.As(err, &option) {
			t.Error(err)
		}
	}
}

func TestReadyEndsWhenAResourceIsClosed(t *testing.T) {
	server := startFake(t, 1)
	server.set(func() { server.silent = true })
	client := dial(t, server.address, leaseway.WithDeadline(300*time.Millisecond))
	first, second := must(client.Rate("first")), must(client.Rate("second"))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	wait := func(ready func(context.Context) error) <-chan error {
		ended := make(chan error, 1)
		go func() { ended <- ready(ctx) }()
		// The wait has begun.
		time.Sleep(50 * time.Millisecond)
		return ended
	}
	ofFirst, ofAll := wait(first.Ready), wait(client.Ready)
	first.Close()
	if err := <-ofFirst; err != leaseway.ErrClosed {
		t.Error(err)
	}
	if err := first.Ready(ctx); err != leaseway.ErrClosed {
		t.Error(err)
	}
	server.set(func() { server.silent = false })
	if err := <-ofAll; err != nil {
		t.Error("a closed resource does not count", err)
	}
	if _, basis := second.Capacity(); basis != leaseway.Leased {
		t.Error(basis)
	}
	server.set(func() { server.silent = true })
	must(client.Rate("third"))
	ofAll = wait(client.Ready)
	_ = client.Close()
	if err := <-ofAll; err != leaseway.ErrClosed {
		t.Error(err)
	}
}

func TestADeadServerIsDialledNoMoreOftenThanRequestsAreRetried(t *testing.T) {
	server := startFake(t, 1)
	var dialled atomic.Int64
	client := dial(t, server.address, leaseway.WithDialContext(func(ctx context.Context, network, address string) (net.Conn, error) {
		dialled.Add(1)
		return new(net.Dialer).DialContext(ctx, network, address)
	}))
	must(client.Rate("r", leaseway.WithWants(1)))
	ready(t, client)
	server.stop()
	eventually(t, "a request fails", func() bool { return client.Health().Failures > 0 })
	before, failed := dialled.Load(), client.Stats().RequestErrors
	time.Sleep(4 * time.Second)
	// A connection of its own for each request, and those of the connection for hints, after 1, 1.6 and 2.56 s.
	most := int64(client.Stats().RequestErrors-failed) + 5
	if attempts := dialled.Load() - before; attempts > most {
		t.Errorf("%d connections were dialled, not at most %d", attempts, most)
	}
}

func TestAFailedDiscoveryIsTriedAgainSoon(t *testing.T) {
	server := startFake(t, 1)
	server.set(func() { server.peers, server.discoveryFailures = []string{"192.0.2.1:5100"}, 1 })
	client := dial(t, server.address)
	must(client.Rate("r", leaseway.WithWants(1)))
	eventually(t, "it learns the peers", func() bool { return len(client.Health().Endpoints) == 2 })
}

func TestClosingReleasesLeasesAfterARefreshHasFailed(t *testing.T) {
	server := startFake(t, 1)
	client := dial(t, server.address, leaseway.WithDeadline(500*time.Millisecond))
	rate := must(client.Rate("r", leaseway.WithWants(1)))
	ready(t, client)
	waiting := 0
	server.set(func() { server.silent = true })
	if err := rate.SetWants(10); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a refresh is in flight", func() bool {
		server.set(func() { waiting = server.unanswered })
		return waiting > 0
	})
	_ = client.Close()
	server.set(func() {
		if !slices.Equal(server.released, []string{"r"}) {
			t.Error(server.released)
		}
	})
}

func TestHandlesNoticeThatTheirResourceIsClosed(t *testing.T) {
	client := dial(t, startFake(t, 1).address)
	share, kept := must(client.Share("share", 1)), must(client.Share("kept", 1))
	ready(t, client)
	isClosed := func(channel <-chan struct{}) bool {
		select {
		case <-channel:
			return true
		default:
			return false
		}
	}
	before := share.Changed()
	if isClosed(before) || isClosed(share.Done()) {
		t.Error("it is open")
	}
	share.Close()
	if !isClosed(before) || !isClosed(share.Changed()) || !isClosed(share.Done()) {
		t.Error("it is closed")
	}
	if isClosed(kept.Done()) {
		t.Error("the other resource is open")
	}
	_ = client.Close()
	if !isClosed(kept.Changed()) || !isClosed(kept.Done()) {
		t.Error("the client is closed")
	}
}

func TestTheLogHasOneLineForManyLeasesThatExpire(t *testing.T) {
	server := startFake(t, 1)
	server.set(func() { server.lengthMs = 1500 })
	var log bytes.Buffer
	client := dial(t, server.address, leaseway.WithDeadline(300*time.Millisecond),
		leaseway.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	const resources = 50
	for n := range resources {
		must(client.Rate(fmt.Sprintf("r%d", n), leaseway.WithWants(1)))
	}
	for again := range uint64(2) {
		server.set(func() { server.silent = false })
		ready(t, client)
		server.set(func() { server.silent = true })
		eventually(t, "all leases expire", func() bool { return client.Stats().LeasesEnded == (again+1)*resources })
	}
	_ = client.Close()
	if lines := strings.Count(log.String(), "leases expired without a refresh"); lines != 1 {
		t.Errorf("%d lines: %s", lines, &log)
	}
}

func TestARedirectIsFollowedAndIsNoError(t *testing.T) {
	master, other := startFake(t, 7), startFake(t, 1)
	other.set(func() { other.redirects, other.master = true, master.address })
	client := dial(t, other.address)
	rate := must(client.Rate("r", leaseway.WithWants(7)))
	ready(t, client)
	health, stats := client.Health(), client.Stats()
	if rate.Limit() != 7 || health.Server != master.address || stats.Redirects != 1 || stats.RequestErrors != 0 {
		t.Error(rate.Limit(), health, stats)
	}
	if health.Failures != 0 || health.LastError != "" || !health.LastErrorAt.IsZero() {
		t.Error(health)
	}
	// The next master, of which the peers know nothing yet.
	begun := time.Now()
	master.set(func() { master.redirects = true })
	other.set(func() { other.master = "" })
	eventually(t, "a request fails", func() bool { return client.Health().Failures > 0 })
	if health := client.Health(); !strings.Contains(health.LastError, "knows no master") || health.LastErrorAt.Before(begun) {
		t.Error(health)
	}
	other.set(func() { other.redirects = false })
	eventually(t, "a lease of the next master", func() bool { return rate.Limit() == 1 })
	_ = client.Close()
	other.set(func() {
		if !slices.Equal(other.released, []string{"r"}) {
			t.Error(other.released)
		}
	})
}

func TestOptionsReplaceVariablesOfTheEnvironment(t *testing.T) {
	quiet := leaseway.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))
	open := func(options ...leaseway.Option) (*leaseway.Client, error) {
		client, err := leaseway.DialEnv(append(options, quiet)...)
		if err == nil {
			t.Cleanup(func() { _ = client.Close() })
		}
		return client, err
	}
	t.Setenv("LEASEWAY_SERVER", "127.0.0.1:1,127.0.0.1:2")
	if endpoints := must(open()).Health().Endpoints; !slices.Equal(endpoints, []string{"127.0.0.1:1", "127.0.0.1:2"}) {
		t.Error(endpoints)
	}
	if endpoints := must(open(leaseway.WithEndpoints("127.0.0.1:3"))).Health().Endpoints; !slices.Equal(endpoints, []string{"127.0.0.1:3"}) {
		t.Error(endpoints)
	}
	missing := t.TempDir() + "/missing"
	t.Setenv("LEASEWAY_TOKEN_FILE", missing)
	if _, err := open(); err == nil {
		t.Error("the file is missing")
	}
	must(open(leaseway.WithToken("secret")))
	t.Setenv("LEASEWAY_TOKEN_FILE", "")
	t.Setenv("LEASEWAY_TLS_CA", missing)
	var option *leaseway.OptionError
	if _, err := open(); !errors.As(err, &option) || option.Setting != "LEASEWAY_TLS_CA" {
		t.Error(err)
	}
	must(open(leaseway.WithTLS(nil)))
}

func TestOptionsThatDoNotApplyAreRefused(t *testing.T) {
	client := dial(t, startFake(t, 1).address)
	options := []leaseway.ResourceOption{leaseway.WithBurst(5), leaseway.WithPriority(3), leaseway.Pessimistic, leaseway.WithMaxDebt(7)}
	rate := must(client.Rate("rate", append(options, leaseway.WithWants(10))...))
	if err := rate.SetWants(20); err != nil {
		t.Fatal(err)
	}
	must(client.Rate("rate"))
	must(client.Rate("rate", append(options, leaseway.WithWants(10))...))
	must(client.Gauge("estimated", leaseway.Safe, leaseway.WithPriority(0)))
	for setting, open := range map[string]func() error{
		"wants":                   func() error { _, err := client.Rate("rate", leaseway.WithWants(11)); return err },
		"priority":                func() error { _, err := client.Rate("rate", leaseway.WithPriority(4)); return err },
		"mode":                    func() error { _, err := client.Rate("rate", leaseway.Safe); return err },
		"burst":                   func() error { _, err := client.Rate("rate", leaseway.WithWindow(time.Second)); return err },
		"maximum debt":            func() error { _, err := client.Rate("rate", leaseway.WithMaxDebt(8)); return err },
		"wants of another":        func() error { _, err := client.Gauge("estimated", leaseway.WithWants(1)); return err },
		"burst of a gauge":        func() error { _, err := client.Gauge("g", leaseway.WithBurst(5)); return err },
		"maximum debt of a share": func() error { _, err := client.Share("s", 1, leaseway.WithMaxDebt(5)); return err },
		"mode of a budget":        func() error { _, err := client.Budget("b", leaseway.Optimistic); return err },
		"wants of a budget":       func() error { _, err := client.Budget("b", leaseway.WithWants(5)); return err },
	} {
		var option *leaseway.OptionError
		if err := open(); !errors.As(err, &option) || !strings.HasPrefix(setting, option.Setting) {
			t.Errorf("%s: %v", setting, err)
		}
	}
	if names := client.Stats().Resources; len(names) != 2 {
		t.Error("a refused resource was opened", names)
	}
}

func TestShutdownWaitsNoLongerThanItsContext(t *testing.T) {
	server := startFake(t, 1)
	client := dial(t, server.address, leaseway.WithDeadline(time.Hour))
	rate := must(client.Rate("r", leaseway.WithWants(1)))
	ready(t, client)
	server.set(func() { server.silent = true })
	if err := rate.SetWants(10); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a refresh is in flight", func() (is bool) {
		server.set(func() { is = server.unanswered > 0 })
		return is
	})
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := client.Shutdown(ctx); err != context.DeadlineExceeded {
		t.Error(err)
	}
	if err := client.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	server.set(func() {
		if len(server.released) != 0 {
			t.Error(server.released)
		}
	})
}

func TestAHintIsFollowedAtOnce(t *testing.T) {
	server := startFake(t, 1)
	hints := make(chan *wire.Hint)
	server.set(func() { server.hints, server.refresh = hints, 3600 })
	client := dial(t, server.address)
	first, second := must(client.Rate("first", leaseway.WithWants(9))), must(client.Rate("second", leaseway.WithWants(9)))
	ready(t, client)
	server.set(func() { server.capacity = 5 })
	hints <- &wire.Hint{ResourceId: []string{"first", "unknown"}}
	eventually(t, "the hint is followed", func() bool { return first.Limit() == 5 && second.Limit() == 5 })
	server.set(func() { server.capacity = 6 })
	hints <- &wire.Hint{Everything: true}
	eventually(t, "the hint is followed", func() bool { return first.Limit() == 6 && second.Limit() == 6 })
	if stats := client.Stats(); stats.Hints != 2 {
		t.Error(stats)
	}
}

// The client knows the second server from the first one only.
func TestThePeersOfADeadMasterAreAsked(t *testing.T) {
	first, second := startFake(t, 1), startFake(t, 2)
	first.set(func() { first.peers, first.hints = []string{first.address, second.address}, make(chan *wire.Hint) })
	second.set(func() { second.hints = make(chan *wire.Hint) })
	client := dial(t, first.address)
	rate := must(client.Rate("r", leaseway.WithWants(2)))
	ready(t, client)
	eventually(t, "it learns the peers", func() bool { return len(client.Health().Endpoints) == 2 })
	first.stop()
	eventually(t, "a lease of the other", func() bool { return rate.Limit() == 2 })
	if health := client.Health(); health.Server != second.address || health.Failures != 0 || health.LastError == "" {
		t.Error(health)
	}
	eventually(t, "hints of the other", func() (is bool) {
		second.set(func() { is = second.watchers > 0 })
		return is
	})
	_ = client.Close()
	second.set(func() {
		if !slices.Equal(second.released, []string{"r"}) {
			t.Error(second.released)
		}
	})
}

func TestLeasesAreRenewedByAStream(t *testing.T) {
	server := startFake(t, 7)
	server.set(func() { server.offersStreams, server.takesStreams, server.lengthMs = true, true, 3000 })
	client := dial(t, server.address)
	var rates []*leaseway.Rate
	for i := range 120 {
		rates = append(rates, must(client.Rate(fmt.Sprintf("r%d", i), leaseway.WithWants(7))))
	}
	ready(t, client)
	asked := 0
	eventually(t, "a stream", func() bool {
		server.set(func() { asked = server.asked })
		return client.RenewalStream() != 0
	})
	// Longer than the leases.
	time.Sleep(4 * time.Second)
	for _, rate := range rates {
		if capacity, basis := rate.Capacity(); capacity != 7 || basis != leaseway.Leased {
			t.Fatal(rate.Name(), capacity, basis)
		}
	}
	server.set(func() {
		if server.asked != asked || server.renewals < 2 || client.RenewalStream() == 0 {
			t.Error(server.asked, asked, server.renewals)
		}
		server.capacity = 3
	})
	if err := rates[5].SetWants(70); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the changed demand is stated", func() bool { return rates[5].Limit() == 3 })
	if limit := rates[6].Limit(); limit != 7 {
		t.Error("renewals keep their capacity", limit)
	}
	server.set(func() { server.takesStreams = false })
	eventually(t, "requests replace the stream", func() bool { return client.RenewalStream() == 0 && rates[6].Limit() == 3 })
	if stats := client.Stats(); stats.LeasesEnded != 0 {
		t.Error(stats.LeasesEnded)
	}
}

func TestAServerThatHangsIsNoReasonToUseALeaseAfterItsExpiry(t *testing.T) {
	fake := startFake(t, 1000)
	fake.set(func() { fake.lengthMs = 1500 })
	client := dial(t, fake.address, leaseway.Pessimistic)
	rate := must(client.Rate("r", leaseway.WithWants(1000)))
	ready(t, client)
	fake.set(func() { fake.silent = true })
	time.Sleep(1600 * time.Millisecond)
	if rate.Allow() {
		t.Error("a permit after the expiry")
	}
	if capacity, basis := rate.Capacity(); capacity != 0 || basis != leaseway.Fallback {
		t.Error(capacity, basis)
	}
	eventually(t, "the expiry is counted", func() bool { return client.Stats().LeasesEnded == 1 })
}

func TestLeaseObserversSeeLeasedCapacity(t *testing.T) {
	var mu sync.Mutex
	var seen []float64
	fake := startFake(t, 7)
	client := dial(t, fake.address, leaseway.WithLeaseObserver(func(change leaseway.LeaseChange) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, change.Capacity)
	}))
	rate := must(client.Rate("r", leaseway.WithWants(7)))
	ready(t, client)
	fake.set(func() { fake.capacity = 5 })
	eventually(t, "a cut", func() bool { return rate.Limit() == 5 })
	_ = client.Close()
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(seen, []float64{7, 5, 0}) {
		t.Error(seen)
	}
	if !slices.Equal(fake.released, []string{"r"}) {
		t.Error(fake.released)
	}
}

func TestHandlesShareALeaseUntilTheLastIsClosed(t *testing.T) {
	fake := startFake(t, 2)
	client := dial(t, fake.address)
	first, second := must(client.Gauge("r")), must(client.Gauge("r"))
	ctx := context.Background()
	release := must(first.Acquire(ctx))
	first.Close()
	first.Close()
	if second.InUse() != 1 {
		t.Error(second.InUse())
	}
	second.Close()
	if _, ok := second.TryAcquire(); !ok {
		t.Error("a permit keeps its gauge open")
	}
	releaseCount := func() (n int) {
		fake.set(func() { n = len(fake.released) })
		return n
	}
	if releaseCount() != 0 {
		t.Error("released while a permit is in use")
	}
	release()
	if len(client.Stats().Resources) != 1 {
		t.Error("another permit is in use")
	}
}

func TestReservationsSettleAndCancel(t *testing.T) {
	client := dial(t, startFake(t, 1000).address)
	rate := must(client.Rate("r", leaseway.WithWants(1000), leaseway.WithWindow(time.Hour), leaseway.WithMaxDebt(100)))
	ctx := context.Background()
	reservation, err := rate.ReserveN(ctx, 50)
	if err != nil {
		t.Fatal(err)
	}
	taken := func() uint64 { return client.Stats().Resources[0].Taken }
	if taken() != 50 || reservation.Reserved() != 50 {
		t.Error(taken())
	}
	if err := reservation.Settle(20); err != nil || taken() != 20 {
		t.Error(taken(), err)
	}
	if err := reservation.Settle(50); err != nil || taken() != 20 {
		t.Error("only the first call counts")
	}
	cancelled := must(rate.Reserve(ctx))
	if cancelled.Cancel(); taken() != 20 {
		t.Error(taken())
	}
	var exceeded *leaseway.DebtExceededError
	if err := rate.Charge(1_000_000); !errors.As(err, &exceeded) || exceeded.MaxDebt != 100 {
		t.Error(err)
	}
	if rate.Debt() == 0 || rate.Tokens() >= 0 || rate.Allow() {
		t.Error("there is debt")
	}
	if wait, known := rate.RetryAfter(1); !known || wait <= 0 {
		t.Error(wait, known)
	}
	if client.Stats().Uncharged != uint64(exceeded.Uncharged) {
		t.Error(client.Stats().Uncharged)
	}
}

func TestNegativeNumbersAreRefused(t *testing.T) {
	client := dial(t, startFake(t, 1000).address)
	rate := must(client.Rate("r", leaseway.WithWants(1000), leaseway.WithWindow(time.Hour)))
	reservation := must(rate.ReserveN(context.Background(), 50))
	if rate.Charge(-1) == nil || rate.Refund(-1) == nil || reservation.Settle(-1) == nil {
		t.Error("no error")
	}
	reservation.Cancel()
	if rate.Debt() != 0 || rate.Taken() != 50 {
		t.Error("all of the reservation counts as used", rate.Debt(), rate.Taken())
	}
	var option *leaseway.OptionError
	if _, err := client.Rate("other", leaseway.WithMaxDebt(-1)); !errors.As(err, &option) {
		t.Error(err)
	}
	if must(client.Share("share", 1)).ReportUse(-1, 0) == nil {
		t.Error("no error")
	}
}

func TestWaitsEndWithTheirContext(t *testing.T) {
	client := dial(t, startFake(t, 0).address)
	rate, gauge := must(client.Rate("r", leaseway.WithWants(1))), must(client.Gauge("g"))
	ready(t, client)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := rate.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if _, err := gauge.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if err := rate.WaitN(context.Background(), -1); err == nil || rate.AllowN(-1) {
		t.Error("a negative number")
	}
	if _, known := rate.RetryAfter(1); known {
		t.Error("without capacity nobody knows")
	}
}

func TestEstimatedWantsFollowRefusedCallers(t *testing.T) {
	fake := startFake(t, 1)
	client := dial(t, fake.address)
	rate := must(client.Rate("r"))
	end := time.Now().Add(3 * time.Second)
	wants := 0.0
	for time.Now().Before(end) && wants < 100 {
		rate.Allow()
		time.Sleep(2 * time.Millisecond)
		fake.set(func() {
			if fake.last != nil {
				wants = fake.last.GetResource()[0].GetWants()
			}
		})
	}
	if wants < 100 {
		t.Errorf("500 callers per second want %g", wants)
	}
}

func TestPermitsOfSeveralLimitsAreTakenTogetherOrNotAtAll(t *testing.T) {
	client := dial(t, startFake(t, 5).address)
	tokens := must(client.Rate("tokens", leaseway.WithWants(5), leaseway.WithBurst(10), leaseway.WithMaxDebt(50)))
	slots := must(client.Gauge("slots", leaseway.WithWants(5)))
	ready(t, client)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	both := must(client.Limits(tokens.Of(5), slots.Of(1)))
	if names := both.Resources(); !slices.Equal(names, []string{"tokens", "slots"}) {
		t.Error(names)
	}
	release, err := both.Acquire(ctx)
	if err != nil || slots.InUse() != 1 {
		t.Fatal(err, slots.InUse())
	}
	var refusal *leaseway.RefusalError
	if _, err := both.TryAcquire(); !errors.As(err, &refusal) || refusal.Index != 0 || refusal.Resource != "tokens" {
		t.Fatal(err)
	}
	if wait, known := refusal.RetryAfter(); !known || wait <= 0 || wait > time.Second || slots.InUse() != 1 {
		t.Error(wait, known, slots.InUse())
	}
	release()
	if release(); slots.InUse() != 0 {
		t.Error(slots.InUse())
	}
	releaseAll, err := must(both.WithPermits(0, 5)).TryAcquire()
	if err != nil {
		t.Fatal(err)
	}
	one := must(both.WithPermits(0, 1))
	if _, err := one.TryAcquire(); !errors.As(err, &refusal) || refusal.Resource != "slots" {
		t.Error(err)
	}
	if wait, known := refusal.RetryAfter(); known {
		t.Error(wait)
	}
	if _, err := must(both.WithPermits(0, 6)).TryAcquire(); !errors.As(err, &refusal) || refusal.Burst != 5 {
		t.Error(err)
	}
	short, cancelShort := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancelShort()
	if _, err := one.Begin(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if releaseAll(); slots.InUse() != 0 {
		t.Error(slots.InUse())
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	if _, err := both.TryAcquire(); !errors.Is(err, leaseway.ErrClosed) {
		t.Error(err)
	}
	if _, err := both.Reserve(ctx); !errors.Is(err, leaseway.ErrClosed) {
		t.Error(err)
	}
}

func TestReservationsOfSeveralLimitsAreSettledByLimit(t *testing.T) {
	client := dial(t, startFake(t, 5).address)
	tokens := must(client.Rate("tokens", leaseway.WithWants(5), leaseway.WithBurst(10), leaseway.WithMaxDebt(50)))
	slots := must(client.Gauge("slots", leaseway.WithWants(5)))
	ready(t, client)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	both := must(client.Limits(tokens.Of(10), slots.Of(1)))
	reservation := must(both.Reserve(ctx))
	if reserved := reservation.Reserved(); !slices.Equal(reserved, []float64{10, 1}) || slots.InUse() != 1 {
		t.Error(reserved, slots.InUse())
	}
	if err := errors.Join(reservation.Settle(2, 0), reservation.Settle(10, 0)); err != nil || slots.InUse() != 0 {
		t.Error(err, slots.InUse())
	}
	if tokens.Tokens() < 8 {
		t.Error(tokens.Tokens())
	}
	if err := both.Charge(8, 9); err != nil || tokens.Tokens() >= 8 {
		t.Error(err, tokens.Tokens())
	}
	if err := both.Refund(8, 9); err != nil || tokens.Tokens() < 8 {
		t.Error(err, tokens.Tokens())
	}
	must(must(both.WithPermits(1, 1)).Reserve(ctx)).Cancel()
	small := must(must(both.WithPermits(1, 1)).TryReserve())
	var exceeded *leaseway.DebtExceededError
	if err := small.Settle(500, 1); !errors.As(err, &exceeded) || exceeded.MaxDebt != 50 || slots.InUse() != 0 {
		t.Error(err, slots.InUse())
	}
	if err := both.Charge(1); err == nil || !strings.Contains(err.Error(), "1 numbers for 2 limits") {
		t.Error(err)
	}
	if _, err := client.Limits(tokens.Of(-1)); err == nil || !strings.Contains(err.Error(), "tokens") {
		t.Error(err)
	}
}

func TestStreamsThatAProxyDoesNotPassAreReplacedByRequests(t *testing.T) {
	server := startFake(t, 1)
	server.set(func() { server.offersStreams = true })
	client := dial(t, server.address)
	for i := range 150 {
		must(client.Rate(fmt.Sprintf("r%d", i), leaseway.WithWants(1)))
	}
	ready(t, client)
	before := 0
	server.set(func() { before = server.asked })
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		asked := 0
		server.set(func() { asked = server.asked })
		if asked >= before+4 {
			break
		}
	}
	server.set(func() {
		if server.asked < before+4 || len(server.last.GetResource()) < 100 {
			t.Error(server.asked, before, len(server.last.GetResource()))
		}
	})
	if health := client.Health(); client.RenewalStream() != 0 || health.Failures != 0 {
		t.Error(client.RenewalStream(), health)
	}
}

func TestHTTPRequestsHoldAPermitUntilTheirBodyEnds(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	defer web.Close()
	client := dial(t, startFake(t, 1).address)
	gauge := must(client.Gauge("g", leaseway.WithWants(1)))
	browser := &http.Client{Transport: leaseway.NewTransport(nil, gauge)}
	response, err := browser.Get(web.URL)
	if err != nil {
		t.Fatal(err)
	}
	if gauge.InUse() != 1 {
		t.Error("the body has not ended")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	second := must(http.NewRequestWithContext(ctx, http.MethodPost, web.URL, strings.NewReader("x")))
	if _, err := browser.Do(second); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if _, err := io.ReadAll(response.Body); err != nil || gauge.InUse() != 0 {
		t.Error(gauge.InUse(), err)
	}
	if err := response.Body.Close(); err != nil || gauge.InUse() != 0 {
		t.Error(err)
	}
	if _, err := browser.Get("http://127.0.0.1:1"); err == nil || gauge.InUse() != 0 {
		t.Error("a failed request keeps its permit")
	}
	// A response without a body has ended, whether or not its body is closed.
	if _, err := browser.Head(web.URL); err != nil || gauge.InUse() != 0 {
		t.Error(err, gauge.InUse())
	}
	func() {
		defer func() { _ = recover() }()
		_, _ = leaseway.NewTransport(panicking{}, gauge).RoundTrip(must(http.NewRequest(http.MethodGet, web.URL, nil)))
	}()
	if gauge.InUse() != 0 {
		t.Error("a panic keeps its permit")
	}
	idle := new(idleCounter)
	(&http.Client{Transport: leaseway.NewTransport(idle, gauge)}).CloseIdleConnections()
	if idle.closed != 1 {
		t.Error(idle.closed)
	}
}

type panicking struct{}

func (panicking) RoundTrip(*http.Request) (*http.Response, error) { panic("a transport") }

type idleCounter struct {
	panicking
	closed int
}

func (i *idleCounter) CloseIdleConnections() { i.closed++ }

func TestGRPCCallsAndStreamsHoldAPermit(t *testing.T) {
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	server := grpc.NewServer()
	healthpb.RegisterHealthServer(server, health.NewServer())
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	client := dial(t, startFake(t, 1).address)
	gauge := must(client.Gauge("g", leaseway.WithWants(1)))
	conn := must(grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(leaseway.UnaryClientInterceptor(gauge)),
		grpc.WithStreamInterceptor(leaseway.StreamClientInterceptor(gauge))))
	defer conn.Close()
	checks := healthpb.NewHealthClient(conn)
	if _, err := checks.Check(context.Background(), &healthpb.HealthCheckRequest{}); err != nil || gauge.InUse() != 0 {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := checks.Watch(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil || gauge.InUse() != 1 {
		t.Error(gauge.InUse(), err)
	}
	short, cancelShort := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancelShort()
	if _, err := checks.Check(short, &healthpb.HealthCheckRequest{}); status.Code(err) != codes.DeadlineExceeded {
		t.Error(err)
	}
	cancel()
	eventually(t, "the stream ends", func() bool { return gauge.InUse() == 0 })
	gauge.Close()
	if _, err := checks.Check(context.Background(), &healthpb.HealthCheckRequest{}); status.Code(err) != codes.Unavailable ||
		!errors.Is(err, leaseway.ErrClosed) {
		t.Error(err)
	}
}

// flaky fails the first call of a stream, and ends others at once.
type flaky struct {
	healthpb.UnimplementedHealthServer
	calls atomic.Int64
}

func (f *flaky) Watch(_ *healthpb.HealthCheckRequest, stream healthpb.Health_WatchServer) error {
	if f.calls.Add(1) == 1 {
		return status.Error(codes.Unavailable, "not now")
	}
	return stream.Send(new(healthpb.HealthCheckResponse))
}

func TestStreamsWithAPermitAreRetriedAndReturnItAtTheirEnd(t *testing.T) {
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	server, service := grpc.NewServer(), new(flaky)
	healthpb.RegisterHealthServer(server, service)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	client := dial(t, startFake(t, 1).address)
	gauge := must(client.Gauge("g", leaseway.WithWants(1)))
	conn := must(grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 3,
			"initialBackoff": "0.01s", "maxBackoff": "0.01s", "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`),
		grpc.WithStreamInterceptor(leaseway.StreamClientInterceptor(gauge))))
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	stream := must(healthpb.NewHealthClient(conn).Watch(ctx, new(healthpb.HealthCheckRequest)))
	if _, err := stream.Recv(); err != nil || service.calls.Load() != 2 || gauge.InUse() != 1 {
		t.Error(err, service.calls.Load(), gauge.InUse())
	}
	if _, err := stream.Recv(); err != io.EOF || gauge.InUse() != 0 {
		t.Error(err, gauge.InUse())
	}
}

func TestLimitsTakeAmountsOfBudgets(t *testing.T) {
	budgets, others := startFake(t, 10), startFake(t, 5)
	budgets.set(func() {
		budgets.budget = &wire.BudgetLease{PeriodStart: proto.Int64(3600), PeriodEnd: proto.Int64(7200)}
	})
	client, other := dial(t, budgets.address), dial(t, others.address)
	dollars := must(client.Budget("dollars"))
	tokens := must(other.Rate("tokens", leaseway.WithWants(5), leaseway.WithBurst(10)))
	slots := must(other.Gauge("slots", leaseway.WithWants(5)))
	ready(t, other)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	expect := func(what string, spent, owed float64, inUse int) {
		t.Helper()
		if dollars.Spent() != spent || dollars.Owed() != owed || slots.InUse() != inUse {
			t.Errorf("%s: %g spent, %g owed, %d in use", what, dollars.Spent(), dollars.Owed(), slots.InUse())
		}
	}
	limits := must(client.Limits(tokens.Of(5), dollars.Of(2.5), slots.Of(1)))
	release, err := limits.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	expect("acquired", 2.5, 0, 1)
	var refusal *leaseway.RefusalError
	if _, err := must(limits.WithPermits(0, 8, 1)).TryAcquire(); !errors.As(err, &refusal) || refusal.Resource != "dollars" {
		t.Error(err)
	} else if _, known := refusal.RetryAfter(); known || refusal.Index != 1 || !strings.Contains(err.Error(), "allowance") {
		t.Error(err, refusal)
	}
	if _, err := must(limits.WithPermits(11, 1, 1)).TryReserve(); !errors.As(err, &refusal) || refusal.Burst != 10 {
		t.Error(err)
	}
	expect("refused", 2.5, 0, 1)
	if err := must(limits.WithPermits(0, 0, 0)).Refund(0, 1.5, 0); err != nil {
		t.Error(err)
	}
	expect("refunded", 1, 0, 1)
	release()
	release()
	if err := limits.Refund(0, 1, 0); err != nil {
		t.Error(err)
	}
	expect("released", 1, 0, 0)

	reservation := must(must(limits.WithPermits(0, 6.5, 1)).Reserve(ctx))
	if reserved := reservation.Reserved(); !slices.Equal(reserved, []float64{0, 6.5, 1}) {
		t.Error(reserved)
	}
	expect("reserved", 7.5, 0, 1)
	if err := errors.Join(reservation.Settle(0, 4.5, 1), reservation.Settle(0, 0, 0)); err != nil {
		t.Error(err)
	}
	reservation.Cancel()
	expect("settled", 5.5, 0, 0)
	must(must(limits.WithPermits(0, 1, 0)).TryReserve()).Cancel()
	expect("cancelled", 5.5, 0, 0)
	if err := must(must(limits.WithPermits(0, 0, 0)).Reserve(ctx)).Settle(0, 0.5, 0); err != nil {
		t.Error(err)
	}
	expect("more than was reserved", 6, 0, 0)
	invalid := must(must(limits.WithPermits(3, 1, 1)).Reserve(ctx))
	if err := invalid.Settle(1.5, math.NaN(), 0); err == nil || !strings.Contains(err.Error(), "tokens") {
		t.Error(err)
	}
	expect("spent in full", 7, 0, 0)
	// 5 at first, and 3 now.
	if taken := other.Stats().Resources[1].Taken; taken != 8 {
		t.Error(taken)
	}
	if err := limits.Charge(0, 5, 0); err != nil {
		t.Error(err)
	}
	expect("charged", 10, 2, 0)
	if err := limits.Charge(0.5, 1, 0); err == nil || !strings.Contains(err.Error(), "whole number") {
		t.Error(err)
	}
	expect("the others are charged", 10, 3, 0)
	for _, numbers := range [][]float64{{0, -1, 0}, {0, math.Inf(1), 0}, {0.5, 0, 0}, {0, 0, 0.5}, {math.NaN(), 0, 0}} {
		if _, err := limits.WithPermits(numbers...); err == nil {
			t.Error(numbers)
		}
	}
	short, stop := context.WithTimeout(ctx, 20*time.Millisecond)
	defer stop()
	if _, err := limits.Acquire(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	// A closed limit refuses all, and the others get back what was taken.
	budgets.set(func() { budgets.capacity = 20 })
	eventually(t, "it is paid", func() bool { return dollars.Owed() == 0 && dollars.Left() > 0 })
	slots.Close()
	if _, err := limits.Acquire(ctx); err != leaseway.ErrClosed {
		t.Error(err)
	}
	if _, err := must(limits.WithPermits(0, 1, 0)).Reserve(ctx); err != leaseway.ErrClosed {
		t.Error(err)
	}
	expect("closed", 13, 0, 0)
}

// Like Wait, Acquire of rates needs no release.
func TestAcquiringRatesDoesNotKeepThemOpen(t *testing.T) {
	server := startFake(t, 10)
	client := dial(t, server.address)
	rate := must(client.Rate("r", leaseway.WithWants(10), leaseway.WithBurst(10)))
	if _, err := must(client.Limits(rate.Of(1))).Acquire(context.Background()); err != nil {
		t.Fatal(err)
	}
	rate.Close()
	eventually(t, "the lease is released", func() (is bool) {
		server.set(func() { is = len(server.released) > 0 })
		return is
	})
}

// Callers get their permits before they notice that a resource is being closed.
func TestNothingIsTakenWhenAResourceIsClosedMeanwhile(t *testing.T) {
	budgets, others := startFake(t, 10), startFake(t, 5)
	budgets.set(func() {
		budgets.budget = &wire.BudgetLease{PeriodStart: proto.Int64(3600), PeriodEnd: proto.Int64(7200)}
	})
	client, other := dial(t, budgets.address), dial(t, others.address)
	dollars := must(client.Budget("dollars"))
	tokens := must(other.Rate("tokens", leaseway.WithWants(5), leaseway.WithBurst(10)))
	slots := must(other.Gauge("slots", leaseway.WithWants(5)))
	ready(t, client)
	ready(t, other)
	eventually(t, "the burst is saved up", func() bool { return tokens.Tokens() == 10 })
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	expect := func(what string, err error) {
		t.Helper()
		if err != leaseway.ErrClosed || tokens.Taken() != 0 || dollars.Spent() != 0 || slots.InUse() != 0 {
			t.Errorf("%s: %v; %d taken, %g spent, %d in use", what, err, tokens.Taken(), dollars.Spent(), slots.InUse())
		}
	}
	// closing begins to close a resource, and ends that after the check.
	closing := func(client *leaseway.Client, resource *leaseway.Resource, check func()) {
		t.Helper()
		release, closed := sync.OnceFunc(client.Hold()), make(chan struct{})
		defer release()
		go func() {
			defer close(closed)
			resource.Close()
		}()
		eventually(t, "the close has begun", resource.IsUnreferenced)
		check()
		release()
		<-closed
	}
	all := must(client.Limits(tokens.Of(5), dollars.Of(2), slots.Of(1)))
	closing(other, &slots.Resource, func() {
		_, err := all.TryAcquire()
		expect("TryAcquire of limits", err)
		_, err = all.Acquire(ctx)
		expect("Acquire of limits", err)
		_, err = all.TryReserve()
		expect("TryReserve of limits", err)
		_, err = all.Reserve(ctx)
		expect("Reserve of limits", err)
	})
	closing(other, &tokens.Resource, func() {
		if _, ok := tokens.TryReserveN(5); ok {
			t.Error("a reservation of a closed rate")
		}
		_, err := tokens.ReserveN(ctx, 5)
		expect("ReserveN of a rate", err)
	})
	closing(client, &dollars.Resource, func() {
		if _, ok := dollars.TryReserve(5); ok {
			t.Error("a reservation of a closed budget")
		}
		_, err := dollars.Reserve(ctx, 5)
		expect("Reserve of a budget", err)
	})
}
