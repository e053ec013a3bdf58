//! Admission of a request: checks its name, its slots and its pace, applies its statement about leases, and inserts its
//! wants.

use std::{num::NonZeroU32, sync::Arc};

use crate::{
    allocation::groups::{ClaimParts, GroupDemand},
    lease::{
        confirm::{Entitlement, LeaseConditions, LeftOut, Rejection},
        inherited::InheritedChange,
        ledger::{Asked, Holder, NOT_WATCHED},
    },
    resource::{Answer, Ask, Resource, names::NameDecision},
    types::{Amount, Claim, Claims, HolderKind, Millis, Now, Sum, further, wanted},
};

/// The priority at which Doorman's servers report all of their clients.
const DOORMAN_PRIORITY: i16 = 1;
/// A request that changes wants by more than this fraction is never too soon.
const WANTS_CHANGED: f64 = 0.1;

impl Resource {
    /// Completes a request whose wants could not be read with the last known wants of its holder. If the holder is
    /// unknown but has a lease, the claims in the request count, so that leases of earlier masters are not forgotten.
    /// `None`: nothing is known of the holder.
    #[cold]
    pub(super) fn with_wants(&self, mut ask: Ask, now: Now) -> Option<Ask> {
        match self.book.ledger().find(ask.kind, &ask.id) {
            Some(slot) => {
                ask.claims = self.book.ledger().holder(slot).claims.clone();
                ask.groups = self.allocation.demands_of(slot, &ask.claims);
            }
            None if ask.has.is_some_and(|has| has.expiry_time >= now.unix) => {}
            None => return None,
        }
        Some(ask)
    }

    /// Applies the statement of a request about leases, then inserts its claims. Returns the slot of its holder and the
    /// bounds of the grant.
    pub(super) fn admit(&mut self, ask: Ask, now: Now) -> Result<(u32, Entitlement), Answer> {
        self.check_name(&ask, now.at)?;
        let known = self.book.ledger().find(ask.kind, &ask.id);
        self.find_place(known, &ask)?;
        let slot = known.unwrap_or_else(|| self.newcomer(&ask));
        let (length, refresh) = self.lengths(now);
        let entitled = self.apply_has(slot, known.is_none(), &ask, length, now)?;
        if known.is_some() && self.is_too_soon(self.book.ledger().holder(slot), &ask, now.at) {
            self.counters.too_soon += 1;
            return Err(Answer::TooSoon);
        }
        // An ended lease does not count. Expiry times are rounded, so a lease that ends in this second still counts.
        let live = ask.has.filter(|has| has.expiry_time >= now.unix);
        let claimed = live.map_or(Amount::ZERO, |has| has.capacity);
        self.book.set_mode(slot, ask.mode());
        self.pool_absorbs(slot, &ask, claimed);
        self.note_spent(slot, ask.spent.as_deref(), now.at);
        self.put_claims(slot, ask);
        let interval = interval_of(self.align_to_rotation(refresh, slot, now.at));
        self.book.note_request(slot, Asked { at: now.at, interval }, self.last_round.sub_round);
        Ok((slot, entitled))
    }

    /// Rounds wants down to whole units.
    fn whole_claims(&self, claims: &mut Claims) {
        if self.settings.whole_units {
            claims.iter_mut().for_each(|claim| claim.wants = claim.wants.floor());
        }
    }

    fn newcomer(&mut self, ask: &Ask) -> u32 {
        let slot = self.book.add_holder(ask.kind, Arc::clone(&ask.id), ask.charged_to.principal);
        self.last_round.newcomers.push(slot);
        slot
    }

    /// Checks the limits of charged slots. A known holder may always ask if it needs no additional slot.
    fn find_place(&mut self, known: Option<u32>, ask: &Ask) -> Result<(), Answer> {
        let taken = known.map_or(0, |slot| 1 + further(&self.book.ledger().holder(slot).claims));
        let needed = match self.counts_groups(ask) {
            true => ask.groups.iter().map(|group| group.claims.len()).sum::<usize>().max(1),
            false => 1 + further(&ask.claims),
        };
        if needed <= taken {
            return Ok(());
        }
        if self.book.ledger().charged_slots() - taken + needed > self.limits.max_holders {
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
        // A holder of a budget asks early because its slice is spent.
        if ask.understands_terms() || self.budget.is_some() {
            // A child node asks early only if that matters to its own holders.
            return false;
        }
        let least = self.settings.min_request_interval.min(Millis(u64::from(asked.interval.get()) / 2));
        now.since(asked.at) < least
            && !self.watch_list.is_hinted(holder.watch)
            && ask.has.is_some_and(|has| holder.leases.echoes_newest(&has))
            && !changed(&holder.claims, &self.counted(ask.kind, ask.understands_terms(), ask.claims.clone()))
    }

    /// Whether the claims of a request count in their groups.
    fn counts_groups(&self, ask: &Ask) -> bool {
        !ask.groups.is_empty() && self.allocation.has_groups()
    }

    /// Replaces the claims of a child node that reports, or has reported, groups.
    fn put_claims_in_groups(&mut self, slot: u32, ask: Ask) {
        let understands_terms = ask.understands_terms();
        let (mut claims, mut parts) = (Claims::new(), ClaimParts::default());
        if self.counts_groups(&ask) {
            let old = &self.book.ledger().holder(slot).claims;
            (claims, parts) = self.counted_in_groups(self.allocation.completed(slot, old, ask.learning, ask.groups));
        }
        if parts.is_empty() {
            claims = self.counted(ask.kind, understands_terms, ask.claims);
        }
        let old = &self.book.ledger().holder(slot).claims;
        let has_moved = self.allocation.change_node(slot, old, &claims, parts);
        if has_moved {
            self.join_group(slot);
            self.allocation.insert(slot, &claims);
        }
        if has_moved || self.book.ledger().holder(slot).claims != claims {
            self.book.set_claims(slot, claims);
        }
    }

    /// The claims of a child node as this master counts them, group by group.
    pub(in crate::resource) fn counted_in_groups(&self, demands: Vec<GroupDemand>) -> (Claims, ClaimParts) {
        let (mut claims, mut parts) = (Claims::new(), ClaimParts::default());
        for GroupDemand { path, claims: of_group, held } in demands {
            let of_group = self.counted(HolderKind::Node, true, of_group);
            if !of_group.is_empty() {
                parts.push(path, &of_group, held);
                claims.extend(of_group);
            }
        }
        (claims, parts)
    }

    fn put_claims(&mut self, slot: u32, ask: Ask) {
        if self.counts_groups(&ask) || self.allocation.reported_groups(slot) > 0 {
            return self.put_claims_in_groups(slot, ask);
        }
        let mut claims = self.counted(ask.kind, ask.understands_terms(), ask.claims);
        let old = &self.book.ledger().holder(slot).claims;
        match old.first() {
            Some(old) => claims.iter_mut().for_each(|claim| claim.rule = old.rule),
            None => {
                self.settings.put_rule(ask.kind, &ask.id, &mut claims);
                self.join_group(slot);
            }
        }
        let old = &self.book.ledger().holder(slot).claims;
        if *old != claims {
            self.allocation.change(slot, old, &claims);
            self.book.set_claims(slot, claims);
        }
    }

    /// The claims as this master counts them. The template caps the priority of a client; a child node has capped the
    /// priorities of its own clients. Doorman's servers report no priorities, so the configured priority applies. Wants
    /// are whole if units are whole.
    pub(crate) fn counted(&self, kind: HolderKind, understands_terms: bool, mut claims: Claims) -> Claims {
        let (most, of_doorman) = (self.settings.max_priority, self.settings.doorman_priority);
        match kind {
            HolderKind::Client => {
                if let Some(most) = most {
                    claims.iter_mut().for_each(|claim| claim.priority = claim.priority.min(most));
                }
            }
            // Only the template can grant minimums.
            HolderKind::Node if claims.iter().any(|claim| claim.is_minimum) && !self.settings.heeds_minimums() => {
                claims.retain(|claim| !claim.is_minimum);
            }
            // Child nodes that do not know pools take no part in one.
            HolderKind::Node if understands_terms || self.pool.is_some() => {}
            HolderKind::Node => {
                let reported = claims.iter_mut().filter(|claim| claim.priority == DOORMAN_PRIORITY);
                reported.for_each(|claim| claim.priority = of_doorman);
            }
        }
        self.whole_claims(&mut claims);
        claims
    }

    /// Makes the asking instance the owner of its name, or returns the refusal ([`NameOwners`]).
    fn check_name(&mut self, ask: &Ask, now: Millis) -> Result<(), Answer> {
        let (HolderKind::Node, Some(instance)) = (ask.kind, ask.instance) else { return Ok(()) };
        let name = &ask.id;
        match self.names.check(name, instance, &self.book, self.pool.is_some(), now) {
            NameDecision::Continues => {}
            NameDecision::Displaces(id) => {
                self.displace(name, &id);
            }
            NameDecision::Returns { displaced, returning } => {
                let is_watched = self.displace(name, &displaced);
                if let Some(slot) = self.book.ledger().find(HolderKind::Node, &returning) {
                    self.book.rename(slot, Arc::clone(name));
                }
                if is_watched {
                    self.watch(HolderKind::Node, name);
                }
            }
            NameDecision::Stale => {
                self.counters.stale += 1;
                return Err(Answer::Stale);
            }
            NameDecision::Refused => {
                self.counters.name_taken += 1;
                return Err(Answer::NameTaken);
            }
        }
        Ok(())
    }

    /// Renames the record of a name, if there is one, and removes its claims. Returns whether its holder was watched.
    fn displace(&mut self, name: &str, id: &Arc<str>) -> bool {
        let Some(slot) = self.book.ledger().find(HolderKind::Node, name) else { return false };
        let (claims, watch) = self.book.detach(slot);
        self.forget(slot, &claims, watch);
        self.book.rename(slot, Arc::clone(id));
        watch != NOT_WATCHED
    }

    /// Applies the statement of `ask` about leases to the holder in `slot`. Returns the bounds of the grant, or the
    /// answer if the request is rejected. `length`: the length of a lease granted now.
    fn apply_has(
        &mut self,
        slot: u32,
        is_new: bool,
        ask: &Ask,
        length: Millis,
        now: Now,
    ) -> Result<Entitlement, Answer> {
        let stated = ask.lease_statement();
        let conditions = LeaseConditions {
            is_bounded: self.is_bounded(),
            has_parent: self.has_parent(),
            kind: self.lease_kind(),
            capacity: self.settings.capacity,
            reuse: self.settings.reuse,
            configured: self.settings.lease,
            length,
        };
        let before = self.book.unclaimed_record();
        let mut applied = self.book.apply_statement(slot, &stated, &conditions, now);
        if applied.is_ok() && is_new && self.budget.is_none() {
            let knows_nothing = !self.book.has_inherited();
            if self.is_unaccounted(slot, ask, now) && knows_nothing && self.learn_again(now.at) {
                applied = self.book.apply_statement(slot, &stated, &conditions, now);
            }
        }
        let may_have_more = applied.is_ok() && self.book.may_have_more(slot, is_new, &stated, &conditions, now.at);
        if applied.is_ok() && is_new {
            let live = ask.has.filter(|has| ask.drops_late || has.expiry_time >= now.unix).map(|has| has.capacity);
            let amount = live.or(self.book.lapsed_claim(&stated).map(|(_, had)| had));
            if amount.is_some() || may_have_more {
                self.replace_inherited_share(ask, amount.unwrap_or_default());
            }
        }
        // An outstanding amount counts even if the request is ignored.
        self.book.recount(slot, now.at);
        if self.book.unclaimed_record() != before {
            self.apply_change(InheritedChange::Amount);
        }
        let entitled = applied.map_err(|rejection| match rejection {
            Rejection::Stale => {
                self.counters.stale += 1;
                Answer::Stale
            }
            Rejection::NotYet => Answer::NotYet,
            Rejection::StartsOver => {
                self.drop_record(slot);
                self.start_over(now)
            }
        })?;
        if self.budget.is_none() {
            self.book.cover_outstanding(slot);
        }
        Ok(if may_have_more { Entitlement { left_out: LeftOut::IfShort, ..entitled } } else { entitled })
    }

    /// Whether a new holder has a lease that this master did not give and no earlier one promised.
    fn is_unaccounted(&mut self, slot: u32, ask: &Ask, now: Now) -> bool {
        let Some(has) = ask.has.filter(|has| has.expiry_time >= now.unix) else { return false };
        let is_ours = has.token.is_some_and(|token| self.book.issued(token));
        if is_ours || has.capacity <= self.book.ledger().holder(slot).leases.claimed() {
            return false;
        }
        if self.is_learning(now.at) {
            self.counters.learning_excess += 1;
            return false;
        }
        self.counters.unaccounted += 1;
        true
    }

    /// Enters learning mode once more: a holder has a lease that this master did not give and no earlier one promised,
    /// so promises were lost, and others may have such leases, too. The resource learns until all of them have ended.
    /// That moment is the same for every such report, so false reports can delay decisions once in the life of a
    /// master, not repeatedly.
    fn learn_again(&mut self, now: Millis) -> bool {
        let until = self.settings.last_lease_over(self.book.since());
        let learns = self.book.keeps_promises() && now < until;
        if learns {
            self.book.learn_until(self.book.learning_until().max(until));
            self.assume_lent(until);
        }
        learns
    }

    /// A holder of earlier masters states its own wants, so its share of the inherited wants is removed. It wanted at
    /// least the amount that it was granted.
    fn replace_inherited_share(&mut self, ask: &Ask, amount: Amount) {
        let reported = match self.counts_groups(ask) {
            true => ask.groups.iter().flat_map(|group| group.claims.iter().copied()).collect(),
            false => ask.claims.clone(),
        };
        let mut claims = self.counted(ask.kind, ask.understands_terms(), reported);
        self.settings.put_rule(ask.kind, &ask.id, &mut claims);
        if let [only] = &mut claims[..] {
            only.wants = only.wants.max(amount);
        }
        for claim in wanted(&claims) {
            let division = self.allocation.division();
            let change = self.book.lower_inherited_wants(&division.ruled(claim), |priority| division.band(priority));
            if let Some(change) = change {
                self.replace_inherited_wants(&change);
            }
        }
    }
}

/// Whether the wants of a holder have changed enough for an answer before the minimum request interval.
fn changed(old: &[Claim], new: &[Claim]) -> bool {
    let wants = |claims: &[Claim]| wanted(claims).map(|claim| claim.wants).collect::<Sum>().get();
    let shape = |claims: &[Claim]| claims.iter().map(|claim| (claim.priority, claim.subclients)).collect::<Vec<_>>();
    let (was, is) = (wants(old), wants(new));
    (is - was).abs() > was * WANTS_CHANGED || (old != new && shape(old) != shape(new))
}

/// The refresh interval as records store it.
pub(in crate::resource) fn interval_of(refresh: Millis) -> NonZeroU32 {
    u32::try_from(refresh.0).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MAX)
}
