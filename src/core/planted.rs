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
    EstateIsFree,
    /// Inherited leases are forgotten before the last lease of earlier masters has ended.
    EstateEndsEarly,
    /// A holder may claim more than is unclaimed.
    MovesBeyondEstate,
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
    CutLowersEstate,
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
    /// A request to take over counts in a later reign of the same master. In real processes only, too.
    StaleHandOver,
}

impl Fault {
    /// All that a simulation can show: those of the state machines.
    pub const SIMULATED: [Fault; 52] = [
        Fault::KeepsWhatIsHeld,
        Fault::LearningConfirms,
        Fault::HasReplaces,
        Fault::AbsentHasClears,
        Fault::LateReportLowers,
        Fault::RemembersLease,
        Fault::FirstNameFrees,
        Fault::TakesLateAnswers,
        Fault::AnswerAfterEnd,
        Fault::UsesEndedLease,
        Fault::ReplacesEnd,
        Fault::ReleasesEverything,
        Fault::LoweringCountsLate,
        Fault::EstateIsFree,
        Fault::EstateEndsEarly,
        Fault::MovesBeyondEstate,
        Fault::FloorStays,
        Fault::FloorIsNothing,
        Fault::KeepsWhatLapsed,
        Fault::KeepsWhatIsNamed,
        Fault::TakesStaleNames,
        Fault::ReturnsToFree,
        Fault::KeepsOlderAnswers,
        Fault::EchoFreesAll,
        Fault::EchoKeepsCovered,
        Fault::MovesOntoFresh,
        Fault::FreshWhileMoved,
        Fault::LearningKeepsMoved,
        Fault::LearningGivesMore,
        Fault::PlainGrows,
        Fault::TakesLookalikes,
        Fault::ShownFreesAll,
        Fault::OldReleaseFrees,
        Fault::BelievesClients,
        Fault::HidesOutstanding,
        Fault::AnswersBeforeCommit,
        Fault::AnswersParkedTwice,
        Fault::HintStorm,
        Fault::OutlivesParent,
        Fault::FreesUnconfirmed,
        Fault::ForgetsEarly,
        Fault::CutLowersEstate,
        Fault::OverrideRaisesLent,
        Fault::RaiseIsFree,
        Fault::ForgetsAssignments,
        Fault::AssignmentOutlastsLease,
        Fault::ForgetsOtherGateways,
        Fault::AsksForEnvoysElsewhere,
        Fault::ReleasesUnasked,
        Fault::ClusterClockIsFast,
        Fault::ClusterClockJumps,
        Fault::PartIgnoresGrants,
    ];

    /// The fault of that name.
    pub fn named(name: &str) -> Option<Fault> {
        let all = Fault::SIMULATED.into_iter().chain([Fault::OldMasterGoesOn, Fault::StaleHandOver]);
        all.into_iter().find(|fault| fault.name() == name)
    }

    /// What it is called on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Fault::KeepsWhatIsHeld => "keeps-what-is-held",
            Fault::LearningConfirms => "learning-confirms",
            Fault::HasReplaces => "has-replaces",
            Fault::AbsentHasClears => "absent-has-clears",
            Fault::LateReportLowers => "late-report-lowers",
            Fault::RemembersLease => "remembers-lease",
            Fault::FirstNameFrees => "first-name-frees",
            Fault::TakesLateAnswers => "takes-late-answers",
            Fault::AnswerAfterEnd => "answer-after-end",
            Fault::UsesEndedLease => "uses-ended-lease",
            Fault::ReplacesEnd => "replaces-end",
            Fault::ReleasesEverything => "releases-everything",
            Fault::LoweringCountsLate => "lowering-counts-late",
            Fault::EstateIsFree => "estate-is-free",
            Fault::EstateEndsEarly => "estate-ends-early",
            Fault::MovesBeyondEstate => "moves-beyond-estate",
            Fault::FloorStays => "floor-stays",
            Fault::FloorIsNothing => "floor-is-nothing",
            Fault::KeepsWhatLapsed => "keeps-what-lapsed",
            Fault::KeepsWhatIsNamed => "keeps-what-is-named",
            Fault::TakesStaleNames => "takes-stale-names",
            Fault::ReturnsToFree => "returns-to-free",
            Fault::KeepsOlderAnswers => "keeps-older-answers",
            Fault::EchoFreesAll => "echo-frees-all",
            Fault::EchoKeepsCovered => "echo-keeps-covered",
            Fault::MovesOntoFresh => "moves-onto-fresh",
            Fault::FreshWhileMoved => "fresh-while-moved",
            Fault::LearningKeepsMoved => "learning-keeps-moved",
            Fault::LearningGivesMore => "learning-gives-more",
            Fault::PlainGrows => "plain-grows",
            Fault::TakesLookalikes => "takes-lookalikes",
            Fault::ShownFreesAll => "shown-frees-all",
            Fault::OldReleaseFrees => "old-release-frees",
            Fault::BelievesClients => "believes-clients",
            Fault::HidesOutstanding => "hides-outstanding",
            Fault::AnswersBeforeCommit => "answers-before-commit",
            Fault::AnswersParkedTwice => "answers-parked-twice",
            Fault::HintStorm => "hint-storm",
            Fault::OutlivesParent => "outlives-parent",
            Fault::FreesUnconfirmed => "frees-unconfirmed",
            Fault::ForgetsEarly => "forgets-early",
            Fault::CutLowersEstate => "cut-lowers-estate",
            Fault::OverrideRaisesLent => "override-raises-lent",
            Fault::RaiseIsFree => "raise-is-free",
            Fault::ForgetsAssignments => "forgets-assignments",
            Fault::AssignmentOutlastsLease => "assignment-outlasts-lease",
            Fault::ForgetsOtherGateways => "forgets-other-gateways",
            Fault::AsksForEnvoysElsewhere => "asks-for-envoys-elsewhere",
            Fault::ReleasesUnasked => "releases-unasked",
            Fault::ClusterClockIsFast => "cluster-clock-is-fast",
            Fault::ClusterClockJumps => "cluster-clock-jumps",
            Fault::PartIgnoresGrants => "part-ignores-grants",
            Fault::OldMasterGoesOn => "old-master-goes-on",
            Fault::StaleHandOver => "stale-hand-over",
        }
    }

    /// The rule of the lease protocol that it leaves out; those without a number are sentences of their own.
    pub fn rule(self) -> &'static str {
        match self {
            Fault::HasReplaces | Fault::AbsentHasClears => "1",
            Fault::LateReportLowers | Fault::BelievesClients | Fault::HidesOutstanding => "2",
            Fault::KeepsWhatIsHeld => "3",
            Fault::TakesLateAnswers | Fault::AnswerAfterEnd => "6",
            Fault::RemembersLease => "7",
            Fault::LoweringCountsLate | Fault::EstateIsFree => "E1",
            Fault::EstateEndsEarly => "E2",
            Fault::TakesStaleNames => "E3",
            Fault::MovesBeyondEstate | Fault::ReturnsToFree | Fault::KeepsOlderAnswers => "E4",
            Fault::MovesOntoFresh | Fault::FreshWhileMoved => "E5",
            Fault::KeepsWhatIsNamed => "E6",
            Fault::FirstNameFrees | Fault::EchoFreesAll | Fault::EchoKeepsCovered | Fault::LearningKeepsMoved => "E7",
            Fault::OldReleaseFrees => "E8",
            Fault::PlainGrows | Fault::TakesLookalikes | Fault::ShownFreesAll => "E10",
            Fault::FloorStays | Fault::FloorIsNothing | Fault::KeepsWhatLapsed => "E12",
            Fault::LearningConfirms | Fault::LearningGivesMore => "8",
            Fault::UsesEndedLease => "a lease that has ended is not used",
            Fault::ReplacesEnd => "an end is never taken back",
            Fault::ReleasesEverything => "a release names its lease",
            Fault::AnswersBeforeCommit => "7",
            Fault::AnswersParkedTwice => "a request has one answer",
            Fault::HintStorm => "looks are paced",
            Fault::OutlivesParent => "a lease ends before the node's own does",
            Fault::FreesUnconfirmed => "1",
            Fault::ForgetsEarly => "a lease counts until it has certainly ended",
            Fault::CutLowersEstate => "a cut lowers no total",
            Fault::OverrideRaisesLent => "an override only lowers what is lent",
            Fault::RaiseIsFree => "what there is more while a resource learns goes to its estate",
            Fault::ForgetsAssignments => "any assignment may be the one that is believed",
            Fault::AssignmentOutlastsLease => "no assignment outlasts its lease",
            Fault::ForgetsOtherGateways => "what another gateway has told an Envoy counts",
            Fault::AsksForEnvoysElsewhere => "a gateway asks for an Envoy only while that is certainly there",
            Fault::ReleasesUnasked => "a release is as much as asking",
            Fault::ClusterClockIsFast | Fault::ClusterClockJumps => "the clock of the cluster is never early",
            Fault::PartIgnoresGrants => "E13",
            Fault::OldMasterGoesOn => "a reign that no quorum confirms lapses",
            Fault::StaleHandOver => "a request to take over counts only for the reign that has ended with it",
        }
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
