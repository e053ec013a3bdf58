package leasewayotel

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric/noop"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	leaseway "github.com/leaseway/leaseway/src/go"
)

// collect returns the values of all series, such as `name{key=value}`.
func collect(t *testing.T, reader sdk.Reader) map[string]float64 {
	t.Helper()
	var collected metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &collected); err != nil {
		t.Fatal(err)
	}
	values := make(map[string]float64)
	for _, scope := range collected.ScopeMetrics {
		if scope.Scope.Name != ScopeName || scope.Scope.Version != leaseway.Version {
			t.Errorf("scope %+v", scope.Scope)
		}
		for _, m := range scope.Metrics {
			if m.Description == "" || m.Unit == "" {
				t.Errorf("%s has no description or unit", m.Name)
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				if strings.HasSuffix(m.Name, "_total") && !data.IsMonotonic {
					t.Errorf("%s is not monotonic", m.Name)
				}
				for _, point := range data.DataPoints {
					values[key(m.Name, point.Attributes)] = float64(point.Value)
				}
			case metricdata.Gauge[float64]:
				for _, point := range data.DataPoints {
					values[key(m.Name, point.Attributes)] = point.Value
				}
			default:
				t.Errorf("%s is a %T", m.Name, data)
			}
		}
	}
	return values
}

func key(name string, attributes attribute.Set) string {
	if attributes.Len() == 0 {
		return name
	}
	return fmt.Sprintf("%s{%s}", name, attributes.Encoded(attribute.DefaultEncoder()))
}

func TestEachStatisticIsExported(t *testing.T) {
	reader := sdk.NewManualReader()
	stats := leaseway.Stats{
		Requests: 1, RequestErrors: 2, Redirects: 3, Hints: 4, LeasesEnded: 5, LeftOut: 6, Uncharged: 7,
		Resources: []leaseway.ResourceStats{
			{Name: "jobs", Capacity: math.Inf(1), Arrived: 8, Taken: 9, Waiting: 10, InUse: 11},
			{Name: "searches", Capacity: 12.5, LeaseLeft: 1500 * time.Millisecond, Wants: 13, Debt: 14},
			{Name: "tokens", Budget: &leaseway.BudgetStats{Spent: 15, Left: 16, Owed: 17, Waiting: 18}},
		},
	}
	registration, err := observe(func() leaseway.Stats { return stats },
		[]Option{WithMeterProvider(sdk.NewMeterProvider(sdk.WithReader(reader)))})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{
		"doorman_client_requests":                 1,
		"doorman_client_request_errors":           2,
		"leaseway_client_redirects_total":         3,
		"leaseway_client_hints_total":             4,
		"leaseway_client_leases_ended_total":      5,
		"leaseway_client_refused_resources_total": 6,
		"leaseway_client_uncharged_total":         7,
		"leaseway_client_unlisted_resources":      0,

		"leaseway_client_capacity{resource=jobs}":                math.Inf(1),
		"leaseway_client_wants{resource=jobs}":                   0,
		"leaseway_client_lease_seconds{resource=jobs}":           0,
		"leaseway_client_permits_requested_total{resource=jobs}": 8,
		"leaseway_client_permits_taken{resource=jobs}":           9,
		"leaseway_client_waiting{resource=jobs}":                 10,
		"leaseway_client_in_use{resource=jobs}":                  11,
		"leaseway_client_debt{resource=jobs}":                    0,

		"leaseway_client_capacity{resource=searches}":                12.5,
		"leaseway_client_wants{resource=searches}":                   13,
		"leaseway_client_lease_seconds{resource=searches}":           1.5,
		"leaseway_client_permits_requested_total{resource=searches}": 0,
		"leaseway_client_permits_taken{resource=searches}":           0,
		"leaseway_client_waiting{resource=searches}":                 0,
		"leaseway_client_in_use{resource=searches}":                  0,
		"leaseway_client_debt{resource=searches}":                    14,

		"leaseway_client_capacity{resource=tokens}":                0,
		"leaseway_client_wants{resource=tokens}":                   0,
		"leaseway_client_lease_seconds{resource=tokens}":           0,
		"leaseway_client_permits_requested_total{resource=tokens}": 0,
		"leaseway_client_permits_taken{resource=tokens}":           0,
		"leaseway_client_waiting{resource=tokens}":                 0,
		"leaseway_client_in_use{resource=tokens}":                  0,
		"leaseway_client_debt{resource=tokens}":                    0,
		"leaseway_client_budget_spent{resource=tokens}":            15,
		"leaseway_client_budget_left{resource=tokens}":             16,
		"leaseway_client_budget_owed{resource=tokens}":             17,
		"leaseway_client_budget_waiting{resource=tokens}":          18,
	}
	equal(t, collect(t, reader), want)

	// A closed resource has no series any more, and a new snapshot is taken each time.
	stats.Resources, stats.Requests = nil, 100
	values := collect(t, reader)
	if len(values) != 8 || values["doorman_client_requests"] != 100 {
		t.Errorf("after the resources were closed: %v", values)
	}
	if err := registration.Unregister(); err != nil {
		t.Fatal(err)
	}
	if values := collect(t, reader); len(values) != 0 {
		t.Errorf("after unregistering: %v", values)
	}
}

func equal(t *testing.T, got, want map[string]float64) {
	t.Helper()
	for name, value := range want {
		if found, has := got[name]; !has || found != value {
			t.Errorf("%s is %v (exported: %v), expected %v", name, found, has, value)
		}
	}
	for name := range got {
		if _, has := want[name]; !has {
			t.Errorf("unexpected series %s", name)
		}
	}
}

func TestAttributesTellClientsApart(t *testing.T) {
	reader := sdk.NewManualReader()
	provider := WithMeterProvider(sdk.NewMeterProvider(sdk.WithReader(reader)))
	for n, name := range []string{"a", "b"} {
		stats := leaseway.Stats{
			Requests:  uint64(n + 1),
			Resources: []leaseway.ResourceStats{{Name: "searches", Waiting: uint64(n + 3)}},
		}
		_, err := observe(func() leaseway.Stats { return stats },
			[]Option{provider, WithAttributes(attribute.String("client", name))})
		if err != nil {
			t.Fatal(err)
		}
	}
	values := collect(t, reader)
	for name, want := range map[string]float64{
		"doorman_client_requests{client=a}":                   1,
		"doorman_client_requests{client=b}":                   2,
		"leaseway_client_waiting{client=a,resource=searches}": 3,
		"leaseway_client_waiting{client=b,resource=searches}": 4,
	} {
		if values[name] != want {
			t.Errorf("%s is %v, expected %v", name, values[name], want)
		}
	}
}

// TestAClientIsObservedWhileItIsUsed is for the race detector as well.
func TestAClientIsObservedWhileItIsUsed(t *testing.T) {
	// Nothing listens at port 1.
	client, err := leaseway.Dial("127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	reader, other := sdk.NewManualReader(), sdk.NewManualReader()
	_, err = Observe(client, WithMeterProvider(sdk.NewMeterProvider(sdk.WithReader(reader), sdk.WithReader(other))))
	if err != nil {
		t.Fatal(err)
	}
	searches, err := client.Rate("searches")
	if err != nil {
		t.Fatal(err)
	}
	const calls = 100
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range calls {
			searches.Allow()
			collect(t, other)
		}
	}()
	end := time.Now().Add(20 * time.Second)
	for {
		values := collect(t, reader)
		requested := values["leaseway_client_permits_requested_total{resource=searches}"]
		if requested == calls && values["doorman_client_request_errors"] > 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("not within 20 s: %v", values)
		}
	}
	<-done
}

func TestTheGlobalProviderIsTheDefault(t *testing.T) {
	registration, err := observe(func() leaseway.Stats { return leaseway.Stats{} }, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := registration.Unregister(); err != nil {
		t.Error(err)
	}
	if _, err := observe(nil, []Option{WithMeterProvider(noop.NewMeterProvider())}); err != nil {
		t.Errorf("a provider that exports nothing: %v", err)
	}
}

func TestResourcesBeyondTheMaximumHaveNoSeries(t *testing.T) {
	resources := func(first, end int) (all []leaseway.ResourceStats) {
		for n := first; n < end; n++ {
			all = append(all, leaseway.ResourceStats{Name: fmt.Sprintf("%05d", n)})
		}
		return all
	}
	var s series
	chosen, unlisted := s.choose(resources(10, maxSeries+10))
	if len(chosen) != maxSeries || unlisted != 0 {
		t.Fatalf("%d with series, %d without", len(chosen), unlisted)
	}
	// Those that have series keep them, although others come before them in the list.
	chosen, unlisted = s.choose(resources(0, maxSeries+10))
	if len(chosen) != maxSeries || unlisted != 10 || chosen[0].Name != "00010" {
		t.Errorf("%d with series from %s, %d without", len(chosen), chosen[0].Name, unlisted)
	}
	// Closed resources make room.
	chosen, unlisted = s.choose(resources(0, maxSeries))
	if len(chosen) != maxSeries || unlisted != 0 || chosen[0].Name != "00000" {
		t.Errorf("%d with series from %s, %d without", len(chosen), chosen[0].Name, unlisted)
	}
}
