package leaseway

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaseway/leaseway/src/go/internal/session"
	"github.com/leaseway/leaseway/src/go/internal/transport"
)

const (
	// maxSleep is the longest sleep of the driver, after which it notices a suspend of the machine.
	maxSleep = time.Second

	// rediscoveryInterval is how often a master is asked for its peers. They change rarely, and a late update does no
	// harm.
	rediscoveryInterval = 5 * time.Minute
	// discoveryRetryDelay is how long after a failure it is asked again.
	discoveryRetryDelay = 2 * time.Second

	// minStreamed: with fewer resources a request for all of them is short.
	minStreamed = 100
)

// driver is the goroutine of a client. It sends the requests of the session when they are due and reports their outcome.
type driver struct {
	client   *Client
	dialer   *transport.Dialer
	deadline time.Duration
	outage   outage
	// hints is nil if the client does not listen to them.
	hints *transport.Hints
	// conn is the connection of the last request.
	conn *transport.Conn
	sent *sentRequest
	// renewals is the stream of renewals between two messages, or nil.
	renewals *transport.Renewals
	// discovered is the connection whose server was asked for its peers last, and discoverAt is when to ask it again, on the
	// clock of the client.
	discovered   *transport.Conn
	discoverAt   atomic.Int64
	leftOutLog   throttle
	malformedLog throttle
}

// sentRequest is the request in flight.
type sentRequest struct {
	number uint64
	server string
	at     time.Time
	asks   bool
	cancel context.CancelFunc
	// usage has the usage that it reported, by resource.
	usage    map[string]*session.Usage
	isStream bool
	result   chan result
}

type result struct {
	answer *transport.Answer
	// renewals is the stream that the answer came on, if it goes on.
	renewals *transport.Renewals
	err      error
}

// step is what the driver has to do now.
type step struct {
	// outgoing is the request to send, or nil.
	outgoing *session.Outgoing
	// inFlight is the number of the request whose answer still counts, or 0.
	inFlight uint64
	// wait is the time until the next step at the latest.
	wait time.Duration
	// watchesPressure: pressure at a limiter requires a step; it does not if an estimate follows soon anyway.
	watchesPressure bool
	finished        bool
}

func (d *driver) run() {
	defer d.end()
	timer := time.NewTimer(maxSleep)
	defer timer.Stop()
	for {
		step := d.client.step()
		if d.sent != nil && d.sent.number != step.inFlight {
			d.abandon()
		}
		if step.finished {
			return
		}
		if step.outgoing != nil {
			d.send(step.outgoing)
		}
		timer.Reset(min(step.wait, maxSleep))
		var result <-chan result
		if d.sent != nil {
			result = d.sent.result
		}
		var hints <-chan transport.Hint
		if d.hints != nil {
			hints = d.hints.C
		}
		pressure := d.client.pressure
		if !step.watchesPressure {
			pressure = nil
		}
		select {
		case result := <-result:
			d.finish(result)
		case hint := <-hints:
			d.client.hinted(hint)
		case <-pressure:
			d.client.notePressure()
		case <-d.client.wakeup:
		case <-timer.C:
		}
	}
}

// end is called when the session has ended and no lease is renewed any more.
func (d *driver) end() {
	if d.sent != nil {
		d.sent.cancel()
	}
	if d.hints != nil {
		d.follow(nil)
	}
	d.renewOn(nil)
	d.use(nil)
	close(d.client.done)
}

// use makes conn the connection for requests.
func (d *driver) use(conn *transport.Conn) {
	before := d.conn
	d.conn = conn
	if before != nil && before != conn && (d.hints == nil || d.hints.Following() != before) {
		before.Close()
	}
}

// renewOn makes renewals the stream of renewals; nil if there is none.
func (d *driver) renewOn(renewals *transport.Renewals) {
	if before := d.renewals; before != nil && before != renewals {
		before.Close()
	}
	d.renewals = renewals
}

// follow follows the hints of the server behind conn; nil stops.
func (d *driver) follow(conn *transport.Conn) {
	before := d.hints.Following()
	if conn == nil {
		d.hints.Stop()
	} else {
		d.hints.Follow(conn)
	}
	if before != nil && before != conn && before != d.conn {
		before.Close()
	}
}

func (d *driver) send(outgoing *session.Outgoing) {
	ctx, cancel := context.WithTimeout(context.Background(), d.deadline)
	sent := &sentRequest{
		number:   outgoing.Number,
		server:   outgoing.Target,
		at:       time.Now(),
		asks:     len(outgoing.Releases) == 0,
		cancel:   cancel,
		usage:    map[string]*session.Usage{},
		isStream: outgoing.Stream != nil,
		result:   make(chan result, 1),
	}
	d.sent = sent
	asks := outgoing.Asks
	if sent.isStream {
		asks = outgoing.Stream.Stated
	}
	for i := range asks {
		if usage := asks[i].Demand.Usage; usage != nil {
			sent.usage[asks[i].ID] = usage
		}
	}
	d.client.stats.requests.Add(1)
	if d.conn == nil || d.conn.Address != outgoing.Target {
		conn, err := d.dialer.Connect(outgoing.Target)
		if err != nil {
			d.use(nil)
			sent.result <- result{err: err}
			return
		}
		d.use(conn)
	}
	conn := d.conn
	if sent.isStream {
		renewals := d.renewals
		d.renewals = nil
		go func() { sent.result <- renew(ctx, conn, renewals, d.client.id, outgoing.Stream, sent.at) }()
		return
	}
	if sent.asks {
		// The session has given the stream up.
		d.renewOn(nil)
	}
	go func() {
		answer, err := call(ctx, conn, d.client.id, outgoing, sent.at)
		sent.result <- result{answer: answer, err: err}
	}()
}

// renew sends a message on a stream, which is opened by the first. It closes the stream unless it goes on.
func renew(ctx context.Context, conn *transport.Conn, open *transport.Renewals, id string, message *session.StreamRequest, sent time.Time) result {
	if open != nil && open.Number != message.Stream {
		open.Close()
		open = nil
	}
	if open == nil {
		if message.Sequence != 1 {
			return result{err: transport.ErrStreamEnded}
		}
		var err error
		if open, err = conn.OpenRenewals(ctx, message.Stream); err != nil {
			return result{err: err}
		}
	}
	response, err := open.Renew(ctx, transport.RenewRequest(id, message))
	if err != nil {
		open.Close()
		return result{err: err}
	}
	answer := transport.ReadRenewed(response, sent)
	if answer.Redirect || answer.Renewed.Restart {
		open.Close()
		open = nil
	}
	return result{answer: answer, renewals: open}
}

func call(ctx context.Context, conn *transport.Conn, id string, outgoing *session.Outgoing, sent time.Time) (*transport.Answer, error) {
	if len(outgoing.Releases) > 0 {
		response, err := conn.ReleaseCapacity(ctx, transport.ReleaseRequest(id, outgoing.Releases))
		if err != nil {
			return nil, err
		}
		return transport.ReadReleased(response), nil
	}
	response, err := conn.GetCapacity(ctx, transport.AskRequest(id, outgoing.Asks))
	if err != nil {
		return nil, err
	}
	return transport.ReadAnswer(len(outgoing.Asks), response, sent)
}

// abandon drops the request in flight, which the session has abandoned.
func (d *driver) abandon() {
	sent := d.sent
	d.sent = nil
	sent.cancel()
	d.failed(sent, fmt.Sprintf("%s: no answer within %v", sent.server, d.deadline))
	// The connection may be dead.
	if d.hints != nil {
		d.follow(nil)
	}
	d.use(nil)
}

func (d *driver) finish(result result) {
	sent := d.sent
	d.sent = nil
	sent.cancel()
	if result.renewals != nil {
		d.renewOn(result.renewals)
	}
	switch answer := result.answer; {
	case sent.isStream && transport.RefusesStreams(result.err):
		why := transport.Explain(sent.server, result.err)
		d.client.log.Debug("the stream of renewals is refused", "error", why)
		d.client.report(func(session *session.Session, now time.Duration) { session.StreamRefused(now, sent.number) })
	case result.err != nil:
		if transport.IsBroken(result.err) {
			d.use(nil)
		}
		d.failed(sent, transport.Explain(sent.server, result.err))
	case answer.Redirect:
		d.redirected(sent, answer.Master)
	default:
		if sent.asks {
			if d.hints != nil {
				d.follow(d.conn)
			}
			d.discover()
		}
		d.answered(sent, answer)
	}
}

func (d *driver) failed(sent *sentRequest, why string) {
	d.client.stats.requestErrors.Add(1)
	d.client.log.Debug("request failed", "error", why)
	d.warn(sent.server, why)
	// The session has already abandoned a late request, and may have sent another.
	d.client.report(func(session *session.Session, now time.Duration) {
		session.Failed(now, sent.number)
		d.client.noteError(why)
	})
}

func (d *driver) warn(server, why string) {
	if message := d.outage.failed(server, why, d.client.describeFallback); message != "" {
		d.client.log.Warn(message)
	}
}

func (d *driver) redirected(sent *sentRequest, master string) {
	d.client.stats.redirects.Add(1)
	why := fmt.Sprintf("%s: not the master; the master is %s", sent.server, transport.Shorten(master))
	if endpoint, err := transport.ParseEndpoint(master); err != nil {
		master = ""
		why = fmt.Sprintf("%s: not the master, and knows no master", sent.server)
		d.warn(sent.server, why)
	} else {
		master = endpoint.Address
	}
	d.client.log.Debug("redirected", "why", why)
	d.client.report(func(session *session.Session, now time.Duration) {
		before := session.Failures()
		session.Redirected(now, sent.number, master)
		if session.Failures() > before {
			d.client.noteError(why)
		}
	})
}

func (d *driver) answered(sent *sentRequest, answer *transport.Answer) {
	c := d.client
	if message := d.outage.over(sent.server); message != "" {
		c.log.Info(message)
	}
	if answer.LeftOut > 0 {
		c.stats.leftOut.Add(uint64(answer.LeftOut))
		if n := d.leftOutLog.add(answer.LeftOut); n > 0 {
			c.log.Warn("no lease for some resources", "server", sent.server, "resources", n, "why", transport.Shorten(answer.Why))
		}
	}
	if n := d.malformedLog.add(len(answer.Malformed)); n > 0 {
		c.log.Warn("malformed leases", "server", sent.server, "leases", n, "first", transport.Shorten(answer.Malformed[0]))
	}
	accepted := false
	c.report(func(session *session.Session, now time.Duration) {
		if answer.Renewed != nil {
			accepted = session.StreamAnswered(now, sent.number, answer.Renewed)
			return
		}
		accepted = session.Answered(now, sent.number, answer.Granted)
	})
	if answer.Renewed != nil {
		answer.NameRenewed()
	}
	if accepted && sent.asks {
		c.setStates(answer, sent.usage)
	}
}

// discover asks every new master for the peers of its node and whether it accepts streams of renewals, and again now and
// then.
func (d *driver) discover() {
	now := d.client.now()
	if d.discovered == d.conn && now < time.Duration(d.discoverAt.Load()) {
		return
	}
	d.discovered = d.conn
	d.discoverAt.Store(int64(now + rediscoveryInterval))
	go func(conn *transport.Conn) {
		ctx, cancel := context.WithTimeout(context.Background(), d.deadline)
		defer cancel()
		peers, renewsByStream, err := conn.Discover(ctx)
		switch {
		case err == nil:
			d.client.discovered(conn.Address, peers, renewsByStream)
		case status.Code(err) != codes.Unimplemented:
			d.discoverAt.Store(int64(d.client.now() + discoveryRetryDelay))
		}
	}(d.conn)
}

// step returns what the driver has to do now.
func (c *Client) step() step {
	c.mu.Lock()
	now, suspended := c.clock.Now()
	for _, o := range c.dueEstimates(now) {
		c.want(now, o)
	}
	if c.abandoned {
		defer c.mu.Unlock()
		return step{inFlight: c.session.InFlight(), finished: true}
	}
	next := step{outgoing: c.session.Poll(now)}
	changes := c.changes(now)
	next.inFlight = c.session.InFlight()
	next.wait = max(min(c.session.Wake(now), c.nextEstimate())-now, 0)
	next.watchesPressure = c.estimateAt > now+minEstimateInterval
	// Leases that cannot be released now expire.
	next.finished = c.closing && next.inFlight == 0 && (c.session.IsIdle() || c.session.HasFailedToRelease())
	c.mu.Unlock()
	c.apply(suspended, changes)
	return next
}

// noteError notes why a request has failed. The lock must be held.
func (c *Client) noteError(why string) { c.lastError, c.lastErrorAt = why, time.Now() }

// report reports the outcome of a request to the session.
func (c *Client) report(outcome func(*session.Session, time.Duration)) {
	c.mu.Lock()
	now, suspended := c.clock.Now()
	outcome(c.session, now)
	c.takeAllowances(now)
	changes := c.changes(now)
	c.mu.Unlock()
	c.apply(suspended, changes)
}

func (c *Client) hinted(hint transport.Hint) {
	if hint.Everything || len(hint.Resources) > 0 {
		c.stats.hints.Add(1)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now, _ := c.clock.Now()
	if hint.Everything {
		c.session.HintAll(now)
	}
	for _, id := range hint.Resources {
		c.session.Hint(now, id)
	}
}

// notePressure schedules an estimate because a caller has to wait at a limiter.
func (c *Client) notePressure() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, _ := c.clock.Now()
	c.estimateSoon(now)
}

// discovered learns the peers of a server, if it has any, and whether it accepts streams of renewals.
func (c *Client) discovered(server string, peers []string, renewsByStream bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(peers) > 0 {
		c.session.Learn(peers)
	}
	from := 0
	if renewsByStream {
		from = minStreamed
	}
	c.session.OfferStream(server, from)
}

// setStates applies the states of pools, and the priorities at which the server counts this client.
func (c *Client) setStates(answer *transport.Answer, usage map[string]*session.Usage) {
	c.mu.Lock()
	now, suspended := c.clock.Now()
	var answered []*sharedResource
	for i := range answer.Granted {
		if o := c.opened[answer.Granted[i].ID]; o != nil {
			answered = append(answered, o)
		}
	}
	c.mu.Unlock()
	for _, o := range answered {
		if pool, isPool := answer.Pools[o.id]; isPool {
			o.setPool(now, suspended, &pool, usage[o.id])
		} else {
			o.setPool(now, suspended, nil, nil)
		}
		if priority, known := answer.Priorities[o.id]; known {
			if o.effectivePriority.Swap(priority) != priority && priority != *o.settings.priority {
				c.log.Info("the server counts this client at another priority than it requested", "resource", o.id,
					"claimed", *o.settings.priority, "priority", priority)
			}
		}
	}
}
