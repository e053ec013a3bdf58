package leaseway

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leaseway/leaseway/src/go/internal/limiter"
	"github.com/leaseway/leaseway/src/go/internal/session"
	"github.com/leaseway/leaseway/src/go/internal/transport"
)

const (
	// resourcesPerRequest is the bound of servers.
	resourcesPerRequest = 1000

	// minEstimateInterval is the minimum time between estimates of demand that are due to waiting callers.
	minEstimateInterval = 100 * time.Millisecond

	// firstRequestDelay delays the first request for a resource, because a first caller commonly arrives right after
	// opening.
	firstRequestDelay = 5 * time.Millisecond
)

// Client is a client of a Leaseway (or Doorman) node. It keeps the leases of open resources alive, in a goroutine of its
// own. All methods may be called by several goroutines at the same time.
//
// Close it when it is no longer needed, so that its leases go to other clients at once.
type Client struct {
	id      string
	mode    Mode
	log     *slog.Logger
	observe func(LeaseChange)
	start   time.Time
	stats   counters
	// wakeup and pressure tell the driver of changes by handles, and of callers that have to wait at a limiter.
	wakeup   chan struct{}
	pressure chan struct{}
	// done is closed when the driver has ended.
	done  chan struct{}
	clock *transport.Clock

	mu      sync.Mutex
	session *session.Session
	opened  map[string]*sharedResource
	// budgets has the opened resources that are budgets.
	budgets map[string]*sharedResource
	// closing: no resources can be opened, and only releases are sent. abandoned: nothing is sent.
	closing   bool
	abandoned bool
	// estimateAt is when to estimate the demands of pressured resources next, and estimated when that was done last.
	estimateAt time.Duration
	estimated  time.Duration
	// scheduled has earlier estimates of single resources. An entry counts if it has the time of its resource.
	scheduled   estimates
	lastError   string
	lastErrorAt time.Time

	// expiredLog is for the driver.
	expiredLog throttle

	// pressured has the resources with callers that have to wait, until their demand is estimated. It has a lock of its own,
	// because limiters report them with their locks held.
	pressuredMu sync.Mutex
	pressured   map[*sharedResource]struct{}
}

// Dial returns a client of the node with a server at endpoint, which is HOST:PORT, or https://HOST:PORT for TLS. The
// default port is 5100. It connects in the background and keeps trying. An unreachable server is not an error: see
// [Client.Ready].
func Dial(endpoint string, options ...Option) (*Client, error) {
	return dial(newSettings([]string{endpoint}, options))
}

func newSettings(endpoints []string, options []Option) *settings {
	s := &settings{endpoints: endpoints, pace: session.DefaultPace()}
	for _, option := range options {
		option.applyToClient(s)
	}
	return s
}

func dial(s *settings) (*Client, error) {
	if s.log == nil {
		s.log = slog.Default()
	}
	if s.id == "" {
		s.id = uniqueID()
	}
	if err := checkID("id of the client", s.id); err != nil {
		return nil, err
	}
	if s.pace.Deadline <= 0 {
		return nil, badOption("deadline", "%v is not positive", s.pace.Deadline)
	}
	for setting, span := range map[string]time.Duration{"maximum back-off": s.pace.BackoffMax, "minimum refresh interval": s.pace.RefreshMin} {
		if span < 0 {
			return nil, badOption(setting, "%v is negative", span)
		}
	}
	if err := checkMode(s.mode); err != nil {
		return nil, err
	}
	dialer, addresses, err := newDialer(s)
	if err != nil {
		return nil, err
	}
	seed := rand.Uint64()
	if s.seed != nil {
		seed = *s.seed
	}
	clock := transport.StartClock()
	client := &Client{
		id:       s.id,
		mode:     s.mode,
		log:      s.log.With("client", s.id),
		observe:  s.observe,
		start:    clock.Start,
		wakeup:   make(chan struct{}, 1),
		pressure: make(chan struct{}, 1),
		done:     make(chan struct{}),
		clock:    clock,
		session: session.New(session.Settings{
			Endpoints:           addresses,
			Pace:                s.pace,
			ResourcesPerRequest: resourcesPerRequest,
			Seed:                seed,
		}),
		opened:     map[string]*sharedResource{},
		budgets:    map[string]*sharedResource{},
		estimateAt: session.Never,
		pressured:  map[*sharedResource]struct{}{},
	}
	driver := &driver{client: client, dialer: dialer, deadline: s.pace.Deadline}
	if !s.noHints {
		driver.hints = transport.NewHints(s.id, client.log)
	}
	go driver.run()
	return client, nil
}

func newDialer(s *settings) (*transport.Dialer, []string, error) {
	var endpoints []transport.Endpoint
	var addresses []string
	for _, text := range s.endpoints {
		endpoint, err := transport.ParseEndpoint(text)
		if err != nil {
			return nil, nil, badEndpoint(err)
		}
		endpoints = append(endpoints, endpoint)
		addresses = append(addresses, endpoint.Address)
	}
	secured, err := transport.OverTLS(endpoints, s.tls != nil)
	if err != nil {
		return nil, nil, badEndpoint(err)
	}
	dialer := &transport.Dialer{ClearToken: s.clearToken, DialContext: s.dial, UserAgent: "leaseway-go/" + Version}
	if secured {
		dialer.TLS = s.tls
		if dialer.TLS == nil {
			dialer.TLS = defaultTLS()
		}
	}
	switch {
	case s.token != "" && s.tokenFile != "":
		return nil, nil, badOption("token", "it is set as well as a file with a token: set one of them")
	case s.token != "":
		dialer.Token, err = transport.NewToken(s.token)
	case s.tokenFile != "":
		dialer.Token, err = transport.NewTokenFile(s.tokenFile, s.log)
	}
	if err != nil {
		return nil, nil, badFile("token", err)
	}
	for _, address := range addresses {
		if err := dialer.Check(address); err != nil {
			return nil, nil, badOption("token", "%v", err)
		}
	}
	return dialer, addresses, nil
}

func badEndpoint(err error) error {
	var bad *transport.BadEndpointError
	if errors.As(err, &bad) {
		return badOption("server address", "%q: %s", bad.Endpoint, bad.Why)
	}
	return err
}

var (
	firstID = uint64(rand.Uint32())
	nextID  atomic.Uint64
)

// uniqueID returns a unique HOST:PID:NUMBER. Numbers start at random, because processes in containers with the same host
// name may have the same PID.
func uniqueID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s:%d:%d", host[:min(len(host), 200)], os.Getpid(), firstID+nextID.Add(1))
}

// ID returns the id of the client.
func (c *Client) ID() string { return c.id }

// Rate opens a resource as a rate: permits per second.
func (c *Client) Rate(name string, options ...ResourceOption) (*Rate, error) {
	o, err := c.open(name, kindRate, options)
	if err != nil {
		return nil, err
	}
	return &Rate{Resource: Resource{opened: o}, limiter: o.rate}, nil
}

// Gauge opens a resource as a gauge: permits in use at the same time.
func (c *Client) Gauge(name string, options ...ResourceOption) (*Gauge, error) {
	o, err := c.open(name, kindGauge, options)
	if err != nil {
		return nil, err
	}
	return &Gauge{Resource: Resource{opened: o}, limiter: o.gauge}, nil
}

// Budget opens a resource of kind BUDGET: an amount that may be spent in each period. Wants, modes and bursts do not apply
// to it.
func (c *Client) Budget(name string, options ...ResourceOption) (*Budget, error) {
	o, err := c.open(name, kindBudget, options)
	if err != nil {
		return nil, err
	}
	return &Budget{Resource: Resource{opened: o}, limiter: o.budget}, nil
}

// Share opens a resource without a limiter. The caller has to respect its capacity, and may report its usage. The wants
// are fixed.
func (c *Client) Share(name string, wants float64, options ...ResourceOption) (*Share, error) {
	o, err := c.open(name, kindPlain, append(slices.Clip(options), WithWants(wants)))
	if err != nil {
		return nil, err
	}
	return &Share{Resource: Resource{opened: o}}, nil
}

func (c *Client) open(name, kind string, options []ResourceOption) (*sharedResource, error) {
	if err := checkID("name of the resource", name); err != nil {
		return nil, err
	}
	s, err := newResourceSettings(kind, options)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return nil, ErrClosed
	}
	if known := c.opened[name]; known != nil {
		if known.kind != kind {
			return nil, &KindError{name, known.kind, kind}
		}
		if err := s.checkSame(known.settings); err != nil {
			return nil, err
		}
		// The lock keeps closeResource from removing it meanwhile.
		known.refs.Add(1)
		return known, nil
	}
	s.setDefaults(kind, c.mode)
	o := c.newOpened(name, kind, s)
	c.opened[name] = o
	if o.budget != nil {
		c.budgets[name] = o
	}
	now, _ := c.clock.Now()
	c.want(now, o)
	if o.estimatesWants() {
		c.session.Postpone(name, now+firstRequestDelay)
	}
	c.session.ReportAgain(name)
	notify(c.wakeup)
	return o, nil
}

func (c *Client) newOpened(name, kind string, s *resourceSettings) *sharedResource {
	o := &sharedResource{
		client:     c,
		id:         name,
		kind:       kind,
		settings:   s,
		usable:     session.Usable{Basis: session.Unknown, Until: session.Never},
		changed:    make(chan struct{}),
		done:       make(chan struct{}),
		estimateAt: session.Never,
	}
	o.refs.Store(1)
	o.effectivePriority.Store(*s.priority)
	onPressure := func() { c.press(o) }
	switch kind {
	case kindRate:
		o.rate = limiter.NewRate(c.start, *s.burst, *s.maxDebt, onPressure)
	case kindGauge:
		o.gauge = limiter.NewGauge(c.start, onPressure)
	case kindBudget:
		o.budget = limiter.NewBudget(c.now, onPressure)
	}
	if s.wants != nil {
		o.fixed = *s.wants
	} else {
		o.demand = limiter.NewDemand(kind == kindGauge)
	}
	return o
}

// closeResource is called when the last reference of a resource was dropped.
func (c *Client) closeResource(o *sharedResource) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.refs.Load() > 0 || c.opened[o.id] != o {
		return
	}
	c.release(o)
	notify(c.wakeup)
}

// release closes the limiter of a resource, and then releases its lease with the last report of what was spent. The lock
// must be held throughout, so that no other caller releases the lease with an earlier report.
func (c *Client) release(o *sharedResource) {
	delete(c.opened, o.id)
	delete(c.budgets, o.id)
	o.closeLimiter()
	if o.budget != nil {
		now, _ := c.clock.Now()
		c.session.Want(now, o.id, o.wants(now), session.Mode(*o.settings.mode))
	}
	c.session.Release(o.id)
}

func (c *Client) record(id string, capacity float64) {
	if c.observe != nil {
		c.observe(LeaseChange{At: time.Now(), Client: c.id, Resource: id, Capacity: capacity})
	}
}

// demandChanged updates the demand for a resource. It is sent at once if it has changed enough.
func (c *Client) demandChanged(o *sharedResource) {
	c.mu.Lock()
	now, _ := c.clock.Now()
	if c.opened[o.id] == o {
		c.want(now, o)
	}
	c.mu.Unlock()
	notify(c.wakeup)
}

func (c *Client) now() time.Duration {
	now, _ := c.clock.Now()
	return now
}

func (c *Client) lease(id string) (capacity float64, left time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, _ := c.clock.Now()
	if lease := c.session.Lease(now, id); lease != nil {
		return lease.Capacity, lease.End - now
	}
	return 0, 0
}

// Close releases all leases, and waits until that is done or a release has failed; then they expire. It waits for a refresh
// in flight first. Each request takes at most the deadline, see [WithDeadline]. A permit that is still in use loses its
// lease. Callers that wait at a limiter get [ErrClosed]. Close is idempotent, and returns nil.
func (c *Client) Close() error { return c.Shutdown(context.Background()) }

// Shutdown is [Client.Close], but waits no longer than the context lasts. If the context ends first, leases that are not
// released yet expire, and the error is that of the context.
func (c *Client) Shutdown(ctx context.Context) error {
	c.beginClosing()
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
	}
	c.mu.Lock()
	c.abandoned = true
	c.mu.Unlock()
	notify(c.wakeup)
	<-c.done
	return ctx.Err()
}

func (c *Client) beginClosing() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closing = true
	for _, o := range c.opened {
		c.release(o)
	}
	// It also ends a back-off.
	c.session.ReleaseAll()
	notify(c.wakeup)
}

// Ready waits until every open resource has a lease. A fallback capacity does not count, and neither does a resource that
// is closed meanwhile. If the context ends first, the error is a [NotReadyError], which says which resources have no lease,
// and why. If the client is closed, the error is [ErrClosed].
func (c *Client) Ready(ctx context.Context) error { return c.ready(ctx, nil) }

func (c *Client) ready(ctx context.Context, only *sharedResource) error {
	c.mu.Lock()
	var awaited []*sharedResource
	for _, o := range c.opened {
		if only == nil || only == o {
			awaited = append(awaited, o)
		}
	}
	isOpen := !c.closing && (only == nil || len(awaited) > 0)
	c.mu.Unlock()
	if !isOpen {
		return ErrClosed
	}
	for i := 0; i < len(awaited); {
		usable, changed, isClosed := awaited[i].current()
		switch {
		case isClosed && (only != nil || c.isClosing()):
			return ErrClosed
		case isClosed || usable.Basis == session.Leased:
			i++
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return c.notReady(awaited, ctx.Err())
		}
	}
	return nil
}

func (c *Client) isClosing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closing
}

func (c *Client) notReady(awaited []*sharedResource, cause error) error {
	e := &NotReadyError{cause: cause}
	c.mu.Lock()
	if c.session.Failures() > 0 {
		e.Why = c.lastError
	} else {
		e.Why = fmt.Sprintf("no request has failed, and %s has not answered yet", c.session.Target())
	}
	c.mu.Unlock()
	for _, o := range awaited {
		if usable, _, isClosed := o.current(); usable.Basis != session.Leased && !isClosed {
			e.Resources = append(e.Resources, o.id)
		}
	}
	if len(e.Resources) == 0 {
		return nil
	}
	slices.Sort(e.Resources)
	return e
}

// want updates the demand for a resource. The lock must be held.
func (c *Client) want(now time.Duration, o *sharedResource) {
	wants := o.wants(now)
	if lease := c.session.Lease(now, o.id); lease != nil && wants.Outstanding <= lease.Capacity {
		wants.Outstanding = 0
	}
	isUrgent := c.session.Want(now, o.id, wants, session.Mode(*o.settings.mode))
	if wants.Outstanding > 0 || isUrgent && o.isUnderPressure() {
		c.addPressured(o)
		c.estimateSoon(now)
	}
	if at, soon := o.nextSampleAt(); soon {
		if at = max(at, now+minEstimateInterval); at < o.estimateAt {
			o.estimateAt = at
			heap.Push(&c.scheduled, estimate{at, o})
		}
	}
}

// takeAllowances gives budgets their new allowances. The lock must be held, so that no request reports less than was spent
// before.
func (c *Client) takeAllowances(now time.Duration) {
	for id, o := range c.budgets {
		if lease := c.session.Lease(now, id); lease != nil && o.budget.Take(now, lease) {
			c.want(now, o)
		}
	}
}

// press reports a resource with callers that have to wait. It does not block.
func (c *Client) press(o *sharedResource) {
	c.addPressured(o)
	notify(c.pressure)
}

func (c *Client) addPressured(o *sharedResource) {
	c.pressuredMu.Lock()
	defer c.pressuredMu.Unlock()
	c.pressured[o] = struct{}{}
}

func (c *Client) takePressured() map[*sharedResource]struct{} {
	c.pressuredMu.Lock()
	defer c.pressuredMu.Unlock()
	taken := c.pressured
	c.pressured = map[*sharedResource]struct{}{}
	return taken
}

// estimateSoon estimates the demands of pressured resources at this time, or a little later. The lock must be held.
func (c *Client) estimateSoon(at time.Duration) {
	c.estimateAt = min(c.estimateAt, max(at, c.estimated+minEstimateInterval))
}

// dueEstimates returns the resources whose demands to estimate now: those where callers wait, those of the next request and
// those that are scheduled. Others are skipped, because there may be a hundred thousand. The lock must be held.
func (c *Client) dueEstimates(now time.Duration) []*sharedResource {
	var due []*sharedResource
	var pressured map[*sharedResource]struct{}
	if c.estimateAt <= now {
		c.estimateAt, c.estimated = session.Never, now
		pressured = c.takePressured()
		for o := range pressured {
			if c.opened[o.id] == o {
				due = append(due, o)
			}
		}
	}
	if c.session.IsDue(now) {
		for _, id := range c.session.DueResources(now) {
			o := c.opened[id]
			if _, isEstimated := pressured[o]; o != nil && !isEstimated {
				due = append(due, o)
			}
		}
	}
	for len(c.scheduled) > 0 && c.scheduled[0].at <= now {
		next := heap.Pop(&c.scheduled).(estimate)
		if next.o.estimateAt == next.at && c.opened[next.o.id] == next.o {
			next.o.estimateAt = session.Never
			due = append(due, next.o)
		}
	}
	return due
}

// nextEstimate returns when to estimate next. The lock must be held.
func (c *Client) nextEstimate() time.Duration {
	if len(c.scheduled) == 0 {
		return c.estimateAt
	}
	return min(c.estimateAt, c.scheduled[0].at)
}

// change is a change of what may be used of a resource.
type change struct {
	o      *sharedResource
	usable session.Usable
}

// changes returns the changes to apply once the lock is released.
func (c *Client) changes(now time.Duration) []change {
	var changes []change
	c.session.Changes(now, func(id string, usable session.Usable) {
		if o := c.opened[id]; o != nil {
			changes = append(changes, change{o, usable})
		}
	})
	return changes
}

// apply applies changes. Only the driver calls it, so that changes are applied in order.
func (c *Client) apply(suspended time.Duration, changes []change) {
	expired, first := 0, ""
	for i := range changes {
		o, usable := changes[i].o, changes[i].usable
		before, isOpen := o.apply(suspended, usable)
		if !isOpen {
			continue
		}
		if usable.Capacity > before.Capacity && o.isUnderPressure() {
			// With more capacity, more may be wanted.
			c.press(o)
		}
		if before.Basis == session.Leased && usable.Basis == session.Fallback {
			c.stats.leasesEnded.Add(1)
			expired++
			first = cmp.Or(first, o.id)
		}
	}
	if n := c.expiredLog.add(expired); n > 0 {
		c.log.Warn("leases expired without a refresh", "leases", n, "first", first)
	}
}

// describeFallback describes what may be used while no server answers, for the log.
func (c *Client) describeFallback() string {
	const maxNamed = 5
	c.mu.Lock()
	defer c.mu.Unlock()
	now, _ := c.clock.Now()
	var described []string
	for id, o := range c.opened {
		if len(described) == maxNamed {
			described = append(described, fmt.Sprintf("%d more resources", len(c.opened)-maxNamed))
			break
		}
		if lease := c.session.Lease(now, id); lease != nil {
			described = append(described, fmt.Sprintf("%q may use its lease of %g for another %d s, then mode %s decides",
				id, lease.Capacity, int((lease.End-now).Seconds()), *o.settings.mode))
			continue
		}
		usable, _ := c.session.Usable(now, id)
		described = append(described, fmt.Sprintf("%q may use %g (mode %s)", id, usable.Capacity, *o.settings.mode))
	}
	if len(described) == 0 {
		return "nothing is wanted"
	}
	return strings.Join(described, ", ")
}

// notify wakes the receiver of a channel that holds one notification.
func notify(channel chan struct{}) {
	select {
	case channel <- struct{}{}:
	default:
	}
}

// estimate is a scheduled estimate of the wants of a resource.
type estimate struct {
	at time.Duration
	o  *sharedResource
}

// estimates is a heap.
type estimates []estimate

func (e estimates) Len() int           { return len(e) }
func (e estimates) Less(i, j int) bool { return cmp.Less(e[i].at, e[j].at) }
func (e estimates) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *estimates) Push(x any)        { *e = append(*e, x.(estimate)) }
func (e *estimates) Pop() any {
	last := len(*e) - 1
	popped := (*e)[last]
	(*e)[last] = estimate{}
	*e = (*e)[:last]
	return popped
}
