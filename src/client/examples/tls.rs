//! A client of servers with TLS and client certificates, such as those of `leaseway up --tls`. LEASEWAY_TLS_CA,
//! LEASEWAY_TLS_CERT and LEASEWAY_TLS_KEY name the files, as for the command line.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]
use leaseway_client::{Client, ClientTls, Credentials, Files};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = |name| std::env::var_os(name).map(Into::into);
    let files =
        Files { ca: file("LEASEWAY_TLS_CA"), certificate: file("LEASEWAY_TLS_CERT"), key: file("LEASEWAY_TLS_KEY") };
    let tls = ClientTls::new(&Credentials::load(files)?, None)?;
    let endpoints = ["127.0.0.1:5100", "127.0.0.1:5101", "127.0.0.1:5102"];
    let client = Client::builder().endpoints(endpoints).tls(&tls).build()?;
    let payments = client.resource("payments").rate()?;
    for n in 1..=300 {
        payments.wait().await?;
        println!("payment {n}: may do {:.1} per second", payments.resource().capacity().get());
    }
    client.close().await;
    Ok(())
}
