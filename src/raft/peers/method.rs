//! The methods of the peer protocol.

/// The method to call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Hello,
    Join,
    Append,
    Vote,
    Snapshot,
    Poll,
    Stand,
}

impl Method {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Method::Hello => "hello",
            Method::Join => "join",
            Method::Append => "append",
            Method::Vote => "vote",
            Method::Snapshot => "snapshot",
            Method::Poll => "poll",
            Method::Stand => "stand",
        }
    }
}
