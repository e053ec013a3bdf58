//! Tokens name leases, so that holders can prove which lease they know.
//!
//! Tokens increase. Each master of a resource begins a new *epoch* above all earlier tokens, so a token also shows
//! whether this epoch issued it. The caller chooses the start of an epoch, from the clock or from a quorum's agreement.
//! Within an epoch tokens are consecutive.

use std::num::NonZeroU64;

/// Names one lease. Opaque to holders. Never zero, so that `Option<Token>` takes no extra space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Token(NonZeroU64);

impl Token {
    /// Stands for claimed inherited leases: older than all tokens of an inheriting epoch.
    pub(crate) const INHERITED: Token = Token(NonZeroU64::MIN);

    /// From the wire; zero means none.
    pub fn new(number: u64) -> Option<Token> {
        NonZeroU64::new(number).map(Token)
    }

    pub fn get(self) -> u64 {
        self.0.get()
    }

    pub fn first(epoch: Epoch) -> Token {
        Token(NonZeroU64::MIN.saturating_add(epoch.0))
    }

    /// The last token before an epoch.
    pub(crate) fn last_before(epoch: Epoch) -> Option<Token> {
        Token::new(epoch.0)
    }

    pub(crate) fn next(self) -> Token {
        Token(self.0.saturating_add(1))
    }
}

/// The start of an epoch's tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Epoch(pub u64);

/// The tokens of one epoch.
#[derive(Debug)]
pub(crate) struct Tokens {
    first: Token,
    next: Token,
}

impl Tokens {
    pub(crate) fn new(epoch: Epoch) -> Tokens {
        let first = Token::first(epoch);
        Tokens { first, next: first }
    }

    pub(crate) fn epoch(&self) -> Epoch {
        Epoch(self.first.get() - 1)
    }

    pub(crate) fn next(&self) -> Token {
        self.next
    }

    pub(crate) fn issue(&mut self) -> Token {
        let token = self.next;
        self.next = token.next();
        token
    }

    /// Whether this epoch issued `token`.
    pub(crate) fn issued(&self, token: Token) -> bool {
        (self.first..self.next).contains(&token)
    }

    /// Whether an earlier master issued `token`. Only correct if the epochs of all masters belong to one sequence.
    pub(crate) fn is_former(&self, token: Token) -> bool {
        token < self.first
    }
}
