//! Leaseway's server: actors around the core, gRPC and HTTP around the actors.
//!
//! [`Server::start`] is the whole of it. The order of things: the configuration is read and refused if it is wrong; ports are
//! bound, so that a second server on the same port fails before it can answer a client; then actors start, and only
//! then are connections accepted. On SIGTERM or SIGINT the way back.

mod access;
mod accounts;
pub mod actors;
mod assignment_store;
mod audit;
mod background;
mod budget;
mod changes;
mod children;
pub mod clock;
pub mod config;
mod error;
mod exposure;
mod extra_services;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod grpc;
mod health;
mod history;
mod http;
mod initial_config;
pub mod judgement;
pub mod limits;
mod listen;
mod logging;
mod metrics;
mod open_connections;
mod own_status;
mod parent;
mod parent_error;
mod peer_endpoints;
mod peer_list;
mod peers;
mod plan;
mod reload;
mod run;
mod secret;
mod server_info;
mod service;
mod signals;
mod stint;
mod subscribers;
mod supervisor;
mod survey;
mod tls;
#[cfg(feature = "otlp")]
mod traces;
mod watched_file;
mod watchers;

pub use access::{JwtOptions, NewToken};
pub use actors::{Handover, block_on};
pub use audit::AuditTarget;
pub use error::ServeError;
pub use extra_services::{CallerRefusal, ExtraServices, ExtraServicesOptions, HttpCaller};
pub use grpc::admin::AdminOptions;
pub use grpc::{GrpcCaller, Shortcut};
pub use leaseway_quorum::{Backup, PlaceError, Timing};
pub use leaseway_tls::{ClientCertificates, Files as TlsFiles, TlsError};
pub use listen::{Addresses, InProcess, ListenOption};
pub use parent::ParentOptions;
pub use parent_error::ParentError;
pub use peer_endpoints::PeerEndpoints;
pub use peers::{PeerOptions, TakeOver};
pub use run::{AccessOptions, Options, Server};
pub use signals::StopSignals;
pub use tls::TlsOptions;
