// Command conform is the program with which `leaseway-bench conform` drives this library.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	leaseway "github.com/leaseway/leaseway/src/go"
)

type driver struct {
	client  *leaseway.Client
	rates   map[string]*leaseway.Rate
	gauges  map[string]*leaseway.Gauge
	budgets map[string]*leaseway.Budget
	// The release functions of permits in use.
	permits map[string][]func()
}

func (d *driver) resource(name string) *leaseway.Resource {
	if gauge := d.gauges[name]; gauge != nil {
		return &gauge.Resource
	}
	if budget := d.budgets[name]; budget != nil {
		return &budget.Resource
	}
	return &d.rates[name].Resource
}

func (d *driver) execute(words []string) (string, error) {
	name := ""
	if len(words) > 1 {
		name = words[1]
	}
	number := 0.0
	if len(words) >= 3 {
		number, _ = strconv.ParseFloat(words[2], 64)
	}
	switch words[0] {
	case "open":
		mode := map[string]leaseway.Mode{
			"safe": leaseway.Safe, "pessimistic": leaseway.Pessimistic, "optimistic": leaseway.Optimistic,
		}[words[3]]
		if err := os.Setenv("LEASEWAY_SERVER", words[2]); err != nil {
			return "", err
		}
		client, err := leaseway.DialEnv(leaseway.WithID(name), leaseway.WithMode(mode))
		d.client = client
		return "ok", err
	case "rate":
		rate, err := d.client.Rate(name, leaseway.WithWants(number))
		d.rates[name] = rate
		return "ok", err
	case "gauge":
		gauge, err := d.client.Gauge(name, leaseway.WithWants(number))
		d.gauges[name] = gauge
		return "ok", err
	case "budget":
		budget, err := d.client.Budget(name)
		d.budgets[name] = budget
		return "ok", err
	case "spend":
		seconds, _ := strconv.ParseFloat(words[3], 64)
		return strconv.FormatBool(spend(d.budgets[name], number, seconds)), nil
	case "left":
		return strconv.FormatFloat(d.budgets[name].Left(), 'g', -1, 64), nil
	case "wants":
		return "ok", d.resource(name).SetWants(number)
	case "capacity":
		capacity, basis := d.resource(name).Capacity()
		return fmt.Sprintf("%s %s", strconv.FormatFloat(capacity, 'g', -1, 64), basis), nil
	case "allow":
		if gauge := d.gauges[name]; gauge != nil {
			release, ok := gauge.TryAcquireN(int(number))
			if ok {
				d.permits[name] = append(d.permits[name], release)
			}
			return strconv.FormatBool(ok), nil
		}
		return strconv.FormatBool(d.rates[name].AllowN(int(number))), nil
	case "release":
		permits := d.permits[name]
		permits[len(permits)-1]()
		d.permits[name] = permits[:len(permits)-1]
	case "count":
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(number*float64(time.Second)))
		defer cancel()
		count := 0
		for d.rates[name].Wait(ctx) == nil {
			count++
		}
		return strconv.Itoa(count), nil
	case "close":
		d.resource(name).Close()
	case "exit":
		return "ok", d.client.Close()
	default:
		return "", fmt.Errorf("unknown command %q", words[0])
	}
	return "ok", nil
}

// spend returns whether the amount was spent.
func spend(budget *leaseway.Budget, amount, seconds float64) bool {
	if seconds == 0 {
		return budget.TrySpend(amount)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(seconds*float64(time.Second)))
	defer cancel()
	return budget.Spend(ctx, amount) == nil
}

func main() {
	d := driver{
		rates:   map[string]*leaseway.Rate{},
		gauges:  map[string]*leaseway.Gauge{},
		budgets: map[string]*leaseway.Budget{},
		permits: map[string][]func(){},
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		answer, err := d.execute(strings.Fields(lines.Text()))
		if err != nil {
			answer = "error " + err.Error()
		}
		fmt.Println(answer)
	}
}
