//! Shared by the commands: processes under test, TLS, flags, output and errors.

use std::io;

use tokio::runtime::{self, Runtime};

pub(crate) mod certificates;
pub(crate) mod error;
pub(crate) mod flags;
pub(crate) mod machine;
pub(crate) mod output;
pub(crate) mod server;
pub(crate) mod signal;
pub(crate) mod spread;
pub(crate) mod table;
pub(crate) mod tls;

pub(crate) fn current_thread() -> io::Result<Runtime> {
    runtime::Builder::new_current_thread().enable_all().build()
}
