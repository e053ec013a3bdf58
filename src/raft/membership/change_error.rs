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
    #[error("the peer {name:?} at {address} does not answer as it should: {why}")]
    NotThere { name: String, address: String, why: String },
    #[error("{name:?} is a peer already, and it is alive: stop it or remove it first")]
    Alive { name: String },
    #[error("there is no peer {name:?}: {known} are there")]
    Unknown { name: String, known: String },
    #[error("{name:?} is the master: stop it first, so that another one takes over, and remove it there")]
    IsMaster { name: String },
    #[error("this is the only peer with a vote, so that no other can be master: `leaseway peers add` lets one in")]
    Alone,
    #[error("{name:?} is the master already")]
    IsMasterAlready { name: String },
    #[error("{name:?} has no vote yet: it can be master once it has caught up")]
    NoVote { name: String },
    #[error("{name:?} is down or cut off: choose another, or bring it back first")]
    Silent { name: String },
    #[error("{name:?} was not elected in time, and this peer is master again: try again, or choose another")]
    NotTaken { name: String },
    /// Without a majority there would be no master.
    #[error("of the peers that would be left only {there} answer, and {needed} have to: bring others back first")]
    NoMajority { there: usize, needed: usize },
    /// The peer was added as a learner, and remains one until it is added again or removed.
    #[error("{name:?} has not caught up within {seconds} s; it goes on, try again later")]
    Behind { name: String, seconds: u64 },
    /// Mastership was lost, or a quorum did not answer.
    #[error("the change did not come about: {0}")]
    Failed(String),
}
