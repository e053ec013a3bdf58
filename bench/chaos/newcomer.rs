//! Somebody whom no peer has ever heard of, after a fault: how soon it is answered, and how much it gets.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use leaseway_client::Entry;
use tokio::time::sleep;

use super::hand::{Hand, Wish};

/// How long it waits before it asks the next peer.
const PAUSE: Duration = Duration::from_millis(5);

pub(super) struct Newcomer {
    /// When its first answer came, and how much that gave it.
    pub(super) answered: Option<(Instant, f64)>,
    /// When it had something.
    pub(super) served: Option<Instant>,
    pub(super) book: Vec<Entry>,
}

/// Asks one peer after the other until it gets something; then it gives that back.
pub(super) async fn visit(
    mut peers: Vec<SocketAddr>,
    first: usize,
    wish: Wish,
    length: Duration,
    patience: Instant,
) -> Newcomer {
    peers.rotate_left(first);
    let mut hands: Vec<_> = peers.into_iter().map(Hand::to).collect();
    let mut newcomer = Newcomer { answered: None, served: None, book: Vec::new() };
    let (mut has, mut turn) = (None, 0);
    while Instant::now() < patience {
        let number = turn % hands.len();
        let hand = &mut hands[number];
        let Some(given) = hand.ask(&wish, has.take(), length).await else {
            turn += 1;
            sleep(PAUSE).await;
            continue;
        };
        let capacity = given.lease.capacity.unwrap_or(0.0);
        newcomer.answered.get_or_insert((given.at, capacity));
        if capacity > 0.0 {
            newcomer.served = Some(given.at);
            newcomer.book.push(wish.entry(given.at, capacity));
            newcomer.book.push(wish.entry(Instant::now(), 0.0));
            // If nobody hears it, the lease ends by itself.
            hand.release(&wish, &given).await;
            break;
        }
        has = Some(given.lease);
        sleep(PAUSE).await;
    }
    newcomer
}
