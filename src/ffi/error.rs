//! Error codes and messages.

use std::{
    ffi::c_char,
    fmt::Display,
    panic::{AssertUnwindSafe, catch_unwind},
};

use leaseway_client::{
    BadToken, BuildError, NotReady, OpenError, Refusal, SpendError, TlsError, Uncharged,
    limiter::{Closed, DebtExceeded, TryError},
};

/// Success.
pub const LEASEWAY_OK: i32 = 0;
/// Nothing was taken: the caller would have to wait, or asked for more than can ever be available at one time.
pub const LEASEWAY_NOT_NOW: i32 = 1;
/// The timeout expired; nothing was taken.
pub const LEASEWAY_TIMEOUT: i32 = 2;
/// An argument or setting is invalid; nothing was started.
pub const LEASEWAY_INVALID: i32 = 3;
/// The client was closed.
pub const LEASEWAY_CLOSED: i32 = 4;
/// There is no lease yet. The client keeps trying.
pub const LEASEWAY_NOT_READY: i32 = 5;
/// A charge exceeded the maximum debt. The part beyond the maximum was not charged.
pub const LEASEWAY_DEBT_EXCEEDED: i32 = 6;
/// The handle belongs to the process that this one was forked from.
pub const LEASEWAY_FORKED: i32 = 7;
/// A bug in this library.
pub const LEASEWAY_INTERNAL: i32 = 8;

/// Size of a message in bytes, including the terminating NUL.
pub const LEASEWAY_MESSAGE_BYTES: usize = 508;

/// An error: a code and a NUL-terminated message.
#[repr(C)]
pub struct Error {
    /// One of the codes.
    pub code: i32,
    /// Empty on success.
    pub message: [c_char; LEASEWAY_MESSAGE_BYTES],
}

/// An error before it is written to the caller's [`Error`].
#[derive(Debug)]
pub(crate) struct CallError {
    pub(crate) code: i32,
    pub(crate) message: String,
}

impl CallError {
    pub(crate) fn invalid(message: impl Display) -> CallError {
        CallError { code: LEASEWAY_INVALID, message: message.to_string() }
    }

    pub(crate) fn closed() -> CallError {
        CallError { code: LEASEWAY_CLOSED, message: "the client was closed".to_owned() }
    }
}

/// Runs the body of an exported function. Returns its code, and writes the error to `error` unless that is NULL.
pub(crate) fn call(error: *mut Error, work: impl FnOnce() -> Result<(), CallError>) -> i32 {
    // Unwind safe: locks held during a panic ignore poisoning, or belong to the client's thread.
    let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        let message = "internal error in the Leaseway library; see standard error".to_owned();
        Err(CallError { code: LEASEWAY_INTERNAL, message })
    });
    let (code, message) = match result {
        Ok(()) => (LEASEWAY_OK, String::new()),
        Err(error) => (error.code, error.message),
    };
    // SAFETY: the caller passes NULL or a valid error.
    if let Some(error) = unsafe { error.as_mut() } {
        error.code = code;
        fill(&mut error.message, &message);
    }
    code
}

macro_rules! codes {
    ($($error:ty => $code:ident),* $(,)?) => {$(
        impl From<$error> for CallError {
            fn from(error: $error) -> CallError {
                CallError { code: $code, message: error.to_string() }
            }
        }
    )*};
}

codes! {
    BuildError => LEASEWAY_INVALID,
    BadToken => LEASEWAY_INVALID,
    TlsError => LEASEWAY_INVALID,
    NotReady => LEASEWAY_NOT_READY,
    DebtExceeded => LEASEWAY_DEBT_EXCEEDED,
    Uncharged => LEASEWAY_DEBT_EXCEEDED,
}

impl From<Closed> for CallError {
    fn from(_: Closed) -> CallError {
        CallError::closed()
    }
}

impl From<OpenError> for CallError {
    fn from(error: OpenError) -> CallError {
        match error {
            OpenError::Closed => CallError::closed(),
            error => CallError::invalid(error),
        }
    }
}

impl From<TryError> for CallError {
    fn from(error: TryError) -> CallError {
        match error {
            TryError::Closed => CallError::closed(),
            error => CallError { code: LEASEWAY_NOT_NOW, message: error.to_string() },
        }
    }
}

impl From<SpendError> for CallError {
    fn from(error: SpendError) -> CallError {
        match error {
            SpendError::Closed(closed) => closed.into(),
            SpendError::Invalid => CallError::invalid(error),
            error => CallError { code: LEASEWAY_NOT_NOW, message: error.to_string() },
        }
    }
}

impl From<Refusal> for CallError {
    fn from(refusal: Refusal) -> CallError {
        match refusal.error {
            TryError::Closed => CallError::closed(),
            _ => CallError { code: LEASEWAY_NOT_NOW, message: refusal.to_string() },
        }
    }
}

/// Copies a text, cut at a character boundary if it is too long, and terminates it with NUL.
pub(crate) fn fill(out: &mut [c_char], text: &str) {
    let room = text.len().min(out.len() - 1);
    let end = (0..=room).rfind(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let bytes = text[..end].bytes().map(|byte| if byte == 0 { b' ' } else { byte });
    for (out, byte) in out.iter_mut().zip(bytes.chain([0])) {
        *out = byte as c_char;
    }
}
