//! Errors: the words are the client library's, the classes are in `leaseway/errors.py`.

use leaseway_client::{
    BadToken, BuildError, NotReady, OpenError, TlsError,
    limiter::{Closed, DebtExceeded},
};
use pyo3::{
    exceptions::PyRuntimeError,
    prelude::*,
    types::{PyTuple, PyType},
};

/// What went wrong, before it is an exception.
pub(crate) enum Fault {
    Build(String),
    Open(String),
    Closed(String),
    Debt(DebtExceeded),
    NotReady(NotReady),
    Forked(String),
    Timeout(String),
}

impl Fault {
    /// No client outlives what it was given, so a limiter is closed with its client.
    pub(crate) fn closed() -> Fault {
        Fault::Closed("the client was closed".to_owned())
    }

    fn raise(self, py: Python<'_>) -> PyResult<PyErr> {
        let (name, arguments) = match self {
            Fault::Build(why) => ("BuildError", (why,).into_pyobject(py)?),
            Fault::Open(why) => ("OpenError", (why,).into_pyobject(py)?),
            Fault::Closed(why) => ("Closed", (why,).into_pyobject(py)?),
            Fault::Forked(why) => ("Forked", (why,).into_pyobject(py)?),
            Fault::Timeout(why) => ("Timeout", (why,).into_pyobject(py)?),
            Fault::Debt(debt) => ("DebtExceeded", (debt.to_string(), debt.uncharged, debt.max_debt).into_pyobject(py)?),
            Fault::NotReady(not) => ("NotReady", (not.to_string(), not.resources, not.why).into_pyobject(py)?),
        };
        exception(py, name, arguments)
    }
}

fn exception<'py>(py: Python<'py>, name: &str, arguments: Bound<'py, PyTuple>) -> PyResult<PyErr> {
    let class = py.import("leaseway.errors")?.getattr(name)?.cast_into::<PyType>()?;
    Ok(PyErr::from_type(class, arguments.unbind()))
}

impl From<Fault> for PyErr {
    fn from(fault: Fault) -> PyErr {
        let raised = Python::try_attach(|py| fault.raise(py).unwrap_or_else(|error| error));
        raised.unwrap_or_else(|| PyRuntimeError::new_err("the interpreter has ended"))
    }
}

macro_rules! in_words {
    ($($error:ty => $fault:ident),* $(,)?) => {$(
        impl From<$error> for Fault {
            fn from(error: $error) -> Fault {
                Fault::$fault(error.to_string())
            }
        }
    )*};
}

in_words! { BuildError => Build, BadToken => Build, TlsError => Build }

impl From<Closed> for Fault {
    fn from(_: Closed) -> Fault {
        Fault::closed()
    }
}

impl From<OpenError> for Fault {
    fn from(error: OpenError) -> Fault {
        match error {
            OpenError::Closed => Fault::closed(),
            error => Fault::Open(error.to_string()),
        }
    }
}

impl From<DebtExceeded> for Fault {
    fn from(error: DebtExceeded) -> Fault {
        Fault::Debt(error)
    }
}

impl From<NotReady> for Fault {
    fn from(error: NotReady) -> Fault {
        Fault::NotReady(error)
    }
}
