//! Compares the members in the data directory with the peers in the settings.
//!
//! The directory takes precedence. It is outdated if this peer was down during changes, so most differences are only
//! logged. A difference that would start a second cluster beside the intended one is refused.

use std::{collections::BTreeSet, fmt, path::PathBuf};

use crate::{log::Member, settings::Settings};

/// The directory and the settings name different peers. Nothing was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeersMismatch {
    data: PathBuf,
    name: String,
    /// The cluster of the directory.
    cluster: String,
    /// Its members, as `NAME=HOST:PORT`.
    members: Vec<String>,
    known: Vec<String>,
    /// The other peers in the settings.
    others: Vec<String>,
    /// The address of this peer in the settings.
    own: String,
}

/// Refuses a dangerous difference and logs any other.
pub(crate) fn check(settings: &Settings, cluster: Option<u128>, members: &[Member]) -> Result<(), Box<PeersMismatch>> {
    let known: BTreeSet<&str> = members.iter().map(|member| member.name.as_str()).collect();
    let named: BTreeSet<&str> = settings.peers.iter().map(|(name, _)| name.as_str()).collect();
    let (me, alone) = (settings.name.as_str(), settings.names_no_other_peer());
    if known.is_empty() {
        return Ok(());
    }
    let is_lone = known.iter().all(|name| *name == me);
    let has_common = known.iter().any(|name| *name != me && named.contains(name));
    // If the settings name no other peer, this one continues with the members in its directory if they can reach it.
    let agrees = if alone { is_lone || !settings.is_lone() } else { has_common };
    if !agrees {
        return Err(Box::new(PeersMismatch::new(settings, cluster, members)));
    }
    if !settings.is_lone() && known != named {
        let list = |names: &BTreeSet<&str>| names.iter().copied().collect::<Vec<_>>().join(", ");
        tracing::warn!(
            in_directory = list(&known),
            in_peers = list(&named),
            "the data directory lists other peers than --peers; the data directory takes precedence"
        );
    }
    Ok(())
}

impl PeersMismatch {
    fn new(settings: &Settings, cluster: Option<u128>, members: &[Member]) -> PeersMismatch {
        let mut known: Vec<String> = members.iter().map(|member| member.name.clone()).collect();
        known.sort_unstable();
        known.dedup();
        let reached = |name: &String| {
            let stored = members.iter().find(|member| member.name == *name).map(|member| member.address.as_str());
            let address = stored.filter(|address| !address.is_empty()).unwrap_or("HOST:PORT");
            format!("{name}={}", settings.address_of(name).unwrap_or(address))
        };
        let others = settings.peers.iter().map(|(name, _)| name).filter(|name| **name != settings.name);
        PeersMismatch {
            data: settings.data.clone(),
            name: settings.name.clone(),
            cluster: cluster.map_or_else(|| "unknown".into(), |cluster| format!("{cluster:032x}")),
            members: known.iter().map(reached).collect(),
            others: others.cloned().collect(),
            own: settings.address_of(&settings.name).unwrap_or("HOST:PORT").to_owned(),
            known,
        }
    }
}

impl std::error::Error for PeersMismatch {}

impl fmt::Display for PeersMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PeersMismatch { data, name, cluster, members, known, others, own } = self;
        let (data, known, others, members) = (data.display(), known.join(", "), others.join(", "), members.join(","));
        if self.known == [name.clone()] {
            return write!(
                f,
                "{data} belongs to cluster {cluster}, whose only peer is {name}, but --peers also lists {others}: \
                 {name} would continue as a cluster of its own.\n\
                 To join the other peers: empty {data} and restart. This discards the promises of {name}, so first \
                 wait until its leases have ended.\n\
                 To add the other peers to the cluster of {name}, which keeps its promises: start {name} with `--peers \
                 {name}={own}` (itself alone), start the other peers with empty directories, and add each with \
                 `leaseway peers add`"
            );
        }
        if self.others.is_empty() {
            return write!(
                f,
                "{data} belongs to cluster {cluster} of {known}, so this server cannot start without --peers: it would \
                 decide without the other peers.\n\
                 To continue as a member: start it with `--peers {members}`.\n\
                 To start a separate server: give it an empty directory"
            );
        }
        write!(
            f,
            "{data} belongs to cluster {cluster} of {known}, but --peers lists {others}, of which none is a member: \
             {name} would continue in a cluster without them.\n\
             To join the peers in --peers: empty {data} and restart.\n\
             To stay in cluster {cluster}: start it with `--peers {members}`"
        )
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use leaseway_core::types::Millis;

    use super::*;

    /// The error of a start with `known` in the directory and `named` in the settings, if any.
    fn refused(known: &[&str], named: &[&str]) -> Option<String> {
        let member = |name: &&str| Member { name: (*name).into(), address: format!("{name}:1"), ..Member::default() };
        let members: Vec<Member> = known.iter().map(member).collect();
        let mut settings = Settings::new("a", "/data", Arc::new(|| Millis(0)));
        settings.listen = (!named.is_empty()).then(|| "127.0.0.1:1".parse().expect("an address"));
        settings.peers = named.iter().map(|name| ((*name).into(), format!("{name}:2"))).collect();
        check(&settings, Some(10), &members).err().map(|why| why.to_string())
    }

    #[test]
    fn an_empty_directory_or_a_common_peer_is_accepted() {
        for named in [&[][..], &["a"], &["a", "b", "c"]] {
            assert_eq!(refused(&[], named), None);
        }
        for named in [&["a", "b", "c"][..], &["a", "b"], &["a", "c", "d", "e"], &["a"]] {
            assert_eq!(refused(&["a", "b", "c"], named), None, "{named:?}");
        }
        // It was removed while it was down. The others will report that.
        assert_eq!(refused(&["b", "c"], &["a", "b", "c"]), None);
        assert_eq!(refused(&["a"], &[]), None);
        assert_eq!(refused(&["a"], &["a"]), None);
    }

    #[test]
    fn a_start_beside_another_cluster_is_refused_with_the_remedies() {
        let cases: [(&[&str], &[&str], &[&str]); 3] = [
            (
                &["a"],
                &["a", "b", "c"],
                &[
                    "cluster 0000000000000000000000000000000a",
                    "whose only peer is a",
                    "b, c",
                    "empty /data",
                    "--peers a=a:2",
                    "peers add",
                ],
            ),
            (
                &["a", "b", "c"],
                &[],
                &["of a, b, c", "without --peers", "--peers a=a:1,b=b:1,c=c:1", "an empty directory"],
            ),
            (&["a", "b"], &["a", "c", "d"], &["of a, b", "lists c, d", "empty /data", "--peers a=a:2,b=b:1"]),
        ];
        for (known, named, parts) in cases {
            let why = refused(known, named).expect("refused");
            for part in parts {
                assert!(why.contains(part), "`{part}` is not in: {why}");
            }
        }
    }
}
