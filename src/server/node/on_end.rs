//! How what the node supervises tells that it is over, however it ended.

/// Calls when it is dropped, also by a panic.
pub(super) struct OnEnd(Option<Box<dyn FnOnce() + Send>>);

impl OnEnd {
    pub(super) fn new(call: impl FnOnce() + Send + 'static) -> OnEnd {
        OnEnd(Some(Box::new(call)))
    }

    /// It ends as it should: nothing is called.
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
