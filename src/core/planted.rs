//! Faults that can be planted on purpose, to show that the simulation finds them.
//!
//! Each leaves out one rule of the lease protocol, at the one place that keeps it. Without the feature `planted`,
//! [`is`] returns a constant, and nothing of this is left in the program.
//!
//! Not here: two live processes under one id. Nothing could keep that rule, and nothing can leave it out.

/// A rule that is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A holder may keep all that is held for it: an inflated record, or what is outstanding, becomes an entitlement.
    KeepsWhatIsHeld,
    /// A child node that is learning confirms, though it does not know all its clients.
    LearningConfirms,
    /// What a request says it has replaces all that is known, also what was given since.
    HasReplaces,
    /// A request that does not say what it has is taken to have nothing.
    AbsentHasClears,
    /// A delayed request lowers what is outstanding.
    LateReportLowers,
    /// A new master of a child node uses what it remembers of the node's lease.
    RemembersLease,
    /// The first request that claims a lease of an earlier master frees what it has claimed.
    FirstNameFrees,
    /// A client takes answers that it does not wait for any more.
    TakesLateAnswers,
    /// A client takes an answer that comes after the end of the lease that its request named.
    AnswerAfterEnd,
    /// A client uses a lease that has ended.
    UsesEndedLease,
    /// A lease that ends sooner than the one before it replaces its end.
    ReplacesEnd,
    /// A delayed release counts for all that its sender has by now.
    ReleasesEverything,
    /// A total that falls counts only when that is stored, not when it is proposed.
    LoweringCountsLate,
    /// Inherited leases that nobody has claimed count as free.
    UnclaimedIsFree,
    /// Inherited leases are forgotten before the last lease of earlier masters has ended.
    UnclaimedEndsEarly,
    /// A holder may claim more than is unclaimed.
    ClaimsBeyondUnclaimed,
    /// `counted_from` stays when the capacity of ended leases is given to others, so the next master lets them be
    /// claimed.
    FloorStays,
    /// A lease that has ended may be claimed although it is below `counted_from`.
    FloorIsNothing,
    /// Below a parent a holder may keep a lease that has ended, although the parent may have lent that to others.
    KeepsWhatLapsed,
    /// What a holder says it has counts although it could not be claimed.
    KeepsWhatIsNamed,
    /// A stale request counts.
    TakesStaleNames,
    /// What was claimed by mistake is free.
    ReturnsToFree,
    /// Leases that answer an earlier claim still count after the holder has claimed a newer lease.
    KeepsOlderAnswers,
    /// An echo frees the claimed amount even if it answers an earlier claim.
    EchoFreesAll,
    /// Leases that an echo shows to be of an earlier claim still count.
    EchoKeepsCovered,
    /// A claim is added to a record with a fresh lease.
    MovesOntoFresh,
    /// A holder that has claimed something and now says nothing is given something.
    FreshWhileMoved,
    /// A child node in learning mode keeps what its former master claimed late.
    LearningKeepsMoved,
    /// A child node that is learning gives holders more than they have, though more may be out than it counts.
    LearningGivesMore,
    /// A holder that echoes no tokens grows before the inherited leases have ended.
    PlainGrows,
    /// A lease without a token counts as one of this master though it may be one of an earlier.
    TakesLookalikes,
    /// A holder without tokens that shows a lease of this master frees all that it has claimed.
    ShownFreesAll,
    /// A release that names a lease of an earlier master frees what its holder has here.
    OldReleaseFrees,
    /// What a client reports as outstanding counts, also beyond what it was given.
    BelievesClients,
    /// A child node does not say what is outstanding below it.
    HidesOutstanding,
    /// An answer leaves before a quorum has stored what it promises.
    AnswersBeforeCommit,
    /// A request that waits for the first supply is answered when it has waited for long enough, and again with the
    /// supply.
    AnswersParkedTwice,
    /// Hints are not paced: watched holders are looked at with every change.
    HintStorm,
    /// A lease of a node with a parent may end after the parent's.
    OutlivesParent,
    /// What a holder no longer should have goes to others before it has shown that it knows.
    FreesUnconfirmed,
    /// A lease is forgotten when half of its length is over.
    ForgetsEarly,
    /// A cut by an operator lowers the unclaimed amount.
    CutLowersUnclaimed,
    /// An override raises what a parent lends.
    OverrideRaisesLent,
    /// A raise by an override is free although it is not known who may have it.
    RaiseIsFree,
    /// What an Envoy was told last is all that it may believe.
    ForgetsAssignments,
    /// An assignment may be believed for longer than the lease that it is made of.
    AssignmentOutlastsLease,
    /// What another gateway has told an Envoy does not count.
    ForgetsOtherGateways,
    /// A gateway goes on asking for an Envoy that may have gone to another.
    AsksForEnvoysElsewhere,
    /// What may be a client at all may release the leases of any.
    ReleasesUnasked,
    /// The master stores an advance of the clock of the cluster that is more than has passed.
    ClusterClockIsFast,
    /// A new master begins with the clock of the cluster ahead of what is stored.
    ClusterClockJumps,
    /// What earlier masters promised ends as if the last one had given no lease under its own name.
    PartIgnoresGrants,
    /// A master that no quorum confirms any more goes on. In real processes only: the simulation has no elections.
    OldMasterGoesOn,
    /// A request to take over counts in a later term of the same master. In real processes only, too.
    StaleHandOver,
}

/// Each fault with its name on the command line and the rule that it leaves out. Rules with a number are those of
/// docs/internals/lease-protocol.md, which [`crate::lease`] summarizes.
const FAULTS: [(Fault, &str, &str); 54] = [
    (Fault::KeepsWhatIsHeld, "keeps-what-is-held", "3"),
    (Fault::LearningConfirms, "learning-confirms", "8"),
    (Fault::HasReplaces, "has-replaces", "1"),
    (Fault::AbsentHasClears, "absent-has-clears", "1"),
    (Fault::LateReportLowers, "late-report-lowers", "2"),
    (Fault::RemembersLease, "remembers-lease", "7"),
    (Fault::FirstNameFrees, "first-name-frees", "E7"),
    (Fault::TakesLateAnswers, "takes-late-answers", "6"),
    (Fault::AnswerAfterEnd, "answer-after-end", "6"),
    (Fault::UsesEndedLease, "uses-ended-lease", "a lease that has ended is not used"),
    (Fault::ReplacesEnd, "replaces-end", "an end is never taken back"),
    (Fault::ReleasesEverything, "releases-everything", "a release names its lease"),
    (Fault::LoweringCountsLate, "lowering-counts-late", "E1"),
    (Fault::UnclaimedIsFree, "unclaimed-is-free", "E1"),
    (Fault::UnclaimedEndsEarly, "unclaimed-ends-early", "E2"),
    (Fault::ClaimsBeyondUnclaimed, "claims-beyond-unclaimed", "E4"),
    (Fault::FloorStays, "floor-stays", "E12"),
    (Fault::FloorIsNothing, "floor-is-nothing", "E12"),
    (Fault::KeepsWhatLapsed, "keeps-what-lapsed", "E12"),
    (Fault::KeepsWhatIsNamed, "keeps-what-is-named", "E6"),
    (Fault::TakesStaleNames, "takes-stale-names", "E3"),
    (Fault::ReturnsToFree, "returns-to-free", "E4"),
    (Fault::KeepsOlderAnswers, "keeps-older-answers", "E4"),
    (Fault::EchoFreesAll, "echo-frees-all", "E7"),
    (Fault::EchoKeepsCovered, "echo-keeps-covered", "E7"),
    (Fault::MovesOntoFresh, "moves-onto-fresh", "E5"),
    (Fault::FreshWhileMoved, "fresh-while-moved", "E5"),
    (Fault::LearningKeepsMoved, "learning-keeps-moved", "E7"),
    (Fault::LearningGivesMore, "learning-gives-more", "8"),
    (Fault::PlainGrows, "plain-grows", "E10"),
    (Fault::TakesLookalikes, "takes-lookalikes", "E10"),
    (Fault::ShownFreesAll, "shown-frees-all", "E10"),
    (Fault::OldReleaseFrees, "old-release-frees", "E8"),
    (Fault::BelievesClients, "believes-clients", "2"),
    (Fault::HidesOutstanding, "hides-outstanding", "2"),
    (Fault::AnswersBeforeCommit, "answers-before-commit", "7"),
    (Fault::AnswersParkedTwice, "answers-parked-twice", "a request has one answer"),
    (Fault::HintStorm, "hint-storm", "looks are paced"),
    (Fault::OutlivesParent, "outlives-parent", "a lease ends before the node's own does"),
    (Fault::FreesUnconfirmed, "frees-unconfirmed", "1"),
    (Fault::ForgetsEarly, "forgets-early", "a lease counts until it has certainly ended"),
    (Fault::CutLowersUnclaimed, "cut-lowers-unclaimed", "a cut lowers no total"),
    (Fault::OverrideRaisesLent, "override-raises-lent", "an override only lowers what is lent"),
    (Fault::RaiseIsFree, "raise-is-free", "capacity added while a resource learns counts as unclaimed"),
    (Fault::ForgetsAssignments, "forgets-assignments", "any assignment may be the one that is believed"),
    (Fault::AssignmentOutlastsLease, "assignment-outlasts-lease", "no assignment outlasts its lease"),
    (Fault::ForgetsOtherGateways, "forgets-other-gateways", "what another gateway has told an Envoy counts"),
    (
        Fault::AsksForEnvoysElsewhere,
        "asks-for-envoys-elsewhere",
        "a gateway asks for an Envoy only while that is certainly there",
    ),
    (Fault::ReleasesUnasked, "releases-unasked", "a release is as much as asking"),
    (Fault::ClusterClockIsFast, "cluster-clock-is-fast", "the clock of the cluster is never early"),
    (Fault::ClusterClockJumps, "cluster-clock-jumps", "the clock of the cluster is never early"),
    (Fault::PartIgnoresGrants, "part-ignores-grants", "E13"),
    (Fault::OldMasterGoesOn, "old-master-goes-on", "a term that no quorum confirms lapses"),
    (Fault::StaleHandOver, "stale-hand-over", "a request to take over counts only for the term that has ended with it"),
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

    /// Plants a fault in this process, for good. The first stays.
    pub fn plant_everywhere(fault: Fault) {
        let _ = EVERYWHERE.set(fault);
    }

    /// Whether this fault is planted.
    pub fn is(fault: Fault) -> bool {
        PLANTED.get().or_else(|| EVERYWHERE.get().copied()) == Some(fault)
    }
}
