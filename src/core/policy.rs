//! How resources are run, and who may do what: settings, templates, rules for clients, overrides, access.

pub mod access;
pub mod client_rules;
pub mod overrides;
pub mod parameters;
pub mod settings;
pub mod template;
