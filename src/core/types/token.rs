//! Tokens name leases, so that a holder can prove which one it knows.
//!
//! A token is a number that only rises. Each master of a resource begins a new *epoch*, which starts above all tokens
//! given out before, so a token also shows whether this epoch gave it. The caller picks the start (from the clock, or
//! from what a quorum agreed on); within an epoch tokens are consecutive.

use std::num::NonZeroU64;

/// Names one lease. Opaque to holders. Never zero, so that a record can do without one for free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Token(NonZeroU64);

impl Token {
    /// Stands for claimed inherited leases: older than all tokens of an epoch that inherits.
    pub(crate) const INHERITED: Token = Token(NonZeroU64::MIN);

    /// From the wire. Zero names nothing.
    pub fn new(number: u64) -> Option<Token> {
        NonZeroU64::new(number).map(Token)
    }

    pub fn get(self) -> u64 {
        self.0.get()
    }

    pub fn first(epoch: Epoch) -> Token {
        Token(NonZeroU64::MIN.saturating_add(epoch.0))
    }

    /// The last before an epoch.
    pub(crate) fn last_before(epoch: Epoch) -> Option<Token> {
        Token::new(epoch.0)
    }

    pub(crate) fn next(self) -> Token {
        Token(self.0.saturating_add(1))
    }
}

/// Where an epoch's tokens start.
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

    /// Whether this epoch gave `token` out.
    pub(crate) fn issued(&self, token: Token) -> bool {
        (self.first..self.next).contains(&token)
    }

    /// Whether an earlier master gave `token` out, if its epochs and this one are of one sequence.
    pub(crate) fn is_former(&self, token: Token) -> bool {
        token < self.first
    }
}
