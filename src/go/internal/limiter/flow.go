package limiter

import (
	"math"
	"time"
)

const (
	// maxSpanRefreshes is the longest span, in refresh intervals.
	maxSpanRefreshes = 32
	// marksPerRefresh is how often per refresh interval counts are kept at most. The inverse is the shortest span.
	marksPerRefresh = 8
	// unseenFraction corrects for the first arrivals. An observation begins right after them and misses them. This
	// underestimates evenly spaced arrivals by half of the first arrivals, and independent ones not at all; the constant
	// is the mean.
	unseenFraction = 0.25
)

// flowCounts has counts of a flow up to a time, since the limiter was created.
type flowCounts struct {
	count uint64
	// freely counts the arrivals that found no caller waiting.
	freely uint64
	// queued is the total time in which callers were waiting.
	queued time.Duration
}

// flow has arrivals per second.
type flow struct {
	all float64
	// freely has the arrivals that found nobody waiting, divided by the time in which nobody waited. The first arrival is
	// excluded, because it may begin that time. This is the rate of closed-loop callers without a limit, and of open-loop
	// callers anyway.
	freely float64
}

type flowMark struct {
	at time.Duration
	flowCounts
}

// flowEstimator estimates the rate of a flow of arrivals from counts at a few times.
//
// A short observation of a slow flow says little: at one arrival in ten seconds, five seconds see none or one. A long
// observation of a flow that has changed gives its former rate. So the estimator compares spans of one to
// maxSpanRefreshes refresh intervals, and uses the longest span that agrees with all shorter ones. A count of k in t
// seconds agrees with every rate whose expected count is within slack of k. A larger change is recognised as soon as the
// shortest span shows it, and older counts are ignored from then on. A flow younger than a refresh interval is observed
// over shorter spans, too.
type flowEstimator struct {
	refresh time.Duration
	marks   []flowMark
	// first is the number of arrivals when the observation began.
	first float64
}

// recent returns the arrivals within the last refresh interval, or in the whole observation if that is shorter.
func (f *flowEstimator) recent(now time.Duration, count uint64) uint64 {
	if len(f.marks) == 0 {
		return 0
	}
	before := &f.marks[0]
	for i := len(f.marks) - 1; i >= 0; i-- {
		if now-f.marks[i].at >= f.refresh {
			before = &f.marks[i]
			break
		}
	}
	return difference(count, before.count)
}

// hasFewerThan returns whether anything has arrived since the observation began.
func (f *flowEstimator) hasFewerThan(count uint64) bool {
	return len(f.marks) == 0 || f.marks[0].count < count
}

// initialCallersWait returns whether callers with which the observation began are still waiting, given the number of
// permits served.
func (f *flowEstimator) initialCallersWait(served uint64) bool {
	return len(f.marks) > 0 && served < f.marks[0].count
}

// restart begins a new observation, with some arrivals to begin with.
func (f *flowEstimator) restart(first uint64) {
	f.marks = f.marks[:0]
	f.first = float64(first)
}

// age returns the age of the observation.
func (f *flowEstimator) age(now time.Duration) time.Duration {
	if len(f.marks) == 0 {
		return 0
	}
	return max(now-f.marks[0].at, 0)
}

// isYoung returns whether the observation is younger than a refresh interval.
func (f *flowEstimator) isYoung(now time.Duration) bool { return f.age(now) <= f.refresh }

// sample takes the counts up to now. It returns the estimated rates.
func (f *flowEstimator) sample(now time.Duration, counts flowCounts) flow {
	here := flowMark{now, counts}
	if len(f.marks) > 0 {
		// Time and counts never run backwards.
		newest := &f.marks[len(f.marks)-1]
		here.at = max(here.at, newest.at)
		here.count = max(here.count, newest.count)
		here.freely = max(here.freely, newest.freely)
		here.queued = max(here.queued, newest.queued)
	}
	estimated := f.estimate(&here)
	f.keep(here)
	return estimated
}

func (f *flowEstimator) estimate(here *flowMark) flow {
	leastSpan := max(f.refresh/marksPerRefresh, time.Millisecond)
	shortest := f.refresh
	if f.isYoung(here.at) {
		shortest = leastSpan
	}
	least, most := 0.0, math.Inf(1)
	var estimated flow
	for i := len(f.marks) - 1; i >= 0; i-- {
		mark := &f.marks[i]
		span := here.at - mark.at
		isOldest := i == 0
		// The oldest count is always used: there is no longer span.
		if span < shortest && !isOldest {
			continue
		}
		seconds := max(span, leastSpan).Seconds()
		arrived := float64(here.count - mark.count)
		least = max(least, (arrived-slack(arrived))/seconds)
		most = min(most, (arrived+slack(arrived))/seconds)
		if least > most {
			break
		}
		unseen := 0.0
		if isOldest && f.isYoung(here.at) {
			unseen = unseenFraction * f.first
		}
		estimated.all = min(max((arrived+unseen)/seconds, least), most)
		estimated.freely = freely(mark, here)
	}
	return estimated
}

func (f *flowEstimator) keep(here flowMark) {
	if len(f.marks) == 0 || here.at-f.marks[len(f.marks)-1].at >= f.refresh/marksPerRefresh {
		f.marks = append(f.marks, here)
	}
	horizon, old := f.refresh*maxSpanRefreshes, 0
	for old < len(f.marks) && here.at-f.marks[old].at > horizon {
		old++
	}
	f.marks = append(f.marks[:0], f.marks[old:]...)
}

func freely(since, until *flowMark) float64 {
	free := (until.at - since.at - (until.queued - since.queued)).Seconds()
	arrived := float64(until.freely - since.freely)
	// Avoids dividing by 0; clocks may differ by a little.
	return max((arrived-1)/max(free, 1e-4), 0)
}

// slack is how far a count may be from the expected one: 1 for evenly spaced arrivals, depending on the phase, plus the
// standard deviation of independent arrivals.
func slack(arrived float64) float64 { return 1 + math.Sqrt(arrived) }

// difference returns a - b, or 0 if b is larger.
func difference(a, b uint64) uint64 { return a - min(a, b) }
