//! Explanations name the reason, and the predicted end is correct.

use super::*;
use crate::{
    lease::promises::Inherited,
    resource::report::explain::{Block, DueRule, Explanation, explain},
};

impl Server {
    fn explain(&self, id: &str) -> Explanation {
        explain(&self.resource, self.now, HolderKind::Client, id).expect("a known holder")
    }

    /// Advances to just after the latest end of the explanation.
    fn pass_until_unblocked(&mut self, explanation: &Explanation) {
        self.now = explanation.latest.expect("the blocks end").plus(Millis(1));
        self.resource.tick(self.now);
    }
}

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
fn a_due_is_explained_by_the_rule_that_it_follows_from() {
    let of = |kind| Settings { kind, ..fair(20.0) };
    let alone = &[("a", 50.0)][..];
    for (settings, asks, rule, parts) in [
        (
            fair(100.0),
            alone,
            "wants",
            &["a wants 50, is due 50 and has 50", "50 of 100 is free", "all that it wants"][..],
        ),
        (fair(40.0), &[("a", 90.0), ("b", 90.0)], "level", &["its next request is answered with less"]),
        (fair(0.0), alone, "level", &["every client that wants more than 0 is due 0"]),
        (of(AlgorithmKind::Static), alone, "each", &["no client is due more than 20"]),
        (of(AlgorithmKind::NoAlgorithm), alone, "unlimited", &["a wants 50, is due 50"]),
        (Settings::unmatched(), alone, "unlimited", &["a wants 50, is due 50 and has 50", "There is no limit."]),
        (
            Settings { kind: AlgorithmKind::ProportionalShare, ..fair(100.0) },
            &[("a", 80.0), ("b", 80.0), ("c", 10.0)],
            "share",
            &["an equal share of 33.333333, and 25 % of what it wants beyond that"],
        ),
        (
            Settings { whole_units: true, ..fair(1.0) },
            &[("a", 0.0), ("b", 1.0), ("a", 1.0)],
            "units",
            &["only whole units are given"],
        ),
    ] {
        let mut server = Server::new(settings);
        for (id, wants) in asks {
            server.deliver(ask(id, *wants, None));
        }
        let explanation = server.explain("a");
        assert_eq!(explanation.rule.name(), rule, "{explanation:?}");
        assert_says(&explanation, parts);
    }
    let mut server = Server::new(Settings { priority: Priority::Strict, ..fair(100.0) });
    server.deliver(Ask { claims: Claims::from_slice(&[slice(1, 200.0, 5)]), ..ask("high", 0.0, None) });
    server.asks("low", 10.0);
    assert_eq!(server.explain("low").rule.name(), "band");
    assert_says(
        &server.explain("low"),
        &["clients of a priority above 0 go first, and want 200", "It would go first with a higher priority"],
    );
}

#[test]
fn newcomer_learns_which_leases_it_waits_for() {
    let mut server = Server::new(fair(100.0));
    server.asks("greedy", 1_000.0);
    server.asks("new", 30.0);
    let explanation = server.explain("new");
    let Block::Others(others) = &explanation.blocks[0] else { panic!("{explanation:?}") };
    assert_eq!((others.beyond.get(), others.count, others.largest[0].id.as_str()), (30.0, 1, "greedy"));
    assert_says(&explanation, &["new wants 30, is due 30 and has nothing", "greedy 30 (for 62 s at most)"]);
    assert!(explanation.latest > Some(Millis(60_000)), "the lease counts a little longer than it lasts");
    server.pass(20_000);
    assert_says(&server.explain("new"), &["greedy 30 (for 42 s at most; its request is 4 s late, so it may be gone)"]);
    server.pass_until_unblocked(&server.explain("new"));
    assert_eq!(server.asks("new", 30.0), 30.0, "the other holder never asks again");
}

#[test]
fn unconfirmed_lease_blocks_others() {
    let mut server = Server::new(fair(100.0));
    server.asks("greedy", 1_000.0);
    server.asks("new", 30.0);
    server.pass(16_000);
    assert_eq!(server.asks("greedy", 1_000.0), 70.0);
    let of_greedy = server.explain("greedy");
    assert!(matches!(of_greedy.blocks[..], [Block::Unconfirmed(held, _)] if held.get() == 100.0), "{of_greedy:?}");
    assert_says(&of_greedy, &["100 is held for it", "every client that wants more than 70 is due 70"]);
    server.pass(16_000);
    server.asks("greedy", 1_000.0);
    assert_eq!(server.explain("new").blocks, [Block::Asks], "the capacity is free now");
    assert_eq!((server.asks("new", 30.0), server.explain("new").blocks), (30.0, vec![]));
}

#[test]
fn inherited_leases_and_learning_mode_block_until_they_end() {
    let inherited = Inherited {
        total: Amount::clamped(80.0),
        wants: Claims::from_slice(&[slice(2, 20.0, 0)]),
        until: Millis(45_000),
        ..Inherited::default()
    };
    let unclaimed = Block::Unclaimed(Amount::clamped(80.0), Millis(45_000));
    for (options, block, says) in [
        (
            ResourceOptions { inherited: Some(inherited), ..options(fair(100.0)) },
            unclaimed,
            "Earlier masters leased 80 to holders that have not claimed it yet",
        ),
        (
            ResourceOptions { learning_until: Millis(30_000), ..options(fair(100.0)) },
            Block::Learning(Millis(30_000)),
            "for another 30 s, it only restores",
        ),
    ] {
        let mut server = Server::with_options(options);
        server.asks("new", 50.0);
        let explanation = server.explain("new");
        assert_eq!(explanation.blocks, [block]);
        assert_says(&explanation, &[says]);
        server.pass_until_unblocked(&explanation);
        assert_eq!(server.asks("new", 50.0), explanation.holder.due.get());
    }
}

#[test]
fn after_a_cut_of_the_capacity_the_excess_is_explained() {
    let mut server = Server::new(fair(100.0));
    server.round(&[("a", 50.0), ("b", 50.0)]);
    server.change(|settings| settings.capacity = Amount::clamped(40.0));
    server.asks("c", 10.0);
    let explanation = server.explain("c");
    assert!(matches!(explanation.blocks[0], Block::Over(over) if over.get() == 60.0), "{explanation:?}");
    assert_says(&explanation, &["The capacity was cut, and holders still have 60 more than it", "0 of 40 is free"]);
    server.pass_until_unblocked(&explanation);
    assert_eq!(server.asks("c", 10.0), 10.0);
}

#[test]
fn below_a_parent_the_lease_of_the_node_is_explained() {
    let mut server = Server::below(fair(100.0));
    assert_eq!(server.send(ask("a", 10.0, None)), Answer::NotYet);
    assert_eq!(server.explain("a").blocks, [Block::AwaitsSupply]);
    server.supply(0.0, Millis(30_000));
    server.pass(1_000);
    server.asks("a", 10.0);
    assert_eq!(server.explain("a").rule, DueRule::NothingLent);
    assert_says(&server.explain("a"), &["a is due 0: the parent has lent nothing to this node."]);
    server.now = Millis(30_000);
    server.resource.tick(server.now);
    assert_eq!(server.explain("a").rule, DueRule::LoanEnded);
    assert_says(&server.explain("a"), &["the lease from the parent has ended", "Check the parent"]);
}

#[test]
fn explanation_names_the_largest_of_many_holders() {
    let mut server = Server::new(fair(100.0));
    let ids: Vec<String> = (0..10).map(|n| format!("c\n{n}")).collect();
    for (n, id) in ids.iter().enumerate() {
        server.asks(id, 1.0 + n as f64);
    }
    server.change(|settings| settings.capacity = Amount::clamped(1.0));
    server.asks("new", 1.0);
    let explanation = server.explain("new");
    let others = explanation.blocks.iter().find_map(|block| match block {
        Block::Others(others) => Some((others.count, others.largest.len(), others.largest[0].id.as_str())),
        _ => None,
    });
    assert_eq!(others, Some((10, 5, "c\n9")));
    assert_says(&explanation, &["c\\n9 ", " and 5 more"]);
}
