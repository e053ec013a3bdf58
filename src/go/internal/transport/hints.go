package transport

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaseway/leaseway/src/go/internal/wire"
)

const (
	// hintPauseFirst is the pause after a stream has ended or failed to open. It doubles up to hintPauseMax.
	hintPauseFirst = time.Second
	hintPauseMax   = time.Minute
	// hintJitter: clients of a server that is back reopen their streams spread over this time.
	hintJitter = 100 * time.Millisecond
	// hintPauseUnsupported is the pause after a server without hints, because it may be upgraded.
	hintPauseUnsupported = 10 * time.Minute
)

// Hint is a hint of the server: asking for these resources now would change their leases.
type Hint struct {
	Resources []string
	// Everything stands for all resources.
	Everything bool
}

// Hints follows the stream of hints of the current master. Servers of the original protocol have no such stream; without
// it a client depends on its refresh intervals. Follow and Stop are for one goroutine.
type Hints struct {
	// C receives the hints.
	C      chan Hint
	client string
	log    *slog.Logger
	conn   *Conn
	cancel context.CancelFunc
	// answered tells the goroutine of the stream that the server has answered a request.
	answered chan struct{}
}

// NewHints returns a receiver that follows no server yet.
func NewHints(client string, log *slog.Logger) *Hints {
	return &Hints{C: make(chan Hint), client: client, log: log, cancel: func() {}}
}

// Follow follows the server behind conn, which has answered as master. A broken stream to it is reopened at once, but no
// more than once per second, because the answer shows that the server is up.
func (h *Hints) Follow(conn *Conn) {
	if h.conn == conn {
		select {
		case h.answered <- struct{}{}:
		default:
		}
		return
	}
	h.Stop()
	ctx, cancel := context.WithCancel(context.Background())
	h.conn, h.cancel, h.answered = conn, cancel, make(chan struct{}, 1)
	go h.run(ctx, conn, h.answered)
}

// Following returns the connection that is followed, or nil.
func (h *Hints) Following() *Conn { return h.conn }

// Stop stops following.
func (h *Hints) Stop() {
	h.cancel()
	h.conn, h.cancel = nil, func() {}
}

func (h *Hints) run(ctx context.Context, conn *Conn, answered <-chan struct{}) {
	pause := hintPauses{next: hintPauseFirst}
	for {
		asked := time.Now()
		err := conn.watchHints(ctx, h.client, func(hint *wire.Hint) {
			select {
			case h.C <- pause.receive(hint):
			case <-ctx.Done():
			}
		})
		if ctx.Err() != nil {
			return
		}
		code := status.Code(err)
		h.log.Debug("no hints", "client", h.client, "server", conn.Address, "code", code, "error", err)
		until := time.Now().Add(pause.after(code))
		select {
		case <-answered:
			// An answer to a request that was sent before the stream ended does not count.
		default:
		}
		for wait := time.Until(until); wait > 0; wait = time.Until(until) {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-answered:
				if !isRefusal(code) {
					soonest := asked.Add(hintPauseFirst)
					if now := time.Now(); soonest.Before(now) {
						soonest = now
					}
					soonest = soonest.Add(time.Duration(rand.Float64() * float64(hintJitter)))
					if soonest.Before(until) {
						until = soonest
					}
				}
			case <-ctx.Done():
				timer.Stop()
				return
			}
			timer.Stop()
		}
	}
}

// hintPauses computes the pauses between streams.
type hintPauses struct{ next time.Duration }

// receive returns the contents of a hint. The first message of a stream is empty and does not reset the pause: otherwise
// two clients with the same id would take the stream from each other forever.
func (p *hintPauses) receive(hint *wire.Hint) Hint {
	if hint.GetEverything() || len(hint.GetResourceId()) > 0 {
		p.next = hintPauseFirst
	}
	return Hint{Resources: hint.GetResourceId(), Everything: hint.GetEverything()}
}

// after returns the pause after a stream has ended with this code.
func (p *hintPauses) after(code codes.Code) time.Duration {
	if code == codes.Unimplemented {
		return hintPauseUnsupported
	}
	pause := p.next
	p.next = min(2*pause, hintPauseMax)
	// Jitter, because many clients lose their streams together.
	return time.Duration(float64(pause) * (0.5 + rand.Float64()/2))
}

// isRefusal returns whether a server has refused a stream: another client has it, there are too many, or the server has
// no hints. Then its answers to requests do not shorten the pause.
func isRefusal(code codes.Code) bool {
	return code == codes.Aborted || code == codes.ResourceExhausted || code == codes.Unimplemented
}
