//! Conversion between the session of a client and protobuf messages. Answers are validated here: malformed parts are
//! dropped and reported. Child nodes send other requests, and share the rest.

use std::{sync::Arc, time::Duration};

use leaseway_core::{
    policy::period::Span,
    resource::BudgetLease,
    types::{Amount, Millis},
};
use leaseway_proto::{doorman as wire, session as renewal};
use tonic::Status;

use super::driver::Reply;
use crate::{
    session::{
        Ask, BudgetUse, GrantedLease, Lease, Release, StreamReply, StreamRequest, Wants, Wire,
        pool::{MAX_BURST, PoolStanding, PoolState},
    },
    transport::endpoint,
};

/// The request of a client, which may be a gateway.
pub fn get_capacity(client: &str, is_gateway: bool, asks: &[Ask<Wants>]) -> wire::GetCapacityRequest {
    // The session drops late answers: see *Late answers* in its module documentation.
    let drops_late = Some(true);
    let (client_id, is_gateway) = (Some(client.to_owned()), is_gateway.then_some(true));
    let resource = asks.iter().map(resource_request).collect();
    wire::GetCapacityRequest { client_id, resource, drops_late, is_gateway }
}

fn resource_request(ask: &Ask<Wants>) -> wire::ResourceRequest {
    wire::ResourceRequest {
        resource_id: Some(ask.id.to_string()),
        priority: Some(ask.demand.priority),
        has: match &ask.demand.spent {
            Some(spent) => allowance(spent, ask.has.or(ask.had).as_ref()),
            None => ask.has.as_ref().map(echo),
        },
        had: ask.had.as_ref().filter(|_| ask.demand.spent.is_none()).map(echo),
        spent: ask.demand.spent.as_ref().map(spent_of),
        wants: Some(ask.demand.amount),
        outstanding: outstanding_beyond_lease(ask.demand.outstanding, ask.has.as_ref()),
        usage: ask.demand.usage.map(|usage| wire::Usage {
            recharging_fraction: Some(usage.recharging),
            request_cost: Some(usage.units as f64),
            interval_ms: i64::try_from(usage.interval.0).ok(),
        }),
    }
}

/// A message on a stream of renewals.
pub fn renew(client: &str, is_gateway: bool, request: &StreamRequest<Wants>) -> renewal::RenewRequest {
    let is_first = request.sequence == 1;
    let entry = request
        .stated
        .iter()
        .map(|(index, ask)| renewal::Entry { index: *index, request: Some(resource_request(ask)) });
    let renewed = request.renewed.iter();
    renewal::RenewRequest {
        sequence: request.sequence,
        client_id: is_first.then(|| client.to_owned()),
        is_gateway: (is_first && is_gateway).then_some(true),
        entry: entry.collect(),
        renew: renewed.map(|range| renewal::Range { first: range.start, count: range.end - range.start }).collect(),
    }
}

/// The answer on a stream of renewals, and the ids of the resources whose lease is malformed: these are left out. `sent`
/// is when the message was sent, since the Unix epoch.
pub fn renewed(answer: &renewal::RenewResponse, sent: Duration) -> (StreamReply, Vec<String>) {
    let mut reply = StreamReply {
        unix: answer.unix_time,
        granted: Vec::with_capacity(answer.grant.len()),
        left_out: answer.left_out.clone(),
        restart: answer.restart.is_some(),
    };
    let mut malformed = Vec::new();
    for renewal::Grant { index, response } in &answer.grant {
        let response = response.clone().unwrap_or_default();
        let (given, bad) = given(vec![response], sent);
        reply.left_out.extend(bad.iter().map(|_| *index));
        reply.granted.extend(given.into_iter().map(|given| (*index, given)));
        malformed.extend(bad);
    }
    (reply, malformed)
}

/// A budget: the lease that gave the allowance, even if it has expired. A smaller allowance than what was spent meanwhile
/// counts as what was spent.
fn allowance(spent: &BudgetUse, lease: Option<&Lease>) -> Option<wire::Lease> {
    let lease = lease.filter(|lease| lease.token.is_some() && lease.token == spent.token)?;
    Some(wire::Lease { capacity: Some(lease.wire.capacity.max(spent.spent)), ..echo(lease) })
}

fn spent_of(spent: &BudgetUse) -> wire::Spent {
    wire::Spent {
        amount: Some(spent.spent),
        period: Some(spent.period),
        incarnation: Some(spent.incarnation),
        need: (spent.need > 0.0).then_some(spent.need),
    }
}

/// The period of a lease, if it is that of a budget.
pub fn budget(budget: Option<&wire::BudgetLease>) -> Option<BudgetLease> {
    let budget = budget?;
    let period = Span { start: budget.period_start?, end: budget.period_end.unwrap_or(i64::MAX) };
    Some(BudgetLease { period, starts_over: budget.starts_over.unwrap_or_default() })
}

/// The amount in use *beyond* the echoed lease, as on the wire. The maximum stands for all capacity that the server
/// holds for the client.
fn outstanding_beyond_lease(outstanding: f64, has: Option<&Lease>) -> Option<f64> {
    let within = has.map_or(0.0, |lease| lease.capacity.get());
    let beyond = if outstanding < Amount::MAX.get() { outstanding - within } else { Amount::MAX.get() };
    (beyond > 0.0).then_some(beyond)
}

/// A lease as `has` echoes it: exactly as it was received.
pub fn echo(lease: &Lease) -> wire::Lease {
    wire::Lease {
        expiry_time: Some(lease.wire.expiry_time),
        refresh_interval: Some(lease.wire.refresh_interval),
        capacity: Some(lease.wire.capacity),
        token: lease.token,
        remaining_ms: None,
    }
}

/// A request to release leases by name.
pub fn release_capacity(client: &str, releases: Vec<Release>) -> wire::ReleaseCapacityRequest {
    // 0 stands for no name, because tokens are matched to resources by position.
    let token = releases.iter().map(|release| release.token.unwrap_or(0)).collect();
    let has_budgets = releases.iter().any(|release| release.spent.is_some());
    let spent = releases.iter().filter(|_| has_budgets);
    let spent = spent.map(|release| release.spent.as_ref().map(spent_of).unwrap_or_default()).collect();
    let resource_id = releases.into_iter().map(|release| release.id.to_string()).collect();
    wire::ReleaseCapacityRequest { client_id: Some(client.to_owned()), resource_id, token, spent, ..Default::default() }
}

/// Returns the leases of an answer, and the ids of the resources whose lease is malformed. `sent` is when the request
/// was sent, since the Unix epoch.
pub fn given(answer: Vec<wire::ResourceResponse>, sent: Duration) -> (Vec<GrantedLease>, Vec<String>) {
    let mut malformed = Vec::new();
    let given = answer.into_iter().filter_map(|response| {
        let id: Arc<str> = response.resource_id.as_deref().unwrap_or_default().into();
        let given = response.gets.as_ref().and_then(|gets| lease(&id, gets, response.safe_capacity, sent));
        let given = given.map(|given| GrantedLease { budget: budget(response.budget.as_ref()), ..given });
        if given.is_none() {
            malformed.push(id.to_string());
        }
        given
    });
    (given.collect(), malformed)
}

/// The pool states of an answer; `None` for resources that are not pools.
pub fn pools(answer: &[wire::ResourceResponse]) -> Vec<(Arc<str>, Option<PoolState>)> {
    let state = |response: &wire::ResourceResponse| {
        Some((response.resource_id.as_deref()?.into(), response.pool.as_ref().map(pool)))
    };
    answer.iter().filter_map(state).collect()
}

/// The priorities at which the server counts this client, where the answer has them.
pub fn priorities(answer: &[wire::ResourceResponse]) -> Vec<(Arc<str>, i64)> {
    answer.iter().filter_map(|response| Some((response.resource_id.as_deref()?.into(), response.priority?))).collect()
}

/// Whether each resource of an answer has no limit.
pub fn unlimited(answer: &[wire::ResourceResponse]) -> Vec<(Arc<str>, bool)> {
    answer.iter().filter_map(|response| Some((response.resource_id.as_deref()?.into(), response.unlimited()))).collect()
}

/// Malformed numbers count as 0, because they are informational.
fn pool(state: &wire::PoolState) -> PoolState {
    let number = |number: Option<f64>| number.filter(|number| number.is_finite()).unwrap_or_default();
    PoolState {
        standing: match state.state() {
            wire::pool_state::State::Waiting => PoolStanding::Waiting,
            wire::pool_state::State::Free => PoolStanding::Free,
            wire::pool_state::State::Priority => PoolStanding::Priority,
            wire::pool_state::State::Revoking => PoolStanding::Revoking,
        },
        assigned: number(state.assigned),
        min_capacity: number(state.min_capacity),
        reason: state.reason.clone().filter(|reason| !reason.is_empty()),
        burst: state
            .burst_seconds
            .filter(|burst| *burst >= 0.0)
            .map(|burst| Duration::from_secs_f64(burst.min(MAX_BURST.as_secs_f64()))),
    }
}

/// A lease of an answer; `None` if it is malformed. `sent` is when the request was sent, since the Unix epoch.
pub fn lease(id: &Arc<str>, lease: &wire::Lease, safe: Option<f64>, sent: Duration) -> Option<GrantedLease> {
    let capacity = lease.capacity.filter(|capacity| capacity.is_finite())?;
    let (expiry_time, refresh_interval) = (lease.expiry_time?, lease.refresh_interval?);
    Some(GrantedLease {
        id: Arc::clone(id),
        length: length(lease.remaining_ms, expiry_time, sent),
        refresh: Millis::from_secs(u64::try_from(refresh_interval).unwrap_or(0).min(MAX_LEASE_SECS)),
        token: lease.token.filter(|token| *token != 0),
        wire: Wire { expiry_time, refresh_interval, capacity },
        safe: safe.filter(|safe| !safe.is_nan()),
        budget: None,
    })
}

/// Classifies the answer to a request for capacity: a redirect, a refusal of everything, or the result of `answer`.
pub fn reply<A>(
    mastership: Option<wire::Mastership>,
    problems: &[wire::Problem],
    answered: usize,
    answer: impl FnOnce() -> A,
) -> Result<Reply<A>, Status> {
    match refusal(problems, answered) {
        Some(refusal) => Err(refusal),
        None => Ok(redirect(mastership).map_or_else(|| Reply::Master(answer()), Reply::Redirect)),
    }
}

/// Classifies the answer to a release.
pub fn released<A>(response: wire::ReleaseCapacityResponse, answer: A) -> Reply<A> {
    redirect(response.mastership).map_or(Reply::Master(answer), Reply::Redirect)
}

/// The error of a request whose entries were all refused because they are invalid or a limit was reached.
fn refusal(problems: &[wire::Problem], answered: usize) -> Option<Status> {
    let problem = problems.iter().find(|problem| !is_transient(problem.reason()))?;
    let message = problem.message();
    let refused = match problem.reason() {
        "bad_value" | "bad_id" => Status::invalid_argument(message),
        _ => Status::resource_exhausted(message),
    };
    (answered == 0).then_some(refused)
}

/// Whether a reason for leaving a resource out of an answer is transient.
pub fn is_transient(reason: &str) -> bool {
    matches!(reason, "too_soon" | "not_yet")
}

/// The redirect in an answer, with the master if it is known. A server is not the master if and only if `mastership` is
/// present.
fn redirect(mastership: Option<wire::Mastership>) -> Option<Option<String>> {
    mastership.map(|mastership| mastership.master_address.filter(|address| !address.is_empty()))
}

/// The peers in an answer, without malformed addresses.
pub fn peers(answer: &wire::DiscoveryResponse) -> Vec<Arc<str>> {
    answer.endpoint.iter().filter_map(|peer| endpoint::parse(peer).ok().map(Arc::from)).collect()
}

/// Bound of lease lengths, so that they can be added to any time.
const MAX_LEASE_SECS: u64 = 10 * 365 * 86_400;

/// The length of a lease, counted from when its request was sent. A server of the original protocol sends the expiry by
/// its own clock, so the result is off by the difference of the clocks.
fn length(remaining_ms: Option<i64>, expiry_time: i64, sent: Duration) -> Millis {
    let millis = remaining_ms.map_or_else(
        || i128::from(expiry_time) * 1000 - i128::try_from(sent.as_millis()).unwrap_or(i128::MAX),
        i128::from,
    );
    Millis(u64::try_from(millis.max(0)).unwrap_or(u64::MAX).min(MAX_LEASE_SECS * 1000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{
        Capacity,
        pool::{Usage, UsageCounters},
    };

    fn granted(remaining_ms: Option<i64>) -> wire::Lease {
        wire::Lease {
            expiry_time: Some(1_000),
            refresh_interval: Some(5),
            capacity: Some(7.5),
            token: Some(9),
            remaining_ms,
        }
    }

    fn response(gets: Option<wire::Lease>) -> wire::ResourceResponse {
        wire::ResourceResponse { resource_id: Some("r".into()), gets, ..Default::default() }
    }

    /// Decodes the answer to a request that was sent `sent` after the epoch.
    fn decoded(gets: wire::Lease, sent: Duration) -> GrantedLease {
        given(vec![response(Some(gets))], sent).0.remove(0)
    }

    fn ask(demand: Wants, has: Option<Lease>) -> Ask<Wants> {
        Ask { id: "r".into(), demand, has, had: None }
    }

    #[test]
    fn a_lease_starts_when_its_request_was_sent() {
        let sent = Duration::from_millis(940_250);
        assert_eq!(decoded(granted(Some(60_000)), sent).length, Millis(60_000), "independent of clocks");
        assert_eq!(decoded(granted(None), sent).length, Millis(59_750));
        assert_eq!(decoded(granted(None), Duration::from_secs(2_000)).length, Millis(0));
    }

    #[test]
    fn malformed_leases_are_dropped_and_named_and_extreme_times_are_bounded() {
        let nan = wire::Lease { capacity: Some(f64::NAN), ..granted(None) };
        let infinite = wire::Lease { capacity: Some(f64::INFINITY), ..granted(None) };
        let partial = wire::Lease { expiry_time: None, ..granted(None) };
        for bad in [Some(nan), Some(infinite), Some(partial), None] {
            let (given, malformed) = given(vec![response(bad)], Duration::ZERO);
            assert_eq!((given.len(), malformed), (0, vec!["r".to_owned()]));
        }
        let far = wire::Lease { expiry_time: Some(i64::MAX), refresh_interval: Some(i64::MAX), ..granted(None) };
        assert_eq!(decoded(far, Duration::ZERO).length, Millis::from_secs(MAX_LEASE_SECS));
        let past = wire::Lease { expiry_time: Some(i64::MIN), refresh_interval: Some(i64::MIN), ..granted(None) };
        let past = decoded(past, Duration::ZERO);
        assert_eq!((past.length, past.refresh), (Millis(0), Millis(0)));
        let unnamed = wire::Lease { token: Some(0), ..granted(None) };
        assert_eq!(decoded(unnamed, Duration::ZERO).token, None);
    }

    #[test]
    fn malformed_peers_are_dropped() {
        let long = "x".repeat(100_000);
        let endpoint = ["a:1", "", "https://b", "[::1]:2", &long, "c"].map(str::to_owned).to_vec();
        let answer = wire::DiscoveryResponse { endpoint, ..wire::DiscoveryResponse::default() };
        assert_eq!(peers(&answer), ["a:1", "[::1]:2", "c:5100"].map(Arc::from));
    }

    #[test]
    fn a_request_echoes_the_lease_and_reports_demand_and_usage() {
        let GrantedLease { refresh, token, wire, .. } = decoded(granted(Some(60_000)), Duration::ZERO);
        let lease = Lease { capacity: Capacity::of(7.5), end: Millis(1), refresh, token, wire, budget: None };
        let in_use = |outstanding| Wants { outstanding, ..Wants::default() };
        let usage = Usage { recharging: 0.25, units: 7, interval: Millis(4_000), counters: UsageCounters::default() };
        let with_usage = Wants { usage: Some(usage), ..Wants::default() };
        let asks = vec![
            ask(in_use(7.5), Some(lease)),
            ask(in_use(9.5), Some(lease)),
            ask(in_use(7.0), None),
            ask(with_usage, None),
        ];
        let request = get_capacity("c", false, &asks);
        assert!(request.drops_late());
        let echo = wire::Lease { remaining_ms: None, ..granted(None) };
        assert_eq!(request.resource[0].has, Some(echo));
        let beyond: Vec<_> = request.resource.iter().map(|resource| resource.outstanding).collect();
        assert_eq!(beyond, [None, Some(2.0), Some(7.0), None], "the amount beyond the echoed lease");
        let usage = wire::Usage { recharging_fraction: Some(0.25), request_cost: Some(7.0), interval_ms: Some(4_000) };
        assert_eq!((request.resource[0].usage, request.resource[3].usage), (None, Some(usage)));
    }

    #[test]
    fn malformed_numbers_of_a_pool_are_replaced() {
        let state = wire::PoolState {
            state: Some(wire::pool_state::State::Revoking.into()),
            assigned: Some(f64::NAN),
            min_capacity: Some(2.0),
            reason: Some(String::new()),
            burst_seconds: None,
        };
        for (sent, burst) in [(6.0, Some(6)), (0.0, Some(0)), (1e9, Some(3600)), (-1.0, None), (f64::NAN, None)] {
            let state = wire::PoolState { burst_seconds: Some(sent), ..state.clone() };
            assert_eq!(pool(&state).burst, burst.map(Duration::from_secs));
        }
        let answer = [wire::ResourceResponse { pool: Some(state), ..response(None) }, response(None)];
        let standing = PoolStanding::Revoking;
        let expected = PoolState { standing, assigned: 0.0, min_capacity: 2.0, reason: None, burst: None };
        assert_eq!(pools(&answer), [("r".into(), Some(expected)), ("r".into(), None)]);
    }

    #[test]
    fn an_answer_without_leases_fails_with_the_first_lasting_problem() {
        let problem = |reason: &str| wire::Problem {
            resource_id: Some("r".into()),
            reason: Some(reason.into()),
            message: Some("no room".into()),
        };
        let refused = |reason, answered| refusal(&[problem("too_soon"), problem(reason)], answered);
        let code = |reason| refused(reason, 0).map(|status| status.code());
        assert_eq!(code("too_many_clients"), Some(tonic::Code::ResourceExhausted));
        assert_eq!(code("bad_id"), Some(tonic::Code::InvalidArgument));
        assert_eq!(code("not_yet"), None, "transient: the lease stays");
        assert!(refused("busy", 1).is_none(), "other resources were answered");
    }

    #[test]
    fn tokens_of_releases_match_resources_by_position() {
        let release = |id: &str, token| Release { id: id.into(), token, spent: None };
        let request = release_capacity("c", vec![release("a", Some(7)), release("b", None), release("c", Some(9))]);
        assert_eq!((request.resource_id, request.token), (vec!["a".into(), "b".into(), "c".into()], vec![7, 0, 9]));
    }
}
