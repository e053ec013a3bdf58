//! The oracle: the capacity that a single server with full knowledge would give each client. It is the core's own
//! division, without a tree and without leases.

use std::{collections::HashMap, sync::Arc};

use leaseway_core::{
    policy::settings::Settings,
    resource::{Ask, Request, Resource, ResourceOptions, RoundScratch, report::holder_reports, supply::Source},
    types::{Amount, Claim, Claims, Epoch, Millis, Now},
};
use serde::Serialize;

use crate::accounting::per_cent;

/// The deviation of clients from their dues, in percent of the due.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Deviation {
    pub mean: f64,
    pub worst: f64,
}

/// A client: its name, which determines its group, its wants and its priority.
pub(crate) type Demand = (String, Amount, i16);

/// The due of each client.
pub(crate) fn dues(settings: &Settings, demands: &[Demand]) -> Vec<Amount> {
    let now = Now { at: Millis(0), unix: 0 };
    let options = ResourceOptions {
        settings: settings.clone().into(),
        source: Source::Own,
        epoch: Epoch(1),
        since: now.at,
        learning_until: now.at,
        inherited: None,
        max_holders: usize::MAX,
        seed: 0,
    };
    let mut flat = Resource::new(options);
    let ask = |(name, wants, priority): &Demand| {
        Request::Ask(Ask {
            claims: Claims::from_slice(&[Claim::of_client(*wants, (*priority).into())]),
            ..Ask::of_nothing(name.as_str().into())
        })
    };
    flat.round(now, &mut demands.iter().map(ask).collect(), &mut Vec::new(), &mut RoundScratch::default());
    let holders = holder_reports(&flat, now.at, 0, usize::MAX).0.into_iter();
    let dues: HashMap<Arc<str>, Amount> = holders.map(|holder| (holder.id, holder.due)).collect();
    demands.iter().map(|(name, ..)| dues.get(name.as_str()).copied().unwrap_or_default()).collect()
}

/// The deviation of the clients' capacities from their dues. Clients with a due of 0 do not count.
pub(crate) fn deviation(dues: &[Amount], has: impl Iterator<Item = Amount>) -> Deviation {
    let (mut sum, mut count, mut worst) = (0.0, 0usize, 0.0f64);
    for (due, has) in dues.iter().zip(has).filter(|(due, _)| **due > Amount::ZERO) {
        let distance = per_cent((has.get() - due.get()).abs(), due.get());
        (sum, count, worst) = (sum + distance, count + 1, worst.max(distance));
    }
    Deviation { mean: sum / count.max(1) as f64, worst }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leaseway_core::policy::settings::{AlgorithmKind, Priority};

    fn amounts(values: &[f64]) -> Vec<Amount> {
        values.iter().map(|value| Amount::clamped(*value)).collect()
    }

    #[test]
    fn dues_follow_the_algorithm() {
        let fair = Settings::new(AlgorithmKind::FairShare, Amount::clamped(100.0));
        let demands = |wants: &[f64]| {
            let named = amounts(wants).into_iter().enumerate().zip([0, 0, 3]);
            named.map(|((index, wants), priority)| (index.to_string(), wants, priority)).collect::<Vec<_>>()
        };
        assert_eq!(dues(&fair, &demands(&[10.0, 80.0, 1000.0])), amounts(&[10.0, 45.0, 45.0]));
        let strict = Settings { priority: Priority::Strict, reserve: 0.15, ..fair };
        assert_eq!(dues(&strict, &demands(&[10.0, 80.0, 1000.0])), amounts(&[5.0, 5.0, 90.0]));
        let proportional = Settings::new(AlgorithmKind::ProportionalShare, Amount::clamped(100.0));
        assert_eq!(dues(&proportional, &demands(&[30.0, 50.0])), amounts(&[30.0, 50.0]));
    }
}
