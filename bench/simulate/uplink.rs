//! Child nodes ask their parents.

use leaseway_core::invariant::Violation;

use super::{mail::Reply, world::World};

impl World<'_> {
    pub(super) fn wake_node(&mut self, _node: usize, _life: u32) -> Result<(), Violation> {
        Ok(())
    }
    pub(super) fn hint_node(&mut self, _node: usize, _life: u32) -> Result<(), Violation> {
        Ok(())
    }
    pub(super) fn answer_node(&mut self, _node: usize, _reply: Reply) -> Result<(), Violation> {
        Ok(())
    }
}
