//! To be written.
#![allow(missing_docs, unused)]
use crate::Capacity;
use std::sync::Arc;
use tokio::sync::Notify;
#[derive(Debug, Clone, Copy, Default)]
pub enum Burst {
    #[default]
    Smooth,
    Second,
    Permits(f64),
}
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("closed")]
pub struct Closed;
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("try")]
pub enum TryError {
    Closed,
}
#[derive(Debug, Clone)]
pub struct RateLimiter;
#[derive(Debug, Clone)]
pub struct GaugeLimiter;
#[derive(Debug)]
pub struct Permit;
impl RateLimiter {
    pub fn with_pressure(_: Burst, _: &Arc<Notify>) -> Self {
        Self
    }
    pub fn set_capacity(&self, _: Capacity) {}
    pub fn close(&self) {}
    pub async fn wait(&self) -> Result<(), Closed> {
        Ok(())
    }
    pub async fn wait_many(&self, _: u32) -> Result<(), Closed> {
        Ok(())
    }
    pub fn try_acquire(&self, _: u32) -> Result<(), TryError> {
        Ok(())
    }
    pub fn arrived(&self) -> u64 {
        0
    }
    pub fn waiting(&self) -> u64 {
        0
    }
}
impl GaugeLimiter {
    pub fn with_pressure(_: &Arc<Notify>) -> Self {
        Self
    }
    pub fn set_capacity(&self, _: Capacity) {}
    pub fn close(&self) {}
    pub async fn acquire(&self) -> Result<Permit, Closed> {
        Ok(Permit)
    }
    pub async fn acquire_many(&self, _: u32) -> Result<Permit, Closed> {
        Ok(Permit)
    }
    pub fn try_acquire(&self, _: u32) -> Result<Permit, TryError> {
        Ok(Permit)
    }
    pub fn in_use(&self) -> u64 {
        0
    }
    pub fn waiting(&self) -> u64 {
        0
    }
    pub fn outstanding(&self) -> u64 {
        0
    }
}
