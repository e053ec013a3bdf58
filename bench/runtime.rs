//! The runtime that most threads here have.

use std::io;

use tokio::runtime::{self, Runtime};

pub(crate) fn current_thread() -> io::Result<Runtime> {
    runtime::Builder::new_current_thread().enable_all().build()
}
