//! How peers talk: gRPC on a port of their own, and who may take part.

mod call;
mod contacts;
mod introduction;
mod network;
mod service;
mod silence;

pub(crate) use call::{Call, Calls};
pub(crate) use contacts::Contacts;
pub(crate) use introduction::Introducer;
pub(crate) use network::Network;
pub(crate) use service::{Core, PeersService, stand};
pub(crate) use silence::{hears_a_master, hears_nobody, promised_until};
