//! Balances of free clients. A client with a large balance was served recently and comes last.
//!
//! A balance grows while its client is connected and decays while it is not. All balances grow at one rate and decay at
//! one rate, so they can be compared without knowing the time: one clock counts growth, another counts decay, and a
//! balance is stored as its value when its clock was at zero. The order of stored values does not change with time. A
//! change of a rate changes the clock and no balance.
//!
//! Several clients may share an account, for example an address. A new client starts with the balance of its account.

pub(crate) mod memory;
pub(crate) mod pacing;

use std::{cmp::Ordering, collections::BTreeSet, sync::Arc};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use slab::Slab;

use self::{
    memory::{NotedBalance, PoolClock},
    pacing::{LARGE_CHANGE, MAX_NOTE_AGE, NoteBudget, until_large_change},
};
use crate::types::Millis;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct BalanceKey(pub(crate) f64);

impl Eq for BalanceKey {}

impl PartialOrd for BalanceKey {
    fn partial_cmp(&self, other: &BalanceKey) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for BalanceKey {
    fn cmp(&self, other: &BalanceKey) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// The clocks of growth and decay.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Clock {
    pub(crate) at: Millis,
    /// The growth of a balance whose client was always connected.
    grown: f64,
    /// The exponent of e by which balances have decayed.
    decayed: f64,
    /// The age of the pool in seconds, over all masters.
    pub(crate) lived: f64,
}

impl Clock {
    /// Advances to `now`. Balances of connected clients grow by `speed` per second; others decay with `time_constant`.
    pub(crate) fn advance(&mut self, now: Millis, speed: f64, time_constant: Millis) {
        let elapsed = now.since(self.at);
        self.grown += speed * elapsed.0 as f64 / 1000.0;
        self.decayed += elapsed.0 as f64 / time_constant.0.max(1) as f64;
        self.lived += elapsed.0 as f64 / 1000.0;
        self.at = self.at.max(now);
    }

    pub(crate) fn restore(&mut self, now: Millis, noted: &PoolClock) {
        let PoolClock { lived, grown, decayed, .. } = *noted;
        *self = Clock { at: now, grown, decayed, lived };
    }

    pub(crate) fn as_noted(&self, speed: f64, time_constant: Millis) -> PoolClock {
        PoolClock { lived: self.lived, grown: self.grown, decayed: self.decayed, speed, time_constant }
    }

    /// The balance of a connected client with this key.
    pub(crate) fn of_connected(&self, key: BalanceKey) -> f64 {
        key.0 + self.grown
    }

    fn connected(&self, balance: f64) -> BalanceKey {
        BalanceKey(balance - self.grown)
    }

    /// The balance of a disconnected client with this key.
    pub(crate) fn of_away(&self, key: BalanceKey) -> f64 {
        (key.0 - self.decayed).exp()
    }

    fn away(&self, balance: f64) -> BalanceKey {
        // The logarithm of zero sorts first.
        BalanceKey(balance.max(0.0).ln() + self.decayed)
    }
}

#[derive(Debug)]
struct Account {
    id: Arc<str>,
    /// The balance when the last client disconnected, or when the first one connected.
    base: f64,
    /// The number of connected clients, and the sum of (key − initial balance) over them.
    connected: u32,
    offset: f64,
    /// The number of clients here, connected or not.
    members: u32,
    /// The key of the decaying balance while no client is connected.
    key: BalanceKey,
    /// The balance in the last note.
    noted: Option<BalanceKey>,
    /// When the next note is due.
    due: Option<Millis>,
    /// The charges since the last note.
    moved: f64,
}

/// The inputs of a connected client's balance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ConnectedBalance {
    pub(crate) key: BalanceKey,
    began_with: f64,
}

#[derive(Debug)]
pub(crate) struct Accounts {
    accounts: Slab<Account>,
    by_id: HashMap<Arc<str>, u32, FixedState>,
    /// Accounts without clients here, the smallest balance first.
    away: BTreeSet<(BalanceKey, u32)>,
    /// Whether notes are written for peers.
    pub(crate) keeps_notes: bool,
    due: BTreeSet<(Millis, u32)>,
    noted: BTreeSet<(BalanceKey, u32)>,
    dropped: BTreeSet<Arc<str>>,
}

impl Accounts {
    pub(crate) fn new(seed: u64) -> Accounts {
        let by_id = HashMap::with_hasher(FixedState::with_seed(seed));
        Accounts {
            accounts: Slab::new(),
            by_id,
            away: BTreeSet::new(),
            keeps_notes: false,
            due: BTreeSet::new(),
            noted: BTreeSet::new(),
            dropped: BTreeSet::new(),
        }
    }

    /// The number of remembered balances of clients that are away.
    pub(crate) fn remembered(&self) -> usize {
        self.away.len()
    }

    /// Adds a client to its account. Returns the index of the account.
    pub(crate) fn join(&mut self, id: &Arc<str>) -> u32 {
        if let Some(at) = self.by_id.get(id).copied() {
            let account = &mut self.accounts[at as usize];
            if account.members == 0 {
                self.away.remove(&(account.key, at));
            }
            account.members += 1;
            return at;
        }
        let at = self.open(id);
        self.accounts[at as usize].members = 1;
        at
    }

    fn open(&mut self, id: &Arc<str>) -> u32 {
        let account = Account {
            id: Arc::clone(id),
            base: 0.0,
            connected: 0,
            offset: 0.0,
            members: 0,
            key: BalanceKey(f64::NEG_INFINITY),
            noted: None,
            due: None,
            moved: 0.0,
        };
        let at = self.accounts.insert(account) as u32;
        self.by_id.insert(Arc::clone(id), at);
        at
    }

    pub(crate) fn id(&self, at: u32) -> Arc<str> {
        Arc::clone(&self.accounts[at as usize].id)
    }

    /// Removes a disconnected client from its account. At most `maximum` accounts without clients are kept.
    pub(crate) fn leave(&mut self, at: u32, maximum: usize) {
        let account = &mut self.accounts[at as usize];
        account.members -= 1;
        if account.members > 0 {
            return;
        }
        if account.base > 0.0 {
            self.away.insert((account.key, at));
        } else {
            self.forget(at);
        }
        while self.away.len() > maximum
            && let Some((_, smallest)) = self.away.pop_first()
        {
            self.forget(smallest);
        }
    }

    fn forget(&mut self, at: u32) {
        let account = self.accounts.remove(at as usize);
        self.by_id.remove(&account.id);
        if let Some(due) = account.due {
            self.due.remove(&(due, at));
        }
        if let Some(noted) = account.noted {
            self.noted.remove(&(noted, at));
            self.dropped.insert(account.id);
        }
    }

    pub(crate) fn is(&self, at: u32, id: &str) -> bool {
        *self.accounts[at as usize].id == *id
    }

    /// The initial balance of a new client of this account.
    pub(crate) fn balance(&self, at: u32, clock: &Clock) -> f64 {
        let account = &self.accounts[at as usize];
        if account.connected == 0 {
            return clock.of_away(account.key);
        }
        account.base + account.offset + f64::from(account.connected) * clock.grown
    }

    /// The sort key of waiting clients.
    pub(crate) fn waiting_key(&self, at: u32, clock: &Clock) -> BalanceKey {
        clock.away(self.balance(at, clock))
    }

    pub(crate) fn connect(&mut self, at: u32, clock: &Clock) -> ConnectedBalance {
        let began_with = self.balance(at, clock);
        let account = &mut self.accounts[at as usize];
        if account.connected == 0 {
            account.base = began_with;
        }
        let key = clock.connected(began_with);
        account.connected += 1;
        account.offset += key.0 - began_with;
        self.note(at, 0.0, clock);
        ConnectedBalance { key, began_with }
    }

    /// Adds a cost to the balance of a connected client.
    pub(crate) fn charge(&mut self, at: u32, tab: &mut ConnectedBalance, cost: f64, clock: &Clock) {
        tab.key.0 += cost;
        self.accounts[at as usize].offset += cost;
        if cost > 0.0 {
            self.note(at, cost, clock);
        }
    }

    pub(crate) fn disconnect(&mut self, at: u32, tab: &ConnectedBalance, clock: &Clock) {
        let account = &mut self.accounts[at as usize];
        account.connected -= 1;
        account.offset -= tab.key.0 - tab.began_with;
        account.base += clock.of_connected(tab.key) - tab.began_with;
        if account.connected == 0 {
            // The last client has disconnected: drop the rounding error.
            account.offset = 0.0;
            account.key = clock.away(account.base);
        }
        self.note(at, 0.0, clock);
    }

    /// Marks the note about an account as outdated. Its balance has grown by `moved`, or it changes at another rate
    /// from now on.
    fn note(&mut self, at: u32, moved: f64, clock: &Clock) {
        if !self.keeps_notes {
            return;
        }
        let balance = self.balance(at, clock);
        let account = &mut self.accounts[at as usize];
        account.moved += moved;
        let is_large = account.noted.is_none() || account.moved > balance * LARGE_CHANGE;
        let due = match (is_large, moved > 0.0) {
            (true, _) => clock.at,
            (false, true) => clock.at.plus(MAX_NOTE_AGE),
            // The balance grows by one second per second more than the note assumes.
            (false, false) => clock.at.plus(until_large_change(balance, 1.0)),
        };
        if account.due.is_some_and(|before| before <= due) {
            return;
        }
        if let Some(before) = account.due.replace(due) {
            self.due.remove(&(before, at));
        }
        self.due.insert((due, at));
    }

    /// Marks all accounts as not noted, because notes were lost.
    pub(crate) fn note_anew(&mut self, now: Millis) {
        self.due = self.accounts.iter().map(|(at, _)| (now, at as u32)).collect();
        (self.noted, self.dropped) = Default::default();
        for (_, account) in &mut self.accounts {
            (account.noted, account.due, account.moved) = (None, Some(now), 0.0);
        }
    }

    pub(crate) fn has_notes(&self, now: Millis, all: bool) -> bool {
        !self.dropped.is_empty() || self.due.first().is_some_and(|(due, _)| all || *due <= now)
    }

    /// The notes that are due. If there are more balances than may be remembered, the smallest are omitted.
    pub(crate) fn take_notes(
        &mut self,
        clock: &Clock,
        budget: &mut NoteBudget,
        notes: &mut Vec<(Arc<str>, NotedBalance)>,
    ) {
        while budget.is_left()
            && let Some(id) = self.dropped.pop_first()
        {
            budget.take(&id);
            notes.push((id, NotedBalance::None));
        }
        while let Some((due, at)) = self.due.first().copied()
            && budget.takes(due)
        {
            self.due.pop_first();
            let key = self.waiting_key(at, clock);
            let account = &mut self.accounts[at as usize];
            (account.due, account.moved) = (None, 0.0);
            if let Some(before) = account.noted.replace(key) {
                self.noted.remove(&(before, at));
            }
            self.noted.insert((key, at));
            let noted = match account.connected {
                0 => NotedBalance::Away(key.0),
                clients => NotedBalance::Connected(account.base + account.offset, clients),
            };
            budget.take(&account.id);
            notes.push((Arc::clone(&account.id), noted));
            if self.noted.len() > budget.max_entries
                && let Some((_, smallest)) = self.noted.pop_first()
            {
                let account = &mut self.accounts[smallest as usize];
                account.noted = None;
                notes.push((Arc::clone(&account.id), NotedBalance::None));
            }
        }
    }

    /// Restores noted balances. Balances without a connected client decay from now on.
    pub(crate) fn restore(&mut self, noted: Vec<(Arc<str>, NotedBalance)>, clock: &Clock) {
        for (id, noted) in noted {
            let key = match noted {
                NotedBalance::Away(key) => BalanceKey(key),
                NotedBalance::Connected(base, clients) => clock.away(base + f64::from(clients) * clock.grown),
                NotedBalance::None => continue,
            };
            if self.by_id.contains_key(&id) {
                continue;
            }
            let at = self.open(&id);
            let account = &mut self.accounts[at as usize];
            (account.base, account.key, account.noted) = (clock.of_away(key), key, Some(key));
            self.away.insert((key, at));
            self.noted.insert((key, at));
            if matches!(noted, NotedBalance::Connected(..)) {
                self.note(at, 0.0, clock);
            }
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.accounts.capacity() * size_of::<Account>()
            + self.by_id.capacity() * size_of::<(Arc<str>, u32)>()
            + self.away.len() * size_of::<(BalanceKey, u32)>()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const HOUR: Millis = Millis::from_secs(3600);

    fn pass(clock: &mut Clock, seconds: u64) {
        let now = clock.at.plus(Millis::from_secs(seconds));
        clock.advance(now, 1.0, HOUR);
    }

    #[test]
    fn balances_grow_while_connected_and_decay_while_away() {
        let vectors: Value = serde_json::from_str(include_str!("../tests/data/les.json")).expect("valid JSON");
        let cases = vectors["free_client_balance"]["cases"].as_array().expect("cases");
        assert_eq!(cases.len(), 3);
        for case in cases {
            let seconds = |name: &str| case[name].as_u64().expect("seconds");
            let (mut clock, mut accounts) = (Clock::default(), Accounts::new(1));
            pass(&mut clock, 12_345);
            let at = accounts.join(&"a".into());
            let tab = accounts.connect(at, &clock);
            pass(&mut clock, seconds("connected_s"));
            accounts.disconnect(at, &tab, &clock);
            accounts.leave(at, 10);
            pass(&mut clock, seconds("away_s"));
            let at = accounts.join(&"a".into());
            let (found, expected) = (accounts.balance(at, &clock), case["balance"].as_f64().expect("a number"));
            assert!((found - expected).abs() < expected * 1e-6, "{case}: {found}");
        }
    }

    #[test]
    fn clients_of_one_address_pay_for_one_another() {
        let (mut clock, mut accounts) = (Clock::default(), Accounts::new(1));
        let at = accounts.join(&"a".into());
        let mut first = accounts.connect(at, &clock);
        pass(&mut clock, 100);
        assert_eq!(accounts.join(&"a".into()), at);
        let second = accounts.connect(at, &clock);
        assert_eq!(clock.of_connected(second.key), 100.0);
        accounts.charge(at, &mut first, 7.0, &clock);
        pass(&mut clock, 10);
        assert!((accounts.balance(at, &clock) - 127.0).abs() < 1e-9);
        accounts.disconnect(at, &second, &clock);
        assert!((accounts.balance(at, &clock) - 127.0).abs() < 1e-9);
        accounts.disconnect(at, &first, &clock);
        assert!((accounts.balance(at, &clock) - 127.0).abs() < 1e-9);
    }
}
