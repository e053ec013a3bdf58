package leaseway_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/leaseway/leaseway/src/go"
)

func Example() {
	client, err := leaseway.Dial("127.0.0.1:5100")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	searches, err := client.Rate("searches")
	if err != nil {
		log.Fatal(err)
	}
	for n := 1; n <= 300; n++ {
		if err := searches.Wait(context.Background()); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("search %d: may do %.1f per second\n", n, searches.Limit())
	}
}

func ExampleDial_tls() {
	certificate, err := tls.LoadX509KeyPair("client.pem", "client.key")
	if err != nil {
		log.Fatal(err)
	}
	client, err := leaseway.Dial("https://a.internal:5100",
		leaseway.WithEndpoints("https://b.internal:5100", "https://c.internal:5100"),
		leaseway.WithTLS(&tls.Config{Certificates: []tls.Certificate{certificate}}))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
}

func ExampleClient_Ready() {
	client, err := leaseway.Dial("127.0.0.1:5100", leaseway.Pessimistic)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Rate("searches", leaseway.WithWants(40)); err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := client.Ready(ctx); err != nil {
		log.Print(err) // names the resources without a lease, and says why there is none
	}
}

func ExampleDialEnv() {
	// LEASEWAY_SERVER=a.internal:5100,b.internal:5100 LEASEWAY_TLS_CA=ca.pem
	client, err := leaseway.DialEnv(leaseway.WithDeadline(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
}

func ExampleClient_Shutdown() {
	client, err := leaseway.Dial("127.0.0.1:5100")
	if err != nil {
		log.Fatal(err)
	}
	stop, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	// … serve until the signal …
	<-stop.Done()
	// First end what has permits. Then the leases go to other clients at once.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := client.Shutdown(ctx); err != nil {
		log.Print("some leases were not released, and expire: ", err)
	}
}

func ExampleShare() {
	var client *leaseway.Client           // from Dial
	var setWorkers func(capacity float64) // adapts to the capacity
	workers, err := client.Share("workers", 40)
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		for {
			// First, so that no change in between is missed.
			changed := workers.Changed()
			capacity, _ := workers.Capacity()
			setWorkers(capacity)
			select {
			case <-changed:
			case <-workers.Done():
				return
			}
		}
	}()
}

func ExamplePrices_Cost() {
	prices, err := leaseway.ParsePrices([]byte(`{"small": {"input": 0.0000025, "output": "0.00001"}}`))
	if err != nil {
		log.Fatal(err)
	}
	cost, err := prices.Cost("small", map[string]int64{"input": 1000, "output": 200})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(cost)
	// Output: 0.0045
}

func ExampleRate_Allow() {
	var searches *leaseway.Rate // from Client.Rate
	http.HandleFunc("/search", func(w http.ResponseWriter, r *http.Request) {
		if !searches.Allow() {
			if wait, known := searches.RetryAfter(1); known {
				w.Header().Set("Retry-After", fmt.Sprint(int(wait.Seconds())+1))
			}
			http.Error(w, "too many searches", http.StatusTooManyRequests)
			return
		}
		// … search …
	})
}

func ExampleRate_ReserveN() {
	ctx := context.Background()
	var client *leaseway.Client // from Dial
	// A budget of tokens, of which a minute's worth can be saved up.
	tokens, err := client.Rate("tokens", leaseway.WithWindow(time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	reservation, err := tokens.ReserveN(ctx, 4000)
	if err != nil {
		log.Fatal(err)
	}
	defer reservation.Cancel() // if the request fails: only the first call counts
	used := 1200               // … of the answer …
	var exceeded *leaseway.DebtExceededError
	if err := reservation.Settle(used); errors.As(err, &exceeded) {
		log.Printf("%d tokens were not charged", exceeded.Uncharged)
	}
}

func ExampleBudget_Reserve() {
	ctx := context.Background()
	client, err := leaseway.Dial("127.0.0.1:5100")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	budget, err := client.Budget("team/a") // its algorithm is BUDGET
	if err != nil {
		log.Fatal(err)
	}
	for request := 1; request <= 3; request++ {
		reservation, err := budget.Reserve(ctx, 4000) // the most that it may cost
		if err != nil {
			log.Fatal(err)
		}
		used := 1200.5 // … of the answer …
		if err := reservation.Settle(used); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("request %d: %g spent\n", request, budget.Spent())
	}
	// Count a cost that was not reserved.
	if err := budget.Charge(300); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%g spent, %g owed\n", budget.Spent(), budget.Owed())
}

func ExampleBudget_Of() {
	ctx := context.Background()
	var dollars *leaseway.Budget    // from Client.Budget
	var requests *leaseway.Rate     // from Client.Rate
	var connections *leaseway.Gauge // from Client.Gauge
	var client *leaseway.Client     // from Dial
	limits, err := client.Limits(dollars.Of(0.25), requests.Of(1), connections.Of(1))
	if err != nil {
		log.Fatal(err)
	}
	reservation, err := limits.Reserve(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer reservation.Cancel() // if the request fails: only the first call counts
	used := 0.18               // … of the answer …
	if err := reservation.Settle(used, 1, 1); err != nil {
		log.Fatal(err)
	}
}

func ExampleGauge_Acquire() {
	ctx := context.Background()
	var transactions *leaseway.Gauge // from Client.Gauge
	release, err := transactions.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer release()
	// … the transaction …
}

func ExampleNewWeightedBalancer() {
	balancer := leaseway.NewWeightedBalancer([]leaseway.Weighted[string]{
		{Backend: "a", Weight: 7},
		{Backend: "b", Weight: 3},
	})
	for range 10 {
		if pick, ok := balancer.Pick(); ok {
			fmt.Print(pick.Backend())
		}
	}
	fmt.Println()
	if pick, ok := balancer.Pick(); ok {
		// … the operation fails …
		pick.Failed() // skips "a" for a minute
	}
	if pick, ok := balancer.Pick(); ok {
		fmt.Println(pick.Backend())
	}
	// Output:
	// abaaabaaba
	// b
}

func ExampleBalancer_PickWhere() {
	var search *leaseway.Balanced // from NewBalanced
	// Take a permit without waiting, at the first backend in turn that has one.
	pick, ok := search.Balancer().PickWhere(func(rate *leaseway.Rate) bool { return rate.Allow() })
	if !ok {
		log.Print("all backends are busy")
		return
	}
	fmt.Println("search at", pick.Backend().Name())
}

func ExampleNewBalanced() {
	ctx := context.Background()
	var client *leaseway.Client // from Dial
	var backends []*leaseway.Rate
	for _, name := range []string{"search/eu", "search/us"} {
		backend, err := client.Rate(name, leaseway.WithWants(500))
		if err != nil {
			log.Fatal(err)
		}
		backends = append(backends, backend)
	}
	search, err := leaseway.NewBalanced(backends)
	if err != nil {
		log.Fatal(err)
	}
	defer search.Close()

	pick, err := search.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("search at", pick.Backend().Name())
	pick.Failed() // if it failed: skips the backend for a minute
}

func ExampleNewTransport() {
	var requests *leaseway.Rate     // from Client.Rate
	var connections *leaseway.Gauge // from Client.Gauge
	var client *leaseway.Client     // from Dial
	both, err := client.Limits(requests.Of(1), connections.Of(1))
	if err != nil {
		log.Fatal(err)
	}
	browser := &http.Client{Transport: leaseway.NewTransport(nil, both)}
	_, _ = browser.Get("https://api.example.com/")
}

func ExampleClient_Limits() {
	var tokens *leaseway.Rate       // from Client.Rate
	var connections *leaseway.Gauge // from Client.Gauge
	var client *leaseway.Client     // from Dial
	limits, err := client.Limits(tokens.Of(900), connections.Of(1))
	if err != nil {
		log.Fatal(err)
	}
	release, err := limits.TryAcquire()
	var refusal *leaseway.RefusalError
	if errors.As(err, &refusal) {
		retryAfter, _ := refusal.RetryAfter()
		fmt.Println(refusal.Resource, "refuses; retry after", retryAfter)
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	defer release() // returns the connection

	more, err := limits.WithPermits(2_000, 1)
	if err != nil {
		log.Fatal(err)
	}
	reservation, err := more.Reserve(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	if err := reservation.Settle(700, 1); err != nil { // 700 tokens were used
		log.Print(err)
	}
}

func ExampleUnaryClientInterceptor() {
	var calls *leaseway.Rate // from Client.Rate
	conn, err := grpc.NewClient("backend.internal:443",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(leaseway.UnaryClientInterceptor(calls)),
		grpc.WithStreamInterceptor(leaseway.StreamClientInterceptor(calls)))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
}

func ExampleStreamClientInterceptor() {
	var streams *leaseway.Gauge // from Client.Gauge: a permit is in use until its stream ends
	conn, err := grpc.NewClient("backend.internal:443",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStreamInterceptor(leaseway.StreamClientInterceptor(streams)))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
}

func ExampleClient_Stats() {
	var client *leaseway.Client // from Dial
	for _, resource := range client.Stats().Resources {
		fmt.Printf("%s: %g (%v), %d wait\n", resource.Name, resource.Capacity, resource.Basis, resource.Waiting)
	}
}
