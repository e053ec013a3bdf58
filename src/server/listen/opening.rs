//! What a connection begins with, and what is said to a client that begins with the wrong protocol: in its own, or it
//! would only see noise.

use std::{io, time::Duration};

use leaseway_tls::linger;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

/// With this a client of HTTP/2 begins.
pub(super) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The first byte of every TLS connection: a handshake record.
const HANDSHAKE: u8 = 0x16;

/// How long it may take to say that this is the wrong protocol.
const ANSWER: Duration = Duration::from_secs(1);

/// What a connection begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opening {
    Tls,
    /// In the clear.
    Http2,
    /// In the clear; HTTP/1, or what looks like it.
    Http1,
    Other,
    /// It was closed before it said anything.
    Closed,
}

/// Waits for the first bytes, and leaves them where they are.
pub(super) async fn opening(stream: &TcpStream) -> io::Result<Opening> {
    let mut first = [0; 3];
    let length = stream.peek(&mut first).await?;
    Ok(match &first[..length] {
        [] => Opening::Closed,
        [HANDSHAKE, ..] => Opening::Tls,
        b"PRI" => Opening::Http2,
        [b'A'..=b'Z', ..] => Opening::Http1,
        _ => Opening::Other,
    })
}

/// Reads the preface of HTTP/2. `false`: it is another.
pub(super) async fn read_preface(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<bool> {
    let mut read = [0; PREFACE.len()];
    stream.read_exact(&mut read).await?;
    Ok(read == *PREFACE)
}

/// Says what is spoken here instead, and closes the connection.
pub(super) async fn refuse(mut stream: TcpStream, opening: Opening, why: &str) {
    let answer = match opening {
        Opening::Http1 => {
            let length = why.len() + 1;
            let head = format!("HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {length}");
            format!("{head}\r\nConnection: close\r\n\r\n{why}\n").into_bytes()
        }
        // A client that expects TLS notices at once that this is none.
        Opening::Http2 | Opening::Tls => go_away(why),
        Opening::Other | Opening::Closed => Vec::new(),
    };
    let _ = timeout(ANSWER, stream.write_all(&answer)).await;
    linger(stream).await;
}

/// The settings that a server begins with, and GOAWAY with a text.
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
