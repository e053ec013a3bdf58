//! Factors, their sums, and the scaling of statuses.

/// A member's share of the picks, relative to the factors of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Factor(u64);

impl Factor {
    /// No share. Such a member accrues nothing, and is picked only because of an earlier status, or if no enabled
    /// member has a share.
    pub const ZERO: Factor = Factor(0);
    /// The maximum. The sum of the factors of a full schedule is below 2^63.
    pub const MAX: Factor = Factor((1 << 47) - 1);

    /// A factor, at most [`Factor::MAX`].
    pub fn of(share: u64) -> Factor {
        Factor(share.min(Factor::MAX.0))
    }

    /// The number.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl From<u32> for Factor {
    fn from(share: u32) -> Factor {
        Factor(u64::from(share))
    }
}

/// Sums of factors.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Totals {
    pub(super) enabled: u64,
    pub(super) all: u64,
}

/// Bound of scaled statuses. It takes a lead of 2^37 picks to reach it. It prevents overflows in any sequence of
/// changes, with room for later additions.
const LIMIT: i128 = 1 << 100;

/// `status · new / old`, rounded toward 0; unchanged if `old` is 0.
pub(super) fn scaled(status: i128, new: u64, old: u64) -> i128 {
    if old == 0 {
        return status;
    }
    let (new, old) = (i128::from(new), i128::from(old));
    // In two parts, because the product may overflow. Sums of factors are below 2^63, so the second part cannot. Both
    // parts have the sign of the status, so rounding the second rounds the whole.
    let whole = (status / old).saturating_mul(new);
    let part = status % old * new / old;
    whole.saturating_add(part).clamp(-LIMIT, LIMIT)
}
