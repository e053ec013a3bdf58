//! What operators have set for a time in place of what templates say.

use leaseway_core::{Millis, Overridden, Override};
use serde::Serialize;

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(in super::super) struct OverrideRow {
    pub(in super::super) pattern: String,
    /// `40`, or `50 %`.
    pub(in super::super) set_to: String,
    /// Then it ends by itself.
    pub(in super::super) remaining_ms: u64,
    pub(in super::super) by: String,
    pub(in super::super) why: String,
}

impl OverrideRow {
    pub(super) fn of(one: &Override, at: Millis) -> OverrideRow {
        OverrideRow {
            pattern: one.pattern.to_string(),
            set_to: one.set_to(),
            remaining_ms: one.ends.since(at).0,
            by: one.by.to_string(),
            why: one.why.to_string(),
        }
    }
}

/// An override, as one resource has it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(in super::super) struct OverriddenView {
    #[serde(flatten)]
    pub(in super::super) row: OverrideRow,
    /// What the template says, or the parent lends.
    pub(in super::super) template_capacity: f64,
    pub(in super::super) sentence: String,
}

impl OverriddenView {
    pub(super) fn of(overridden: &Overridden, at: Millis) -> OverriddenView {
        OverriddenView {
            row: OverrideRow::of(&overridden.by, at),
            template_capacity: overridden.template.get(),
            sentence: overridden.sentence(at),
        }
    }
}
