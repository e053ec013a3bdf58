package leaseway

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"github.com/leaseway/leaseway/src/go/internal/limiter"
	"github.com/leaseway/leaseway/src/go/internal/session"
)

// Option configures a client.
type Option interface{ applyToClient(*settings) }

// ResourceOption configures a resource. All handles of a resource share the settings of the first one. Opening another
// handle with an option that differs from them fails with an [OptionError], and so does an option for another kind.
type ResourceOption interface{ applyToResource(*resourceSettings) }

type settings struct {
	endpoints  []string
	id         string
	mode       Mode
	pace       session.Pace
	tls        *tls.Config
	token      string
	tokenFile  string
	clearToken bool
	noHints    bool
	log        *slog.Logger
	seed       *uint64
	observe    func(LeaseChange)
	dial       func(ctx context.Context, network, address string) (net.Conn, error)
}

// resourceSettings has the settings of a resource. Those that no option has set are nil; without wants, they are estimated.
type resourceSettings struct {
	wants    *float64
	priority *int64
	mode     *Mode
	burst    *limiter.Burst
	maxDebt  *uint64
	err      error
}

// newResourceSettings checks options for a resource of a kind.
func newResourceSettings(kind string, options []ResourceOption) (*resourceSettings, error) {
	s := new(resourceSettings)
	for _, option := range options {
		option.applyToResource(s)
	}
	switch {
	case s.err != nil:
		return nil, s.err
	case kind != kindRate && s.burst != nil:
		return nil, badOption("burst", "it applies to rates, not to a %s", kind)
	case kind != kindRate && s.maxDebt != nil:
		return nil, badOption("maximum debt", "it applies to rates, not to a %s", kind)
	case kind == kindBudget && s.wants != nil:
		return nil, badOption("wants", "a budget always asks for what is needed")
	case kind == kindBudget && s.mode != nil:
		return nil, badOption("mode", "after the expiry nothing is spent of a budget, in any mode")
	case s.wants != nil:
		return s, checkWants(*s.wants)
	}
	return s, nil
}

// checkSame returns an error if a setting differs from those of a resource that is open already.
func (s *resourceSettings) checkSame(known *resourceSettings) error {
	const why = "it differs from that of the first handle, which all handles of a resource share"
	switch {
	case differs(s.wants, known.wants):
		return badOption("wants", why)
	case differs(s.priority, known.priority):
		return badOption("priority", why)
	case differs(s.mode, known.mode):
		return badOption("mode", why)
	case differs(s.burst, known.burst):
		return badOption("burst", why)
	case differs(s.maxDebt, known.maxDebt):
		return badOption("maximum debt", why)
	}
	return nil
}

func differs[T comparable](given, known *T) bool {
	return given != nil && (known == nil || *given != *known)
}

// setDefaults sets what no option has set, for a resource of a kind and a client of this mode.
func (s *resourceSettings) setDefaults(kind string, mode Mode) {
	if kind == kindBudget {
		// Nothing may be spent after the expiry.
		mode, s.wants = Pessimistic, new(float64)
	}
	setDefault(&s.priority, 0)
	setDefault(&s.mode, mode)
	setDefault(&s.burst, limiter.Burst{})
	setDefault(&s.maxDebt, limiter.DefaultMaxDebt)
}

func setDefault[T any](setting **T, value T) {
	if *setting == nil {
		*setting = &value
	}
}

type clientOption func(*settings)

func (o clientOption) applyToClient(s *settings) { o(s) }

type resourceOption func(*resourceSettings)

func (o resourceOption) applyToResource(s *resourceSettings) { o(s) }

// Mode says what to use when a lease has expired unrenewed, or none could be obtained. The server does not guarantee
// this capacity, because it counts expired leases as free.
type Mode int

const (
	// Safe uses the safe capacity that the server sent last, and nothing if it sent none. This is the default.
	Safe Mode = iota
	// Pessimistic uses nothing: callers wait or are refused. For work that can be postponed.
	Pessimistic
	// Optimistic uses all of the wants. For interactive work on a resource that protects itself.
	Optimistic
)

// String returns the name of the mode in lower case.
func (m Mode) String() string { return session.Mode(m).String() }

func (m Mode) applyToClient(s *settings) { s.mode = m }

func (m Mode) applyToResource(s *resourceSettings) {
	if err := checkMode(m); err != nil {
		s.err = err
	}
	s.mode = &m
}

// WithMode sets the [Mode] of a client or of a resource. A Mode is an option itself, too.
func WithMode(mode Mode) interface {
	Option
	ResourceOption
} {
	return mode
}

// WithEndpoints adds servers of the node. Any server will do, because one that is not the master redirects, and the
// master names its peers; name several for fault tolerance at the start.
func WithEndpoints(endpoints ...string) Option {
	return clientOption(func(s *settings) { s.endpoints = append(s.endpoints, endpoints...) })
}

// WithID sets the id of the client (default HOST:PID:NUMBER). Two clients that run at the same time must not share an
// id: the server would mix up their leases.
func WithID(id string) Option {
	return clientOption(func(s *settings) { s.id = id })
}

// WithTLS connects over TLS. nil stands for the default configuration, which trusts the CAs of the system; an endpoint
// https://HOST:PORT without this option uses that, too. To use renewed certificates without a restart, set
// GetClientCertificate.
func WithTLS(config *tls.Config) Option {
	if config == nil {
		config = defaultTLS()
	}
	return clientOption(func(s *settings) { s.tls = config.Clone() })
}

func defaultTLS() *tls.Config { return &tls.Config{MinVersion: tls.VersionTLS12} }

// WithToken sends a bearer token with every request. It is only sent over TLS, or to this machine: [Dial] refuses other
// endpoints, and servers that the master names are not asked.
func WithToken(token string) Option {
	return clientOption(func(s *settings) { s.token = token })
}

// WithTokenFile sends the bearer token in a file with every request, and reads the file again when it changes.
func WithTokenFile(path string) Option {
	return clientOption(func(s *settings) { s.tokenFile = path })
}

// WithClearToken allows the token to be sent without TLS, if a tunnel protects the connection.
func WithClearToken() Option {
	return clientOption(func(s *settings) { s.clearToken = true })
}

// WithDeadline sets the timeout of requests (default 3 s). Then the next server is tried.
func WithDeadline(deadline time.Duration) Option {
	return clientOption(func(s *settings) { s.pace.Deadline = deadline })
}

// WithBackoffMax sets the maximum pause between attempts while no server answers (default 15 s). The first pause is
// 100 ms. Pauses are also bounded such that every endpoint is tried once per refresh interval.
func WithBackoffMax(pause time.Duration) Option {
	return clientOption(func(s *settings) { s.pace.BackoffMax = pause })
}

// WithRefreshMin sets the minimum refresh interval (default 1 s), whatever the server says.
func WithRefreshMin(interval time.Duration) Option {
	return clientOption(func(s *settings) { s.pace.RefreshMin = interval })
}

// WithoutHints disables the hint stream. Capacity changes then arrive with the next refresh.
func WithoutHints() Option {
	return clientOption(func(s *settings) { s.noHints = true })
}

// WithLogger sets the logger (default slog.Default()). The client logs outages and leases that have ended, each at most once
// a minute.
func WithLogger(log *slog.Logger) Option {
	return clientOption(func(s *settings) { s.log = log })
}

// WithSeed seeds the jitter, for reproducible tests.
func WithSeed(seed uint64) Option {
	return clientOption(func(s *settings) { s.seed = &seed })
}

// WithDialContext makes the TCP connections with this function, for proxies and tests.
func WithDialContext(dial func(ctx context.Context, network, address string) (net.Conn, error)) Option {
	return clientOption(func(s *settings) { s.dial = dial })
}

// LeaseChange is a change of leased capacity, until the next change of the same resource.
type LeaseChange struct {
	At       time.Time
	Client   string
	Resource string
	// Capacity is 0 once a lease has expired, because no server guarantees a fallback.
	Capacity float64
}

// WithLeaseObserver calls observe for each change of leased capacity, for audits: the sum over all clients must not
// exceed the capacity. A rise is reported before it is applied, and a fall afterwards. observe must
// neither block nor use the client.
func WithLeaseObserver(observe func(LeaseChange)) Option {
	return clientOption(func(s *settings) { s.observe = observe })
}

// WithWants sets the capacity to ask for. By default it is estimated from the permits that callers take or wait for.
func WithWants(wants float64) ResourceOption {
	return resourceOption(func(s *resourceSettings) { s.wants = &wants })
}

// WithPriority sets the priority that this client claims (default 0). Its meaning depends on the resource.
func WithPriority(priority int64) ResourceOption {
	return resourceOption(func(s *resourceSettings) { s.priority = &priority })
}

// WithBurst sets the number of permits of a rate that may pass at once after a pause. The default is one permit plus
// 20 ms of the capacity.
func WithBurst(permits float64) ResourceOption {
	return resourceOption(func(s *resourceSettings) {
		if !(permits >= 0) {
			s.err = badOption("burst", "%g is not a number of permits", permits)
		}
		s.burst = &limiter.Burst{Kind: limiter.PermitsBurst, Permits: permits}
	})
}

// WithWindow lets a rate save up the capacity of this duration, for callers that rest and come back, and for budgets per
// second, minute or day. When the capacity is cut, saved permits are cut in proportion.
func WithWindow(window time.Duration) ResourceOption {
	return resourceOption(func(s *resourceSettings) {
		if window < 0 {
			s.err = badOption("window", "%v is negative", window)
		}
		s.burst = &limiter.Burst{Kind: limiter.WindowBurst, Window: window}
	})
}

// WithMaxDebt sets the maximum debt of a rate due to charges (default 1,000,000), see [Rate.Charge].
func WithMaxDebt(permits int) ResourceOption {
	return resourceOption(func(s *resourceSettings) {
		if permits < 0 {
			s.err = badOption("maximum debt", "%d is negative", permits)
		}
		maxDebt := uint64(permits)
		s.maxDebt = &maxDebt
	})
}
