//! The insertion step of a round: applies what a request says about leases, and then what its holder wants.

use std::{num::NonZeroU32, sync::Arc};

use super::{Claimed, Resource};
use crate::{
    Amount, Answer, Ask, Claim, Claims, HolderKind, Millis, Now, Sum,
    leases::Confirmation,
    ledger::{Asked, Holder, further},
    planted::{self, Fault},
    time::certain_end,
};

/// The priority at which Doorman's servers report all of their clients.
const DOORMANS_PRIORITY: i16 = 1;
/// A request that changes wants by more than this part of them is never too soon.
const WANTS_CHANGED: f64 = 0.1;

impl Resource {
    /// A request whose wants could not be read becomes one for the last known wants of its holder; or, if the holder is
    /// not known here but has a lease, for the claims in the request, so that leases of earlier masters are not
    /// forgotten. `None`: nothing is known of it.
    #[cold]
    pub(super) fn with_wants(&self, mut ask: Ask, now: Now) -> Option<Ask> {
        match self.ledger.find(ask.kind, &ask.id) {
            Some(slot) => ask.claims = self.ledger.holder(slot).claims.clone(),
            None if ask.has.is_some_and(|has| has.expiry_time >= now.unix) => {}
            None => return None,
        }
        Some(ask)
    }

    /// The insertion step: applies what the request says about leases, then what it wants.
    pub(super) fn admit(&mut self, ask: Ask, now: Now) -> Result<(u32, Claimed), Answer> {
        let known = self.ledger.find(ask.kind, &ask.id);
        if !self.has_place(known, &ask.claims) {
            self.counters.full += 1;
            return Err(Answer::Full);
        }
        let slot = known.unwrap_or_else(|| self.newcomer(&ask));
        let confirmation = self.confirm_leases(slot, &ask, now.at)?;
        self.note_heard(slot);
        if known.is_some() && self.is_too_soon(self.ledger.holder(slot), &ask, now.at) {
            self.counters.too_soon += 1;
            return Err(Answer::TooSoon);
        }
        // A lease that has ended counts as none; the rounding of the wire is allowed for.
        let live = ask.has.filter(|has| has.expiry_time >= now.unix);
        let claimed = live.map_or(Claimed::default(), |has| Claimed {
            capacity: has.capacity,
            is_former: has.token.is_some_and(|token| self.tokens.is_former(token)),
        });
        if known.is_none() && confirmation == Confirmation::Nothing && claimed.capacity > Amount::ZERO {
            self.cannot_account_for(&ask, now.at);
        }
        self.learn(slot, claimed, confirmation, now.at);
        let heeds_terms = heeds_terms(&ask);
        self.pool_hears(slot, &ask, claimed.capacity);
        self.put_claims(slot, ask);
        let (_, refresh) = self.lengths(now.at);
        let refresh = self.steered(refresh, slot, now.at);
        let holder = self.ledger.holder_mut(slot);
        let interval = u32::try_from(refresh.0).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MAX);
        holder.asked = Some(Asked { at: now.at, interval });
        holder.heeds_terms = heeds_terms;
        holder.round = self.sub_round;
        Ok((slot, claimed))
    }

    fn newcomer(&mut self, ask: &Ask) -> u32 {
        let slot = self.ledger.insert(ask.kind, Arc::clone(&ask.id));
        self.newcomers.push(slot);
        self.note_newcomer(slot);
        slot
    }

    /// A known holder may always ask for what needs no additional place.
    fn has_place(&self, known: Option<u32>, claims: &Claims) -> bool {
        let taken = known.map_or(0, |slot| 1 + further(&self.ledger.holder(slot).claims));
        let needed = 1 + further(claims);
        needed <= taken || self.ledger.places() - taken + needed <= self.max_holders
    }

    /// What a request proves about leases counts even if the request is then ignored.
    fn confirm_leases(&mut self, slot: u32, ask: &Ask, now: Millis) -> Result<Confirmation, Answer> {
        let tells_epochs_apart = ask.has.is_some_and(|has| has.token.is_some()) || !self.former_leases_live(now);
        let tokens = &self.tokens;
        let leases = &mut self.ledger.holder_mut(slot).leases;
        let may_confirm = !ask.learning || planted::is(Fault::LearningConfirms);
        let former = ask.has.and_then(|has| has.token).filter(|token| tokens.is_former(*token));
        let confirmation = match (&ask.has, former) {
            (Some(has), Some(token)) => leases.name_former(token, has.capacity),
            (Some(has), _) if may_confirm && tells_epochs_apart => leases.confirm(has, |token| tokens.issued(token)),
            (None, _) if planted::is(Fault::AbsentHasClears) => leases.forget_given(),
            _ => Confirmation::Nothing,
        };
        let trusted = confirmation == Confirmation::Known || planted::is(Fault::LateReportLowers);
        if confirmation == Confirmation::Stale && !trusted {
            self.counters.stale += 1;
            return Err(Answer::Stale);
        }
        let until = certain_end(now, self.settings.lease);
        let outstanding = ask.outstanding.unwrap_or_default();
        leases.report_outstanding(outstanding, trusted, now, until);
        self.ledger.recount(slot, now);
        Ok(confirmation)
    }

    fn is_too_soon(&self, holder: &Holder, ask: &Ask, now: Millis) -> bool {
        let Some(asked) = holder.asked else { return false };
        if heeds_terms(ask) {
            // A child node asks early only when that matters to its own holders.
            return false;
        }
        let least = self.settings.min_request_interval.min(Millis(u64::from(asked.interval.get()) / 2));
        now.since(asked.at) < least
            && !self.watch_list.is_hinted(holder.watch)
            && ask.has.is_some_and(|has| holder.leases.echoes_newest(&has))
            && !changed(&holder.claims, &self.counted(ask.kind, heeds_terms(ask), ask.claims.clone()))
    }

    fn cannot_account_for(&mut self, ask: &Ask, now: Millis) {
        let ours = ask.has.and_then(|has| has.token).is_some_and(|token| self.tokens.issued(token));
        if !ours && !self.is_learning(now) {
            self.counters.unaccounted += 1;
            self.listen_once_more(now);
        }
    }

    fn put_claims(&mut self, slot: u32, ask: Ask) {
        let claims = self.counted(ask.kind, heeds_terms(&ask), ask.claims);
        let old = &self.ledger.holder(slot).claims;
        if *old != claims {
            self.division.remove(slot, old);
            self.division.insert(slot, &claims);
            self.ledger.set_claims(slot, claims);
        }
    }

    /// The claims as they count here: a client may not claim a higher priority than the template allows (claims of
    /// child nodes were capped below), Doorman's servers report no priorities, and wants are whole where units are.
    pub(super) fn counted(&self, kind: HolderKind, heeds_terms: bool, mut claims: Claims) -> Claims {
        let (most, of_doorman) = (self.settings.max_priority, self.settings.doorman_priority);
        match kind {
            HolderKind::Client => {
                if let Some(most) = most {
                    claims.iter_mut().for_each(|claim| claim.priority = claim.priority.min(most));
                }
            }
            // Child nodes that do not know pools take no part in one.
            HolderKind::Node if heeds_terms || self.pool.is_some() => {}
            HolderKind::Node => {
                let reported = claims.iter_mut().filter(|claim| claim.priority == DOORMANS_PRIORITY);
                reported.for_each(|claim| claim.priority = of_doorman);
            }
        }
        self.whole_claims(&mut claims);
        claims
    }
}

/// Whether the request comes from a child node that knows our additions to the protocol.
pub(super) fn heeds_terms(ask: &Ask) -> bool {
    ask.kind == HolderKind::Node && ask.outstanding.is_some()
}

/// Whether a holder's wants have changed so much that it should not have to wait.
fn changed(old: &[Claim], new: &[Claim]) -> bool {
    let wants = |claims: &[Claim]| claims.iter().map(|claim| claim.wants).collect::<Sum>().get();
    let shape = |claims: &[Claim]| claims.iter().map(|claim| (claim.priority, claim.subclients)).collect::<Vec<_>>();
    let (was, is) = (wants(old), wants(new));
    (is - was).abs() > was * WANTS_CHANGED || (old != new && shape(old) != shape(new))
}
