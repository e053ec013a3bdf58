package balancer

import (
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"
	"time"
)

type scenario struct {
	Name       string
	Weights    []uint32
	Capacities []float64
	Retry      float64
	Steps      [][]any
}

// TestScenarios replays testdata/balancer.json, which describes its fields and is shared with the Rust and the Python
// client.
func TestScenarios(t *testing.T) {
	text, err := os.ReadFile("testdata/balancer.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Scenarios []scenario }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for _, scenario := range file.Scenarios {
		t.Run(scenario.Name, func(t *testing.T) { replayScenario(t, &scenario) })
	}
}

func replayScenario(t *testing.T, scenario *scenario) {
	now := time.Now()
	weights, retry := scenario.Weights, time.Minute
	if weights == nil {
		weights = make([]uint32, len(scenario.Capacities))
	}
	if scenario.Retry > 0 {
		retry = time.Duration(scenario.Retry * float64(time.Second))
	}
	b := New(weights, retry, func() time.Time { return now })
	for index, capacity := range scenario.Capacities {
		b.SetCapacity(index, capacity)
	}
	for number, step := range scenario.Steps {
		if step[0] == "advance" {
			now = now.Add(time.Duration(step[1].(float64)) * time.Millisecond)
			continue
		}
		if want, got := takeStep(b, step, now); want != got {
			t.Fatalf("step %d, %v: %v, expected %v", number, step, got, want)
		}
	}
}

// takeStep takes a step. It returns the expected result and the result.
func takeStep(b *Balancer, step []any, now time.Time) (want, got any) {
	index := 0
	if name, ok := step[1].(string); ok && name != "" {
		index = int(name[0] - 'a')
	}
	switch step[0] {
	case "pick":
		return step[1], picks(b, len(step[1].(string)))
	case "where":
		asked := ""
		picked, ok := b.PickWhere(func(index int) bool {
			asked += name(index)
			return !strings.Contains(step[1].(string), name(index))
		})
		return step[2].(string) + " " + step[3].(string), asked + " " + nameOf(picked, ok)
	case "sticky":
		return step[2], b.PickSticky(index)
	case "capacity":
		capacity, isLimited := step[2].(float64)
		if !isLimited {
			capacity = math.Inf(1)
		}
		b.SetCapacity(index, capacity)
	case "weight":
		b.SetWeight(index, uint32(step[2].(float64)))
	case "pause", "resume":
		b.SetPaused(index, step[0] == "pause")
	case "fail":
		b.Failed(index)
	case "enabled":
		enabled := ""
		for index := range b.backends {
			if b.IsEnabled(index) {
				enabled += name(index)
			}
		}
		return step[1], enabled
	case "next_retry":
		if at, ok := b.NextRetry(); ok {
			return step[1], float64(at.Sub(now).Milliseconds())
		}
		return step[1], nil
	default:
		return "a known step", step[0]
	}
	return nil, nil
}

func name(index int) string { return string(rune('a' + index)) }

func nameOf(index int, ok bool) string {
	if !ok {
		return "-"
	}
	return name(index)
}

func picks(b *Balancer, count int) string {
	picked := ""
	for range count {
		picked += nameOf(b.Pick())
	}
	return picked
}
