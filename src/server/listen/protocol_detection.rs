//! Detects the protocol of a new connection. A client with the wrong one is refused in its own protocol.

use std::{io, time::Duration};

use leaseway_tls::linger;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

/// The first bytes of an HTTP/2 client.
pub(super) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The first byte of every TLS connection: the type of a handshake record.
const HANDSHAKE: u8 = 0x16;

/// The time limit for the refusal of a wrong protocol.
const ANSWER: Duration = Duration::from_secs(1);

/// The protocol that a connection begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DetectedProtocol {
    Tls,
    /// Without TLS.
    Http2,
    /// Without TLS: HTTP/1, or similar.
    Http1,
    Other,
    /// It was closed before the first byte.
    Closed,
}

/// Waits for the first bytes without consuming them.
pub(super) async fn detect_protocol(stream: &TcpStream) -> io::Result<DetectedProtocol> {
    let mut first = [0; 3];
    let length = stream.peek(&mut first).await?;
    Ok(match &first[..length] {
        [] => DetectedProtocol::Closed,
        [HANDSHAKE, ..] => DetectedProtocol::Tls,
        b"PRI" => DetectedProtocol::Http2,
        [b'A'..=b'Z', ..] => DetectedProtocol::Http1,
        _ => DetectedProtocol::Other,
    })
}

/// Reads the HTTP/2 preface. `false` if the bytes differ.
pub(super) async fn read_preface(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<bool> {
    let mut read = [0; PREFACE.len()];
    stream.read_exact(&mut read).await?;
    Ok(read == *PREFACE)
}

/// Sends an error text in the protocol of the client, and closes the connection.
pub(super) async fn refuse(mut stream: TcpStream, opening: DetectedProtocol, why: &str) {
    let answer = match opening {
        DetectedProtocol::Http1 => {
            let length = why.len() + 1;
            let head = format!("HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {length}");
            format!("{head}\r\nConnection: close\r\n\r\n{why}\n").into_bytes()
        }
        // A client that expects TLS fails immediately.
        DetectedProtocol::Http2 | DetectedProtocol::Tls => go_away(why),
        DetectedProtocol::Other | DetectedProtocol::Closed => Vec::new(),
    };
    let _ = timeout(ANSWER, stream.write_all(&answer)).await;
    linger(stream).await;
}

/// A server's initial SETTINGS frame, and a GOAWAY frame with a text.
fn go_away(why: &str) -> Vec<u8> {
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    const GO_AWAY: u8 = 7;
    const INADEQUATE_SECURITY: u8 = 0xc;
    let mut frames = SETTINGS.to_vec();
    let length = u8::try_from(8 + why.len()).expect("the texts are short");
    frames.extend_from_slice(&[0, 0, length, GO_AWAY, 0, 0, 0, 0, 0]);
    // No stream was served.
    frames.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, INADEQUATE_SECURITY]);
    frames.extend_from_slice(why.as_bytes());
    frames
}
