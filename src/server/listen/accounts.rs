//! What each principal has of what all share.
//!
//! A principal is an identity where one is proved, from any address; else an address, or a network of
//! addresses that belong together: a machine that has one address of an IPv6 /64 has all of them. So an identity behind
//! many addresses is one, and a NAT of many identities is many. What requests leave behind is counted there until it is
//! gone, however long after the connection.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use leaseway_core::Principal;
use tokio::sync::Semaphore;

/// Requests for many resources that a principal may have worked on at the same time.
const TURNS: usize = 4;

/// So many tokens from one address may prove nothing within a second: until the next one no signatures of others are
/// checked, which takes as long as some requests.
const MAX_REFUSED: usize = 200;

/// Where a request comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestOrigin {
    pub(crate) address: IpAddr,
    pub(crate) principal: Principal,
}

/// What one principal has.
#[derive(Debug)]
pub(crate) struct Account {
    principal: Principal,
    /// Records of clients and child nodes in all resources.
    pub(crate) holders: AtomicUsize,
    /// Resources that came to life for it.
    pub(crate) resources: AtomicUsize,
    /// Bytes that wait to be read or sent.
    pub(crate) bytes: AtomicUsize,
    /// Turns of its requests for many resources.
    pub(crate) turns: Semaphore,
    /// Tokens that proved nothing, of an address, since they were last forgotten.
    refused: AtomicUsize,
    /// It had nothing when it was last looked at.
    had_nothing: AtomicBool,
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
            had_nothing: AtomicBool::new(false),
        }
    }

    pub(crate) fn principal(&self) -> Principal {
        self.principal
    }

    /// A token was looked at and proves nothing.
    pub(crate) fn refused_token(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether signatures of its tokens are checked.
    pub(crate) fn may_prove(&self) -> bool {
        self.refused.load(Ordering::Relaxed) < MAX_REFUSED
    }

    fn has_nothing(&self) -> bool {
        [&self.holders, &self.resources, &self.bytes].iter().all(|count| count.load(Ordering::Relaxed) == 0)
    }
}

/// Adds to a count for as long as it lives.
#[derive(Debug)]
pub(crate) struct ResourcePlace(Arc<Account>);

impl ResourcePlace {
    pub(crate) fn new(account: Arc<Account>) -> ResourcePlace {
        account.resources.fetch_add(1, Ordering::Relaxed);
        ResourcePlace(account)
    }
}

impl Drop for ResourcePlace {
    fn drop(&mut self) {
        self.0.resources.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What principals are told apart by.
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
    /// The number given last.
    last: u32,
}

impl AccountTable {
    /// Numbers are not given again soon: requests under way may still name an account that is gone.
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
    /// The account that an address belongs to.
    pub(crate) fn of_address(&self, address: IpAddr) -> Arc<Account> {
        self.of_key(AccountKey::from(address))
    }

    /// The account of what an identity has, from all addresses together.
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

    /// The account of a principal that has not been gone for long.
    pub(crate) fn of(&self, principal: Principal) -> Option<Arc<Account>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).by_principal.get(&principal).cloned()
    }

    /// Tokens of all are looked at again. To be called once a second.
    pub(crate) fn forget_refused(&self) {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        table.by_key.values().for_each(|account| account.refused.store(0, Ordering::Relaxed));
    }

    /// Forgets accounts that nothing refers to and that had nothing when this was called last: a request under way may
    /// still have been about to leave something behind then. To be called every ten seconds or so.
    pub(crate) fn sweep(&self) {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let AccountTable { by_key, by_principal, .. } = &mut *table;
        by_key.retain(|_, account| {
            // The two tables, and no connection.
            let has_nothing = Arc::strong_count(account) == 2 && account.has_nothing();
            let is_to_go = has_nothing && account.had_nothing.load(Ordering::Relaxed);
            account.had_nothing.store(has_nothing, Ordering::Relaxed);
            if is_to_go {
                by_principal.remove(&account.principal);
            }
            !is_to_go
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
    fn an_address_is_one_principal_and_so_is_a_network_of_one_machine() {
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
    fn an_identity_is_one_principal_and_no_address() {
        let accounts = Accounts::default();
        let of = |name: &str| accounts.of_identity(&name.into()).principal();
        assert_eq!(of("web"), of("web"));
        assert_ne!(of("web"), of("db"));
        assert_ne!(of("10.0.0.1"), accounts.of_address(address("10.0.0.1")).principal());
    }

    #[test]
    fn an_account_is_forgotten_when_it_has_had_nothing_for_a_while() {
        let accounts = Accounts::default();
        let first = accounts.of_address(address("10.0.0.1")).principal();
        accounts.sweep();
        let place = ResourcePlace::new(accounts.of(first).expect("it was there a moment ago"));
        accounts.sweep();
        accounts.sweep();
        assert!(accounts.of(first).is_some(), "it has something");
        drop(place);
        accounts.sweep();
        assert!(accounts.of(first).is_some(), "something may still come");
        accounts.sweep();
        assert!(accounts.of(first).is_none());
        assert_ne!(accounts.of_address(address("10.0.0.1")).principal(), first, "numbers are not given again");
    }
}
