//! Opens the data directory of a peer, and refuses inconsistent settings and content. Blocks.

use std::{io, net::SocketAddr, sync::Arc};

use crate::{
    log::{
        LogId, Member, StoreError, Vote,
        acknowledged::{Acknowledged, Incarnation},
        codec::Kind,
        directory::{Directory, Identity, random},
        disk_thread::{Disk, Failure, FailureLatch, FlushTimes},
        high_water_mark::{Flusher, HighWaterMark, StoredMark},
        memory::Log,
        segment_files::Segments,
        snapshots::Snapshots,
        store::LogStore,
    },
    membership::peers_mismatch::{self, PeersMismatch},
    settings::Settings,
    state::machine::Machine,
};

/// Why a peer cannot start. Nothing is running, and its directory is unchanged unless the error says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0}")]
    Settings(String),
    /// Without certificates or a secret, any machine on the network could join.
    #[error(
        "{0} can be reached from other machines, but peers have no authentication: give all peers certificates \
         (--tls-cert, --tls-key, --tls-ca) or the same --peer-secret-file, or listen on loopback"
    )]
    NoSecret(SocketAddr),
    /// The directory and the settings name different peers: going on could make a second master.
    #[error(transparent)]
    PeersMismatch(#[from] Box<PeersMismatch>),
    #[error("cannot listen for peers on {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("cannot start the threads for consensus: {0}")]
    Threads(#[source] io::Error),
    /// Consensus could not begin.
    #[error("{0}")]
    Failed(#[from] Failure),
}

impl StartError {
    /// Whether the cause is in the settings, so that a restart with the same ones fails again.
    pub fn is_configuration(&self) -> bool {
        match self {
            StartError::Store(error) => matches!(error, StoreError::OtherPeer { .. }),
            StartError::Settings(_) | StartError::NoSecret(_) | StartError::PeersMismatch(_) => true,
            StartError::Listen { .. } | StartError::Threads(_) | StartError::Failed(_) => false,
        }
    }
}

/// The content of a data directory.
pub(crate) struct Opened {
    pub(crate) directory: Arc<Directory>,
    pub(crate) identity: Identity,
    /// Whether this peer has voted, or has a log or a snapshot.
    pub(crate) used: bool,
    pub(crate) members: Vec<Member>,
    pub(crate) log: LogStore,
    pub(crate) mark: Flusher,
    pub(crate) machine: Machine,
    pub(crate) failing: FailureLatch,
    pub(crate) flushes: FlushTimes,
    pub(crate) acknowledged: Acknowledged,
    pub(crate) incarnation: Incarnation,
}

/// Checks that the settings are consistent.
pub(crate) fn check(settings: &Settings) -> Result<(), StartError> {
    let wrong = |what: String| Err(StartError::Settings(what));
    if settings.name.is_empty() || settings.name.len() > 200 {
        return wrong("the name of this peer (--id) must have 1 to 200 bytes".into());
    }
    let Some(listen) = settings.listen else {
        return match settings.peers.iter().any(|(name, _)| *name != settings.name) {
            true => wrong(
                "the other peers cannot reach this one: set the address on which it listens (--peer-listen)".into(),
            ),
            false => Ok(()),
        };
    };
    if settings.address_of(&settings.name).is_none() {
        let names: Vec<_> = settings.peers.iter().map(|(name, _)| name.as_str()).collect();
        return wrong(format!(
            "--id {:?} is not among --peers ({}): use the name of this peer in --peers",
            settings.name,
            names.join(", ")
        ));
    }
    for (index, (name, _)) in settings.peers.iter().enumerate() {
        if settings.peers[..index].iter().any(|(other, _)| other == name) {
            return wrong(format!("two peers in --peers have the name {name:?}: give each peer its own name"));
        }
    }
    if settings.secret.is_none() && settings.tls.is_none() && !is_loopback(listen) {
        return Err(StartError::NoSecret(listen));
    }
    Ok(())
}

fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Refuses a data directory in which a file is missing, or older than the others.
fn check_whole(
    directory: &Directory,
    vote: Option<Vote>,
    log: &Log,
    applied: Option<LogId>,
    mark: Option<&StoredMark>,
    known: Option<&Identity>,
) -> Result<(), StoreError> {
    let incomplete =
        |what: &str| Err(StoreError::Damaged { path: directory.root().to_owned(), offset: 0, what: what.into() });
    let missing = |what: &str| incomplete(&format!("the {what} is missing, although there is a log or a snapshot"));
    let last = log.last().max(applied);
    let used = vote.is_some() || last.is_some();
    // The peer that begins a cluster writes its first entry before its first vote.
    if vote.is_none() && (log.last().is_some_and(|last| last.index > 0) || applied.is_some()) {
        return missing("vote");
    }
    // Entries of a term are stored after a vote in it.
    if vote.is_some_and(|vote| last.is_some_and(|last| last.leader_id.term > vote.leader_id.term)) {
        return incomplete("the vote is older than the log: one of them was restored from an older copy");
    }
    if log.purged() > applied {
        return missing("snapshot");
    }
    // The identity is written after the high-water mark.
    if mark.is_none() && known.is_some_and(|identity| used || identity.cluster.is_some()) {
        return incomplete(
            "the high-water mark of the log (file high-water-mark) is missing: without it, this server cannot tell \
             whether the log lacks entries that it has acknowledged",
        );
    }
    if known.is_none() && used { missing("identity") } else { Ok(()) }
}

pub(crate) fn open(settings: &Settings) -> Result<Opened, StartError> {
    let directory = Arc::new(Directory::open(&settings.data)?);
    let failing = FailureLatch::new();
    let snapshots = Snapshots::new(Arc::clone(&directory), failing.clone());
    let machine = Machine::open(snapshots.clone(), Arc::clone(&settings.clock))?;
    let vote: Option<Vote> = directory.read("vote", Kind::Vote)?;
    let known = read_identity(&directory, settings)?;
    let mark = HighWaterMark::read(&directory)?;
    let (segments, log) = Segments::open(&directory.path("log"), mark.as_ref().and_then(|mark| mark.last))?;
    let used = vote.is_some() || log.last().is_some() || machine.applied().is_some();
    check_whole(&directory, vote, &log, machine.applied(), mark.as_ref(), known.as_ref())?;
    // An identity without a vote, log or snapshot was never used. Create a new one.
    let known = known.filter(|_| used);
    let is_new = known.is_none();
    let draw = || Identity { name: settings.name.clone(), peer: random() as u64 | 1, cluster: None };
    let identity = known.unwrap_or_else(draw);
    let members: Vec<Member> = match log.membership().or_else(|| machine.membership()) {
        Some(membership) if used => membership.nodes().map(|(_, member)| member.clone()).collect(),
        _ => Vec::new(),
    };
    peers_mismatch::check(settings, identity.cluster, &members)?;
    let known = mark.as_ref().map(|mark| mark.known.clone()).unwrap_or_default();
    let acknowledged = Acknowledged::new(known, |id| log.id_at(id.index) == Some(id));
    let mark = HighWaterMark::open(&directory, mark, log.last(), acknowledged.clone())?;
    if is_new {
        directory.replace("identity", Kind::Identity, &identity)?;
    }
    let flusher = mark.flusher();
    let started_with = log.last().max(machine.applied());
    let incarnation = Incarnation { peer: identity.peer, number: random() as u64 | 1, started_with };
    let disk = Disk::start(Arc::clone(&directory), segments, mark, log.purged(), failing.clone());
    let flushes = disk.flushes();
    let log = LogStore::new(log, vote, disk, snapshots, identity.peer);
    Ok(Opened {
        directory,
        identity,
        used,
        members,
        log,
        mark: flusher,
        machine,
        failing,
        flushes,
        acknowledged,
        incarnation,
    })
}

fn read_identity(directory: &Directory, settings: &Settings) -> Result<Option<Identity>, StoreError> {
    let known: Option<Identity> = directory.read("identity", Kind::Identity)?;
    match &known {
        Some(identity) if identity.name != settings.name => {
            let (path, expected) = (settings.data.clone(), settings.name.clone());
            Err(StoreError::OtherPeer { path, found: identity.name.clone(), expected })
        }
        _ => Ok(known),
    }
}
