//! Client rules: weights, minimums, maximums.

use super::*;
use crate::{
    policy::client_rules::{ClientRule, ClientRules},
    resource::report::explain::{DueRule, explain},
};

fn rules(texts: &[&str]) -> ClientRules {
    let mut rules = ClientRules::default();
    texts.iter().for_each(|text| assert!(rules.push(ClientRule::read(text).expect(text))));
    rules
}

fn ruled(kind: AlgorithmKind, texts: &[&str]) -> Server {
    Server::new(Settings { clients: rules(texts), ..Settings::new(kind, Amount::clamped(100.0)) })
}

impl Server {
    /// Sends these wants, and returns the due of each client.
    fn due_of(&mut self, wants: &[(&str, f64)]) -> Vec<f64> {
        for (id, wants) in wants {
            self.asks(id, *wants);
        }
        wants.iter().map(|(id, _)| self.report(id).due.get()).collect()
    }

    fn explains(&self, id: &str) -> (DueRule, String) {
        let explanation = explain(&self.resource, self.now, HolderKind::Client, id).expect("a known holder");
        (explanation.rule.clone(), explanation.sentences().join("\n"))
    }
}

const ALL: [(&str, f64); 3] = [("web-1", 100.0), ("web-2", 100.0), ("batch-1", 100.0)];

#[test]
fn maximum_leaves_the_rest_to_others() {
    let mut server = ruled(AlgorithmKind::FairShare, &["1 0 10 batch-*"]);
    assert_eq!(server.due_of(&ALL), [45.0, 45.0, 10.0]);
    let (rule, words) = server.explains("batch-1");
    assert_eq!(rule, DueRule::Max(Amount::clamped(10.0)));
    assert!(words.contains("batch-*: at most 10"), "{words}");
    assert_eq!(server.report("batch-1").wants.get(), 100.0, "wants are reported without the cap");
    assert_eq!(server.explains("web-1").0, DueRule::Level(45.0));
}

#[test]
fn maximum_applies_to_unshared_capacity() {
    for (kind, other) in [(AlgorithmKind::Static, 100.0), (AlgorithmKind::NoAlgorithm, 300.0)] {
        let mut server = ruled(kind, &["1 0 10 batch-*"]);
        assert_eq!(server.due_of(&[("web-1", 300.0), ("batch-1", 300.0)]), [other, 10.0], "{kind:?}");
        assert_eq!(server.explains("batch-1").0, DueRule::Max(Amount::clamped(10.0)), "{kind:?}");
    }
}

#[test]
fn minimum_is_due_up_to_the_wants() {
    let mut server = ruled(AlgorithmKind::FairShare, &["1 50 - web-1"]);
    assert_eq!(server.due_of(&ALL), [50.0, 25.0, 25.0]);
    let (rule, words) = server.explains("web-1");
    assert_eq!(rule, DueRule::Min(Amount::clamped(50.0)));
    assert!(words.contains("guarantees it 50, more than its share"), "{words}");
    assert_eq!(server.explains("web-2").0, DueRule::Level(25.0));
    server.pass(16_000);
    assert_eq!(server.due_of(&[("web-1", 20.0)]), [20.0], "unused minimums are not kept idle");
    assert_eq!(server.report("web-2").due.get(), 40.0);
}

#[test]
fn excess_minimums_are_divided() {
    let mut server = ruled(AlgorithmKind::FairShare, &["1 80 - web-1", "1 30 - web-2"]);
    assert_eq!(server.due_of(&ALL), [70.0, 30.0, 0.0]);
    assert_eq!(server.explains("batch-1").0, DueRule::Minimums(70.0));
    assert!(server.explains("batch-1").1.contains("minimums of other clients"), "{}", server.explains("batch-1").1);
}

#[test]
fn changed_rules_apply_to_known_clients() {
    let mut server = ruled(AlgorithmKind::FairShare, &["3 0 - web-*", "1 0 10 b*"]);
    server.due_of(&ALL);
    server.change(|settings| settings.clients = rules(&["1 0 20 batch-*"]));
    assert_eq!(["web-1", "batch-1"].map(|id| server.report(id).due.get()), [40.0, 20.0]);
    server.change(|settings| settings.clients = ClientRules::default());
    assert_eq!(server.report("batch-1").due.get(), 100.0 / 3.0);
}

#[test]
fn reported_minimums_need_a_minimum_in_the_template() {
    for (texts, expected) in [(&["1 1 - x"][..], 60.0), (&[], 50.0)] {
        let mut server = ruled(AlgorithmKind::FairShare, texts);
        let minimum = slice(1, 60.0, 0).as_minimum();
        let request =
            Ask { outstanding: Some(Amount::ZERO), ..server.node_request("leaf", &[slice(1, 100.0, 0), minimum]) };
        server.send(request);
        server.asks("web-1", 100.0);
        assert_eq!(server.report("leaf").due.get(), expected);
        assert_eq!(server.resource.sums().wants.get(), 200.0, "a minimum is at most the wants");
    }
}
