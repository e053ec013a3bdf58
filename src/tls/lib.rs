//! TLS for every connection of Leaseway: rustls with ring, TLS 1.2 and 1.3.
//!
//! [`Credentials`] hold a certificate with its key, and the CAs that verify the certificates of others. They come from
//! files, which are read again when they change. [`ServerTls`] accepts connections and [`ClientTls`] opens them. Each
//! handshake uses the newest credentials; open connections keep theirs. [`Names`] are the names that a certificate
//! proves. Errors explain the cause and the remedy.

mod certificate;
mod client;
mod credentials;
mod error;
mod names;
mod server;
#[cfg(test)]
mod tests;

pub use certificate::{Description, MalformedCertificate, describe};
pub use client::{ClientStream, ClientTls, channel, connected_channel};
pub use credentials::{Credentials, FileStamp, Files, Reload, certificates, file_stamp};
pub use error::TlsError;
pub use names::Names;
pub use server::{Accepted, ClientCertificates, HANDSHAKE_DEADLINE, Protocol, ServerTls, linger};
pub use tokio_rustls::server::TlsStream as ServerStream;
