//! What is to survive the loss of every peer, for operators to keep elsewhere.

use std::pin::Pin;

use leaseway_core::{
    Millis,
    access::{AccessRequest, Action},
};
use leaseway_proto::admin::{BackupPart, GetBackupRequest};
use tokio_stream::Stream;
use tonic::{Request, Status};

use super::AdminService;
use crate::{
    api::grpc::admitted,
    auth::Admitted,
    config::{
        self,
        initial_config::{believed, longest_lease},
    },
    observe::metrics::CallKind,
};

/// Bytes of a message.
const PART: usize = 256 << 10;

pub(super) type BackupParts = Pin<Box<dyn Stream<Item = Result<BackupPart, Status>> + Send>>;

impl AdminService {
    /// It tells what may be done, and of all resources.
    pub(super) fn may_back_up(&self, request: &Request<GetBackupRequest>) -> Result<Admitted, Status> {
        let admitted = admitted(request, self.node.authorizer());
        admitted.check(CallKind::Config, &AccessRequest::to(Action::Configure))?;
        admitted.check_everything(CallKind::Config, Action::Read)?;
        Ok(admitted)
    }

    pub(super) fn backup(&self) -> BackupParts {
        let (program, now) = (env!("CARGO_PKG_VERSION"), self.node.clock.now().unix);
        let bytes = self.quorum.backup(program, now, self.believed()).to_bytes();
        let parts: Vec<_> = bytes.chunks(PART).map(|part| Ok(BackupPart { bytes: part.to_vec() })).collect();
        Box::pin(tokio_stream::iter(parts))
    }

    /// For how long leases may be believed that were given under any configuration that is known.
    fn believed(&self) -> Millis {
        let texts: Vec<_> = self.quorum.read(|state| state.configurations().cloned().collect());
        let loaded = texts.iter().filter_map(|one| config::parse(&one.source, &one.text).ok());
        let longest = loaded.map(|loaded| longest_lease(&loaded.repository)).max().unwrap_or(believed(Millis(0)));
        longest.max(longest_lease(&self.node.config().repository)).max(self.node.longest_loan())
    }
}
