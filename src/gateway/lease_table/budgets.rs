//! The open budgets of a gateway.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use leaseway_client::Budget;

use super::{NotOpened, SharePermit};

#[derive(Debug)]
pub struct BudgetEntry {
    budget: Budget,
    /// The sweep count at the last request.
    used: AtomicU32,
    _permit: SharePermit,
}

impl BudgetEntry {
    pub fn budget(&self) -> &Budget {
        &self.budget
    }
}

#[derive(Debug, Default)]
pub(super) struct Budgets(Mutex<HashMap<Box<str>, Arc<BudgetEntry>>>);

impl Budgets {
    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, Arc<BudgetEntry>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds or opens a budget.
    pub(super) fn get_or_open(
        &self,
        id: &str,
        now: u32,
        open: impl FnOnce() -> Result<(Budget, SharePermit), NotOpened>,
    ) -> Result<Arc<BudgetEntry>, NotOpened> {
        let mut open_budgets = self.lock();
        if let Some(entry) = open_budgets.get(id) {
            entry.used.store(now, Ordering::Relaxed);
            return Ok(Arc::clone(entry));
        }
        let (budget, permit) = open()?;
        let entry = Arc::new(BudgetEntry { budget, used: AtomicU32::new(now), _permit: permit });
        open_budgets.insert(id.into(), Arc::clone(&entry));
        Ok(entry)
    }

    /// Releases budgets that were not used for `idle` sweeps. What they have spent counts, the rest is returned.
    pub(super) fn release_idle(&self, now: u32, idle: u32) {
        let is_idle = |entry: &Arc<BudgetEntry>| {
            now.wrapping_sub(entry.used.load(Ordering::Relaxed)) > idle && Arc::strong_count(entry) == 1
        };
        let released: Vec<_> = self.lock().extract_if(|_, entry| is_idle(entry)).collect();
        // Dropped without the lock.
        drop(released);
    }

    pub(super) fn clear(&self) {
        let released = std::mem::take(&mut *self.lock());
        drop(released);
    }
}
