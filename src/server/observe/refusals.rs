//! Refused entries of requests by client, for the pages: a bounded table of the last hour.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Maximum number of rows. Beyond it, the older half is dropped.
const MAX_REFUSALS: usize = 4096;
/// A row without a refusal for this long is dropped.
const MAX_AGE: Duration = Duration::from_secs(3_600);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    resource: String,
    client: String,
    /// The name of a reason, as in answers.
    reason: String,
}

#[derive(Debug, Clone, Copy)]
struct Count {
    times: u64,
    last: Instant,
}

/// The refusals of a client for one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) client: String,
    pub(crate) reason: String,
    pub(crate) times: u64,
    /// Time since the last one.
    pub(crate) ago: Duration,
}

#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<HashMap<Key, Count>>);

impl Refusals {
    fn rows(&self) -> MutexGuard<'_, HashMap<Key, Count>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, client: &str, resource: &str, reason: &str) {
        self.add_at(Instant::now(), client, resource, reason);
    }

    fn add_at(&self, now: Instant, client: &str, resource: &str, reason: &str) {
        let key = Key { resource: resource.to_owned(), client: client.to_owned(), reason: reason.to_owned() };
        let mut rows = self.rows();
        if rows.len() >= MAX_REFUSALS && !rows.contains_key(&key) {
            let mut lasts: Vec<Instant> = rows.values().map(|count| count.last).collect();
            let (_, middle, _) = lasts.select_nth_unstable(MAX_REFUSALS / 2);
            let middle = *middle;
            rows.retain(|_, count| count.last > middle);
        }
        let count = rows.entry(key).or_insert(Count { times: 0, last: now });
        // Starts again after a quiet hour, as if the row had been dropped.
        let before = if is_old(count.last, now) { 0 } else { count.times };
        *count = Count { times: before + 1, last: now };
    }

    /// The refusals of a resource, the most frequent first.
    pub(crate) fn of(&self, resource: &str) -> Vec<Refusal> {
        self.of_at(Instant::now(), resource)
    }

    fn of_at(&self, now: Instant, resource: &str) -> Vec<Refusal> {
        let mut rows = self.rows();
        rows.retain(|_, count| !is_old(count.last, now));
        let of_resource = rows.iter().filter(|(key, _)| key.resource == resource);
        let mut found: Vec<Refusal> = of_resource
            .map(|(key, count)| Refusal {
                client: key.client.clone(),
                reason: key.reason.clone(),
                times: count.times,
                ago: now.saturating_duration_since(count.last),
            })
            .collect();
        found.sort_by(|one, other| {
            let order = other.times.cmp(&one.times);
            order.then_with(|| (&one.client, &one.reason).cmp(&(&other.client, &other.reason)))
        });
        found
    }
}

fn is_old(last: Instant, now: Instant) -> bool {
    now.saturating_duration_since(last) > MAX_AGE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_counted_by_client_and_reason_for_an_hour() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        refusals.add_at(now, "a", "db", "busy");
        refusals.add_at(now, "b", "db", "busy");
        refusals.add_at(now, "b", "db", "busy");
        refusals.add_at(now, "b", "other", "denied");
        let rows = |now| {
            let rows = refusals.of_at(now, "db").into_iter();
            rows.map(|row| (row.client, row.reason, row.times)).collect::<Vec<_>>()
        };
        let row = |client: &str, times| (client.to_owned(), "busy".to_owned(), times);
        assert_eq!(rows(now), [row("b", 2), row("a", 1)]);
        let later = now + MAX_AGE;
        refusals.add_at(later, "a", "db", "busy");
        assert_eq!(rows(later + Duration::from_secs(1)), [row("a", 2)]);
    }

    #[test]
    fn a_flood_of_clients_is_bounded_and_keeps_the_newest() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        for number in 0..10 * MAX_REFUSALS as u32 {
            refusals.add_at(now + Duration::from_micros(number.into()), &number.to_string(), "db", "busy");
            assert!(refusals.rows().len() <= MAX_REFUSALS);
        }
        let newest = (10 * MAX_REFUSALS - 1).to_string();
        assert!(refusals.of_at(now, "db").iter().any(|row| row.client == newest));
    }
}
