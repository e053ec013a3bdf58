package balancer

import "math"

// tournament is a kinetic tournament: it finds the largest of many values that each grow by their own factor per step.
//
// A value is a line, base + factor · step. The leader of two lines changes at most once, at a step that is known in
// advance. A tree of matches stores at every node the leader below it, and the first step at which that may change. A
// step replays only the matches that are due; changing a value replays the matches on its path to the root.
type tournament struct {
	// lines are by slot. Those of absent slots are stale.
	lines []line
	// matches has the root at 1, the matches below n at 2n and 2n + 1, and slot s as the leaf len(lines) + s.
	matches []match
	step    uint64
}

// line is a value that grows: base + factor · step.
type line struct {
	base   int128
	factor uint64
	// order breaks ties: the lower one leads.
	order uint64
}

type match struct {
	// leader is a slot, or nobody.
	leader int32
	// until is the step from which on another slot may lead.
	until uint64
}

const nobody = -1

var emptyMatch = match{nobody, math.MaxUint64}

func newTournament() tournament {
	return tournament{lines: make([]line, 1), matches: []match{emptyMatch, emptyMatch}}
}

// enter adds a slot with its value at the current step.
func (t *tournament) enter(slot int32, value int128, factor, order uint64) {
	for int(slot) >= len(t.lines) {
		t.widen()
	}
	t.lines[slot] = line{value.sub(t.grown(factor)), factor, order}
	t.setLeaf(slot, match{slot, math.MaxUint64})
}

// leave removes a slot. It returns its value at the current step.
func (t *tournament) leave(slot int32) int128 {
	value := t.value(slot)
	t.setLeaf(slot, emptyMatch)
	return value
}

// value returns the value of a slot at the current step.
func (t *tournament) value(slot int32) int128 {
	line := &t.lines[slot]
	return line.base.add(t.grown(line.factor))
}

// leader returns the slot with the largest value, or nobody: the one with the lowest order if several are equal.
func (t *tournament) leader() int32 { return t.matches[1].leader }

// advance advances by a step: every value grows by its factor.
func (t *tournament) advance() {
	t.step++
	t.replayDue(1)
}

// retreat undoes the last advance. It takes linear time.
func (t *tournament) retreat() {
	t.step--
	t.replayAll()
}

// charge subtracts from the value of a slot.
func (t *tournament) charge(slot int32, amount uint64) {
	t.lines[slot].base = t.lines[slot].base.sub(fromUint64(amount))
	t.replayAbove(slot)
}

// revalue replaces all values. It takes linear time.
func (t *tournament) revalue(change func(int128) int128) {
	for _, leaf := range t.matches[len(t.lines):] {
		if leaf.leader != nobody {
			line := &t.lines[leaf.leader]
			grown := t.grown(line.factor)
			line.base = change(line.base.add(grown)).sub(grown)
		}
	}
	t.replayAll()
}

func (t *tournament) grown(factor uint64) int128 { return product(factor, t.step) }

func (t *tournament) widen() {
	width := len(t.lines)
	leaves := t.matches[width:]
	t.lines = append(t.lines, make([]line, width)...)
	t.matches = make([]match, 4*width)
	for n := range t.matches {
		t.matches[n] = emptyMatch
	}
	copy(t.matches[2*width:], leaves)
	t.replayAll()
}

func (t *tournament) setLeaf(slot int32, leaf match) {
	t.matches[len(t.lines)+int(slot)] = leaf
	t.replayAbove(slot)
}

func (t *tournament) replayAbove(slot int32) {
	for node := (len(t.lines) + int(slot)) / 2; node > 0; node /= 2 {
		t.replay(node)
	}
}

func (t *tournament) replayDue(node int) {
	// Leaves are never due, which ends the recursion.
	if t.matches[node].until <= t.step {
		t.replayDue(2 * node)
		t.replayDue(2*node + 1)
		t.replay(node)
	}
}

func (t *tournament) replayAll() {
	for node := len(t.lines) - 1; node > 0; node-- {
		t.replay(node)
	}
}

func (t *tournament) replay(node int) {
	left, right := t.matches[2*node], t.matches[2*node+1]
	switch {
	case left.leader == nobody:
		t.matches[node] = right
	case right.leader == nobody:
		t.matches[node] = left
	default:
		leader, overtaken := t.decide(left.leader, right.leader)
		t.matches[node] = match{leader, min(overtaken, left.until, right.until)}
	}
}

// decide returns the leader of two slots, and the first step at which the other one leads.
func (t *tournament) decide(one, other int32) (leader int32, overtaken uint64) {
	gap := t.value(one).sub(t.value(other))
	lineOne, lineOther := &t.lines[one], &t.lines[other]
	if gap.isNegative() || gap.isZero() && lineOne.order > lineOther.order {
		return other, t.overtaken(gap.neg(), lineOther, lineOne)
	}
	return one, t.overtaken(gap, lineOne, lineOther)
}

func (t *tournament) overtaken(gap int128, leader, follower *line) uint64 {
	if follower.factor <= leader.factor {
		return math.MaxUint64
	}
	closing := follower.factor - leader.factor
	// A gap that exceeds 64 bits is truncated: the match is replayed too early, which is harmless.
	distance := gap.saturated()
	steps := distance / closing
	if distance%closing > 0 || follower.order > leader.order {
		// The follower leads if it is ahead, or level and first in order.
		steps = saturatingAdd(steps, 1)
	}
	return saturatingAdd(t.step, steps)
}

func saturatingAdd(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}
