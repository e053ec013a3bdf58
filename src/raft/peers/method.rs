//! The methods of the peer protocol.

/// The method to call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Hello,
    Join,
    Append,
    Vote,
    Snapshot,
    Poll,
    Stand,
}

impl Call {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Call::Hello => "hello",
            Call::Join => "join",
            Call::Append => "append",
            Call::Vote => "vote",
            Call::Snapshot => "snapshot",
            Call::Poll => "poll",
            Call::Stand => "stand",
        }
    }
}
