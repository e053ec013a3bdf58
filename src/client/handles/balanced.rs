//! Load balancing by leases: a [`Balancer`] whose backends are rates of a client.
//!
//! Each operation is assigned to a backend, in proportion to the leases, and then waits at the limiter of that backend.
//! So no lease is exceeded, and every lease is used under load.

use std::{
    future::{Future, poll_fn},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    balancer::{Balancer, Pick, RETRY},
    error::OpenError,
    handles::rate::Rate,
    limiter::Closed,
    session::Capacity,
};

/// Balances load across backends, each with a lease of its own.
///
/// ```no_run
/// # async fn example(client: leaseway_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use leaseway_client::Balanced;
///
/// let backends = ["search/eu", "search/us"];
/// let rates = backends.map(|backend| client.resource(backend).wants(500.0).rate());
/// let search = Balanced::new(rates.into_iter().collect::<Result<Vec<_>, _>>()?)?;
///
/// let pick = search.wait().await?;
/// // … search at `pick.backend().resource().id()` …
/// pick.failed(); // if it failed: skips the backend for a minute
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Balanced {
    balancer: Arc<Balancer<Rate>>,
}

impl Balanced {
    /// Balances across these backends. Their order breaks ties.
    ///
    /// Must be called within a tokio runtime. The wants of every rate must be set explicitly: a backend without a lease
    /// gets no operations, so its wants would be estimated as 0 forever.
    pub fn new(backends: impl IntoIterator<Item = Rate>) -> Result<Balanced, OpenError> {
        Balanced::with_retry(backends, RETRY)
    }

    /// As [`new`](Self::new), with another back-off of failed backends than [`RETRY`].
    pub fn with_retry(backends: impl IntoIterator<Item = Rate>, retry: Duration) -> Result<Balanced, OpenError> {
        let backends: Vec<Rate> = backends.into_iter().collect();
        if let Some(estimated) = backends.iter().find(|rate| rate.resource().estimates_wants()) {
            return Err(OpenError::EstimatedWants(estimated.resource().id().to_owned()));
        }
        let watches: Vec<_> = backends.iter().map(|rate| rate.resource().watch()).collect();
        let balancer = Arc::new(Balancer::leased(backends).with_retry(retry));
        for (index, mut watch) in watches.into_iter().enumerate() {
            let balancer = Arc::downgrade(&balancer);
            tokio::spawn(async move {
                loop {
                    let capacity = watch.borrow_and_update().capacity;
                    let Some(balancer) = balancer.upgrade() else { return };
                    balancer.set_capacity(index, capacity);
                    drop(balancer);
                    // Fails when the last handle of the resource is gone.
                    if watch.changed().await.is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Balanced { balancer })
    }

    /// Picks a backend and waits for a permit there.
    pub async fn wait(&self) -> Result<Pick<'_, Rate>, Closed> {
        loop {
            let changed = self.balancer.changed();
            match self.balancer.pick() {
                Some(pick) => {
                    if self.admitted(&pick).await? {
                        return Ok(pick);
                    }
                }
                None => self.wait_for_backend(changed).await?,
            }
        }
    }

    /// Waits for a permit at the picked backend. Returns false if its lease expires meanwhile.
    async fn admitted(&self, pick: &Pick<'_, Rate>) -> Result<bool, Closed> {
        let rate = pick.backend();
        let mut watch = rate.resource().watch();
        tokio::select! {
            biased;
            waited = rate.wait() => waited.map(|()| true),
            _ = watch.wait_for(|usable| usable.capacity == Capacity::NONE) => {
                // This also happens when the client is closed.
                rate.resource().check_open().map(|()| false)
            }
        }
    }

    async fn wait_for_backend(&self, changed: impl Future<Output = ()>) -> Result<(), Closed> {
        for rate in self.balancer.backends() {
            rate.resource().check_open()?;
        }
        let retry = self.balancer.next_retry();
        if (0..self.balancer.backends().len()).any(|index| self.balancer.is_enabled(index)) {
            // A back-off may have ended since the pick. There is no time left to wait for it.
            return Ok(());
        }
        let retry = async {
            match retry {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let mut clients: Vec<_> =
            self.balancer.backends().iter().map(|rate| Box::pin(rate.resource().client_ended())).collect();
        // The task that forwards changes may have ended together with the runtime of a client.
        let ended = poll_fn(|context| {
            let any = clients.iter_mut().any(|client| client.as_mut().poll(context).is_ready());
            if any { Poll::Ready(()) } else { Poll::Pending }
        });
        tokio::select! {
            () = changed => {}
            () = retry => {}
            () = ended => {}
        }
        Ok(())
    }

    /// Skips a backend for a while after a failure.
    pub fn failed(&self, index: usize) {
        self.balancer.failed(index, Instant::now());
    }

    /// The underlying balancer, for sticky sessions and draining.
    pub fn balancer(&self) -> &Balancer<Rate> {
        &self.balancer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handles::client::Client;

    #[test]
    fn a_back_off_may_end_while_a_wait_for_it_begins() {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        // This runtime never runs, so no lease changes.
        let of_client = runtime();
        let client = {
            let _inside = of_client.enter();
            Client::connect("127.0.0.1:1").expect("a valid endpoint")
        };
        let rate = client.resource("rate").wants(1.0).rate().expect("open");
        runtime().block_on(async {
            let balanced = Balanced::with_retry([rate], Duration::from_millis(1)).expect("fixed wants");
            // The task that forwards changes has read the first one.
            tokio::task::yield_now().await;
            balanced.balancer().set_capacity(0, Capacity::of(1.0));
            balanced.failed(0);
            let changed = balanced.balancer.changed();
            // A pick may find no backend here.
            std::thread::sleep(Duration::from_millis(5));
            let waited = tokio::time::timeout(Duration::from_secs(20), balanced.wait_for_backend(changed)).await;
            assert!(waited.expect("the back-off has ended").is_ok());
        });
    }
}
