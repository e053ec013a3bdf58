//! Error messages for failed requests.

use std::{error::Error, io, iter};

use leaseway_core::types::escaped;
use leaseway_tls::TlsError;
use tonic::{Code, Status};

/// Explains why a request to `endpoint` failed. Recognises ports that are not the one for clients.
pub fn explain(endpoint: &str, status: &Status) -> String {
    let message = status.message();
    let cause = cause(status);
    let says = |texts: &[&str]| {
        let mut texts_of_error = [Some(message), cause.as_deref()].into_iter().flatten();
        texts_of_error.any(|error| texts.iter().any(|text| error.contains(text)))
    };
    let http = HTTP_STATUS.iter().find_map(|text| message.split_once(text)).map(|(_, code)| code);
    if let Some(error) = tls_error(status) {
        return format!("{endpoint}: {error}");
    }
    match status.code() {
        _ if says(NEEDS_TLS) => {
            format!("{endpoint} speaks TLS: use https://{endpoint}, or set the CA file")
        }
        // Status codes of a failing server, or of a proxy before it, begin with 5.
        _ if http.is_some_and(|code| !code.starts_with('5')) => {
            format!("{endpoint} speaks HTTP, not gRPC: this looks like the --http port; {CLIENTS_USE}")
        }
        _ if says(&[NO_FRAME]) => {
            format!("{endpoint} does not speak gRPC: this looks like the port of another service; {CLIENTS_USE}")
        }
        _ if says(HUNG_UP) => {
            format!(
                "{endpoint} closed the connection without an answer: it is shutting down, or this is the port of \
                 another service; {CLIENTS_USE}"
            )
        }
        Code::Unimplemented if message.is_empty() || message.contains("unknown service") => {
            format!(
                "{endpoint} has no service doorman.Capacity: this looks like the --admin port or the peer port; \
                 {CLIENTS_USE}"
            )
        }
        code => {
            let cause = cause.as_ref().filter(|cause| !message.contains(cause.as_str()));
            let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
            format!("{endpoint}: {message}{cause} ({code:?})")
        }
    }
}

/// A text that contains what a server has sent, for logs and errors: on one line, and cut if it is long.
pub fn quoted(text: &str) -> String {
    if text.len() <= MAX_QUOTED {
        return escaped(text).into_owned();
    }
    let end = (0..=MAX_QUOTED).rfind(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}…", escaped(&text[..end]))
}

/// The maximum length of a quoted text, in bytes.
const MAX_QUOTED: usize = 500;

/// What the transport's errors for an HTTP answer without and with a body say before the status code.
const HTTP_STATUS: &[&str] = &["mapped from HTTP status code ", "while receiving response with status: "];

/// Part of the transport's error for an answer that is not HTTP/2.
const NO_FRAME: &str = "frame with invalid size";

/// Part of the error that a server with TLS sends to a client without TLS.
const NEEDS_TLS: &[&str] = &["this server speaks TLS"];

/// Parts of the transport's errors for a connection that was closed during a request.
const HUNG_UP: &[&str] = &["connection closed", "broken pipe", "Connection reset"];

const CLIENTS_USE: &str = "clients use --listen, 5100 by default";

/// The root cause of an error of the connection.
fn cause(status: &Status) -> Option<String> {
    chain(status.source()?).last().map(ToString::to_string)
}

/// The TLS error that caused this error, if any.
pub fn tls_error(error: &(dyn Error + 'static)) -> Option<String> {
    chain(error).find_map(|error| {
        let handshake = || error.downcast_ref::<TlsError>().map(ToString::to_string);
        // For a TLS error after the handshake h2 and hyper keep the kind and the message only. Malformed HTTP/2 frames
        // have the same kind.
        let later = || error.downcast_ref::<io::Error>().filter(|error| error.kind() == io::ErrorKind::InvalidData);
        let message = handshake().or_else(|| later().map(ToString::to_string))?;
        (!message.contains(NO_FRAME)).then_some(message)
    })
}

fn chain<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    iter::successors(Some(error), |error| (*error).source())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_text_is_on_one_line_and_not_long() {
        assert_eq!(quoted("two\nlines \u{1b}[31m"), "two\\nlines \\u001b[31m");
        let long = quoted(&"\u{e4}".repeat(1_000_000));
        assert_eq!(long, format!("{}…", "\u{e4}".repeat(MAX_QUOTED / 2)));
    }

    #[test]
    fn ports_of_other_services_are_recognised() {
        let explained = |status| explain("a:1", &status);
        for http in [
            "grpc-status header missing, mapped from HTTP status code 301",
            "protocol error: received message with invalid compression flag: 84 (valid flags are 0 and 1) while \
             receiving response with status: 404 Not Found",
        ] {
            assert_eq!(
                explained(Status::internal(http)),
                "a:1 speaks HTTP, not gRPC: this looks like the --http port; clients use --listen, 5100 by default"
            );
        }
        assert!(explained(Status::unimplemented("")).contains("this looks like the --admin port"));
        let closed = Status::cancelled("operation was canceled: connection closed");
        assert!(explained(closed).starts_with("a:1 closed the connection without an answer"));
        let proxy = "grpc-status header missing, mapped from HTTP status code 503";
        assert_eq!(explained(Status::unavailable(proxy)), format!("a:1: {proxy} (Unavailable)"));
        assert_eq!(explained(Status::internal("out of memory")), "a:1: out of memory (Internal)");
    }
}
