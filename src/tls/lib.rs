//! TLS for every connection of Leaseway: rustls with ring, TLS 1.2 and 1.3.
//!
//! [`Credentials`] are a certificate with its key and the CAs that check the certificates of others, from files that
//! are read again when they change. [`ServerTls`] accepts with them, [`ClientTls`] connects; both take what is newest
//! for each handshake, and connections under way go on. What a certificate proves is [`Names`]. Every error says in
//! words what is wrong and what would be right.

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
pub use credentials::{Credentials, Files, Looked, certificates};
pub use error::TlsError;
pub use names::Names;
pub use server::{ClientCertificates, HANDSHAKE_DEADLINE, Protocol, Secured, ServerTls, linger};
pub use tokio_rustls::server::TlsStream as ServerStream;
