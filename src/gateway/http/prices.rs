//! The price table: usage in place of an amount of a budget.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use leaseway_client::{PriceError, Prices};
use leaseway_server::config::watched_files::{POLL_INTERVAL, WatchedFiles};
use metrics::{counter, describe_counter};
use serde_json::Value;
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};

use super::{
    fields::{Fields, UNITS, Usage},
    problem::{Problem, ProblemKind},
};

/// A file of prices as JSON. It is reloaded when it changes.
#[derive(Debug, Clone)]
pub struct PriceFile(watch::Receiver<Arc<Prices>>);

#[derive(Debug, thiserror::Error)]
pub enum PriceFileError {
    #[error("cannot read {}: {error}; pass a price file that this user may read (--prices)", path.display())]
    Read {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error("{}: {error}", path.display())]
    Invalid {
        path: PathBuf,
        #[source]
        error: Box<PriceError>,
    },
}

/// Values of the label `outcome` of `leaseway_gateway_price_reloads_total`.
const RELOADS: [&str; 2] = ["applied", "rejected"];

/// Describes the metrics, and starts counters at zero.
pub(crate) fn describe_metrics() {
    describe_counter!("leaseway_gateway_price_reloads_total", "Attempts to reload the price table, by outcome.");
    for outcome in RELOADS {
        counter!("leaseway_gateway_price_reloads_total", "outcome" => outcome).absolute(0);
    }
}

impl PriceFile {
    /// Must be called within a tokio runtime.
    pub fn read(path: &Path) -> Result<PriceFile, PriceFileError> {
        let watched = WatchedFiles::new(vec![path.to_owned()]);
        let (current, prices) = watch::channel(Arc::new(load(path)?));
        tokio::spawn(reload(watched, current));
        Ok(PriceFile(prices))
    }
}

fn load(path: &Path) -> Result<Prices, PriceFileError> {
    let text = fs::read_to_string(path).map_err(|error| PriceFileError::Read { path: path.to_owned(), error })?;
    Prices::from_json(&text).map_err(|error| PriceFileError::Invalid { path: path.to_owned(), error: Box::new(error) })
}

/// Reloads the table when its file changes, until nobody uses it. An invalid file changes nothing.
async fn reload(mut files: WatchedFiles, current: watch::Sender<Arc<Prices>>) {
    let mut interval = interval(POLL_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !current.is_closed() {
        interval.tick().await;
        if !files.have_changed() {
            continue;
        }
        files.mark_read();
        let outcome = match load(&files.paths()[0]) {
            Ok(prices) => {
                current.send_replace(Arc::new(prices));
                tracing::info!("prices reloaded");
                "applied"
            }
            Err(error) => {
                tracing::error!("prices rejected, the previous ones stay in force: {error}");
                "rejected"
            }
        };
        counter!("leaseway_gateway_price_reloads_total", "outcome" => outcome).increment(1);
    }
}

/// Replaces usage in a request by the amount that it costs.
pub(super) fn price(fields: Fields, file: Option<&PriceFile>) -> Result<Fields, Problem> {
    if !fields.have_usage() {
        return Ok(fields);
    }
    let prices = file.map(|file| Arc::clone(&file.0.borrow()));
    fields.price(&|Usage { path, model, units }| {
        let bad = |field: &str, why: &str| Problem::of_field(ProblemKind::BadValue, &format!("{path}{field}"), why);
        let Some(prices) = &prices else {
            return Err(bad("usage", "needs a price table: start this gateway with --prices"));
        };
        let units = units.iter().map(|(name, units)| (name.as_str(), whole(units)));
        prices.cost(model, units).map(|cost| cost.as_f64()).map_err(|error| {
            let field = if let PriceError::UnknownModel { .. } = error { "model" } else { "usage" };
            bad(field, &format!("has no cost: {error}"))
        })
    })
}

/// A number of units, which was validated.
fn whole(units: &Value) -> u64 {
    let units = units.as_f64().unwrap_or_default();
    debug_assert!(units.fract() == 0.0 && UNITS.contains(&units), "{units}");
    units as u64
}

#[cfg(test)]
mod tests {
    use super::{super::operation::Operation, *};

    fn read(operation: Operation, body: &str, file: Option<&PriceFile>) -> Result<Fields, String> {
        let fields = Fields::of_body(operation.body(), body.as_bytes()).and_then(|fields| price(fields, file));
        fields.map_err(|problem| format!("{problem:?}"))
    }

    fn prices() -> PriceFile {
        let json = r#"{"gpt-4o": {"input": 0.0000025, "output": 0.00001}, "m": {"dear": 1e15}}"#;
        PriceFile(watch::channel(Arc::new(Prices::from_json(json).expect("valid"))).1)
    }

    const USAGE: &str = r#""model": "gpt-4o", "usage": {"input": 1200, "output": 300.0}"#;

    #[test]
    fn usage_becomes_the_amount_of_each_operation() {
        let file = prices();
        let read = |operation, body: &str| read(operation, body, Some(&file)).expect(body);
        for (operation, name) in [
            (Operation::Spend, "amount"),
            (Operation::Charge, "amount"),
            (Operation::Reserve, "amount"),
            (Operation::Settle, "used"),
        ] {
            let fields = read(operation, &format!("{{{USAGE}}}"));
            assert_eq!(fields.number_if_given(name), Some(0.006), "{operation:?}");
        }
        let body = format!(r#"{{"limits": [{{"resource": "a", {USAGE}}}, {{"resource": "b", "permits": 2}}]}}"#);
        for operation in [Operation::AcquireAll, Operation::ReserveAll] {
            let limits = read(operation, &body).list("limits");
            let amounts: Vec<_> = limits.iter().map(|limit| limit.number_if_given("amount")).collect();
            assert_eq!(amounts, [Some(0.006), None], "{operation:?}");
            assert_eq!((limits[0].id("resource"), limits[1].number("permits")), ("a", 2.0));
        }
        let limits = read(Operation::SettleAll, &format!(r#"{{"limits": [{{{USAGE}}}, {{"used": 3}}]}}"#));
        let used: Vec<_> = limits.list("limits").iter().map(|limit| limit.number("used")).collect();
        assert_eq!(used, [0.006, 3.0]);
    }

    #[test]
    fn errors_name_the_field_without_a_price() {
        let file = prices();
        for (operation, body, says) in [
            (
                Operation::Spend,
                r#"{"model": "gpt-4", "usage": {"input": 1}}"#,
                "`model` has no cost: no prices for the model `gpt-4` (did you mean `gpt-4o`?)",
            ),
            (
                Operation::Spend,
                r#"{"model": "gpt-4o", "usage": {"cached": 1}}"#,
                "`usage` has no cost: the model `gpt-4o` has no price for `cached`; known: input, output",
            ),
            (
                Operation::Spend,
                r#"{"model": "m", "usage": {"dear": 2}}"#,
                "`usage` has no cost: the usage of the model `m`",
            ),
            (Operation::Spend, r#"{"model": "m"}"#, "`usage` is missing; `model` needs it"),
            (Operation::Spend, r#"{"usage": {"input": 1}}"#, "`model` is missing; `usage` needs it"),
            (Operation::Spend, r#"{"wait": 1}"#, "`amount` is missing; expected a number from 0 to 1e15, or `usage`"),
            (Operation::Spend, r#"{"amount": 1, "model": "m", "usage": {}}"#, "`usage` excludes `amount`"),
            (Operation::Reserve, r#"{"model": "m", "usage": {}, "permits": 1}"#, "`permits` excludes `usage`"),
            (
                Operation::Settle,
                r#"{"model": "m", "usage": {"input": -1}}"#,
                "`usage` is an object; expected an object",
            ),
            (Operation::Settle, r#"{"model": "m", "usage": {"input": 0.5}}"#, "of whole numbers from 0 to 1e15"),
            (Operation::Settle, r#"{"model": "m", "usage": 7}"#, "`usage` is 7; expected an object"),
            (
                Operation::AcquireAll,
                r#"{"limits": [{"resource": "a"}, {"resource": "b", "model": "x", "usage": {"input": 1}}]}"#,
                "`limits[1].model` has no cost",
            ),
            (
                Operation::SettleAll,
                r#"{"limits": [{"model": "gpt-4o", "usage": {"x": 1}}]}"#,
                "`limits[0].usage` has no cost",
            ),
        ] {
            let problem = read(operation, body, Some(&file)).map(drop).expect_err(body);
            assert!(problem.contains(says), "{body}: {problem}");
        }
        let problem = read(Operation::Spend, &format!("{{{USAGE}}}"), None).map(drop).expect_err("no table");
        assert!(problem.contains("`usage` needs a price table: start this gateway with --prices"), "{problem}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_table_is_reloaded_and_stays_if_the_file_is_invalid() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("prices.json");
        let write = |text: &str| fs::write(&path, text).expect("written");
        assert!(matches!(PriceFile::read(&path), Err(PriceFileError::Read { .. })));
        write(r#"{"m": {"in": -1}}"#);
        let error = PriceFile::read(&path).expect_err("negative").to_string();
        assert!(error.contains("prices.json: ") && error.contains("`in` for `m` is negative"), "{error}");

        write(r#"{"m": {"in": 1}}"#);
        let file = PriceFile::read(&path).expect("valid");
        let cost = || file.0.borrow().cost("m", [("in", 1)]).expect("has a price").as_f64();
        assert_eq!(cost(), 1.0);
        write(r#"{"m": {"in": 2.5}}"#);
        tokio::time::sleep(POLL_INTERVAL * 4).await;
        assert_eq!(cost(), 2.5);
        write(r#"{"m": {"in": "free"}}"#);
        tokio::time::sleep(POLL_INTERVAL * 4).await;
        assert_eq!(cost(), 2.5);
        write(r#"{"m": {"in": 4}}"#);
        tokio::time::sleep(POLL_INTERVAL * 4).await;
        assert_eq!(cost(), 4.0);
    }
}
