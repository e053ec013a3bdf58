//! Pointers of callers: handles, strings, and places to write to. What is undefined if callers do not keep to what they
//! owe (`lib.rs`) is here.
//!
//! A fork copies one thread and all memory: the client's thread is missing in the child, and a lock that it held is
//! held for ever. So a handle says which process made it; in any other it is an error to use it, and to free it does
//! nothing.

use std::{
    ffi::{CStr, c_char},
    mem::ManuallyDrop,
    process, ptr,
};

use crate::fault::{Fault, LEASEWAY_FORKED};

/// Something that callers hold. Any of their threads may use it, and end it: hence the bounds of what follows.
pub struct Handle<T> {
    pid: u32,
    value: ManuallyDrop<T>,
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        if self.pid == process::id() {
            // SAFETY: this is the only place that drops or takes it, and nothing looks at it afterwards.
            unsafe { ManuallyDrop::drop(&mut self.value) }
        }
    }
}

fn absent(what: &str) -> Fault {
    Fault::invalid(format!("{what} is NULL: expected one that this library gave"))
}

/// What a handle is of.
pub(crate) unsafe fn reach<'a, T: Sync>(handle: *const Handle<T>, what: &str) -> Result<&'a T, Fault> {
    // SAFETY: callers pass NULL, or a handle that is not freed before the call is over.
    let handle = unsafe { handle.as_ref() }.ok_or_else(|| absent(what))?;
    if handle.pid == process::id() { Ok(&handle.value) } else { Err(forked(what)) }
}

fn forked(what: &str) -> Fault {
    let message = format!("this {what} belongs to the process that this one was forked from: open one after the fork");
    Fault { code: LEASEWAY_FORKED, message }
}

/// Gives a handle to the caller, or NULL.
pub(crate) unsafe fn give<T: Send>(
    place: *mut *mut Handle<T>,
    what: &str,
    make: impl FnOnce() -> Result<T, Fault>,
) -> Result<(), Fault> {
    // SAFETY: callers pass NULL, or a place for a pointer.
    let place = unsafe { place.as_mut() }.ok_or_else(|| absent(&format!("the place for the {what}")))?;
    *place = ptr::null_mut();
    let handle = Handle { pid: process::id(), value: ManuallyDrop::new(make()?) };
    *place = Box::into_raw(Box::new(handle));
    Ok(())
}

/// Takes a handle from the caller, and what it is of. A handle of another process is gone, and its value stays.
pub(crate) unsafe fn take<T: Send>(handle: *mut Handle<T>, what: &str) -> Result<T, Fault> {
    if handle.is_null() {
        return Err(absent(what));
    }
    // SAFETY: callers pass a handle that `give` made, and do not use it again.
    let handle = ManuallyDrop::new(*unsafe { Box::from_raw(handle) });
    if handle.pid != process::id() {
        return Err(forked(what));
    }
    // SAFETY: the handle is not dropped, so nothing else reads it.
    Ok(unsafe { ptr::read(&*handle.value) })
}

/// Ends a handle; NULL is none.
pub(crate) unsafe fn free<T: Send>(handle: *mut Handle<T>) {
    if !handle.is_null() {
        // SAFETY: callers pass a handle that `give` made, and do not use it again.
        drop(unsafe { Box::from_raw(handle) });
    }
}

/// A string of the caller's.
pub(crate) unsafe fn text<'a>(string: *const c_char, what: &str) -> Result<&'a str, Fault> {
    if string.is_null() {
        return Err(Fault::invalid(format!("{what} is NULL: expected a string")));
    }
    // SAFETY: callers pass a string that ends with NUL.
    let string = unsafe { CStr::from_ptr(string) };
    string.to_str().map_err(|_| Fault::invalid(format!("{what} {string:?} is not UTF-8")))
}

/// Strings of the caller's, up to NULL; NULL is none.
pub(crate) unsafe fn texts<'a>(mut strings: *const *const c_char, what: &str) -> Result<Vec<&'a str>, Fault> {
    let mut found = Vec::new();
    // SAFETY: callers pass NULL, or an array that ends with NULL, which this stops at.
    while let Some(&string) = unsafe { strings.as_ref() }.filter(|string| !string.is_null()) {
        // SAFETY: what is not NULL is a string of the caller's.
        found.push(unsafe { text(string, what) }?);
        // SAFETY: this was not the last, so there is another.
        strings = unsafe { strings.add(1) };
    }
    Ok(found)
}

/// Tells the caller something.
pub(crate) unsafe fn tell<T>(place: *mut T, what: &str, value: T) -> Result<(), Fault> {
    if place.is_null() {
        return Err(absent(&format!("the place for the {what}")));
    }
    // SAFETY: callers pass a place that is as large as what is told.
    unsafe { place.write(value) };
    Ok(())
}
