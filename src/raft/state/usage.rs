//! What holders of budgets have spent, by period. Rows of the periods that ended first are dropped to make room.

use std::sync::Arc;

use leaseway_core::{
    policy::period::Span,
    resource::budget::usage::{UsageRow, UsageUpdate},
    types::{Amount, HolderKind},
};

use super::cow_map::CowMap;

/// Maximum number of rows. So many take about 40 MB in each peer.
const MAX_ROWS: usize = 200_000;
/// Maximum number of rows in one command of a snapshot or backup.
const MAX_TOGETHER: usize = 4096;

/// The end of the period first, so that the first row is the oldest.
type Key = (i64, i64, Arc<str>, HolderKind, Arc<str>);

fn key(resource: &Arc<str>, row: &UsageRow) -> Key {
    (row.period.end, row.period.start, Arc::clone(resource), row.kind, Arc::clone(&row.record))
}

fn row_of(((end, start, resource, kind, record), spent): (&Key, &Spent)) -> (Arc<str>, UsageRow) {
    let Spent { group, spent, lost } = spent.clone();
    let (period, record) = (Span { start: *start, end: *end }, Arc::clone(record));
    (Arc::clone(resource), UsageRow { period, kind: *kind, record, group, spent, lost, update: UsageUpdate::Replace })
}

#[derive(Debug, Clone, PartialEq)]
struct Spent {
    group: Option<Arc<str>>,
    spent: Amount,
    lost: Amount,
}

/// All rows, by period, resource and record.
#[derive(Debug, Clone, Default)]
pub struct Usage {
    rows: CowMap<Key, Spent>,
    len: usize,
}

impl Usage {
    /// Up to `most` rows after the given one, in the order of the ends of their periods.
    pub fn page(&self, last: Option<(&str, &UsageRow)>, most: usize) -> Vec<(Arc<str>, UsageRow)> {
        let Some((resource, row)) = last else { return self.rows.iter().take(most).map(row_of).collect() };
        let key = key(&resource.into(), row);
        self.rows.from(&key).skip_while(|(known, _)| **known == key).take(most).map(row_of).collect()
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn apply(&mut self, resource: &Arc<str>, rows: &[UsageRow]) {
        for row in rows {
            self.put(resource, row);
        }
    }

    fn put(&mut self, resource: &Arc<str>, row: &UsageRow) {
        let UsageRow { group, spent, lost, update, .. } = row;
        let key = key(resource, row);
        let known = self.rows.get(&key);
        let mut new = Spent { group: group.clone(), spent: *spent, lost: *lost };
        if let Some(known) = known.filter(|_| *update != UsageUpdate::Replace) {
            new = Spent { spent: known.spent.max(*spent), lost: known.lost.saturating_sub(*spent), ..known.clone() };
        }
        let is_new = known.is_none();
        if is_new && *update == UsageUpdate::Raise {
            return;
        }
        if is_new && self.len >= MAX_ROWS && !self.drop_oldest(&key) {
            return;
        }
        self.rows.insert(key, new);
        self.len += usize::from(is_new);
    }

    /// Makes room for a row, unless all others are of its period or later ones.
    fn drop_oldest(&mut self, than: &Key) -> bool {
        let oldest = self.rows.iter().next().map(|(key, _)| key.clone()).filter(|(end, ..)| *end < than.0);
        let Some(oldest) = oldest else { return false };
        self.rows.remove(&oldest);
        self.len -= 1;
        true
    }

    /// The rows by resource, in parts of a limited length.
    pub(crate) fn record(&self) -> Vec<(Arc<str>, Vec<UsageRow>)> {
        let mut parts: Vec<(Arc<str>, Vec<UsageRow>)> = Vec::new();
        for (resource, row) in self.rows.iter().map(row_of) {
            match parts.last_mut().filter(|(last, rows)| *last == resource && rows.len() < MAX_TOGETHER) {
                Some((_, rows)) => rows.push(row),
                None => parts.push((resource, vec![row])),
            }
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(end: i64, record: &str, spent: f64) -> UsageRow {
        UsageRow {
            period: Span { start: end - 100, end },
            kind: HolderKind::Client,
            record: record.into(),
            group: None,
            spent: Amount::clamped(spent),
            lost: Amount::ZERO,
            update: UsageUpdate::Replace,
        }
    }

    fn all(usage: &Usage) -> Vec<(String, f64)> {
        usage.page(None, usize::MAX).into_iter().map(|(_, row)| (row.record.to_string(), row.spent.get())).collect()
    }

    #[test]
    fn a_row_replaces_the_last_one_and_a_late_one_only_raises_it() {
        let (mut usage, tokens) = (Usage::default(), "tokens".into());
        usage.apply(&tokens, &[row(200, "b", 5.0), row(100, "a", 7.0), row(200, "b", 3.0)]);
        assert_eq!(all(&usage), [("a".to_owned(), 7.0), ("b".to_owned(), 3.0)]);
        let late = |record, spent, update| UsageRow { update, ..row(100, record, spent) };
        let raise = |record, spent| late(record, spent, UsageUpdate::Raise);
        usage.apply(&tokens, &[raise("a", 9.0), raise("a", 2.0), raise("unknown", 1.0)]);
        assert_eq!(all(&usage), [("a".to_owned(), 9.0), ("b".to_owned(), 3.0)]);
        usage.apply(&tokens, &[late("a", 4.0, UsageUpdate::RaiseOrAdd), late("gone", 1.0, UsageUpdate::RaiseOrAdd)]);
        assert_eq!(all(&usage), [("a".to_owned(), 9.0), ("gone".to_owned(), 1.0), ("b".to_owned(), 3.0)]);
        let last = row(100, "a", 0.0);
        let page = usage.page(Some(("tokens", &last)), 10);
        assert_eq!(page.iter().map(|(_, row)| &*row.record).collect::<Vec<_>>(), ["gone", "b"]);
        let mut restored = Usage::default();
        usage.record().iter().for_each(|(resource, rows)| restored.apply(resource, rows));
        assert_eq!((all(&restored), restored.len()), (all(&usage), 3));
    }

    #[test]
    fn the_oldest_periods_make_room() {
        let (mut usage, tokens) = (Usage::default(), "tokens".into());
        for number in 0..MAX_ROWS {
            usage.put(&tokens, &row(if number == 0 { 100 } else { 200 }, &number.to_string(), 1.0));
        }
        usage.put(&tokens, &row(200, "one more", 1.0));
        assert_eq!((usage.len(), usage.page(None, 1)[0].1.period.end), (MAX_ROWS, 200));
        usage.put(&tokens, &row(200, "too many", 1.0));
        assert_eq!(usage.len(), MAX_ROWS);
    }
}
