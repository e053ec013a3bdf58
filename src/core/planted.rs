//! Faults that can be planted on purpose, to show that the simulation finds them.
//!
//! Each disables one rule of the lease protocol, at the one place that keeps it. Without the feature `planted`, [`is`]
//! is a constant `false`, and the compiler removes the faults.

/// A disabled rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A holder may keep everything held for it, so an inflated record becomes an entitlement.
    KeepsWhatIsHeld,
    /// A child node in learning mode confirms leases, although it does not know all its clients.
    LearningConfirms,
    /// The lease that a request shows replaces the whole record, newer grants included.
    HasReplaces,
    /// A request that shows no lease clears the record of its sender.
    AbsentHasClears,
    /// A delayed request lowers the outstanding amount.
    LateReportLowers,
    /// A new master of a child node uses a remembered lease of the node.
    RemembersLease,
    /// The first request that claims a lease of an earlier master frees the rest of that lease.
    FirstClaimFrees,
    /// A client accepts the answer to a request that it has given up.
    TakesLateAnswers,
    /// A client accepts an answer that arrives after the end of the lease that its request showed.
    AnswerAfterEnd,
    /// A client uses a lease after its end.
    UsesEndedLease,
    /// A lease that ends earlier than the one before moves the end of both.
    ReplacesEnd,
    /// A delayed release frees everything that its sender holds now.
    ReleasesEverything,
    /// A lower total counts from when it is stored, not from when it is proposed.
    LoweringCountsLate,
    /// Unclaimed capacity counts as free.
    UnclaimedIsFree,
    /// Unclaimed capacity is freed before the last lease of earlier masters has ended.
    UnclaimedEndsEarly,
    /// A holder may claim more than is unclaimed.
    ClaimsBeyondUnclaimed,
    /// `high_water_mark` does not rise when the capacity of ended leases is given to others, so holders can claim those
    /// leases from the next master.
    HighWaterMarkStays,
    /// An ended lease can be claimed although it is older than `high_water_mark`.
    IgnoresHighWaterMark,
    /// Below a parent, a holder may keep an ended lease, although the parent may have lent that capacity to others.
    KeepsLapsed,
    /// The lease that a holder shows counts even if it could not be claimed.
    KeepsFailedClaims,
    /// A stale request is applied.
    AppliesStaleClaims,
    /// Capacity that was claimed by mistake becomes free instead of unclaimed.
    MistakenClaimIsFree,
    /// Leases that answer an earlier claim still count after the holder has claimed a newer lease.
    KeepsOlderAnswers,
    /// An echo frees the claimed amount even if it answers an earlier claim.
    EchoFreesAll,
    /// Leases that an echo shows to belong to an earlier claim still count.
    EchoKeepsCovered,
    /// A claim is added to a record with a fresh lease.
    ClaimsOntoFresh,
    /// A holder with a claimed lease gets a fresh one although its request shows no lease.
    FreshWhileClaimed,
    /// The echo of a child node in learning mode does not return capacity that an earlier master of the node claimed
    /// late.
    LearningKeepsClaims,
    /// A child node in learning mode increases leases, although more may be in use than it counts.
    LearningGivesMore,
    /// A holder that echoes no tokens grows before the inherited leases have ended.
    PlainGrows,
    /// A lease without a token counts as one of this master, although an earlier master may have given it.
    TakesLookalikes,
    /// A holder without tokens frees its whole claim when it shows a lease of this master.
    ShownFreesAll,
    /// The release of a lease of an earlier master frees what its holder has here.
    OldReleaseFrees,
    /// A reported outstanding amount is believed even beyond what the client was given.
    BelievesClients,
    /// A child node does not report the outstanding amount of its holders.
    HidesOutstanding,
    /// An answer leaves before a quorum has stored the total that covers it.
    AnswersBeforeCommit,
    /// A request that waits for the first supply is answered when its wait ends, and again with the supply.
    AnswersParkedTwice,
    /// Hints are not paced: each change visits all watched holders.
    HintStorm,
    /// A lease ends after the node's own lease of its parent.
    OutlivesParent,
    /// Capacity taken from one holder is given to another before the first has confirmed its smaller lease.
    FreesUnconfirmed,
    /// A lease is forgotten after half of its length.
    ForgetsEarly,
    /// A cut by an operator lowers the unclaimed amount.
    CutLowersUnclaimed,
    /// An override raises what a parent lends.
    OverrideRaisesLent,
    /// Capacity added by an override is free although earlier masters may have given it.
    RaiseIsFree,
    /// Only the last assignment sent to an Envoy counts as possibly in use.
    ForgetsAssignments,
    /// An assignment ends after the lease that backs it.
    AssignmentOutlastsLease,
    /// Assignments that another gateway sent to an Envoy do not count.
    ForgetsOtherGateways,
    /// A gateway still requests capacity for an Envoy that may have moved to another gateway.
    AsksForEnvoysElsewhere,
    /// A client that may not ask under a name can release the leases of that name.
    ReleasesUnasked,
    /// The master advances the cluster clock by more time than has passed.
    ClusterClockIsFast,
    /// A new master starts with the cluster clock ahead of the stored moment.
    ClusterClockJumps,
    /// A part of the unclaimed amount ends as if the last master had given no lease from it.
    PartIgnoresGrants,
    /// A budget's release frees what is left of the slice twice.
    ReturnCountsTwice,
    /// What a silent holder of a budget had is free again.
    ExpiryFrees,
    /// A lease of a budget may last beyond the end of its period.
    SlicesOutlastPeriods,
    /// An answer of a budget leaves before the total that covers it is stored.
    BudgetBoundFollows,
    /// What was spent in a period is carried over with what is left.
    CarriesWhatWasSpent,
    /// All incarnations of a holder of a budget share one record.
    SharesIncarnations,
    /// A client takes a lease for renewed although the answer on its stream leaves it out, so that it may have none.
    RenewsWhatItLacks,
    /// A server applies a message of a stream of renewals again.
    AppliesDeltaTwice,
    /// A server renews the leases of a stream that was opened under an older master.
    RenewsForOlderMaster,
    /// A master continues although no quorum confirms it. Real processes only: the simulation has no elections.
    OldMasterGoesOn,
    /// A request to take over is obeyed in a later term of the same master. Real processes only, too.
    StaleHandOver,
}

/// Each fault with its name on the command line and the rule that it leaves out. Rules with a number are those of
/// src/core/lease/protocol.md, which [`crate::lease`] summarizes.
const FAULTS: [(Fault, &str, &str); 63] = [
    (Fault::KeepsWhatIsHeld, "keeps-what-is-held", "3"),
    (Fault::LearningConfirms, "learning-confirms", "8"),
    (Fault::HasReplaces, "has-replaces", "1"),
    (Fault::AbsentHasClears, "absent-has-clears", "1"),
    (Fault::LateReportLowers, "late-report-lowers", "2"),
    (Fault::RemembersLease, "remembers-lease", "7"),
    (Fault::FirstClaimFrees, "first-claim-frees", "E7"),
    (Fault::TakesLateAnswers, "takes-late-answers", "6"),
    (Fault::AnswerAfterEnd, "answer-after-end", "6"),
    (Fault::UsesEndedLease, "uses-ended-lease", "an ended lease is not used"),
    (Fault::ReplacesEnd, "replaces-end", "a lease never ends earlier than announced"),
    (Fault::ReleasesEverything, "releases-everything", "a release names its lease"),
    (Fault::LoweringCountsLate, "lowering-counts-late", "E1"),
    (Fault::UnclaimedIsFree, "unclaimed-is-free", "E1"),
    (Fault::UnclaimedEndsEarly, "unclaimed-ends-early", "E2"),
    (Fault::ClaimsBeyondUnclaimed, "claims-beyond-unclaimed", "E4"),
    (Fault::HighWaterMarkStays, "counted-from-stays", "E12"),
    (Fault::IgnoresHighWaterMark, "ignores-counted-from", "E12"),
    (Fault::KeepsLapsed, "keeps-lapsed", "E12"),
    (Fault::KeepsFailedClaims, "keeps-failed-claims", "E6"),
    (Fault::AppliesStaleClaims, "applies-stale-claims", "E3"),
    (Fault::MistakenClaimIsFree, "mistaken-claim-is-free", "E4"),
    (Fault::KeepsOlderAnswers, "keeps-older-answers", "E4"),
    (Fault::EchoFreesAll, "echo-frees-all", "E7"),
    (Fault::EchoKeepsCovered, "echo-keeps-covered", "E7"),
    (Fault::ClaimsOntoFresh, "claims-onto-fresh", "E5"),
    (Fault::FreshWhileClaimed, "fresh-while-claimed", "E5"),
    (Fault::LearningKeepsClaims, "learning-keeps-claims", "E7"),
    (Fault::LearningGivesMore, "learning-gives-more", "8"),
    (Fault::PlainGrows, "plain-grows", "E10"),
    (Fault::TakesLookalikes, "takes-lookalikes", "E10"),
    (Fault::ShownFreesAll, "shown-frees-all", "E10"),
    (Fault::OldReleaseFrees, "old-release-frees", "E8"),
    (Fault::BelievesClients, "believes-clients", "2"),
    (Fault::HidesOutstanding, "hides-outstanding", "2"),
    (Fault::AnswersBeforeCommit, "answers-before-commit", "7"),
    (Fault::AnswersParkedTwice, "answers-parked-twice", "a request has one answer"),
    (Fault::HintStorm, "hint-storm", "hints are paced"),
    (Fault::OutlivesParent, "outlives-parent", "a lease ends before the node's own does"),
    (Fault::FreesUnconfirmed, "frees-unconfirmed", "1"),
    (Fault::ForgetsEarly, "forgets-early", "a lease counts until it has certainly ended"),
    (Fault::CutLowersUnclaimed, "cut-lowers-unclaimed", "a cut lowers no total"),
    (Fault::OverrideRaisesLent, "override-raises-lent", "an override only lowers what is lent"),
    (Fault::RaiseIsFree, "raise-is-free", "capacity added while a resource learns counts as unclaimed"),
    (Fault::ForgetsAssignments, "forgets-assignments", "an Envoy may be using any live assignment"),
    (Fault::AssignmentOutlastsLease, "assignment-outlasts-lease", "no assignment outlasts its lease"),
    (Fault::ForgetsOtherGateways, "forgets-other-gateways", "assignments of other gateways count"),
    (Fault::AsksForEnvoysElsewhere, "asks-for-envoys-elsewhere", "a gateway requests capacity only for its own Envoys"),
    (Fault::ReleasesUnasked, "releases-unasked", "releasing needs the right to ask"),
    (Fault::ClusterClockIsFast, "cluster-clock-is-fast", "the cluster clock is never fast"),
    (Fault::ClusterClockJumps, "cluster-clock-jumps", "the cluster clock is never fast"),
    (Fault::PartIgnoresGrants, "part-ignores-grants", "E13"),
    (Fault::ReturnCountsTwice, "return-counts-twice", "a release frees what its sender has not spent, once"),
    (Fault::ExpiryFrees, "expiry-frees", "what a silent holder of a budget had is spent"),
    (Fault::SlicesOutlastPeriods, "slices-outlast-periods", "a slice ends with its period"),
    (Fault::BudgetBoundFollows, "budget-bound-follows", "E1, of a budget"),
    (Fault::CarriesWhatWasSpent, "carries-what-was-spent", "a budget carries over what is left"),
    (Fault::SharesIncarnations, "shares-incarnations", "a report belongs to one incarnation"),
    (Fault::RenewsWhatItLacks, "renews-what-it-lacks", "what an answer leaves out is not renewed"),
    (Fault::AppliesDeltaTwice, "applies-delta-twice", "no message of a stream is applied twice"),
    (Fault::RenewsForOlderMaster, "renews-for-older-master", "a stream ends with the term of its master"),
    (Fault::OldMasterGoesOn, "old-master-goes-on", "a term that no quorum confirms lapses"),
    (Fault::StaleHandOver, "stale-hand-over", "a request to take over is valid in its own term only"),
];

impl Fault {
    /// The faults of the state machines, which a simulation can show. The last two are about elections, which the
    /// simulation does not have.
    pub fn simulated() -> impl Iterator<Item = Fault> {
        FAULTS[..FAULTS.len() - 2].iter().map(|(fault, ..)| *fault)
    }

    pub fn named(name: &str) -> Option<Fault> {
        FAULTS.iter().find(|(_, known, _)| *known == name).map(|(fault, ..)| *fault)
    }

    pub fn name(self) -> &'static str {
        FAULTS[self as usize].1
    }

    /// The rule that it leaves out: its number, or the rule in words.
    pub fn rule(self) -> &'static str {
        FAULTS[self as usize].2
    }
}

/// Whether this fault is planted.
#[cfg(not(feature = "planted"))]
#[inline]
pub const fn is(_: Fault) -> bool {
    false
}

#[cfg(feature = "planted")]
pub use self::planting::{is, plant, plant_everywhere};

#[cfg(feature = "planted")]
mod planting {
    use std::{cell::Cell, sync::OnceLock};

    use super::Fault;

    static EVERYWHERE: OnceLock<Fault> = OnceLock::new();

    thread_local! {
        static PLANTED: Cell<Option<Fault>> = const { Cell::new(None) };
    }

    /// Plants a fault in all that runs on this thread from now on, or removes it.
    pub fn plant(fault: Option<Fault>) {
        PLANTED.set(fault);
    }

    /// Plants a fault in the whole process, for its lifetime. Later calls have no effect.
    pub fn plant_everywhere(fault: Fault) {
        let _ = EVERYWHERE.set(fault);
    }

    /// Whether this fault is planted.
    pub fn is(fault: Fault) -> bool {
        PLANTED.get().or_else(|| EVERYWHERE.get().copied()) == Some(fault)
    }
}
