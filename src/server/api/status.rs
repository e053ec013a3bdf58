//! What both APIs report about a server.

pub mod checkup;
pub(crate) mod health;
pub(crate) mod history;
pub(crate) mod own_status;
pub(crate) mod peer_list;
pub(crate) mod survey;
