//! The rules of the lease protocol, one sentence each.
//!
//! The random histories of [`super::histories`] say *that* the promises hold; these tests say which rule keeps which
//! promise, so that whoever breaks a rule is told its name and its reason, not the seed of a history.

use std::collections::BTreeMap;

use super::world::{ask, birth, has, now_at, one};
use crate::{
    Amount, Answer, Ask, Birth, Claim, Claims, Counters, Has, HolderKind, HolderReport, Kind, Lease, Millis, Priority,
    Release, Request, Resource, Reuse, SafeCapacity, Settings, Token, invariant,
};

/// A resource, and its holders' own books: the newest answer that reached each of them.
struct Desk {
    resource: Resource,
    now: Millis,
    leases: BTreeMap<String, Lease>,
}

fn fair(capacity: f64) -> Settings {
    Settings::new(Kind::FairShare, Amount::clamped(capacity))
}

fn slice(subclients: u32, wants: f64, priority: i16) -> Claim {
    Claim { wants: Amount::clamped(wants), subclients, priority }
}

fn granted(answer: Answer) -> Lease {
    match answer {
        Answer::Granted(lease) => lease,
        other => panic!("expected a lease, got {other:?}"),
    }
}

impl Desk {
    fn new(settings: Settings) -> Desk {
        Desk::born(birth(settings))
    }

    fn born(birth: Birth) -> Desk {
        Desk { resource: Resource::new(birth), now: Millis(0), leases: BTreeMap::new() }
    }

    fn pass(&mut self, ms: u64) {
        self.now = self.now.plus(Millis(ms));
    }

    /// The request that `id` would send now: it echoes the newest lease that reached it.
    fn request(&self, id: &str, wants: f64) -> Ask {
        ask(id, wants, self.leases.get(id).map(has))
    }

    /// The request of a node of that name.
    fn node_request(&self, id: &str, slices: &[Claim]) -> Ask {
        Ask { kind: HolderKind::Node, claims: Claims::from_slice(slices), ..self.request(id, 0.0) }
    }

    /// A round of one request whose answer reaches nobody.
    fn send(&mut self, ask: Ask) -> Answer {
        let before = self.resource.sums().held;
        let news = ask.outstanding > Amount::ZERO;
        let answer = one(&mut self.resource, now_at(self.now), Request::Ask(ask));
        if !news {
            invariant::held_within_capacity(&self.resource, before).expect("never over");
        }
        answer
    }

    /// A round of several requests, whose answers reach nobody.
    fn send_all<const N: usize>(&mut self, asks: [Ask; N]) -> [Answer; N] {
        let mut answers = Vec::new();
        self.resource.round(now_at(self.now), &mut asks.into_iter().map(Request::Ask).collect(), &mut answers);
        answers.try_into().expect("an answer for each")
    }

    /// A request whose answer arrives.
    fn deliver(&mut self, ask: Ask) -> f64 {
        let id = ask.id.to_string();
        let lease = granted(self.send(ask));
        self.leases.insert(id, lease);
        lease.capacity.get()
    }

    fn asks(&mut self, id: &str, wants: f64) -> f64 {
        self.deliver(self.request(id, wants))
    }

    fn node_asks(&mut self, id: &str, slices: &[Claim]) -> f64 {
        self.deliver(self.node_request(id, slices))
    }

    /// Requests absorbed in one round; the answers reach their holders.
    fn round(&mut self, requests: &[(&str, f64)]) -> Vec<f64> {
        let asks: Vec<Ask> = requests.iter().map(|(id, wants)| self.request(id, *wants)).collect();
        let mut answers = Vec::new();
        self.resource.round(now_at(self.now), &mut asks.into_iter().map(Request::Ask).collect(), &mut answers);
        let leases: Vec<Lease> = answers.into_iter().map(granted).collect();
        for ((id, _), lease) in requests.iter().zip(&leases) {
            self.leases.insert((*id).to_owned(), *lease);
        }
        leases.iter().map(|lease| lease.capacity.get()).collect()
    }

    fn release(&mut self, kind: HolderKind, id: &str, token: Option<Token>) {
        let release = Release { kind, id: id.into(), token };
        assert_eq!(one(&mut self.resource, now_at(self.now), Request::Release(release)), Answer::Released);
    }

    fn held(&self) -> f64 {
        self.resource.sums().held.get()
    }

    fn counters(&self) -> Counters {
        self.resource.counters()
    }

    fn report(&self, id: &str) -> HolderReport {
        let holders = self.resource.report_holders(self.now, 0, usize::MAX).0;
        holders.into_iter().find(|holder| *holder.id == *id).expect("a known holder")
    }

    fn change(&mut self, change: impl FnOnce(&mut Settings)) {
        let mut settings = self.resource.settings().clone();
        change(&mut settings);
        self.resource.configure(settings);
    }

    fn supply(&mut self, capacity: f64, until: Millis) {
        self.resource.supply(Amount::clamped(capacity), until);
    }
}

/// A holder that asks again and again must not cost rounds; one that has something to say must be heard.
mod too_soon {
    use super::*;

    #[test]
    fn a_second_request_too_soon_is_ignored_and_its_lease_stays() {
        let mut desk = Desk::new(fair(100.0));
        assert_eq!(desk.asks("a", 10.0), 10.0);
        let before = desk.report("a");
        desk.pass(4_999);
        assert_eq!(desk.send(desk.request("a", 10.0)), Answer::TooSoon);
        assert_eq!(desk.report("a"), before, "neither longer nor shorter");
        assert_eq!(desk.counters().too_soon, 1);
        desk.pass(1);
        assert_eq!(desk.asks("a", 10.0), 10.0, "an ignored request does not put off the next");
    }

    #[test]
    fn what_an_ignored_request_confirms_is_heard() {
        let mut desk = Desk::new(fair(100.0));
        desk.asks("a", 100.0);
        desk.asks("b", 100.0);
        desk.pass(16_000);
        assert_eq!((desk.asks("a", 100.0), desk.held()), (50.0, 100.0), "its lease of 100 may still be believed");
        desk.pass(1_000);
        assert_eq!(desk.send(desk.request("a", 100.0)), Answer::TooSoon);
        assert_eq!(desk.held(), 50.0, "it has shown that it knows of the 50");
        assert_eq!(desk.asks("b", 100.0), 50.0, "so somebody else may have the rest");
    }

    #[test]
    fn a_request_without_a_lease_is_never_too_soon() {
        let mut desk = Desk::new(fair(100.0));
        desk.asks("a", 10.0);
        desk.pass(1);
        granted(desk.send(ask("a", 10.0, None)));
    }

    #[test]
    fn a_request_that_echoes_an_older_lease_is_never_too_soon_for_its_answer_was_lost() {
        let mut desk = Desk::new(fair(100.0));
        desk.asks("a", 10.0);
        desk.pass(16_000);
        granted(desk.send(desk.request("a", 10.0)));
        desk.pass(1);
        granted(desk.send(desk.request("a", 10.0)));
        assert_eq!(desk.counters().too_soon, 0);
    }

    #[test]
    fn a_request_that_changes_wants_by_more_than_a_tenth_is_never_too_soon() {
        for (was, is, ignored) in [
            (10.0, 11.0, true), // exactly a tenth is not more
            (10.0, 9.0, true),
            (10.0, 11.001, false),
            (10.0, 8.999, false),
            (0.0, 0.0, true),
            (0.0, 1e-9, false), // whoever wanted nothing has changed its mind
            (10.0, 0.0, false),
        ] {
            let mut desk = Desk::new(fair(100.0));
            desk.asks("a", was);
            desk.pass(1);
            let answer = desk.send(desk.request("a", is));
            assert_eq!(answer == Answer::TooSoon, ignored, "from {was} to {is}: {answer:?}");
        }
    }

    #[test]
    fn small_changes_add_up_until_one_is_heard() {
        let mut desk = Desk::new(fair(100.0));
        desk.asks("a", 10.0);
        desk.pass(1);
        assert_eq!(desk.send(desk.request("a", 10.6)), Answer::TooSoon);
        granted(desk.send(desk.request("a", 11.2)));
    }

    #[test]
    fn a_request_with_another_priority_is_never_too_soon() {
        let mut settings = fair(100.0);
        settings.max_priority = Some(3);
        let mut desk = Desk::new(settings);
        let with = |desk: &Desk, priority| Ask {
            claims: Claims::from_slice(&[slice(1, 10.0, priority)]),
            ..desk.request("a", 10.0)
        };
        desk.deliver(with(&desk, 2));
        desk.pass(1);
        desk.deliver(with(&desk, 9));
        desk.pass(1);
        assert_eq!(desk.send(with(&desk, 7)), Answer::TooSoon, "both count as 3");
    }

    #[test]
    fn a_node_with_more_clients_is_never_too_soon() {
        let mut desk = Desk::new(fair(100.0));
        desk.node_asks("n", &[slice(2, 10.0, 0)]);
        desk.pass(1);
        assert_eq!(desk.send(desk.node_request("n", &[slice(2, 10.5, 0)])), Answer::TooSoon);
        granted(desk.send(desk.node_request("n", &[slice(3, 10.0, 0)])));
    }

    #[test]
    fn an_interval_of_zero_turns_it_off() {
        let mut settings = fair(100.0);
        settings.min_request_interval = Millis(0);
        let mut desk = Desk::new(settings);
        for _ in 0..3 {
            assert_eq!(desk.asks("a", 10.0), 10.0);
        }
    }

    #[test]
    fn the_interval_is_at_most_half_of_the_refresh_interval_handed_out() {
        let mut settings = fair(100.0);
        settings.refresh = Millis(4_000);
        let mut desk = Desk::new(settings);
        desk.asks("a", 10.0);
        // A longer one configured since does not bind a holder that was told another.
        desk.change(|settings| settings.refresh = Millis::from_secs(16));
        desk.pass(1_999);
        assert_eq!(desk.send(desk.request("a", 10.0)), Answer::TooSoon);
        desk.pass(1);
        desk.asks("a", 10.0);
    }

    #[test]
    fn a_refresh_interval_cut_short_by_the_nodes_own_lease_counts_as_handed_out() {
        let mut desk = Desk::new(fair(100.0));
        desk.supply(100.0, Millis(3_000));
        desk.asks("a", 10.0);
        assert_eq!(desk.leases["a"].refresh, Millis(2_000));
        desk.supply(100.0, Millis(60_000));
        desk.pass(2_000);
        assert_eq!(desk.asks("a", 10.0), 10.0, "it asks when it was told to, and its lease is about to end");
    }
}

/// A new master that knows nothing gives back what holders have, and nothing else.
mod learning {
    use super::*;

    fn learner(settings: Settings) -> Desk {
        Desk::born(Birth { learning_until: Millis(30_000), ..birth(settings) })
    }

    /// A lease given by the master before.
    fn inherited(capacity: f64, left: i64) -> Has {
        let expiry_time = now_at(Millis(0)).unix + left;
        Has { token: Token::new(17), capacity: Amount::clamped(capacity), expiry_time }
    }

    #[test]
    fn holders_get_back_what_they_have_and_new_ones_get_nothing() {
        let mut desk = learner(fair(100.0));
        assert_eq!(desk.deliver(ask("a", 90.0, Some(inherited(40.0, 50)))), 40.0);
        assert_eq!(desk.asks("b", 90.0), 0.0);
        desk.pass(16_000);
        assert_eq!((desk.asks("a", 90.0), desk.asks("b", 90.0)), (40.0, 0.0), "and so it stays");
        assert_eq!(desk.counters().learning_excess, 0);
    }

    #[test]
    fn together_they_never_get_back_more_than_there_is() {
        let mut desk = learner(fair(100.0));
        assert_eq!(desk.deliver(ask("a", 90.0, Some(inherited(70.0, 50)))), 70.0);
        assert_eq!(desk.deliver(ask("b", 90.0, Some(inherited(50.0, 50)))), 30.0);
        assert_eq!(desk.counters().learning_excess, 1, "somebody must look into it");

        let mut desk = learner(fair(100.0));
        let both = [("a", 150.0), ("b", 50.0)].map(|(id, had)| ask(id, 90.0, Some(inherited(had, 50))));
        let got = desk.send_all(both).map(|answer| granted(answer).capacity.get());
        assert_eq!(got, [75.0, 25.0], "in one round the same part of what each had");
        assert_eq!(desk.counters().learning_excess, 2);
    }

    #[test]
    fn it_ends_on_time_and_then_divides() {
        let mut desk = learner(fair(100.0));
        desk.deliver(ask("a", 90.0, Some(inherited(40.0, 50))));
        desk.asks("b", 90.0);
        desk.pass(29_999);
        assert!(desk.resource.is_learning(desk.now));
        assert_eq!(desk.resource.report(desk.now).learning, Millis(1));
        assert_eq!(desk.asks("b", 90.0), 0.0);
        desk.pass(1);
        assert!(!desk.resource.is_learning(desk.now));
        assert_eq!(desk.resource.report(desk.now).learning, Millis(0));
        assert_eq!(desk.asks("a", 90.0), 50.0);
        desk.pass(5_000);
        assert_eq!(desk.asks("b", 90.0), 50.0);
    }

    #[test]
    fn where_capacity_is_not_shared_there_is_nothing_to_learn() {
        for (kind, expected) in [(Kind::NoAlgorithm, 500.0), (Kind::Static, 100.0)] {
            let mut desk = learner(Settings::new(kind, Amount::clamped(100.0)));
            assert!(!desk.resource.is_learning(desk.now));
            assert_eq!(desk.asks("a", 500.0), expected);
        }
    }

    #[test]
    fn a_lease_that_has_ended_counts_as_none() {
        let mut desk = learner(fair(100.0));
        assert_eq!(desk.deliver(ask("a", 90.0, Some(inherited(40.0, -1)))), 0.0);
        assert_eq!(desk.deliver(ask("b", 90.0, Some(inherited(40.0, 0)))), 40.0, "whole seconds: it may be live");
    }

    #[test]
    fn outside_learning_a_lease_that_nobody_here_gave_is_counted_but_gives_no_right() {
        let mut desk = Desk::new(fair(100.0));
        desk.asks("a", 100.0);
        assert_eq!(desk.deliver(ask("b", 90.0, Some(inherited(40.0, 50)))), 0.0);
        assert_eq!(desk.counters().unaccounted, 1);
        let mut desk = learner(fair(100.0));
        desk.deliver(ask("b", 90.0, Some(inherited(40.0, 50))));
        assert_eq!(desk.counters().unaccounted, 0, "this is what learning is for");
    }

    #[test]
    fn nothing_is_given_back_once_the_nodes_own_lease_has_ended() {
        let mut desk = learner(fair(100.0));
        desk.supply(100.0, Millis(20_000));
        assert_eq!(desk.deliver(ask("a", 90.0, Some(inherited(40.0, 50)))), 40.0);
        desk.pass(20_000);
        assert_eq!(desk.asks("a", 90.0), 0.0);
    }

    /// The leak when left out: 669 of 500, without any loss or delay.
    #[test]
    fn a_learning_child_confirms_nothing_for_it_does_not_know_all_its_clients() {
        let mut desk = Desk::new(fair(100.0));
        let all = [slice(1, 100.0, 0)];
        desk.node_asks("n", &all);
        desk.asks("a", 100.0);
        desk.pass(16_000);
        assert_eq!((desk.node_asks("n", &all), desk.held()), (50.0, 100.0));
        desk.pass(16_000);
        let learning = Ask { learning: true, ..desk.node_request("n", &all) };
        assert_eq!((desk.deliver(learning), desk.held()), (50.0, 100.0), "clients below may still use the 100");
        desk.pass(16_000);
        assert_eq!((desk.node_asks("n", &all), desk.held()), (50.0, 50.0));
    }

    #[test]
    fn a_learning_child_may_only_raise_what_is_outstanding() {
        let mut desk = Desk::new(fair(100.0));
        let half = [slice(1, 50.0, 0)];
        desk.node_asks("n", &half);
        let report = |desk: &mut Desk, outstanding, learning| {
            desk.pass(16_000);
            let outstanding = Amount::clamped(outstanding);
            desk.deliver(Ask { outstanding, learning, ..desk.node_request("n", &half) });
            desk.held()
        };
        assert_eq!(report(&mut desk, 80.0, true), 80.0);
        assert_eq!(report(&mut desk, 60.0, true), 80.0, "it may not know all of it");
        assert_eq!(report(&mut desk, 60.0, false), 60.0);
    }
}

/// When may the capacity freed by a shrink be given to somebody else?
mod reuse {
    use super::*;

    /// The refreshes, 16 s apart, at which `b` gets its half of what `a` held alone.
    fn refreshes_until_shared(reuse: Reuse, kind: HolderKind) -> (usize, Desk) {
        let mut settings = fair(100.0);
        settings.reuse = reuse;
        let mut desk = Desk::new(settings);
        let all = [slice(1, 100.0, 0)];
        let first = |desk: &mut Desk| desk.deliver(Ask { kind, ..desk.node_request("a", &all) });
        assert_eq!(first(&mut desk), 100.0);
        assert_eq!(desk.asks("b", 100.0), 0.0);
        for refreshes in 1..5 {
            desk.pass(16_000);
            assert_eq!(first(&mut desk), 50.0, "a shrink is at once");
            if desk.asks("b", 100.0) == 50.0 {
                return (refreshes, desk);
            }
        }
        panic!("never");
    }

    #[test]
    fn confirmed_waits_until_the_holder_has_shown_that_it_knows() {
        let (refreshes, desk) = refreshes_until_shared(Reuse::Confirmed, HolderKind::Client);
        assert_eq!((refreshes, desk.held()), (2, 100.0));
    }

    #[test]
    fn prompt_is_a_refresh_faster() {
        let (refreshes, desk) = refreshes_until_shared(Reuse::Prompt, HolderKind::Client);
        assert_eq!((refreshes, desk.held()), (1, 100.0));
    }

    #[test]
    fn towards_nodes_it_is_always_confirmed() {
        assert_eq!(refreshes_until_shared(Reuse::Prompt, HolderKind::Node).0, 2);
    }

    #[test]
    fn confirmed_waits_no_longer_than_the_older_leases_last() {
        let mut desk = Desk::new(fair(100.0));
        desk.asks("a", 100.0);
        desk.asks("b", 100.0);
        desk.pass(16_000);
        desk.asks("a", 100.0); // and is never heard of again
        desk.pass(61_060 - 16_000 - 1);
        assert_eq!(desk.asks("b", 100.0), 0.0, "the first lease may be believed until 61.06 s");
        desk.pass(41); // ends are told apart by tenths of a second
        assert_eq!(desk.deliver(ask("b", 100.0, None)), 50.0, "the second lease of `a` is live");
    }

    #[test]
    fn what_is_outstanding_is_not_reused_even_promptly() {
        for together in [false, true] {
            let mut settings = fair(100.0);
            settings.reuse = Reuse::Prompt;
            let mut desk = Desk::new(settings);
            desk.asks("a", 100.0);
            desk.asks("b", 100.0);
            desk.pass(16_000);
            // It has 80 permits in use; so many transactions cannot be recalled.
            let in_use = Ask { outstanding: Amount::clamped(80.0), ..desk.request("a", 100.0) };
            let waiting = desk.request("b", 100.0);
            let got = if together {
                desk.send_all([in_use, waiting]).map(|answer| granted(answer).capacity.get())
            } else {
                [desk.deliver(in_use), desk.deliver(waiting)]
            };
            assert_eq!(got, [50.0, 20.0]);
        }
    }
}

/// What proves which lease its holder knows, and what does not.
mod tokens {
    use super::*;

    /// `a` was granted 100, then cut to 50, and that answer was lost; `b` waits. Returns the two leases.
    fn cut_and_lost() -> (Desk, Lease, Lease) {
        let mut desk = Desk::new(fair(100.0));
        desk.asks("a", 100.0);
        desk.asks("b", 100.0);
        desk.pass(16_000);
        let (known, lost) = (desk.leases["a"], granted(desk.send(desk.request("a", 100.0))));
        assert_eq!(lost.capacity.get(), 50.0);
        (desk, known, lost)
    }

    #[test]
    fn a_lost_answer_leaves_the_older_lease_held() {
        let (mut desk, ..) = cut_and_lost();
        assert_eq!(desk.held(), 100.0);
        desk.pass(16_000);
        assert_eq!(desk.asks("a", 100.0), 50.0, "it is told again");
        assert_eq!((desk.held(), desk.asks("b", 100.0)), (100.0, 0.0), "and still has to show that it knows");
        desk.pass(16_000);
        desk.asks("a", 100.0);
        assert_eq!(desk.asks("b", 100.0), 50.0);
    }

    /// The leak when left out: 542 of 500.
    #[test]
    fn has_drops_older_leases_only_what_was_given_since_counts() {
        let mut desk = Desk::new(fair(100.0));
        desk.asks("a", 20.0);
        desk.pass(16_000);
        granted(desk.send(desk.request("a", 50.0))); // its answer is still on its way
        desk.pass(16_000);
        granted(desk.send(desk.request("a", 20.0)));
        assert_eq!(desk.held(), 50.0);
    }

    #[test]
    fn has_may_lower_the_lease_it_names_but_not_raise_it() {
        let (mut desk, known, _) = cut_and_lost();
        desk.pass(16_000);
        let says = |capacity: f64| Some(Has { capacity: Amount::clamped(capacity), ..has(&known) });
        desk.send(Ask { has: says(140.0), ..desk.request("a", 100.0) });
        assert_eq!(desk.held(), 100.0);
        desk.send(Ask { has: says(70.0), ..desk.request("a", 100.0) });
        assert_eq!(desk.held(), 70.0);
        desk.send(Ask { has: says(90.0), ..desk.request("a", 100.0) });
        assert_eq!(desk.held(), 70.0);
    }

    /// The leak when left out: 522 of 500.
    #[test]
    fn a_request_without_has_confirms_nothing() {
        let (mut desk, ..) = cut_and_lost();
        desk.pass(1_000);
        desk.send(ask("a", 100.0, None));
        assert_eq!(desk.held(), 100.0);
    }

    #[test]
    fn without_a_token_only_the_newest_lease_is_confirmed_by_its_expiry_and_capacity() {
        let (mut desk, known, lost) = cut_and_lost();
        desk.pass(1_000);
        let plain = |lease: &Lease| Some(Has { token: None, ..has(lease) });
        desk.send(ask("a", 100.0, plain(&known)));
        assert_eq!(desk.held(), 100.0);
        // That request got an answer too, so the lost one is no longer the newest.
        desk.send(ask("a", 100.0, plain(&lost)));
        assert_eq!(desk.held(), 100.0);
        desk.pass(16_000);
        let newest = granted(desk.send(ask("a", 100.0, None)));
        desk.pass(16_000);
        desk.send(ask("a", 100.0, plain(&newest)));
        assert_eq!(desk.held(), 50.0);
    }

    /// Found by a random history: three leases of one second, of 0, 40 and 0; the first was taken for the third.
    #[test]
    fn without_a_token_two_leases_that_look_the_same_confirm_nothing() {
        let mut desk = Desk::new(fair(100.0));
        let plain = |lease: Lease, wants| ask("a", wants, Some(Has { token: None, ..has(&lease) }));
        let known = granted(desk.send(ask("a", 0.0, None)));
        granted(desk.send(plain(known, 40.0))); // its answer arrives last
        granted(desk.send(ask("a", 0.0, None))); // the first request once more
        granted(desk.send(plain(known, 20.0))); // sent before the 40 were asked for
        assert_eq!(desk.held(), 40.0);
    }

    #[test]
    fn a_token_of_another_term_confirms_nothing() {
        let (mut desk, ..) = cut_and_lost();
        desk.pass(1_000);
        for token in [3, u64::MAX].map(|number| Token::new(number).expect("not zero")) {
            let foreign = Has { token: Some(token), ..has(&desk.leases["a"]) };
            desk.send(Ask { has: Some(foreign), ..desk.request("a", 100.0) });
            assert_eq!(desk.held(), 100.0);
        }
    }

    #[test]
    fn a_delayed_request_that_names_an_older_lease_is_dropped_whole() {
        let mut desk = Desk::new(fair(100.0));
        desk.asks("a", 10.0);
        let delayed = Ask { outstanding: Amount::clamped(70.0), ..desk.request("a", 90.0) };
        for _ in 0..2 {
            desk.pass(16_000);
            desk.asks("a", 20.0);
        }
        let before = desk.report("a");
        assert_eq!(desk.send(delayed), Answer::Stale);
        assert_eq!(desk.report("a"), before, "neither its wants nor its leases nor what it had outstanding");
        assert_eq!(desk.counters().stale, 1);
    }

    /// The leak when left out: 524 of 500.
    #[test]
    fn a_report_of_outstanding_that_proves_nothing_only_raises() {
        let mut desk = Desk::new(fair(100.0));
        let all = [slice(1, 50.0, 0)];
        desk.node_asks("n", &all);
        let mut held = |has_lease: bool, outstanding| {
            desk.pass(16_000);
            let known = desk.leases["n"];
            let outstanding = Amount::clamped(outstanding);
            let has = has_lease.then(|| has(&known));
            desk.deliver(Ask { has, outstanding, ..desk.node_request("n", &all) });
            desk.held()
        };
        assert_eq!(held(true, 80.0), 80.0);
        assert_eq!(held(false, 10.0), 80.0, "late, or from a life before this one");
        assert_eq!(held(true, 10.0), 50.0);
    }

    #[test]
    fn what_is_outstanding_counts_until_the_latest_end_ever_given() {
        let mut desk = Desk::new(fair(100.0));
        desk.node_asks("n", &[slice(1, 80.0, 0)]);
        desk.pass(16_000);
        desk.change(|settings| settings.lease = Millis::from_secs(20));
        assert_eq!(desk.node_asks("n", &[slice(1, 10.0, 0)]), 10.0);
        desk.pass(5_000);
        // It knows of the 10, but its own clients still use leases cut from the 80, which last until 60 s; the newest until 41.
        let outstanding = Amount::clamped(80.0);
        assert_eq!(desk.deliver(Ask { outstanding, ..desk.node_request("n", &[slice(1, 10.0, 0)]) }), 10.0);
        desk.pass(61_060 - 21_000 - 1);
        desk.resource.tick(desk.now);
        assert_eq!(desk.held(), 80.0);
        desk.pass(41);
        assert!(desk.resource.tick(desk.now));
        assert_eq!(desk.held(), 0.0);
    }

    /// The leak when left out: 640 of 500.
    #[test]
    fn a_delayed_release_does_not_free_a_newer_lease() {
        let mut desk = Desk::new(fair(100.0));
        desk.asks("a", 30.0);
        let older = desk.leases["a"].token;
        desk.pass(16_000);
        desk.asks("a", 20.0);
        assert_eq!(desk.held(), 30.0);
        desk.release(HolderKind::Client, "a", Some(older));
        assert_eq!((desk.held(), desk.report("a").granted.get()), (20.0, 20.0), "the older one is given back");
        let newest = desk.leases["a"].token;
        desk.release(HolderKind::Client, "a", Some(newest));
        assert_eq!((desk.held(), desk.resource.holders()), (0.0, 0));
    }

    #[test]
    fn a_delayed_release_does_not_free_what_was_asked_for_again() {
        let mut desk = Desk::new(fair(100.0));
        desk.asks("a", 30.0);
        let gone = desk.leases["a"];
        desk.release(HolderKind::Client, "a", Some(gone.token));
        let delayed_request = desk.request("a", 60.0);
        desk.leases.clear();
        assert_eq!(desk.asks("a", 40.0), 40.0);
        desk.release(HolderKind::Client, "a", Some(gone.token));
        assert_eq!(desk.held(), 40.0);
        // A request from before the release is answered, but proves nothing about the leases since.
        granted(desk.send(delayed_request));
        desk.pass(16_000);
        assert_eq!(desk.asks("a", 40.0), 40.0, "whoever knows a lease of this life is heard");
        assert_eq!(desk.counters().stale, 0);
    }

    #[test]
    fn a_release_without_a_token_gives_back_everything_as_doorman_clients_mean_it() {
        let (mut desk, ..) = cut_and_lost();
        desk.release(HolderKind::Client, "a", None);
        assert_eq!((desk.held(), desk.resource.holders()), (0.0, 1), "`b` waits with a lease of nothing");
        desk.pass(5_000);
        assert_eq!(desk.asks("b", 100.0), 100.0);
    }

    #[test]
    fn a_release_with_a_token_of_another_term_gives_back_nothing() {
        let mut desk = Desk::new(fair(100.0));
        desk.asks("a", 30.0);
        for token in [3, u64::MAX].map(|number| Token::new(number).expect("not zero")) {
            desk.release(HolderKind::Client, "a", Some(token));
            assert_eq!(desk.held(), 30.0);
        }
    }

    #[test]
    fn releasing_twice_or_what_one_never_had_does_no_harm() {
        let mut desk = Desk::new(fair(100.0));
        desk.asks("a", 30.0);
        desk.asks("b", 30.0);
        for _ in 0..2 {
            desk.release(HolderKind::Client, "a", Some(desk.leases["a"].token));
            desk.release(HolderKind::Client, "a", None);
            desk.release(HolderKind::Client, "stranger", None);
            assert_eq!((desk.held(), desk.resource.holders()), (30.0, 1));
        }
    }

    #[test]
    fn clients_and_nodes_have_separate_names() {
        let mut desk = Desk::new(fair(100.0));
        desk.asks("same", 30.0);
        desk.leases.clear();
        desk.node_asks("same", &[slice(2, 40.0, 0)]);
        assert_eq!((desk.held(), desk.resource.holders()), (70.0, 2));
        desk.release(HolderKind::Client, "same", None);
        assert_eq!((desk.held(), desk.report("same").kind), (40.0, HolderKind::Node));
    }
}

/// A round absorbs what is waiting, settles once, and answers all of it.
mod rounds {
    use super::*;

    #[test]
    fn what_arrives_together_is_divided_together() {
        let mut desk = Desk::new(fair(120.0));
        assert_eq!(desk.round(&[("a", 1000.0), ("b", 50.0), ("c", 10.0)]), [60.0, 50.0, 10.0]);
        assert_eq!(desk.counters().rounds, 1);
    }

    #[test]
    fn the_order_within_a_round_means_nothing() {
        for order in [["a", "b", "c"], ["c", "a", "b"], ["b", "c", "a"]] {
            let mut desk = Desk::new(fair(96.0));
            desk.asks("d", 48.0); // so that not everybody can have what is due at once: 96 / 4 = 24 each, 48 free
            let wants = order.map(|id| (id, 1000.0));
            assert_eq!(desk.round(&wants), [16.0; 3], "{order:?}");
        }
    }

    #[test]
    fn a_holder_that_asks_twice_in_a_round_gets_two_answers_the_second_after_the_first() {
        let mut desk = Desk::new(fair(100.0));
        assert_eq!(desk.round(&[("a", 90.0), ("a", 40.0)]), [90.0, 40.0]);
        assert_eq!(desk.held(), 90.0, "either answer may arrive");
        assert_eq!(desk.resource.sums().wants.get(), 40.0, "the later request says what it wants");

        let mut desk = Desk::new(fair(100.0));
        assert_eq!(desk.round(&[("a", 100.0), ("b", 100.0), ("a", 10.0), ("b", 100.0)]), [50.0, 50.0, 10.0, 50.0]);
        assert_eq!(desk.counters().granted, 4);
    }

    #[test]
    fn a_release_between_two_requests_of_a_round_takes_its_place_among_them() {
        let mut desk = Desk::new(fair(100.0));
        let release = Release { kind: HolderKind::Client, id: "a".into(), token: None };
        let requests =
            [Request::Ask(ask("a", 100.0, None)), Request::Release(release), Request::Ask(ask("b", 100.0, None))];
        let mut answers = Vec::new();
        desk.resource.round(now_at(desk.now), &mut requests.into(), &mut answers);
        assert_eq!(granted(answers[0]).capacity.get(), 100.0);
        assert_eq!(answers[1], Answer::Released);
        assert_eq!(granted(answers[2]).capacity.get(), 100.0);
        assert_eq!(desk.resource.holders(), 1);
    }

    #[test]
    fn nobody_is_granted_more_than_is_due_to_them_though_more_is_held_for_them() {
        for capacity in [100.0, 50.0] {
            let mut desk = Desk::new(fair(100.0));
            desk.asks("a", 60.0);
            desk.pass(16_000);
            granted(desk.send(desk.request("a", 5.0)));
            assert_eq!(desk.held(), 60.0);
            desk.change(|settings| settings.capacity = Amount::clamped(capacity));
            assert_eq!(desk.asks("a", 30.0), 30.0, "of {capacity}");
        }
    }

    #[test]
    fn nobody_is_granted_more_than_is_due_to_them() {
        let mut desk = Desk::new(fair(100.0));
        assert_eq!(desk.asks("a", 30.0), 30.0, "what nobody wants stays free");
        desk.asks("b", 1000.0);
        desk.pass(16_000);
        assert_eq!(desk.asks("a", 60.0), 30.0, "due 50, but `b` holds the rest");
        assert_eq!(desk.asks("b", 1000.0), 50.0);
        desk.pass(16_000);
        desk.asks("b", 1000.0);
        assert_eq!(desk.asks("a", 60.0), 50.0, "70 would be free if only capacity less grants counted");
    }
}

/// Capacity may be cut below what is out. The Go server answers that with negative grants.
mod capacity_changes {
    use super::*;

    fn after_a_change(from: f64, to: f64, reuse: Reuse) {
        let ids = ["a", "b", "c", "d", "e"];
        let mut settings = fair(from);
        settings.reuse = reuse;
        let mut desk = Desk::new(settings);
        for _ in 0..3 {
            for id in ids {
                desk.asks(id, 1000.0);
            }
            desk.pass(16_000);
        }
        desk.change(|settings| settings.capacity = Amount::clamped(to));
        let mut held = desk.held();
        for _ in 0..3 {
            for id in ids {
                let got = desk.asks(id, 1000.0);
                assert!(got >= 0.0 && got <= from.max(to) / 5.0, "{id} got {got}");
                assert!(desk.held() <= held.max(to), "held rises from {held} to {}", desk.held());
                held = desk.held();
            }
            desk.pass(16_000);
        }
        for id in ids {
            let report = desk.report(id);
            assert_eq!((report.granted.get(), report.due.get()), (to / 5.0, to / 5.0), "{id} at {to}, {reuse:?}");
        }
        assert_eq!(held, to);
    }

    #[test]
    fn after_a_change_of_capacity_everybody_settles_and_nobody_goes_below_nothing() {
        for reuse in [Reuse::Confirmed, Reuse::Prompt] {
            after_a_change(100.0, 30.0, reuse);
            after_a_change(100.0, 0.0, reuse);
            after_a_change(100.0, 250.0, reuse);
            after_a_change(0.0, 250.0, reuse);
        }
    }

    /// The leak when left out: 502 to 568 of 500.
    #[test]
    fn an_inflated_record_is_no_entitlement() {
        let mut desk = Desk::new(fair(100.0));
        desk.round(&[("a", 60.0), ("b", 40.0)]);
        desk.pass(16_000);
        // `a` gives up most of it. The 60 stay held until it confirms; then the capacity is cut.
        desk.round(&[("a", 5.0), ("b", 40.0)]);
        desk.change(|settings| settings.capacity = Amount::clamped(70.0));
        desk.pass(1_000);
        let again = desk.deliver(ask("a", 60.0, None));
        assert_eq!(again, 30.0, "what `b` leaves of 70, not the 35 that it is due and of which 60 are held for it");
    }

    #[test]
    fn while_too_much_is_held_nobody_grows() {
        let mut desk = Desk::new(fair(100.0));
        desk.round(&[("a", 90.0), ("b", 10.0)]);
        desk.change(|settings| settings.capacity = Amount::clamped(50.0));
        desk.pass(16_000);
        assert_eq!(desk.asks("b", 40.0), 10.0, "due 25, but `a` alone holds 90");
        assert_eq!(desk.asks("a", 90.0), 25.0);
    }
}

/// The server's idea of a lease's end is never earlier than its holder's.
mod expiry {
    use super::*;

    #[test]
    fn a_lease_is_over_a_second_and_a_thousandth_after_its_length() {
        let mut desk = Desk::new(fair(100.0));
        desk.asks("a", 100.0);
        assert_eq!(desk.report("a").end, Millis(61_060), "60 s, the rounding of the wire, a slow clock");
        desk.pass(61_059);
        assert!(!desk.resource.tick(desk.now));
        assert_eq!(desk.asks("b", 100.0), 0.0);
        assert_eq!(desk.resource.next_expiry(), Some(Millis(61_100)), "ends are told apart by tenths of a second");
        desk.pass(41);
        assert_eq!(desk.deliver(ask("b", 100.0, None)), 100.0, "those who ask next get it");
        assert_eq!((desk.counters().expired, desk.resource.holders()), (1, 1));
    }

    #[test]
    fn holders_are_forgotten_when_all_their_leases_have_ended() {
        let mut desk = Desk::new(fair(100.0));
        desk.asks("a", 10.0);
        desk.pass(30_000);
        desk.asks("b", 10.0);
        desk.pass(31_100);
        assert!(!desk.resource.tick(desk.now));
        assert_eq!((desk.resource.holders(), desk.held()), (1, 10.0));
        desk.pass(30_000);
        assert!(desk.resource.tick(desk.now), "nobody is left: the resource may be retired");
        assert_eq!((desk.counters().expired, desk.resource.next_expiry()), (2, None));
        assert_eq!(desk.resource.sums(), crate::Sums::default());
    }

    #[test]
    fn whoever_refreshes_is_not_forgotten() {
        let mut desk = Desk::new(fair(100.0));
        for _ in 0..20 {
            assert_eq!(desk.asks("a", 10.0), 10.0);
            desk.pass(16_000);
            assert!(!desk.resource.tick(desk.now));
        }
        assert_eq!(desk.counters().expired, 0);
    }

    /// The leak when left out: 556 of 500.
    #[test]
    fn a_shorter_lease_does_not_shorten_the_one_before() {
        let mut desk = Desk::new(fair(100.0));
        desk.asks("a", 100.0);
        desk.pass(1_000);
        desk.change(|settings| settings.lease = Millis::from_secs(20));
        assert_eq!(desk.deliver(ask("a", 40.0, None)), 40.0);
        desk.pass(40_000);
        assert_eq!(desk.asks("b", 100.0), 0.0, "the first lease may be believed until 61.06 s");
        desk.pass(20_100);
        assert_eq!(desk.deliver(ask("b", 100.0, None)), 100.0);
    }

    #[test]
    fn beyond_the_limit_of_holders_new_ones_are_refused_and_known_ones_served() {
        let mut desk = Desk::born(Birth { max_holders: 2, ..birth(fair(100.0)) });
        desk.asks("a", 10.0);
        desk.asks("b", 10.0);
        assert_eq!(desk.send(ask("c", 10.0, None)), Answer::Full);
        assert_eq!((desk.counters().full, desk.resource.holders(), desk.held()), (1, 2, 20.0));
        desk.pass(16_000);
        assert_eq!(desk.asks("a", 15.0), 15.0);
        desk.release(HolderKind::Client, "b", None);
        assert_eq!(desk.asks("c", 10.0), 10.0);
    }
}

/// What a holder may use once its lease has ended and the server is gone.
mod safe_capacity {
    use super::*;

    fn safe(desk: &Desk, id: &str) -> f64 {
        desk.leases[id].safe_capacity
    }

    #[test]
    fn it_is_what_the_template_says() {
        for (setting, expected) in [(SafeCapacity::Fixed(Amount::clamped(7.5)), 7.5), (SafeCapacity::Unlimited, -1.0)] {
            let mut settings = fair(100.0);
            settings.safe_capacity = setting;
            let mut desk = Desk::new(settings);
            desk.asks("a", 10.0);
            assert_eq!(safe(&desk, "a"), expected);
        }
    }

    #[test]
    fn or_else_the_capacity_divided_by_all_clients_known_those_below_nodes_too() {
        let mut desk = Desk::new(fair(120.0));
        desk.asks("a", 10.0);
        assert_eq!(safe(&desk, "a"), 120.0, "the one who asks counts");
        desk.node_asks("n", &[slice(3, 30.0, 0), slice(1, 5.0, 0)]);
        assert_eq!(safe(&desk, "n"), 24.0);
        desk.round(&[("b", 1.0), ("c", 1.0), ("d", 1.0)]);
        assert_eq!(safe(&desk, "b"), 15.0, "all of a round count for each of it");
        desk.release(HolderKind::Node, "n", None);
        desk.pass(16_000);
        desk.asks("a", 10.0);
        assert_eq!(safe(&desk, "a"), 30.0);
    }

    #[test]
    fn it_is_never_infinite_or_undefined() {
        let mut desk = Desk::new(fair(0.0));
        // A node without any clients.
        desk.node_asks("n", &[]);
        assert_eq!(safe(&desk, "n"), 0.0);
        let mut desk = Desk::new(fair(120.0));
        desk.node_asks("n", &[]);
        assert_eq!(safe(&desk, "n"), 120.0);
    }
}

/// A node with a parent gives out no more, and for no longer, than its own lease says.
mod supply {
    use super::*;

    const KINDS: [Kind; 4] = Kind::ALL;

    fn child(kind: Kind, capacity: f64, until: u64) -> Desk {
        let mut desk = Desk::new(Settings::new(kind, Amount::ZERO));
        desk.supply(capacity, Millis(until));
        desk
    }

    #[test]
    fn no_lease_outlives_the_nodes_own_and_all_ask_again_before_it_ends() {
        for kind in KINDS {
            for (left, length, refresh) in
                [(90_000, 60_000, 16_000), (60_000, 60_000, 16_000), (30_000, 30_000, 16_000), (10_000, 10_000, 9_000)]
            {
                let mut desk = child(kind, 100.0, left);
                desk.asks("a", 10.0);
                let lease = desk.leases["a"];
                assert_eq!((lease.length, lease.refresh), (Millis(length), Millis(refresh)), "{kind:?}");
                invariant::lease_within_bounds(&lease, None, desk.now, Some(Millis(left))).expect("within");
            }
        }
    }

    #[test]
    fn when_it_ends_the_capacity_is_zero() {
        for kind in KINDS {
            let mut desk = child(kind, 100.0, 30_000);
            assert_eq!(desk.asks("a", 10.0), 10.0);
            desk.pass(30_000);
            // The server still believes in the lease of `a`, by the allowance; that must not renew it.
            assert_eq!(desk.asks("a", 10.0), 0.0, "{kind:?}");
            assert_eq!(desk.asks("b", 10.0), 0.0, "{kind:?}");
            assert_eq!(desk.resource.settings().capacity, Amount::ZERO);
            desk.supply(100.0, Millis(90_000));
            desk.pass(5_000);
            assert_eq!(desk.asks("a", 10.0), 10.0, "{kind:?}: a new lease brings it back");
        }
    }

    #[test]
    fn a_tick_notices_the_end_as_well() {
        let mut desk = child(Kind::FairShare, 100.0, 30_000);
        desk.resource.tick(Millis(29_999));
        assert_eq!(desk.resource.settings().capacity.get(), 100.0);
        desk.resource.tick(Millis(30_000));
        assert_eq!(desk.resource.settings().capacity, Amount::ZERO);
    }

    #[test]
    fn what_is_unbounded_at_the_root_is_bounded_by_the_nodes_own_lease() {
        for (kind, first) in [(Kind::NoAlgorithm, 80.0), (Kind::Static, 80.0)] {
            let mut root = Desk::new(Settings::new(kind, Amount::clamped(100.0)));
            assert_eq!((root.asks("a", 80.0), root.asks("b", 80.0)), (80.0, 80.0));
            let mut desk = child(kind, 100.0, 30_000);
            assert_eq!((desk.asks("a", 80.0), desk.asks("b", 80.0)), (first, 20.0), "{kind:?}");
            assert_eq!(desk.held(), 100.0);
        }
    }

    #[test]
    fn a_smaller_lease_shrinks_what_is_out_whatever_the_algorithm() {
        for kind in KINDS {
            let mut desk = child(kind, 100.0, 600_000);
            desk.round(&[("a", 50.0), ("b", 50.0)]);
            desk.supply(40.0, Millis(600_000));
            let mut held = desk.held();
            for _ in 0..4 {
                desk.pass(16_000);
                for id in ["a", "b"] {
                    assert!(desk.asks(id, 50.0) >= 0.0);
                    assert!(desk.held() <= held.max(40.0), "{kind:?}");
                    held = desk.held();
                }
            }
            assert!(held <= 40.0, "{kind:?} holds {held} of a lease of 40");
        }
    }
}

/// Bands of higher priority go first, if the template says so.
mod priorities {
    use super::*;

    fn strict(capacity: f64) -> Settings {
        let mut settings = fair(capacity);
        settings.priority = Priority::Strict;
        settings
    }

    fn with(id: &str, wants: f64, priority: i16) -> Ask {
        Ask { claims: Claims::from_slice(&[slice(1, wants, priority)]), ..ask(id, wants, None) }
    }

    #[test]
    fn a_band_gets_what_the_bands_above_leave() {
        let mut desk = Desk::new(strict(100.0));
        let asks = [with("low", 50.0, -1), with("mid-1", 60.0, 0), with("high", 40.0, 5), with("mid-2", 60.0, 0)];
        let got = desk.send_all(asks).map(|answer| granted(answer).capacity.get());
        assert_eq!(got, [0.0, 30.0, 40.0, 30.0]);
    }

    #[test]
    fn by_default_priorities_mean_nothing() {
        let mut desk = Desk::new(fair(100.0));
        let asks = [with("low", 100.0, -1), with("high", 100.0, 5)];
        assert_eq!(desk.send_all(asks).map(|answer| granted(answer).capacity.get()), [50.0, 50.0]);
    }

    #[test]
    fn a_client_may_not_claim_more_than_the_template_allows_but_a_node_reports_what_was_capped_below() {
        let mut settings = strict(100.0);
        settings.max_priority = Some(3);
        let mut desk = Desk::new(settings);
        let client = granted(desk.send(with("client", 100.0, 9)));
        assert_eq!((client.priority, desk.report("client").priority), (3, 3), "the answer says what it counts as");
        assert_eq!(granted(desk.send(with("modest", 1.0, 2))).priority, 2, "a cap is no promotion");
        let node = desk.node_asks("node", &[slice(1, 60.0, 9)]);
        assert_eq!((node, desk.leases["node"].priority), (0.0, 9), "nothing is free yet");
        assert_eq!((desk.report("node").due.get(), desk.report("client").due.get()), (60.0, 40.0));
    }
}

/// New settings take effect at once; leases stay.
mod configure {
    use super::*;

    #[test]
    fn leases_stay_and_another_algorithm_takes_over_with_the_next_round() {
        let mut desk = Desk::new(Settings::new(Kind::NoAlgorithm, Amount::clamped(120.0)));
        let wants = [("a", 1000.0), ("b", 50.0), ("c", 10.0)];
        assert_eq!(desk.round(&wants), [1000.0, 50.0, 10.0]);
        for (kind, expected) in [
            (Kind::FairShare, [60.0, 50.0, 10.0]),
            (Kind::Static, [120.0, 50.0, 10.0]),
            (Kind::ProportionalShare, [69.690_721_649, 40.309_278_351, 10.0]),
            (Kind::FairShare, [60.0, 50.0, 10.0]),
            (Kind::NoAlgorithm, [1000.0, 50.0, 10.0]),
        ] {
            let before = (desk.held(), desk.resource.holders());
            desk.change(|settings| settings.kind = kind);
            assert_eq!((desk.held(), desk.resource.holders()), before);
            let mut got = Vec::new();
            for _ in 0..4 {
                desk.pass(16_000);
                got = desk.round(&wants);
            }
            for (got, expected) in got.iter().zip(expected) {
                assert!((got - expected).abs() < 1e-9, "{kind:?}: {got}, expected {expected}");
            }
        }
    }

    #[test]
    fn priorities_take_effect_for_those_already_there() {
        let mut desk = Desk::new(fair(100.0));
        let with = |desk: &Desk, id: &str, priority| Ask {
            claims: Claims::from_slice(&[slice(1, 100.0, priority)]),
            ..desk.request(id, 0.0)
        };
        desk.deliver(with(&desk, "low", 0));
        desk.deliver(with(&desk, "high", 1));
        let due = |desk: &Desk| (desk.report("low").due.get(), desk.report("high").due.get());
        assert_eq!(due(&desk), (50.0, 50.0));
        desk.change(|settings| settings.priority = Priority::Strict);
        assert_eq!(due(&desk), (0.0, 100.0));
        desk.change(|settings| settings.priority = Priority::Ignore);
        assert_eq!(due(&desk), (50.0, 50.0));
    }

    #[test]
    fn lengths_apply_to_leases_given_from_now_on() {
        let mut desk = Desk::new(fair(100.0));
        desk.asks("a", 10.0);
        desk.change(|settings| (settings.lease, settings.refresh) = (Millis(20_000), Millis(5_000)));
        assert_eq!(desk.report("a").end, Millis(61_060));
        desk.asks("b", 10.0);
        assert_eq!((desk.leases["b"].length, desk.leases["b"].refresh), (Millis(20_000), Millis(5_000)));
        assert_eq!(desk.report("b").end, Millis(21_020));
    }

    #[test]
    fn a_refresh_interval_as_long_as_the_lease_is_cut_so_that_holders_are_in_time() {
        let mut settings = fair(100.0);
        (settings.lease, settings.refresh) = (Millis(20_000), Millis(20_000));
        let mut desk = Desk::new(settings);
        desk.asks("a", 10.0);
        assert_eq!(desk.leases["a"].refresh, Millis(19_000));
    }
}

/// Amounts from the smallest to the largest are kept to the bit, and never add up to more than there is.
mod numbers {
    use super::*;

    #[test]
    fn the_largest_and_the_smallest_wants_are_granted_exactly() {
        for kind in Kind::ALL {
            for wants in [1e15, 1e-9, 0.1, 1.0 / 3.0, 0.0] {
                let mut desk = Desk::new(Settings::new(kind, Amount::MAX));
                assert_eq!(desk.asks("a", wants), wants, "{kind:?}");
            }
        }
    }

    #[test]
    fn the_largest_shares_are_exact() {
        let mut desk = Desk::new(fair(1e15));
        assert_eq!(desk.round(&[("a", 1e15), ("b", 1e15)]), [5e14, 5e14]);
    }

    #[test]
    fn very_different_amounts_never_add_up_to_more_than_there_is() {
        let mut desk = Desk::new(fair(1e15));
        assert_eq!(desk.round(&[("a", 1e-9), ("b", 1e15)])[0], 1e-9);
        // 1e15 − 1e-9 is not a float; the next smaller one is.
        assert_eq!(desk.leases["b"].capacity.get(), 1e15 - 0.125);
        assert!(desk.resource.sums().held <= Amount::MAX.into());
    }

    #[test]
    fn wants_that_add_up_to_the_capacity_but_for_rounding_are_all_met() {
        for kind in [Kind::FairShare, Kind::ProportionalShare] {
            for tenths in 1..1000 {
                let small = f64::from(tenths) / 10.0;
                let mut desk = Desk::new(Settings::new(kind, Amount::clamped(100.0)));
                let wants = [small, 100.0 - small, 0.0];
                let got = desk.round(&[("a", wants[0]), ("b", wants[1]), ("c", wants[2])]);
                assert!(got.iter().zip(wants).all(|(got, wants)| (got - wants).abs() < 1e-12), "{wants:?} got {got:?}");
            }
            for n in 1..100 {
                let mut desk = Desk::new(Settings::new(kind, Amount::clamped(100.0)));
                let ids: Vec<String> = (0..n).map(|n| format!("c{n}")).collect();
                let each = 100.0 / f64::from(n);
                let wants: Vec<(&str, f64)> = ids.iter().map(|id| (&**id, each)).collect();
                let got = desk.round(&wants);
                assert!(got.iter().all(|got| (got - each).abs() < 1e-12), "{n} times {each} got {got:?}");
            }
        }
    }

    #[test]
    fn whoever_wants_nothing_is_a_holder_of_nothing() {
        let mut desk = Desk::new(fair(100.0));
        assert_eq!(desk.asks("a", 0.0), 0.0);
        assert_eq!((desk.resource.holders(), desk.held()), (1, 0.0));
        assert_eq!(desk.asks("b", 1000.0), 100.0, "and takes nothing from the others");
    }
}

/// A node stands for the clients below it.
mod nodes {
    use super::*;

    const CLIENTS: [f64; 6] = [40.0, 40.0, 40.0, 10.0, 10.0, 300.0];

    /// What everybody has once all have refreshed often enough.
    fn settled(kind: Kind, capacity: f64, asks: impl Fn(&Desk) -> Vec<Ask>) -> Desk {
        let mut desk = Desk::new(Settings::new(kind, Amount::clamped(capacity)));
        for _ in 0..4 {
            for ask in asks(&desk) {
                desk.deliver(ask);
            }
            desk.pass(16_000);
        }
        desk
    }

    #[test]
    fn a_node_gets_what_its_clients_would_get_if_they_asked_themselves() {
        for kind in [Kind::FairShare, Kind::ProportionalShare] {
            for capacity in [0.0, 30.0, 90.0, 120.0, 180.0, 300.0, 1000.0] {
                let direct = settled(kind, capacity, |desk| {
                    CLIENTS.iter().enumerate().map(|(n, wants)| desk.request(&format!("c{n}"), *wants)).collect()
                });
                let tree = settled(kind, capacity, |desk| {
                    let slices = [slice(3, 120.0, 0), slice(2, 20.0, 0)];
                    vec![desk.node_request("n", &slices), desk.request("c5", CLIENTS[5])]
                });
                let below: f64 = (0..5).map(|n| direct.leases[&format!("c{n}")].capacity.get()).sum();
                let near = |a: f64, b: f64| (a - b).abs() <= 1e-12 * capacity;
                let (node, alone) = (tree.leases["n"].capacity.get(), tree.leases["c5"].capacity.get());
                assert!(near(node, below), "{kind:?} of {capacity}: the node has {node}, its clients {below}");
                assert!(near(alone, direct.leases["c5"].capacity.get()), "{kind:?} of {capacity}");
            }
        }
    }

    #[test]
    fn one_sum_for_clients_of_different_wants_is_not_the_same() {
        let mut desk = Desk::new(fair(120.0));
        let lump = [slice(5, 140.0, 0)];
        desk.node_asks("n", &lump);
        desk.asks("c5", 300.0);
        assert_eq!(desk.report("n").due.get(), 100.0, "28 each looks like more than the level of 20");
        let sliced = [slice(3, 120.0, 0), slice(2, 20.0, 0)];
        desk.node_asks("n", &sliced);
        assert_eq!(desk.report("n").due.get(), 95.0, "three at the level of 25, two at their 10");
    }

    #[test]
    fn each_slice_counts_in_the_band_of_its_priority() {
        let mut settings = fair(100.0);
        settings.priority = Priority::Strict;
        let mut desk = Desk::new(settings);
        desk.node_asks("n", &[slice(1, 30.0, 5), slice(1, 100.0, 0)]);
        desk.asks("a", 100.0);
        assert_eq!(desk.report("n").due.get(), 65.0, "30 first, then half of the 70 that are left");
        assert_eq!(desk.report("a").due.get(), 35.0);
        assert_eq!(desk.report("n").subclients, 2);
    }

    #[test]
    fn two_slices_that_are_alike_count_twice() {
        let mut desk = Desk::new(fair(90.0));
        desk.node_asks("n", &[slice(1, 100.0, 0), slice(1, 100.0, 0)]);
        desk.asks("a", 100.0);
        assert_eq!((desk.report("n").due.get(), desk.report("a").due.get()), (60.0, 30.0));
        desk.pass(16_000);
        desk.node_asks("n", &[slice(1, 100.0, 0)]);
        assert_eq!((desk.report("n").due.get(), desk.report("a").due.get()), (45.0, 45.0));
    }
}
