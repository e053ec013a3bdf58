//! Foreign programs. A variable names each. Without it `build.rs` makes the tests ignored.

use std::path::PathBuf;

/// The value of `LEASEWAY_TEST_…`, a path that exists.
pub(crate) fn path(variable: &str) -> PathBuf {
    let path = PathBuf::from(std::env::var_os(variable).unwrap_or_else(|| panic!("{variable} is not set")));
    assert!(path.exists(), "{variable} names no file: {}", path.display());
    path
}
