//! Leaseway's server: actors around the core, gRPC and HTTP around the actors.
//!
//! [`Server::start`] reads the configuration, binds the ports, starts the actors and then accepts connections, so a
//! server with a bad configuration or a port in use never answers a client. SIGTERM and SIGINT stop it in the reverse
//! order.

mod api;
mod auth;
pub mod config;
mod listen;
mod node;
mod observe;
mod run;
mod runtime;

pub use api::grpc::admin::AdminOptions;
#[cfg(feature = "fuzzing")]
pub use api::grpc::fuzzing;
pub use api::grpc::{ExtraMethod, GrpcCaller};
pub use api::status::{ReadinessProbe, checkup};
pub use auth::{JwtOptions, NewToken};
pub use config::error::{ParentError, ServeError};
pub use leaseway_raft::{Backup, RestoreError, Timing};
pub use leaseway_tls::{ClientCertificates, Files as TlsFiles, TlsError};
pub use listen::tls::TlsOptions;
pub use listen::{Addresses, InProcess, ListenOption};
pub use node::addresses::PeerEndpoints;
pub use node::{Handover, block_on};
pub use observe::{
    audit::AuditTarget,
    webhook::{WebhookOptions, WebhookUrl},
};
pub use run::extra_services::{CallerRefusal, ExtraServices, ExtraServicesOptions, HttpCaller};
pub use run::guard::AccessOptions;
pub use run::parent_options::ParentOptions;
pub use run::peers::{PeerOptions, TakeOver};
pub use run::{Options, Server};
pub use runtime::clock::Skew;
pub use runtime::signals::StopSignals;
