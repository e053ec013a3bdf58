//! Gateways for Envoy (RLS, RLQS) and HTTP.

mod access;
mod ai_gateway;
mod declare;
mod differential;
mod envoy;
mod envoy_gateway;
mod go_control_plane;
mod http;
mod http_access;
mod http_conformance;
mod http_hostile;
mod http_shares;
mod in_server;
mod rlqs;
mod rls;
mod rls_xds;
mod windows;
