//! Codes and words of what went wrong.

use std::{
    ffi::c_char,
    fmt::Display,
    panic::{AssertUnwindSafe, catch_unwind},
};

use leaseway_client::{
    BadToken, BuildError, NotReady, OpenError, TlsError,
    limiter::{Closed, DebtExceeded, TryError},
};

/// It was done.
pub const LEASEWAY_OK: i32 = 0;
/// Nothing was taken: it would have had to wait, or is more than there can be at once now.
pub const LEASEWAY_NOT_NOW: i32 = 1;
/// Nothing was taken, and time is up.
pub const LEASEWAY_TIMEOUT: i32 = 2;
/// An argument or setting makes no sense; nothing was started.
pub const LEASEWAY_INVALID: i32 = 3;
/// The client was closed.
pub const LEASEWAY_CLOSED: i32 = 4;
/// There is no lease yet. The client goes on trying.
pub const LEASEWAY_NOT_READY: i32 = 5;
/// More was charged than may be owed. What goes beyond it is forgotten.
pub const LEASEWAY_DEBT_EXCEEDED: i32 = 6;
/// The handle belongs to the process that this one was forked from.
pub const LEASEWAY_FORKED: i32 = 7;
/// A fault of this library.
pub const LEASEWAY_INTERNAL: i32 = 8;

/// Bytes of a message, with the NUL at its end.
pub const LEASEWAY_MESSAGE_BYTES: usize = 508;

/// What went wrong, for the caller that has it: a code, and words that end with NUL.
#[repr(C)]
pub struct Error {
    /// One of the codes.
    pub code: i32,
    /// Empty if nothing did.
    pub message: [c_char; LEASEWAY_MESSAGE_BYTES],
}

/// What went wrong, before it is told.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) code: i32,
    pub(crate) message: String,
}

impl Fault {
    pub(crate) fn invalid(message: impl Display) -> Fault {
        Fault { code: LEASEWAY_INVALID, message: message.to_string() }
    }

    pub(crate) fn closed() -> Fault {
        Fault { code: LEASEWAY_CLOSED, message: "the client was closed".to_owned() }
    }
}

/// Does what a function is for; what comes of it is its code, and told in `error` unless that is NULL.
pub(crate) fn call(error: *mut Error, work: impl FnOnce() -> Result<(), Fault>) -> i32 {
    // What is locked when a panic comes through recovers from that, or belongs to the client's thread.
    let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        let message = "a fault of this library; standard error has more".to_owned();
        Err(Fault { code: LEASEWAY_INTERNAL, message })
    });
    let (code, message) = match result {
        Ok(()) => (LEASEWAY_OK, String::new()),
        Err(fault) => (fault.code, fault.message),
    };
    // SAFETY: callers pass NULL, or an error of their own.
    if let Some(error) = unsafe { error.as_mut() } {
        error.code = code;
        fill(&mut error.message, &message);
    }
    code
}

macro_rules! codes {
    ($($error:ty => $code:ident),* $(,)?) => {$(
        impl From<$error> for Fault {
            fn from(error: $error) -> Fault {
                Fault { code: $code, message: error.to_string() }
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
}

impl From<Closed> for Fault {
    fn from(_: Closed) -> Fault {
        Fault::closed()
    }
}

impl From<OpenError> for Fault {
    fn from(error: OpenError) -> Fault {
        match error {
            OpenError::Closed => Fault::closed(),
            error => Fault::invalid(error),
        }
    }
}

impl From<TryError> for Fault {
    fn from(error: TryError) -> Fault {
        match error {
            TryError::Closed => Fault::closed(),
            error => Fault { code: LEASEWAY_NOT_NOW, message: error.to_string() },
        }
    }
}

/// As much of a text as there is room for, in whole characters, and NUL.
pub(crate) fn fill(place: &mut [c_char], text: &str) {
    let room = text.len().min(place.len() - 1);
    let end = (0..=room).rfind(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let bytes = text[..end].bytes().map(|byte| if byte == 0 { b' ' } else { byte });
    for (place, byte) in place.iter_mut().zip(bytes.chain([0])) {
        *place = byte as c_char;
    }
}
