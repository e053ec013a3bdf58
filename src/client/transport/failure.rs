//! What it means for a person that a request has failed.

use std::{error::Error, io, iter};

use leaseway_tls::TlsError;
use tonic::{Code, Status};

/// Why a request to `endpoint` has failed, in words: names what is there instead of a server, if that can be told.
pub fn explain(endpoint: &str, status: &Status) -> String {
    let message = status.message();
    let cause = cause(status);
    let says = |texts: &[&str]| {
        let mut said = [Some(message), cause.as_deref()].into_iter().flatten();
        said.any(|said| texts.iter().any(|text| said.contains(text)))
    };
    let http = message.split_once("mapped from HTTP status code ").map(|(_, code)| code);
    if let Some(error) = tls_error(status) {
        return format!("{endpoint}: {error}");
    }
    match status.code() {
        _ if says(NEEDS_TLS) => {
            format!(
                "{endpoint} speaks TLS, and was asked without: write https://{endpoint}, or name the file with its CA"
            )
        }
        // Errors of a server that is there, or of a proxy before it, begin with 5.
        _ if http.is_some_and(|code| !code.starts_with('5')) => {
            format!("{endpoint} answers HTTP, not gRPC: this looks like the --http port; {CLIENTS_USE}")
        }
        _ if says(&[NO_FRAME]) => {
            format!("{endpoint} answers, but not in gRPC: this looks like a port of another service; {CLIENTS_USE}")
        }
        _ if says(HUNG_UP) => {
            format!(
                "{endpoint} has hung up without an answer: it stops, or this is a port of another service; \
                 {CLIENTS_USE}"
            )
        }
        Code::Unimplemented if message.is_empty() || message.contains("unknown service") => {
            format!(
                "{endpoint} has no service doorman.Capacity: this looks like the --admin port or that of the peers; \
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

/// What the transport says of an answer that is not HTTP/2.
const NO_FRAME: &str = "frame with invalid size";

/// What a server with TLS says to a client without.
const NEEDS_TLS: &[&str] = &["this server speaks TLS"];

/// How the transport says that a connection has ended in the middle of a request.
const HUNG_UP: &[&str] = &["connection closed", "broken pipe", "Connection reset"];

const CLIENTS_USE: &str = "clients use --listen, 5100 by default";

/// What is behind an error of the connection: the last of the errors that it came from.
fn cause(status: &Status) -> Option<String> {
    chain(status.source()?).last().map(ToString::to_string)
}

/// What TLS says of it, if that is why there is no connection.
pub fn tls_error(error: &(dyn Error + 'static)) -> Option<String> {
    chain(error).find_map(|error| {
        let handshake = || error.downcast_ref::<TlsError>().map(ToString::to_string);
        // Of what has ended a connection later h2 and hyper keep the kind and the words. What is no frame of HTTP/2 is
        // of the same kind.
        let later = || error.downcast_ref::<io::Error>().filter(|error| error.kind() == io::ErrorKind::InvalidData);
        let said = handshake().or_else(|| later().map(ToString::to_string))?;
        (!said.contains(NO_FRAME)).then_some(said)
    })
}

fn chain<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    iter::successors(Some(error), |error| (*error).source())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_instead_of_a_server_is_named() {
        let explained = |status| explain("a:1", &status);
        let http = Status::unknown("grpc-status header missing, mapped from HTTP status code 301");
        assert_eq!(
            explained(http),
            "a:1 answers HTTP, not gRPC: this looks like the --http port; clients use --listen, 5100 by default"
        );
        assert!(explained(Status::unimplemented("")).contains("this looks like the --admin port"));
        let closed = Status::cancelled("operation was canceled: connection closed");
        assert!(explained(closed).starts_with("a:1 has hung up without an answer"));
        let proxy = "grpc-status header missing, mapped from HTTP status code 503";
        assert_eq!(explained(Status::unavailable(proxy)), format!("a:1: {proxy} (Unavailable)"));
        assert_eq!(explained(Status::internal("as told")), "a:1: as told (Internal)");
    }
}
