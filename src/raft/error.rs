//! What can go wrong, what causes it, and which state it leaves.

use std::{io, net::SocketAddr};

use crate::{peers_mismatch::PeersMismatch, store::StoreError, store::disk::Failure};

/// A peer cannot start. Nothing is running, and nothing of its directory was changed but what the error says.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The directory cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The settings are wrong.
    #[error("{0}")]
    Settings(String),
    /// Without certificates or a secret, any machine on the network could join.
    #[error(
        "{0} can be reached from other machines: give all peers certificates (--tls-cert, --tls-key, --tls-ca) or the \
         same secret, or listen on loopback"
    )]
    NoSecret(SocketAddr),
    /// The directory knows of other peers than the settings name: going on could make a second master.
    #[error(transparent)]
    PeersMismatch(#[from] Box<PeersMismatch>),
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    /// The operating system refuses threads.
    #[error("cannot start the threads of the quorum: {0}")]
    Threads(#[source] io::Error),
    /// Consensus could not begin.
    #[error("{0}")]
    Failed(#[from] Failure),
}

impl StartError {
    /// Whether other settings would help.
    pub fn is_configuration(&self) -> bool {
        match self {
            StartError::Store(error) => matches!(error, StoreError::OtherPeer { .. }),
            StartError::Settings(_) | StartError::NoSecret(_) | StartError::PeersMismatch(_) => true,
            StartError::Listen { .. } | StartError::Threads(_) | StartError::Failed(_) => false,
        }
    }
}

/// The peers are as they were, but for what the error says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// Only a master changes the membership.
    #[error("this peer is not the master: ask {}", master.as_deref().unwrap_or("again when there is one"))]
    NotMaster {
        /// The master, if it is known.
        master: Option<String>,
    },
    /// A lone peer has no listener that others could reach.
    #[error(
        "nothing listens for peers here, so that no other could join: start this server again with the same --data \
         and with `--id {name} --peers {name}=HOST:PORT`, its name and where the others reach it; what it has \
         promised stays. Then add them"
    )]
    Lone {
        /// What it is called.
        name: String,
    },
    /// No peer answers there, or not one that this cluster can add.
    #[error("the peer {name:?} at {address} does not answer as it should: {why}")]
    NotThere {
        /// The peer to add.
        name: String,
        /// Where it should be.
        address: String,
        why: String,
    },
    /// A running peer must not be replaced.
    #[error("{name:?} is a peer already, and it is alive: stop it or remove it first")]
    Alive { name: String },
    /// No peer has this name.
    #[error("there is no peer {name:?}: {known} are there")]
    Unknown {
        name: String,
        /// The names of the members.
        known: String,
    },
    /// A master does not remove itself.
    #[error("{name:?} is the master: stop it first, so that another one takes over, and remove it there")]
    IsMaster { name: String },
    /// Mastership cannot move.
    #[error("this is the only peer with a vote, so that no other can be master: `leaseway peers add` lets one in")]
    Alone,
    /// Mastership is where it is wanted.
    #[error("{name:?} is the master already")]
    IsMasterAlready { name: String },
    /// A learner cannot be master.
    #[error("{name:?} has no vote yet: it can be master once it has caught up")]
    NoVote { name: String },
    /// It would not be elected.
    #[error("{name:?} is down or cut off: choose another, or bring it back first")]
    Silent { name: String },
    #[error("{name:?} was not elected in time, and this peer is master again: try again, or choose another")]
    NotTaken {
        /// The peer that was to be master.
        name: String,
    },
    /// The node would not have a master any more.
    #[error("of the peers that would be left only {there} answer, and {needed} have to: bring others back first")]
    NoMajority {
        /// How many have answered.
        there: usize,
        /// How many must be.
        needed: usize,
    },
    /// It was added as a learner and remains one until this is repeated, or it is removed.
    #[error("{name:?} has not caught up within {seconds} s; it goes on, try again later")]
    Behind {
        name: String,
        /// How long the master waited for it.
        seconds: u64,
    },
    /// Another change is under way, or mastership was lost meanwhile.
    #[error("the change did not come about: {0}")]
    Failed(String),
}
