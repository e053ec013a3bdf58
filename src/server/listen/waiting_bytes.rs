//! Bounds on waiting bytes: incomplete bodies and unsent answers.
//!
//! Limits per stream do not bound the product: ten thousand connections may have a thousand streams each, with answers
//! of the maximum size. So waiting bytes are charged to their connection and to the waiting bytes of the process, in
//! which no principal has more than its share. Excess requests are refused immediately.
//!
//! Each connection has a free allowance, so that ordinary requests touch no memory that threads share.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use bytes::{Buf, Bytes};
use leaseway_core::types::PrincipalShare;
use tonic::Status;

use crate::{config::limits::Limits, listen::accounts::Account};

/// The free allowance of a connection, in bytes.
const FREE: usize = 16 << 10;
/// Connections draw waiting bytes in blocks of this size.
const BLOCK: usize = 16 << 10;
/// Bytes charged for the stream and task of a request, in addition to its own bytes.
pub(crate) const REQUEST: usize = 1 << 10;
/// Bytes charged for each entry of a request except the first.
pub(crate) const ENTRY: usize = 512;
/// Number of nested entries that take as much memory as one top-level entry.
pub(crate) const NESTED_PER_ENTRY: usize = 16;

/// The waiting bytes of the process, and their limits.
#[derive(Debug)]
pub(crate) struct WaitingBytes {
    used: AtomicUsize,
    most: usize,
    most_of_connection: usize,
    share: PrincipalShare,
}

/// The limit that a charge exceeds, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TooManyBytes {
    #[error(
        "too many bytes buffered for this connection (limit {0}): read answers and finish requests before you send more, or raise the server's --max-connection-bytes"
    )]
    Connection(usize),
    #[error(
        "too many bytes buffered for your identity or address (each may use only a share of {0}): read answers and \
         finish requests before you send more, or raise the server's --max-waiting-bytes or --address-share"
    )]
    Principal(usize),
    #[error(
        "too many bytes buffered in this server (limit {0}): try again later, or raise the server's \
         --max-waiting-bytes"
    )]
    Process(usize),
}

impl From<TooManyBytes> for Status {
    fn from(why: TooManyBytes) -> Status {
        Status::resource_exhausted(why.to_string())
    }
}

impl WaitingBytes {
    pub(crate) fn within(limits: &Limits) -> WaitingBytes {
        WaitingBytes::new(limits.waiting_bytes, limits.bytes_of_connection(), limits.share())
    }

    pub(crate) fn new(most: usize, most_of_connection: usize, share: PrincipalShare) -> WaitingBytes {
        WaitingBytes { used: AtomicUsize::new(0), most, most_of_connection, share }
    }

    /// The bytes that connections have drawn.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn draw(&self, bytes: usize, account: &Account) -> Result<(), TooManyBytes> {
        let own = account.bytes.fetch_add(bytes, Ordering::Relaxed);
        let used = self.used.fetch_add(bytes, Ordering::Relaxed);
        if self.share.allows(own, bytes, used, self.most) {
            return Ok(());
        }
        self.give_back(bytes, account);
        let is_full = used.saturating_add(bytes) > self.most;
        Err(if is_full { TooManyBytes::Process(self.most) } else { TooManyBytes::Principal(self.most) })
    }

    fn give_back(&self, bytes: usize, account: &Account) {
        account.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The waiting bytes of one connection.
#[derive(Debug)]
pub(crate) struct ConnectionBytes {
    waiting_bytes: Arc<WaitingBytes>,
    /// The account that is charged. Locked while bytes are drawn or given back, which few requests cause.
    account: Mutex<Arc<Account>>,
    /// The lower 32 bits count all charged bytes, the upper 32 bits those of unsent answers.
    held: AtomicU64,
    /// Bytes drawn from the limit of the process. Written while the account is locked.
    drawn: AtomicUsize,
    /// The number of requests received.
    calls: AtomicU64,
}

/// A snapshot of a connection. If two snapshots are equal, there was no activity in between.
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

impl ConnectionBytes {
    pub(crate) fn new(waiting_bytes: Arc<WaitingBytes>, account: Arc<Account>) -> ConnectionBytes {
        ConnectionBytes {
            waiting_bytes,
            account: Mutex::new(account),
            held: AtomicU64::new(0),
            drawn: AtomicUsize::new(0),
            calls: AtomicU64::new(0),
        }
    }

    pub(crate) fn activity(&self) -> Activity {
        Activity { calls: self.calls.load(Ordering::Relaxed), held: self.held.load(Ordering::Relaxed) }
    }

    /// Counts a request. Only the thread of the connection calls this.
    fn called(&self) {
        self.calls.store(self.calls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    fn add(&self, bytes: usize, kind: ChargeKind) -> Result<(), TooManyBytes> {
        let most = self.waiting_bytes.most_of_connection;
        // Neither half of the count may overflow.
        if bytes > most {
            return Err(TooManyBytes::Connection(most));
        }
        let after = charged(self.held.fetch_add(kind.packed(bytes), Ordering::Relaxed)) + bytes;
        let outcome = if after > most { Err(TooManyBytes::Connection(most)) } else { self.draw(after) };
        if outcome.is_err() {
            self.held.fetch_sub(kind.packed(bytes), Ordering::Relaxed);
        }
        outcome
    }

    fn account(&self) -> MutexGuard<'_, Arc<Account>> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves the charge for this connection to another account.
    pub(crate) fn count_to(&self, account: &Arc<Account>) {
        let mut own = self.account();
        let before = std::mem::replace(&mut *own, Arc::clone(account));
        let drawn = self.drawn.load(Ordering::Relaxed);
        own.bytes.fetch_add(drawn, Ordering::Relaxed);
        before.bytes.fetch_sub(drawn, Ordering::Relaxed);
    }

    fn draw(&self, charged: usize) -> Result<(), TooManyBytes> {
        let wanted = to_be_drawn(charged);
        if wanted > self.drawn.load(Ordering::Relaxed) {
            let account = self.account();
            let missing = wanted.saturating_sub(self.drawn.load(Ordering::Relaxed));
            if missing > 0 {
                self.waiting_bytes.draw(missing, &account)?;
                self.drawn.fetch_add(missing, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    fn subtract(&self, bytes: usize, kind: ChargeKind) {
        let left = charged(self.held.fetch_sub(kind.packed(bytes), Ordering::Relaxed)) - bytes;
        // One spare block is kept, because the next request may need it.
        let keep = |left| if left <= FREE { 0 } else { to_be_drawn(left) + BLOCK };
        if self.drawn.load(Ordering::Relaxed) > keep(left) {
            let account = self.account();
            let (drawn, kept) = (self.drawn.load(Ordering::Relaxed), keep(charged(self.held.load(Ordering::Relaxed))));
            self.drawn.store(drawn.min(kept), Ordering::Relaxed);
            self.waiting_bytes.give_back(drawn.saturating_sub(kept), &account);
        }
    }
}

impl Drop for ConnectionBytes {
    fn drop(&mut self) {
        let drawn = *self.drawn.get_mut();
        self.waiting_bytes.give_back(drawn, &self.account());
    }
}

/// Bytes that are charged until this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    connection: Arc<ConnectionBytes>,
    bytes: usize,
    kind: ChargeKind,
}

impl Charge {
    /// Charges a request and its bytes.
    pub(crate) fn request(connection: &Arc<ConnectionBytes>, bytes: usize) -> Result<Charge, TooManyBytes> {
        connection.called();
        Charge::new(connection, bytes, ChargeKind::Request)
    }

    /// Charges further bytes of a request.
    pub(crate) fn part(connection: &Arc<ConnectionBytes>, bytes: usize) -> Result<Charge, TooManyBytes> {
        Charge::new(connection, bytes, ChargeKind::Request)
    }

    pub(crate) fn answer(connection: &Arc<ConnectionBytes>, bytes: usize) -> Result<Charge, TooManyBytes> {
        Charge::new(connection, bytes, ChargeKind::Answer)
    }

    fn new(connection: &Arc<ConnectionBytes>, bytes: usize, kind: ChargeKind) -> Result<Charge, TooManyBytes> {
        connection.add(bytes, kind)?;
        Ok(Charge { connection: Arc::clone(connection), bytes, kind })
    }

    /// Changes the number of bytes. If that fails, the charge is unchanged.
    pub(crate) fn resize(&mut self, bytes: usize) -> Result<(), TooManyBytes> {
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

    /// Turns the charge of a request into that of its answer, which has this number of bytes.
    pub(crate) fn answered(mut self, bytes: usize) -> Result<Charge, TooManyBytes> {
        self.resize(bytes.max(REQUEST))?;
        self.connection.held.fetch_add(
            ChargeKind::Answer.packed(self.bytes) - ChargeKind::Request.packed(self.bytes),
            Ordering::Relaxed,
        );
        self.kind = ChargeKind::Answer;
        Ok(self)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn connection(&self) -> &Arc<ConnectionBytes> {
        &self.connection
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.connection.subtract(self.bytes, self.kind);
    }
}

/// Unsent bytes with their charge.
pub(crate) struct ChargedBytes {
    pub(crate) bytes: Bytes,
    /// `None` for short pages that are not charged, such as error pages.
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
    use leaseway_core::types::PrincipalShare;

    use super::*;
    use crate::listen::accounts::Accounts;

    const MAX_BYTES: usize = 1 << 20;

    struct Payers {
        accounts: Accounts,
        waiting_bytes: Arc<WaitingBytes>,
    }

    impl Payers {
        fn new(most_of_connection: usize) -> Payers {
            let waiting_bytes =
                Arc::new(WaitingBytes::new(MAX_BYTES, most_of_connection, PrincipalShare::new(0.5).expect("a part")));
            Payers { accounts: Accounts::default(), waiting_bytes }
        }

        fn connection(&self, last: u8) -> Arc<ConnectionBytes> {
            let account = self.accounts.of_address([10, 0, 0, last].into());
            Arc::new(ConnectionBytes::new(Arc::clone(&self.waiting_bytes), account))
        }
    }

    #[test]
    fn ordinary_requests_use_the_free_allowance() {
        let payers = Payers::new(MAX_BYTES);
        let connection = payers.connection(1);
        let few: Vec<_> = (0..FREE / REQUEST).map(|_| Charge::request(&connection, REQUEST)).collect();
        assert!(few.iter().all(Result::is_ok) && payers.waiting_bytes.used() == 0);
        let one_more = Charge::request(&connection, REQUEST).expect("there is room");
        assert_eq!(payers.waiting_bytes.used(), BLOCK);
        drop((few, one_more));
        assert_eq!((payers.waiting_bytes.used(), connection.activity().is_idle()), (0, true));
    }

    #[test]
    fn waiting_bytes_are_bounded_per_connection_per_address_and_in_total() {
        let payers = Payers::new(MAX_BYTES / 4);
        let refused = |connection: Arc<ConnectionBytes>| Charge::answer(&connection, MAX_BYTES / 4).err();
        let first = payers.connection(1);
        let _a = Charge::answer(&first, MAX_BYTES / 4).expect("as much as it may");
        assert_eq!(Charge::request(&first, 1).err(), Some(TooManyBytes::Connection(MAX_BYTES / 4)));
        assert_eq!(Charge::answer(&first, usize::MAX).err(), Some(TooManyBytes::Connection(MAX_BYTES / 4)));
        let _b = Charge::answer(&payers.connection(1), MAX_BYTES / 4).expect("half of all");
        assert_eq!(refused(payers.connection(1)), Some(TooManyBytes::Principal(MAX_BYTES)));
        let _c = Charge::answer(&payers.connection(2), MAX_BYTES / 4).expect("half of the rest");
        assert_eq!(refused(payers.connection(2)), Some(TooManyBytes::Principal(MAX_BYTES)));
        let before = payers.waiting_bytes.used();
        assert_eq!(refused(payers.connection(3)), Some(TooManyBytes::Principal(MAX_BYTES)));
        let _d = Charge::answer(&payers.connection(3), MAX_BYTES / 8).expect("half of what is left then");
        assert!(payers.waiting_bytes.used() > before && payers.waiting_bytes.used() <= MAX_BYTES);
    }

    #[test]
    fn waiting_bytes_move_to_the_identity_of_the_connection() {
        let payers = Payers::new(MAX_BYTES);
        let (connection, identity) = (payers.connection(1), payers.accounts.of_identity(&"web".into()));
        let bytes = |account: &Account| account.bytes.load(Ordering::Relaxed);
        let address = payers.accounts.of_address([10, 0, 0, 1].into());
        let before = Charge::answer(&connection, MAX_BYTES / 4).expect("there is room");
        let waiting = bytes(&address);
        assert!(waiting > 0);
        connection.count_to(&identity);
        assert_eq!((bytes(&address), bytes(&identity)), (0, waiting));
        let after = Charge::answer(&connection, MAX_BYTES / 8).expect("there is room");
        assert!(bytes(&identity) > waiting);
        drop((before, after));
        assert_eq!((bytes(&address), bytes(&identity), payers.waiting_bytes.used()), (0, 0, 0));
    }

    #[test]
    fn the_budget_of_the_process_is_a_bound() {
        let waiting_bytes = Arc::new(WaitingBytes::new(MAX_BYTES, MAX_BYTES, PrincipalShare::ALL));
        let payers = Payers { waiting_bytes, ..Payers::new(MAX_BYTES) };
        let _all = Charge::answer(&payers.connection(1), MAX_BYTES).expect("all of it");
        let refused = Charge::answer(&payers.connection(2), MAX_BYTES / 2).err();
        assert_eq!(refused, Some(TooManyBytes::Process(MAX_BYTES)));
        assert!(Charge::answer(&payers.connection(2), FREE).is_ok(), "the free allowance remains");
    }

    #[test]
    fn sent_and_dropped_answers_are_not_charged() {
        let payers = Payers::new(MAX_BYTES);
        let connection = payers.connection(1);
        let charged = |bytes: usize| {
            let charge = Charge::request(&connection, REQUEST).and_then(|request| request.answered(bytes));
            ChargedBytes { bytes: vec![0; bytes].into(), charge: Some(charge.expect("there is room")) }
        };
        let mut written = charged(100_000);
        assert!(connection.activity().has_answers() && payers.waiting_bytes.used() > 0);
        written.advance(99_999);
        assert!(connection.activity().has_answers());
        written.advance(1);
        assert!(connection.activity().is_idle() && payers.waiting_bytes.used() == 0);
        drop(charged(100_000));
        assert!(connection.activity().is_idle() && payers.waiting_bytes.used() == 0);
    }
}
