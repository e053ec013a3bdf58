//! The cases, one for each rule of docs/reference/client-protocol.md.

mod budgets;
mod leases;
mod limiters;
mod limits;
mod servers;
mod streams;

use std::{pin::Pin, time::Instant};

use tokio::time::{Duration, sleep};

use super::server::{Grant, Message, Received, Renewal, Script, ScriptedServer};
use crate::common::driver::Driver;

/// The time limit of a condition that must become true.
const DEADLINE: Duration = Duration::from_secs(40);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The resource of most cases.
const RESOURCE: &str = "r";

/// Why a case failed.
type Outcome = Result<(), String>;

type CaseFuture = Pin<Box<dyn Future<Output = Outcome>>>;

pub(super) struct Case {
    pub(super) number: u8,
    pub(super) name: &'static str,
    pub(super) run: fn(Kit) -> CaseFuture,
}

/// `case!(number, function)`.
macro_rules! case {
    ($number:literal, $module:ident :: $name:ident) => {
        Case { number: $number, name: stringify!($name), run: |kit| Box::pin($module::$name(kit)) }
    };
}

pub(super) const CASES: &[Case] = &[
    case!(1, leases::the_first_request_names_client_resource_and_wants),
    case!(2, leases::a_lease_is_refreshed_and_echoed),
    case!(3, leases::the_newest_token_is_echoed),
    case!(4, leases::an_expired_lease_falls_back_to_the_safe_capacity),
    case!(5, leases::a_negative_safe_capacity_is_unlimited),
    case!(6, leases::a_pessimistic_client_uses_nothing_after_the_expiry),
    case!(7, leases::an_optimistic_client_uses_its_wants_after_the_expiry),
    case!(8, leases::an_expired_lease_is_reported_as_had),
    case!(9, leases::remaining_ms_takes_precedence_over_the_wall_clock),
    case!(10, leases::the_leases_of_doorman_servers_end_at_their_expiry),
    case!(11, leases::a_smaller_lease_applies_and_is_confirmed_promptly),
    case!(12, leases::an_answer_that_arrives_after_the_expiry_is_dropped),
    case!(13, leases::invalid_leases_are_ignored),
    case!(14, leases::a_resource_without_an_answer_keeps_its_lease),
    case!(15, leases::only_one_request_is_in_flight),
    case!(16, leases::requests_are_batched),
    case!(17, leases::large_changes_of_wants_are_sent_promptly),
    case!(18, leases::small_changes_of_wants_wait_for_the_refresh),
    case!(19, leases::a_closed_resource_is_released_by_its_newest_token),
    case!(20, leases::all_leases_are_released_when_the_client_closes),
    case!(21, leases::without_a_lease_nothing_is_released),
    case!(22, leases::a_hint_causes_a_prompt_request),
    case!(23, servers::a_redirect_is_followed_and_remembered),
    case!(24, servers::an_invalid_redirect_is_ignored),
    case!(25, servers::redirect_loops_are_bounded),
    case!(26, servers::another_server_is_asked_if_one_knows_no_master),
    case!(27, servers::another_server_is_asked_if_one_fails),
    case!(28, servers::another_server_is_asked_if_one_hangs),
    case!(29, servers::peers_are_discovered_from_the_master),
    case!(30, servers::requests_back_off_after_failures),
    case!(31, servers::a_server_that_comes_back_is_asked_again),
    case!(32, limiters::nothing_passes_before_the_first_lease),
    case!(33, limiters::a_rate_admits_its_capacity_and_no_more),
    case!(34, limiters::a_rate_follows_a_smaller_lease),
    case!(35, limiters::a_rate_of_zero_or_less_admits_nothing),
    case!(36, limiters::a_rate_admits_nothing_after_the_expiry),
    case!(37, limiters::a_gauge_admits_as_many_as_its_capacity),
    case!(38, limiters::a_gauge_reports_permits_beyond_a_smaller_lease),
    case!(39, limiters::a_closed_gauge_keeps_its_lease_while_permits_are_in_use),
    case!(40, budgets::what_was_spent_is_reported_cumulatively),
    case!(41, budgets::an_allowance_is_never_exceeded),
    case!(42, budgets::a_refused_spend_takes_nothing),
    case!(43, budgets::nothing_is_spent_after_the_expiry),
    case!(44, budgets::the_lease_of_an_allowance_is_named_even_if_it_has_expired),
    case!(45, budgets::an_allowance_is_of_one_period),
    case!(46, budgets::a_client_that_starts_over_is_another_incarnation),
    case!(47, budgets::a_budget_that_is_opened_again_is_another_incarnation),
    case!(48, budgets::an_answer_to_another_incarnation_is_dropped),
    case!(49, budgets::a_release_reports_what_was_spent),
    case!(50, budgets::missing_amounts_are_reported_promptly),
    case!(51, streams::a_stream_is_opened_only_where_it_is_offered),
    case!(52, streams::leases_are_renewed_by_their_indexes),
    case!(53, streams::a_renewed_lease_counts_from_its_message),
    case!(54, streams::a_renewal_covers_only_what_is_held),
    case!(55, streams::a_resource_that_was_left_out_is_stated_again),
    case!(56, streams::a_smaller_lease_is_stated_before_it_is_renewed),
    case!(57, streams::a_renewal_that_arrives_after_the_expiry_is_dropped),
    case!(58, streams::after_a_lost_stream_leases_stay_and_another_is_opened),
    case!(59, streams::without_the_service_leases_are_renewed_by_get_capacity),
    case!(60, streams::a_redirect_on_a_stream_is_followed),
    case!(61, streams::after_a_restart_everything_is_stated_on_another_stream),
    case!(62, streams::an_answer_to_another_message_is_not_believed),
    case!(63, streams::an_unanswered_message_closes_its_stream),
    case!(64, streams::the_stream_of_an_earlier_master_is_not_used),
    case!(65, limits::several_limits_are_taken_together_or_not_at_all),
    case!(66, limits::the_limit_that_refuses_is_named),
    case!(67, limits::a_caller_is_served_when_the_last_limit_has_room),
    case!(68, limits::callers_in_opposite_orders_are_served),
    case!(69, limits::a_wait_that_times_out_keeps_nothing),
    case!(70, limits::a_cancelled_wait_keeps_nothing),
    case!(71, limits::a_refusal_keeps_no_amount_and_an_amount_no_permit),
    case!(72, limits::a_wait_that_ends_gives_the_amount_back),
    case!(73, limits::budgets_in_opposite_orders_do_not_block_each_other),
    case!(74, streams::a_grant_that_was_not_asked_for_is_ignored),
];

/// Starts programs and servers.
pub(super) struct Kit {
    command: Vec<String>,
}

impl Kit {
    pub(super) fn new(command: Vec<String>) -> Kit {
        Kit { command }
    }

    /// Starts a client of these servers.
    async fn client(&self, servers: &[&ScriptedServer], mode: &str) -> Result<Driver, String> {
        let addresses: Vec<String> = servers.iter().map(|server| server.address()).collect();
        let mut driver = Driver::start(&self.command, &[])?;
        driver.expect_ok(&format!("open client-1 {} {mode}", addresses.join(","))).await?;
        Ok(driver)
    }

    /// Starts a server and a client that opens a rate with these wants.
    async fn rate(&self, script: Script, wants: f64, mode: &str) -> Result<(ScriptedServer, Driver), String> {
        let server = ScriptedServer::start(script).await?;
        let mut client = self.client(&[&server], mode).await?;
        client.expect_ok(&format!("rate {RESOURCE} {wants}")).await?;
        Ok((server, client))
    }

    /// Starts a server that offers streams, and a client with as many rates as it needs to use one. Returns when the
    /// client renews all leases by their indexes.
    async fn streamed(&self, grant: Grant) -> Result<(ScriptedServer, Driver), String> {
        let server = ScriptedServer::start(Script::Grant(grant)).await?;
        server.renew(Renewal::Grant(grant));
        let mut client = self.client(&[&server], "safe").await?;
        self.open_many(&mut client).await?;
        renewing(&server, Instant::now()).await?;
        usable(&mut client, grant.capacity, "lease").await?;
        Ok((server, client))
    }

    /// Opens as many rates as the client needs to use a stream, and one more that may be closed.
    async fn open_many(&self, client: &mut Driver) -> Outcome {
        let resources = client.streams().await?.max(1) + 1;
        client.expect_ok(&format!("rate {RESOURCE} 100")).await?;
        for n in 1..resources {
            client.expect_ok(&format!("rate {RESOURCE}{n} 100")).await?;
        }
        Ok(())
    }

    /// Starts a server and a client that opens a budget.
    async fn budget(&self, script: Script, mode: &str) -> Result<(ScriptedServer, Driver), String> {
        let server = ScriptedServer::start(script).await?;
        let mut client = self.client(&[&server], mode).await?;
        client.open_budget(RESOURCE).await?;
        Ok((server, client))
    }
}

/// Polls until there is a value.
async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Result<Option<T>, String>) -> Result<T, String> {
    let begin = Instant::now();
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        if begin.elapsed() > DEADLINE {
            return Err(format!("not within {} s: {what}", DEADLINE.as_secs()));
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Waits for a request that fulfils the condition, from `since` on.
async fn request_since(
    server: &ScriptedServer,
    since: Instant,
    what: &str,
    condition: impl Fn(&Received) -> bool,
) -> Result<Received, String> {
    eventually(what, async || Ok(server.received_since(since).into_iter().find(&condition))).await
}

/// Waits for a message on a stream that fulfils the condition, from `since` on.
async fn message_since(
    server: &ScriptedServer,
    since: Instant,
    what: &str,
    condition: impl Fn(&Message) -> bool,
) -> Result<Message, String> {
    eventually(what, async || Ok(server.messages_since(since).into_iter().find(&condition))).await
}

/// Waits until the client renews all leases by their indexes.
async fn renewing(server: &ScriptedServer, since: Instant) -> Result<Message, String> {
    let renews = |message: &Message| message.renews(RESOURCE) && message.request.entry.is_empty();
    message_since(server, since, "a message that only renews", renews).await
}

/// Waits until the client may use this much, on this basis.
async fn usable(client: &mut Driver, capacity: f64, basis: &str) -> Outcome {
    let mut seen = None;
    let found = eventually("", async || {
        let usable = client.usable(RESOURCE).await?;
        let is_it = usable.capacity == capacity && usable.basis == basis;
        seen = Some(usable);
        Ok(is_it.then_some(()))
    });
    let found = found.await;
    found.map_err(|_| format!("the client should use {capacity} by its {basis}, and not {seen:?}"))
}

fn check(is_right: bool, what: impl FnOnce() -> String) -> Outcome {
    if is_right { Ok(()) } else { Err(what()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_a_rule_in_the_document_and_a_mutant() {
        let document = include_str!("../../docs/reference/client-protocol.md");
        let mutants = include_str!("mutants.py");
        for (place, case) in CASES.iter().enumerate() {
            assert_eq!(usize::from(case.number), place + 1, "numbers are consecutive");
            assert!(document.contains(&format!("\n| {} | ", case.number)), "no rule {} in the document", case.number);
            assert!(mutants.contains(&format!("\n    ({}, ", case.number)), "no mutant for case {}", case.number);
        }
        assert!(!document.contains(&format!("\n| {} | ", CASES.len() + 1)), "a rule without a case");
    }
}
