package leaseway_test

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/leaseway/leaseway/src/go"
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
	} {
		if _, err := dial(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v does not say %q", err, says)
		}
	}
	client := dial(t, startFake(t, 1).address)
	must(client.Gauge("gauge"))
	_, kind := client.Rate("gauge")
	_, empty := client.Rate("")
	_, wants := client.Rate("r", leaseway.WithWants(math.NaN()))
	_, burst := client.Rate("r", leaseway.WithBurst(math.NaN()))
	_, window := client.Rate("r", leaseway.WithWindow(-1))
	var kindError *leaseway.KindError
	if !errors.As(kind, &kindError) {
		t.Error(kind)
	}
	var option *leaseway.OptionError
	for _, err := range []error{empty, wants, burst, window} {
		if !errors.As(err, &option) {
			t.Error(err)
		}
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
	if client.Stats().Uncharged != exceeded.Uncharged {
		t.Error(client.Stats().Uncharged)
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

func TestAllTakesGaugesFirstAndReturnsWhatItTookIfOneFails(t *testing.T) {
	client := dial(t, startFake(t, 5).address)
	gauge := must(client.Gauge("a", leaseway.WithWants(5)))
	rate := must(client.Rate("b", leaseway.WithWants(5), leaseway.WithWindow(time.Minute)))
	closed := must(client.Rate("c", leaseway.WithWants(5)))
	ready(t, client)
	both := leaseway.All(rate, gauge)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	end, err := both.Begin(ctx)
	if err != nil || gauge.InUse() != 1 {
		t.Fatal(gauge.InUse(), err)
	}
	if end(); gauge.InUse() != 0 {
		t.Error(gauge.InUse())
	}
	taken := client.Stats().Resources[1].Taken
	closed.Close()
	if _, err := leaseway.All(closed, rate, gauge).Begin(ctx); !errors.Is(err, leaseway.ErrClosed) {
		t.Error(err)
	}
	if gauge.InUse() != 0 || taken != 1 || client.Stats().Resources[1].Taken != 1 {
		t.Error(gauge.InUse(), client.Stats())
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
}

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
}
