//! Shares, their sums, and what a status becomes when a sum changes.

/// A member's share: how many picks it should get, relative to the others' factors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Factor(u64);

impl Factor {
    /// No share. Such a member accrues nothing, and is picked only while it is owed something from before or if none
    /// that is enabled has a share.
    pub const ZERO: Factor = Factor(0);
    /// The largest there is. With it the factors of a full schedule have a sum below 2^63.
    pub const MAX: Factor = Factor((1 << 47) - 1);

    /// So large a share. What is larger than [`Factor::MAX`] counts as that.
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

/// Nothing is scaled beyond this. Only a member that is owed some 2^37 picks gets there; the limit is here so that no
/// sequence of changes overflows, and leaves room for what is added afterwards.
const LIMIT: i128 = 1 << 100;

/// `status · new / old`, rounded toward 0; as it was if `old` is 0.
pub(super) fn scaled(status: i128, new: u64, old: u64) -> i128 {
    if old == 0 {
        return status;
    }
    let (new, old) = (i128::from(new), i128::from(old));
    // In two parts, because the product may not fit. Sums of factors are below 2^63, so the second one does; both have
    // the sign of the status, so rounding the second is rounding the whole.
    let whole = (status / old).saturating_mul(new);
    let part = status % old * new / old;
    whole.saturating_add(part).clamp(-LIMIT, LIMIT)
}
