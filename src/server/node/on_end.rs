//! Reports the end of what the node supervises.

/// Runs a function when it is dropped, also by a panic.
pub(super) struct OnEnd(Option<Box<dyn FnOnce() + Send + Sync>>);

impl OnEnd {
    pub(super) fn new(call: impl FnOnce() + Send + Sync + 'static) -> OnEnd {
        OnEnd(Some(Box::new(call)))
    }

    /// A regular end: nothing is called.
    pub(super) fn disarm(&mut self) {
        self.0 = None;
    }
}

impl Drop for OnEnd {
    fn drop(&mut self) {
        if let Some(call) = self.0.take() {
            call();
        }
    }
}
