//! The client for threads: [`Builder::build_blocking`] runs the client in a thread of its own, and handles have
//! `blocking_…` methods, like tokio's channels.
//!
//! Do not call them from async code: they block the thread, and tokio panics.
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
        limits::{Limits, Permits, Reservations},
        rate::{Rate, Reservation},
        resource::Resource,
    },
    limiter::Closed,
    session::Usable,
};

impl Builder {
    /// Builds a client that runs in a thread of its own. The thread ends when the client and its handles are dropped.
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
                // Dropping a runtime panics in async code.
                runtime.shutdown_background();
                return Err(error);
            }
        };
        thread::Builder::new()
            .name("leaseway-client".into())
            .spawn(move || {
                runtime.block_on(async {
                    driver.run().await;
                    // Callers that wait at a limiter need the timers of this runtime until the last handle is dropped.
                    let _ = keeper_gone.await;
                });
            })
            .map_err(|error| BuildError::NoThread(error.to_string()))?;
        Ok(client)
    }
}

impl Client {
    /// Blocking version of [`close`](Client::close).
    pub fn blocking_close(&self) {
        self.runtime().block_on(self.close());
    }

    /// Blocking version of [`ready`](Client::ready).
    pub fn blocking_ready(&self, timeout: Duration) -> Result<(), NotReady> {
        self.runtime().block_on(self.ready(timeout))
    }
}

impl Resource {
    /// Blocking version of [`answered`](Resource::answered).
    pub fn blocking_answered(&self) -> Result<Usable, Closed> {
        self.runtime().block_on(self.answered())
    }
}

impl Rate {
    /// Blocking version of [`wait`](Rate::wait).
    pub fn blocking_wait(&self) -> Result<(), Closed> {
        self.blocking_wait_many(1)
    }

    /// Blocking version of [`wait_many`](Rate::wait_many).
    pub fn blocking_wait_many(&self, n: u32) -> Result<(), Closed> {
        self.resource().runtime().block_on(self.wait_many(n))
    }

    /// Blocking version of [`reserve`](Rate::reserve).
    pub fn blocking_reserve(&self, n: u32) -> Result<Reservation, Closed> {
        self.resource().runtime().block_on(self.reserve(n))
    }
}

impl Gauge {
    /// Blocking version of [`acquire`](Gauge::acquire).
    pub fn blocking_acquire(&self) -> Result<Permit, Closed> {
        self.blocking_acquire_many(1)
    }

    /// Blocking version of [`acquire_many`](Gauge::acquire_many).
    pub fn blocking_acquire_many(&self, n: u32) -> Result<Permit, Closed> {
        self.resource().runtime().block_on(self.acquire_many(n))
    }
}

impl Limits {
    /// Blocking version of [`acquire`](Limits::acquire).
    pub fn blocking_acquire(&self) -> Result<Permits, Closed> {
        self.runtime().block_on(self.acquire())
    }

    /// Blocking version of [`reserve`](Limits::reserve).
    pub fn blocking_reserve(&self) -> Result<Reservations, Closed> {
        self.runtime().block_on(self.reserve())
    }
}
