package transport

import (
	"math"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/leaseway/leaseway/src/go/internal/session"
	"github.com/leaseway/leaseway/src/go/internal/wire"
)

// encoded returns a message as it comes from a server.
func encoded(f *testing.F, message proto.Message) []byte {
	f.Helper()
	data, err := proto.Marshal(message)
	if err != nil {
		f.Fatal(err)
	}
	return data
}

func grantOf(capacity float64) *wire.ResourceResponse {
	return &wire.ResourceResponse{
		ResourceId: proto.String("r"),
		Gets: &wire.Lease{
			ExpiryTime: proto.Int64(math.MaxInt64), RefreshInterval: proto.Int64(-1), Capacity: proto.Float64(capacity),
			Token: proto.Uint64(7), RemainingMs: proto.Int64(math.MaxInt64),
		},
		SafeCapacity: proto.Float64(-1),
		Budget:       &wire.BudgetLease{PeriodStart: proto.Int64(math.MinInt64)},
		Pool:         &wire.PoolState{BurstSeconds: proto.Float64(1e300)},
	}
}

func checkGiven(t *testing.T, all []session.GrantedLease) {
	t.Helper()
	for _, given := range all {
		if given.Length < 0 || given.Length > maxLeaseSeconds*time.Second || given.Refresh < 0 ||
			math.IsNaN(given.Wire.Capacity) || math.IsInf(given.Wire.Capacity, 0) {
			t.Errorf("%+v", given)
		}
	}
}

func FuzzReadAnswer(f *testing.F) {
	f.Add(1, encoded(f, &wire.GetCapacityResponse{Response: []*wire.ResourceResponse{grantOf(5), grantOf(math.NaN()), {}}}))
	f.Add(2, encoded(f, &wire.GetCapacityResponse{Problem: []*wire.Problem{{Reason: proto.String("bad_id")}}}))
	f.Add(0, encoded(f, &wire.GetCapacityResponse{Mastership: &wire.Mastership{MasterAddress: proto.String("a:1")}}))
	f.Fuzz(func(t *testing.T, asked int, data []byte) {
		response := new(wire.GetCapacityResponse)
		if proto.Unmarshal(data, response) != nil {
			return
		}
		if answer, err := ReadAnswer(asked, response, time.Now()); err == nil {
			checkGiven(t, answer.Granted)
		}
	})
}

// FuzzReadRenewed gives answers to a session with a stream of two resources.
func FuzzReadRenewed(f *testing.F) {
	f.Add(encoded(f, &wire.RenewResponse{Sequence: 1, Grant: []*wire.Grant{{Index: 0, Response: grantOf(5)}, {Index: 1}}}))
	f.Add(encoded(f, &wire.RenewResponse{Sequence: 1, LeftOut: []uint32{0, 2, 1 << 31, math.MaxUint32}, UnixTime: math.MaxInt64}))
	f.Add(encoded(f, &wire.RenewResponse{Grant: []*wire.Grant{{Index: 1 << 31, Response: grantOf(5)}}}))
	f.Add(encoded(f, &wire.RenewResponse{Restart: proto.String("another master")}))
	f.Fuzz(func(t *testing.T, data []byte) {
		response := new(wire.RenewResponse)
		if proto.Unmarshal(data, response) != nil {
			return
		}
		s := session.New(session.Settings{Endpoints: []string{"a:1"}, Pace: session.DefaultPace(), ResourcesPerRequest: 10})
		s.OfferStream("a:1", 1)
		for _, id := range []string{"r", "s"} {
			s.Want(0, id, session.Wants{Amount: 10}, session.Safe)
		}
		for now := time.Duration(0); now < 30*time.Second; now += 10 * time.Second {
			outgoing := s.Poll(now)
			if outgoing == nil || outgoing.Stream == nil {
				return
			}
			answer := ReadRenewed(response, time.Now())
			if answer.Redirect {
				return
			}
			s.StreamAnswered(now, outgoing.Number, answer.Renewed)
			answer.NameRenewed()
			checkGiven(t, answer.Granted)
			s.Changes(now, func(id string, usable session.Usable) {
				if !(usable.Capacity >= 0) {
					t.Errorf("%s: %+v", id, usable)
				}
			})
		}
	})
}

func FuzzParseEndpoint(f *testing.F) {
	for _, text := range []string{"a:1", "https://[::1]:2/", "http://a_b", "1:2:3", "[::1", "::1", "a:+1", " a ", "é:1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		endpoint, err := ParseEndpoint(text)
		if err != nil {
			return
		}
		if again, err := ParseEndpoint(endpoint.Address); err != nil || again.Address != endpoint.Address {
			t.Errorf("%q becomes %q, and that %q: %v", text, endpoint.Address, again.Address, err)
		}
	})
}
