//! Clients.

use std::{env, ffi::c_char};

use leaseway_client::Client;

use crate::{
    error::{CallError, Error, LEASEWAY_MESSAGE_BYTES, call, fill},
    handle::{Handle, free, texts, with, write_handle, write_value},
    settings::{self, Settings},
    waiting::wait,
};

/// Size of a server address in bytes, including the terminating NUL.
pub const LEASEWAY_ADDRESS_BYTES: usize = 264;

/// Keeps leases alive in a thread of its own. Any thread may use it.
pub type ClientHandle = Handle<Client>;

/// The state of the connection to the servers.
#[repr(C)]
pub struct Health {
    /// Number of failed requests since the last answer.
    pub failures: u32,
    /// The server that receives requests: the master, as far as known.
    pub server: [c_char; LEASEWAY_ADDRESS_BYTES],
    /// The error of the last failed request; empty if none failed.
    pub last_error: [c_char; LEASEWAY_MESSAGE_BYTES],
}

/// The version of this library.
#[unsafe(no_mangle)]
pub extern "C" fn leaseway_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Creates a client. It connects in the background and keeps trying; an unreachable server is not an error. `settings`
/// is a NULL-terminated array of `key=value`: `servers` (HOST:PORT, comma-separated), `id`, `mode` (safe, pessimistic,
/// optimistic), `deadline`, `backoff_max`, `refresh_min` (seconds), `tls` (true, false), `tls_ca`, `tls_cert`,
/// `tls_key`, `tls_server_name`, `token`, `token_file`. With `env=true` missing settings are taken from LEASEWAY_SERVER
/// (comma-separated; default 127.0.0.1:5100), LEASEWAY_TLS, LEASEWAY_TLS_CA, LEASEWAY_TLS_CERT, LEASEWAY_TLS_KEY,
/// LEASEWAY_TLS_SERVER_NAME and LEASEWAY_TOKEN_FILE. On failure the client is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_client_open(
    settings: *const *const c_char,
    client: *mut *mut ClientHandle,
    error: *mut Error,
) -> i32 {
    call(error, || {
        let open = || {
            // SAFETY: guaranteed by the caller, see the crate documentation.
            let given = unsafe { texts(settings, "a setting") }?;
            let found = settings::environment(&given, |name| env::var(name).ok());
            let all: Vec<_> = given.into_iter().chain(found.iter().map(String::as_str)).collect();
            settings::client(Settings::read(&all)?)
        };
        // SAFETY: guaranteed by the caller, see the crate documentation.
        unsafe { write_handle(client, "client", open) }
    })
}

/// Waits until every open resource has its first lease. After `timeout` seconds it fails with LEASEWAY_NOT_READY; the
/// message names the resources without a lease and the reason.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_client_ready(client: *const ClientHandle, timeout: f64, error: *mut Error) -> i32 {
    let ready = |client: &Client| {
        let wrong = || CallError::invalid(format!("timeout={timeout}: expected seconds, 0 or more"));
        Ok(client.blocking_ready(settings::seconds(timeout).ok_or_else(wrong)?)?)
    };
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { with(client, "client", error, ready) }
}

/// Reads the state of the connection to the servers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_client_health(
    client: *const ClientHandle,
    health: *mut Health,
    error: *mut Error,
) -> i32 {
    let read = |client: &Client| {
        let now = client.health();
        let mut state = Health {
            failures: now.failures,
            server: [0; LEASEWAY_ADDRESS_BYTES],
            last_error: [0; LEASEWAY_MESSAGE_BYTES],
        };
        fill(&mut state.server, &now.server);
        fill(&mut state.last_error, now.last_error.as_deref().unwrap_or_default());
        // SAFETY: guaranteed by the caller, see the crate documentation.
        unsafe { write_value(health, "health", state) }
    };
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { with(client, "client", error, read) }
}

/// Releases all leases. Waits until that is done or has failed once, for at most `timeout` seconds. Waiting callers get
/// LEASEWAY_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_client_close(client: *const ClientHandle, timeout: f64, error: *mut Error) -> i32 {
    let close = |client: &Client| {
        wait(client.runtime(), timeout, async {
            client.close().await;
            Ok::<(), CallError>(())
        })
    };
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { with(client, "client", error, close) }
}

/// Frees the handle. If the client was not closed, its leases are released in the background once the handles of its
/// resources are freed, too. NULL and handles of another process are ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_client_free(client: *mut ClientHandle) {
    // SAFETY: guaranteed by the caller, see the crate documentation.
    unsafe { free(client) }
}
