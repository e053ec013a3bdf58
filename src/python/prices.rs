//! Price tables.

use leaseway_client::Prices;
use pyo3::{
    prelude::*,
    types::{PyDict, PyMapping, PyString},
};

use crate::{arguments::units, error::ClientError};

/// Prices per unit, by model and kind of usage, such as `{"gpt-4o": {"input": 0.0000025, "output": 0.00001}}`. Made
/// from such a dict, from its JSON text, or from the path of a JSON file. Prices may also be `Decimal` or `str`.
#[pyclass(name = "Prices", frozen, module = "leaseway._native")]
pub(crate) struct NativePrices(Prices);

/// Reads a dict. `str` has all digits of a number, which its JSON text has, too.
fn from_mapping(table: &Bound<'_, PyMapping>) -> PyResult<Prices> {
    let mut prices = Prices::default();
    for entry in table.items()?.iter() {
        let (model, of_model): (String, Bound<'_, PyMapping>) = entry.extract()?;
        for entry in of_model.items()?.iter() {
            let (usage, price): (String, Bound<'_, PyAny>) = entry.extract()?;
            prices.insert(&model, &usage, &price.str()?.to_cow()?).map_err(ClientError::from)?;
        }
    }
    Ok(prices)
}

fn from_json(json: &str) -> PyResult<Prices> {
    Ok(Prices::from_json(json).map_err(ClientError::from)?)
}

#[pymethods]
impl NativePrices {
    #[new]
    fn new(table: &Bound<'_, PyAny>) -> PyResult<NativePrices> {
        if let Ok(table) = table.cast::<PyMapping>() {
            return Ok(NativePrices(from_mapping(table)?));
        }
        if let Ok(text) = table.cast::<PyString>()
            && text.to_cow()?.trim_start().starts_with('{')
        {
            return Ok(NativePrices(from_json(&text.to_cow()?)?));
        }
        let path = table.py().import("pathlib")?.getattr("Path")?.call1((table,))?;
        let text: String = path.call_method1("read_text", ("utf-8",))?.extract()?;
        Ok(NativePrices(from_json(&text)?))
    }

    /// The cost of this usage, which is computed exactly, and then rounded up to 15 significant digits. Raises
    /// ValueError if the table has no price for it.
    #[pyo3(signature = (model, /, **usage))]
    fn cost(&self, model: &str, usage: Option<&Bound<'_, PyDict>>) -> PyResult<f64> {
        let mut counted = Vec::new();
        for (name, number) in usage.into_iter().flatten() {
            let name: String = name.extract()?;
            let number = units(&name, number.extract()?)?;
            counted.push((name, number));
        }
        let counted = counted.iter().map(|(name, number)| (name.as_str(), *number));
        Ok(self.0.cost(model, counted).map_err(ClientError::from)?.as_f64())
    }
}
