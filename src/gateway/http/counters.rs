//! Requests by HTTP, counted.

use std::collections::HashMap;

use axum::http::StatusCode;
use metrics::{Counter, counter, describe_counter, describe_gauge, gauge};

use super::operation::Operation;

/// Counters of requests, by operation and status of the answer: found once, not with every request.
pub(super) struct RequestCounters(HashMap<(Operation, StatusCode), Counter>);

fn counter_of(operation: Operation, code: StatusCode) -> Counter {
    let code = code.as_str().to_owned();
    counter!("leaseway_gateway_http_requests_total", "operation" => operation.name(), "code" => code)
}

impl RequestCounters {
    /// All that the table of operations names are there from the start.
    pub(super) fn new() -> RequestCounters {
        describe_counter!(
            "leaseway_gateway_http_requests_total",
            "Requests by HTTP that name an operation, by operation and status of the answer."
        );
        describe_gauge!("leaseway_gateway_reservations", "Reservations of permits that are not settled.");
        let mut counters = HashMap::new();
        for operation in Operation::ALL {
            let answered = StatusCode::from_u16(operation.answer().0).unwrap_or_default();
            for code in operation.problems().iter().map(|kind| kind.status()).chain([answered]) {
                counters.insert((operation, code), counter_of(operation, code));
            }
        }
        counters.values().for_each(|counter| counter.absolute(0));
        RequestCounters(counters)
    }

    pub(super) fn count(&self, operation: Operation, code: StatusCode) {
        match self.0.get(&(operation, code)) {
            Some(counter) => counter.increment(1),
            None => counter_of(operation, code).increment(1),
        }
    }
}

/// How many reservations there are.
pub(super) fn reservations(count: usize) {
    gauge!("leaseway_gateway_reservations").set(count as f64);
}
