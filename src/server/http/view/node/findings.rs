//! Is it fine: what a server can say about that by itself. Pure.

use leaseway_core::{escaped, escaped_lines};
use serde::Serialize;

use super::{super::resources::ResourceRow, NodeView, ParentRow, PeerRow};

/// A peer or a parent that is silent for longer is not heard from.
const SILENT_MS: u64 = 5_000;
/// Entries of the log that a peer may lack.
const LAGS: u64 = 1_000;
/// A limit is nearly reached at so many per cent.
const NEARLY: usize = 80;
/// Bytes that should be free where the data directory is.
const FREE_BYTES: u64 = 256 << 20;
/// Seconds before its end within which a certificate should have been replaced, and those within which it has to be.
const CERTIFICATE_SECS: [i64; 2] = [14 * 86_400, 86_400];
/// Resources that are named.
const NAMED: usize = 3;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(in super::super::super) enum Severity {
    /// To be known; it passes, or is meant.
    Note,
    /// It works, and should be looked at.
    Warn,
    /// Clients do not get what they should.
    Bad,
}

/// Something that was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(in super::super::super) struct Finding {
    pub(in super::super::super) severity: Severity,
    /// What it is about.
    pub(in super::super::super) about: &'static str,
    /// A sentence.
    pub(in super::super::super) text: String,
    /// What to do.
    pub(in super::super::super) advice: String,
}

impl Finding {
    fn new(severity: Severity, about: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { severity, about, text: text.into(), advice: advice.into() }
    }
}

/// All that is to be said about a server, the worst first.
pub(super) fn findings(view: &NodeView, rows: &[ResourceRow]) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(mastership(view));
    found.extend(peers(view));
    found.extend(view.parent.as_ref().filter(|_| view.is_master).and_then(parent));
    found.extend(storage(view));
    found.extend(configuration(view));
    found.extend(certificate(view));
    found.extend(resources(rows));
    found.extend(limits(view));
    found.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    found
}

/// Whether it is fine, in a sentence, and how bad it is.
pub(in super::super::super) fn verdict(view: &NodeView) -> (Severity, String) {
    let worst = view.findings.first().map_or(Severity::Note, |finding| finding.severity);
    let text = match worst {
        Severity::Bad => "Not fine: clients may not get what they should.".to_owned(),
        Severity::Warn => "It works; something should be looked at.".to_owned(),
        Severity::Note if view.is_master => "It is fine.".to_owned(),
        Severity::Note => "It is fine, as far as this peer knows.".to_owned(),
    };
    (worst, text)
}

fn mastership(view: &NodeView) -> Option<Finding> {
    if let Some(absence) = &view.absence {
        let advice = "See the runbook, `a peer takes no part`; the other peers go on without it.";
        return Some(Finding::new(Severity::Bad, "this peer", sentence(&escaped(absence)), advice));
    }
    (!view.is_master && view.master.is_none()).then(|| {
        Finding::new(
            Severity::Bad,
            "master",
            "No master is known: no lease is given or renewed.",
            "A majority of the peers has to be up and to reach each other; an election takes about a second then.",
        )
    })
}

/// The master hears from all; another peer from the master alone.
fn peers(view: &NodeView) -> Vec<Finding> {
    let is_silent = |peer: &&PeerRow| !peer.is_here && peer.heard_ms.is_none_or(|ago| ago > SILENT_MS);
    if !view.is_master {
        return Vec::new();
    }
    let mut found = Vec::new();
    let voters = view.peers.iter().filter(|peer| peer.role != "learner");
    let silent: Vec<&PeerRow> = voters.clone().filter(is_silent).collect();
    if !silent.is_empty() {
        let names: Vec<&str> = silent.iter().map(|peer| peer.peer.as_str()).collect();
        let (all, up) =
            (voters.count(), view.peers.iter().filter(|peer| peer.role != "learner").count() - silent.len());
        let spare = (2 * up).saturating_sub(all + 1) / 2;
        found.push(Finding::new(
            Severity::Warn,
            "peers",
            format!("{} of {all} peers are heard from; not from {}.", up, escaped(&names.join(", "))),
            match spare {
                0 => "None of the others may fail now: start it again, or replace it (`leaseway peers`).".to_owned(),
                spare => format!("{spare} more may fail; start it again, or replace it (`leaseway peers`)."),
            },
        ));
    }
    let lagging = view.peers.iter().filter(|peer| !is_silent(peer) && peer.lag.is_some_and(|lag| lag > LAGS));
    found.extend(lagging.map(|peer| {
        let text = format!("Peer {} lacks {} entries of the log.", escaped(&peer.peer), peer.lag.unwrap_or_default());
        Finding::new(
            Severity::Warn,
            "peers",
            text,
            "It should catch up within seconds; if not, look at its disk and link.",
        )
    }));
    found
}

fn parent(parent: &ParentRow) -> Option<Finding> {
    let addresses = parent.addresses.join(", ");
    let addresses = escaped(&addresses);
    let advice = if parent.last_error.is_empty() {
        "Look at the parent's own page.".to_owned()
    } else {
        format!("The last error: {}", escaped(&parent.last_error))
    };
    match parent.answered_ms {
        _ if parent.failures == 0 => None,
        None => Some(Finding::new(
            Severity::Bad,
            "parent",
            format!("The parent at {addresses} has not answered yet: there is nothing to give."),
            advice,
        )),
        Some(ago) if ago > SILENT_MS => Some(Finding::new(
            Severity::Bad,
            "parent",
            format!("The parent at {addresses} has not answered for {} s: what it lent will end.", ago / 1000),
            advice,
        )),
        Some(_) => Some(Finding::new(
            Severity::Note,
            "parent",
            format!("The last {} requests to the parent at {addresses} have failed.", parent.failures),
            advice,
        )),
    }
}

fn storage(view: &NodeView) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(why) = &view.data_failed {
        let text = sentence(&format!("Nothing is stored any more: {}", escaped(why)));
        found.push(Finding::new(Severity::Bad, "disk", text, "Mend the disk, then start this peer again."));
    }
    if let Some(free) = view.free_bytes.filter(|free| *free < FREE_BYTES) {
        let text = format!("{} MiB are free where the data directory is.", free >> 20);
        found.push(Finding::new(Severity::Warn, "disk", text, "A peer whose disk is full takes no part: make room."));
    }
    found
}

fn configuration(view: &NodeView) -> Option<Finding> {
    let why = view.config_rejected.as_ref()?;
    let text = format!("The newest configuration was refused, version {} stays in force.", view.config_version);
    Some(Finding::new(Severity::Warn, "configuration", text, escaped_lines(why).into_owned()))
}

fn certificate(view: &NodeView) -> Option<Finding> {
    let left = view.certificate_ends_secs?;
    let [should, has_to] = CERTIFICATE_SECS;
    let advice = "Replace the files; they are read again without a restart (`leaseway certs show`).";
    match left {
        left if left < 0 => Some((Severity::Bad, "The certificate of this server has ended.".to_owned())),
        left if left < has_to => Some((Severity::Bad, format!("The certificate ends in {} h.", left / 3600))),
        left if left < should => Some((Severity::Warn, format!("The certificate ends in {} days.", left / 86_400))),
        _ => None,
    }
    .map(|(severity, text)| Finding::new(severity, "certificate", text, advice))
}

fn resources(rows: &[ResourceRow]) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut tell = |severity, which: Vec<&ResourceRow>, text: &str, advice: &str| {
        if !which.is_empty() {
            found.push(Finding::new(severity, "resources", format!("{} {text}", counted(&which)), advice));
        }
    };
    tell(
        Severity::Warn,
        rows.iter().filter(|row| row.over() > row.capacity * 1e-9).collect(),
        "hold more than there is: leases from before a cut, which end by themselves.",
        "If clients must not use them so long, lower `lease_length` before the next cut.",
    );
    tell(
        Severity::Note,
        rows.iter().filter(|row| row.learning_ms > 0).collect(),
        "are learning: holders keep what they have, and no lease grows until that is over.",
        "It passes by itself within a lease length of the start.",
    );
    tell(
        Severity::Note,
        rows.iter().filter(|row| row.template.is_none()).collect(),
        "match no template: requests are honoured as they come.",
        "Add a template with `identifier_glob: \"*\"` to bound them.",
    );
    found
}

/// Their number, and the names of the first.
fn counted(which: &[&ResourceRow]) -> String {
    let names: Vec<String> = which.iter().take(NAMED).map(|row| format!("`{}`", escaped(&row.resource))).collect();
    let more = if which.len() > NAMED { ", …" } else { "" };
    let noun = if which.len() == 1 { "resource" } else { "resources" };
    format!("{} {noun} ({}{more})", which.len(), names.join(", "))
}

fn limits(view: &NodeView) -> Vec<Finding> {
    let nearly =
        view.limits.iter().filter(|limit| limit.most > 0 && limit.used >= limit.most.saturating_mul(NEARLY) / 100);
    let told = nearly.filter(|limit| limit.used > 0).map(|limit| {
        let severity = if limit.used >= limit.most { Severity::Bad } else { Severity::Warn };
        let text = format!("{} of {} {} are used.", limit.used, limit.most, limit.what);
        Finding::new(severity, "limits", text, format!("{} raises that; see the reference of limits.", limit.flag))
    });
    told.collect()
}

fn sentence(text: &str) -> String {
    if text.ends_with('.') { text.to_owned() } else { format!("{text}.") }
}

#[cfg(test)]
mod tests {
    use super::{super::LimitRow, *};

    fn peer(name: &str, heard_ms: Option<u64>, lag: u64) -> PeerRow {
        let is_here = name == "a";
        PeerRow { peer: name.into(), role: "follower", is_here, heard_ms, lag: Some(lag), ..PeerRow::default() }
    }

    fn master() -> NodeView {
        let peers = vec![peer("a", None, 0), peer("b", Some(50), 0), peer("c", Some(50), 0)];
        NodeView { is_master: true, peers, ..NodeView::default() }
    }

    fn found(view: &NodeView) -> Vec<(Severity, &'static str)> {
        findings(view, &[]).iter().map(|finding| (finding.severity, finding.about)).collect()
    }

    #[test]
    fn a_master_that_hears_from_all_is_fine() {
        assert_eq!(found(&master()), []);
        assert_eq!(verdict(&master()), (Severity::Note, "It is fine.".to_owned()));
    }

    #[test]
    fn each_fault_is_found() {
        let bad = |about| vec![(Severity::Bad, about)];
        let warn = |about| vec![(Severity::Warn, about)];
        let mut silent = master();
        silent.peers[2].heard_ms = Some(SILENT_MS + 1);
        let mut lagging = master();
        lagging.peers[1].lag = Some(LAGS + 1);
        let parent = ParentRow { failures: 3, answered_ms: Some(60_000), ..ParentRow::default() };
        let limit = LimitRow { what: "resources", flag: "--max-resources", used: 8, most: 10 };
        for (view, expected) in [
            (NodeView { is_master: false, ..master() }, bad("master")),
            (NodeView { absence: Some("removed".into()), ..master() }, bad("this peer")),
            (silent, warn("peers")),
            (lagging, warn("peers")),
            (NodeView { parent: Some(parent.clone()), ..master() }, bad("parent")),
            (NodeView { parent: Some(ParentRow { answered_ms: None, ..parent }), ..master() }, bad("parent")),
            (NodeView { data_failed: Some("EIO".into()), ..master() }, bad("disk")),
            (NodeView { free_bytes: Some(1 << 20), ..master() }, warn("disk")),
            (NodeView { config_rejected: Some("1:1: no".into()), ..master() }, warn("configuration")),
            (NodeView { certificate_ends_secs: Some(-5), ..master() }, bad("certificate")),
            (NodeView { certificate_ends_secs: Some(3 * 86_400), ..master() }, warn("certificate")),
            (NodeView { certificate_ends_secs: Some(90 * 86_400), ..master() }, vec![]),
            (NodeView { limits: vec![limit.clone()], ..master() }, warn("limits")),
            (NodeView { limits: vec![LimitRow { used: 10, ..limit }], ..master() }, bad("limits")),
        ] {
            assert_eq!(found(&view), expected, "{view:?}");
        }
    }

    #[test]
    fn the_worst_comes_first_and_says_how_many_may_still_fail() {
        let mut view = master();
        view.peers[2].heard_ms = None;
        view.data_failed = Some("EIO".into());
        let all = findings(&view, &[]);
        assert_eq!((all[0].about, all[1].text.as_str()), ("disk", "2 of 3 peers are heard from; not from c."));
        assert!(all[1].advice.starts_with("None of the others may fail now"), "{all:?}");
        view.peers.extend([peer("d", Some(1), 0), peer("e", Some(1), 0)]);
        let all = findings(&view, &[]);
        assert!(all[1].advice.starts_with("1 more may fail"), "{all:?}");
    }
}
