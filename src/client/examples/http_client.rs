//! An HTTP client behind two layers: a limit of requests per second, and one of concurrent requests. They work with any
//! `tower::Service`: hyper's client as here, reqwest, an axum router. Start a server first: `leaseway serve`.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use http_body_util::Empty;
use hyper_util::{client::legacy::Client as HttpClient, rt::TokioExecutor};
use leaseway_client::Client;
use tower_layer::Layer as _;
use tower_service::Service as _;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::connect("127.0.0.1:5100")?;
    let per_second = client.resource("page-loads").rate()?;
    let under_way = client.resource("open-page-loads").wants(4.0).gauge()?;

    let http = HttpClient::builder(TokioExecutor::new()).build_http::<Empty<&[u8]>>();
    let mut http = per_second.layer().layer(under_way.layer().layer(http));

    for n in 1..=100 {
        let request = http::Request::get("http://127.0.0.1:5150/healthz").body(Empty::new())?;
        std::future::poll_fn(|context| http.poll_ready(context)).await.map_err(|error| error.to_string())?;
        let response = http.call(request).await.map_err(|error| error.to_string())?;
        println!("page {n}: {}", response.status());
    }
    client.close().await;
    Ok(())
}
