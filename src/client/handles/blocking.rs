//! The client for threads: [`Builder::build_blocking`] keeps leases in a thread of the client's own, and handles have
//! `blocking_…` methods, as channels of tokio have.
//!
//! They are not for async code: a thread that waits keeps tasks from running, and tokio panics to say so.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = leaseway_client::Client::builder().endpoint("localhost:5100").build_blocking()?;
//! let searches = client.resource("searches").rate()?;
//! std::thread::scope(|scope| {
//!     for _ in 0..8 {
//!         scope.spawn(|| {
//!             while searches.blocking_wait().is_ok() {
//!                 // … search …
//!             }
//!         });
//!     }
//! });
//! # Ok(())
//! # }
//! ```

use std::{thread, time::Duration};

use tokio::sync::oneshot;

use crate::{
    error::{BuildError, NotReady},
    handles::{
        client::{Builder, Client},
        gauge::{Gauge, Permit},
        rate::{Rate, Reservation},
        resource::Resource,
    },
    limiter::Closed,
    session::Usable,
};

impl Builder {
    /// The client, in a thread of its own instead of a tokio runtime. The thread ends when the client and its handles
    /// are gone.
    pub fn build_blocking(self) -> Result<Client, BuildError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| BuildError::NoThread(error.to_string()))?;
        let handle = runtime.handle().clone();
        let (gone, keeper_gone) = oneshot::channel::<()>();
        let (client, driver) = match self.assemble(handle, Some(gone)) {
            Ok(made) => made,
            Err(error) => {
                // Simply dropped, it would panic where the caller happens to be in async code.
                runtime.shutdown_background();
                return Err(error);
            }
        };
        thread::Builder::new()
            .name("leaseway-client".into())
            .spawn(move || {
                runtime.block_on(async {
                    driver.run().await;
                    // Callers that wait at a limiter need the timers of this runtime; the error says that none is left.
                    let _ = keeper_gone.await;
                });
            })
            .map_err(|error| BuildError::NoThread(error.to_string()))?;
        Ok(client)
    }
}

impl Client {
    /// [`close`](Client::close) for threads.
    pub fn blocking_close(&self) {
        self.runtime().block_on(self.close());
    }

    /// [`ready`](Client::ready) for threads.
    pub fn blocking_ready(&self, timeout: Duration) -> Result<(), NotReady> {
        self.runtime().block_on(self.ready(timeout))
    }
}

impl Resource {
    /// [`answered`](Resource::answered) for threads.
    pub fn blocking_answered(&self) -> Result<Usable, Closed> {
        self.runtime().block_on(self.answered())
    }
}

impl Rate {
    /// [`wait`](Rate::wait) for threads.
    pub fn blocking_wait(&self) -> Result<(), Closed> {
        self.blocking_wait_many(1)
    }

    /// [`wait_many`](Rate::wait_many) for threads.
    pub fn blocking_wait_many(&self, many: u32) -> Result<(), Closed> {
        self.resource().runtime().block_on(self.wait_many(many))
    }

    /// [`reserve`](Rate::reserve) for threads. What else has to do with debt waits for nothing.
    pub fn blocking_reserve(&self, many: u32) -> Result<Reservation, Closed> {
        self.resource().runtime().block_on(self.reserve(many))
    }
}

impl Gauge {
    /// [`acquire`](Gauge::acquire) for threads.
    pub fn blocking_acquire(&self) -> Result<Permit, Closed> {
        self.blocking_acquire_many(1)
    }

    /// [`acquire_many`](Gauge::acquire_many) for threads.
    pub fn blocking_acquire_many(&self, many: u32) -> Result<Permit, Closed> {
        self.resource().runtime().block_on(self.acquire_many(many))
    }
}
