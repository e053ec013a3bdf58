//! Flags that several commands have.

use std::time::Duration;

pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=86_400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected a number of seconds, at most a day".into())
}

pub(crate) fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
    percent.ok_or_else(|| "expected a percentage from 0 to 100".into())
}

/// What a new master knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum Handover {
    /// What its predecessor promised.
    #[default]
    Promises,
    /// Nothing: it learns from clients first.
    Learning,
}

impl Handover {
    /// The value in the simulator.
    pub(crate) fn simulated(self) -> leaseway_sim::scenario::Handover {
        match self {
            Handover::Promises => leaseway_sim::scenario::Handover::Promises,
            Handover::Learning => leaseway_sim::scenario::Handover::Learning,
        }
    }
}

/// A value as it is written on the command line.
pub(crate) fn word(value: &impl clap::ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sensible_numbers_are_accepted() {
        assert_eq!((seconds("0.5"), percent("0.5")), (Ok(Duration::from_millis(500)), Ok(0.5)));
        for wrong in ["NaN", "-1", "inf", "86401", ""] {
            assert!(seconds(wrong).is_err() && percent(wrong).is_err(), "{wrong}");
        }
    }
}
