//! What is served at each listener.

use leaseway_tls::Protocol;

/// What is served at a listener: its name in logs and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    Clients,
    Pages,
    Operators,
    Peers,
}

impl Service {
    pub(crate) const ALL: [Service; 4] = [Service::Clients, Service::Pages, Service::Operators, Service::Peers];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Service::Clients => "clients",
            Service::Pages => "http",
            Service::Operators => "operators",
            Service::Peers => "peers",
        }
    }

    pub(crate) fn protocol(self) -> Protocol {
        match self {
            Service::Pages => Protocol::Http1,
            Service::Clients | Service::Operators | Service::Peers => Protocol::Http2,
        }
    }
}
