//! What answers to operators have in common.

use leaseway_proto::admin::MASTER_METADATA;
use leaseway_raft::ProposeError;
use tonic::{
    Status,
    metadata::{Ascii, MetadataValue},
};

use super::not_master;
use crate::node::NotMaster;

pub(super) fn elsewhere(why: &NotMaster) -> Status {
    let mut status = match why.master {
        Some(_) => not_master(why),
        None => Status::unavailable("there is no master at the moment; try again in a second"),
    };
    // Empty if no master is known: nothing was done then, either.
    let admin = why.master.as_ref().map_or("", |master| &master.admin);
    if let Ok(admin) = admin.parse::<MetadataValue<Ascii>>() {
        status.metadata_mut().insert(MASTER_METADATA, admin);
    }
    status
}

pub(super) fn unsure(error: &ProposeError) -> Status {
    match error {
        ProposeError::TooLarge { .. } => Status::invalid_argument(error.to_string()),
        _ => Status::unavailable(format!("{error}; look at what is in force and try again")),
    }
}
