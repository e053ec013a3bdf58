//! Searches at the leased rate. Start a server first: `leaseway serve`.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]
use leaseway_client::Client;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::connect("127.0.0.1:5100")?;
    let searches = client.resource("searches").rate()?;
    for n in 1..=300 {
        searches.wait().await?;
        println!("search {n}: may do {:.1} per second", searches.resource().capacity().get());
    }
    client.close().await;
    Ok(())
}
