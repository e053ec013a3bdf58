//! Random scenarios: up to three levels of nodes, clients of every kind, a network, and the frequencies of faults.

use fastrand::Rng;
use leaseway_core::types::Millis;

use crate::{
    network::Network,
    scenario::{
        ClientKind, ClientSpec, Handover, NodeSpec, RandomFaults, Scenario, Wants, WeightedFault,
        fault::{Fault, OverrideSpec},
    },
    units::{Between, Part, Span},
};

/// Weights of frequent faults: one of these numbers is drawn for each kind of fault. A kind with weight 0 does not
/// occur.
const WEIGHTS: [u32; 7] = [0, 0, 1, 1, 2, 3, 6];
/// Weights of rare faults, of which three in four kinds do not occur.
const RARE_WEIGHTS: [u32; 4] = [0, 0, 0, 1];

impl Scenario {
    /// The scenario of this seed. Only capacity, algorithm and length are taken from the file.
    pub(crate) fn drawn(&self, seed: u64) -> Scenario {
        let mut draw = Draw(Rng::with_seed(seed ^ u64::from_be_bytes(*b"scenario")));
        let mut scenario = Scenario { draws: false, ..self.clone() };
        let resource = &mut scenario.resource;
        resource.lease = seconds(draw.one_of([6, 8, 12, 15, 20, 30]));
        resource.refresh = seconds(draw.one_of([2, 3, 4]));
        if draw.happens(15) {
            resource.set("headroom", "0.3");
        }
        if draw.happens(10) {
            resource.set("whole_units", "true");
        }
        scenario.push = !draw.happens(15);
        scenario.slices = !draw.happens(10);
        scenario.terms = !draw.happens(10);
        scenario.commit = Span::millis(draw.one_of([5, 100, 300, 900]));
        scenario.network = Network {
            delay: within(1, draw.one_of([50, 300, 800])),
            loss: Part(draw.one_of([0.0, 0.02, 0.05, 0.15])),
            duplicates: Part(draw.one_of([0.0, 0.1, 0.4, 0.8])),
            late: seconds(draw.one_of([10, 30, 60, 80])),
            ..Network::default()
        };
        scenario.nodes = draw.nodes();
        scenario.random_faults = vec![draw.random_faults(&scenario)];
        if draw.happens(30) {
            scenario.resource.groups = Some(draw.group_rules());
        }
        scenario
    }
}

struct Draw(Rng);

impl Draw {
    fn one_of<T: Copy, const N: usize>(&mut self, choices: [T; N]) -> T {
        choices[self.0.usize(..N)]
    }

    fn happens(&mut self, percent: u32) -> bool {
        self.0.u32(..100) < percent
    }

    /// For a capacity of 10.
    fn group_rules(&mut self) -> Vec<String> {
        let rules = ["lend 3 0 - o0", "lend 1 4 - o1", "keep 1 3 8 o2", "lend 1 0 2 */t1", "lend 2 1 - */t*"];
        rules.into_iter().filter(|_| self.happens(40)).map(str::to_owned).collect()
    }

    fn nodes(&mut self) -> Vec<NodeSpec> {
        let one_protocol = self.happens(35);
        let levels = self.one_of([1, 2, 3, 3]);
        let mut nodes: Vec<NodeSpec> = Vec::new();
        for (level, name) in ["root", "middle", "leaf"].into_iter().take(levels).enumerate() {
            let is_last = level + 1 == levels;
            let clients =
                if is_last || self.happens(60) { self.clients(one_protocol, 1 + u32::from(is_last)) } else { vec![] };
            nodes.push(NodeSpec {
                name: name.to_owned(),
                parent: nodes.last().map(|above| above.name.clone()),
                times: if level == 0 { 1 } else { self.0.u32(1..=level as u32 + 1) },
                peers: self.0.u8(1..=3),
                handover: self.happens(if level == 0 { 15 } else { 50 }).then_some(Handover::Learning),
                sends_instance: level == 0 || !self.happens(30),
                clients,
            });
        }
        nodes
    }

    fn clients(&mut self, one_protocol: bool, most: u32) -> Vec<ClientSpec> {
        let kinds = if one_protocol { self.0.u32(1..=3) } else { 1 };
        let mut client = |_| ClientSpec {
            count: self.0.u32(1..=most),
            kind: if one_protocol {
                self.one_of([
                    ClientKind::Leaseway,
                    ClientKind::Doorman,
                    ClientKind::Echoes,
                    ClientKind::Silent,
                    ClientKind::DoormanNode,
                ])
            } else {
                ClientKind::Leaseway
            },
            priority: i16::from(self.happens(10)),
            wants: Wants::Constant(self.one_of([1.0, 4.0, 6.0, 8.0])),
            assigned: None,
            uses: None,
            window: seconds(1),
        };
        (0..kinds).map(&mut client).collect()
    }

    fn random_faults(&mut self, scenario: &Scenario) -> RandomFaults {
        let mut one_of = Vec::new();
        let mut may = |weight, what| one_of.push(WeightedFault { weight, what });
        for NodeSpec { name, .. } in &scenario.nodes {
            let node = || Some(name.clone());
            // Cutting the uplink of the root has no effect.
            may(self.one_of(WEIGHTS), Fault::Election { node: node() });
            may(
                self.one_of(WEIGHTS),
                Fault::LoseMaster { node: node(), back: Some(within(0, self.one_of([2_000, 8_000, 20_000]))) },
            );
            may(
                self.one_of(WEIGHTS),
                Fault::CutUplink { node: node(), back: within(500, self.one_of([4_000, 9_000, 25_000, 60_000])) },
            );
            may(
                self.one_of(RARE_WEIGHTS),
                Fault::Isolate { node: node(), back: within(1_000, self.one_of([5_000, 20_000])) },
            );
            let factor = Some(self.one_of([0.3, 0.7, 1.5]));
            may(
                self.one_of(RARE_WEIGHTS),
                Fault::Override(OverrideSpec {
                    node: node(),
                    capacity: None,
                    factor,
                    above: false,
                    ends: within(1_000, 30_000),
                }),
            );
        }
        may(self.one_of(WEIGHTS), Fault::Restart { clients: 1 });
        may(self.one_of(WEIGHTS), Fault::Crash { clients: 1 });
        may(self.one_of(WEIGHTS), Fault::Leave { clients: 2, back: within(50, self.one_of([4_000, 20_000])) });
        may(
            self.one_of(WEIGHTS),
            Fault::CutClients { clients: 2, back: within(500, self.one_of([3_000, 10_000, 25_000])) },
        );
        may(1 + self.one_of(WEIGHTS), Fault::Want { clients: 1, amount: 1.0 });
        may(2 + self.one_of(WEIGHTS), Fault::Want { clients: 2, amount: 9.0 });
        let (cuts, capacity) = (self.one_of(WEIGHTS), scenario.resource.capacity);
        for amount in [capacity, capacity / 2.0] {
            may(cuts, Fault::Capacity { amount });
        }
        // Keep the lease length with learning masters: they wait for the current length, and older leases could be
        // longer.
        let (others, length) = (self.one_of(RARE_WEIGHTS), scenario.resource.lease);
        let promises = |node: &NodeSpec| node.handover.unwrap_or(scenario.handover) == Handover::Promises;
        if scenario.nodes.iter().all(promises) {
            for length in [length, Span(Millis(5_000.max(length.0.0 / 2)))] {
                may(others, Fault::Lease { length });
            }
        }
        let every = within(self.one_of([100, 1_000]), self.one_of([2_000, 6_000, 12_000]));
        RandomFaults { from: seconds(5), every, one_of }
    }
}

fn seconds(seconds: u64) -> Span {
    Span(Millis::from_secs(seconds))
}

fn within(least: u64, most: u64) -> Between {
    Between { least: Millis(least), most: Millis(most) }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::scenario::{
        built_in,
        plan::{Plan, Tree},
    };

    #[test]
    fn drawn_scenarios_are_valid_reproducible_and_of_all_kinds() {
        let text = built_in("drawn").expect("it is built in");
        let file = Scenario::parse("drawn", text).expect("it is valid");
        let (mut kinds, mut levels, mut learn) = (HashSet::new(), HashSet::new(), HashSet::new());
        for seed in 1..200 {
            let drawn = file.drawn(seed);
            drawn.check().expect("it is valid");
            assert_eq!(format!("{drawn:?}"), format!("{:?}", file.drawn(seed)));
            levels.insert(drawn.nodes.len());
            learn.extend(drawn.nodes.iter().map(|node| (node.name.clone(), node.handover.is_some())));
            kinds.extend(Tree::new(&drawn).clients.iter().map(|client| format!("{:?}", client.kind)));
        }
        assert_eq!((kinds.len(), levels.len(), learn.len()), (5, 3, 6));
    }

    #[test]
    fn a_drawn_scenario_has_no_faults_in_its_file_and_is_not_a_pool() {
        let text = built_in("drawn").expect("it is built in");
        let with_faults = format!(
            "{text}random_faults:\n  - {{from: 5s, every: 1s, one_of: [{{weight: 1, do: {{election: {{}}}}}}]}}\n"
        );
        assert!(Scenario::parse("mine", &with_faults).expect_err("the faults would be ignored").contains("`draws`"));
        for algorithm in ["NO_ALGORITHM", "STATIC", "PRIORITY_POOL"] {
            let other =
                Scenario::parse("mine", &text.replace("FAIR_SHARE", algorithm).replace("{reuse: confirmed}", "{}"));
            let refused = Plan::new(other.expect("it is valid by itself")).err().expect("nothing is drawn for it");
            assert!(refused.contains(algorithm), "{refused}");
        }
    }
}
