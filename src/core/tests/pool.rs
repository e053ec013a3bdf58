//! The rules of PRIORITY_POOL, one sentence each. The transcripts `pool_l01` to `pool_l12` show its behaviour over
//! time, and [`histories`] that it is safe in all cases.
//!
//! The demands of the proposal of the light protocol, and the test that shows each (`e2e`:
//! `tests/scenarios/operators/pools.rs`; `L`: a transcript):
//!
//! | | demand | test |
//! |---|---|---|
//! | R1 | clients are served in proportion to their capacity | the client's part: `client/limiter` |
//! | R2 | the capacity of connected clients fits into the total | `histories::believed_leases_stay_within_the_capacity`, `histories::holders_fit_again_after_a_fall` |
//! | R3 | a client gets nothing, or at least `min_capacity` | `admission::free_client_gets_min_capacity_or_nothing`, `api::assignments_are_checked` |
//! | R4 | the base can be changed from outside | `api::load_reports_move_the_capacity_within_bounds` |
//! | R5 | the total may change at any time | L7, L8, `histories::holders_fit_again_after_a_fall` |
//! | R6, R7 | a pool overbooks only if configured | `overload::overbooking_is_relative_to_the_base`, `histories` |
//! | R8 | an overload disconnects no more clients than necessary | `overload::overload_cuts_no_more_clients_than_needed`, L9 |
//! | R9 | the total falls in the same step | `overload::overload_spares_idle_clients`, `overload::reports_within_one_window_lower_the_total`, `core/pool/total/dynamics.rs` with the recorded laws A and B |
//! | R10 | the total rises slowly, and only while usage is low | `overload::total_rises_with_high_demand_and_low_usage`, L8 |
//! | R11 | the total never exceeds its maximum | `histories` (S2) |
//! | R12 | the slower the total rises, the rarer are overloads | `overload::slower_rise_causes_fewer_overloads`; drawn by `simulate pool --set raise_tc_s=…` |
//! | R13 | there are priority clients and free clients | `admission::priority_needs_an_assignment`, `admission::capacity_is_bounded_by_assignment_and_wants` |
//! | R14 | a priority client is connected if priority clients fit | L2, L4, e2e `who_is_vouched_for_pushes_out_a_stranger_and_the_next_master_still_vouches` |
//! | R15 | it is disconnected only if the total falls below their capacity | `overload::overload_by_priority_clients_starts_an_underrun`, L6 |
//! | R16 | first the manager of the pool has time to choose | L5, L6, [`underruns`] |
//! | R17 | a free client is connected if there is a place, or one can be taken | L1, `admission::freed_capacity_is_granted_once_in_a_round` |
//! | R18 | balances of free clients are remembered, and decay | L11, [`memory`], `admission::balance_belongs_to_the_address` |
//! | R19 | the client that was served least recently comes first | `admission::admission_follows_the_les_vectors` |
//! | R20 | the client with the largest balance is displaced first | `admission::largest_balance_is_displaced_first` |
//! | R21 | time and requests cost, and are counted separately | `admission::repeated_report_is_charged_once`, `events::events_describe_pool_and_client` |
//! | R22 | cost weights follow the limiting factor | `overload::cost_weights_follow_the_limiting_factor` |
//! | R23 | all global quantities can be queried | `api::report_has_all_quantities_of_the_proposal` |
//! | R24 | an assignment takes effect immediately, and 0 removes it | `api::assignments_are_checked`, L3 |
//! | R25 | an assignment can be queried | e2e `what_makes_no_sense_is_refused_with_what_would`, `who_is_vouched_for_…` |
//! | R26 | members are listed by filter | `api::members_are_listed_by_filter_and_page` |
//! | R27, R28 | one stream of events, filtered | [`events`] |
//! | R29 | open questions | decided in docs/decisions/pools.md: everything can be queried, in one request, and free clients have events |

mod admission;
mod api;
mod events;

mod histories;
mod memory;
mod nodes;
mod overload;
mod shares;
mod underruns;

use std::{collections::BTreeMap, sync::Arc};

use super::harness::{ask, has, now_at, one, options};
use crate::{
    lease::promises::Inherited,
    policy::{
        overrides::Load,
        parameters::NamedParameter,
        settings::{AlgorithmKind, Settings},
    },
    pool::{
        AssignError, Assigned, Cause, PoolEvent, PoolEventFilter, PoolEventKind, PoolFields, PoolFilter, PoolReport,
        PoolStanding, Usage,
    },
    resource::{
        Ask, Lease, LoadError, LoadReport, Release, Request, Resource, ResourceOptions, RoundScratch, invariant,
        report::holder_reports,
        supply::{Source, Supply},
    },
    types::{Amount, Claim, Claims, HolderKind, Millis},
};

/// A pool, and the newest lease of each client.
struct PoolServer {
    resource: Resource,
    now: Millis,
    leases: BTreeMap<String, Lease>,
}

/// Pool settings from parameters in text form.
fn settings(capacity: f64, parameters: &[(&str, &str)]) -> Settings {
    let mut settings = Settings::new(AlgorithmKind::PriorityPool, Amount::clamped(capacity));
    settings.refresh = Millis::from_secs(5);
    settings.min_request_interval = Millis(0);
    for (name, value) in parameters {
        let parameter = NamedParameter { name: (*name).into(), value: Some((*value).into()) };
        settings.apply(&parameter).expect("a valid parameter");
    }
    settings.check().expect("parameters that go together");
    settings
}

impl PoolServer {
    fn new(capacity: f64, parameters: &[(&str, &str)]) -> PoolServer {
        PoolServer::with_options(options(settings(capacity, parameters)))
    }

    fn with_options(options: ResourceOptions) -> PoolServer {
        PoolServer { resource: Resource::new(options), now: Millis(0), leases: BTreeMap::new() }
    }

    fn pass(&mut self, seconds: u64) {
        self.now = self.now.plus(Millis::from_secs(seconds));
    }

    fn request(&self, id: &str, wants: f64) -> Ask {
        ask(id, wants, self.leases.get(id).map(has))
    }

    fn send(&mut self, ask: Ask) -> f64 {
        let before = self.resource.sums().held;
        let id = ask.id.to_string();
        let answer = one(&mut self.resource, now_at(self.now), Request::Ask(ask));
        invariant::held_within_capacity(&self.resource, before).expect("never over");
        let lease = *answer.lease().expect("a lease");
        self.leases.insert(id, lease);
        lease.capacity.get()
    }

    fn asks(&mut self, id: &str, wants: f64) -> f64 {
        self.send(self.request(id, wants))
    }

    /// Asks and reports usage: this fraction of the capacity in use, at this cost.
    fn reports(&mut self, id: &str, wants: f64, recharging: f64, cost: f64) -> f64 {
        let usage = Usage { recharging, request_cost: Amount::clamped(cost), interval: None };
        let pool_fields = Some(Box::new(PoolFields { key: None, usage: Some(usage) }));
        self.send(Ask { pool_fields, ..self.request(id, wants) })
    }

    fn release(&mut self, id: &str) {
        let release = Release { kind: HolderKind::Client, id: id.into(), token: None, instance: None, spent: None };
        one(&mut self.resource, now_at(self.now), Request::Release(release));
        self.leases.remove(id);
    }

    fn assign(&mut self, id: &str, capacity: f64) -> Result<Option<Assigned>, AssignError> {
        self.assign_as(id, Assigned::Capacity(Amount::clamped(capacity)))
    }

    fn assign_as(&mut self, id: &str, assigned: Assigned) -> Result<Option<Assigned>, AssignError> {
        self.resource.assign(self.now, HolderKind::Client, &id.into(), Some(assigned))
    }

    fn tick(&mut self) {
        self.resource.tick(self.now);
    }

    fn capacity(&mut self, capacity: f64) {
        let mut settings = self.resource.settings().clone();
        settings.capacity = Amount::clamped(capacity);
        self.resource.configure(settings);
        self.tick();
    }

    fn report(&self) -> PoolReport {
        self.resource.pool().expect("a pool")
    }

    fn due(&self, id: &str) -> f64 {
        let holders = holder_reports(&self.resource, self.now, 0, usize::MAX).0;
        holders.iter().find(|holder| *holder.id == *id).expect("a known holder").due.get()
    }

    fn events(&mut self) -> Vec<PoolEvent> {
        self.resource.take_pool_events()
    }

    /// The kinds of events since the last call.
    fn event_kinds(&mut self) -> Vec<PoolEventKind> {
        self.events().iter().map(|event| event.kind).collect()
    }

    fn list(&self, filter: PoolFilter) -> Vec<(String, f64)> {
        let page = self.resource.pool_members(filter, None, usize::MAX);
        page.members.iter().map(|member| (member.id.to_string(), member.capacity.get())).collect()
    }
}
