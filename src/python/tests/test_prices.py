"""Price tables."""

import decimal
import json
from pathlib import Path

import pytest

import leaseway

# The file describes its fields. The other clients read it, too.
VECTORS = json.loads((Path(__file__).parents[2] / "client" / "testdata" / "prices.json").read_text())
TABLE = {"gpt-4o": {"input": 0.0000025, "output": 0.00001}, "gpt-4o-mini": {"input": 0.00000015}}


def test_usage_becomes_an_amount():
    prices = leaseway.Prices(TABLE)
    assert prices.cost("gpt-4o", input=1200, output=300) == 0.006
    assert prices.cost("gpt-4o", input=0) == 0
    assert prices.cost("gpt-4o") == 0
    # The sum of binary numbers would be 0.30000000000000004.
    assert leaseway.Prices({"m": {"a": 0.1, "b": 0.2}}).cost("m", a=1, b=1) == 0.3


def cost(vector):
    return leaseway.Prices(vector["table"]).cost(vector["model"], **vector["usage"])


@pytest.mark.parametrize("vector", VECTORS["costs"], ids=lambda vector: vector["name"])
def test_costs_of_all_clients(vector):
    assert cost(vector) == float(vector["amount"])


@pytest.mark.parametrize("vector", VECTORS["refused_costs"], ids=lambda vector: vector["name"])
def test_costs_that_all_clients_refuse(vector):
    with pytest.raises(ValueError) as refused:
        cost(vector)
    assert all(part in str(refused.value) for part in vector["says"])


# Other texts are paths.
@pytest.mark.parametrize("vector", [vector for vector in VECTORS["refused_tables"] if vector["table"].startswith("{")])
def test_tables_that_all_clients_refuse(vector):
    with pytest.raises(ValueError) as refused:
        leaseway.Prices(vector["table"])
    assert all(part in str(refused.value) for part in vector["says"])


def test_a_table_comes_from_a_dict_from_text_or_from_a_file(tmp_path):
    file = tmp_path / "prices.json"
    file.write_text(json.dumps(TABLE))
    exact = {
        "gpt-4o": {"input": decimal.Decimal("2.5E-6"), "output": "0.00001"},
    }
    for table in (TABLE, json.dumps(TABLE), "\n" + json.dumps(TABLE), file, str(file), exact):
        assert leaseway.Prices(table).cost("gpt-4o", input=1200, output=300) == 0.006
    with pytest.raises(FileNotFoundError, match="none.json"):
        leaseway.Prices(tmp_path / "none.json")
    with pytest.raises(TypeError):
        leaseway.Prices(7)
    with pytest.raises(TypeError):
        leaseway.Prices({"gpt-4o": 1})


def test_errors_name_the_model_or_the_usage():
    prices = leaseway.Prices(TABLE)
    with pytest.raises(ValueError, match="no prices for the model `gpt-5`.*known: gpt-4o, gpt-4o-mini"):
        prices.cost("gpt-5", input=1)
    with pytest.raises(ValueError, match="`gpt-4o-mini` has no price for `output`; known: input"):
        prices.cost("gpt-4o-mini", output=1)
    with pytest.raises(ValueError, match="input=-1"):
        prices.cost("gpt-4o", input=-1)
    with pytest.raises(TypeError):
        prices.cost("gpt-4o", input=0.5)


@pytest.mark.parametrize("price", [-1, float("nan"), float("inf"), decimal.Decimal("NaN"), "cheap", True, None])
def test_a_wrong_price_is_refused_with_its_name(price):
    with pytest.raises(ValueError, match="price of `input` for `m`"):
        leaseway.Prices({"m": {"input": price}})


def test_a_price_given_twice_is_refused():
    with pytest.raises(ValueError, match="price of `input` for `m` is given twice"):
        leaseway.Prices('{"m": {"input": 1, "input": 2}}')
