//! Access control: policies, tokens and TLS.

mod attacks;
mod policy;
mod reload;
mod tls;
mod tls_client;
mod tls_foreign;
mod tls_operators;
