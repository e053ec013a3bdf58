//! Where to listen, as flags say it.

use std::net::SocketAddr;

/// `IP:PORT`; the error says what to write instead of a port or a name alone.
pub(crate) fn listen_address(text: &str) -> Result<SocketAddr, String> {
    text.trim().parse().map_err(|_| match text.trim().rsplit_once(':') {
        _ if is_port(text.trim()) => {
            format!("expected IP:PORT: write 127.0.0.1:{0} for this machine alone, or 0.0.0.0:{0} for all", text.trim())
        }
        Some(("", port)) if is_port(port) => {
            format!("expected IP:PORT: write 127.0.0.1:{port} for this machine alone, or 0.0.0.0:{port} for all")
        }
        Some(("localhost", port)) if is_port(port) => {
            format!("expected an IP address, not a name: write 127.0.0.1:{port}")
        }
        Some((host, port)) if is_port(port) && !host.contains(':') => {
            format!("expected an IP address of this machine before the port, and `{host}` is none")
        }
        _ => "expected IP:PORT, such as 127.0.0.1:5100 or [::1]:5100".to_owned(),
    })
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_the_error_says_what_to_write() {
        for text in ["127.0.0.1:5100", "[::1]:5100", " 0.0.0.0:0 "] {
            assert!(listen_address(text).is_ok(), "{text}");
        }
        for (text, says) in [
            ("5100", "write 127.0.0.1:5100 for this machine alone"),
            (":5100", "write 127.0.0.1:5100 for this machine alone"),
            ("localhost:5100", "not a name: write 127.0.0.1:5100"),
            ("db.internal:5100", "`db.internal` is none"),
            ("127.0.0.1", "such as 127.0.0.1:5100"),
            ("::1:x", "such as 127.0.0.1:5100"),
            ("", "such as 127.0.0.1:5100"),
            ("70000", "such as 127.0.0.1:5100"),
        ] {
            let error = listen_address(text).expect_err(text);
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
