package limiter

import (
	"math"
	"time"
)

const (
	// NominalRefresh is the refresh interval assumed by estimates. It does not depend on the server, because rising wants
	// are sent at once anyway.
	NominalRefresh = 5 * time.Second

	// memoryRefreshes is the time constant of falling wants, in refresh intervals.
	memoryRefreshes = 3.0
	// maxWaitSeconds: waiting callers should be served within this time.
	maxWaitSeconds = 1.0
	// promptSeconds: callers that will be served within this time do not count as backlog.
	promptSeconds = 0.25
	// firstWaitSeconds: the very first caller should be served within this time, because it has already waited for a
	// lease.
	firstWaitSeconds = 0.1
	// idleArrivals: a flow with fewer arrivals per refresh interval is idle.
	idleArrivals = 0.25
	// maxGrowth bounds the estimated closed-loop demand, as a multiple of the capacity.
	maxGrowth = 2.0
	// minObservation is the minimum period for judging what fraction of the time callers wait.
	minObservation = 50 * time.Millisecond
	// resampleDelay: a young flow is sampled again after this time while callers wait.
	resampleDelay = 100 * time.Millisecond
	// settledAge: a young flow is sampled again at this age, when the initial burst has been served.
	settledAge = time.Second
	// tolerance: wants that exceed the demand by less than this fraction equal it.
	tolerance = 1e-3
	// negligible: without demand, smaller wants are 0.
	negligible = 1e-3
)

// Sample is a reading of a limiter.
type Sample struct {
	// Count has the permits requested so far. For gauges it is the peak of permits in use, which includes waiting callers
	// and permits that came and went.
	Count uint64
	// Freely has the permits requested so far while no caller waited. For rates.
	Freely uint64
	// Refunded has the permits returned unused so far. For rates.
	Refunded uint64
	// Waiting has the permits waited for or owed now. For rates.
	Waiting uint64
	// Queued is the total time in which callers were waiting. For rates.
	Queued time.Duration
	// Capacity is the current capacity.
	Capacity float64
}

// net returns Count and Freely without returned permits. It is unknown when those had arrived, so both are reduced in
// proportion.
func (s *Sample) net() (count, freely uint64) {
	if s.Refunded == 0 {
		return s.Count, s.Freely
	}
	net := difference(s.Count, s.Refunded)
	return net, uint64(float64(s.Freely) * float64(net) / float64(max(s.Count, 1)))
}

// Demand estimates how much capacity to ask for (wants) from the demand at a limiter. Time is an argument.
//
// Open-loop demand: callers count when they arrive, not when they are served. Otherwise a limited client would never see
// more demand than it has capacity. Waiting callers count in addition, with the capacity that serves them within a
// second. Charged permits are demand when they are charged, and debt counts like waiting callers. Returned permits are
// no demand.
//
// Closed-loop demand: callers that return only after they were served hide their demand: a caller that waits half of the
// time would come twice as often without a limit. The rate of arrivals while nobody waits shows that. So the demand is
// the number of arrivals in such periods, divided by their length, if that is more than the overall rate.
//
// Saturation: if callers wait nearly all of the time there is no such period. While the queue does not get shorter, the
// estimate doubles the capacity, until the queue shrinks or the server grants no more. Callers that wait because there
// is no lease yet say nothing about scarcity: they are a burst to be served, and the flow is observed from then on.
//
// Hysteresis: higher demand counts at once, lower demand slowly: asking for too little makes callers wait, asking for
// too much costs others for a few refreshes. Wants fall exponentially, with a time constant of three refresh intervals.
// In the first refresh interval wants follow the observed demand.
type Demand struct {
	isGauge bool
	flow    flowEstimator
	// level is the wants at the time at.
	level float64
	at    time.Duration
	// demand is the current demand, which wants fall to.
	demand float64
	// guess is the lower bound of wants while callers wait.
	guess float64
	// backlog is the additional capacity to serve waiting callers.
	backlog float64
	// waits is set if callers waited at the last sample. For rates.
	waits bool
	// hold: wants do not fall before this time.
	hold  time.Duration
	trend queueTrend
}

// NewDemand returns an estimate that wants nothing before the first sample.
func NewDemand(isGauge bool) *Demand {
	return &Demand{isGauge: isGauge, flow: flowEstimator{refresh: NominalRefresh}}
}

// queueTrend distinguishes a persistent queue from short waits.
type queueTrend struct {
	at     time.Duration
	queued time.Duration
	// served has the permits granted so far.
	served  uint64
	waiting uint64
}

// update returns the additional capacity that callers may want if as many came as were served since the last update. It
// grows with the fraction of time in which callers waited. It returns false while nobody was served.
func (t *queueTrend) update(now time.Duration, sample *Sample) (float64, bool) {
	span, served := now-t.at, difference(sample.Count, sample.Waiting)
	if span < minObservation || sample.Waiting > 0 && t.waiting > 0 && served <= t.served {
		return 0, false
	}
	part := min(max(float64(sample.Queued-t.queued)/float64(span), 0), 1)
	replaced := t.waiting > 0 && sample.Waiting >= t.waiting
	*t = queueTrend{at: now, queued: sample.Queued, served: served, waiting: sample.Waiting}
	guess := sample.Capacity * min(part/(1-part), maxGrowth)
	if replaced && !math.IsInf(guess, 0) && !math.IsNaN(guess) {
		return guess, true
	}
	return 0, true
}

// Sample takes a sample. The first one belongs to the time when the limiter was created: arrivals count from there.
func (d *Demand) Sample(now time.Duration, sample Sample) {
	d.level = d.remembered(now)
	d.at = max(d.at, now)
	isYoung := false
	if d.isGauge {
		d.demand = float64(sample.Count)
	} else {
		isYoung = d.sampleFlow(&sample)
	}
	if d.demand >= d.level || isYoung {
		d.level = d.demand
		d.hold = d.at
		if d.isGauge {
			d.hold += d.flow.refresh
		}
	}
}

func (d *Demand) sampleFlow(sample *Sample) (isYoung bool) {
	before, waiting := d.demand, float64(sample.Waiting)
	count, freely := sample.net()
	// The callers with which an observation begins do not begin another one, however long they wait.
	idle := d.demand*d.flow.refresh.Seconds() < idleArrivals && d.flow.hasFewerThan(count)
	if idle && sample.Waiting > 0 && sample.Waiting >= d.flow.recent(d.at, count) {
		// All arrivals are waiting for the first lease: a burst, and no flow yet.
		d.flow.restart(sample.Waiting)
	}
	rates := d.flow.sample(d.at, flowCounts{count: count, freely: freely, queued: sample.Queued})
	isYoung = d.flow.isYoung(d.at)
	d.demand = max(rates.all, min(rates.freely, rates.all*maxGrowth))
	first := isYoung && d.flow.initialCallersWait(difference(sample.Count, sample.Waiting))
	d.backlog = backlog(first, waiting, sample.Capacity)
	d.waits = sample.Waiting > 0
	if guess, known := d.trend.update(d.at, sample); known {
		if isYoung && d.waits {
			// The guess does not fall while callers wait.
			guess = max(guess, d.guess)
		}
		d.guess = guess
	}
	if isYoung && d.waits {
		d.demand = max(d.demand, before)
	}
	return isYoung
}

// Wants returns the wants at now: finite and not negative.
func (d *Demand) Wants(now time.Duration) float64 { return max(d.remembered(now), d.guess) + d.backlog }

// NextSampleAt returns when to take the next sample before the next refresh, if that is worthwhile: soon while callers
// wait and the flow is young, and when they were served, so that the guess for them does not last a whole refresh
// interval.
func (d *Demand) NextSampleAt() (time.Duration, bool) {
	if d.isGauge || d.level+d.Wants(d.at) <= 0 {
		return 0, false
	}
	age := d.flow.age(d.at)
	for _, next := range []time.Duration{settledAge, d.flow.refresh} {
		if age < next {
			soon := next - age
			if d.waits {
				soon = min(soon, resampleDelay)
			}
			return d.at + soon, true
		}
	}
	return 0, false
}

func (d *Demand) remembered(now time.Duration) float64 {
	seconds := max(now-max(d.at, d.hold), 0).Seconds()
	above := (d.level - d.demand) * math.Exp(-seconds/(memoryRefreshes*d.flow.refresh.Seconds()))
	if above <= d.demand*tolerance || d.demand+above < negligible {
		return d.demand
	}
	return d.demand + above
}

// backlog returns the additional capacity to serve waiting callers.
func backlog(first bool, waiting, capacity float64) float64 {
	switch {
	case first:
		return max(waiting/maxWaitSeconds, 1/firstWaitSeconds)
	case waiting <= capacity*promptSeconds:
		return 0
	case capacity > 0:
		// Below one permit in that time, a waiting caller does not have to be faster than the next arrival.
		return waiting * min(capacity, 1/maxWaitSeconds)
	}
	return waiting / maxWaitSeconds
}
