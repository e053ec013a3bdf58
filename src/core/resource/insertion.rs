//! The insertion step of a round: applies what a request says about leases, and then what its holder wants.

use std::{num::NonZeroU32, sync::Arc};

use super::{Resource, Seat};
use crate::{
    Amount, Answer, Ask, Claim, Claims, HolderKind, Millis, Now, Sum,
    leases::Confirmation,
    ledger::{Asked, Holder, further},
    planted::{self, Fault},
    time::certain_end,
    token::Token,
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
    pub(super) fn admit(&mut self, ask: Ask, now: Now) -> Result<Seat, Answer> {
        let known = self.ledger.find(ask.kind, &ask.id);
        self.find_place(known, &ask)?;
        let slot = known.unwrap_or_else(|| self.newcomer(&ask));
        let seat = self.hear(slot, known.is_none(), &ask, now)?;
        if known.is_some() && self.is_too_soon(self.ledger.holder(slot), &ask, now.at) {
            self.counters.too_soon += 1;
            return Err(Answer::TooSoon);
        }
        // A lease that has ended counts as none; the rounding of the wire is allowed for.
        let live = ask.has.filter(|has| has.expiry_time >= now.unix);
        let claimed = live.map_or(Amount::ZERO, |has| has.capacity);
        let heeds_terms = heeds_terms(&ask);
        self.pool_hears(slot, &ask, claimed);
        self.put_claims(slot, ask);
        let (_, refresh) = self.lengths(now.at);
        let refresh = self.steered(refresh, slot, now.at);
        let holder = self.ledger.holder_mut(slot);
        let interval = u32::try_from(refresh.0).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MAX);
        holder.asked = Some(Asked { at: now.at, interval });
        holder.heeds_terms = heeds_terms;
        holder.round = self.sub_round;
        Ok(seat)
    }

    fn newcomer(&mut self, ask: &Ask) -> u32 {
        let slot = self.ledger.insert(ask.kind, Arc::clone(&ask.id), ask.charged.principal);
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
        if ask.charged.is_full {
            self.counters.share_full += 1;
            return Err(Answer::ShareFull);
        }
        Ok(())
    }

    /// What a request says about leases, which counts even if the request is then ignored. Returns its place in the
    /// round.
    fn hear(&mut self, slot: u32, is_new: bool, ask: &Ask, now: Now) -> Result<Seat, Answer> {
        let heard = self.hear_lease(slot, ask, now);
        if heard.is_err() {
            // What it reports as outstanding counts all the same.
            self.ledger.recount(slot, now.at);
        }
        let mut seat = heard?;
        let knows_nothing = !self.has_estate();
        if is_new && self.is_unaccounted(slot, ask, now) && knows_nothing && self.listens_once_more(now.at) {
            seat = self.hear_lease(slot, ask, now)?;
        }
        seat.all_or_nothing = self.may_have_more(ask) && !self.ledger.holder(slot).leases.is_live(now.at);
        let names = ask.has.is_some_and(|has| ask.drops_late || has.expiry_time >= now.unix);
        if is_new && (names || self.may_have_more(ask)) {
            let named = ask.has.map_or(Amount::ZERO, |has| has.capacity);
            self.heard_in_person(self.counted(ask.kind, heeds_terms(ask), ask.claims.clone()), named);
        }
        self.ledger.recount(slot, now.at);
        let leases = &self.ledger.holder(slot).leases;
        if leases.reports_outstanding() {
            self.cover_until(leases.last_end());
        }
        Ok(seat)
    }

    fn hear_lease(&mut self, slot: u32, ask: &Ask, now: Now) -> Result<Seat, Answer> {
        self.ledger.holder_mut(slot).leases.end_moved(now.at);
        let Some(has) = ask.has else { return self.hear_echo(slot, ask, now.at) };
        match has.token {
            Some(token) if ask.drops_late && self.tokens.is_former(token) => {
                self.hear_name(slot, token, has.capacity, ask.outstanding, now.at)
            }
            Some(_) if ask.drops_late => self.hear_echo(slot, ask, now.at),
            _ if self.has_estate() && has.expiry_time < now.unix => self.hear_nothing(slot, now.at),
            _ if self.has_estate() => self.hear_plain(slot, has.capacity, now.at),
            _ => self.hear_echo(slot, ask, now.at),
        }
    }

    /// It names a lease of an earlier master (rules E3 to E6). What is outstanding beyond that stays in the estate.
    fn hear_name(
        &mut self,
        slot: u32,
        token: Token,
        named: Amount,
        outstanding: Option<Amount>,
        now: Millis,
    ) -> Result<Seat, Answer> {
        let leases = &mut self.ledger.holder_mut(slot).leases;
        let Some(is_another) = leases.name_former(token, now) else {
            self.counters.stale += 1;
            return Err(Answer::Stale);
        };
        let (moved, is_fresh) = (leases.moved(), leases.is_fresh(now) && !planted::is(Fault::MovesOntoFresh));
        if !is_fresh && (named > moved || is_another) {
            self.move_to(slot, moved, named, now);
        }
        let leases = &mut self.ledger.holder_mut(slot).leases;
        if planted::is(Fault::FirstNameFrees) {
            leases.set_moved(Amount::ZERO, now);
        }
        let keep = leases.kept(named, now);
        let is_beyond = self.has_estate() && outstanding.is_some_and(|outstanding| outstanding > named);
        Ok(Seat { keep, most: if is_beyond { named } else { Amount::MAX }, ..Seat::of(slot) })
    }

    /// A holder that does not tell leases of this master from earlier ones, or takes answers that come after the end of
    /// what it named: it gets back what it says it has, as far as that was moved, and what it says confirms nothing
    /// (rule E10).
    fn hear_plain(&mut self, slot: u32, named: Amount, now: Millis) -> Result<Seat, Answer> {
        let leases = &self.ledger.holder(slot).leases;
        let (moved, is_fresh) = (leases.moved(), leases.is_fresh(now) && !planted::is(Fault::MovesOntoFresh));
        if is_fresh {
            return Ok(Seat { keep: leases.current(now), ..Seat::of(slot) });
        }
        if named > moved {
            self.move_to(slot, moved, named, now);
        }
        let keep = named.min(self.ledger.holder(slot).leases.moved());
        let grows = planted::is(Fault::PlainGrows) || !self.is_bounded();
        Ok(Seat { keep, most: if grows { Amount::MAX } else { keep }, ..Seat::of(slot) })
    }

    /// It says nothing about what it has. If something was moved here, the rest of what it may have is not known
    /// (rule E5): it is left out of the answer until it names something, or until the estate is over.
    fn hear_nothing(&mut self, slot: u32, now: Millis) -> Result<Seat, Answer> {
        let leases = &self.ledger.holder(slot).leases;
        let is_moved = self.has_estate() && self.is_bounded() && leases.moved() > Amount::ZERO;
        if is_moved && !planted::is(Fault::FreshWhileMoved) {
            return Err(Answer::NotYet);
        }
        Ok(Seat { keep: leases.current(now), ..Seat::of(slot) })
    }

    /// It echoes a lease of this master, or says nothing, or something that is unknown here.
    fn hear_echo(&mut self, slot: u32, ask: &Ask, now: Millis) -> Result<Seat, Answer> {
        let tokens = &self.tokens;
        let leases = &mut self.ledger.holder_mut(slot).leases;
        let may_confirm = !ask.learning || planted::is(Fault::LearningConfirms);
        let confirmation = match &ask.has {
            Some(has) if may_confirm => leases.confirm(has, |token| tokens.issued(token)),
            None if planted::is(Fault::AbsentHasClears) => {
                leases.forget_given();
                Confirmation::Nothing
            }
            _ => Confirmation::Nothing,
        };
        let trusted = confirmation == Confirmation::Known || planted::is(Fault::LateReportLowers);
        if confirmation == Confirmation::Stale && !trusted {
            self.counters.stale += 1;
            return Err(Answer::Stale);
        }
        let until = certain_end(now, self.settings.lease);
        leases.report_outstanding(ask.outstanding.unwrap_or_default(), trusted, now, until);
        let keep = leases.current(now);
        if let Confirmation::Older(returned) = confirmation
            && !planted::is(Fault::EchoFreesAll)
        {
            self.give_back(returned);
        }
        if ask.has.is_none() {
            return self.hear_nothing(slot, now);
        }
        Ok(Seat { keep, ..Seat::of(slot) })
    }

    /// Moves what the holder names from the estate into its record, or back.
    fn move_to(&mut self, slot: u32, moved: Amount, named: Amount, now: Millis) {
        let target = self.exchange(moved, named);
        let until = self.estate_until().unwrap_or_default();
        self.ledger.holder_mut(slot).leases.set_moved(target, until);
        self.ledger.recount(slot, now);
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

    /// Whether a new holder has a lease that is neither of this master nor covered by what earlier ones have promised.
    fn is_unaccounted(&mut self, slot: u32, ask: &Ask, now: Now) -> bool {
        let Some(has) = ask.has.filter(|has| has.expiry_time >= now.unix) else { return false };
        let is_ours = has.token.is_some_and(|token| self.tokens.issued(token));
        if is_ours || has.capacity <= self.ledger.holder(slot).leases.moved() {
            return false;
        }
        if self.is_learning(now.at) {
            self.counters.learning_excess += 1;
            return false;
        }
        self.counters.unaccounted += 1;
        true
    }

    /// A holder has a lease that this master has not given and no earlier one has promised: promises were lost. Others
    /// may have such leases too, so the resource learns until all of them have ended. That moment is the same for every
    /// such report, so that false ones can delay decisions once in the life of a master, not repeatedly.
    fn listens_once_more(&mut self, now: Millis) -> bool {
        let until = self.settings.last_lease_over(self.since);
        let listens = self.keeper.is_some() && now < until;
        if listens {
            self.learning_until = self.learning_until.max(until);
            self.assume_lent(until);
        }
        listens
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
