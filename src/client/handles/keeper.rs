//! What keeps a client open.

use std::sync::Arc;

use tokio::{runtime::Handle, sync::oneshot};

use crate::{handles::shared::Shared, session::Mode};

/// Shared by a client and its handles: the last to drop it closes the client.
pub(crate) struct Keeper {
    pub(crate) shared: Arc<Shared>,
    pub(crate) mode: Mode,
    pub(crate) runtime: Handle,
    /// Dropped with it, to end the thread of a blocking client.
    pub(crate) _gone: Option<oneshot::Sender<()>>,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.close();
    }
}
