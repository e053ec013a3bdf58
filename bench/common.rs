//! Shared by the commands: flags, processes under test, TLS, output and errors.

pub(crate) mod driver;
pub(crate) mod error;
pub(crate) mod output;
pub(crate) mod redis;
pub(crate) mod server;
pub(crate) mod tls;

use std::{io, time::Duration};

use tokio::runtime::{self, Runtime};

pub(crate) fn current_thread() -> io::Result<Runtime> {
    runtime::Builder::new_current_thread().enable_all().build()
}

pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=86_400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected a number of seconds, at most a day".into())
}

pub(crate) fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
    percent.ok_or_else(|| "expected a percentage from 0 to 100".into())
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
