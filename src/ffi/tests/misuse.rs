//! Mistakes of callers are reported and do no harm.

use std::{
    ffi::{CStr, CString, c_char},
    ptr,
};

use crate::{
    client::{ClientHandle, leaseway_client_free, leaseway_client_open, leaseway_client_ready},
    error::{
        CallError, Error, LEASEWAY_INTERNAL, LEASEWAY_INVALID, LEASEWAY_MESSAGE_BYTES, LEASEWAY_NOT_READY, LEASEWAY_OK,
        LEASEWAY_TIMEOUT, call, fill,
    },
    rate::{RateHandle, leaseway_rate_open, leaseway_rate_wait},
    settings::environment,
};

fn error() -> Error {
    Error { code: -1, message: [0; LEASEWAY_MESSAGE_BYTES] }
}

fn message(error: &Error) -> String {
    // SAFETY: `fill` terminates the message with NUL.
    unsafe { CStr::from_ptr(error.message.as_ptr()) }.to_str().expect("UTF-8").to_owned()
}

/// Calls `work` with settings as C would pass them.
fn with_settings<T>(settings: &[&str], work: impl FnOnce(*const *const c_char) -> T) -> T {
    let owned: Vec<_> = settings.iter().map(|text| CString::new(*text).expect("no NUL")).collect();
    let pointers: Vec<_> = owned.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect();
    work(pointers.as_ptr())
}

fn open(settings: &[&str]) -> (*mut ClientHandle, Error) {
    let (mut client, mut error) = (ptr::null_mut(), error());
    // SAFETY: all pointers are to locals.
    let code = with_settings(settings, |settings| unsafe { leaseway_client_open(settings, &mut client, &mut error) });
    assert_eq!(code, error.code);
    (client, error)
}

#[test]
fn env_true_takes_missing_settings_from_the_environment() {
    let variable = |name: &str| match name {
        "LEASEWAY_TLS_CA" => Some("ca.pem".to_owned()),
        "LEASEWAY_TOKEN_FILE" => Some("token".to_owned()),
        _ => None,
    };
    assert!(environment(&["servers=a"], variable).is_empty());
    let found = environment(&["env=true"], variable);
    assert_eq!(found, ["servers=127.0.0.1:5100", "tls_ca=ca.pem", "token_file=token"]);
    let found = environment(&["env=true", "token=secret", "tls_ca=other.pem", "servers=a"], variable);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn invalid_settings_are_reported() {
    for (settings, expected) in [
        (&[][..], "no endpoint: pass at least one server of the node, as HOST:PORT"),
        (&["servers"], "setting `servers`: expected key=value"),
        (&["servers=a", "mode=brave"], "setting `mode=brave`: expected safe, pessimistic or optimistic"),
        (&["servers=a", "deadline=-1"], "setting `deadline=-1`: expected seconds, 0 or more"),
        (&["servers=a", "servers=b"], "setting `servers` is given twice"),
        (&["servers=a", "sever=b"], "setting `sever=b`: expected one of servers, id, mode, deadline, backoff_max, "),
        (
            &["servers=a", "token=b", "token_file=c"],
            "settings `token` and `token_file` exclude each other: pass only one of them",
        ),
        (&["servers=a", "tls_ca=/nowhere/ca.pem"], "/nowhere/ca.pem"),
    ] {
        let (client, error) = open(settings);
        assert!(client.is_null() && error.code == LEASEWAY_INVALID, "{settings:?}");
        assert!(message(&error).contains(expected), "{}", message(&error));
    }
}

#[test]
fn an_unreachable_server_is_no_error_and_waits_time_out() {
    let (client, opened) = open(&["servers=127.0.0.1:1"]);
    assert_eq!((opened.code, message(&opened)), (LEASEWAY_OK, String::new()));
    let (mut rate, mut error) = (ptr::null_mut::<RateHandle>(), error());
    // SAFETY: the client is freed at the end, and all other pointers are to locals.
    let code = unsafe { leaseway_rate_open(client, c"searches".as_ptr(), ptr::null(), &mut rate, &mut error) };
    assert_eq!(code, LEASEWAY_OK);
    // SAFETY: as before.
    assert_eq!(unsafe { leaseway_client_ready(client, 0.1, &mut error) }, LEASEWAY_NOT_READY);
    assert!(message(&error).starts_with("no lease yet for `searches`: "), "{}", message(&error));
    // SAFETY: as before.
    assert_eq!(unsafe { leaseway_rate_wait(rate, 1, 0.1, &mut error) }, LEASEWAY_TIMEOUT);
    // SAFETY: as before.
    assert_eq!(unsafe { leaseway_rate_wait(rate, 1, -1.0, &mut error) }, LEASEWAY_INVALID);
    assert_eq!(message(&error), "timeout=-1: expected seconds, 0 or more, or INFINITY");
    // SAFETY: NULL is reported.
    assert_eq!(unsafe { leaseway_rate_wait(ptr::null(), 1, 0.1, &mut error) }, LEASEWAY_INVALID);
    assert_eq!(message(&error), "rate is NULL");
    // SAFETY: nothing uses the handles after this.
    unsafe { crate::rate::leaseway_rate_free(rate) };
    // SAFETY: as before.
    unsafe { leaseway_client_free(client) };
}

#[test]
fn a_panic_becomes_an_error_code() {
    let mut error = error();
    assert_eq!(call(&mut error, || -> Result<(), CallError> { panic!("a test") }), LEASEWAY_INTERNAL);
    assert_eq!(message(&error), "internal error in the Leaseway library; see standard error");
}

#[test]
fn long_messages_are_cut_at_a_character_boundary() {
    let mut out: [c_char; 4] = [1; 4];
    fill(&mut out, "aaä");
    assert_eq!(out.map(|byte| byte as u8), [b'a', b'a', 0, 1]);
    fill(&mut out, "a\0b");
    assert_eq!(out.map(|byte| byte as u8), [b'a', b' ', b'b', 0]);
}
