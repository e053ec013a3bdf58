//! HTTP and JSON.
