//! The calls that an access policy decides: their names in metrics, denials and the audit log.

/// A call that a policy decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Discovery,
    GetCapacity,
    GetServerCapacity,
    ReleaseCapacity,
    Watch,
    GetStatus,
    /// Of configurations.
    Config,
    /// Of the membership.
    Peers,
    /// Of the management of pools.
    Pools,
    /// A page.
    Http,
    /// What no service knows.
    Other,
}

impl Call {
    pub(crate) const ALL: [Call; 11] = [
        Call::Discovery,
        Call::GetCapacity,
        Call::GetServerCapacity,
        Call::ReleaseCapacity,
        Call::Watch,
        Call::GetStatus,
        Call::Config,
        Call::Peers,
        Call::Pools,
        Call::Http,
        Call::Other,
    ];

    /// The method's name, or what stands for several.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Call::Discovery => "Discovery",
            Call::GetCapacity => "GetCapacity",
            Call::GetServerCapacity => "GetServerCapacity",
            Call::ReleaseCapacity => "ReleaseCapacity",
            Call::Watch => "Watch",
            Call::GetStatus => "GetStatus",
            Call::Config => "Config",
            Call::Peers => "Peers",
            Call::Pools => "Pools",
            Call::Http => "HTTP",
            Call::Other => "other",
        }
    }

    /// The call of this path; none for what anyone may ask: health and reflection.
    pub(crate) fn of(path: &str) -> Option<Call> {
        if path.starts_with("/grpc.") {
            return None;
        }
        let method = path.rsplit('/').next().unwrap_or_default();
        Some(Call::ALL.into_iter().find(|call| call.name() == method).unwrap_or(Call::Other))
    }
}
