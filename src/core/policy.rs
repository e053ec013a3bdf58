//! Configuration of resources and access: settings, templates, client rules, overrides and permissions.

pub mod access;
pub mod client_rules;
pub mod groups;
pub mod overrides;
pub mod parameters;
pub mod period;
pub mod settings;
pub mod template;
