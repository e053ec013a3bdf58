package limiter

import (
	"context"
	"errors"
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
	// done is closed when the amount was spent: then spentIn is set, or when the budget was closed: then err is set.
	done    chan struct{}
	spentIn SpentIn
	err     error
}

// NewBudget returns a budget without an allowance. onPressure is called if a larger allowance is needed soon. It must not
// block.
func NewBudget(now func() time.Duration, onPressure func()) *Budget {
	return &Budget{now: now, onPressure: onPressure, book: NewBudgetBook(0, newIncarnation())}
}

func newIncarnation() uint64 { return max(rand.Uint64(), 1) }

// errNotCovered says that the allowance does not cover an amount now, or that a caller waits already.
var errNotCovered = errors.New("leaseway: the allowance does not cover the amount now")

// TrySpend spends an amount if the allowance covers it now and no caller waits. waits says that the caller will wait if it
// is refused. Otherwise a refused amount is noted as demand. The error is ErrClosed or errNotCovered.
func (b *Budget) TrySpend(amount float64, waits bool) (SpentIn, error) {
	now := b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return SpentIn{}, ErrClosed
	}
	if len(b.spenders) > 0 {
		return SpentIn{}, errNotCovered
	}
	isSpent := b.book.Spend(now, amount)
	if !isSpent && !waits {
		b.book.Refuse(now, amount)
	}
	if !isSpent || b.book.IsShort(now) {
		b.onPressure()
	}
	if !isSpent {
		return SpentIn{}, errNotCovered
	}
	return b.book.SpendsIn(), nil
}

// Spend waits until the allowance covers an amount, and spends it. If the context ends first, nothing is spent.
func (b *Budget) Spend(ctx context.Context, amount float64) (SpentIn, error) {
	if err := ctx.Err(); err != nil {
		return SpentIn{}, err
	}
	spentIn, s, err := b.spendOrQueue(amount)
	if s == nil {
		return spentIn, err
	}
	select {
	case <-s.done:
		return s.spentIn, s.err
	case <-ctx.Done():
	}
	now := b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	at := slices.Index(b.spenders, s)
	if at < 0 {
		// At the same moment the amount was spent, or the budget was closed.
		return s.spentIn, s.err
	}
	b.spenders = slices.Delete(b.spenders, at, at+1)
	b.waiting = b.waiting.minus(sumOf(s.amount))
	b.serve(now)
	return SpentIn{}, ctx.Err()
}

// spendOrQueue spends an amount at once, or returns the caller's place in the queue.
func (b *Budget) spendOrQueue(amount float64) (SpentIn, *spender, error) {
	now := b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return SpentIn{}, nil, ErrClosed
	}
	if len(b.spenders) == 0 && b.book.Spend(now, amount) {
		if b.book.IsShort(now) {
			b.onPressure()
		}
		return b.book.SpendsIn(), nil, nil
	}
	s := &spender{amount: amount, done: make(chan struct{})}
	b.spenders = append(b.spenders, s)
	b.waiting = b.waiting.plus(sumOf(amount))
	b.serve(now)
	return SpentIn{}, s, nil
}

// Settle says that of an amount spent in advance this much was used. It takes back the rest, or charges the excess.
func (b *Budget) Settle(reserved, used float64, in SpentIn) {
	b.update(func(now time.Duration) { b.book.Settle(now, reserved, used, in) })
}

// GiveBack takes back an amount spent in advance, and notes it as demand, because its caller may try again.
func (b *Budget) GiveBack(amount float64, in SpentIn) {
	b.update(func(now time.Duration) {
		b.book.Settle(now, amount, 0, in)
		b.book.Refuse(now, amount)
	})
}

// Charge spends an amount that was used already. What the allowance does not cover is owed. The error is ErrClosed.
func (b *Budget) Charge(amount float64) error {
	now := b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return ErrClosed
	}
	b.book.Charge(now, amount)
	b.serve(now)
	return nil
}

func (b *Budget) update(change func(now time.Duration)) {
	now := b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	change(now)
	b.serve(now)
}

// serve spends for the callers at the head of the queue, as far as the allowance goes. The lock must be held.
func (b *Budget) serve(now time.Duration) {
	served := 0
	for served < len(b.spenders) && b.book.Spend(now, b.spenders[served].amount) {
		s := b.spenders[served]
		b.waiting = b.waiting.minus(sumOf(s.amount))
		s.spentIn = b.book.SpendsIn()
		close(s.done)
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
	asks := b.book.Take(now, lease, newIncarnation)
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

// Owed returns what was charged and is not covered by an allowance yet.
func (b *Budget) Owed() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.book.Owed()
}

// Spent returns what was spent in the current period.
func (b *Budget) Spent() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.book.Spent()
}

// Waiting returns what callers wait for.
func (b *Budget) Waiting() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting.ceil()
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
