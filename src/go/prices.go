package leaseway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	// pricePlaces is the maximum number of decimal places of a price.
	pricePlaces = 18
	// significantDigits is the number of decimal digits that every float64 has.
	significantDigits = 15
	// maxKnown is the maximum number of names that an error lists.
	maxKnown = 5
)

var (
	ten = big.NewInt(10)
	// maxUnits is the maximum price, and the maximum amount of a budget, in units of 10^-18.
	maxUnits     = powerOfTen(15 + pricePlaces)
	quotedNumber = regexp.MustCompile(`^"(.*)"$`)
	decimal      = regexp.MustCompile(`^(-?)([0-9]+)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]+))?$`)
)

func powerOfTen(power int) *big.Int { return new(big.Int).Exp(ten, big.NewInt(int64(power)), nil) }

// Prices are prices per unit, by the name of a model and the name of a kind of usage. They turn usage into amounts of a
// [Budget]. Prices are decimal numbers, and sums are exact.
type Prices struct {
	// models has prices in units of 10^-18.
	models map[string]map[string]*big.Int
}

// ParsePrices reads a table like {"gpt-4o": {"input": 0.0000025, "output": "0.00001"}}. A price is a number, or a string
// with a number, from 0 to 10^15 with at most 18 decimal places.
func ParsePrices(text []byte) (*Prices, error) {
	reader := json.NewDecoder(bytes.NewReader(text))
	// Binary numbers would not be exact.
	reader.UseNumber()
	prices := &Prices{make(map[string]map[string]*big.Int)}
	err := readObject(reader, "the prices of models as an object", func(model string) error { return prices.readModel(reader, model) })
	if err == nil {
		if _, err = reader.Token(); err == nil {
			err = fmt.Errorf("trailing characters")
		} else if err == io.EOF {
			return prices, nil
		}
	}
	return nil, fmt.Errorf("leaseway: invalid price table: %w", err)
}

func (p *Prices) readModel(reader *json.Decoder, model string) error {
	if _, isKnown := p.models[model]; isKnown {
		return fmt.Errorf("the model %q is given twice", model)
	}
	prices := make(map[string]*big.Int)
	p.models[model] = prices
	return readObject(reader, fmt.Sprintf("the prices of %q as an object", model), func(usage string) error {
		var value json.RawMessage
		if err := reader.Decode(&value); err != nil {
			return err
		}
		price, wrong := parsePrice(quotedNumber.ReplaceAllString(string(value), "$1"))
		if _, isKnown := prices[usage]; isKnown {
			wrong = "is given twice"
		}
		if wrong != "" {
			return fmt.Errorf("the price of %q for %q %s", usage, model, wrong)
		}
		prices[usage] = price
		return nil
	})
}

// readObject reads an object. It calls read with each key; read has to read the value.
func readObject(reader *json.Decoder, what string, read func(key string) error) error {
	if begin, err := reader.Token(); err != nil {
		return err
	} else if begin != json.Delim('{') {
		return fmt.Errorf(`expected %s like {"input": 0.0000025}`, what)
	}
	for reader.More() {
		key, err := reader.Token()
		if err != nil {
			return err
		}
		// The keys of an object are strings.
		if err := read(key.(string)); err != nil {
			return err
		}
	}
	_, err := reader.Token()
	return err
}

// parsePrice returns a price in units of 10^-18, or what is wrong with it.
func parsePrice(text string) (price *big.Int, wrong string) {
	const notANumber = "is not a decimal number"
	parts := decimal.FindStringSubmatch(text)
	if parts == nil {
		return nil, notANumber
	}
	exponent := int64(0)
	if parts[4] != "" {
		var err error
		if exponent, err = strconv.ParseInt(parts[4], 10, 32); err != nil {
			return nil, notANumber
		}
	}
	if parts[1] != "" {
		return nil, "is negative"
	}
	digits := strings.TrimLeft(parts[2]+parts[3], "0")
	significant := strings.TrimRight(digits, "0")
	// power is the power of ten, in units, of the last significant digit.
	power := exponent + int64(len(digits)-len(significant)-len(parts[3])+pricePlaces)
	switch {
	case significant == "":
		return new(big.Int), ""
	case power < 0:
		return nil, "has more than 18 decimal places"
	case int64(len(significant))+power <= 15+pricePlaces+1:
		price, _ = new(big.Int).SetString(significant, 10)
		if price.Mul(price, powerOfTen(int(power))).Cmp(maxUnits) <= 0 {
			return price, ""
		}
	}
	return nil, "is larger than 1e15"
}

// Cost returns the cost of this usage: the sum of price times units, which is computed exactly and then rounded up to 15
// significant digits. It returns an error that names the model or the usage if there is no price for it.
func (p *Prices) Cost(model string, usage map[string]int64) (float64, error) {
	prices, isKnown := p.models[model]
	if !isKnown {
		return 0, fmt.Errorf("leaseway: no prices for the model %q; %s", model, known(p.models))
	}
	total := new(big.Int)
	// In order, so that the error is the same each time.
	for _, name := range slices.Sorted(maps.Keys(usage)) {
		price, isKnown := prices[name]
		switch {
		case !isKnown:
			return 0, fmt.Errorf("leaseway: the model %q has no price for %q; %s", model, name, known(prices))
		case usage[name] < 0:
			return 0, fmt.Errorf("leaseway: a negative number of units of %q: %d", name, usage[name])
		}
		total.Add(total, new(big.Int).Mul(price, big.NewInt(usage[name])))
	}
	if total.Cmp(maxUnits) > 0 {
		return 0, fmt.Errorf("leaseway: the usage of the model %q costs more than 1e15, the largest amount of a budget: "+
			"check the units and the prices", model)
	}
	return roundUp(total), nil
}

// roundUp returns an amount in units of 10^-18 as a number. It changes units.
func roundUp(units *big.Int) float64 {
	power := -pricePlaces
	if surplus := len(units.String()) - significantDigits; surplus > 0 {
		divisor := powerOfTen(surplus)
		units.Add(units, divisor).Sub(units, big.NewInt(1)).Div(units, divisor)
		power += surplus
	}
	// A decimal number within the range of a float64.
	amount, _ := strconv.ParseFloat(fmt.Sprintf("%de%d", units, power), 64)
	return amount
}

// known lists the first names of a table, for the end of an error.
func known[T any](table map[string]T) string {
	names := slices.Sorted(maps.Keys(table))
	if len(names) == 0 {
		return "the table has none"
	}
	first := names[:min(len(names), maxKnown)]
	text := "known: " + strings.Join(first, ", ")
	if more := len(names) - len(first); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
