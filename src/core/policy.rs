//! How resources are run, and who may do what: settings, templates, rules for clients, overrides, access.

pub mod access;
pub(crate) mod client_rules;
pub(crate) mod overrides;
pub(crate) mod parameters;
pub(crate) mod settings;
pub(crate) mod template;
