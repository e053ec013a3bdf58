//! Bounds on bytes that wait: bodies that are not complete, answers that are not sent.
//!
//! Limits on each of the things that wait do not bound their product: a thousand streams, each with an answer that is
//! as long as one may be, on ten thousand connections. So all of them are charged to one budget of the process, in
//! which no principal has more than its share, and to their connection. What is beyond is refused at once.
//!
//! A connection has a little for free, so that requests as they usually are touch nothing that threads share.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use bytes::{Buf, Bytes};
use leaseway_core::PrincipalShare;
use tonic::Status;

use crate::{config::limits::Limits, listen::accounts::Account};

/// What a connection may have without drawing on the budget of the process.
const FREE: usize = 16 << 10;
/// Connections draw on the budget in blocks of so many bytes.
const BLOCK: usize = 16 << 10;
/// What a request under way is charged besides what it holds: its stream, its task.
pub(crate) const REQUEST: usize = 1 << 10;
/// What an entry of a request is charged while it is under way, besides the first.
pub(crate) const ENTRY: usize = 512;

/// The budget of the process.
#[derive(Debug)]
pub(crate) struct Budget {
    used: AtomicUsize,
    most: usize,
    most_of_connection: usize,
    share: PrincipalShare,
}

/// More than may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BeyondBudget {
    #[error(
        "as many bytes wait for this connection as may ({0}): read answers and finish requests before you send more; \
         the server can be started with a larger --max-connection-bytes"
    )]
    Connection(usize),
    #[error(
        "as many bytes wait for your identity or address as may while others could need the rest of {0}: read answers \
         and finish requests before you send more; the server can be started with a larger --max-waiting-bytes or \
         --address-share"
    )]
    Principal(usize),
    #[error(
        "as many bytes wait in this server as may ({0}): try again later; it can be started with a larger \
         --max-waiting-bytes"
    )]
    Process(usize),
}

impl From<BeyondBudget> for Status {
    fn from(why: BeyondBudget) -> Status {
        Status::resource_exhausted(why.to_string())
    }
}

impl Budget {
    pub(crate) fn within(limits: &Limits) -> Budget {
        Budget::new(limits.waiting_bytes, limits.bytes_of_connection(), limits.share())
    }

    pub(crate) fn new(most: usize, most_of_connection: usize, share: PrincipalShare) -> Budget {
        Budget { used: AtomicUsize::new(0), most, most_of_connection, share }
    }

    /// Bytes that connections have drawn.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn draw(&self, bytes: usize, account: &Account) -> Result<(), BeyondBudget> {
        let own = account.bytes.fetch_add(bytes, Ordering::Relaxed);
        let used = self.used.fetch_add(bytes, Ordering::Relaxed);
        if self.share.allows(own, bytes, used, self.most) {
            return Ok(());
        }
        self.give_back(bytes, account);
        let is_full = used.saturating_add(bytes) > self.most;
        Err(if is_full { BeyondBudget::Process(self.most) } else { BeyondBudget::Principal(self.most) })
    }

    fn give_back(&self, bytes: usize, account: &Account) {
        account.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// What waits for one connection.
#[derive(Debug)]
pub(crate) struct ConnectionBudget {
    budget: Arc<Budget>,
    /// Whose it is. Locked where something is drawn or given back, which few requests cause.
    account: Mutex<Arc<Account>>,
    /// In its lower half all that is charged; in its upper half what of it are answers that wait to be sent.
    held: AtomicU64,
    /// Written with the account locked.
    drawn: AtomicUsize,
    /// Requests that have come.
    calls: AtomicU64,
}

/// What a connection has done: the same again if it has done nothing since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Activity {
    calls: u64,
    held: u64,
}

impl Activity {
    /// Whether no request is under way.
    pub(crate) fn is_idle(self) -> bool {
        self.held == 0
    }

    /// Whether answers wait to be sent.
    pub(crate) fn has_answers(self) -> bool {
        self.held >> 32 != 0
    }
}

/// What is charged: requests under way and what they hold, or answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChargeKind {
    Request,
    Answer,
}

impl ChargeKind {
    fn packed(self, bytes: usize) -> u64 {
        let bytes = bytes as u64;
        match self {
            ChargeKind::Request => bytes,
            ChargeKind::Answer => bytes | bytes << 32,
        }
    }
}

fn charged(held: u64) -> usize {
    (held & u64::from(u32::MAX)) as usize
}

fn to_be_drawn(charged: usize) -> usize {
    charged.saturating_sub(FREE).next_multiple_of(BLOCK)
}

impl ConnectionBudget {
    pub(crate) fn new(budget: Arc<Budget>, account: Arc<Account>) -> ConnectionBudget {
        ConnectionBudget {
            budget,
            account: Mutex::new(account),
            held: AtomicU64::new(0),
            drawn: AtomicUsize::new(0),
            calls: AtomicU64::new(0),
        }
    }

    /// What has happened so far.
    pub(crate) fn activity(&self) -> Activity {
        Activity { calls: self.calls.load(Ordering::Relaxed), held: self.held.load(Ordering::Relaxed) }
    }

    /// A request has come. Only the thread of the connection calls this.
    fn called(&self) {
        self.calls.store(self.calls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    fn add(&self, bytes: usize, kind: ChargeKind) -> Result<(), BeyondBudget> {
        let most = self.budget.most_of_connection;
        // The halves of the count must not run over.
        if bytes > most {
            return Err(BeyondBudget::Connection(most));
        }
        let after = charged(self.held.fetch_add(kind.packed(bytes), Ordering::Relaxed)) + bytes;
        let outcome = if after > most { Err(BeyondBudget::Connection(most)) } else { self.draw(after) };
        if outcome.is_err() {
            self.held.fetch_sub(kind.packed(bytes), Ordering::Relaxed);
        }
        outcome
    }

    fn account(&self) -> MutexGuard<'_, Arc<Account>> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What waits for it is counted to another account from here on.
    pub(crate) fn count_to(&self, account: &Arc<Account>) {
        let mut own = self.account();
        let before = std::mem::replace(&mut *own, Arc::clone(account));
        let drawn = self.drawn.load(Ordering::Relaxed);
        own.bytes.fetch_add(drawn, Ordering::Relaxed);
        before.bytes.fetch_sub(drawn, Ordering::Relaxed);
    }

    fn draw(&self, charged: usize) -> Result<(), BeyondBudget> {
        let wanted = to_be_drawn(charged);
        if wanted > self.drawn.load(Ordering::Relaxed) {
            let account = self.account();
            let missing = wanted.saturating_sub(self.drawn.load(Ordering::Relaxed));
            if missing > 0 {
                self.budget.draw(missing, &account)?;
                self.drawn.fetch_add(missing, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    fn subtract(&self, bytes: usize, kind: ChargeKind) {
        let left = charged(self.held.fetch_sub(kind.packed(bytes), Ordering::Relaxed)) - bytes;
        // One block is kept while there are more: the next request may need it again.
        let keep = |left| if left <= FREE { 0 } else { to_be_drawn(left) + BLOCK };
        if self.drawn.load(Ordering::Relaxed) > keep(left) {
            let account = self.account();
            let (drawn, kept) = (self.drawn.load(Ordering::Relaxed), keep(charged(self.held.load(Ordering::Relaxed))));
            self.drawn.store(drawn.min(kept), Ordering::Relaxed);
            self.budget.give_back(drawn.saturating_sub(kept), &account);
        }
    }
}

impl Drop for ConnectionBudget {
    fn drop(&mut self) {
        let drawn = *self.drawn.get_mut();
        self.budget.give_back(drawn, &self.account());
    }
}

/// Bytes that are charged for as long as this lives.
#[derive(Debug)]
pub(crate) struct Charge {
    connection: Arc<ConnectionBudget>,
    bytes: usize,
    kind: ChargeKind,
}

impl Charge {
    /// Of a request and what it holds.
    pub(crate) fn request(connection: &Arc<ConnectionBudget>, bytes: usize) -> Result<Charge, BeyondBudget> {
        connection.called();
        Charge::new(connection, bytes, ChargeKind::Request)
    }

    /// Of what comes of a request besides.
    pub(crate) fn part(connection: &Arc<ConnectionBudget>, bytes: usize) -> Result<Charge, BeyondBudget> {
        Charge::new(connection, bytes, ChargeKind::Request)
    }

    pub(crate) fn answer(connection: &Arc<ConnectionBudget>, bytes: usize) -> Result<Charge, BeyondBudget> {
        Charge::new(connection, bytes, ChargeKind::Answer)
    }

    fn new(connection: &Arc<ConnectionBudget>, bytes: usize, kind: ChargeKind) -> Result<Charge, BeyondBudget> {
        connection.add(bytes, kind)?;
        Ok(Charge { connection: Arc::clone(connection), bytes, kind })
    }

    /// The same for so many bytes. What was charged stays so if there are too many.
    pub(crate) fn resize(&mut self, bytes: usize) -> Result<(), BeyondBudget> {
        if bytes == self.bytes {
            return Ok(());
        }
        if bytes > self.bytes {
            self.connection.add(bytes - self.bytes, self.kind)?;
        } else {
            self.connection.subtract(self.bytes - bytes, self.kind);
        }
        self.bytes = bytes;
        Ok(())
    }

    /// The request has its answer, and that has so many bytes.
    pub(crate) fn answered(mut self, bytes: usize) -> Result<Charge, BeyondBudget> {
        self.resize(bytes.max(REQUEST))?;
        self.connection.held.fetch_add(
            ChargeKind::Answer.packed(self.bytes) - ChargeKind::Request.packed(self.bytes),
            Ordering::Relaxed,
        );
        self.kind = ChargeKind::Answer;
        Ok(self)
    }

    /// How much is charged.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// For what else the same connection is charged.
    pub(crate) fn connection(&self) -> &Arc<ConnectionBudget> {
        &self.connection
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.connection.subtract(self.bytes, self.kind);
    }
}

/// Bytes to be sent, charged until they are.
pub(crate) struct ChargedBytes {
    pub(crate) bytes: Bytes,
    /// What is not worth charging has none.
    pub(crate) charge: Option<Charge>,
}

impl Buf for ChargedBytes {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        if self.bytes.is_empty() {
            self.charge = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use leaseway_core::PrincipalShare;

    use super::*;
    use crate::listen::accounts::Accounts;

    const MAX_BYTES: usize = 1 << 20;

    struct Payers {
        accounts: Accounts,
        budget: Arc<Budget>,
    }

    impl Payers {
        fn new(most_of_connection: usize) -> Payers {
            let budget =
                Arc::new(Budget::new(MAX_BYTES, most_of_connection, PrincipalShare::new(0.5).expect("a part")));
            Payers { accounts: Accounts::default(), budget }
        }

        fn connection(&self, last: u8) -> Arc<ConnectionBudget> {
            let account = self.accounts.of_address([10, 0, 0, last].into());
            Arc::new(ConnectionBudget::new(Arc::clone(&self.budget), account))
        }
    }

    #[test]
    fn usual_requests_draw_on_nothing_that_is_shared() {
        let world = Payers::new(MAX_BYTES);
        let connection = world.connection(1);
        let few: Vec<_> = (0..FREE / REQUEST).map(|_| Charge::request(&connection, REQUEST)).collect();
        assert!(few.iter().all(Result::is_ok) && world.budget.used() == 0);
        let one_more = Charge::request(&connection, REQUEST).expect("there is room");
        assert_eq!(world.budget.used(), BLOCK);
        drop((few, one_more));
        assert_eq!((world.budget.used(), connection.activity().is_idle()), (0, true));
    }

    #[test]
    fn a_connection_an_address_and_the_process_have_their_bounds() {
        let world = Payers::new(MAX_BYTES / 4);
        let refused = |connection: Arc<ConnectionBudget>| Charge::answer(&connection, MAX_BYTES / 4).err();
        let first = world.connection(1);
        let _a = Charge::answer(&first, MAX_BYTES / 4).expect("as much as it may");
        assert_eq!(Charge::request(&first, 1).err(), Some(BeyondBudget::Connection(MAX_BYTES / 4)));
        assert_eq!(Charge::answer(&first, usize::MAX).err(), Some(BeyondBudget::Connection(MAX_BYTES / 4)));
        let _b = Charge::answer(&world.connection(1), MAX_BYTES / 4).expect("half of all");
        assert_eq!(refused(world.connection(1)), Some(BeyondBudget::Principal(MAX_BYTES)));
        let _c = Charge::answer(&world.connection(2), MAX_BYTES / 4).expect("half of the rest");
        assert_eq!(refused(world.connection(2)), Some(BeyondBudget::Principal(MAX_BYTES)));
        let before = world.budget.used();
        assert_eq!(refused(world.connection(3)), Some(BeyondBudget::Principal(MAX_BYTES)));
        let _d = Charge::answer(&world.connection(3), MAX_BYTES / 8).expect("half of what is left then");
        assert!(world.budget.used() > before && world.budget.used() <= MAX_BYTES);
    }

    #[test]
    fn what_waits_is_counted_to_whom_the_connection_is_found_to_belong() {
        let world = Payers::new(MAX_BYTES);
        let (connection, identity) = (world.connection(1), world.accounts.of_identity(&"web".into()));
        let bytes = |account: &Account| account.bytes.load(Ordering::Relaxed);
        let address = world.accounts.of_address([10, 0, 0, 1].into());
        let before = Charge::answer(&connection, MAX_BYTES / 4).expect("there is room");
        let waiting = bytes(&address);
        assert!(waiting > 0);
        connection.count_to(&identity);
        assert_eq!((bytes(&address), bytes(&identity)), (0, waiting));
        let after = Charge::answer(&connection, MAX_BYTES / 8).expect("there is room");
        assert!(bytes(&identity) > waiting);
        drop((before, after));
        assert_eq!((bytes(&address), bytes(&identity), world.budget.used()), (0, 0, 0));
    }

    #[test]
    fn a_budget_that_is_used_up_says_so() {
        let world = Payers {
            budget: Arc::new(Budget::new(MAX_BYTES, MAX_BYTES, PrincipalShare::ALL)),
            ..Payers::new(MAX_BYTES)
        };
        let _all = Charge::answer(&world.connection(1), MAX_BYTES).expect("all of it");
        let _free = Charge::answer(&world.connection(2), FREE).expect("what is free is");
        assert_eq!(Charge::answer(&world.connection(3), FREE + 1).err(), None, "the last block");
        assert_eq!(Charge::answer(&world.connection(3), 2 * FREE + 1).err(), Some(BeyondBudget::Process(MAX_BYTES)));
    }

    #[test]
    fn what_is_written_is_not_charged_any_more_and_neither_is_what_is_dropped() {
        let world = Payers::new(MAX_BYTES);
        let connection = world.connection(1);
        let charged = |bytes: usize| {
            let charge = Charge::request(&connection, REQUEST).and_then(|request| request.answered(bytes));
            ChargedBytes { bytes: vec![0; bytes].into(), charge: Some(charge.expect("there is room")) }
        };
        let mut written = charged(100_000);
        assert!(connection.activity().has_answers() && world.budget.used() > 0);
        written.advance(99_999);
        assert!(connection.activity().has_answers());
        written.advance(1);
        assert!(connection.activity().is_idle() && world.budget.used() == 0);
        drop(charged(100_000));
        assert!(connection.activity().is_idle() && world.budget.used() == 0);
    }
}
