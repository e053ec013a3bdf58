package balancer

import "fmt"

// MaxMembers is the maximum number of members of a schedule. With MaxFactor it keeps the sum of factors below 2^63, so
// that no status overflows in 2^60 picks, whatever happens in between.
const MaxMembers = 1 << 16

// MaxFactor is the maximum of a factor.
const MaxFactor = 1<<47 - 1

// Member is a member of a schedule. A removed member is never confused with one that was added later.
type Member struct {
	slot  int32
	order uint64
}

// Index returns the index of a member: 0 for the first one. Indexes of removed members are reused.
func (m Member) Index() int { return int(m.slot) }

// Schedule decides which member is next. It has neither clock nor lock.
//
// At each pick the status of every enabled member grows by its factor. The member with the largest status is picked (the
// first one, if several are equal), and its status falls by the sum of the factors. A tournament tree finds it: a pick
// among n members replays about log n matches, with the picks and statuses of the literal algorithm.
//
// Operations on a removed member do nothing.
type Schedule struct {
	slots  []slot
	vacant []int32
	// tournament has the statuses of enabled members.
	tournament tournament
	totals     totals
	nextOrder  uint64
}

// totals are sums of factors.
type totals struct{ enabled, all uint64 }

type slot struct {
	isPresent bool
	isEnabled bool
	order     uint64
	factor    uint64
	// frozen is the status that a disabled member will have when it is enabled again.
	frozen int128
}

// NewSchedule returns a schedule without members.
func NewSchedule() *Schedule { return &Schedule{tournament: newTournament()} }

// Add adds an enabled member after all others, with this status. Its factor counts as MaxFactor if it is larger. Add
// panics if there are MaxMembers.
func (s *Schedule) Add(factor uint64, status int64) Member {
	if len(s.vacant) == 0 {
		if len(s.slots) == MaxMembers {
			panic(fmt.Sprintf("leaseway: a balancer has at most %d backends", MaxMembers))
		}
		s.vacant = append(s.vacant, int32(len(s.slots)))
		s.slots = append(s.slots, slot{})
	}
	last := len(s.vacant) - 1
	member := Member{s.vacant[last], s.nextOrder}
	s.vacant = s.vacant[:last]
	s.nextOrder++
	factor = min(factor, MaxFactor)
	s.slots[member.slot] = slot{isPresent: true, isEnabled: true, order: member.order, factor: factor}
	s.totals.all += factor
	s.enter(member.slot, fromInt64(status))
	return member
}

// Remove removes a member and its status. This may change the sum of the other statuses, which does not affect picks.
func (s *Schedule) Remove(member Member) {
	of := s.of(member)
	if of == nil {
		return
	}
	s.Disable(member)
	s.totals.all -= of.factor
	*of = slot{}
	s.vacant = append(s.vacant, member.slot)
}

// Pick picks the next member. It returns false, and changes nothing, if no member is enabled.
func (s *Schedule) Pick() (Member, bool) {
	if s.tournament.leader() == nobody {
		return Member{}, false
	}
	s.tournament.advance()
	next := s.tournament.leader()
	s.tournament.charge(next, s.totals.enabled)
	return s.member(next), true
}

// PickWhere picks the next member that accept accepts.
//
// A rejected member counts as disabled for this pick: it does not accrue, and the sum of factors excludes it. accept is
// not called for members behind the picked one; they accrue. If all are rejected, or accept panics, nothing changes.
//
// It costs as much as Pick, plus twice that for each rejected member.
func (s *Schedule) PickWhere(accept func(Member) bool) (picked Member, ok bool) {
	if s.tournament.leader() == nobody {
		return Member{}, false
	}
	type rejected struct {
		slot   int32
		status int128
	}
	var skipped []rejected
	s.tournament.advance()
	defer func() {
		if !ok {
			s.tournament.retreat()
		}
		for _, member := range skipped {
			s.enter(member.slot, member.status)
		}
	}()
	for {
		next := s.tournament.leader()
		if next == nobody {
			return Member{}, false
		}
		member := s.member(next)
		if accept(member) {
			s.tournament.charge(next, s.totals.enabled)
			return member, true
		}
		accrued := s.leave(next)
		skipped = append(skipped, rejected{next, accrued.sub(fromUint64(s.slots[next].factor))})
	}
}

// Force picks a certain member, for sticky sessions. It is charged as if it were next, and the others catch up
// afterwards. It returns false, and changes nothing, if the member is disabled.
func (s *Schedule) Force(member Member) bool {
	if !s.IsEnabled(member) {
		return false
	}
	s.tournament.advance()
	s.tournament.charge(member.slot, s.totals.enabled)
	return true
}

// Disable disables a member. It neither accrues nor is charged until it is enabled again.
func (s *Schedule) Disable(member Member) {
	if of := s.of(member); of != nil && of.isEnabled {
		of.frozen = s.leave(member.slot)
		of.isEnabled = false
	}
}

// Enable enables a member again, with the status it had.
func (s *Schedule) Enable(member Member) {
	if of := s.of(member); of != nil && !of.isEnabled {
		of.isEnabled = true
		s.enter(member.slot, of.frozen)
	}
}

// SetFactor changes the factor of a member but no status. Statuses are in units of factors, so after factors have become
// much smaller they take many picks to level out: see Reset and Rescale.
func (s *Schedule) SetFactor(member Member, factor uint64) {
	of := s.of(member)
	if of == nil {
		return
	}
	factor = min(factor, MaxFactor)
	s.totals.all = s.totals.all - of.factor + factor
	if !of.isEnabled {
		of.factor = factor
		return
	}
	status := s.leave(member.slot)
	of.factor = factor
	s.enter(member.slot, status)
}

// Rescale changes the factor of a member and rescales all statuses, so that each stands for as many picks as before: a
// status is multiplied by the new sum of factors, divided by the old one, and rounded toward 0. The rounding error of the
// sum of the statuses of enabled members goes to the first of them.
//
// For enabled members the sum is that of enabled members, for disabled ones it is that of all members. If the old sum is
// 0, statuses do not change.
//
// It takes time linear in the number of members.
func (s *Schedule) Rescale(member Member, factor uint64) {
	of := s.of(member)
	if of == nil || of.factor == min(factor, MaxFactor) {
		return
	}
	before := s.totals
	s.SetFactor(member, factor)
	s.rescaleEnabled(before.enabled)
	for i := range s.slots {
		if of := &s.slots[i]; of.isPresent && !of.isEnabled {
			of.frozen = scaled(of.frozen, s.totals.all, before.all)
		}
	}
}

func (s *Schedule) rescaleEnabled(before uint64) {
	if s.totals.enabled == before {
		return
	}
	after := s.totals.enabled
	sum, _ := s.sumOfEnabled()
	s.tournament.revalue(func(status int128) int128 { return scaled(status, after, before) })
	scaledSum, first := s.sumOfEnabled()
	if first != nobody {
		rest := scaled(sum, after, before).sub(scaledSum)
		s.enter(first, s.leave(first).add(rest))
	}
}

// sumOfEnabled returns the sum of the statuses of enabled members, and the first of these members or nobody.
func (s *Schedule) sumOfEnabled() (sum int128, first int32) {
	first = nobody
	for i := range s.slots {
		if of := &s.slots[i]; of.isEnabled {
			sum = sum.add(s.tournament.value(int32(i)))
			if first == nobody || of.order < s.slots[first].order {
				first = int32(i)
			}
		}
	}
	return sum, first
}

// Reset sets all statuses to 0, including those of disabled members.
func (s *Schedule) Reset() {
	s.tournament.revalue(func(int128) int128 { return int128{} })
	for i := range s.slots {
		s.slots[i].frozen = int128{}
	}
}

// Factor returns the factor of a member; 0 if it was removed.
func (s *Schedule) Factor(member Member) uint64 {
	if of := s.of(member); of != nil {
		return of.factor
	}
	return 0
}

// IsEnabled returns whether a member is enabled.
func (s *Schedule) IsEnabled(member Member) bool {
	of := s.of(member)
	return of != nil && of.isEnabled
}

// status returns the status of a member: how urgently it has to be picked, in units of factors. It returns false if the
// member was removed.
func (s *Schedule) status(member Member) (int128, bool) {
	of := s.of(member)
	switch {
	case of == nil:
		return int128{}, false
	case of.isEnabled:
		return s.tournament.value(member.slot), true
	}
	return of.frozen, true
}

func (s *Schedule) enter(slot int32, status int128) {
	of := &s.slots[slot]
	s.tournament.enter(slot, status, of.factor, of.order)
	s.totals.enabled += of.factor
}

func (s *Schedule) leave(slot int32) int128 {
	s.totals.enabled -= s.slots[slot].factor
	return s.tournament.leave(slot)
}

// of returns the slot of a member, or nil if it was removed.
func (s *Schedule) of(member Member) *slot {
	if int(member.slot) >= len(s.slots) {
		return nil
	}
	of := &s.slots[member.slot]
	if !of.isPresent || of.order != member.order {
		return nil
	}
	return of
}

func (s *Schedule) member(slot int32) Member { return Member{slot, s.slots[slot].order} }
