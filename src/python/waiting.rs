//! Calls that may have to wait: done at once where they can be, else by a thread that lets the interpreter go, or by
//! the client's own thread for an event loop.
//!
//! What is had and not yet given to its caller goes back when it is dropped: a caller that gives up takes nothing.

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

use crate::{bell::Bell, error::Fault, fork::Own};

/// So often a thread that waits looks for signals: Control-C is heard within this.
const LOOK: Duration = Duration::from_millis(100);

/// What came of a call, on its way to its caller.
type Claim = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// What a call gives its caller.
pub(crate) trait Gain: Send + 'static {
    /// It has reached its caller.
    fn claim(self, py: Python<'_>) -> PyResult<Py<PyAny>>;
}

impl Gain for () {
    fn claim(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(py.None())
    }
}

/// Permits of a rate. Dropped on their way, they come back.
pub(crate) struct Passed {
    rate: Arc<Rate>,
    n: u64,
}

impl Passed {
    pub(crate) fn new(rate: Arc<Rate>, n: u32) -> Passed {
        Passed { rate, n: n.into() }
    }
}

impl Gain for Passed {
    fn claim(mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.n = 0;
        Ok(py.None())
    }
}

impl Drop for Passed {
    fn drop(&mut self) {
        if self.n > 0 {
            self.rate.refund(self.n);
        }
    }
}

/// A call that has not begun.
pub(crate) struct Call {
    future: Pin<Box<dyn Future<Output = Claim> + Send>>,
    runtime: Handle,
}

impl Call {
    pub(crate) fn new<G: Gain, E: Into<Fault> + Send + 'static>(
        runtime: &Handle,
        future: impl Future<Output = Result<G, E>> + Send + 'static,
    ) -> Call {
        let future = async {
            let result = future.await;
            let claim: Claim = Box::new(|py| match result {
                Ok(gain) => gain.claim(py),
                Err(error) => Err(error.into().into()),
            });
            claim
        };
        Call { future: Box::pin(future), runtime: runtime.clone() }
    }

    /// What comes of it if it need not wait; else its place in the line is taken.
    fn at_once(mut self, py: Python<'_>) -> Result<PyResult<Py<PyAny>>, Call> {
        let polled = {
            let _timers = self.runtime.enter();
            self.future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        };
        match polled {
            Poll::Ready(claim) => Ok(claim(py)),
            Poll::Pending => Err(self),
        }
    }

    /// For threads.
    pub(crate) fn block(self, py: Python<'_>, timeout: Option<Duration>, id: &str) -> PyResult<Py<PyAny>> {
        let Call { mut future, runtime } = match self.at_once(py) {
            Ok(result) => return result,
            Err(waiting) => waiting,
        };
        let end = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            let look = Instant::now() + LOOK;
            let until = end.map_or(look, |end| end.min(look));
            // Within the runtime: the timer is its.
            let waited = py.detach(|| runtime.block_on(async { timeout_at(until, &mut future).await }));
            match waited {
                Ok(claim) => return claim(py),
                Err(_) if end == Some(until) => return Err(too_late(id, timeout.unwrap_or_default()).into()),
                Err(_) => py.check_signals()?,
            }
        }
    }

    /// For event loops: what comes of it, or a [`Waiting`].
    pub(crate) fn start(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self.at_once(py) {
            Ok(result) => result,
            Err(call) => {
                let state = Own::new(Mutex::new(WaitState::Begun(call)));
                Ok(Py::new(py, Waiting(state))?.into_any())
            }
        }
    }
}

fn too_late(id: &str, timeout: Duration) -> Fault {
    Fault::Timeout(format!("nothing of `{id}` within {} s", timeout.as_secs_f64()))
}

/// A call that stands in line for an event loop.
#[pyclass(frozen, module = "leaseway._native")]
pub(crate) struct Waiting(Own<Mutex<WaitState>>);

enum WaitState {
    Begun(Call),
    /// The client's thread goes on with it.
    Waits(oneshot::Receiver<Claim>, AbortHandle),
    Over,
}

impl Waiting {
    fn replace(&self, state: WaitState) -> WaitState {
        let Some(own) = self.0.get() else { return WaitState::Over };
        std::mem::replace(&mut *own.lock().unwrap_or_else(PoisonError::into_inner), state)
    }
}

#[pymethods]
impl Waiting {
    /// Calls this number at the bell when it is over.
    fn ring(&self, bell: &Bell, number: u64) -> PyResult<()> {
        let (WaitState::Begun(Call { future, runtime }), Some(rope)) = (self.replace(WaitState::Over), bell.rope())
        else {
            return Err(PyRuntimeError::new_err("this waits already, or in another process"));
        };
        let (tell, told) = oneshot::channel();
        let task = runtime.spawn(async move {
            let claim = future.await;
            // Not there any more: what it was told goes back with this.
            if tell.send(claim).is_ok() {
                rope.call(number);
            }
        });
        self.replace(WaitState::Waits(told, task.abort_handle()));
        Ok(())
    }

    /// What came of it, once the bell has called.
    fn claim(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let WaitState::Waits(mut told, _) = self.replace(WaitState::Over) else {
            return Err(PyRuntimeError::new_err("this does not wait, or was claimed already"));
        };
        match told.try_recv() {
            Ok(claim) => claim(py),
            Err(_) => Err(Fault::closed().into()),
        }
    }

    /// Leaves the line. What it was given goes back.
    fn give_up(&self) {
        if let WaitState::Waits(told, task) = self.replace(WaitState::Over) {
            drop(told);
            task.abort();
        }
    }
}
