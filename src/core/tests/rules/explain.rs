//! An explanation says what is so, and what it says will be so comes true.

use super::*;
use crate::{
    lease::promises::Inherited,
    resource::{Block, DueRule, Explanation},
};

impl Server {
    fn explain(&self, id: &str) -> Explanation {
        self.resource.explain(self.now, HolderKind::Client, id).expect("a known holder")
    }

    /// Until the moment that was named, and a millisecond more; the holders that are asked to go on refreshing do.
    fn pass_until(&mut self, moment: Millis) {
        self.now = Millis(moment.0 + 1);
        self.resource.tick(self.now);
    }
}

/// The explanation's words, one line each.
fn words(explanation: &Explanation) -> String {
    explanation.sentences().join("\n")
}

#[track_caller]
fn assert_says(explanation: &Explanation, parts: &[&str]) {
    let words = words(explanation);
    for part in parts {
        assert!(words.contains(part), "`{part}` is not in:\n{words}");
    }
}

#[test]
fn of_a_holder_that_has_what_it_wants() {
    let mut server = Server::new(fair(100.0));
    server.asks("alice", 40.0);
    let explanation = server.explain("alice");
    assert_eq!((&explanation.rule, explanation.blocks.len(), explanation.latest), (&DueRule::Wants, 0, None));
    assert_says(&explanation, &["alice wants 40, is due 40 and has 40, counted for 62 s more. 60 of 100 is free."]);
    assert_says(&explanation, &["all that it wants", "It is to ask again in 16 s."]);
}

#[test]
fn nothing_is_said_of_one_that_is_not_known() {
    let server = Server::new(fair(100.0));
    assert_eq!(server.resource.explain(server.now, HolderKind::Client, "stranger"), None);
}

#[test]
fn of_a_newcomer_that_waits_for_a_lease_to_end() {
    let mut server = Server::new(fair(100.0));
    server.asks("greedy", 1_000.0);
    server.asks("new", 30.0);
    let explanation = server.explain("new");
    let Block::Others(others) = &explanation.blocks[0] else { panic!("{explanation:?}") };
    assert_eq!((others.beyond.get(), others.count, others.most[0].0.as_str()), (30.0, 1, "greedy"));
    assert_says(&explanation, &["new wants 30, is due 30 and has 0", "greedy 30 (until 62 s from now)"]);
    let latest = explanation.latest.expect("leases end");
    assert!(latest > Millis(60_000), "the lease counts a little longer than it lasts");
    server.pass_until(latest);
    assert_eq!(server.asks("new", 30.0), 30.0, "what was said comes true though the other never asked again");
}

#[test]
fn of_a_newcomer_that_waits_for_a_confirmation() {
    let mut server = Server::new(fair(100.0));
    server.asks("greedy", 1_000.0);
    server.asks("new", 30.0);
    server.pass(16_000);
    assert_eq!(server.asks("greedy", 1_000.0), 70.0);
    let of_greedy = server.explain("greedy");
    assert!(matches!(of_greedy.blocks[..], [Block::Unconfirmed(held, _)] if held.get() == 100.0), "{of_greedy:?}");
    assert_says(&of_greedy, &["100 is held for it", "no client that wants more is due more than 70"]);
    server.pass(16_000);
    server.asks("greedy", 1_000.0);
    let of_new = server.explain("new");
    assert_eq!(of_new.blocks, [Block::Asks], "it is free now");
    assert_eq!(server.asks("new", 30.0), 30.0);
    assert_eq!(server.explain("new").blocks, []);
}

#[test]
fn of_one_that_will_be_cut() {
    let mut server = Server::new(fair(100.0));
    server.asks("a", 1_000.0);
    server.asks("b", 1_000.0);
    let explanation = server.explain("a");
    assert_eq!((explanation.rule.clone(), &explanation.blocks[..]), (DueRule::Level(50.0), &[Block::Asks][..]));
    assert_says(&explanation, &["It has more than it is due: its next request is answered with less."]);
    server.pass(16_000);
    assert_eq!(server.asks("a", 1_000.0), explanation.holder.due.get());
}

#[test]
fn of_equal_shares_with_a_part_of_the_rest() {
    let mut server = Server::new(Settings { kind: AlgorithmKind::ProportionalShare, ..fair(100.0) });
    server.round(&[("a", 80.0), ("b", 80.0), ("c", 10.0)]);
    let explanation = server.explain("a");
    assert!(matches!(explanation.rule, DueRule::Share { top_up, .. } if top_up > 0.0), "{explanation:?}");
    assert_says(&explanation, &["an equal share of 33.333333, and 25 % of what it wants beyond that"]);
    assert_eq!(explanation.holder.due.get(), 45.0);
}

#[test]
fn of_a_band_for_which_nothing_is_left() {
    let mut server = Server::new(Settings { priority: Priority::Strict, ..fair(100.0) });
    let high = Ask { claims: Claims::from_slice(&[slice(1, 200.0, 5)]), ..ask("high", 0.0, None) };
    server.deliver(high);
    server.asks("low", 10.0);
    let explanation = server.explain("low");
    assert!(matches!(explanation.rule, DueRule::Band { band: 0, above } if above.get() == 200.0), "{explanation:?}");
    assert_says(&explanation, &["clients of a higher priority than 0 want 200", "A higher priority"]);
}

#[test]
fn of_a_cap_for_each_client() {
    let mut server = Server::new(Settings { kind: AlgorithmKind::Static, ..fair(20.0) });
    server.asks("a", 50.0);
    assert_eq!(server.explain("a").rule, DueRule::Each(Amount::clamped(20.0)));
    assert_says(&server.explain("a"), &["no client is due more than 20"]);
}

#[test]
fn of_what_is_not_shared_out() {
    let mut server = Server::new(Settings { kind: AlgorithmKind::NoAlgorithm, ..fair(20.0) });
    assert_eq!(server.asks("a", 50.0), 50.0);
    assert_eq!(server.explain("a").rule, DueRule::Unlimited);
}

#[test]
fn of_what_earlier_masters_promised() {
    let inherited = Inherited {
        total: Amount::clamped(80.0),
        wants: Claims::from_slice(&[slice(2, 20.0, 0)]),
        newest: None,
        until: Millis(45_000),
        ..Inherited::default()
    };
    let mut server = Server::born(Birth { inherited: Some(inherited), ..birth(fair(100.0)) });
    server.asks("new", 50.0);
    let explanation = server.explain("new");
    assert_eq!(explanation.blocks, [Block::Unclaimed(Amount::clamped(80.0), Millis(45_000))]);
    assert_says(
        &explanation,
        &["80 of what earlier masters promised", "45 s at most", "its due in 46 s at the latest"],
    );
    server.pass_until(explanation.latest.expect("it ends"));
    assert_eq!(server.asks("new", 50.0), explanation.holder.due.get());
}

#[test]
fn of_a_master_that_learns() {
    let mut server = Server::born(Birth { learning_until: Millis(30_000), ..birth(fair(100.0)) });
    server.asks("new", 50.0);
    let explanation = server.explain("new");
    assert_eq!(explanation.blocks, [Block::Learning(Millis(30_000))]);
    assert_says(&explanation, &["listens for 30 s more"]);
    server.pass_until(explanation.latest.expect("it ends"));
    assert_eq!(server.asks("new", 50.0), 50.0);
}

#[test]
fn of_a_capacity_that_was_cut() {
    let mut server = Server::new(fair(100.0));
    server.round(&[("a", 50.0), ("b", 50.0)]);
    server.change(|settings| settings.capacity = Amount::clamped(40.0));
    server.asks("c", 10.0);
    let explanation = server.explain("c");
    assert!(matches!(explanation.blocks[0], Block::Over(over) if over.get() == 60.0), "{explanation:?}");
    assert_says(&explanation, &["60 more is held than there is", "0 of 40 is free"]);
    server.pass_until(explanation.latest.expect("leases end"));
    assert_eq!(server.asks("c", 10.0), 10.0);
}

#[test]
fn of_whole_units_that_go_round() {
    let mut server = Server::new(Settings { whole_units: true, ..fair(1.0) });
    server.round(&[("a", 1.0), ("b", 1.0)]);
    let without = if server.leases["a"].capacity > Amount::ZERO { "b" } else { "a" };
    let explanation = server.explain(without);
    assert!(matches!(explanation.rule, DueRule::Units(_)), "{explanation:?}");
    assert_says(&explanation, &["only whole units are given"]);
}

#[test]
fn of_a_node_without_a_loan() {
    let mut server = Server::below(fair(100.0));
    assert_eq!(server.send(ask("a", 10.0, None)), Answer::NotYet);
    assert_eq!(server.explain("a").blocks, [Block::AwaitsSupply]);
    server.supply(50.0, Millis(30_000));
    server.pass(1_000);
    assert_eq!(server.asks("a", 10.0), 10.0);
    server.pass_until(Millis(30_000));
    assert_eq!(server.explain("a").rule, DueRule::LoanEnded);
    assert_says(&server.explain("a"), &["what the parent lent has ended", "Look at the parent"]);
}

#[test]
fn of_one_holder_among_many_the_greediest_are_named() {
    let mut server = Server::new(fair(100.0));
    let ids: Vec<String> = (0..10).map(|n| format!("c{n}")).collect();
    for (n, id) in ids.iter().enumerate() {
        server.asks(id, 1.0 + n as f64);
    }
    server.change(|settings| settings.capacity = Amount::clamped(1.0));
    server.asks("new", 1.0);
    let explanation = server.explain("new");
    let others = explanation.blocks.iter().find_map(|block| match block {
        Block::Others(others) => Some(others),
        _ => None,
    });
    let others = others.expect("ten have more than they are due");
    assert_eq!((others.count, others.most.len(), others.most[0].0.as_str()), (10, 5, "c9"));
    assert_says(&explanation, &["c9 ", " and 5 more"]);
}

#[test]
fn names_cannot_forge_lines() {
    let mut server = Server::new(fair(100.0));
    server.asks("a\nb", 10.0);
    assert!(!words(&server.explain("a\nb")).contains("a\nb"));
}

#[test]
fn of_a_client_of_a_node_that_was_lent_nothing() {
    let mut server = Server::below(fair(0.0));
    server.supply(0.0, Millis(90_000));
    server.asks("ann", 10.0);
    let explanation = server.explain("ann");
    assert_eq!((&explanation.rule, explanation.holder.due), (&DueRule::NothingLent, Amount::ZERO), "{explanation:?}");
    assert_says(&explanation, &["ann is due 0: the parent has lent nothing of it to this node."]);
    assert!(!words(&explanation).contains("priority"), "there is one priority: {}", words(&explanation));
}

#[test]
fn of_a_root_without_capacity_no_priority_is_blamed() {
    let mut server = Server::new(fair(0.0));
    server.asks("ann", 10.0);
    assert_says(&server.explain("ann"), &["no client that wants more is due more than 0"]);
}

#[test]
fn of_a_resource_without_a_limit_no_capacity_is_named() {
    let mut server = Server::new(crate::policy::settings::Settings::unmatched());
    server.asks("ann", 10.0);
    assert_says(&server.explain("ann"), &["ann wants 10, is due 10 and has 10", "There is no limit."]);
    assert!(!words(&server.explain("ann")).contains("of 0 is free"));
}
