//! The parts of inherited leases that the quorum stores.
//!
//! When an answer leaves, a part in the log must not exceed the unclaimed amount of that part: the holder now owns what
//! it has claimed, and may hold it for longer (rule E13, see [`crate::lease`]). So a claim from a part waits for the
//! log, unless the log already has a smaller amount. The difference between the unclaimed and the logged amount is the
//! *slack*. It is zero while nobody claims from a part, and doubles each time it was too small. When a part has not
//! changed for a while, the log gets its full amount.

use crate::{
    lease::promises::Part,
    planted::{self, Fault},
    types::{Amount, ClusterTime, Millis, Token},
};

/// A part that has not changed for this long is at rest.
const REST_TIME: Millis = Millis(1000);
/// The initial slack and the maximum, as fractions of the amount. A part at rest is stored again if the difference
/// exceeds the initial slack.
const FIRST_SLACK: f64 = 1.0 / 64.0;
const MAX_SLACK: f64 = 1.0 / 8.0;

/// Whether the parts in the log are no larger than the parts that are left.
pub(super) fn covers_stored(stored: &[Part], left: &[Part]) -> bool {
    stored.iter().all(|stored| stored.amount <= amount_of(left, stored.before)) || planted::is(Fault::PartIgnoresGrants)
}

fn amount_of(parts: &[Part], before: Token) -> Amount {
    parts.iter().find(|part| part.before == before).map_or(Amount::ZERO, |part| part.amount)
}

/// Tracks how the parts of inherited leases change.
#[derive(Debug, Default)]
pub(super) struct StoredParts {
    falling: Vec<Falling>,
    at: Millis,
}

#[derive(Debug)]
struct Falling {
    before: Token,
    amount: Amount,
    /// When it last changed.
    changed: Millis,
    slack: f64,
}

impl Falling {
    fn is_at_rest(&self, now: Millis) -> bool {
        now.since(self.changed) >= REST_TIME
    }
}

impl StoredParts {
    /// Notes the unclaimed amount of each part.
    pub(super) fn observe(&mut self, left: &[Part], now: Millis) {
        self.at = now;
        self.falling.retain(|known| left.iter().any(|part| part.before == known.before));
        for part in left {
            match self.falling.iter_mut().find(|known| known.before == part.before) {
                Some(known) if known.amount != part.amount => (known.amount, known.changed) = (part.amount, now),
                Some(_) => {}
                None => {
                    let (before, amount) = (part.before, part.amount);
                    self.falling.push(Falling { before, amount, changed: now, slack: 0.0 });
                }
            }
        }
    }

    /// Whether nothing needs to be stored.
    pub(super) fn is_quiet(&self, stored: &[Part], left: &[Part], moment: ClusterTime) -> bool {
        let none_is_over = stored.iter().all(|part| part.until > moment);
        none_is_over && covers_stored(stored, left) && !self.needs_tightening(stored, left)
    }

    /// Whether a part at rest is larger than in the log.
    pub(super) fn needs_tightening(&self, stored: &[Part], left: &[Part]) -> bool {
        left.iter().any(|part| {
            let most = part.amount.get() * (1.0 - FIRST_SLACK);
            let known = self.falling.iter().find(|known| known.before == part.before);
            amount_of(stored, part.before).get() < most && known.is_some_and(|known| known.is_at_rest(self.at))
        })
    }

    /// The parts to propose next, given those in the log (`stored`) and those still unclaimed (`left`).
    pub(super) fn next_parts(&mut self, stored: &[Part], left: &[Part], now: Millis) -> Vec<Part> {
        let mut parts = left.to_vec();
        for part in &mut parts {
            let Some(known) = self.falling.iter_mut().find(|known| known.before == part.before) else { continue };
            if known.is_at_rest(now) {
                known.slack = 0.0;
            } else if part.amount < amount_of(stored, part.before) {
                known.slack = (known.slack * 2.0).clamp(FIRST_SLACK, MAX_SLACK);
            }
            part.amount = Amount::clamped(part.amount.get() * (1.0 - known.slack)).min(part.amount);
        }
        parts
    }
}
