package leasewayotel

import (
	"go.opentelemetry.io/otel/metric"

	leaseway "github.com/leaseway/leaseway/src/go"
)

// Metrics that the Rust client has, too, have the same names: see docs/reference/metrics.md. Units in braces are
// annotations, which exporters do not append to names.

var clientCounters = []struct {
	name, unit, description string
	value                   func(*leaseway.Stats) uint64
}{
	{"doorman_client_requests", "{request}", "Requests to servers.",
		func(s *leaseway.Stats) uint64 { return s.Requests }},
	{"doorman_client_request_errors", "{request}", "Failed requests to servers. A redirect is no error.",
		func(s *leaseway.Stats) uint64 { return s.RequestErrors }},
	{"leaseway_client_redirects_total", "{redirect}", "Redirects to the master.",
		func(s *leaseway.Stats) uint64 { return s.Redirects }},
	{"leaseway_client_hints_total", "{hint}", "Hints that asking at once would change a lease.",
		func(s *leaseway.Stats) uint64 { return s.Hints }},
	{"leaseway_client_leases_ended_total", "{lease}", "Leases that ended without renewal.",
		func(s *leaseway.Stats) uint64 { return s.LeasesEnded }},
	{"leaseway_client_refused_resources_total", "{resource}", "Resources that the server had no room for.",
		func(s *leaseway.Stats) uint64 { return s.LeftOut }},
	{"leaseway_client_uncharged_total", "{permit}", "Permits that were not charged because of the maximum debt.",
		func(s *leaseway.Stats) uint64 { return s.Uncharged }},
}

var resourceFloats = []struct {
	name, unit, description string
	value                   func(*leaseway.ResourceStats) float64
}{
	{"leaseway_client_capacity", "{permit}", "Capacity that may be used now; of a rate, per second.",
		func(r *leaseway.ResourceStats) float64 { return r.Capacity }},
	{"leaseway_client_wants", "{permit}", "Demand that was computed last; of a rate, per second.",
		func(r *leaseway.ResourceStats) float64 { return r.Wants }},
	{"leaseway_client_lease_seconds", "s", "Time until the lease expires; 0 without a live lease.",
		func(r *leaseway.ResourceStats) float64 { return r.LeaseLeft.Seconds() }},
}

// kind creates an instrument for integers.
type kind func(meter metric.Meter, name, unit, description string) (metric.Int64Observable, error)

func counter(meter metric.Meter, name, unit, description string) (metric.Int64Observable, error) {
	return meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
}

// upDownCounter is for values that resources can add up, and that can decrease.
func upDownCounter(meter metric.Meter, name, unit, description string) (metric.Int64Observable, error) {
	return meter.Int64ObservableUpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
}

var resourceInts = []struct {
	kind                    kind
	name, unit, description string
	value                   func(*leaseway.ResourceStats) uint64
}{
	{counter, "leaseway_client_permits_requested_total", "{permit}",
		"Permits requested: taken, waited for, cancelled, refused or charged.",
		func(r *leaseway.ResourceStats) uint64 { return r.Arrived }},
	{upDownCounter, "leaseway_client_permits_taken", "{permit}", "Permits taken and not refunded so far.",
		func(r *leaseway.ResourceStats) uint64 { return r.Taken }},
	{upDownCounter, "leaseway_client_waiting", "{permit}", "Permits that callers wait for now.",
		func(r *leaseway.ResourceStats) uint64 { return r.Waiting }},
	{upDownCounter, "leaseway_client_in_use", "{permit}", "Permits of a gauge in use.",
		func(r *leaseway.ResourceStats) uint64 { return r.InUse }},
	{upDownCounter, "leaseway_client_debt", "{permit}", "Debt of a rate.",
		func(r *leaseway.ResourceStats) uint64 { return r.Debt }},
}

// budgetFloats are exported for budgets only.
var budgetFloats = []struct {
	name, description string
	value             func(*leaseway.BudgetStats) float64
}{
	{"leaseway_client_budget_spent", "Amount that this client has spent in the current period.",
		func(b *leaseway.BudgetStats) float64 { return b.Spent }},
	{"leaseway_client_budget_left", "Amount that remains of the allowance of this client.",
		func(b *leaseway.BudgetStats) float64 { return b.Left }},
	{"leaseway_client_budget_owed", "Amount that was charged and is not covered by an allowance yet.",
		func(b *leaseway.BudgetStats) float64 { return b.Owed }},
	{"leaseway_client_budget_waiting", "Amount that callers wait for now.",
		func(b *leaseway.BudgetStats) float64 { return b.Waiting }},
}
