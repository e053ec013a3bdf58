//! Reads the settings of a resource from a parent's answer. Invalid settings are ignored and logged; the rest of the
//! answer remains valid.

use leaseway_core::{
    policy::{
        parameters::{NamedParameter, ParameterError},
        settings::{AlgorithmKind, SafeCapacity, Settings},
    },
    types::{Amount, Millis},
};
use leaseway_proto::doorman as wire;

/// The longest lease that a configuration may set, in seconds.
const LONGEST_SECS: i64 = 31 * 86_400;

/// The errors in the settings of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Complaint {
    /// This node cannot run the algorithm: each holder is granted its wants, up to the node's own lease.
    pub(super) impossible: bool,
    /// Empty if there are no errors.
    pub(super) text: String,
}

/// Reads the valid part of the parent's settings. The capacity is that of the lease.
pub(super) fn instructed(algorithm: Option<&wire::Algorithm>, safe_capacity: Option<f64>) -> (Settings, Complaint) {
    let mut wrong = Vec::new();
    let (settings, impossible) = match algorithm {
        Some(algorithm) => read(algorithm, &mut wrong),
        None => {
            wrong.push("the algorithm is missing".to_owned());
            (Settings::new(AlgorithmKind::NoAlgorithm, Amount::ZERO), true)
        }
    };
    let safe_capacity = safe_capacity.map_or(SafeCapacity::Dynamic, |safe| read_safe_capacity(safe, &mut wrong));
    (Settings { safe_capacity, ..settings }, Complaint { impossible, text: wrong.join("; ") })
}

fn read(algorithm: &wire::Algorithm, wrong: &mut Vec<String>) -> (Settings, bool) {
    let number = algorithm.kind.unwrap_or_default();
    let kind = AlgorithmKind::from_number(number);
    if kind.is_none() {
        wrong.push(format!("algorithm {number} is unknown to this server"));
    }
    let mut settings = without_parameters(kind.unwrap_or(AlgorithmKind::NoAlgorithm), algorithm);
    let mut possible = kind.is_some();
    for parameter in &algorithm.parameters {
        let parameter =
            NamedParameter { name: parameter.name.clone().unwrap_or_default(), value: parameter.value.clone() };
        if let Err(error) = settings.apply(&parameter) {
            // An unknown parameter is ignored; any other error makes the settings unusable.
            possible &= matches!(error, ParameterError::Unknown { .. });
            wrong.push(error.to_string());
        }
    }
    if possible { (settings, false) } else { (without_parameters(AlgorithmKind::NoAlgorithm, algorithm), true) }
}

/// Missing and invalid durations get the defaults of templates.
fn without_parameters(kind: AlgorithmKind, algorithm: &wire::Algorithm) -> Settings {
    let length = |secs: Option<i64>| {
        let secs = secs.filter(|secs| *secs > 0).map(|secs| secs.min(LONGEST_SECS));
        secs.and_then(|secs| u64::try_from(secs).ok()).map(Millis::from_secs)
    };
    let lease = length(algorithm.lease_length).unwrap_or(Settings::DEFAULT_LEASE);
    let refresh = length(algorithm.refresh_interval).unwrap_or(Settings::DEFAULT_REFRESH).min(lease);
    // A negative duration counts as zero.
    let learning = algorithm.learning_mode_duration.map(|secs| length(Some(secs)).unwrap_or_default());
    Settings { lease, refresh, learning, ..Settings::new(kind, Amount::ZERO) }
}

fn read_safe_capacity(safe: f64, wrong: &mut Vec<String>) -> SafeCapacity {
    match Amount::new(safe) {
        Ok(amount) => SafeCapacity::Fixed(amount),
        Err(_) if safe < 0.0 => SafeCapacity::Unlimited,
        Err(error) => {
            wrong.push(format!("the safe capacity is {safe}, {error}"));
            SafeCapacity::Dynamic
        }
    }
}

#[cfg(test)]
mod tests {
    use leaseway_core::policy::settings::Reuse;

    use super::*;

    fn algorithm(kind: i32, parameters: &[(&str, &str)]) -> wire::Algorithm {
        let parameters = parameters.iter().map(|(name, value)| wire::NamedParameter {
            name: Some((*name).to_owned()),
            value: Some((*value).to_owned()),
        });
        wire::Algorithm {
            kind: Some(kind),
            lease_length: Some(40),
            refresh_interval: Some(4),
            parameters: parameters.collect(),
            learning_mode_duration: Some(7),
        }
    }

    #[test]
    fn a_resource_uses_the_settings_of_the_parent() {
        let said = algorithm(2, &[("reuse", "prompt"), ("max_priority", "3")]);
        let (settings, Complaint { impossible, text: complaint }) = instructed(Some(&said), Some(5.0));
        assert_eq!((settings.kind, settings.reuse), (AlgorithmKind::ProportionalShare, Reuse::Prompt));
        assert_eq!(settings.max_priority, Some(3));
        assert_eq!((settings.lease, settings.refresh), (Millis(40_000), Millis(4_000)), "as at the parent");
        assert_eq!(settings.learning, Some(Millis(7_000)));
        assert_eq!(settings.safe_capacity, SafeCapacity::Fixed(Amount::clamped(5.0)));
        assert_eq!((impossible, complaint.as_str()), (false, ""));
    }

    #[test]
    fn unusable_settings_become_no_algorithm_with_the_same_durations() {
        let bad = [algorithm(99, &[]), algorithm(-1, &[]), algorithm(3, &[("reuse", "never"), ("max_priority", "1")])];
        for said in bad {
            let (settings, Complaint { impossible, text: complaint }) = instructed(Some(&said), None);
            assert_eq!((settings.kind, settings.lease), (AlgorithmKind::NoAlgorithm, Millis(40_000)));
            assert_eq!(settings.max_priority, None, "settings count as a whole or not at all");
            assert!(impossible && !complaint.is_empty());
        }
        assert!(instructed(None, None).1.impossible);
    }

    #[test]
    fn durations_among_the_parameters_are_ignored() {
        let said = algorithm(3, &[("lease_duration_secs", "5"), ("refresh_interval", "x"), ("reuse", "prompt")]);
        let (settings, Complaint { impossible, text: complaint }) = instructed(Some(&said), None);
        assert_eq!(
            (settings.lease, settings.refresh),
            (Millis(40_000), Millis(4_000)),
            "the fields of the algorithm count"
        );
        assert_eq!((settings.reuse, impossible, complaint.as_str()), (Reuse::Prompt, false, ""));
    }

    #[test]
    fn an_unknown_parameter_is_reported_and_ignored() {
        let said = algorithm(3, &[("colour", "red"), ("reuse", "prompt")]);
        let (settings, Complaint { impossible, text: complaint }) = instructed(Some(&said), None);
        assert_eq!((settings.kind, settings.reuse, impossible), (AlgorithmKind::FairShare, Reuse::Prompt, false));
        assert!(complaint.contains("colour"), "{complaint}");
    }

    #[test]
    fn invalid_durations_get_defaults_and_a_refresh_precedes_the_expiry() {
        for none in [None, Some(0), Some(-5)] {
            let said = wire::Algorithm { lease_length: none, refresh_interval: none, ..algorithm(3, &[]) };
            let settings = instructed(Some(&said), None).0.of_child();
            assert_eq!((settings.lease, settings.refresh), (Millis(60_000), Millis(2_000)));
        }
        let said = wire::Algorithm { refresh_interval: Some(i64::MAX), ..algorithm(3, &[]) };
        assert_eq!(instructed(Some(&said), None).0.of_child().refresh, Millis(20_000), "half of the lease");
        let said = wire::Algorithm { learning_mode_duration: Some(-1), ..algorithm(3, &[]) };
        assert_eq!(instructed(Some(&said), None).0.learning, Some(Millis(0)), "none at all");
    }

    #[test]
    fn the_refresh_interval_decays_by_the_factor_of_the_parent_but_not_below_a_second() {
        for (said, factor, refresh) in [(16, "0.5", 8), (16, "1", 16), (5, "0.5", 2), (10, "0.25", 2), (1, "0.01", 1)] {
            let said = wire::Algorithm { refresh_interval: Some(said), ..algorithm(3, &[("decay_factor", factor)]) };
            assert_eq!(instructed(Some(&said), None).0.of_child().refresh, Millis::from_secs(refresh), "{said:?}");
        }
    }

    #[test]
    fn a_negative_safe_capacity_is_unlimited_and_a_missing_one_is_dynamic() {
        let safe = |said| instructed(Some(&algorithm(3, &[])), said).0.safe_capacity;
        assert_eq!(safe(Some(-1.0)), SafeCapacity::Unlimited);
        assert_eq!(safe(Some(0.0)), SafeCapacity::Fixed(Amount::ZERO));
        assert_eq!((safe(None), safe(Some(f64::NAN))), (SafeCapacity::Dynamic, SafeCapacity::Dynamic));
    }
}
