//! Why the membership or the master was not changed.

/// The membership is unchanged unless the error says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    #[error("this peer is not the master: ask {}", master.as_deref().unwrap_or("again when there is one"))]
    NotMaster { master: Option<String> },
    /// A lone peer has no peer listener.
    #[error(
        "nothing listens for peers here, so that no other could join: start this server again with the same --data \
         and with `--id {name} --peers {name}=HOST:PORT`, its name and where the others reach it; what it has \
         promised stays. Then add them"
    )]
    Lone { name: String },
    #[error("cannot add the peer {name:?} at {address}: {why}")]
    NotThere { name: String, address: String, why: String },
    #[error("{name:?} is already a running peer: stop it or remove it first")]
    Alive { name: String },
    #[error("there is no peer {name:?}; the peers are {known}")]
    Unknown { name: String, known: String },
    #[error("{name:?} is the master: transfer mastership first, then remove it from the new master")]
    IsMaster { name: String },
    #[error("this is the only peer with a vote, so that no other can be master: `leaseway peers add` lets one in")]
    Alone,
    #[error("{name:?} is the master already")]
    IsMasterAlready { name: String },
    #[error("{name:?} has no vote yet: it can be master once it has caught up")]
    NoVote { name: String },
    #[error("{name:?} is down or cut off: choose another, or bring it back first")]
    Silent { name: String },
    #[error("{name:?} was not elected in time, and this peer is master again: try again or choose another peer")]
    NotTaken { name: String },
    /// Without a majority there would be no master.
    #[error(
        "only {there} of the remaining peers answer, and {needed} are needed for a majority: bring others back first"
    )]
    NoMajority { there: usize, needed: usize },
    /// The peer was added as a learner, and remains one until it is added again or removed.
    #[error("{name:?} has not caught up within {seconds} s; it continues to catch up, so try again later")]
    Behind { name: String, seconds: u64 },
    /// Mastership was lost, or a quorum did not answer.
    #[error("the change failed: {0}")]
    Failed(String),
}
