//! Long-running processes: a server, a gateway, the peers of a node.

pub(crate) mod access;
pub(crate) mod gateway;
pub(crate) mod log;
pub(crate) mod serve;
pub(crate) mod tls;
pub(crate) mod up;
pub(crate) mod value_parsers;

#[cfg(all(feature = "planted", not(debug_assertions)))]
compile_error!("the feature `planted` disables safety rules: build it with debug assertions only");

/// Breaks the rule of the protocol that the variable PLANTED_FAULT names, for `leaseway-bench chaos --plant`.
#[cfg(feature = "planted")]
fn plant_fault() -> crate::Outcome {
    use leaseway_core::planted::{Fault, plant_everywhere};

    let Some(name) = std::env::var("PLANTED_FAULT").ok().filter(|name| !name.is_empty()) else { return Ok(()) };
    let unknown = || crate::error::CliError::Flags(format!("PLANTED_FAULT={name}: unknown fault"));
    let fault = Fault::named(&name).ok_or_else(unknown)?;
    tracing::warn!(fault = fault.name(), "planted fault: this server breaks a safety rule; never use it");
    plant_everywhere(fault);
    Ok(())
}
