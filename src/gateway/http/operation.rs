//! What can be asked for by HTTP: one table, from which routes, checks of what comes, metrics and the OpenAPI document
//! are made.

use axum::http::Method;

use super::{
    fields::{Field, FieldKind},
    problem::ProblemKind,
};

/// The most permits that are asked for at once.
pub(super) const MAX_PERMITS: i64 = 1_000_000_000;
/// The longest that a request waits for permits, in seconds.
pub(super) const MAX_WAIT: f64 = 60.0;
/// The longest that a reservation lasts, in seconds.
pub(super) const MAX_RESERVED: f64 = 3600.0;
/// How long one lasts that does not say.
const RESERVED: f64 = 60.0;

/// Something that can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Operation {
    GetLease,
    KeepLease,
    ReleaseLease,
    Acquire,
    Charge,
    Reserve,
    Settle,
    Standing,
}

/// A member of an answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member {
    pub(super) name: &'static str,
    pub(super) kind: MemberKind,
    pub(super) about: &'static str,
}

/// What a member of an answer may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemberKind {
    Text,
    Number,
    /// `null` stands for no limit, or for what there is none of.
    NumberOrNull,
    Whole,
}

const fn member(name: &'static str, kind: MemberKind, about: &'static str) -> Member {
    Member { name, kind, about }
}

const CLIENT: Field = Field::required("client", FieldKind::Id, "The client: an id that no other client uses.");
const RESOURCE: Field = Field::required("resource", FieldKind::Id, "The resource.");
const WANTS: Field = Field::required("wants", FieldKind::Amount, "How much the client would like.");
const PRIORITY: Field = Field::optional(
    "priority",
    FieldKind::Whole { least: i16::MIN as i64, most: i16::MAX as i64 },
    "How important the client claims to be; what that means is up to the resource.",
)
.or(0.0);
const PERMITS: Field =
    Field::optional("permits", FieldKind::Whole { least: 1, most: MAX_PERMITS }, "How many permits, all at once.")
        .or(1.0);
const WAIT: Field = Field::optional(
    "wait",
    FieldKind::Seconds { least: 0.0, most: MAX_WAIT },
    "How long to wait for them, in seconds, first come, first served.",
)
.or(0.0);

const GET_LEASE: &[Field] = &[CLIENT, RESOURCE, WANTS, PRIORITY];
const KEEP_LEASE: &[Field] = &[
    CLIENT,
    RESOURCE,
    WANTS,
    PRIORITY,
    Field::required(
        "token",
        FieldKind::LeaseToken,
        "The newest lease that the client has, by the `token` it came with.",
    ),
];
const RELEASE_LEASE: &[Field] = &[
    CLIENT,
    RESOURCE,
    Field::optional(
        "token",
        FieldKind::LeaseToken,
        "The newest lease that the client has; without it, all that it has is given back.",
    ),
];
const ACQUIRE: &[Field] = &[PERMITS, WAIT];
const CHARGE: &[Field] = &[Field::required(
    "permits",
    FieldKind::Whole { least: 1, most: MAX_PERMITS },
    "How many permits were used without being asked for.",
)];
const RESERVE: &[Field] = &[
    PERMITS,
    WAIT,
    Field::optional(
        "expires_in",
        FieldKind::Seconds { least: 1.0, most: MAX_RESERVED },
        "After so many seconds it ends by itself: the permits then count as used.",
    )
    .or(RESERVED),
];
const SETTLE: &[Field] = &[Field::required(
    "used",
    FieldKind::Whole { least: 0, most: MAX_PERMITS },
    "How many permits were really used; fewer are given back, more are charged.",
)];

const LEASE: &[Member] = &[
    member("client", MemberKind::Text, "The client."),
    member("resource", MemberKind::Text, "The resource."),
    member("capacity", MemberKind::Number, "How much it may use until the lease ends."),
    member("expires_in", MemberKind::Number, "Seconds until that, counted from when the request was sent."),
    member("expires_at", MemberKind::Whole, "The same by the cluster's clock, in seconds since 1970."),
    member("refresh_in", MemberKind::Number, "Seconds after which the lease should be kept."),
    member("safe_capacity", MemberKind::NumberOrNull, "What to use once it has ended unkept; null: there is no limit."),
    member("priority", MemberKind::Whole, "The priority that the cluster counts the client at."),
    member("token", MemberKind::Text, "Names the lease, to keep it and to release it."),
];
const TAKEN: &[Member] = &[
    member("resource", MemberKind::Text, "The resource."),
    member("permits", MemberKind::Whole, "How many were taken."),
    member("remaining", MemberKind::NumberOrNull, "How many could be had at once now; null: there is no limit."),
    member("capacity", MemberKind::NumberOrNull, "Permits per second that this gateway has; null: there is no limit."),
];
const CHARGED: &[Member] = &[
    member("resource", MemberKind::Text, "The resource."),
    member("permits", MemberKind::Whole, "How many were charged."),
    member("debt", MemberKind::Number, "Permits that are paid back before any are let through."),
];
const RESERVED_PERMITS: &[Member] = &[
    member("reservation", MemberKind::Text, "Names the reservation, to settle it."),
    member("resource", MemberKind::Text, "The resource."),
    member("permits", MemberKind::Whole, "How many are reserved."),
    member("expires_in", MemberKind::Number, "Seconds after which they count as used."),
    member("remaining", MemberKind::NumberOrNull, "How many could be had at once now; null: there is no limit."),
    member("capacity", MemberKind::NumberOrNull, "Permits per second that this gateway has; null: there is no limit."),
];
const SETTLED: &[Member] = &[
    member("resource", MemberKind::Text, "The resource."),
    member("reserved", MemberKind::Whole, "How many permits were reserved."),
    member("used", MemberKind::Whole, "How many of them were used."),
    member("debt", MemberKind::Number, "Permits that are paid back before any are let through."),
];
const STANDING: &[Member] = &[
    member("resource", MemberKind::Text, "The resource."),
    member("capacity", MemberKind::NumberOrNull, "Permits per second that this gateway has; null: there is no limit."),
    member("basis", MemberKind::Text, "Why: `lease`, `fallback` (the lease has ended) or `unknown` (there was none)."),
    member("lease_expires_in", MemberKind::NumberOrNull, "Seconds until the lease ends; null: there is none."),
    member("remaining", MemberKind::NumberOrNull, "How many permits could be had at once; null: there is no limit."),
    member("debt", MemberKind::Number, "Permits that are paid back before any are let through."),
    member("reservations", MemberKind::Whole, "Reservations of it at this gateway that are not settled."),
];

/// Of any request with a body or a query.
const READ: [ProblemKind; 4] = [ProblemKind::BadValue, ProblemKind::Slow, ProblemKind::TooLarge, ProblemKind::NotJson];
const CALL: [ProblemKind; 3] = [ProblemKind::Unauthenticated, ProblemKind::Denied, ProblemKind::Closing];
const OF_LEASES: &[ProblemKind] = &[ProblemKind::TooSoon, ProblemKind::BadCluster];
const OF_PERMITS: &[ProblemKind] = &[ProblemKind::OverLimit];

impl Operation {
    pub(super) const ALL: [Operation; 8] = [
        Operation::GetLease,
        Operation::KeepLease,
        Operation::ReleaseLease,
        Operation::Acquire,
        Operation::Charge,
        Operation::Reserve,
        Operation::Settle,
        Operation::Standing,
    ];

    /// Its name in metrics and in the document.
    pub(super) fn name(self) -> &'static str {
        match self {
            Operation::GetLease => "get_lease",
            Operation::KeepLease => "keep_lease",
            Operation::ReleaseLease => "release_lease",
            Operation::Acquire => "acquire",
            Operation::Charge => "charge",
            Operation::Reserve => "reserve",
            Operation::Settle => "settle",
            Operation::Standing => "standing",
        }
    }

    pub(super) fn about(self) -> &'static str {
        match self {
            Operation::GetLease => "Asks for a share of a resource, as a lease of the client's own",
            Operation::KeepLease => "Asks again before the lease ends, and says which one the client has",
            Operation::ReleaseLease => "Gives a lease back",
            Operation::Acquire => "Takes permits of a resource, of which this gateway holds the lease",
            Operation::Charge => "Counts permits that were used without being asked for",
            Operation::Reserve => "Takes permits for something whose cost is known only afterwards",
            Operation::Settle => "Says what a reservation has really cost",
            Operation::Standing => "What this gateway has of a resource",
        }
    }

    pub(super) fn path(self) -> &'static str {
        match self {
            Operation::GetLease | Operation::KeepLease | Operation::ReleaseLease => "/v1/leases",
            Operation::Acquire => "/v1/resources/{resource}/acquire",
            Operation::Charge => "/v1/resources/{resource}/charge",
            Operation::Reserve => "/v1/resources/{resource}/reservations",
            Operation::Settle => "/v1/reservations/{reservation}/settle",
            Operation::Standing => "/v1/resources/{resource}",
        }
    }

    /// The parameter in its path.
    pub(super) fn parameter(self) -> Option<&'static str> {
        let (_, after) = self.path().split_once('{')?;
        Some(after.split_once('}')?.0)
    }

    pub(super) fn method(self) -> Method {
        match self {
            Operation::KeepLease => Method::PUT,
            Operation::ReleaseLease => Method::DELETE,
            Operation::Standing => Method::GET,
            _ => Method::POST,
        }
    }

    /// What stands in its body.
    pub(super) fn body(self) -> &'static [Field] {
        match self {
            Operation::GetLease => GET_LEASE,
            Operation::KeepLease => KEEP_LEASE,
            Operation::Acquire => ACQUIRE,
            Operation::Charge => CHARGE,
            Operation::Reserve => RESERVE,
            Operation::Settle => SETTLE,
            Operation::ReleaseLease | Operation::Standing => &[],
        }
    }

    /// What stands behind the question mark.
    pub(super) fn query(self) -> &'static [Field] {
        if self == Operation::ReleaseLease { RELEASE_LEASE } else { &[] }
    }

    /// The status of a request that was carried out, and what it is answered with.
    pub(super) fn answer(self) -> (u16, &'static [Member]) {
        match self {
            Operation::GetLease | Operation::KeepLease => (200, LEASE),
            Operation::ReleaseLease => (204, &[]),
            Operation::Acquire => (200, TAKEN),
            Operation::Charge => (200, CHARGED),
            Operation::Reserve => (201, RESERVED_PERMITS),
            Operation::Settle => (200, SETTLED),
            Operation::Standing => (200, STANDING),
        }
    }

    /// What else it may be answered with, one of each status.
    pub(super) fn problems(self) -> Vec<ProblemKind> {
        let own = match self {
            Operation::GetLease | Operation::KeepLease | Operation::ReleaseLease => OF_LEASES,
            Operation::Acquire | Operation::Reserve => OF_PERMITS,
            // More than may be owed.
            Operation::Charge => OF_PERMITS,
            Operation::Settle => &[ProblemKind::NotFound, ProblemKind::OverLimit],
            Operation::Standing => &[ProblemKind::NotFound],
        };
        let mut problems: Vec<ProblemKind> = READ.iter().chain(&CALL).chain(own).copied().collect();
        if self.body().is_empty() {
            problems.retain(|kind| !READ[1..].contains(kind));
        }
        problems.sort_by_key(|kind| kind.status());
        problems
    }

    /// Whether its answers tell what is left.
    pub(super) fn tells_quota(self) -> bool {
        matches!(self, Operation::Acquire | Operation::Reserve | Operation::Standing)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn operations_differ_by_method_and_path_and_name() {
        let places: BTreeSet<_> = Operation::ALL.iter().map(|one| (one.path(), one.method().to_string())).collect();
        let names: BTreeSet<_> = Operation::ALL.iter().map(|one| one.name()).collect();
        assert_eq!((places.len(), names.len()), (Operation::ALL.len(), Operation::ALL.len()));
    }

    #[test]
    fn an_operation_has_one_problem_of_each_status() {
        for operation in Operation::ALL {
            let statuses: Vec<_> = operation.problems().iter().map(|kind| kind.status()).collect();
            let distinct: BTreeSet<_> = statuses.iter().collect();
            assert_eq!(distinct.len(), statuses.len(), "{operation:?}: {statuses:?}");
        }
    }

    #[test]
    fn requests_are_read_from_the_body_or_from_the_query_or_from_neither() {
        for operation in Operation::ALL {
            assert!(operation.body().is_empty() || operation.query().is_empty(), "{operation:?}");
            for field in operation.body().iter().chain(operation.query()) {
                assert!(!field.about.is_empty(), "{field:?}");
                assert!(!field.required || field.default.is_none(), "{field:?}");
            }
        }
    }
}
