//! A tonic client whose calls are limited, with one line around the channel. It calls the status service of a Leaseway
//! server. Start one first: `leaseway serve`.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use leaseway_client::Client;
use leaseway_proto::status::{GetStatusRequest, status_client::StatusClient};
use tonic::transport::Endpoint;
use tower_layer::Layer as _;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::connect("127.0.0.1:5100")?;
    let calls = client.resource("status-calls").rate()?;

    let channel = Endpoint::from_static("http://127.0.0.1:5100").connect().await?;
    let limited = calls.layer().layer(channel); // this is the line
    let mut service = StatusClient::new(limited);

    for n in 1..=100 {
        let status = service.get_status(GetStatusRequest::default()).await?.into_inner();
        println!(
            "call {n}: {} resources; {:.1} calls per second",
            status.resources.len(),
            calls.resource().capacity().get()
        );
    }
    client.close().await;
    Ok(())
}
