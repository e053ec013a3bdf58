//! Streams from resources to clients: hints to ask again, and events of pools.

pub(crate) mod hints;
pub(crate) mod pool_events;
