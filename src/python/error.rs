//! Errors. The messages come from the client library, the classes are in `leaseway/errors.py`.

use leaseway_client::{
    BadToken, BuildError, NotReady, OpenError, PriceError, SpendError, TlsError, Uncharged,
    limiter::{Closed, DebtExceeded},
};
use pyo3::{
    exceptions::{PyRuntimeError, PyValueError},
    prelude::*,
    types::{PyTuple, PyType},
};

use crate::exit;

/// An error before it is raised as an exception.
pub(crate) enum ClientError {
    Build(String),
    Open(String),
    Invalid(String),
    Closed(String),
    Debt(String, DebtExceeded),
    NotReady(NotReady),
    Forked(String),
    Timeout(String),
}

impl ClientError {
    /// The client was closed, and all its limiters with it.
    pub(crate) fn closed() -> ClientError {
        ClientError::Closed("the client was closed".to_owned())
    }

    fn raise(self, py: Python<'_>) -> PyResult<PyErr> {
        if let ClientError::Closed(_) = self {
            exit::stop_daemon_thread(py);
        }
        let (name, arguments) = match self {
            ClientError::Build(why) => ("BuildError", (why,).into_pyobject(py)?),
            ClientError::Open(why) => ("OpenError", (why,).into_pyobject(py)?),
            ClientError::Invalid(why) => return Ok(PyValueError::new_err(why)),
            ClientError::Closed(why) => ("Closed", (why,).into_pyobject(py)?),
            ClientError::Forked(why) => ("Forked", (why,).into_pyobject(py)?),
            ClientError::Timeout(why) => ("Timeout", (why,).into_pyobject(py)?),
            ClientError::Debt(why, debt) => ("DebtExceeded", (why, debt.uncharged, debt.max_debt).into_pyobject(py)?),
            ClientError::NotReady(not) => ("NotReady", (not.to_string(), not.resources, not.why).into_pyobject(py)?),
        };
        exception(py, name, arguments)
    }
}

fn exception<'py>(py: Python<'py>, name: &str, arguments: Bound<'py, PyTuple>) -> PyResult<PyErr> {
    let class = py.import("leaseway.errors")?.getattr(name)?.cast_into::<PyType>()?;
    Ok(PyErr::from_type(class, arguments.unbind()))
}

impl From<ClientError> for PyErr {
    fn from(fault: ClientError) -> PyErr {
        let raised = Python::try_attach(|py| fault.raise(py).unwrap_or_else(|error| error));
        raised.unwrap_or_else(|| PyRuntimeError::new_err("the interpreter has ended"))
    }
}

macro_rules! from_message {
    ($($error:ty => $fault:ident),* $(,)?) => {$(
        impl From<$error> for ClientError {
            fn from(error: $error) -> ClientError {
                ClientError::$fault(error.to_string())
            }
        }
    )*};
}

from_message! { BuildError => Build, BadToken => Build, TlsError => Build, PriceError => Invalid }

impl From<Closed> for ClientError {
    fn from(_: Closed) -> ClientError {
        ClientError::closed()
    }
}

impl From<SpendError> for ClientError {
    fn from(error: SpendError) -> ClientError {
        match error {
            SpendError::Closed(closed) => closed.into(),
            error => ClientError::Invalid(error.to_string()),
        }
    }
}

impl From<OpenError> for ClientError {
    fn from(error: OpenError) -> ClientError {
        match error {
            OpenError::Closed => ClientError::closed(),
            error => ClientError::Open(error.to_string()),
        }
    }
}

impl From<DebtExceeded> for ClientError {
    fn from(error: DebtExceeded) -> ClientError {
        ClientError::Debt(error.to_string(), error)
    }
}

impl From<Uncharged> for ClientError {
    fn from(error: Uncharged) -> ClientError {
        ClientError::Debt(error.to_string(), error.error)
    }
}

impl From<NotReady> for ClientError {
    fn from(error: NotReady) -> ClientError {
        ClientError::NotReady(error)
    }
}
