//! To be written.
#![allow(missing_docs, unused)]
use leaseway_core::Millis;
#[derive(Debug, Clone, Default)]
pub struct Demand;
impl Demand {
    pub fn sample(&mut self, _: Millis, _: u64, _: u64) {}
    pub fn wants(&self, _: Millis) -> f64 {
        1.0
    }
}
