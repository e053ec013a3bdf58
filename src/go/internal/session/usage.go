package session

import "time"

// PoolStanding is the standing of a client in a pool (PRIORITY_POOL).
type PoolStanding int

const (
	// Waiting means that the client has nothing, and is queued.
	Waiting PoolStanding = iota
	// Free means that it has what clients without an assignment get.
	Free
	// Priority means that it has its assignment.
	Priority
	// Revoking means that its capacity is being revoked.
	Revoking
)

// PoolState is the state of a client in a pool.
type PoolState struct {
	Standing PoolStanding
	// Assigned is the assignment of the client; 0 if it has none.
	Assigned float64
	// MinCapacity is the minimum useful capacity: a client has nothing, or at least this much.
	MinCapacity float64
	// Reason says why it has nothing, if the server says so.
	Reason string
	// Burst is how much capacity a rate may save up, as time at full capacity; negative if the server does not say.
	Burst time.Duration
}

// MaxBurst is the maximum burst of a pool.
const MaxBurst = time.Hour

// UsageCounters count what a limiter has let through so far.
type UsageCounters struct {
	// At is the time of the reading.
	At time.Duration
	// Taken counts the units used so far.
	Taken uint64
	// Recharging is the total time in which the capacity was in use. For rates.
	Recharging time.Duration
}

// Usage is the usage of a lease.
type Usage struct {
	// Recharging is the fraction of the time in which the capacity was in use. For gauges it is the largest fraction of
	// the capacity in use.
	Recharging float64
	// Units used.
	Units uint64
	// Interval is the length of the measured interval.
	Interval time.Duration
	// Counters is the reading at its end, where the next interval starts once the server has this one.
	Counters UsageCounters
}

// minMeasureSeconds is the shortest time over which usage is measured.
const minMeasureSeconds = 0.1

// UsageTracker tracks which usage the server knows of. A request reports the usage since the last answered request, so
// nothing is lost with a lost answer, and usage during a request is reported with the next one. Usage is counted only
// after the server has said that the resource is a pool.
type UsageTracker struct {
	State PoolState
	// reported and reportedPart are what was last reported.
	reported     UsageCounters
	reportedPart float64
	// peak and newestPeak are the largest fractions in use since the last report and since the last reading. For gauges.
	peak       float64
	newestPeak float64
}

// TrackUsage returns the tracker after an answer. The request of that answer reported usage; if it reported none, usage
// is nil and counters are the current ones. before is the tracker until then, or nil.
func TrackUsage(before *UsageTracker, state PoolState, counters UsageCounters, usage *Usage) *UsageTracker {
	// Everything counts as used until something is known.
	tracker := &UsageTracker{State: state, reported: counters, reportedPart: 1}
	if before != nil {
		// Whether the newest peak came before or after the request was sent is unknown: count it in both.
		tracker.peak, tracker.newestPeak = before.newestPeak, before.newestPeak
		tracker.reportedPart = before.reportedPart
	}
	if usage != nil {
		tracker.reported, tracker.reportedPart = usage.Counters, usage.Recharging
	}
	return tracker
}

// OfRate returns the usage of a rate, which is in use while its credit recharges.
func (t *UsageTracker) OfRate(counters UsageCounters) *Usage {
	used := since(counters.Recharging, t.reported.Recharging).Seconds()
	passed := since(counters.At, t.reported.At).Seconds()
	// A very short interval says little, so the last report counts for the rest of it. A request that follows another at
	// once (a hint, a new master) must not look like full usage.
	rest := t.reportedPart * max(minMeasureSeconds-passed, 0)
	return t.usage(counters, (used+rest)/max(passed, minMeasureSeconds))
}

// OfGauge returns the usage of a gauge. peak is the largest fraction in use since the last reading.
func (t *UsageTracker) OfGauge(counters UsageCounters, peak float64) *Usage {
	t.newestPeak, t.peak = peak, max(t.peak, peak)
	return t.usage(counters, t.peak)
}

func (t *UsageTracker) usage(counters UsageCounters, recharging float64) *Usage {
	units := uint64(0)
	if counters.Taken > t.reported.Taken {
		units = counters.Taken - t.reported.Taken
	}
	return &Usage{
		Recharging: min(max(recharging, 0), 1),
		Units:      units,
		Interval:   since(counters.At, t.reported.At),
		Counters:   counters,
	}
}
