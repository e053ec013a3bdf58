package limiter

import (
	"container/list"
	"context"
	"slices"
	"sync"
)

// JointBudgets is amounts of budgets and the permits of a Joint, taken all or not at all. A budget may be named several
// times; the amounts add up. One with an amount of 0 is not waited for.
//
// A caller waits for one budget at a time, and holds nothing meanwhile. When it has that amount, it takes those of the
// other budgets without waiting. If one of them refuses, the caller gives back what it has and waits for that one instead.
// With all amounts it waits for the permits, and gives the amounts back if it does not get them. Since nobody holds
// anything while waiting for a budget, no order of the limits leads to a deadlock.
type JointBudgets struct {
	*Joint
	// needed has each budget with an amount once.
	needed []neededBudget
}

// neededBudget is a budget, and the sum of its parts.
type neededBudget struct {
	budget *Budget
	amount float64
	parts  []int
}

// Spends has for each part where its amount was spent. It is zero for parts without an amount.
type Spends []SpentIn

// NewJointBudgets returns amounts and permits of these limiters.
func NewJointBudgets(parts []Part) *JointBudgets {
	j := &JointBudgets{Joint: NewJoint(parts)}
	totals := map[*Budget]sum{}
	for at, part := range parts {
		if part.Budget == nil || part.Amount == 0 {
			continue
		}
		total := totals[part.Budget].plus(sumOf(part.Amount))
		totals[part.Budget] = total
		i := slices.IndexFunc(j.needed, func(need neededBudget) bool { return need.budget == part.Budget })
		if i < 0 {
			i = len(j.needed)
			j.needed = append(j.needed, neededBudget{budget: part.Budget})
		}
		// Rounded up, so that the parts together never take back more than was spent.
		j.needed[i].amount = total.ceil()
		j.needed[i].parts = append(j.needed[i].parts, at)
	}
	return j
}

// Acquire waits for all amounts and permits, and takes them. If the context ends first, nothing is taken.
func (j *JointBudgets) Acquire(ctx context.Context) (Spends, error) {
	spends, err := j.spend(ctx)
	if err != nil {
		return nil, err
	}
	if err := j.Joint.Acquire(ctx); err != nil {
		j.GiveBack(spends)
		return nil, err
	}
	return spends, nil
}

// TryAcquire takes all amounts and permits if they are available and no caller waits for them. It asks the budgets first.
// The refusal is nil if it passes.
func (j *JointBudgets) TryAcquire() (Spends, *Refusal) {
	spends := make(Spends, len(j.parts))
	if refusal := j.trySpend(spends, false); refusal != nil {
		refusal.Index = j.needed[refusal.Index].parts[0]
		return nil, refusal
	}
	if refusal := j.Joint.TryAcquire(); refusal != nil {
		j.GiveBack(spends)
		return nil, refusal
	}
	return spends, nil
}

// GiveBack takes back all amounts, and notes them as demand, because the caller waits for something else or may try again.
func (j *JointBudgets) GiveBack(spends Spends) {
	for _, need := range j.needed {
		if in := spends[need.parts[0]]; in != (SpentIn{}) {
			need.budget.GiveBack(need.amount, in)
			need.note(spends, SpentIn{})
		}
	}
}

// spend waits for the amounts of all budgets, and spends them.
func (j *JointBudgets) spend(ctx context.Context) (Spends, error) {
	spends := make(Spends, len(j.parts))
	for at := 0; at < len(j.needed); {
		need := j.needed[at]
		in, err := need.budget.Spend(ctx, need.amount)
		if err != nil {
			return nil, err
		}
		need.note(spends, in)
		refusal := j.trySpend(spends, true)
		switch {
		case refusal == nil:
			return spends, nil
		case refusal.IsClosed:
			return nil, ErrClosed
		}
		at = refusal.Index
	}
	return spends, nil
}

// trySpend spends the amounts that are not spent yet without waiting. If a budget refuses, it gives back all of them, and
// the index is that of the needed budget. waits says that the caller will wait for that budget.
func (j *JointBudgets) trySpend(spends Spends, waits bool) *Refusal {
	outcomes := make([]*Refusal, len(j.needed))
	for at, need := range j.needed {
		if spends[need.parts[0]] != (SpentIn{}) {
			continue
		}
		in, err := need.budget.TrySpend(need.amount, waits)
		if err != nil {
			outcomes[at] = &Refusal{Index: at, RetryAfter: Unknown, IsClosed: err == ErrClosed}
			continue
		}
		need.note(spends, in)
	}
	refusal := slowest(outcomes)
	if refusal != nil {
		j.GiveBack(spends)
	}
	return refusal
}

func (n *neededBudget) note(spends Spends, in SpentIn) {
	for _, at := range n.parts {
		spends[at] = in
	}
}

// Refundable has the amounts of operations that have not ended. Only of those an amount can be returned afterwards: it is
// known in which period they were spent.
type Refundable struct {
	mu sync.Mutex
	// operations are in the order in which they began.
	operations list.List
}

type operation struct {
	spends Spends
	// left has for each part what was not returned yet.
	left []sum
}

// Add adds the amounts of an operation. The caller calls end when it has ended.
func (r *Refundable) Add(parts []Part, spends Spends) (end func()) {
	if !slices.ContainsFunc(spends, func(in SpentIn) bool { return in != SpentIn{} }) {
		return func() {}
	}
	left := make([]sum, len(parts))
	for i := range parts {
		left[i] = sumOf(parts[i].Amount)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	element := r.operations.PushBack(&operation{spends, left})
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.operations.Remove(element)
	}
}

// Refund takes back an amount of the part with this index, as settling does: from the oldest operations, so that an amount
// spent in an earlier period is never taken from this one.
func (r *Refundable) Refund(at int, budget *Budget, amount float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for element := r.operations.Front(); element != nil && amount > 0; element = element.Next() {
		o := element.Value.(*operation)
		back := min(o.left[at].floor(), amount)
		budget.Settle(back, 0, o.spends[at])
		o.left[at] = o.left[at].minus(sumOf(back))
		amount -= back
	}
}
