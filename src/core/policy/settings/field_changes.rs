//! Settings as text for operators, field by field.

use super::{SafeCapacity, Settings};
use crate::{
    policy::{
        client_rules::{ClientRule, ClientRules},
        settings::{AlgorithmKind, Reuse},
    },
    types::{Amount, Millis, readable},
};

/// A field with different values in two settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldChange {
    /// The name in configuration files.
    pub field: &'static str,
    pub from: String,
    pub to: String,
}

impl Settings {
    /// All fields as text. The pattern names every field, so the compiler reports a field that is missing here.
    pub fn in_words(&self) -> Vec<(&'static str, String)> {
        let Settings {
            capacity,
            kind,
            lease,
            refresh,
            learning,
            safe_capacity,
            priority,
            reserve,
            max_priority,
            doorman_priority,
            reuse,
            headroom,
            decay_factor,
            shadow,
            whole_units,
            rotation_period,
            min_request_interval,
            load_bounds: (floor, ceiling),
            pool,
            budget,
            clients,
            groups,
        } = self;
        let bound = |bound: &Option<Amount>| bound.map_or_else(|| "the capacity".to_owned(), amount);
        let is_unlimited = *kind == AlgorithmKind::NoAlgorithm && *capacity == Amount::ZERO;
        let general = vec![
            ("capacity", if is_unlimited { "unlimited".to_owned() } else { amount(*capacity) }),
            ("algorithm", kind.name().to_owned()),
            ("lease_length", seconds(*lease)),
            ("refresh_interval", seconds(*refresh)),
            ("learning_mode_duration", learning.map_or_else(|| "one lease length".to_owned(), seconds)),
            ("safe_capacity", safe(*safe_capacity)),
            ("priority", priority.name().to_owned()),
            ("reserve", readable(*reserve)),
            ("max_priority", max_priority.map_or_else(|| "none".to_owned(), |highest| highest.to_string())),
            ("doorman_priority", doorman_priority.to_string()),
            ("reuse", reuse_name(*reuse).to_owned()),
            ("headroom", readable(*headroom)),
            ("decay_factor", readable(*decay_factor)),
            ("shadow", shadow.to_string()),
            ("whole_units", whole_units.to_string()),
            ("rotation_period", rotation_period.map_or_else(|| "eight refresh intervals".to_owned(), seconds)),
            ("min_request_interval", seconds(*min_request_interval)),
            ("capacity_floor", bound(floor)),
            ("capacity_ceiling", bound(ceiling)),
            ("clients", rules(clients)),
            ("groups", groups.as_ref().map_or_else(|| "none".to_owned(), |groups| groups.in_words())),
        ];
        let of_budget = [
            ("period", budget.periods.length.to_string()),
            ("timezone", budget.periods.timezone.to_string()),
            ("slice_share", readable(budget.slice_share)),
            ("pace", budget.pace.to_string()),
            ("carry_over", readable(budget.carry_over.get())),
            ("thresholds", budget.thresholds.to_string()),
        ];
        let of_budget = of_budget.into_iter().filter(|_| *kind == AlgorithmKind::Budget);
        let usual = |text: String| if text.is_empty() { "by default".to_owned() } else { text };
        let of_pool = pool.parameters().map(|(name, value)| (name, usual(value)));
        general.into_iter().chain(of_budget).chain(of_pool).collect()
    }

    pub fn changes(&self, after: &Settings) -> Vec<FieldChange> {
        let before = self.in_words();
        let after = after.in_words();
        // Fields of one kind only are in one of the lists.
        let from = |name| before.iter().find(|(field, _)| *field == name).map(|(_, text)| text.clone());
        let changed = |(field, to): (&'static str, String)| {
            let from = from(field).unwrap_or_else(|| "none".to_owned());
            (from != to).then_some(FieldChange { field, from, to })
        };
        after.into_iter().filter_map(changed).collect()
    }
}

fn amount(amount: Amount) -> String {
    readable(amount.get())
}

fn rules(rules: &ClientRules) -> String {
    let words: Vec<String> = rules.iter().map(ClientRule::in_words).collect();
    if words.is_empty() { "all alike".to_owned() } else { words.join("; ") }
}

fn seconds(length: Millis) -> String {
    format!("{} s", readable(length.0 as f64 / 1000.0))
}

fn safe(safe_capacity: SafeCapacity) -> String {
    match safe_capacity {
        SafeCapacity::Dynamic => "an equal share".to_owned(),
        SafeCapacity::Fixed(fixed) => amount(fixed),
        SafeCapacity::Unlimited => "no limit".to_owned(),
    }
}

fn reuse_name(reuse: Reuse) -> &'static str {
    match reuse {
        Reuse::Confirmed => "confirmed",
        Reuse::Prompt => "prompt",
    }
}
