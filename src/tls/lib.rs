//! TLS for every connection of Leaseway: rustls with ring, TLS 1.2 and 1.3.
//!
//! [`Credentials`] are a certificate with its key, and the CAs that certificates of others are verified by. They come
//! from files that are read again when they change. [`ServerTls`] accepts connections with them and [`ClientTls`] opens
//! connections; each handshake uses the newest credentials, and open connections are not affected. [`Names`] are what a
//! certificate proves. Errors explain what is wrong and what to do.

mod certificate;
mod client;
mod credentials;
mod error;
mod explain;
mod names;
mod server;
#[cfg(test)]
mod tests;

pub use certificate::{Description, MalformedCertificate, describe};
pub use client::{ClientStream, ClientTls, channel, connected_channel};
pub use credentials::{Credentials, Files, Reload, certificates};
pub use error::TlsError;
pub use names::Names;
pub use server::{Accepted, ClientCertificates, HANDSHAKE_DEADLINE, Protocol, ServerTls, linger};
pub use tokio_rustls::server::TlsStream as ServerStream;
