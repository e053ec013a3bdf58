//! Why an entry of a request has a problem: the word on the wire and in metrics.

/// What kind of thing is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// A number that is none, or out of range.
    BadValue,
    /// An id that is empty or too long.
    BadId,
    /// More entries than a request may have.
    TooManyInRequest,
    /// More bands than a child node may report.
    TooManyBands,
    /// The resource has as many clients as it may.
    TooManyClients,
    /// Another node of this name holds leases.
    NameTaken,
    /// The server has as many resources as it may.
    TooManyResources,
    /// The resource has as many requests waiting as it may.
    Busy,
    /// The resource failed while it worked on it.
    Failed,
    /// Nothing has changed since the request before, and it was only just now.
    TooSoon,
    /// The node has nothing of the resource from its parent yet.
    NotYet,
    /// The access policy does not let the caller.
    Denied,
}

impl Reason {
    pub(crate) const ALL: [Reason; 12] = [
        Reason::BadValue,
        Reason::BadId,
        Reason::TooManyInRequest,
        Reason::TooManyBands,
        Reason::TooManyClients,
        Reason::NameTaken,
        Reason::TooManyResources,
        Reason::Busy,
        Reason::Failed,
        Reason::TooSoon,
        Reason::NotYet,
        Reason::Denied,
    ];

    /// The word on the wire and in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Reason::BadValue => "bad_value",
            Reason::BadId => "bad_id",
            Reason::TooManyInRequest => "too_many_in_request",
            Reason::TooManyBands => "too_many_bands",
            Reason::TooManyClients => "too_many_clients",
            Reason::NameTaken => "name_taken",
            Reason::TooManyResources => "too_many_resources",
            Reason::Busy => "busy",
            Reason::Failed => "failed",
            Reason::TooSoon => "too_soon",
            Reason::NotYet => "not_yet",
            Reason::Denied => "denied",
        }
    }
}
