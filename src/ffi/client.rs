//! Clients.

use std::{env, ffi::c_char};

use leaseway_client::Client;

use crate::{
    fault::{Error, Fault, LEASEWAY_INVALID, LEASEWAY_MESSAGE_BYTES, call, fill},
    handle::{Handle, free, give, reach, tell, texts},
    settings::{self, Settings},
    waiting::wait,
};

/// Bytes of the address of a server, with the NUL at its end.
pub const LEASEWAY_ADDRESS_BYTES: usize = 264;

/// Keeps leases in a thread of its own. Any thread may use it.
pub type ClientHandle = Handle<Client>;

/// How a client gets on with its servers.
#[repr(C)]
pub struct Health {
    /// Requests that have failed since one was answered.
    pub failures: u32,
    /// The server it asks at present: the master, as far as is known.
    pub server: [c_char; LEASEWAY_ADDRESS_BYTES],
    /// Why the last request that failed did so; empty if none has.
    pub last_error: [c_char; LEASEWAY_MESSAGE_BYTES],
}

/// The version of this library.
#[unsafe(no_mangle)]
pub extern "C" fn leaseway_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Makes a client. It connects by itself, and goes on trying: a server that is away is no error. Settings, `key=value`,
/// end with NULL: `servers` (HOST:PORT, with commas between), `id`, `mode` (safe, pessimistic, optimistic), `deadline`,
/// `backoff_max`, `refresh_min` (seconds), `tls` (true, false), `tls_ca`, `tls_cert`, `tls_key`, `tls_server_name`,
/// `token`, `token_file`. With `env=true` LEASEWAY_SERVER (several with commas; 127.0.0.1:5100), LEASEWAY_TLS,
/// LEASEWAY_TLS_CA, LEASEWAY_TLS_CERT, LEASEWAY_TLS_KEY, LEASEWAY_TLS_SERVER_NAME and LEASEWAY_TOKEN_FILE stand for
/// what is left out. On failure the client is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_client_open(
    settings: *const *const c_char,
    client: *mut *mut ClientHandle,
    error: *mut Error,
) -> i32 {
    call(error, || {
        let open = || {
            // SAFETY: as callers owe.
            let given = unsafe { texts(settings, "a setting") }?;
            let found = settings::environment(&given, |name| env::var(name).ok());
            let all: Vec<_> = given.into_iter().chain(found.iter().map(String::as_str)).collect();
            settings::client(Settings::read(&all)?)
        };
        // SAFETY: as callers owe.
        unsafe { give(client, "client", open) }
    })
}

/// Waits until every resource that is open has its first lease, or for so many seconds: LEASEWAY_NOT_READY says then
/// which has none, and why.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_client_ready(client: *const ClientHandle, timeout: f64, error: *mut Error) -> i32 {
    call(error, || {
        // SAFETY: as callers owe.
        let client = unsafe { reach(client, "client") }?;
        let limit = settings::seconds(timeout).ok_or_else(|| Fault {
            code: LEASEWAY_INVALID,
            message: format!("timeout={timeout}: expected seconds, 0 or more"),
        })?;
        Ok(client.blocking_ready(limit)?)
    })
}

/// How it gets on with its servers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_client_health(
    client: *const ClientHandle,
    health: *mut Health,
    error: *mut Error,
) -> i32 {
    call(error, || {
        // SAFETY: as callers owe.
        let now = unsafe { reach(client, "client") }?.health();
        let mut told = Health {
            failures: now.failures,
            server: [0; LEASEWAY_ADDRESS_BYTES],
            last_error: [0; LEASEWAY_MESSAGE_BYTES],
        };
        fill(&mut told.server, &now.server);
        fill(&mut told.last_error, now.last_error.as_deref().unwrap_or_default());
        // SAFETY: as callers owe.
        unsafe { tell(health, "health", told) }
    })
}

/// Gives everything back, and waits until that is done, or has failed once, or for so many seconds. Callers that wait
/// are told LEASEWAY_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_client_close(client: *const ClientHandle, timeout: f64, error: *mut Error) -> i32 {
    call(error, || {
        // SAFETY: as callers owe.
        let client = unsafe { reach(client, "client") }?;
        wait(client.runtime(), timeout, async {
            client.close().await;
            Ok::<(), Fault>(())
        })
    })
}

/// Ends the handle. When those of its resources have ended too and it was not closed, everything is given back without
/// waiting for that. NULL, and one of another process, is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leaseway_client_free(client: *mut ClientHandle) {
    // SAFETY: as callers owe.
    unsafe { free(client) }
}
