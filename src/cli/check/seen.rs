//! What was seen of a cluster: all that verdicts rest on.

use leaseway_proto::{admin::ListPeersResponse, status::GetStatusResponse};

/// A node, and those above it.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The node that was asked first; then its parent, and so on up to the root.
    pub(super) nodes: Vec<NodeSeen>,
    /// Now, by the clock of this machine: seconds since the epoch.
    pub(super) unix: i64,
}

/// The servers of a node.
#[derive(Debug, Default)]
pub(super) struct NodeSeen {
    /// What it is called at its parent, or where it was looked for.
    pub(super) name: String,
    pub(super) servers: Vec<ServerSeen>,
    /// As the master lists them, or else one that answers.
    pub(super) peers: PeersSeen,
}

#[derive(Debug, Default)]
pub(super) enum PeersSeen {
    /// The server keeps nothing: it is alone.
    #[default]
    Alone,
    /// Why they were not told.
    Unknown(String),
    Listed(ListPeersResponse),
}

/// One server, from here.
#[derive(Debug)]
pub(super) struct ServerSeen {
    pub(super) address: String,
    /// The master's has all resources.
    pub(super) answer: Result<GetStatusResponse, String>,
    /// So many milliseconds its clock is ahead of that of this machine, and how far off that may be.
    pub(super) clock_ms: Option<(i64, u64)>,
}

impl ServerSeen {
    pub(super) fn status(&self) -> Option<&GetStatusResponse> {
        self.answer.as_ref().ok()
    }
}

impl NodeSeen {
    /// What those that answer say.
    pub(super) fn statuses(&self) -> impl Iterator<Item = (&ServerSeen, &GetStatusResponse)> {
        self.servers.iter().filter_map(|server| Some((server, server.status()?)))
    }

    pub(super) fn master(&self) -> Option<&GetStatusResponse> {
        self.statuses().map(|(_, status)| status).find(|status| status.is_master)
    }
}
