//! The auditor: adds up the books of clients and compares the sum with what there is. It asks no server.

use std::{
    collections::{BTreeSet, HashMap},
    ops::Range,
    path::PathBuf,
};

use serde::{Deserialize, Serialize};

use crate::{
    book::{self, BookLine},
    error::Error,
    output::print,
    table,
};

/// Adds up the books that `fleet --book` wrote, also of several processes of one machine, and fails if clients together
/// could ever use more than the capacity.
#[derive(clap::Args)]
pub(crate) struct AuditArgs {
    /// Books.
    #[arg(required = true, value_name = "FILE")]
    books: Vec<PathBuf>,
    /// What there is of every resource in them.
    #[arg(long, value_name = "AMOUNT")]
    capacity: f64,
}

/// What the books of one resource say.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Audit {
    clients: usize,
    entries: usize,
    /// The most that could be used at any moment, and when that was.
    peak: f64,
    peak_us: u64,
    /// For how long it was more than there is.
    pub(crate) over_us: u64,
    /// The average, weighted by time.
    pub(crate) mean: f64,
}

impl Audit {
    pub(crate) fn entries(&self) -> usize {
        self.entries
    }
}

/// Sums of floats may be off by this part, and no more.
const ROUNDING: f64 = 1e-9;

pub(crate) fn main(args: &AuditArgs) -> Result<(), Error> {
    if !(args.capacity.is_finite() && args.capacity >= 0.0) {
        return Err(Error::Usage(format!("--capacity {}: expected a finite number, not below 0", args.capacity)));
    }
    let mut lines = Vec::new();
    for book in &args.books {
        book::read(book, &mut lines)?;
    }
    if lines.is_empty() {
        let books: Vec<_> = args.books.iter().map(|book| book.display().to_string()).collect();
        let books = books.join(", ");
        return Err(Error::Usage(format!(
            "there is nothing in {books}: was it written by `fleet --book`, to its end?"
        )));
    }
    let audits = audit(lines, args.capacity);
    print(&render(&audits))?;
    match audits.iter().filter(|(_, audit)| audit.over_us > 0).count() {
        0 => Ok(()),
        over => Err(Error::OverCapacity { over, capacity: args.capacity }),
    }
}

/// By resource, in the order of names.
pub(crate) fn audit(lines: Vec<BookLine>, capacity: f64) -> Vec<(String, Audit)> {
    audit_under(lines, &[(0, capacity)])
}

/// As [`audit`], where there is so much of each resource from when on: the first from the start, the others in order.
pub(crate) fn audit_under(mut lines: Vec<BookLine>, limits: &[(u64, f64)]) -> Vec<(String, Audit)> {
    // At one moment what is given up counts before what is taken: each client writes a rise before and a cut after it.
    lines.sort_by(|a, b| (&a.resource, a.at_us).cmp(&(&b.resource, b.at_us)));
    let by_resource = lines.chunk_by(|a, b| a.resource == b.resource);
    by_resource.map(|lines| (lines[0].resource.clone(), one(lines, limits))).collect()
}

/// The book as it would be had it begun and ended then: at first every client has what it had then.
pub(crate) fn within(lines: &[BookLine], moments_us: Range<u64>) -> Vec<BookLine> {
    let later = |line: &BookLine| BookLine { at_us: line.at_us.max(moments_us.start), ..line.clone() };
    let mut lines: Vec<_> = lines.iter().filter(|line| line.at_us < moments_us.end).collect();
    lines.sort_by_key(|line| line.at_us);
    lines.into_iter().map(later).collect()
}

fn one(lines: &[BookLine], limits: &[(u64, f64)]) -> Audit {
    let mut audit = Audit { entries: lines.len(), ..Audit::default() };
    let mut usable: HashMap<&str, f64> = HashMap::new();
    let (first, last) = (lines[0].at_us, lines[lines.len() - 1].at_us);
    let changed = limits.iter().map(|(from, _)| *from).filter(|from| (first..=last).contains(from));
    let moments: BTreeSet<u64> = lines.iter().map(|line| line.at_us).chain(changed).collect();
    let mut left = lines;
    let mut moments = moments.into_iter().peekable();
    while let Some(at) = moments.next() {
        let (now, later) = left.split_at(left.partition_point(|line| line.at_us <= at));
        usable.extend(now.iter().map(|line| (line.client.as_str(), line.capacity)));
        left = later;
        // Added up anew: a running sum of floats would drift.
        let sum: f64 = usable.values().sum();
        let until = moments.peek().copied().unwrap_or(last);
        audit.mean += sum * (until - at) as f64;
        if sum > audit.peak {
            (audit.peak, audit.peak_us) = (sum, at - first);
        }
        let capacity = limits.iter().rev().find(|(from, _)| *from <= at).map_or(0.0, |limit| limit.1);
        if sum > capacity * (1.0 + ROUNDING) {
            // A moment that nothing follows was a moment all the same.
            audit.over_us += (until - at).max(1);
        }
    }
    audit.clients = usable.len();
    audit.mean /= (last - first).max(1) as f64;
    audit
}

pub(crate) fn render(audits: &[(String, Audit)]) -> String {
    let seconds = |us: u64| format!("{:.6}", us as f64 / 1e6);
    let rows: Vec<_> = audits
        .iter()
        .map(|(resource, audit)| {
            [
                resource.clone(),
                audit.clients.to_string(),
                audit.entries.to_string(),
                format!("{:.6}", audit.mean),
                format!("{:.6}", audit.peak),
                seconds(audit.peak_us),
                seconds(audit.over_us),
            ]
        })
        .collect();
    table::render(&["resource", "clients", "entries", "mean", "peak", "after s", "over for s"], 1, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(at_us: u64, client: &str, capacity: f64) -> BookLine {
        BookLine { at_us, client: client.into(), resource: "r".into(), capacity }
    }

    fn audited(lines: &[BookLine]) -> Audit {
        audit(lines.to_vec(), 100.0).remove(0).1
    }

    #[test]
    fn empty_books_prove_nothing() {
        let book = tempfile::NamedTempFile::new().unwrap();
        let args = AuditArgs { books: vec![book.path().to_owned()], capacity: 100.0 };
        let error = main(&args).unwrap_err().to_string();
        assert!(error.contains(&book.path().display().to_string()), "{error}");
    }

    #[test]
    fn what_moves_from_one_to_the_other_is_never_too_much() {
        let audit = audited(&[line(0, "a", 100.0), line(5, "a", 40.0), line(9, "b", 60.0), line(20, "b", 0.0)]);
        assert_eq!((audit.peak, audit.over_us, audit.clients), (100.0, 0, 2));
        assert_eq!(audit.mean, (100.0 * 5.0 + 40.0 * 4.0 + 100.0 * 11.0) / 20.0);
    }

    #[test]
    fn a_rise_before_the_cut_that_pays_for_it_is_found_in_any_order_of_books() {
        let audit = audited(&[line(9, "a", 40.0), line(0, "a", 100.0), line(5, "b", 60.0)]);
        assert_eq!((audit.peak, audit.peak_us, audit.over_us), (160.0, 5, 4));
    }

    #[test]
    fn too_much_at_the_very_end_counts_as_a_moment() {
        assert_eq!(audited(&[line(0, "a", 100.0), line(5, "b", 1.0)]).over_us, 1);
        assert_eq!(audited(&[line(0, "a", 100.0), line(5, "b", 1e-9)]).over_us, 0, "rounding is forgiven");
    }

    #[test]
    fn a_part_of_a_book_begins_with_what_clients_had_then() {
        let lines = [line(0, "a", 1.0), line(3, "a", 10.0), line(4, "b", 5.0), line(8, "a", 0.0), line(9, "b", 5.0)];
        let mean = |moments| audited(&within(&lines, moments)).mean;
        assert_eq!((mean(4..9), mean(0..9)), (15.0, (3.0 + 10.0 + 4.0 * 15.0) / 8.0));
    }

    #[test]
    fn a_capacity_that_falls_while_nothing_is_written_is_noticed() {
        let lines = vec![line(0, "a", 60.0), line(90, "a", 0.0)];
        let audit = |limits: &[(u64, f64)]| audit_under(lines.clone(), limits).remove(0).1;
        assert_eq!(audit(&[(0, 100.0), (40, 50.0)]).over_us, 50);
        assert_eq!(audit(&[(0, 100.0), (40, 50.0), (70, 60.0)]).over_us, 30);
        assert_eq!(audit(&[(0, 50.0), (40, 100.0)]).over_us, 40);
    }

    #[test]
    fn resources_are_apart() {
        let other = BookLine { resource: "s".into(), ..line(1, "a", 70.0) };
        let audits = audit(vec![line(0, "a", 70.0), other], 100.0);
        assert!(audits.iter().all(|(_, audit)| audit.over_us == 0) && audits.len() == 2);
    }
}
