//! How much of a resource may be used.

/// How much may be used now: finite and not negative, or without limit. Never NaN.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Capacity(f64);

impl Capacity {
    /// Nothing may be used.
    pub const NONE: Capacity = Capacity(0.0);
    /// There is no limit.
    pub const UNLIMITED: Capacity = Capacity(f64::INFINITY);

    /// So much. What is negative or not a number counts as nothing: a limiter must never open because of a bad number.
    pub fn of(amount: f64) -> Capacity {
        // `max` also turns NaN into zero.
        Capacity(amount.max(0.0))
    }

    /// A safe capacity as a server sends it, where a negative number means that there is no limit.
    pub fn safe(amount: f64) -> Capacity {
        if amount < 0.0 { Capacity::UNLIMITED } else { Capacity::of(amount) }
    }

    /// The number; infinite when there is no limit.
    pub fn get(self) -> f64 {
        self.0
    }

    /// Whether there is no limit.
    pub fn is_unlimited(self) -> bool {
        self.0.is_infinite()
    }
}
