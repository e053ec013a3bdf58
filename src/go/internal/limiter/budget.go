package limiter

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/leaseway/leaseway/src/go/internal/session"
)

// Budget spends from the allowance of a budget, first come, first served.
type Budget struct {
	// now returns the time on the clock of the leases. It is called without the lock.
	now        func() time.Duration
	onPressure func()

	mu   sync.Mutex
	book BudgetBook
	// spenders are the callers that wait, and waiting is what they wait for. The allowance does not cover the first.
	spenders []*spender
	waiting  sum
	closed   bool
}

// spender is a caller that waits for an allowance.
type spender struct {
	amount float64
	// done is closed when the amount was spent, or when the budget was closed: then err is set.
	done chan struct{}
	err  error
}

// NewBudget returns a budget without an allowance. onPressure is called if a larger allowance is needed soon. It must not
// block.
func NewBudget(now func() time.Duration, onPressure func()) *Budget {
	return &Budget{now: now, onPressure: onPressure, book: NewBudgetBook(0, newIncarnation())}
}

func newIncarnation() uint64 { return max(rand.Uint64(), 1) }

// TrySpend spends an amount if the allowance covers it now and no caller waits.
func (b *Budget) TrySpend(amount float64) bool {
	now := b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || len(b.spenders) > 0 {
		return false
	}
	isSpent := b.book.Spend(now, amount)
	if !isSpent {
		b.book.Refuse(now, amount)
	}
	if !isSpent || b.book.IsShort(now) {
		b.onPressure()
	}
	return isSpent
}

// Spend waits until the allowance covers an amount, and spends it. If the context ends first, nothing is spent.
func (b *Budget) Spend(ctx context.Context, amount float64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s, err := b.spendOrQueue(amount)
	if s == nil {
		return err
	}
	select {
	case <-s.done:
		return s.err
	case <-ctx.Done():
	}
	now := b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	at := slices.Index(b.spenders, s)
	if at < 0 {
		// At the same moment the amount was spent, or the budget was closed.
		return s.err
	}
	b.spenders = slices.Delete(b.spenders, at, at+1)
	b.waiting = b.waiting.minus(sumOf(s.amount))
	b.serve(now)
	return ctx.Err()
}

// spendOrQueue spends an amount at once, or returns the caller's place in the queue.
func (b *Budget) spendOrQueue(amount float64) (*spender, error) {
	now := b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, ErrClosed
	}
	if len(b.spenders) == 0 && b.book.Spend(now, amount) {
		if b.book.IsShort(now) {
			b.onPressure()
		}
		return nil, nil
	}
	s := &spender{amount: amount, done: make(chan struct{})}
	b.spenders = append(b.spenders, s)
	b.waiting = b.waiting.plus(sumOf(amount))
	b.serve(now)
	return s, nil
}

// serve spends for the callers at the head of the queue, as far as the allowance goes. The lock must be held.
func (b *Budget) serve(now time.Duration) {
	served := 0
	for served < len(b.spenders) && b.book.Spend(now, b.spenders[served].amount) {
		b.waiting = b.waiting.minus(sumOf(b.spenders[served].amount))
		close(b.spenders[served].done)
		served++
	}
	b.spenders = slices.Delete(b.spenders, 0, served)
	first := 0.0
	if len(b.spenders) > 0 {
		first = b.spenders[0].amount
	}
	b.book.SetWaiting(b.waiting.ceil(), first)
	if b.book.IsShort(now) {
		b.onPressure()
	}
}

// Take takes the newest lease. It returns whether the client should ask again at once.
func (b *Budget) Take(now time.Duration, lease *session.Lease) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	asks := b.book.Take(lease, newIncarnation)
	if len(b.spenders) > 0 {
		b.serve(now)
	}
	return asks
}

// Wants returns the demand and the report for a request.
func (b *Budget) Wants(now time.Duration) (float64, *session.BudgetUse) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.book.Wants(now)
}

// HasWaiting returns whether callers wait.
func (b *Budget) HasWaiting() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.spenders) > 0
}

// Left returns what may be spent now, without asking.
func (b *Budget) Left() float64 {
	now := b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.book.Left(now)
}

// Spent returns what was spent in the current period.
func (b *Budget) Spent() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.book.Spent()
}

// Period returns the current period, or nil before the first lease.
func (b *Budget) Period() *session.BudgetLease {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.book.Period()
}

// Close refuses the callers that wait, and all that come later.
func (b *Budget) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.book.Close()
	for _, s := range b.spenders {
		s.err = ErrClosed
		close(s.done)
	}
	b.spenders, b.waiting = nil, sum{}
	b.book.SetWaiting(0, 0)
}
