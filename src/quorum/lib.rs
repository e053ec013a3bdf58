//! What the peers of a node agree on.
