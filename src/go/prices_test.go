package leaseway_test

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/leaseway/leaseway/src/go"
)

// TestPriceVectors reads testdata/prices.json, which describes its fields and is shared with the other clients.
func TestPriceVectors(t *testing.T) {
	type vector struct {
		Name, Table, Model, Amount string
		Usage                      map[string]int64
		Says                       []string
	}
	var file struct {
		Costs         []vector
		RefusedCosts  []vector `json:"refused_costs"`
		RefusedTables []vector `json:"refused_tables"`
	}
	if err := json.Unmarshal(must(os.ReadFile("testdata/prices.json")), &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Costs) == 0 || len(file.RefusedCosts) == 0 || len(file.RefusedTables) == 0 {
		t.Error("no vectors")
	}
	cost := func(v vector) (float64, error) {
		return must(leaseway.ParsePrices([]byte(v.Table))).Cost(v.Model, v.Usage)
	}
	refused := func(v vector, err error) {
		t.Helper()
		if err == nil {
			t.Errorf("%s %s: no error", v.Table, v.Name)
			return
		}
		for _, part := range v.Says {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s %s: %v, which lacks %s", v.Table, v.Name, err, part)
			}
		}
	}
	for _, v := range file.Costs {
		if amount, err := cost(v); err != nil || amount != must(strconv.ParseFloat(v.Amount, 64)) {
			t.Errorf("%s: %v %v, expected %s", v.Name, amount, err, v.Amount)
		}
	}
	for _, v := range file.RefusedCosts {
		_, err := cost(v)
		refused(v, err)
	}
	for _, v := range file.RefusedTables {
		_, err := leaseway.ParsePrices([]byte(v.Table))
		refused(v, err)
	}
}

func TestUnitsAreNotNegative(t *testing.T) {
	prices := must(leaseway.ParsePrices([]byte(`{"m": {"a": 1}}`)))
	if _, err := prices.Cost("m", map[string]int64{"a": -1}); err == nil || !strings.Contains(err.Error(), `"a": -1`) {
		t.Error(err)
	}
}

func FuzzParsePrices(f *testing.F) {
	for _, table := range []string{
		`{"a": {"input": 0.0000025, "output": "0.00001"}}`, `{"a": {"input": 1e15}}`, `{"a": {"input": "1e-18"}}`,
		`{"a": {"input": 1e999999999}}`, `{"a": {}}`, `{"a": {"input": 1}, "a": {}}`, `{"a": {"input": "-0"}}`, `[]`, `{} 1`,
	} {
		f.Add([]byte(table), int64(1000))
	}
	f.Fuzz(func(t *testing.T, table []byte, units int64) {
		prices, err := leaseway.ParsePrices(table)
		if err != nil {
			return
		}
		if cost, err := prices.Cost("a", map[string]int64{"input": units}); err == nil && !(cost >= 0 && cost <= 1e15) {
			t.Errorf("%d units cost %g", units, cost)
		}
	})
}
