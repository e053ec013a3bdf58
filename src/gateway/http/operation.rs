//! The table of operations. Routes, validation, metrics and the OpenAPI document are made from it.

use axum::http::Method;

use super::{
    fields::{Field, FieldKind},
    problem::ProblemKind,
};

/// The maximum number of permits in one request.
pub(super) const MAX_PERMITS: i64 = 1_000_000_000;
/// The maximum number of limits in one request.
const MAX_LIMITS: usize = 8;
/// The maximum time that a request waits for permits, in seconds.
pub(super) const MAX_WAIT: f64 = 60.0;
/// The maximum duration of a reservation, in seconds.
pub(super) const MAX_RESERVED: f64 = 3600.0;
/// The default duration of a reservation, in seconds.
const RESERVED: f64 = 60.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Operation {
    GetLease,
    KeepLease,
    ReleaseLease,
    Acquire,
    AcquireAll,
    Charge,
    Reserve,
    ReserveAll,
    Settle,
    SettleAll,
    Spend,
    Standing,
}

/// A member of the JSON object in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) name: &'static str,
    pub(super) kind: MemberKind,
    pub(super) about: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemberKind {
    Text,
    Number,
    /// `null` means no limit, or no value.
    NumberOrNull,
    Whole,
    Flag,
    /// A list of objects, each of one of these shapes.
    List(&'static [Shape]),
}

/// The members of a JSON object in an answer.
pub(super) type Shape = &'static [Member];

const fn member(name: &'static str, kind: MemberKind, about: &'static str) -> Member {
    Member { name, kind, about }
}

const CLIENT: Field = Field::required("client", FieldKind::Id, "Unique id of the client.");
const RESOURCE: Field = Field::required("resource", FieldKind::Id, "The resource.");
const WANTS: Field = Field::required("wants", FieldKind::Amount, "Requested capacity.");
const PRIORITY: Field = Field::optional(
    "priority",
    FieldKind::Whole { least: i16::MIN as i64, most: i16::MAX as i64 },
    "Priority of the client; the resource's template decides whether it counts.",
)
.or(0.0);
const PERMITS: Field = Field::optional(
    "permits",
    FieldKind::Whole { least: 1, most: MAX_PERMITS },
    "Number of permits; all of them or none are taken.",
)
.or(1.0);
const PERMITS_OR_AMOUNT: Field = PERMITS.or_fields(&["amount", "usage"]);
const AMOUNT: Field = Field::optional("amount", FieldKind::Amount, "An amount of a budget, in place of `permits`.")
    .or_fields(&["permits", "usage"]);
const MODEL: Field =
    Field::optional("model", FieldKind::Id, "The model of `usage` in the price table (--prices).").with_field("usage");
const USAGE: Field = Field::optional(
    "usage",
    FieldKind::Usage,
    "Numbers of units, such as tokens, by their names in the price table. Their cost is the `amount`.",
)
.or_fields(&["amount", "permits"])
.with_field("model");
const WAIT: Field = Field::optional(
    "wait",
    FieldKind::Seconds { least: 0.0, most: MAX_WAIT },
    "Maximum wait in seconds. Waiting \
                                                                                requests are served in order of \
                                                                                arrival.",
)
.or(0.0);

const GET_LEASE: &[Field] = &[CLIENT, RESOURCE, WANTS, PRIORITY];
const KEEP_LEASE: &[Field] = &[
    CLIENT,
    RESOURCE,
    WANTS,
    PRIORITY,
    Field::required("token", FieldKind::LeaseToken, "The `token` of the client's newest lease."),
];
const RELEASE_LEASE: &[Field] = &[
    CLIENT,
    RESOURCE,
    Field::optional(
        "token",
        FieldKind::LeaseToken,
        "The `token` of the client's newest lease. Without it, any lease of the client is released.",
    ),
];
const ACQUIRE: &[Field] = &[PERMITS, WAIT];
const LIMITS: Field = Field::required(
    "limits",
    FieldKind::List { fields: &[RESOURCE, PERMITS_OR_AMOUNT, AMOUNT, MODEL, USAGE], most: MAX_LIMITS },
    "The limits. Permits and amounts are taken from all of them, or from none.",
);
const ACQUIRE_ALL: &[Field] = &[LIMITS, WAIT];
const CHARGE: &[Field] = &[
    Field::required(
        "permits",
        FieldKind::Whole { least: 1, most: MAX_PERMITS },
        "Number of permits used without having been acquired.",
    )
    .or_fields(&["amount", "usage"]),
    AMOUNT,
    MODEL,
    USAGE,
];
const EXPIRES_IN: Field = Field::optional(
    "expires_in",
    FieldKind::Seconds { least: 1.0, most: MAX_RESERVED },
    "Seconds until the reservation expires; the permits or the amount then count as used.",
)
.or(RESERVED);
const RESERVE: &[Field] = &[PERMITS_OR_AMOUNT, AMOUNT, MODEL, USAGE, WAIT, EXPIRES_IN];
const RESERVE_ALL: &[Field] = &[LIMITS, WAIT, EXPIRES_IN];
const USED: Field = Field::required(
    "used",
    FieldKind::Amount,
    "Permits or amount used; permits are whole numbers. The unused rest is returned, and an excess is charged.",
)
.or_fields(&["usage"]);
const USAGE_USED: Field = USAGE.or_fields(&["used"]);
const SETTLE: &[Field] = &[USED, MODEL, USAGE_USED];
const SETTLE_ALL: &[Field] = &[Field::required(
    "limits",
    FieldKind::List { fields: &[USED, MODEL, USAGE_USED], most: MAX_LIMITS },
    "The use of each limit, in the order of the reservation.",
)];

const SPEND: &[Field] = &[
    Field::required("amount", FieldKind::Amount, "The amount; all of it or nothing is spent.").or_fields(&["usage"]),
    MODEL,
    USAGE.or_fields(&["amount"]),
    // By default long enough for an answer of the cluster.
    WAIT.or(1.0),
];

const LEASE: &[Member] = &[
    member("client", MemberKind::Text, "The client."),
    member("resource", MemberKind::Text, "The resource."),
    member("capacity", MemberKind::Number, "Capacity until the lease ends."),
    member("expires_in", MemberKind::Number, "Seconds until the lease ends, counted from when the request was sent."),
    member("expires_at", MemberKind::Whole, "End of the lease by the cluster's clock, in Unix seconds."),
    member("refresh_in", MemberKind::Number, "Seconds after which the client should renew the lease."),
    member("safe_capacity", MemberKind::NumberOrNull, "Capacity after the lease has expired; null: no limit."),
    member("priority", MemberKind::Whole, "Effective priority of the client."),
    member("unlimited", MemberKind::Flag, "Whether nothing limits the resource, so that every request is granted."),
    member("token", MemberKind::Text, "Identifies the lease in requests that renew or release it."),
];
const TAKEN: &[Member] = &[
    member("resource", MemberKind::Text, "The resource."),
    member("permits", MemberKind::Whole, "Number of permits taken."),
    member("remaining", MemberKind::NumberOrNull, "Permits available now; null: no limit."),
    member("capacity", MemberKind::NumberOrNull, "Permits per second of this gateway; null: no limit."),
];
const ALL_TAKEN: &[Member] =
    &[member("limits", MemberKind::List(&[TAKEN, SPENT]), "The limits, in the order of the request.")];
const CHARGED: &[Member] = &[
    member("resource", MemberKind::Text, "The resource."),
    member("permits", MemberKind::Whole, "Number of permits charged."),
    member("debt", MemberKind::Number, "Debt in permits. Requests are denied until it is repaid."),
];
const CHARGED_AMOUNT: &[Member] = &[
    member("resource", MemberKind::Text, "The budget."),
    member("amount", MemberKind::Number, "The amount charged."),
    member(
        "owed",
        MemberKind::Number,
        "Debt: the part of the charge that no allowance covers yet. Nothing can be \
                                        spent until it is covered.",
    ),
];
const RESERVED_PERMITS: &[Member] = &[
    member("reservation", MemberKind::Text, "Identifies the reservation when it is settled."),
    member("resource", MemberKind::Text, "The resource."),
    member("permits", MemberKind::Whole, "Number of permits reserved."),
    member("expires_in", MemberKind::Number, "Seconds until the reservation expires; its permits then count as used."),
    member("remaining", MemberKind::NumberOrNull, "Permits available now; null: no limit."),
    member("capacity", MemberKind::NumberOrNull, "Permits per second of this gateway; null: no limit."),
];
const RESERVED_AMOUNT: &[Member] = &[
    member("reservation", MemberKind::Text, "Identifies the reservation when it is settled."),
    member("resource", MemberKind::Text, "The budget."),
    member("amount", MemberKind::Number, "The amount reserved."),
    member("left", MemberKind::Number, "Amount that this gateway may spend now without asking the cluster."),
    member(
        "period_start",
        MemberKind::NumberOrNull,
        "Start of the period in Unix seconds; null: the budget has no \
                                                      period.",
    ),
    member(
        "period_end",
        MemberKind::NumberOrNull,
        "End of the period in Unix seconds; null: the budget has no period.",
    ),
    member("expires_in", MemberKind::Number, "Seconds until the reservation expires; its amount then counts as spent."),
];
const SETTLED_AMOUNT: &[Member] = &[
    member("resource", MemberKind::Text, "The budget."),
    member("reserved", MemberKind::Number, "The amount that was reserved."),
    member("used", MemberKind::Number, "The amount that was used."),
    member(
        "owed",
        MemberKind::Number,
        "Debt: the part of the charge that no allowance covers yet. Nothing can be \
                                        spent until it is covered.",
    ),
];
const SETTLED: &[Member] = &[
    member("resource", MemberKind::Text, "The resource."),
    member("reserved", MemberKind::Whole, "Number of permits that were reserved."),
    member("used", MemberKind::Whole, "Number of permits that were used."),
    member("debt", MemberKind::Number, "Debt in permits. Requests are denied until it is repaid."),
];
const SPENT: &[Member] = &[
    member("resource", MemberKind::Text, "The budget."),
    member("amount", MemberKind::Number, "The amount spent."),
    member("left", MemberKind::Number, "Amount that this gateway may spend now without asking the cluster."),
    member(
        "period_start",
        MemberKind::NumberOrNull,
        "Start of the period in Unix seconds; null: the budget has no \
                                                      period.",
    ),
    member(
        "period_end",
        MemberKind::NumberOrNull,
        "End of the period in Unix seconds; null: the budget has no period.",
    ),
];
const ALL_RESERVED: &[Member] = &[
    member("reservation", MemberKind::Text, "Identifies the reservation when it is settled."),
    member("limits", MemberKind::List(&[TAKEN, SPENT]), "The limits, in the order of the request."),
    member(
        "expires_in",
        MemberKind::Number,
        "Seconds until the reservation expires; its permits and amounts then \
                                              count as used.",
    ),
];
const ALL_SETTLED: &[Member] =
    &[member("limits", MemberKind::List(&[SETTLED, SETTLED_AMOUNT]), "The limits, in the order of the reservation.")];
const STANDING: &[Member] = &[
    member("resource", MemberKind::Text, "The resource."),
    member("capacity", MemberKind::NumberOrNull, "Permits per second of this gateway; null: no limit."),
    member(
        "basis",
        MemberKind::Text,
        "Source of the capacity: `lease`, `fallback` (the lease has ended) or `unknown` (no lease yet).",
    ),
    member("lease_expires_in", MemberKind::NumberOrNull, "Seconds until the lease ends; null: no lease."),
    member("remaining", MemberKind::NumberOrNull, "Permits available now; null: no limit."),
    member("debt", MemberKind::Number, "Debt in permits. Requests are denied until it is repaid."),
    member("reservations", MemberKind::Whole, "Number of unsettled reservations at this gateway."),
];

/// Problems of requests with a body or a query.
const READ: [ProblemKind; 4] = [ProblemKind::BadValue, ProblemKind::Slow, ProblemKind::TooLarge, ProblemKind::NotJson];
const CALL: [ProblemKind; 3] = [ProblemKind::Unauthenticated, ProblemKind::Denied, ProblemKind::Closing];
const OF_LEASES: &[ProblemKind] = &[ProblemKind::TooSoon, ProblemKind::BadCluster];
const OF_PERMITS: &[ProblemKind] = &[ProblemKind::Conflict, ProblemKind::OverLimit];

impl Operation {
    pub(super) const ALL: [Operation; 12] = [
        Operation::GetLease,
        Operation::KeepLease,
        Operation::ReleaseLease,
        Operation::Acquire,
        Operation::AcquireAll,
        Operation::Charge,
        Operation::Reserve,
        Operation::ReserveAll,
        Operation::Settle,
        Operation::SettleAll,
        Operation::Spend,
        Operation::Standing,
    ];

    /// The name in metrics and in the OpenAPI document.
    pub(super) fn name(self) -> &'static str {
        match self {
            Operation::GetLease => "get_lease",
            Operation::KeepLease => "keep_lease",
            Operation::ReleaseLease => "release_lease",
            Operation::Acquire => "acquire",
            Operation::AcquireAll => "acquire_all",
            Operation::Charge => "charge",
            Operation::Reserve => "reserve",
            Operation::ReserveAll => "reserve_all",
            Operation::Settle => "settle",
            Operation::SettleAll => "settle_all",
            Operation::Spend => "spend",
            Operation::Standing => "standing",
        }
    }

    pub(super) fn about(self) -> &'static str {
        match self {
            Operation::GetLease => "Request a lease",
            Operation::KeepLease => "Renew a lease",
            Operation::ReleaseLease => "Release a lease",
            Operation::Acquire => "Acquire permits",
            Operation::AcquireAll => "Acquire permits and amounts of several limits, or none",
            Operation::Charge => "Charge permits, or an amount of a budget, already used",
            Operation::Reserve => "Reserve permits, or an amount of a budget",
            Operation::ReserveAll => "Reserve permits and amounts of several limits, or none",
            Operation::Settle => "Settle a reservation",
            Operation::SettleAll => "Settle a reservation of several limits",
            Operation::Spend => "Spend an amount of a budget",
            Operation::Standing => "Show a resource",
        }
    }

    pub(super) fn path(self) -> &'static str {
        match self {
            Operation::GetLease | Operation::KeepLease | Operation::ReleaseLease => "/v1/leases",
            Operation::Acquire => "/v1/resources/{resource}/acquire",
            Operation::AcquireAll => "/v1/acquire",
            Operation::Charge => "/v1/resources/{resource}/charge",
            Operation::Reserve => "/v1/resources/{resource}/reservations",
            Operation::ReserveAll => "/v1/reserve",
            Operation::Settle => "/v1/reservations/{reservation}/settle",
            Operation::SettleAll => "/v1/reservations/{reservation}/settle_all",
            Operation::Spend => "/v1/resources/{resource}/spend",
            Operation::Standing => "/v1/resources/{resource}",
        }
    }

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

    pub(super) fn body(self) -> &'static [Field] {
        match self {
            Operation::GetLease => GET_LEASE,
            Operation::KeepLease => KEEP_LEASE,
            Operation::Acquire => ACQUIRE,
            Operation::AcquireAll => ACQUIRE_ALL,
            Operation::Charge => CHARGE,
            Operation::Reserve => RESERVE,
            Operation::ReserveAll => RESERVE_ALL,
            Operation::Settle => SETTLE,
            Operation::SettleAll => SETTLE_ALL,
            Operation::Spend => SPEND,
            Operation::ReleaseLease | Operation::Standing => &[],
        }
    }

    pub(super) fn query(self) -> &'static [Field] {
        if self == Operation::ReleaseLease { RELEASE_LEASE } else { &[] }
    }

    /// The status and the possible shapes of a successful answer.
    pub(super) fn answer(self) -> (u16, &'static [Shape]) {
        match self {
            Operation::GetLease | Operation::KeepLease => (200, &[LEASE]),
            Operation::ReleaseLease => (204, &[]),
            Operation::Acquire => (200, &[TAKEN]),
            Operation::AcquireAll => (200, &[ALL_TAKEN]),
            Operation::Charge => (200, &[CHARGED, CHARGED_AMOUNT]),
            Operation::Reserve => (201, &[RESERVED_PERMITS, RESERVED_AMOUNT]),
            Operation::ReserveAll => (201, &[ALL_RESERVED]),
            Operation::Settle => (200, &[SETTLED, SETTLED_AMOUNT]),
            Operation::SettleAll => (200, &[ALL_SETTLED]),
            Operation::Spend => (200, &[SPENT]),
            Operation::Standing => (200, &[STANDING]),
        }
    }

    /// The possible errors, one for each status.
    pub(super) fn problems(self) -> Vec<ProblemKind> {
        let own = match self {
            Operation::GetLease | Operation::KeepLease | Operation::ReleaseLease => OF_LEASES,
            Operation::Acquire
            | Operation::AcquireAll
            // The charge may exceed the maximum debt.
            | Operation::Charge
            | Operation::Reserve
            | Operation::ReserveAll
            | Operation::Spend => OF_PERMITS,
            Operation::Settle | Operation::SettleAll => {
                &[ProblemKind::NotFound, ProblemKind::Conflict, ProblemKind::OverLimit]
            }
            Operation::Standing => &[ProblemKind::NotFound],
        };
        let mut problems: Vec<ProblemKind> = READ.iter().chain(&CALL).chain(own).copied().collect();
        if self.body().is_empty() {
            problems.retain(|kind| !READ[1..].contains(kind));
        }
        problems.sort_by_key(|kind| kind.status());
        problems
    }

    /// Whether answers have RateLimit header fields.
    pub(super) fn tells_quota(self) -> bool {
        matches!(
            self,
            Operation::Acquire
                | Operation::AcquireAll
                | Operation::Reserve
                | Operation::ReserveAll
                | Operation::Standing
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn an_operation_has_one_problem_of_each_status() {
        for operation in Operation::ALL {
            let statuses: Vec<_> = operation.problems().iter().map(|kind| kind.status()).collect();
            let distinct: BTreeSet<_> = statuses.iter().collect();
            assert_eq!(distinct.len(), statuses.len(), "{operation:?}: {statuses:?}");
        }
    }

    #[test]
    fn fields_are_in_the_body_or_in_the_query() {
        for operation in Operation::ALL {
            assert!(operation.body().is_empty() || operation.query().is_empty(), "{operation:?}");
            for field in operation.body().iter().chain(operation.query()) {
                assert!(!field.about.is_empty(), "{field:?}");
                assert!(!field.required || field.default.is_none(), "{field:?}");
            }
        }
    }
}
