//! What a door counts.

use metrics::{counter, describe_counter, describe_gauge, gauge};

/// Gauges of a door.
const GAUGES: [(&str, &str); 1] = [("leaseway_door_resources", "Resources that are open at this door.")];

/// Counters of a door without labels.
const COUNTERS: [(&str, &str); 3] = [
    ("leaseway_door_resources_opened_total", "Resources that were opened because a request named them."),
    (
        "leaseway_door_resources_given_back_total",
        "Resources that were given back because no request named them any more.",
    ),
    ("leaseway_door_resources_refused_total", "Resources that were not opened because there are too many."),
];

/// Explains all of them, and begins counters at zero.
pub(crate) fn describe() {
    for (name, help) in GAUGES {
        describe_gauge!(name, help);
    }
    for (name, help) in COUNTERS {
        describe_counter!(name, help);
        counter!(name).absolute(0);
    }
}

pub(crate) fn resource_opened() {
    counter!("leaseway_door_resources_opened_total").increment(1);
}

pub(crate) fn resources_given_back(many: usize) {
    counter!("leaseway_door_resources_given_back_total").increment(many as u64);
}

pub(crate) fn resource_refused() {
    counter!("leaseway_door_resources_refused_total").increment(1);
}

pub(crate) fn resources_open(many: usize) {
    gauge!("leaseway_door_resources").set(many as f64);
}
