//! Accounts of principals: how much of each shared resource a principal uses.
//!
//! An identity that was proven is one principal, with all its addresses. Callers without an identity are distinguished
//! by address: an IPv4 address or an IPv6 /64 is one principal, because a machine with one address of a /64 has all of
//! them. State that requests create is charged until it is removed, even after the connection is closed.

use std::{
    collections::{HashMap, hash_map::Entry},
    net::IpAddr,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use leaseway_core::types::{Principal, PrincipalShare};
use tokio::sync::Semaphore;

/// Maximum number of concurrent requests for many resources, per principal.
const TURNS: usize = 4;

/// Maximum number of invalid tokens per address and second. Beyond it no signatures are checked until the next second,
/// because a check costs as much as several requests.
const MAX_REFUSED: usize = 200;

/// The origin of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestOrigin {
    pub(crate) address: IpAddr,
    pub(crate) principal: Principal,
}

/// The usage of one principal.
#[derive(Debug)]
pub(crate) struct Account {
    principal: Principal,
    /// Clients and child nodes in all resources.
    pub(crate) holders: AtomicUsize,
    /// Resources that were created for its requests.
    pub(crate) resources: AtomicUsize,
    /// Bytes that wait to be processed or sent.
    pub(crate) bytes: AtomicUsize,
    /// Permits for its requests for many resources.
    pub(crate) turns: Semaphore,
    /// Invalid tokens from this address within the current second.
    refused: AtomicUsize,
    /// Whether it was unused at the last sweep.
    was_unused: AtomicBool,
}

impl Account {
    fn new(principal: Principal) -> Account {
        Account {
            principal,
            holders: AtomicUsize::new(0),
            resources: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            turns: Semaphore::new(TURNS),
            refused: AtomicUsize::new(0),
            was_unused: AtomicBool::new(false),
        }
    }

    pub(crate) fn principal(&self) -> Principal {
        self.principal
    }

    pub(crate) fn refused_token(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether signatures of its tokens may be checked: not after too many invalid ones in the current second.
    pub(crate) fn may_prove(&self) -> bool {
        self.refused.load(Ordering::Relaxed) < MAX_REFUSED
    }

    fn is_unused(&self) -> bool {
        [&self.holders, &self.resources, &self.bytes].iter().all(|count| count.load(Ordering::Relaxed) == 0)
    }
}

/// Charges a resource to an account until it is dropped.
#[derive(Debug)]
pub(crate) struct ResourceCharge(Arc<Account>);

impl ResourceCharge {
    pub(crate) fn new(account: Arc<Account>) -> ResourceCharge {
        account.resources.fetch_add(1, Ordering::Relaxed);
        ResourceCharge(account)
    }

    /// Charges another resource to the same account.
    pub(crate) fn another(&self) -> ResourceCharge {
        ResourceCharge::new(Arc::clone(&self.0))
    }
}

impl Drop for ResourceCharge {
    fn drop(&mut self) {
        self.0.resources.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts the taken slots of a table, in total and by principal.
#[derive(Debug, Default)]
pub(crate) struct SlotsTaken {
    in_all: usize,
    by_principal: HashMap<Principal, usize>,
}

impl SlotsTaken {
    pub(crate) fn in_all(&self) -> usize {
        self.in_all
    }

    pub(crate) fn of(&self, principal: Principal) -> usize {
        self.by_principal.get(&principal).copied().unwrap_or_default()
    }

    pub(crate) fn by_principal(&self) -> impl Iterator<Item = (Principal, usize)> {
        self.by_principal.iter().map(|(principal, count)| (*principal, *count))
    }

    /// Takes a slot of `most`, unless all are taken or the principal has its share.
    pub(crate) fn take(&mut self, principal: Principal, most: usize, share: PrincipalShare) -> bool {
        let may_take = share.allows(self.of(principal), 1, self.in_all, most);
        if may_take {
            self.add(principal);
        }
        may_take
    }

    /// Takes a slot, whatever the limits.
    pub(crate) fn add(&mut self, principal: Principal) {
        self.in_all += 1;
        *self.by_principal.entry(principal).or_default() += 1;
    }

    pub(crate) fn give_back(&mut self, principal: Principal) {
        self.in_all -= 1;
        if let Entry::Occupied(mut own) = self.by_principal.entry(principal) {
            *own.get_mut() -= 1;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }
}

/// The key of a principal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum AccountKey {
    V4(u32),
    /// A /64.
    V6(u64),
    Identity(Arc<str>),
}

impl From<IpAddr> for AccountKey {
    fn from(address: IpAddr) -> AccountKey {
        match address.to_canonical() {
            IpAddr::V4(address) => AccountKey::V4(address.to_bits()),
            IpAddr::V6(address) => AccountKey::V6((address.to_bits() >> 64) as u64),
        }
    }
}

/// The accounts of all principals.
#[derive(Debug, Default)]
pub(crate) struct Accounts(RwLock<AccountTable>);

#[derive(Debug, Default)]
struct AccountTable {
    by_key: HashMap<AccountKey, Arc<Account>>,
    by_principal: HashMap<Principal, Arc<Account>>,
    /// The newest number.
    last: u32,
}

impl AccountTable {
    /// Numbers are not reused soon, because requests under way may still name a dropped account.
    fn next(&mut self) -> Principal {
        loop {
            self.last = self.last.wrapping_add(1);
            let principal = Principal(self.last);
            if principal != Principal::NONE && !self.by_principal.contains_key(&principal) {
                return principal;
            }
        }
    }
}

impl Accounts {
    /// The account of an address.
    pub(crate) fn of_address(&self, address: IpAddr) -> Arc<Account> {
        self.of_key(AccountKey::from(address))
    }

    /// The account of an identity, for all its addresses.
    pub(crate) fn of_identity(&self, name: &Arc<str>) -> Arc<Account> {
        self.of_key(AccountKey::Identity(Arc::clone(name)))
    }

    fn of_key(&self, key: AccountKey) -> Arc<Account> {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = table.by_key.get(&key) {
            return Arc::clone(known);
        }
        let account = Arc::new(Account::new(table.next()));
        table.by_key.insert(key, Arc::clone(&account));
        table.by_principal.insert(account.principal, Arc::clone(&account));
        account
    }

    /// The account of a principal. `None` if it was dropped.
    pub(crate) fn of(&self, principal: Principal) -> Option<Arc<Account>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).by_principal.get(&principal).cloned()
    }

    /// Resets the counts of invalid tokens. Called once a second.
    pub(crate) fn forget_refused(&self) {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        table.by_key.values().for_each(|account| account.refused.store(0, Ordering::Relaxed));
    }

    /// Drops accounts that are unreferenced and unused, and were so at the previous sweep. One sweep is not enough,
    /// because a request under way may be about to charge the account. Called about every ten seconds.
    pub(crate) fn sweep(&self) {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let AccountTable { by_key, by_principal, .. } = &mut *table;
        by_key.retain(|_, account| {
            // The two tables hold one reference each.
            let is_unused = Arc::strong_count(account) == 2 && account.is_unused();
            let is_expired = is_unused && account.was_unused.load(Ordering::Relaxed);
            account.was_unused.store(is_unused, Ordering::Relaxed);
            if is_expired {
                by_principal.remove(&account.principal);
            }
            !is_expired
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn an_ipv4_address_or_an_ipv6_64_is_one_principal() {
        let accounts = Accounts::default();
        let of = |text| accounts.of_address(address(text)).principal();
        assert_eq!(of("10.0.0.1"), of("10.0.0.1"));
        assert_eq!(of("10.0.0.1"), of("::ffff:10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("10.0.0.1"), Principal::NONE);
    }

    #[test]
    fn an_identity_is_one_principal_and_differs_from_any_address() {
        let accounts = Accounts::default();
        let of = |name: &str| accounts.of_identity(&name.into()).principal();
        assert_eq!(of("web"), of("web"));
        assert_ne!(of("web"), of("db"));
        assert_ne!(of("10.0.0.1"), accounts.of_address(address("10.0.0.1")).principal());
    }

    #[test]
    fn an_account_unused_at_two_sweeps_is_dropped() {
        let accounts = Accounts::default();
        let first = accounts.of_address(address("10.0.0.1")).principal();
        accounts.sweep();
        let charge = ResourceCharge::new(accounts.of(first).expect("it was just created"));
        accounts.sweep();
        accounts.sweep();
        assert!(accounts.of(first).is_some(), "it is in use");
        drop(charge);
        accounts.sweep();
        assert!(accounts.of(first).is_some(), "a request under way may still charge it");
        accounts.sweep();
        assert!(accounts.of(first).is_none());
        assert_ne!(accounts.of_address(address("10.0.0.1")).principal(), first, "numbers are not reused");
    }
}
