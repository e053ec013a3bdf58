package transport

import (
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/leaseway/leaseway/src/go/internal/session"
	"github.com/leaseway/leaseway/src/go/internal/wire"
)

func TestNamesAddressesAndURLsAreNormalised(t *testing.T) {
	for written, read := range map[string]Endpoint{
		"localhost:5100":         {"localhost:5100", Unspecified},
		"db.internal":            {"db.internal:5100", Unspecified},
		"http://db.internal:80":  {"db.internal:80", Plain},
		"HTTP://a_b-c.d/":        {"a_b-c.d:5100", Plain},
		"HTTPS://db.internal/":   {"db.internal:5100", TLS},
		" 127.0.0.1:7 ":          {"127.0.0.1:7", Unspecified},
		"[::1]:7":                {"[::1]:7", Unspecified},
		"[::1]":                  {"[::1]:5100", Unspecified},
		"::1":                    {"[::1]:5100", Unspecified},
		"http://[fe80::1]:65535": {"[fe80::1]:65535", Plain},
	} {
		if got, err := ParseEndpoint(written); err != nil || got != read {
			t.Errorf("%q: %v, %v", written, got, err)
		}
	}
}

func TestInvalidEndpointsAreRejectedWithTheExpectedForm(t *testing.T) {
	for written, says := range map[string]string{
		"":                       "missing host",
		":5100":                  "missing host",
		"http://":                "missing host",
		"grpc://db.internal":     "unknown scheme `grpc://`",
		"localhost:":             "the port `` is not a number",
		"localhost:+80":          "the port `+80` is not a number",
		"localhost:0":            "the port `0` is not a number from 1 to 65535",
		"localhost:65536":        "the port `65536` is not",
		"localhost/metrics":      "unexpected path",
		"a b:1":                  "invalid character ' '",
		"a,b":                    "write one server",
		"1:2:3":                  "several colons",
		"[::1:5100":              "missing closing bracket",
		"[::1]5100":              "after the bracket",
		"[localhost]:1":          "`localhost` is not an IPv6 address",
		strings.Repeat("x", 254): "more than 253 bytes",
	} {
		if got, err := ParseEndpoint(written); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, %v", written, got, err)
		}
	}
}

func TestEitherAllServersOfANodeUseTLSOrNone(t *testing.T) {
	a, plain, secured := Endpoint{"a:1", Unspecified}, Endpoint{"b:1", Plain}, Endpoint{"c:1", TLS}
	for _, c := range []struct {
		endpoints []Endpoint
		wanted    bool
		tls       bool
		fails     bool
	}{
		{[]Endpoint{a}, false, false, false},
		{[]Endpoint{a}, true, true, false},
		{[]Endpoint{a, secured}, false, true, false},
		{[]Endpoint{a, plain}, false, false, false},
		{[]Endpoint{plain}, true, false, true},
		{[]Endpoint{plain, secured}, false, false, true},
	} {
		if tls, err := OverTLS(c.endpoints, c.wanted); tls != c.tls || (err != nil) != c.fails {
			t.Errorf("%+v: %v, %v", c, tls, err)
		}
	}
}

func TestTokensAreOneVisibleLineAndAreNotLogged(t *testing.T) {
	for _, wrong := range []string{"", "a\nb", "ä", "a\tb"} {
		if _, err := NewToken(wrong); err == nil || !strings.Contains(err.Error(), "one line") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	token, err := NewToken("secret")
	if err != nil || token.authorization() != "Bearer secret" || strings.Contains(token.String(), "secret") {
		t.Fatal(token, err)
	}
}

func TestATokenFileIsReloadedAndAMissingFileKeepsTheToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	if _, err := NewTokenFile(path, log); err == nil || !strings.Contains(err.Error(), path) {
		t.Fatal(err)
	}
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one\n")
	token, err := NewTokenFile(path, log)
	if err != nil {
		t.Fatal(err)
	}
	sends := func(expected string) {
		t.Helper()
		if sent := token.authorization(); sent != "Bearer "+expected {
			t.Fatal(sent)
		}
	}
	write("two\n")
	sends("one")
	token.readAt = time.Now().Add(-reloadInterval)
	sends("two")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	token.readAt = time.Now().Add(-reloadInterval)
	sends("two")
}

func TestTokensAreSentUnencryptedToThisMachineOnly(t *testing.T) {
	token, _ := NewToken("secret")
	dialer := Dialer{Token: token}
	for address, allowed := range map[string]bool{
		"127.0.0.1:1": true, "localhost:1": true, "[::1]:1": true,
		"10.0.0.1:1": false, "db.internal:1": false, "localhost.evil:1": false, "[fe80::1]:1": false,
	} {
		conn, err := dialer.Connect(address)
		if (err == nil) != allowed {
			t.Errorf("%s: %v", address, err)
		}
		if conn != nil {
			conn.Close()
		}
	}
}

func granted(remaining *int64) *wire.Lease {
	return &wire.Lease{
		ExpiryTime: proto.Int64(1000), RefreshInterval: proto.Int64(5), Capacity: proto.Float64(7.5),
		Token: proto.Uint64(9), RemainingMs: remaining,
	}
}

func response(gets *wire.Lease) *wire.ResourceResponse {
	return &wire.ResourceResponse{ResourceId: proto.String("r"), Gets: gets}
}

func TestALeaseLengthCountsFromWhenItsRequestWasSent(t *testing.T) {
	sent := time.UnixMilli(940_250)
	length := func(lease *wire.Lease, sent time.Time) time.Duration {
		given, ok := readLease(response(lease), sent)
		if !ok {
			t.Fatal("malformed")
		}
		return given.Length
	}
	if got := length(granted(proto.Int64(60_000)), sent); got != time.Minute {
		t.Error(got)
	}
	if got := length(granted(nil), sent); got != 59_750*time.Millisecond {
		t.Error(got)
	}
	if got := length(granted(nil), time.Unix(2000, 0)); got != 0 {
		t.Error(got)
	}
	far := granted(nil)
	far.ExpiryTime, far.RefreshInterval = proto.Int64(math.MaxInt64), proto.Int64(math.MaxInt64)
	if got := length(far, time.Unix(0, 0)); got != maxLeaseSeconds*time.Second {
		t.Error(got)
	}
	past := granted(proto.Int64(math.MinInt64))
	past.RefreshInterval = proto.Int64(math.MinInt64)
	if got := length(past, sent); got != 0 {
		t.Error(got)
	}
	past = granted(nil)
	past.ExpiryTime = proto.Int64(math.MinInt64)
	if got := length(past, sent); got != 0 {
		t.Error(got)
	}
}

func TestMalformedLeasesAreDroppedAndNamed(t *testing.T) {
	nan, infinite, partial := granted(nil), granted(nil), granted(nil)
	nan.Capacity, infinite.Capacity, partial.ExpiryTime = proto.Float64(math.NaN()), proto.Float64(math.Inf(1)), nil
	for _, bad := range []*wire.Lease{nan, infinite, partial, nil} {
		answer, err := ReadAnswer(2, &wire.GetCapacityResponse{
			Response: []*wire.ResourceResponse{response(bad), {ResourceId: proto.String("s"), Gets: granted(nil)}},
		}, time.Now())
		if err != nil || len(answer.Granted) != 1 || !slices.Equal(answer.Malformed, []string{"r"}) {
			t.Errorf("%v: %+v, %v", bad, answer, err)
		}
	}
}

func TestARequestEchoesTheLeaseAndReportsDemandAndUsage(t *testing.T) {
	lease := &session.Lease{Capacity: 7.5, Token: 9, Wire: session.Wire{ExpiryTime: 1000, RefreshInterval: 5, Capacity: 7.5}}
	usage := &session.Usage{Recharging: 0.25, Units: 7, Interval: 4 * time.Second}
	request := AskRequest("c", []session.Ask{
		{ID: "r", Has: lease, Demand: session.Wants{Amount: 3, Priority: 2, Outstanding: 7.5}},
		{ID: "s", Has: lease, Demand: session.Wants{Outstanding: 9.5}},
		{ID: "t", Had: lease, Demand: session.Wants{Outstanding: 7, Usage: usage}},
	})
	want := &wire.GetCapacityRequest{ClientId: proto.String("c"), DropsLate: proto.Bool(true), Resource: []*wire.ResourceRequest{
		{ResourceId: proto.String("r"), Priority: proto.Int64(2), Wants: proto.Float64(3), Has: granted(nil)},
		{ResourceId: proto.String("s"), Priority: proto.Int64(0), Wants: proto.Float64(0), Has: granted(nil), Outstanding: proto.Float64(2)},
		{ResourceId: proto.String("t"), Priority: proto.Int64(0), Wants: proto.Float64(0), Had: granted(nil), Outstanding: proto.Float64(7),
			Usage: &wire.Usage{RechargingFraction: proto.Float64(0.25), RequestCost: proto.Float64(7), IntervalMs: proto.Int64(4000)}},
	}}
	if !proto.Equal(request, want) {
		t.Errorf("%v\nis not\n%v", request, want)
	}
	released := ReleaseRequest("c", []session.Release{{ID: "a", Token: 7}, {ID: "b"}})
	if !slices.Equal(released.Token, []uint64{7, 0}) || !slices.Equal(released.ResourceId, []string{"a", "b"}) {
		t.Error(released)
	}
}

func TestABudgetNamesTheLeaseOfItsAllowanceAndReportsWhatWasSpent(t *testing.T) {
	lease := &session.Lease{Capacity: 7.5, Token: 9, Wire: session.Wire{ExpiryTime: 1000, RefreshInterval: 5, Capacity: 7.5}}
	use := session.BudgetUse{Spent: 3, Period: 1000, Incarnation: 5, Token: 9}
	more, other := use, use
	more.Spent, more.Need, other.Token = 8, 2, 7
	request := AskRequest("c", []session.Ask{
		{ID: "r", Has: lease, Demand: session.Wants{Spent: &use}},
		{ID: "s", Had: lease, Demand: session.Wants{Spent: &more}},
		{ID: "t", Has: lease, Demand: session.Wants{Spent: &other}},
	})
	named := []float64{7.5, 8, 0}
	for i, resource := range request.Resource {
		if resource.GetHas().GetCapacity() != named[i] || resource.Had != nil {
			t.Error(resource)
		}
	}
	report := &wire.Spent{Amount: proto.Float64(8), Period: proto.Int64(1000), Incarnation: proto.Uint64(5), Need: proto.Float64(2)}
	if spent := request.Resource[1].Spent; !proto.Equal(spent, report) {
		t.Error(spent)
	}
	released := ReleaseRequest("c", []session.Release{{ID: "a", Token: 7}, {ID: "b", Token: 9, Spent: &more}})
	if len(released.Spent) != 2 || !proto.Equal(released.Spent[0], new(wire.Spent)) || !proto.Equal(released.Spent[1], report) {
		t.Error(released)
	}
	once := response(granted(nil))
	once.Budget = &wire.BudgetLease{PeriodStart: proto.Int64(1000), StartsOver: proto.Bool(true)}
	answer, err := ReadAnswer(1, &wire.GetCapacityResponse{Response: []*wire.ResourceResponse{once}}, time.Now())
	want := session.BudgetLease{Start: 1000, End: math.MaxInt64, StartsOver: true}
	if err != nil || *answer.Granted[0].Budget != want {
		t.Error(answer, err)
	}
}

func TestAnAnswerWithoutLeasesFailsWithTheFirstLastingProblem(t *testing.T) {
	read := func(reason string, answered int) (*Answer, codes.Code) {
		problem := func(reason string) *wire.Problem {
			return &wire.Problem{Reason: proto.String(reason), Message: proto.String("no room")}
		}
		r := &wire.GetCapacityResponse{Problem: []*wire.Problem{problem("too_soon"), problem(reason)}}
		for range answered {
			r.Response = append(r.Response, response(granted(nil)))
		}
		answer, err := ReadAnswer(2, r, time.Now())
		return answer, status.Code(err)
	}
	for reason, code := range map[string]codes.Code{
		"too_many_clients": codes.ResourceExhausted, "bad_id": codes.InvalidArgument, "not_yet": codes.OK,
	} {
		if _, got := read(reason, 0); got != code {
			t.Errorf("%s: %v", reason, got)
		}
	}
	if answer, code := read("busy", 1); code != codes.OK || answer.LeftOut != 1 || answer.Why != "no room" {
		t.Errorf("%+v, %v", answer, code)
	}
	master := "a:1"
	for _, redirect := range []*wire.Mastership{{}, {MasterAddress: &master}} {
		answer, err := ReadAnswer(1, &wire.GetCapacityResponse{Mastership: redirect}, time.Now())
		if err != nil || !answer.Redirect || answer.Master != redirect.GetMasterAddress() {
			t.Errorf("%+v, %v", answer, err)
		}
	}
}

func TestTextsOfServersAreShortened(t *testing.T) {
	long := "x" + strings.Repeat("ä", 500)
	if short := Shorten(long); len(short) > maxTextBytes+len("…") || !utf8.ValidString(short) || Shorten("ä") != "ä" {
		t.Error(short)
	}
	if why := Explain("a:1", status.Error(codes.Internal, long)); len(why) > 600 {
		t.Error(why)
	}
}

func TestMalformedPeersAreDropped(t *testing.T) {
	answer := &wire.DiscoveryResponse{Endpoint: []string{"a:1", "", "https://b", "[::1]:2", strings.Repeat("x", 100_000), "c"}}
	if got := peers(answer); !slices.Equal(got, []string{"a:1", "[::1]:2", "c:5100"}) {
		t.Error(got)
	}
}

func TestMalformedNumbersOfAPoolAreReplaced(t *testing.T) {
	for sent, burst := range map[float64]time.Duration{6: 6 * time.Second, 0: 0, 1e9: time.Hour, -1: -1} {
		state := readPool(&wire.PoolState{Assigned: proto.Float64(math.NaN()), BurstSeconds: &sent})
		if state.Assigned != 0 || state.Burst != burst {
			t.Errorf("%g: %+v", sent, state)
		}
	}
	if state := readPool(&wire.PoolState{BurstSeconds: proto.Float64(math.NaN())}); state.Burst >= 0 {
		t.Errorf("%+v", state)
	}
}

func TestPausesBetweenStreamsOfHintsDouble(t *testing.T) {
	pauses := hintPauses{next: hintPauseFirst}
	if pauses.after(codes.Unimplemented) != hintPauseUnsupported {
		t.Error("a server without hints may be upgraded")
	}
	for _, whole := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		if pause := pauses.after(codes.Unavailable); pause < whole*time.Second/2 || pause > whole*time.Second {
			t.Errorf("%v of %v s", pause, whole)
		}
	}
	if pauses.receive(&wire.Hint{}); pauses.next != hintPauseMax {
		t.Error("an empty hint resets the pause")
	}
	if pauses.receive(&wire.Hint{ResourceId: []string{"r"}}); pauses.next != hintPauseFirst {
		t.Error("a hint does not reset the pause")
	}
}

func TestTheClockAdvancesWithTheMonotonicOne(t *testing.T) {
	clock := StartClock()
	before, _ := clock.Now()
	time.Sleep(2 * time.Millisecond)
	now, suspended := clock.Now()
	if now-before < 2*time.Millisecond || suspended > time.Second {
		t.Error(now-before, suspended)
	}
}
