//! Leaseway's server: actors around the core, gRPC and HTTP around the actors.
//!
//! [`run`] is the whole of it. The order of things: the configuration is read and refused if it is wrong; ports are
//! bound, so that a second server on the same port fails before it can answer anybody; then actors start, and only then
//! are connections accepted. On SIGTERM or SIGINT the way back.

pub mod actors;
pub mod clock;
pub mod config;
mod first;
mod grpc;
mod http;
pub mod limits;
mod logging;
mod metrics;
mod parent;
mod peers;
mod reload;
mod run;
mod services;
mod signals;
mod subscribers;
mod vouched;
mod watchers;

pub use actors::Handover;
pub use grpc::admin::AdminOptions;
pub use leaseway_quorum::Timing;
pub use parent::{ParentError, ParentOptions};
pub use peers::{PeerOptions, TakeOver};
pub use run::{Addresses, Options, ServeError, run};
pub use services::Services;
pub use signals::StopSignals;
