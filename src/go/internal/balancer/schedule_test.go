package balancer

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"reflect"
	"testing"
)

func (a int128) big() *big.Int {
	hi := big.NewInt(a.hi)
	return hi.Lsh(hi, 64).Add(hi, new(big.Int).SetUint64(a.lo))
}

// TestVectors replays testdata/byrequests.json, which describes its fields and is shared with the Rust client. Its
// unit_rounds belong to another algorithm.
func TestVectors(t *testing.T) {
	text, err := os.ReadFile("testdata/byrequests.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Vectors []vector }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Vectors) != 28 {
		t.Errorf("%d vectors", len(file.Vectors))
	}
	for _, vector := range file.Vectors {
		t.Run(vector.ID, func(t *testing.T) { vector.check(t) })
	}
}

type vector struct {
	ID      string
	Members []struct {
		Name     string
		LBFactor uint64
		Enabled  *bool
	}
	InitialLBStatus map[string]int64 `json:"initial_lbstatus"`
	PicksCount      int              `json:"picks_count"`
	Events          []event
	// A short vector has all Picks and statuses, a long one the first picks and the last statuses.
	Picks         []*string
	LBStatusAfter [][]*int64 `json:"lbstatus_after"`
	FirstPicks    []*string  `json:"first_picks"`
	FinalLBStatus []*int64   `json:"final_lbstatus"`
	Counts        map[string]int
	Period        int
}

type event struct {
	BeforePick int `json:"before_pick"`
	Op         string
	Member     string
	LBFactor   uint64
}

func (v *vector) check(t *testing.T) {
	picks, statuses := v.replay(t)
	expected := v.Picks
	if v.FirstPicks != nil {
		expected = v.FirstPicks
		if !reflect.DeepEqual(statuses[len(statuses)-1], v.FinalLBStatus) {
			t.Error("final statuses")
		}
	} else if !reflect.DeepEqual(statuses, v.LBStatusAfter) {
		t.Error("statuses")
	}
	if !reflect.DeepEqual(picks[:len(expected)], expected) {
		t.Error("picks")
	}
	counts := map[string]int{}
	for _, pick := range picks {
		if pick != nil {
			counts[*pick]++
		}
	}
	for name, count := range v.Counts {
		if counts[name] != count {
			t.Errorf("%s was picked %d times, expected %d", name, counts[name], count)
		}
	}
	if v.Period > 0 && !reflect.DeepEqual(picks[v.Period:], picks[:len(picks)-v.Period]) {
		t.Error("period")
	}
}

// replay returns the picks, and the statuses after each of them; nil stands for nobody and for removed members.
func (v *vector) replay(t *testing.T) (picks []*string, statuses [][]*int64) {
	schedule := NewSchedule()
	members, names := map[string]Member{}, []string(nil)
	for _, member := range v.Members {
		members[member.Name] = schedule.Add(member.LBFactor, v.InitialLBStatus[member.Name])
		names = append(names, member.Name)
		if member.Enabled != nil && !*member.Enabled {
			schedule.Disable(members[member.Name])
		}
	}
	for number := range v.PicksCount {
		var forced *Member
		for _, event := range v.Events {
			member := members[event.Member]
			switch {
			case event.BeforePick != number:
			case event.Op == "add":
				members[event.Member] = schedule.Add(event.LBFactor, 0)
				names = append(names, event.Member)
			case event.Op == "reset":
				schedule.Reset()
			case event.Op == "disable":
				schedule.Disable(member)
			case event.Op == "enable":
				schedule.Enable(member)
			case event.Op == "set_lbfactor":
				schedule.SetFactor(member, event.LBFactor)
			case event.Op == "remove":
				schedule.Remove(member)
			case event.Op == "force":
				forced = &member
			default:
				t.Fatalf("operation %q", event.Op)
			}
		}
		var member Member
		var ok bool
		if forced != nil {
			member, ok = *forced, schedule.Force(*forced)
		} else {
			member, ok = schedule.Pick()
		}
		var pick *string
		after := make([]*int64, len(names))
		for i, name := range names {
			if ok && members[name] == member {
				pick = &names[i]
			}
			if status, isPresent := schedule.status(members[name]); isPresent {
				n := status.big().Int64()
				after[i] = &n
			}
		}
		picks, statuses = append(picks, pick), append(statuses, after)
	}
	return picks, statuses
}

// naive is a literal implementation of the documented algorithm: each pick visits all members.
type naive struct {
	// members are in configuration order. Removed ones stay, so that indexes are never reused.
	members []*naiveMember
}

type naiveMember struct {
	factor    uint64
	status    *big.Int
	isEnabled bool
	isRemoved bool
}

func (n *naive) pick() (index int, ok bool) {
	total := n.accrue()
	index = -1
	for i, member := range n.members {
		if member.isEnabled && (index < 0 || member.status.Cmp(n.members[index].status) > 0) {
			index = i
		}
	}
	if index < 0 {
		return 0, false
	}
	n.members[index].status.Sub(n.members[index].status, total)
	return index, true
}

// pickWhere disables the next member for this pick until one is accepted. It returns the candidates in order.
func (n *naive) pickWhere(accept func(int) bool) (asked []int, picked int, ok bool) {
	for {
		trial := n.clone()
		for _, index := range asked {
			trial.members[index].isEnabled = false
		}
		picked, ok = trial.pick()
		if !ok {
			return asked, 0, false
		}
		asked = append(asked, picked)
		if accept(picked) {
			for _, index := range asked {
				trial.members[index].isEnabled = true
			}
			*n = trial
			return asked, picked, true
		}
	}
}

func (n *naive) clone() naive {
	var clone naive
	for _, member := range n.members {
		copied := *member
		copied.status = new(big.Int).Set(member.status)
		clone.members = append(clone.members, &copied)
	}
	return clone
}

func (n *naive) force(index int) bool {
	if !n.members[index].isEnabled {
		return false
	}
	total := n.accrue()
	n.members[index].status.Sub(n.members[index].status, total)
	return true
}

func (n *naive) accrue() *big.Int {
	for _, member := range n.members {
		if member.isEnabled {
			member.status.Add(member.status, new(big.Int).SetUint64(member.factor))
		}
	}
	enabled, _, _ := n.sums()
	return enabled
}

// sums returns the sum of the factors of enabled members, of all members, and of the statuses of enabled members.
func (n *naive) sums() (enabled, all, statuses *big.Int) {
	enabled, all, statuses = new(big.Int), new(big.Int), new(big.Int)
	for _, member := range n.members {
		factor := new(big.Int).SetUint64(member.factor)
		if !member.isRemoved {
			all.Add(all, factor)
		}
		if member.isEnabled {
			enabled.Add(enabled, factor)
			statuses.Add(statuses, member.status)
		}
	}
	return enabled, all, statuses
}

func (n *naive) rescale(index int, factor uint64) {
	if n.members[index].isRemoved || n.members[index].factor == factor {
		return
	}
	oldEnabled, oldAll, sum := n.sums()
	n.members[index].factor = factor
	newEnabled, newAll, _ := n.sums()
	scale := func(status, new, old *big.Int) {
		if old.Sign() != 0 {
			status.Mul(status, new).Quo(status, old)
		}
	}
	for _, member := range n.members {
		if member.isEnabled {
			scale(member.status, newEnabled, oldEnabled)
		} else {
			scale(member.status, newAll, oldAll)
		}
	}
	if oldEnabled.Sign() == 0 {
		return
	}
	scale(sum, newEnabled, oldEnabled)
	_, _, after := n.sums()
	for _, member := range n.members {
		if member.isEnabled {
			member.status.Add(member.status, sum.Sub(sum, after))
			return
		}
	}
}

// pair is a schedule and a naive one that do the same.
type pair struct {
	t        *testing.T
	random   *rand.Rand
	schedule *Schedule
	members  []Member
	naive    naive
}

func (p *pair) add(factor uint64, status int64) {
	p.members = append(p.members, p.schedule.Add(factor, status))
	p.naive.members = append(p.naive.members, &naiveMember{factor: factor, status: big.NewInt(status), isEnabled: true})
}

func (p *pair) indexOf(member Member) int {
	for index, known := range p.members {
		if known == member {
			return index
		}
	}
	p.t.Fatal("an unknown member")
	return 0
}

func (p *pair) act(factor func() uint64) {
	action := p.random.IntN(23)
	if len(p.members) == 0 {
		action = 22
	}
	index := 0
	if len(p.members) > 0 {
		index = p.random.IntN(len(p.members))
	}
	member, same := Member{}, &naiveMember{}
	if len(p.members) > 0 {
		member, same = p.members[index], p.naive.members[index]
	}
	switch {
	case action < 8:
		for range 1 + p.random.IntN(20) {
			picked, ok := p.schedule.Pick()
			expected, expectedOK := p.naive.pick()
			if ok != expectedOK || ok && p.indexOf(picked) != expected {
				p.t.Fatalf("picked %v %v, expected %d %v", picked, ok, expected, expectedOK)
			}
		}
	case action < 13:
		p.pickWhere()
	case action < 15:
		if ok, expected := p.schedule.Force(member), p.naive.force(index); ok != expected {
			p.t.Fatalf("forced: %v, expected %v", ok, expected)
		}
	case action < 17:
		p.schedule.Disable(member)
		same.isEnabled = false
	case action < 19:
		p.schedule.Enable(member)
		same.isEnabled = !same.isRemoved
	case action == 19:
		changed := factor()
		p.schedule.SetFactor(member, changed)
		same.factor = changed
	case action == 20:
		changed := factor()
		p.schedule.Rescale(member, changed)
		p.naive.rescale(index, changed)
	case p.random.IntN(3) == 0:
		p.schedule.Reset()
		for _, member := range p.naive.members {
			member.status.SetInt64(0)
		}
	case action == 21:
		p.schedule.Remove(member)
		same.isRemoved, same.isEnabled = true, false
	default:
		p.add(factor(), p.random.Int64N(100)-50)
	}
}

func (p *pair) pickWhere() {
	mask := p.random.Uint64()
	if p.random.IntN(3) == 0 {
		// Most are rejected.
		mask &= p.random.Uint64() & p.random.Uint64()
	}
	accept := func(index int) bool { return mask>>(index%64)&1 == 1 }
	var asked []int
	picked, ok := p.schedule.PickWhere(func(member Member) bool {
		asked = append(asked, p.indexOf(member))
		return accept(p.indexOf(member))
	})
	expectedAsked, expected, expectedOK := p.naive.pickWhere(accept)
	if !reflect.DeepEqual(asked, expectedAsked) || ok != expectedOK || ok && p.indexOf(picked) != expected {
		p.t.Fatalf("asked %v and picked %v, expected %v and %d", asked, picked, expectedAsked, expected)
	}
}

func (p *pair) compare() {
	for index, expected := range p.naive.members {
		member := p.members[index]
		status, isPresent := p.schedule.status(member)
		if isPresent == expected.isRemoved || p.schedule.IsEnabled(member) != expected.isEnabled {
			p.t.Fatalf("member %d: present %v, expected %+v", index, isPresent, expected)
		}
		if isPresent && (status.big().Cmp(expected.status) != 0 || p.schedule.Factor(member) != expected.factor) {
			p.t.Fatalf("member %d: status %v, factor %d, expected %+v", index, status, p.schedule.Factor(member), expected)
		}
	}
}

func TestPicksAndStatusesEqualThoseOfALiteralImplementation(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { compareHistories(t, seed) })
	}
}

func compareHistories(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	// Small factors cause ties, large ones spread.
	factor := func() uint64 {
		if random.IntN(5) == 0 {
			return random.Uint64N(1000)
		}
		return random.Uint64N(6)
	}
	members, actions := random.IntN(12), 80
	switch seed % 10 {
	case 0:
		members, actions = 50+random.IntN(150), 20
	case 1, 2:
		// The largest factors. There are few actions, because the statuses of the oracle are unbounded.
		small := factor
		actions = 20
		factor = func() uint64 { return []uint64{small(), random.Uint64N(MaxFactor + 1), MaxFactor}[random.IntN(3)] }
	}
	p := &pair{t: t, random: random, schedule: NewSchedule()}
	for range members {
		p.add(factor(), 0)
	}
	for range actions {
		p.act(factor)
		p.compare()
	}
}

func TestExtremeFactorsAndStatusesDoNotOverflow(t *testing.T) {
	s := NewSchedule()
	a, b, c := s.Add(1, 0), s.Add(1, 0), s.Add(1, math.MinInt64)
	all := []Member{a, b, c}
	for range 20 {
		s.Force(a)
		for _, member := range all {
			s.Rescale(member, math.MaxUint64)
		}
		s.Force(a)
		for _, member := range all {
			s.SetFactor(member, 1)
		}
		s.Disable(c)
		s.Enable(c)
	}
	bound := new(big.Int).Lsh(big.NewInt(1), 110)
	for _, member := range all {
		if status, _ := s.status(member); status.big().CmpAbs(bound) > 0 {
			t.Error(status)
		}
	}
	if picked, ok := s.Pick(); !ok || picked != b {
		t.Error(picked, ok)
	}
}

func TestAFullSchedulePicksInTurnAndRejectsAnotherMember(t *testing.T) {
	s := NewSchedule()
	members := make([]Member, MaxMembers)
	for i := range members {
		members[i] = s.Add(MaxFactor, 0)
	}
	for _, member := range members[:100] {
		if picked, _ := s.Pick(); picked != member {
			t.Fatal(picked)
		}
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("one more member")
			}
		}()
		s.Add(1, 0)
	}()
	s.Remove(members[100])
	s.Add(1, 0)
	if picked, _ := s.Pick(); picked != members[101] {
		t.Error(picked)
	}
}

func TestScalingIsExactAndBounded(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	bound := limit.big()
	for range 20_000 {
		status := int128{random.Int64() >> (random.IntN(40) + 24), random.Uint64()}
		if random.IntN(2) == 0 {
			status = status.neg()
		}
		new, old := random.Uint64()>>(1+random.IntN(62)), 1+random.Uint64()>>(1+random.IntN(62))
		expected := status.big()
		expected.Mul(expected, fromUint64(new).big()).Quo(expected, fromUint64(old).big())
		if expected.CmpAbs(bound) > 0 {
			negative := expected.Sign() < 0
			if expected.Set(bound); negative {
				expected.Neg(expected)
			}
		}
		if got := scaled(status, new, old); got.big().Cmp(expected) != 0 {
			t.Fatalf("%v · %d / %d: %v, expected %v", status.big(), new, old, got.big(), expected)
		}
	}
	if same := (int128{3, 4}); scaled(same, 7, 0) != same {
		t.Error("a sum of 0")
	}
}
