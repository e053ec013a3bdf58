// Command conform is the program with which `leaseway-bench conform` drives this library.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
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
	// taken releases the permits of several limits in use.
	taken func()
	// The last reservation of each budget.
	reservations map[string]*leaseway.BudgetReservation
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
	case "reserve":
		seconds, _ := strconv.ParseFloat(words[3], 64)
		reservation := reserve(d.budgets[name], number, seconds)
		d.reservations[name] = reservation
		return strconv.FormatBool(reservation != nil), nil
	case "settle":
		return "ok", d.reservations[name].Settle(number)
	case "period":
		start, _, ok := d.budgets[name].Period()
		if !ok {
			return "none", nil
		}
		return strconv.FormatInt(start.Unix(), 10), nil
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
	case "streams":
		// The default of the library.
		return "100", nil
	case "all":
		limits, err := d.limits(name)
		if err != nil {
			return "", err
		}
		if number == 0 {
			return d.tryAll(limits)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(number*float64(time.Second)))
		defer cancel()
		return d.waitForAll(ctx, limits)
	case "cancel":
		limits, err := d.limits(name)
		if err != nil {
			return "", err
		}
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(time.Duration(number*float64(time.Second)), cancel)
		return d.waitForAll(ctx, limits)
	case "return":
		d.taken()
	case "opposite":
		return d.opposite(name, words[2], words[3], words[4])
	case "close":
		d.resource(name).Close()
	case "exit":
		return "ok", d.client.Close()
	default:
		return "", fmt.Errorf("unknown command %q", words[0])
	}
	return "ok", nil
}

// limits returns the limits NAME=N,….
func (d *driver) limits(costs string) (*leaseway.Limits, error) {
	var parts []leaseway.Cost
	for _, cost := range strings.Split(costs, ",") {
		name, number, _ := strings.Cut(cost, "=")
		n, err := strconv.Atoi(number)
		if err != nil {
			return nil, err
		}
		switch {
		case d.rates[name] != nil:
			parts = append(parts, d.rates[name].Of(n))
		case d.gauges[name] != nil:
			parts = append(parts, d.gauges[name].Of(n))
		default:
			parts = append(parts, d.budgets[name].Of(float64(n)))
		}
	}
	return d.client.Limits(parts...)
}

func (d *driver) tryAll(limits *leaseway.Limits) (string, error) {
	release, err := limits.TryAcquire()
	if refusal := (*leaseway.RefusalError)(nil); errors.As(err, &refusal) {
		return "refused " + refusal.Resource, nil
	}
	d.taken = release
	return "true", err
}

func (d *driver) waitForAll(ctx context.Context, limits *leaseway.Limits) (string, error) {
	release, err := limits.Acquire(ctx)
	if err != nil && ctx.Err() != nil {
		return "false", nil
	}
	d.taken = release
	return "true", err
}

// opposite takes and returns n permits of two limits, in two goroutines and orders, for a time. It returns how often.
func (d *driver) opposite(one, other, n, seconds string) (string, error) {
	duration, err := time.ParseDuration(seconds + "s")
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), duration)
	defer cancel()
	var counts [2]int
	var callers sync.WaitGroup
	for i, costs := range []string{one + "=" + n + "," + other + "=" + n, other + "=" + n + "," + one + "=" + n} {
		limits, err := d.limits(costs)
		if err != nil {
			return "", err
		}
		callers.Add(1)
		go func() {
			defer callers.Done()
			for ctx.Err() == nil {
				release, err := limits.Acquire(ctx)
				if err != nil {
					return
				}
				counts[i]++
				release()
			}
		}()
	}
	callers.Wait()
	return fmt.Sprintf("%d %d", counts[0], counts[1]), nil
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

// reserve returns nil if the amount was not reserved.
func reserve(budget *leaseway.Budget, amount, seconds float64) *leaseway.BudgetReservation {
	if seconds == 0 {
		reservation, _ := budget.TryReserve(amount)
		return reservation
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(seconds*float64(time.Second)))
	defer cancel()
	reservation, _ := budget.Reserve(ctx, amount)
	return reservation
}

func main() {
	d := driver{
		rates:   map[string]*leaseway.Rate{},
		gauges:  map[string]*leaseway.Gauge{},
		budgets: map[string]*leaseway.Budget{},
		permits: map[string][]func(){},

		reservations: map[string]*leaseway.BudgetReservation{},
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
