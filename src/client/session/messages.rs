//! What goes into a session and what comes out of it.

use std::sync::Arc;

use leaseway_core::{Condensed, Millis};

use crate::session::{
    capacity::Capacity,
    lease::{Lease, Wire},
};

/// What is asked for, of one resource.
pub trait Demand: Clone {
    /// Whether it differs so much from what was `asked` for last that it should not wait for the next refresh.
    fn is_urgent(&self, asked: &Self) -> bool;
    /// All of it, as a number: what optimistic mode uses.
    fn amount(&self) -> f64;
}

/// What a child node asks for: what its holders want together.
impl Demand for Condensed {
    /// Resources say themselves when their parent should hear of them early.
    fn is_urgent(&self, _: &Condensed) -> bool {
        false
    }

    fn amount(&self) -> f64 {
        self.claims.iter().map(|claim| claim.wants.get()).sum()
    }
}

/// Something to send.
#[derive(Debug, Clone, PartialEq)]
pub struct Outgoing<D> {
    /// Names it in what is reported back.
    pub number: u64,
    /// Where to, as `host:port`.
    pub target: Arc<str>,
    /// Give up then.
    pub deadline: Millis,
    pub body: Body<D>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Body<D> {
    /// Asks for capacity.
    Ask(Vec<Ask<D>>),
    /// Gives leases back.
    Release(Vec<Release>),
}

/// One resource of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask<D> {
    pub id: Arc<str>,
    pub demand: D,
    /// The newest lease, while it lives.
    pub has: Option<Lease>,
    /// The newest lease once it has ended: a new master may have it among what was promised.
    pub had: Option<Lease>,
}

/// One resource that is given back.
#[derive(Debug, Clone, PartialEq)]
pub struct Release {
    pub id: Arc<str>,
    /// The newest lease known of.
    pub token: Option<u64>,
}

/// One resource of an answer, as the server gave it.
#[derive(Debug, Clone, PartialEq)]
pub struct Given {
    pub id: Arc<str>,
    /// How long, counted from when the request was sent.
    pub length: Millis,
    /// Ask again after so long.
    pub refresh: Millis,
    /// Its name, if it has one.
    pub token: Option<u64>,
    pub wire: Wire,
    /// What to use once the lease has ended.
    pub safe: Option<f64>,
}

/// What a resource may be used at now, and why.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Usable {
    pub capacity: Capacity,
    /// Because of this.
    pub basis: Basis,
}

/// Why a capacity is what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// No answer yet, and no failure either.
    Unknown,
    /// There is a live lease.
    Lease,
    /// The lease has ended, or none could be had: the [`Mode`](crate::Mode) decides.
    Fallback,
}
