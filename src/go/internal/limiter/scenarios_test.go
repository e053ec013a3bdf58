package limiter

import (
	"encoding/json"
	"math"
	"os"
	"testing"
	"time"
)

// TestScenarios replays testdata/limits.json, which describes its fields and is shared with the other clients.
func TestScenarios(t *testing.T) {
	text, err := os.ReadFile("testdata/limits.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Scenarios []struct {
			Name   string
			Limits []any
			Steps  [][]json.RawMessage
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for _, scenario := range file.Scenarios {
		t.Run(scenario.Name, func(t *testing.T) {
			var limits []Part
			for _, limit := range scenario.Limits {
				if burst, isRate := limit.(float64); isRate {
					limits = append(limits, ofRate(Burst{Kind: PermitsBurst, Permits: burst}))
				} else {
					limits = append(limits, ofGauge())
				}
			}
			replay := replay{newCrowd(t, limits...), map[*caller]bool{}}
			for number, step := range scenario.Steps {
				op := read[string](t, step[0])
				want := normal(t, step[len(step)-1])
				if got := replay.take(op, step[1:]); got != nil && normal(t, must(json.Marshal(got))) != want {
					t.Fatalf("step %d, %s: %v, expected %s", number, step, got, want)
				}
			}
		})
	}
}

type replay struct {
	*crowd
	told map[*caller]bool
}

// take takes a step. It returns its result, or nil if it has none.
func (r *replay) take(op string, arguments []json.RawMessage) any {
	number := func(at int) int { return read[int](r.t, arguments[at]) }
	switch op {
	case "capacity":
		capacity := math.Inf(1)
		if string(arguments[1]) != `"unlimited"` {
			capacity = read[float64](r.t, arguments[1])
		}
		r.setCapacity(number(0), capacity)
	case "join":
		r.join(read[[]uint64](r.t, arguments[0])...)
	case "leave":
		if caller := r.callers[number(0)]; caller.waits() {
			r.end(caller)
		}
	case "release":
		r.release(r.callers[number(0)])
	case "release-all":
		var admitted []*caller
		for _, caller := range r.callers {
			if caller.isAdmitted() {
				admitted = append(admitted, caller)
			}
		}
		for _, caller := range admitted {
			r.release(caller)
		}
	case "try":
		return r.outcome(read[[]uint64](r.t, arguments[0]))
	case "charge":
		r.charge(number(0), uint64(number(1)))
	case "advance":
		r.pass(time.Duration(number(0)) * ms)
	case "admitted":
		admitted := []int{}
		for i, caller := range r.callers {
			if caller.isAdmitted() && !r.told[caller] {
				r.told[caller] = true
				admitted = append(admitted, i)
			}
		}
		return admitted
	case "permits":
		return r.readings()
	default:
		r.t.Fatalf("unknown step %q", op)
	}
	return nil
}

func (r *replay) release(caller *caller) {
	if caller.holds() {
		r.end(caller)
	}
}

// outcome returns the result of a try, whose permits of gauges are returned.
func (r *replay) outcome(needs []uint64) any {
	limit, refusal := r.try(needs...)
	switch {
	case refusal == nil:
		r.giveBack(needs)
		r.settle()
		return "taken"
	case refusal.Burst > 0:
		return []any{limit, "too-many", refusal.Burst}
	case refusal.RetryAfter == Unknown:
		return []any{limit, "not-now", nil}
	}
	return []any{limit, "not-now", float64(refusal.RetryAfter) / float64(ms)}
}

func read[T any](t *testing.T, text json.RawMessage) T {
	t.Helper()
	var value T
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// normal returns JSON in one form: numbers without a fraction of 0.
func normal(t *testing.T, text json.RawMessage) string {
	t.Helper()
	return string(must(json.Marshal(read[any](t, text))))
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
