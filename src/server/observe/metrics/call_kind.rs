//! The calls that an access policy decides: their names in metrics, denials and the audit log.

/// A call that a policy decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallKind {
    Discovery,
    GetCapacity,
    GetServerCapacity,
    ReleaseCapacity,
    Watch,
    GetStatus,
    Config,
    Peers,
    /// Of the management of pools.
    Pools,
    Http,
    /// What another protocol asks for at a gateway.
    Gateway,
    /// What no service knows.
    Other,
}

impl CallKind {
    pub(crate) const ALL: [CallKind; 12] = [
        CallKind::Discovery,
        CallKind::GetCapacity,
        CallKind::GetServerCapacity,
        CallKind::ReleaseCapacity,
        CallKind::Watch,
        CallKind::GetStatus,
        CallKind::Config,
        CallKind::Peers,
        CallKind::Pools,
        CallKind::Http,
        CallKind::Gateway,
        CallKind::Other,
    ];

    /// The method's name, or what stands for several.
    pub(crate) fn name(self) -> &'static str {
        match self {
            CallKind::Discovery => "Discovery",
            CallKind::GetCapacity => "GetCapacity",
            CallKind::GetServerCapacity => "GetServerCapacity",
            CallKind::ReleaseCapacity => "ReleaseCapacity",
            CallKind::Watch => "Watch",
            CallKind::GetStatus => "GetStatus",
            CallKind::Config => "Config",
            CallKind::Peers => "Peers",
            CallKind::Pools => "Pools",
            CallKind::Http => "HTTP",
            CallKind::Gateway => "gateway",
            CallKind::Other => "other",
        }
    }

    /// The call of this path; none for what anyone may ask: health and reflection.
    pub(crate) fn of(path: &str) -> Option<CallKind> {
        if path.starts_with("/grpc.") {
            return None;
        }
        if path.starts_with("/envoy.") {
            return Some(CallKind::Gateway);
        }
        let method = path.rsplit('/').next().unwrap_or_default();
        Some(CallKind::ALL.into_iter().find(|call| call.name() == method).unwrap_or(CallKind::Other))
    }
}
