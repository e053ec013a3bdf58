package session

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// grant is a lease that a master has given and not yet seen superseded.
type grant struct {
	token    uint64
	capacity float64
	end      time.Duration
}

// master is the smallest master that keeps the rules of the protocol: a client holds the largest of its grants until a
// later one is confirmed, and gets no more than the others leave.
type master struct {
	capacity float64
	grants   map[string][]grant
	next     uint64
}

func (m *master) held(now time.Duration, client string) (held float64) {
	for _, grant := range m.grants[client] {
		if now < grant.end {
			held = max(held, grant.capacity)
		}
	}
	return held
}

// drop drops grants of a client.
func (m *master) drop(client string, isDropped func(token uint64) bool) {
	m.grants[client] = slices.DeleteFunc(m.grants[client], func(grant grant) bool { return isDropped(grant.token) })
}

func (m *master) answer(now time.Duration, client string, outgoing *Outgoing) []GrantedLease {
	for _, release := range outgoing.Releases {
		m.drop(client, func(token uint64) bool { return token <= release.Token })
	}
	var answer []GrantedLease
	for _, ask := range outgoing.Asks {
		if ask.Has != nil {
			m.drop(client, func(token uint64) bool { return token < ask.Has.Token })
		}
		free := m.capacity
		for other := range m.grants {
			if other != client {
				free -= m.held(now, other)
			}
		}
		m.next++
		lease := given(ask.ID, max(min(ask.Demand.Amount, free, m.capacity*0.6), 0), m.next)
		lease.Length, lease.Refresh, lease.HasSafe = 20*time.Second, 2*time.Second, false
		m.grants[client] = append(m.grants[client], grant{m.next, lease.Wire.Capacity, now + lease.Length})
		answer = append(answer, lease)
	}
	return answer
}

// delivery is a message on its way.
type delivery struct {
	at      time.Duration
	deliver func(now time.Duration)
}

// Clients together never use more than the capacity, though messages are lost, repeated, late and out of order.
func TestClientsOverALossyNetworkNeverExceedTheCapacity(t *testing.T) {
	const capacity = 100
	used := 0.0
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 9))
		m := &master{capacity: capacity, grants: map[string][]grant{}}
		names := []string{"a", "b", "c"}
		sessions := map[string]*Session{}
		for i, name := range names {
			sessions[name] = New(Settings{Endpoints: []string{"m:1"}, Pace: DefaultPace(), ResourcesPerRequest: 9, Seed: seed*3 + uint64(i)})
		}
		var network []delivery
		send := func(now time.Duration, deliver func(time.Duration)) {
			for range []int{0, 1, 1, 1, 1, 1, 1, 1, 1, 2}[rng.IntN(10)] {
				delay := time.Duration(rng.ExpFloat64() * float64(300*ms))
				if rng.IntN(20) == 0 {
					delay += time.Duration(rng.Int64N(int64(25 * time.Second)))
				}
				network = append(network, delivery{now + delay, deliver})
			}
		}
		for now := time.Duration(0); now < 300*time.Second; now += 20 * ms {
			slices.SortStableFunc(network, func(a, b delivery) int { return cmp.Compare(a.at, b.at) })
			for len(network) > 0 && network[0].at <= now {
				next := network[0]
				network = network[1:]
				next.deliver(now)
			}
			sum := 0.0
			for _, name := range names {
				session := sessions[name]
				switch rng.IntN(400) {
				case 0:
					session.Release("r")
				case 1, 2:
					session.Want(now, "r", wants(rng.Float64()*capacity), Safe)
				case 3:
					session.Hint(now, "r")
				}
				if outgoing := session.Poll(now); outgoing != nil {
					send(now, func(now time.Duration) {
						answer := m.answer(now, name, outgoing)
						send(now, func(now time.Duration) { session.Answered(now, outgoing.Number, answer) })
					})
				}
				if usable, ok := session.Usable(now, "r"); ok {
					sum += usable.Capacity
				}
			}
			if sum > capacity+1e-9 {
				t.Fatalf("seed %d: clients use %g at %v", seed, sum, now)
			}
			used += sum
		}
	}
	if part := used / 60 / 15_000 / capacity; part < 0.3 {
		t.Errorf("only %.0f %% of the capacity was used", part*100)
	} else {
		t.Logf("%.0f %% of the capacity was used", part*100)
	}
}
