//! Calls a function when an actor ends.

/// Calls a function when it is dropped, including by a panic, unless it was disarmed.
pub(crate) struct DropGuard(Option<Box<dyn FnOnce() + Send + Sync>>);

impl DropGuard {
    pub(crate) fn new(call: impl FnOnce() + Send + Sync + 'static) -> DropGuard {
        DropGuard(Some(Box::new(call)))
    }

    pub(crate) fn disarm(&mut self) {
        self.0 = None;
    }
}

impl Drop for DropGuard {
    fn drop(&mut self) {
        if let Some(call) = self.0.take() {
            call();
        }
    }
}
