//! What was seen of servers: all that verdicts rest on.

use leaseway_proto::{admin::ListPeersResponse, status::GetStatusResponse};

/// A node, and those above it.
#[derive(Debug, Default)]
pub struct Observation {
    /// The node that was asked first; then its parent, and so on up to the root.
    pub nodes: Vec<NodeObservation>,
    /// Now, by the clock of this machine: seconds since the epoch.
    pub unix: i64,
}

/// The servers of a node.
#[derive(Debug, Default)]
pub struct NodeObservation {
    /// What it is called at its parent, or where it was looked for.
    pub name: String,
    /// Those that were asked.
    pub servers: Vec<ServerObservation>,
    /// As the master lists them, or else one that answers.
    pub peers: PeersObservation,
}

/// The peers of a node.
#[derive(Debug, Default)]
pub enum PeersObservation {
    /// The server keeps nothing: it is alone.
    #[default]
    Alone,
    /// Another peer hears from them.
    Elsewhere,
    /// Why they were not told.
    Unknown(String),
    /// As a peer lists them.
    Listed(ListPeersResponse),
}

/// One server, from here.
#[derive(Debug)]
pub struct ServerObservation {
    /// Where it was asked.
    pub address: String,
    /// The master's has all resources.
    pub answer: Result<GetStatusResponse, String>,
    /// So many milliseconds its clock is ahead of that of this machine, and how far off that may be.
    pub clock_ms: Option<(i64, u64)>,
}

impl ServerObservation {
    pub(super) fn status(&self) -> Option<&GetStatusResponse> {
        self.answer.as_ref().ok()
    }
}

impl NodeObservation {
    /// What those that answer say.
    pub fn statuses(&self) -> impl Iterator<Item = (&ServerObservation, &GetStatusResponse)> {
        self.servers.iter().filter_map(|server| Some((server, server.status()?)))
    }

    /// The status of the master, if it was seen.
    pub fn master(&self) -> Option<&GetStatusResponse> {
        self.statuses().map(|(_, status)| status).find(|status| status.is_master)
    }

    /// Where a server says that the master is, if none of those that were seen is it.
    pub(super) fn master_elsewhere(&self) -> Option<&str> {
        if self.master().is_some() {
            return None;
        }
        let is_seen = |address: &str| self.servers.iter().any(|one| one.address == address && one.answer.is_ok());
        let mut said = self.statuses().map(|(_, status)| &*status.master_address);
        said.find(|address| !address.is_empty() && !is_seen(address))
    }

    /// Why the server there has not answered, if it was asked.
    pub(super) fn silence_of(&self, address: &str) -> Option<&str> {
        let server = self.servers.iter().find(|server| server.address == address)?;
        server.answer.as_ref().err().map(String::as_str)
    }
}
