//! Faults that can be planted on purpose, to show that the simulation finds them.
//!
//! Each leaves out one rule of the lease protocol, at the one place that keeps it. Without the feature `planted` the
//! question whether a fault [`is`] there has a constant answer, and none of this is left in the program.
//!
//! Deliberately absent: two live processes under one id. Nothing here could keep that rule, and nothing can leave it
//! out.

/// A rule that is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A holder may keep all that is held for it: an inflated ceiling, or what is outstanding, becomes an entitlement.
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
    /// The first request that a new master gets lowers what was promised to its sender.
    FirstHasLowersPromise,
    /// A client takes answers that it does not wait for any more.
    TakesLateAnswers,
    /// An answer counts although the lease that its request named has ended.
    AnswerAfterEnd,
    /// A lease that ends sooner than the one before it replaces its end.
    ReplacesEnd,
    /// A delayed release counts for all that its sender has by now.
    ReleasesEverything,
    /// Promises are raised first, and those that pay for it are lowered some time later.
    LowersLazily,
    /// A child node does not say what is outstanding below it.
    HidesOutstanding,
    /// An answer leaves before a quorum has stored what it promises.
    AnswersBeforeCommit,
    /// A request that waits for the first supply is answered when it has waited for long enough, and again with the
    /// supply.
    AnswersParkedTwice,
    /// Hints are not paced: watched holders are looked at with every change.
    HintStorm,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 16] = [
        Fault::KeepsWhatIsHeld,
        Fault::LearningConfirms,
        Fault::HasReplaces,
        Fault::AbsentHasClears,
        Fault::LateReportLowers,
        Fault::RemembersLease,
        Fault::FirstHasLowersPromise,
        Fault::TakesLateAnswers,
        Fault::AnswerAfterEnd,
        Fault::ReplacesEnd,
        Fault::ReleasesEverything,
        Fault::LowersLazily,
        Fault::HidesOutstanding,
        Fault::AnswersBeforeCommit,
        Fault::AnswersParkedTwice,
        Fault::HintStorm,
    ];

    /// What it is called on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Fault::KeepsWhatIsHeld => "keeps-what-is-held",
            Fault::LearningConfirms => "learning-confirms",
            Fault::HasReplaces => "has-replaces",
            Fault::AbsentHasClears => "absent-has-clears",
            Fault::LateReportLowers => "late-report-lowers",
            Fault::RemembersLease => "remembers-lease",
            Fault::FirstHasLowersPromise => "first-has-lowers-promise",
            Fault::TakesLateAnswers => "takes-late-answers",
            Fault::AnswerAfterEnd => "answer-after-end",
            Fault::ReplacesEnd => "replaces-end",
            Fault::ReleasesEverything => "releases-everything",
            Fault::LowersLazily => "lowers-lazily",
            Fault::HidesOutstanding => "hides-outstanding",
            Fault::AnswersBeforeCommit => "answers-before-commit",
            Fault::AnswersParkedTwice => "answers-parked-twice",
            Fault::HintStorm => "hint-storm",
        }
    }

    /// The rule of the lease protocol that it leaves out; those without a number are sentences of their own.
    pub fn rule(self) -> &'static str {
        match self {
            Fault::HasReplaces | Fault::AbsentHasClears | Fault::FirstHasLowersPromise => "1",
            Fault::LateReportLowers | Fault::HidesOutstanding => "2",
            Fault::KeepsWhatIsHeld => "3",
            Fault::TakesLateAnswers | Fault::AnswerAfterEnd => "6",
            Fault::RemembersLease | Fault::LowersLazily => "7",
            Fault::LearningConfirms => "8",
            Fault::ReplacesEnd => "an end is never taken back",
            Fault::ReleasesEverything => "a release names its lease",
            Fault::AnswersBeforeCommit => "7",
            Fault::AnswersParkedTwice => "a request has one answer",
            Fault::HintStorm => "looks are paced",
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
pub use self::planting::{is, plant};

#[cfg(feature = "planted")]
mod planting {
    use std::cell::Cell;

    use super::Fault;

    thread_local! {
        static PLANTED: Cell<Option<Fault>> = const { Cell::new(None) };
    }

    /// Plants a fault in all that runs on this thread from now on, or removes it.
    pub fn plant(fault: Option<Fault>) {
        PLANTED.set(fault);
    }

    /// Whether this fault is planted.
    pub fn is(fault: Fault) -> bool {
        PLANTED.get() == Some(fault)
    }
}
