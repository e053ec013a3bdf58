//! The server's interfaces: gRPC for clients and operators, HTTP for people and probes, and the status that both report.

pub(crate) mod grpc;
pub(crate) mod http;
pub(crate) mod status;
