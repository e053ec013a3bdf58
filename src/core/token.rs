//! Tokens name leases, so that a holder can prove which one it knows.
//!
//! A token is a number that only rises. Each life of a resource on a master — its *term* — starts counting above everything
//! given out before, so a token also tells whether this term gave it. The caller picks the start (from the clock, or from
//! what a quorum agreed on); within a term tokens are consecutive.

/// Names one lease. Opaque to holders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// Where a term's tokens start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Term(pub u64);

/// The tokens of one term.
#[derive(Debug)]
pub(crate) struct Tokens {
    first: u64,
    next: u64,
}

impl Tokens {
    pub(crate) fn new(term: Term) -> Tokens {
        Tokens { first: term.0, next: term.0 }
    }

    pub(crate) fn issue(&mut self) -> Token {
        let token = Token(self.next);
        self.next += 1;
        token
    }

    /// Whether this term gave `token` out.
    pub(crate) fn issued(&self, token: Token) -> bool {
        (self.first..self.next).contains(&token.0)
    }
}
