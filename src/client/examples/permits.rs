//! A gauge: thirty jobs share the transactions that this process may have open. Start a server first: `leaseway serve`.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use leaseway_client::{Client, Mode};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // New jobs wait if the server goes away: they can be postponed.
    let client = Client::builder().endpoint("127.0.0.1:5100").mode(Mode::Pessimistic).build()?;
    let transactions = client.resource("transactions").gauge()?;

    let jobs = (1..=30).map(|n| {
        let transactions = transactions.clone();
        tokio::spawn(async move {
            let permit = transactions.acquire().await?;
            println!("job {n} runs, beside {} others", transactions.in_use() - 1);
            tokio::time::sleep(Duration::from_millis(200)).await;
            drop(permit);
            Ok::<(), leaseway_client::limiter::Closed>(())
        })
    });
    for job in jobs.collect::<Vec<_>>() {
        job.await??;
    }
    client.close().await;
    Ok(())
}
