//! The data of the pages and of `/api/v1`.

pub(crate) mod children;
pub(crate) mod node;
pub(crate) mod resources;
