//! What callers of a server use: gRPC for clients and operators, HTTP for people and probes, and the status that both
//! report.

#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub(crate) mod grpc;
pub(crate) mod http;
pub(crate) mod status;
