//! The insertion step of a round: what a request says of leases is heard, then its wants count.

use std::{num::NonZeroU32, sync::Arc};

use super::{PendingGrant, Resource};
use crate::{
    lease::ledger::{Asked, Holder},
    policy::settings::Settings,
    resource::{Answer, Ask},
    types::{
        amount::{Amount, Sum},
        claim::{Claim, Claims, HolderKind, further, wanted},
        time::{Millis, Now},
    },
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
    pub(super) fn admit(&mut self, ask: Ask, now: Now) -> Result<PendingGrant, Answer> {
        self.check_name(&ask, now.at)?;
        let known = self.ledger.find(ask.kind, &ask.id);
        self.find_place(known, &ask)?;
        let slot = known.unwrap_or_else(|| self.newcomer(&ask));
        let pending = self.apply_has(slot, known.is_none(), &ask, now)?;
        if known.is_some() && self.is_too_soon(self.ledger.holder(slot), &ask, now.at) {
            self.counters.too_soon += 1;
            return Err(Answer::TooSoon);
        }
        // A lease that has ended counts as none; the rounding of the wire is allowed for.
        let live = ask.has.filter(|has| has.expiry_time >= now.unix);
        let claimed = live.map_or(Amount::ZERO, |has| has.capacity);
        self.ledger.set_mode(slot, ask.mode());
        self.pool_absorbs(slot, &ask, claimed);
        self.put_claims(slot, ask);
        let (_, refresh) = self.lengths(now.at);
        let refresh = self.steered(refresh, slot, now.at);
        let holder = self.ledger.holder_mut(slot);
        let interval = u32::try_from(refresh.0).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MAX);
        holder.asked = Some(Asked { at: now.at, interval });
        holder.round = self.sub_round;
        Ok(pending)
    }

    fn newcomer(&mut self, ask: &Ask) -> u32 {
        let slot = self.ledger.insert(ask.kind, Arc::clone(&ask.id), ask.charged_to.principal);
        self.newcomers.push(slot);
        slot
    }

    /// A known holder may always ask for what needs no additional place.
    fn find_place(&mut self, known: Option<u32>, ask: &Ask) -> Result<(), Answer> {
        let taken = known.map_or(0, |slot| 1 + further(&self.ledger.holder(slot).claims));
        let needed = 1 + further(&ask.claims);
        if needed <= taken {
            return Ok(());
        }
        if self.ledger.places() - taken + needed > self.max_holders {
            self.counters.full += 1;
            return Err(Answer::Full);
        }
        if ask.charged_to.is_full {
            self.counters.share_full += 1;
            return Err(Answer::ShareFull);
        }
        Ok(())
    }

    fn is_too_soon(&self, holder: &Holder, ask: &Ask, now: Millis) -> bool {
        let Some(asked) = holder.asked else { return false };
        if ask.heeds_terms() {
            // A child node asks early only when that matters to its own holders.
            return false;
        }
        let least = self.settings.min_request_interval.min(Millis(u64::from(asked.interval.get()) / 2));
        now.since(asked.at) < least
            && !self.watch_list.is_hinted(holder.watch)
            && ask.has.is_some_and(|has| holder.leases.echoes_newest(&has))
            && !changed(&holder.claims, &self.counted(ask.kind, ask.heeds_terms(), ask.claims.clone()))
    }

    fn put_claims(&mut self, slot: u32, ask: Ask) {
        let mut claims = self.counted(ask.kind, ask.heeds_terms(), ask.claims);
        let old = &self.ledger.holder(slot).claims;
        match old.first() {
            Some(old) => claims.iter_mut().for_each(|claim| claim.rule = old.rule),
            None => self.settings.put_rule(ask.kind, &ask.id, &mut claims),
        }
        if *old != claims {
            self.division.remove(slot, old);
            self.division.insert(slot, &claims);
            self.ledger.set_claims(slot, claims);
        }
    }

    /// Notes on all claims which rules they are under.
    pub(super) fn put_rules(&mut self, settings: &Settings) {
        let slots: Vec<u32> = self.ledger.iter_from(0).map(|(slot, _)| slot).collect();
        for slot in slots {
            let holder = self.ledger.holder_mut(slot);
            settings.put_rule(holder.kind, &holder.id, &mut holder.claims);
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
            // What is set aside for clients is for the template to say.
            HolderKind::Node if claims.iter().any(|claim| claim.is_minimum) && !self.settings.heeds_minimums() => {
                claims.retain(|claim| !claim.is_minimum);
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

/// Whether a holder's wants have changed so much that it should not have to wait.
fn changed(old: &[Claim], new: &[Claim]) -> bool {
    let wants = |claims: &[Claim]| wanted(claims).map(|claim| claim.wants).collect::<Sum>().get();
    let shape = |claims: &[Claim]| claims.iter().map(|claim| (claim.priority, claim.subclients)).collect::<Vec<_>>();
    let (was, is) = (wants(old), wants(new));
    (is - was).abs() > was * WANTS_CHANGED || (old != new && shape(old) != shape(new))
}
