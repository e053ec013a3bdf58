//! A server or a gateway that leaves a rule out, for `leaseway-bench chaos --plant` to show that it finds that.

use leaseway_core::planted::{Fault, plant_everywhere};

use crate::{Outcome, error::CliError};

#[cfg(not(debug_assertions))]
compile_error!("the feature `planted` leaves rules of the protocol out: it is for builds with debug assertions only");

/// Names the rule. Without it none is left out.
const VARIABLE: &str = "PLANTED_FAULT";

pub(crate) fn plant() -> Outcome {
    let Some(name) = std::env::var(VARIABLE).ok().filter(|name| !name.is_empty()) else { return Ok(()) };
    let fault = Fault::named(&name).ok_or_else(|| CliError::Flags(format!("{VARIABLE}={name} is no planted fault")))?;
    tracing::warn!(fault = fault.name(), "a rule is left out of this server: never use it");
    plant_everywhere(fault);
    Ok(())
}
