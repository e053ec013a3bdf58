//! What will go wrong in a while: clocks, certificates, disks, limits.

use leaseway_proto::status::{Health, LimitUse};

use super::{NodeObservation, Outcome, ServerObservation, bad, fine, or_fine, warn};

/// Clocks that are further apart are wrong, beyond what the answers took.
const MAX_CLOCK_OFFSET_MS: u64 = 1_000;
/// Seconds before its end within which a certificate should have been replaced, and those within which it has to be.
const CERTIFICATE_SECS: [i64; 2] = [14 * 86_400, 86_400];
/// Bytes that should be free where a data directory is.
const FREE_BYTES: u64 = 256 << 20;
/// Milliseconds that a flush of the log takes at most where all is well: answers wait for it, and elections begin after
/// 150.
const FLUSH_MS: u64 = 100;
/// A limit is nearly reached at so many per cent.
const NEARLY: u64 = 80;

/// With the names of servers.
fn healths(node: &NodeObservation) -> impl Iterator<Item = (&str, &Health)> {
    node.statuses().filter_map(|(_, status)| Some((&*status.server_id, status.health.as_ref()?)))
}

/// As against this machine, and so against each other.
pub(super) fn clocks(node: &NodeObservation) -> Vec<Outcome> {
    let of = |server: &ServerObservation| Some((server.status()?.server_id.clone(), server.clock_ms?));
    let all: Vec<(String, (i64, u64))> = node.servers.iter().filter_map(of).collect();
    let apart = |(ahead, within): (i64, u64)| ahead.unsigned_abs() > MAX_CLOCK_OFFSET_MS + within;
    let told = |(server, (ahead, _)): &(String, (i64, u64))| {
        let which = if *ahead > 0 { "ahead of" } else { "behind" };
        format!("that of {server} is {:.1} s {which} this machine's", ahead.unsigned_abs() as f64 / 1000.0)
    };
    let wrong: Vec<String> = all.iter().filter(|(_, clock)| apart(*clock)).map(told).collect();
    match (wrong.is_empty(), all.is_empty()) {
        (_, true) => fine("not told to this caller"),
        (true, _) => fine(format!("{} agree with this machine's", all.len())),
        _ => {
            let next = "set them by NTP: Doorman's clients and certificates go by them, leases of other clients do not";
            vec![warn(wrong.join(", "), next)]
        }
    }
}

pub(super) fn certificates(node: &NodeObservation, unix: i64) -> Vec<Outcome> {
    let next = "replace the files, they are read again without a restart; `leaseway certs show` shows them";
    let [should, has_to] = CERTIFICATE_SECS;
    let ends: Vec<(&str, i64)> = healths(node)
        .filter_map(|(server, health)| Some((server, health.certificate_ends_unix?.saturating_sub(unix))))
        .collect();
    let finding = |(server, left): (&str, i64)| match left {
        left if left < 0 => Some(bad(format!("that of {server} has ended"), next)),
        left if left < has_to => Some(bad(format!("that of {server} ends in {} h", left / 3600), next)),
        left if left < should => Some(warn(format!("that of {server} ends in {} days", left / 86_400), next)),
        _ => None,
    };
    let first = ends.iter().map(|(_, left)| *left).min();
    let well = first.map_or("none".to_owned(), |left| format!("the first ends in {} days", left / 86_400));
    or_fine(ends.into_iter().filter_map(finding).collect(), well)
}

pub(super) fn disks(node: &NodeObservation) -> Vec<Outcome> {
    let mut found = Vec::new();
    for (server, health) in healths(node) {
        if !health.data_error.is_empty() {
            let text = format!("{server} stores nothing any more: {}", health.data_error);
            found.push(bad(text, "mend the disk, then start this peer again"));
        }
        if let Some(free) = health.free_bytes.filter(|free| *free < FREE_BYTES) {
            let text = format!("{} MiB are free where {server} has its data", free >> 20);
            found.push(warn(text, "make room: a peer whose disk is full takes no part"));
        }
        if let Some(took) = health.slowest_flush_ms.filter(|took| *took > FLUSH_MS) {
            let text = format!("the disk of {server} is slow: it took {took} ms to store something in the last minute");
            found.push(warn(text, "see what else uses the disk: answers that raise a promise wait for it"));
        }
    }
    let least = healths(node).filter_map(|(_, health)| health.free_bytes).min();
    or_fine(found, least.map_or("none is used".to_owned(), |free| format!("{} GiB are free", free >> 30)))
}

pub(super) fn limits(node: &NodeObservation) -> Vec<Outcome> {
    let mut found = Vec::new();
    for (server, health) in healths(node) {
        let nearly = |used: u64, most: u64| used > 0 && used >= most.saturating_mul(NEARLY) / 100;
        let (soft, hard): (Vec<&LimitUse>, Vec<&LimitUse>) = health.limit.iter().partition(|limit| limit.soft);
        for LimitUse { what, flag, used, most, .. } in soft.into_iter().filter(|limit| limit.used > limit.most) {
            let text = format!("{server} has {used} resources, but {flag} allows {most} {what}");
            let next =
                "those under the most pressure are shown, the rest in sums: raise the flag to have all, or set it to 0";
            found.push(warn(text, next));
        }
        for limit in hard.into_iter().filter(|limit| nearly(limit.used, limit.most)) {
            let text =
                format!("{server} has {} of {} {}, which {} sets", limit.used, limit.most, limit.what, limit.flag);
            found.push(match limit.used >= limit.most {
                true => bad(text, "raise the limit, or see who uses so much; docs/reference/limits.md"),
                false => warn(text, "raise the limit, or see who uses so much; docs/reference/limits.md"),
            });
        }
    }
    let known = healths(node).next().is_some();
    or_fine(found, if known { "none is nearly reached" } else { "not told to this caller" })
}
