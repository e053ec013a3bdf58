//! Calls that may have to wait.
//!
//! A call is polled once. If it is not ready, it continues in one of two ways: a calling thread releases the
//! interpreter lock and blocks on the call; for an event loop the client's thread drives it.
//!
//! If a result does not reach its caller, its permits are returned when it is dropped. So a caller that gives up takes
//! nothing.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use leaseway_client::Rate;
use pyo3::{exceptions::PyRuntimeError, prelude::*};
use tokio::{
    runtime::Handle,
    sync::oneshot,
    task::AbortHandle,
    time::{Instant, timeout_at},
};

use crate::{error::ClientError, fork::PidGuarded};

pub(crate) mod loop_waker;

use self::loop_waker::LoopWaker;

/// How often a blocked thread checks for signals, such as Control-C.
const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The result of a call on its way to the caller, converted once the interpreter lock is held.
type Delivery = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// A result that can be handed to a Python caller.
pub(crate) trait Deliver: Send + 'static {
    /// Converts the result for its caller.
    fn deliver(self, py: Python<'_>) -> PyResult<Py<PyAny>>;
}

impl Deliver for () {
    fn deliver(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(py.None())
    }
}

/// Permits of a rate on their way to the caller; dropping them refunds them.
pub(crate) struct AcquiredPermits {
    rate: Arc<Rate>,
    n: u64,
}

impl AcquiredPermits {
    pub(crate) fn new(rate: Arc<Rate>, n: u32) -> AcquiredPermits {
        AcquiredPermits { rate, n: n.into() }
    }
}

impl Deliver for AcquiredPermits {
    fn deliver(mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.n = 0;
        Ok(py.None())
    }
}

impl Drop for AcquiredPermits {
    fn drop(&mut self) {
        if self.n > 0 {
            self.rate.refund(self.n);
        }
    }
}

/// A call that no thread and no event loop drives yet.
pub(crate) struct Call {
    future: Pin<Box<dyn Future<Output = Delivery> + Send>>,
    runtime: Handle,
}

impl Call {
    pub(crate) fn new<G: Deliver, E: Into<ClientError> + Send + 'static>(
        runtime: &Handle,
        future: impl Future<Output = Result<G, E>> + Send + 'static,
    ) -> Call {
        let future = async {
            let result = future.await;
            let delivery: Delivery = Box::new(|py| match result {
                Ok(value) => value.deliver(py),
                Err(error) => Err(error.into().into()),
            });
            delivery
        };
        Call { future: Box::pin(future), runtime: runtime.clone() }
    }

    /// Polls once. Returns the result or, if it is not ready, the call, which is now in the queue.
    fn at_once(mut self, py: Python<'_>) -> Result<PyResult<Py<PyAny>>, Call> {
        let polled = {
            let _timers = self.runtime.enter();
            self.future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        };
        match polled {
            Poll::Ready(delivery) => Ok(delivery(py)),
            Poll::Pending => Err(self),
        }
    }

    /// Blocks the calling thread.
    pub(crate) fn block(self, py: Python<'_>, timeout: Option<Duration>, id: &str) -> PyResult<Py<PyAny>> {
        let Call { mut future, runtime } = match self.at_once(py) {
            Ok(result) => return result,
            Err(waiting) => waiting,
        };
        let end = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            let check = Instant::now() + SIGNAL_CHECK_INTERVAL;
            let until = end.map_or(check, |end| end.min(check));
            // The timeout is created inside of `block_on`, because it needs the timer of this runtime.
            let waited = py.detach(|| runtime.block_on(async { timeout_at(until, &mut future).await }));
            match waited {
                Ok(delivery) => return delivery(py),
                Err(_) if end == Some(until) => return Err(timed_out(id, timeout.unwrap_or_default()).into()),
                Err(_) => py.check_signals()?,
            }
        }
    }

    /// For event loops: the result, or a [`Waiting`].
    pub(crate) fn start(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self.at_once(py) {
            Ok(result) => result,
            Err(call) => {
                let state = PidGuarded::new(Mutex::new(WaitState::Ready(call)));
                Ok(Py::new(py, Waiting(state))?.into_any())
            }
        }
    }
}

fn timed_out(id: &str, timeout: Duration) -> ClientError {
    ClientError::Timeout(format!("timed out: nothing of `{id}` within {} s", timeout.as_secs_f64()))
}

/// A call that an event loop waits for.
#[pyclass(frozen, module = "leaseway._native")]
pub(crate) struct Waiting(PidGuarded<Mutex<WaitState>>);

enum WaitState {
    Ready(Call),
    /// Driven by the client's thread.
    Running(oneshot::Receiver<Delivery>, AbortHandle),
    Done,
}

impl Waiting {
    fn replace(&self, state: WaitState) -> WaitState {
        let Some(own) = self.0.get() else { return WaitState::Done };
        std::mem::replace(&mut *own.lock().unwrap_or_else(PoisonError::into_inner), state)
    }
}

#[pymethods]
impl Waiting {
    /// Runs the call on the client's thread, which wakes `number` at `waker` when it ends.
    fn notify(&self, waker: &LoopWaker, number: u64) -> PyResult<()> {
        let (WaitState::Ready(Call { future, runtime }), Some(shared)) =
            (self.replace(WaitState::Done), waker.shared())
        else {
            return Err(PyRuntimeError::new_err("the call has already been started, or belongs to another process"));
        };
        let (sender, receiver) = oneshot::channel();
        let task = runtime.spawn(async move {
            let delivery = future.await;
            // Fails if the caller is gone. Then the result is dropped here, which returns its permits.
            if sender.send(delivery).is_ok() {
                shared.wake(number);
            }
        });
        self.replace(WaitState::Running(receiver, task.abort_handle()));
        Ok(())
    }

    /// The result, once the waker has fired.
    fn result(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let WaitState::Running(mut receiver, _) = self.replace(WaitState::Done) else {
            return Err(PyRuntimeError::new_err("the call was not started, or its result has already been taken"));
        };
        match receiver.try_recv() {
            Ok(delivery) => delivery(py),
            Err(_) => Err(ClientError::closed().into()),
        }
    }

    /// Cancels the call. Anything that it was granted is returned.
    fn cancel(&self) {
        if let WaitState::Running(receiver, task) = self.replace(WaitState::Done) {
            drop(receiver);
            task.abort();
        }
    }
}
