use super::*;
use crate::transport::Transport;

/// Whether a server is asked for its peers.
fn is_asked(discovery: &mut Discovery, connection: &Arc<Connection>) -> bool {
    discovery.follow(connection, Duration::from_secs(3));
    discovery.answer.is_some()
}

#[tokio::test(start_paused = true)]
async fn peers_are_asked_for_again_soon_after_a_failure() {
    // No server listens there.
    let connection = Transport::new().connection(&"127.0.0.1:1".into()).expect("an address");
    let mut discovery = Discovery::default();
    assert!(is_asked(&mut discovery, &connection));
    assert!(discovery.next().await.is_none());
    assert!(!is_asked(&mut discovery, &connection), "not with each answer");
    tokio::time::advance(DISCOVERY_RETRY).await;
    assert!(is_asked(&mut discovery, &connection));
}

#[tokio::test(start_paused = true)]
async fn peers_are_asked_for_again_after_minutes() {
    let connection = Transport::new().connection(&"127.0.0.1:1".into()).expect("an address");
    let mut discovery = Discovery::default();
    assert!(is_asked(&mut discovery, &connection));
    let server = Arc::clone(&connection.address);
    let found = Discovered { server, peers: Vec::new(), renews_by_stream: true };
    discovery.answer = Some(Box::pin(std::future::ready(Some(found))));
    assert!(discovery.next().await.is_some());
    tokio::time::advance(REDISCOVERY_INTERVAL - Duration::from_secs(1)).await;
    assert!(!is_asked(&mut discovery, &connection));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(is_asked(&mut discovery, &connection));
}
