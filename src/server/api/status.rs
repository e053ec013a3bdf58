//! What both APIs report about a server.

pub(crate) mod health;
pub(crate) mod history;
pub mod judgement;
pub(crate) mod own_status;
pub(crate) mod peer_list;
pub(crate) mod survey;
