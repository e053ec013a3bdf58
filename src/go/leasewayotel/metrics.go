// Package leasewayotel exports the statistics of a Leaseway client as OpenTelemetry metrics.
//
// It is a module of its own, so that programs without OpenTelemetry do not depend on it.
package leasewayotel

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	leaseway "github.com/leaseway/leaseway/src/go"
)

// ScopeName is the name of the instrumentation scope.
const ScopeName = "github.com/leaseway/leaseway/src/go/leasewayotel"

// Option is an option of [Observe].
type Option func(*observer)

// WithMeterProvider sets the provider of the meter. The default is the global one.
func WithMeterProvider(provider metric.MeterProvider) Option {
	return func(o *observer) { o.provider = provider }
}

// WithAttributes adds attributes to all observations. If a process observes several clients, each needs different ones;
// otherwise, their series are the same.
func WithAttributes(attributes ...attribute.KeyValue) Option {
	return func(o *observer) { o.attributes = append(o.attributes, attributes...) }
}

// Observe exports the statistics of a client whenever a reader of the meter provider collects. Unregister the
// registration when the client is closed; otherwise, it stays in memory and its last values are exported for ever.
func Observe(client *leaseway.Client, options ...Option) (metric.Registration, error) {
	return observe(client.Stats, options)
}

// observer observes the instruments of a client.
type observer struct {
	stats      func() leaseway.Stats
	provider   metric.MeterProvider
	attributes []attribute.KeyValue
	// all is the option with the attributes of the client.
	all     metric.MeasurementOption
	counts  []clientInstrument
	floats  []resourceFloat
	ints    []resourceInt
	budgets []budgetFloat
	// unlisted counts the resources without series.
	unlisted metric.Int64Observable
	series   series
}

type clientInstrument struct {
	instrument metric.Int64Observable
	value      func(*leaseway.Stats) uint64
}

type resourceInt struct {
	instrument metric.Int64Observable
	value      func(*leaseway.ResourceStats) uint64
}

type resourceFloat struct {
	instrument metric.Float64Observable
	value      func(*leaseway.ResourceStats) float64
}

type budgetFloat struct {
	instrument metric.Float64Observable
	value      func(*leaseway.BudgetStats) float64
}

func observe(stats func() leaseway.Stats, options []Option) (metric.Registration, error) {
	o := &observer{stats: stats, provider: otel.GetMeterProvider()}
	for _, option := range options {
		option(o)
	}
	o.all = metric.WithAttributeSet(attribute.NewSet(o.attributes...))
	meter := o.provider.Meter(ScopeName, metric.WithInstrumentationVersion(leaseway.Version))
	instruments, err := o.create(meter)
	if err != nil {
		return nil, fmt.Errorf("leasewayotel: %w", err)
	}
	registration, err := meter.RegisterCallback(o.collect, instruments...)
	if err != nil {
		return nil, fmt.Errorf("leasewayotel: %w", err)
	}
	return registration, nil
}

// create creates the instruments of the tables in instruments.go.
func (o *observer) create(meter metric.Meter) ([]metric.Observable, error) {
	var err error
	o.unlisted, err = upDownCounter(meter, "leaseway_client_unlisted_resources", "{resource}",
		"Open resources without series of their own.")
	if err != nil {
		return nil, err
	}
	all := []metric.Observable{o.unlisted}
	for _, d := range clientCounters {
		instrument, err := counter(meter, d.name, d.unit, d.description)
		if err != nil {
			return nil, err
		}
		o.counts = append(o.counts, clientInstrument{instrument, d.value})
		all = append(all, instrument)
	}
	for _, d := range resourceFloats {
		instrument, err := meter.Float64ObservableGauge(d.name, metric.WithUnit(d.unit), metric.WithDescription(d.description))
		if err != nil {
			return nil, err
		}
		o.floats = append(o.floats, resourceFloat{instrument, d.value})
		all = append(all, instrument)
	}
	for _, d := range resourceInts {
		instrument, err := d.kind(meter, d.name, d.unit, d.description)
		if err != nil {
			return nil, err
		}
		o.ints = append(o.ints, resourceInt{instrument, d.value})
		all = append(all, instrument)
	}
	for _, d := range budgetFloats {
		instrument, err := meter.Float64ObservableGauge(d.name, metric.WithUnit("{amount}"), metric.WithDescription(d.description))
		if err != nil {
			return nil, err
		}
		o.budgets = append(o.budgets, budgetFloat{instrument, d.value})
		all = append(all, instrument)
	}
	return all, nil
}

// collect observes a snapshot. Several readers may collect at the same time.
func (o *observer) collect(_ context.Context, to metric.Observer) error {
	stats := o.stats()
	for _, count := range o.counts {
		to.ObserveInt64(count.instrument, int64(count.value(&stats)), o.all)
	}
	resources, unlisted := o.series.choose(stats.Resources)
	to.ObserveInt64(o.unlisted, int64(unlisted), o.all)
	for n := range resources {
		resource := &resources[n]
		attributes := append(o.attributes[:len(o.attributes):len(o.attributes)], attribute.String("resource", resource.Name))
		option := metric.WithAttributeSet(attribute.NewSet(attributes...))
		for _, float := range o.floats {
			to.ObserveFloat64(float.instrument, float.value(resource), option)
		}
		for _, integer := range o.ints {
			to.ObserveInt64(integer.instrument, int64(integer.value(resource)), option)
		}
		for _, float := range o.budgets {
			if resource.Budget != nil {
				to.ObserveFloat64(float.instrument, float.value(resource.Budget), option)
			}
		}
	}
	return nil
}
