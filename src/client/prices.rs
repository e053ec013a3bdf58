//! Price tables, which turn usage into amounts of a budget.
//!
//! Prices are decimal numbers, and sums are exact: nothing is rounded before [`ExactAmount::as_f64`].

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
    iter::Sum,
    ops::Add,
};

use leaseway_core::{policy::parameters::nearest, types::escaped};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The number of decimal places of a price.
const PLACES: i32 = 18;
/// One, in units of [`ExactAmount`].
const ONE: u128 = 10u128.pow(PLACES as u32);
/// The maximum price, and the maximum amount that servers accept.
const MAX: u128 = 1_000_000_000_000_000 * ONE;
/// The number of significant digits that every `f64` has.
const SIGNIFICANT_DIGITS: usize = 15;
/// The maximum number of names that an error lists.
const MAX_LISTED: usize = 5;

/// Prices per unit, by the name of a model and the name of a kind of usage.
///
/// ```
/// # use leaseway_client::Prices;
/// let prices = Prices::from_json(r#"{"gpt-4o": {"input": 0.0000025, "output": 0.00001}}"#)?;
/// let cost = prices.cost("gpt-4o", [("input", 1200), ("output", 300)])?;
/// assert_eq!(cost.as_f64(), 0.006);
/// # Ok::<_, leaseway_client::PriceError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prices(BTreeMap<String, BTreeMap<String, ExactAmount>>);

/// An amount in units of 10⁻¹⁸. Sums are exact, and end at the largest `u128`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExactAmount(u128);

/// A price table is invalid, or has no price for a usage.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PriceError {
    /// The table is not an object of objects of prices.
    #[error("invalid price table: {0}")]
    Table(String),
    /// The table has no such model.
    #[error("no prices for the model `{}`{known}", escaped(model))]
    UnknownModel {
        /// The model.
        model: String,
        /// A similar one, or the first known ones.
        known: KnownNames,
    },
    /// The model has no price for such usage.
    #[error("the model `{}` has no price for `{}`{known}", escaped(model), escaped(usage))]
    UnknownUsage {
        /// The model.
        model: String,
        /// The kind of usage.
        usage: String,
        /// A similar one, or the first known ones.
        known: KnownNames,
    },
    /// The usage costs more than any budget can have.
    #[error("the usage of the model `{}` costs more than 1e15, the largest amount of a budget: check the units and the prices", escaped(.0))]
    TooLarge(String),
}

/// The names that a table has, for the end of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownNames {
    nearest: Option<String>,
    first: Vec<String>,
    count: usize,
}

impl KnownNames {
    fn of<T>(name: &str, known: &BTreeMap<String, T>) -> KnownNames {
        KnownNames {
            nearest: nearest(name, known.keys().map(String::as_str)).map(str::to_owned),
            first: known.keys().take(MAX_LISTED).cloned().collect(),
            count: known.len(),
        }
    }
}

impl fmt::Display for KnownNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(nearest) = &self.nearest {
            write!(f, " (did you mean `{}`?)", escaped(nearest))?;
        }
        if self.first.is_empty() {
            return f.write_str("; the table has none");
        }
        let first: Vec<_> = self.first.iter().map(|name| escaped(name)).collect();
        write!(f, "; known: {}", first.join(", "))?;
        match self.count - first.len() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

impl Prices {
    /// Reads `{"MODEL": {"USAGE": PRICE, …}, …}`. A price is a number, or a string with a number.
    pub fn from_json(json: &str) -> Result<Prices, PriceError> {
        let mut prices = Prices::default();
        let mut reader = serde_json::Deserializer::from_str(json);
        TableReader(&mut prices)
            .deserialize(&mut reader)
            .and_then(|()| reader.end())
            .map_err(|error| PriceError::Table(escaped(&error.to_string()).into_owned()))?;
        Ok(prices)
    }

    /// Adds the price of one unit, a decimal number such as `0.0000025` or `2.5e-6`, with at most 18 decimal places.
    pub fn insert(&mut self, model: &str, usage: &str, price: &str) -> Result<(), PriceError> {
        self.add(model, usage, price).map_err(PriceError::Table)
    }

    fn add(&mut self, model: &str, usage: &str, price: &str) -> Result<(), String> {
        let wrong = |why: &str| format!("the price of `{}` for `{}` {why}", escaped(usage), escaped(model));
        let parsed = parse(price).map_err(wrong)?;
        match self.0.entry(model.to_owned()).or_default().entry(usage.to_owned()) {
            Entry::Vacant(free) => {
                free.insert(parsed);
                Ok(())
            }
            Entry::Occupied(_) => Err(wrong("is given twice")),
        }
    }

    /// The cost of this usage: the sum of price times units. Errors name the model or the usage without a price.
    pub fn cost<'u>(
        &self,
        model: &str,
        usage: impl IntoIterator<Item = (&'u str, u64)>,
    ) -> Result<ExactAmount, PriceError> {
        let prices = self.0.get(model).ok_or_else(|| PriceError::UnknownModel {
            model: model.to_owned(),
            known: KnownNames::of(model, &self.0),
        })?;
        let mut total = 0;
        for (name, units) in usage {
            let price = prices.get(name).ok_or_else(|| PriceError::UnknownUsage {
                model: model.to_owned(),
                usage: name.to_owned(),
                known: KnownNames::of(name, prices),
            })?;
            // The total is at most MAX, so the sum of two fits.
            total = price
                .0
                .checked_mul(units.into())
                .filter(|cost| *cost <= MAX)
                .map(|cost| total + cost)
                .filter(|total| *total <= MAX)
                .ok_or_else(|| PriceError::TooLarge(model.to_owned()))?;
        }
        Ok(ExactAmount(total))
    }
}

/// Parses a decimal number. An error continues "the price …".
fn parse(text: &str) -> Result<ExactAmount, &'static str> {
    const NOT_A_NUMBER: &str = "is not a decimal number";
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().map_err(|_| NOT_A_NUMBER)?),
        None => (text, 0),
    };
    let is_negative = mantissa.starts_with('-');
    let mantissa = mantissa.strip_prefix('-').unwrap_or(mantissa);
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !are_digits(whole) || !are_digits(fraction) {
        return Err(NOT_A_NUMBER);
    }
    if is_negative {
        return Err("is negative");
    }
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_end_matches('0');
    let zeros = (digits.len() - significant.len()) as i32;
    let significant = significant.trim_start_matches('0');
    if significant.is_empty() {
        return Ok(ExactAmount(0));
    }
    // The power of ten, in units, of the last significant digit.
    let power = exponent.saturating_add(zeros).saturating_sub(fraction.len() as i32).saturating_add(PLACES);
    let power = u32::try_from(power).map_err(|_| "has more than 18 decimal places")?;
    let units = significant.parse::<u128>().ok();
    let units = units.and_then(|units| units.checked_mul(10u128.checked_pow(power)?)).filter(|units| *units <= MAX);
    units.map(ExactAmount).ok_or("is larger than 1e15")
}

impl ExactAmount {
    /// The amount as a budget takes it, rounded up to 15 significant digits.
    pub fn as_f64(self) -> f64 {
        let mut power = -PLACES;
        let mut units = self.0;
        let surplus = units.to_string().len().saturating_sub(SIGNIFICANT_DIGITS) as u32;
        if surplus > 0 {
            units = units.div_ceil(10u128.pow(surplus));
            power += surplus as i32;
        }
        format!("{units}e{power}").parse().expect("a decimal number")
    }
}

impl Add for ExactAmount {
    type Output = ExactAmount;

    fn add(self, other: ExactAmount) -> ExactAmount {
        ExactAmount(self.0.saturating_add(other.0))
    }
}

impl Sum for ExactAmount {
    fn sum<I: Iterator<Item = ExactAmount>>(amounts: I) -> ExactAmount {
        amounts.fold(ExactAmount::default(), Add::add)
    }
}

/// All digits, such as `0.006`.
impl fmt::Display for ExactAmount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fraction = format!("{:018}", self.0 % ONE);
        match fraction.trim_end_matches('0') {
            "" => write!(f, "{}", self.0 / ONE),
            fraction => write!(f, "{}.{fraction}", self.0 / ONE),
        }
    }
}

/// Reads a table. A map would keep the last of several equal keys.
struct TableReader<'p>(&'p mut Prices);

/// Reads the prices of one model.
struct ModelReader<'p> {
    prices: &'p mut Prices,
    model: String,
}

impl<'de> DeserializeSeed<'de> for TableReader<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for TableReader<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object like {\"MODEL\": {\"input\": 0.0000025}}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(model) = map.next_key::<String>()? {
            if self.0.0.insert(model.clone(), BTreeMap::new()).is_some() {
                return Err(A::Error::custom(format_args!("the model `{model}` is given twice")));
            }
            map.next_value_seed(ModelReader { prices: &mut *self.0, model })?;
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for ModelReader<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ModelReader<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the prices of `{}` as an object like {{\"input\": 0.0000025}}", self.model)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(usage) = map.next_key::<String>()? {
            // The text of the number, because binary numbers are not exact.
            let price = map.next_value::<&RawValue>()?.get();
            let price = serde_json::from_str::<&str>(price).unwrap_or(price);
            self.prices.add(&self.model, &usage, price).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn prices() -> Prices {
        let json = r#"{"gpt-4o": {"input": 0.0000025, "output": 1e-5}, "mini": {"input": "0.00000015", "image": 2}}"#;
        Prices::from_json(json).expect("valid")
    }

    #[test]
    fn a_cost_is_the_sum_of_price_times_units() {
        let prices = prices();
        let cost = prices.cost("gpt-4o", [("input", 1200), ("output", 300)]).expect("has prices");
        assert_eq!((cost.to_string(), cost.as_f64()), ("0.006".to_owned(), 0.006));
        assert_eq!(prices.cost("mini", [("image", 3)]).expect("has prices").to_string(), "6");
        assert_eq!(prices.cost("mini", [("input", 1), ("input", 2)]).expect("has prices").to_string(), "0.00000045");
        for usage in [&[("input", 0), ("output", 0)][..], &[]] {
            assert_eq!(prices.cost("gpt-4o", usage.iter().copied()).expect("has prices").as_f64(), 0.0);
        }
    }

    #[test]
    fn a_million_costs_add_up_to_the_exact_product() {
        let prices = Prices::from_json(r#"{"m": {"in": 0.0000001, "out": 0.0000007}}"#).expect("valid");
        let one = prices.cost("m", [("in", 1), ("out", 1)]).expect("has prices");
        let all = prices.cost("m", [("in", 1_000_000), ("out", 1_000_000)]).expect("has prices");
        let sum: ExactAmount = (0..1_000_000).map(|_| one).sum();
        assert_eq!((sum, sum.to_string()), (all, "0.8".to_owned()));
        let drifted: f64 = (0..1_000_000).map(|_| one.as_f64()).sum();
        assert_ne!(drifted, all.as_f64(), "binary numbers would have passed this test");
    }

    #[test]
    fn errors_name_what_has_no_price_and_what_has() {
        let prices = prices();
        let unknown = |model: &str, usage: &str| prices.cost(model, [(usage, 1)]).expect_err("unknown").to_string();
        assert_eq!(
            unknown("gpt-4", "input"),
            "no prices for the model `gpt-4` (did you mean `gpt-4o`?); known: gpt-4o, mini"
        );
        assert_eq!(
            unknown("gpt-4o", "cached\n"),
            "the model `gpt-4o` has no price for `cached\\n`; known: input, output"
        );
        let mut many = Prices::default();
        assert!(many.cost("a", []).expect_err("unknown").to_string().ends_with("`a`; the table has none"));
        ('a'..='h').for_each(|model| many.insert(&model.to_string(), "x", "1").expect("valid"));
        assert!(many.cost("zzz", []).expect_err("unknown").to_string().ends_with("known: a, b, c, d, e and 3 more"));
    }

    /// `testdata/prices.json` describes its fields. The other clients read it, too.
    #[test]
    fn the_vectors_of_all_clients_hold() {
        let file: Value = serde_json::from_str(include_str!("testdata/prices.json")).expect("valid JSON");
        let each = |list: &str, check: &dyn Fn(&Value)| {
            let cases = file[list].as_array().expect(list);
            assert!(cases.len() > 10);
            cases.iter().for_each(check);
        };
        let text = |case: &'_ Value, field: &str| case[field].as_str().expect(field).to_owned();
        let table = |case: &Value| Prices::from_json(&text(case, "table"));
        let cost = |case: &Value| {
            let usage = case["usage"].as_object().expect("an object").iter();
            let usage = usage.map(|(name, units)| (name.as_str(), units.as_u64().expect("a whole number")));
            table(case).expect("a valid table").cost(&text(case, "model"), usage)
        };
        let says = |case: &Value, error: PriceError| {
            let message = error.to_string();
            for part in case["says"].as_array().expect("an array") {
                assert!(message.contains(part.as_str().expect("a text")), "{case}: {message}");
            }
        };
        each("costs", &|case| {
            let amount: f64 = text(case, "amount").parse().expect("a number");
            assert_eq!(cost(case).expect("has prices").as_f64(), amount, "{case}");
        });
        each("refused_costs", &|case| says(case, cost(case).expect_err("refused")));
        each("refused_tables", &|case| says(case, table(case).expect_err("refused")));
    }

    #[test]
    fn names_in_errors_of_tables_are_escaped() {
        let error = Prices::from_json(r#"{"\u001b[2J": {"in": -1}}"#).expect_err("negative").to_string();
        assert!(error.starts_with("invalid price table: ") && error.contains("\\u001b"), "{error}");
    }
}
