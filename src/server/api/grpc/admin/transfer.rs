//! Mastership moves because an operator wants it to.

use leaseway_proto::admin::TransferMastershipResponse;
use leaseway_raft::Transferred;
use tonic::Status;

use super::{AdminService, not_changed};
use crate::node::peer_endpoints::PeerEndpoints;

impl AdminService {
    /// `to` may be empty: then the peer with most of the log is to be master.
    pub(super) async fn transfer(&self, to: &str) -> Result<TransferMastershipResponse, Status> {
        let moved = self.quorum.transfer(Some(to).filter(|to| !to.is_empty())).await;
        let Transferred { master, took } = moved.map_err(|error| not_changed(&error))?;
        let PeerEndpoints { grpc, admin, .. } = PeerEndpoints::from(master.advertise.as_str());
        Ok(TransferMastershipResponse {
            master: master.name,
            master_grpc_address: grpc,
            master_admin_address: admin,
            took_ms: took.as_millis() as u64,
        })
    }
}
