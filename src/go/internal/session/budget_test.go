package session

import (
	"testing"
	"time"
)

// spent is the demand of an incarnation that has spent this much.
func spent(incarnation uint64, amount float64) Wants {
	return Wants{Amount: 10, Spent: &BudgetUse{Incarnation: incarnation, Spent: amount, Period: 1000}}
}

func allowance(capacity float64, token uint64) GrantedLease {
	lease := given("r", capacity, token)
	lease.Budget = &BudgetLease{Start: 1000, End: 2000}
	return lease
}

// spending is a session of the first incarnation of a client of a budget, with an allowance of 10.
func spending(t *testing.T) tester {
	t.Helper()
	s := tester{t, newSession("a:1")}
	s.Want(0, "r", spent(1, 0), Pessimistic)
	s.answer(10*ms, s.poll(0).Number, allowance(10, 1))
	if lease := s.Lease(20*ms, "r"); lease == nil || lease.Budget.End != 2000 {
		t.Fatal(lease)
	}
	return s
}

func TestReportsAreSentPromptlyIfAnAllowanceIsMissing(t *testing.T) {
	s := spending(t)
	demand := func(change func(*BudgetUse)) Wants {
		wants := spent(1, 0)
		change(wants.Spent)
		return wants
	}
	for what, c := range map[string]struct {
		demand   Wants
		isUrgent bool
	}{
		"more is spent":             {demand(func(u *BudgetUse) { u.Spent = 9 }), false},
		"little is left":            {demand(func(u *BudgetUse) { u.Spent, u.IsShort = 9, true }), true},
		"a caller waits":            {demand(func(u *BudgetUse) { u.Need, u.IsShort = 20, true }), true},
		"nothing has changed since": {demand(func(u *BudgetUse) { u.IsShort = true }), false},
		"another period":            {demand(func(u *BudgetUse) { u.Period = 2000 }), true},
		"another incarnation":       {spent(2, 0), true},
	} {
		if asked := spent(1, 0); c.demand.isUrgent(&asked) != c.isUrgent {
			t.Errorf("%s: urgent %v", what, !c.isUrgent)
		}
	}
	if wants := spent(1, 0); wants.isSame(&wants) {
		t.Error("a renewal by index has no report")
	}
	s.Release("r")
	if releases := s.poll(20 * ms).Releases; len(releases) != 1 || releases[0].Spent == nil {
		t.Errorf("%+v", releases)
	}
}

func TestAnAllowanceBelongsToOneIncarnation(t *testing.T) {
	// Closed and opened again, before and after the release was sent.
	for _, isSent := range []bool{false, true} {
		s := spending(t)
		s.Release("r")
		if isSent {
			s.poll(20 * ms)
		}
		s.Want(30*ms, "r", spent(2, 0), Pessimistic)
		if lease := s.Lease(30*ms, "r"); lease != nil {
			t.Errorf("the next incarnation has %+v", lease)
		}
	}
	// Opened again before it was released at all.
	s := spending(t)
	s.Want(30*ms, "r", spent(2, 0), Pessimistic)
	if lease := s.Lease(30*ms, "r"); lease != nil {
		t.Errorf("the next incarnation has %+v", lease)
	}
	s.names(s.poll(s.Wake(30*ms)), 0, 0)
	// During a request.
	s = spending(t)
	asked := s.poll(s.Wake(20 * ms))
	s.Release("r")
	s.Want(5*time.Second, "r", spent(2, 0), Pessimistic)
	s.answer(5*time.Second, asked.Number, allowance(12, 2))
	if lease := s.Lease(5*time.Second, "r"); lease != nil {
		t.Errorf("the next incarnation has %+v", lease)
	}
	again := s.poll(5200 * ms)
	s.answer(5300*ms, again.Number, allowance(5, 3))
	s.hasCapacity(5300*ms, "r", 5)
}
