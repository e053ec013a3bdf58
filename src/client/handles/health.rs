//! What a client says of itself.

/// How a client gets on with its servers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// The server it asks at present: the master, as far as is known.
    pub server: String,
    /// The servers it tries when that one does not answer: the endpoints it was given, and the peers that it has learnt
    /// of.
    pub endpoints: Vec<String>,
    /// Requests that have failed since one was answered.
    pub failures: u32,
    /// Why the last one that failed did so.
    pub last_error: Option<String>,
    /// The rates that owe something, and how much.
    pub debts: Vec<(String, u64)>,
}
