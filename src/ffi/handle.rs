//! Pointers of callers: handles, strings and out pointers. All code whose safety depends on the caller is here.
//!
//! A fork copies all memory but only the calling thread: in the child the client's thread is missing, and a lock that
//! it held stays locked. So a handle records the process that created it. In any other process using it is an error,
//! and freeing it does nothing.

use std::{
    ffi::{CStr, c_char},
    mem::ManuallyDrop,
    process, ptr, slice,
};

use crate::error::{CallError, Error, LEASEWAY_FORKED, call};

/// An object that the caller holds. Any thread may use and free it, hence the `Send` and `Sync` bounds below.
pub struct Handle<T> {
    pid: u32,
    value: ManuallyDrop<T>,
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        if self.pid == process::id() {
            // SAFETY: `drop` runs once, and nothing reads the value afterwards.
            unsafe { ManuallyDrop::drop(&mut self.value) }
        }
    }
}

fn null_pointer(what: &str) -> CallError {
    CallError::invalid(format!("{what} is NULL"))
}

/// Borrows the value of a handle.
unsafe fn borrow<'a, T: Sync>(handle: *const Handle<T>, what: &str) -> Result<&'a T, CallError> {
    // SAFETY: the caller passes NULL, or a handle that is not freed during the call.
    let handle = unsafe { handle.as_ref() }.ok_or_else(|| null_pointer(what))?;
    if handle.pid == process::id() { Ok(&handle.value) } else { Err(forked(what)) }
}

/// Borrows the value of a handle; `None` for NULL.
pub(crate) unsafe fn optional<'a, T: Sync>(handle: *const Handle<T>, what: &str) -> Result<Option<&'a T>, CallError> {
    // SAFETY: guaranteed by the caller.
    if handle.is_null() { Ok(None) } else { unsafe { borrow(handle, what) }.map(Some) }
}

/// Borrows an array. NULL is allowed if it is empty.
pub(crate) unsafe fn elements<'a, T>(array: *const T, count: usize, what: &str) -> Result<&'a [T], CallError> {
    if count == 0 {
        return Ok(&[]);
    }
    if array.is_null() {
        return Err(null_pointer(&format!("the array of {what}")));
    }
    if count > isize::MAX as usize / size_of::<T>() {
        return Err(CallError::invalid(format!("{count} {what}: more than the memory holds")));
    }
    // SAFETY: the caller passes an array of this many elements, which does not change during the call.
    Ok(unsafe { slice::from_raw_parts(array, count) })
}

fn forked(what: &str) -> CallError {
    let message = format!("this {what} belongs to the parent process of a fork: open a new one after the fork");
    CallError { code: LEASEWAY_FORKED, message }
}

/// Writes a new handle to an out pointer, or NULL on failure.
pub(crate) unsafe fn write_handle<T: Send>(
    out: *mut *mut Handle<T>,
    what: &str,
    make: impl FnOnce() -> Result<T, CallError>,
) -> Result<(), CallError> {
    // SAFETY: the caller passes NULL or a valid out pointer.
    let out = unsafe { out.as_mut() }.ok_or_else(|| null_pointer(&format!("the out pointer for the {what}")))?;
    *out = ptr::null_mut();
    let handle = Handle { pid: process::id(), value: ManuallyDrop::new(make()?) };
    *out = Box::into_raw(Box::new(handle));
    Ok(())
}

/// Runs the body of an exported function with the value of a handle. Returns its code.
pub(crate) unsafe fn with<T: Sync>(
    handle: *const Handle<T>,
    what: &str,
    error: *mut Error,
    work: impl FnOnce(&T) -> Result<(), CallError>,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(error, || work(unsafe { borrow(handle, what) }?))
}

/// As [`with`], for a function that returns a new handle.
pub(crate) unsafe fn with_new<T: Sync, N: Send>(
    handle: *const Handle<T>,
    what: &str,
    out: *mut *mut Handle<N>,
    new: &str,
    error: *mut Error,
    make: impl FnOnce(&T) -> Result<N, CallError>,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    let make = || make(unsafe { borrow(handle, what) }?);
    // SAFETY: guaranteed by the caller.
    call(error, || unsafe { write_handle(out, new, make) })
}

/// Consumes a handle and returns its value. If another process created it, the value is leaked.
pub(crate) unsafe fn take<T: Send>(handle: *mut Handle<T>, what: &str) -> Result<T, CallError> {
    if handle.is_null() {
        return Err(null_pointer(what));
    }
    // SAFETY: the caller passes a handle from `write_handle` and does not use it again.
    let handle = ManuallyDrop::new(*unsafe { Box::from_raw(handle) });
    if handle.pid != process::id() {
        return Err(forked(what));
    }
    // SAFETY: the handle is never dropped, so the value is read once.
    Ok(unsafe { ptr::read(&*handle.value) })
}

/// Frees a handle. NULL is allowed.
pub(crate) unsafe fn free<T: Send>(handle: *mut Handle<T>) {
    if !handle.is_null() {
        // SAFETY: the caller passes a handle from `write_handle` and does not use it again.
        drop(unsafe { Box::from_raw(handle) });
    }
}

/// Borrows a string.
pub(crate) unsafe fn text<'a>(string: *const c_char, what: &str) -> Result<&'a str, CallError> {
    if string.is_null() {
        return Err(CallError::invalid(format!("{what} is NULL: expected a string")));
    }
    // SAFETY: the caller passes a string that ends with NUL.
    let string = unsafe { CStr::from_ptr(string) };
    string.to_str().map_err(|_| CallError::invalid(format!("{what} {string:?} is not UTF-8")))
}

/// Borrows an array of strings that ends with NULL. NULL stands for an empty array.
pub(crate) unsafe fn texts<'a>(mut strings: *const *const c_char, what: &str) -> Result<Vec<&'a str>, CallError> {
    let mut found = Vec::new();
    // SAFETY: the caller passes NULL or an array that ends with NULL, where the loop stops.
    while let Some(&string) = unsafe { strings.as_ref() }.filter(|string| !string.is_null()) {
        // SAFETY: elements before the final NULL are strings.
        found.push(unsafe { text(string, what) }?);
        // SAFETY: the element was not NULL, so another element follows.
        strings = unsafe { strings.add(1) };
    }
    Ok(found)
}

/// Writes a value to an out pointer unless that is NULL.
pub(crate) unsafe fn write_if_wanted<T>(out: *mut T, value: T) {
    if !out.is_null() {
        // SAFETY: the caller passes a pointer to memory of this type.
        unsafe { out.write(value) };
    }
}

/// Writes a value to an out pointer.
pub(crate) unsafe fn write_value<T>(out: *mut T, what: &str, value: T) -> Result<(), CallError> {
    if out.is_null() {
        return Err(null_pointer(&format!("the out pointer for the {what}")));
    }
    // SAFETY: the caller passes a pointer to memory of this type.
    unsafe { out.write(value) };
    Ok(())
}
