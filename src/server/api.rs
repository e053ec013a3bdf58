//! The server's interfaces: gRPC for clients and operators, HTTP for browsers, scripts and probes.

pub(crate) mod grpc;
pub(crate) mod http;
pub(crate) mod pages;
pub(crate) mod status;
