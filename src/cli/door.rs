//! `leaseway door`.

use std::net::SocketAddr;

use crate::connect::Target;

/// Lets in callers that speak another protocol: Envoy's two rate limit services, and HTTP. A door is a client of the
/// cluster: it holds leases and decides by them itself. Any number of doors share what there is
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("protocol").args(["rls", "rlqs", "http"]).multiple(true).required(true))]
pub(crate) struct Door {
    /// Where Envoys ask for each request (RLS, ShouldRateLimit)
    #[arg(long, env = "LEASEWAY_RLS", value_name = "HOST:PORT")]
    rls: Option<SocketAddr>,
    /// Where Envoys report what they let through and are assigned what they may (RLQS)
    #[arg(long, env = "LEASEWAY_RLQS", value_name = "HOST:PORT")]
    rlqs: Option<SocketAddr>,
    /// Where everything else asks, by HTTP and JSON
    #[arg(long, env = "LEASEWAY_HTTP", value_name = "HOST:PORT")]
    http: Option<SocketAddr>,
    /// What the door calls itself: an id that no other client uses [default: HOST:PID:NUMBER]
    #[arg(long, env = "LEASEWAY_ID", value_name = "ID")]
    id: Option<String>,
    #[command(flatten)]
    target: Target,
}
