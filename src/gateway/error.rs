//! Causes of errors.

use std::{error::Error, iter};

use leaseway_client::transport::tls_error;

/// The innermost cause of an error, which says most.
pub(crate) fn root_cause(error: &(dyn Error + 'static)) -> String {
    tls_error(error).unwrap_or_else(|| {
        let last = iter::successors(Some(error), |error| (*error).source()).last().unwrap_or(error);
        last.to_string()
    })
}
