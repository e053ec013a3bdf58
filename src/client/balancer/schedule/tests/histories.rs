//! Random histories of all operations: after each step picks and statuses equal those of the literal implementation.

use proptest::prelude::*;

use super::naive::NaiveSchedule;
use crate::balancer::{Factor, Member, Schedule};

#[derive(Debug, Clone)]
enum Action {
    Pick(usize),
    /// Accepts members whose index, modulo 64, has its bit set.
    PickWhere(u64),
    Force(usize),
    Disable(usize),
    Enable(usize),
    SetFactor(usize, u64),
    Rescale(usize, u64),
    Reset,
    Add(u64, i64),
    Remove(usize),
}

/// Both schedules, with the members of each.
struct Pair {
    ours: Schedule,
    naive: NaiveSchedule,
    members: Vec<Member>,
}

impl Pair {
    fn new(factors: &[u64]) -> Pair {
        let mut pair = Pair { ours: Schedule::new(), naive: NaiveSchedule::new(), members: Vec::new() };
        factors.iter().for_each(|factor| pair.add(*factor, 0));
        pair
    }

    fn add(&mut self, factor: u64, status: i64) {
        self.members.push(self.ours.add_with_status(Factor::of(factor), status));
        self.naive.add(factor, status);
    }

    fn index(&self, member: Member) -> usize {
        self.members.iter().position(|known| *known == member).expect("only members are picked")
    }

    /// Applies an operation to both, and compares the picks.
    fn apply(&mut self, op: &Action) {
        let some = |index: &usize| index % self.members.len().max(1);
        match op {
            Action::Pick(times) => {
                for _ in 0..*times {
                    let picked = self.ours.pick();
                    assert_eq!(picked.map(|member| self.index(member)), self.naive.pick());
                }
            }
            Action::PickWhere(mask) => self.pick_where(*mask),
            Action::Add(factor, status) => self.add(*factor, *status),
            Action::Reset => {
                self.ours.reset();
                self.naive.members.iter_mut().flatten().for_each(|member| member.status = 0);
            }
            _ if self.members.is_empty() => {}
            Action::Force(index) => {
                assert_eq!(self.ours.force(self.members[some(index)]), self.naive.force(some(index)));
            }
            Action::Disable(index) => {
                self.ours.disable(self.members[some(index)]);
                self.change(some(index), |member| member.enabled = false);
            }
            Action::Enable(index) => {
                self.ours.enable(self.members[some(index)]);
                self.change(some(index), |member| member.enabled = true);
            }
            Action::SetFactor(index, factor) => {
                self.ours.set_factor(self.members[some(index)], Factor::of(*factor));
                self.change(some(index), |member| member.factor = *factor);
            }
            Action::Rescale(index, factor) => {
                self.ours.rescale(self.members[some(index)], Factor::of(*factor));
                self.naive.rescale(some(index), *factor);
            }
            Action::Remove(index) => {
                self.ours.remove(self.members[some(index)]);
                let index = some(index);
                self.naive.members[index] = None;
            }
        }
    }

    fn pick_where(&mut self, mask: u64) {
        let accept = |index: usize| mask >> (index % 64) & 1 == 1;
        let mut asked = Vec::new();
        let members = &self.members;
        let picked = self.ours.pick_where(|member| {
            let index = members.iter().position(|known| *known == member).expect("only members are asked");
            asked.push(index);
            accept(index)
        });
        assert_eq!((asked, picked.map(|member| self.index(member))), self.naive.pick_where(accept));
    }

    fn change(&mut self, index: usize, change: impl Fn(&mut super::naive::NaiveMember)) {
        self.naive.member(index).into_iter().for_each(change);
    }

    fn compare(&self) {
        for (member, naive) in self.members.iter().zip(&self.naive.members) {
            assert_eq!(self.ours.status(*member), naive.as_ref().map(|naive| naive.status));
            assert_eq!(self.ours.factor(*member), naive.as_ref().map(|naive| Factor::of(naive.factor)));
            assert_eq!(self.ours.is_enabled(*member), naive.as_ref().is_some_and(|naive| naive.enabled));
        }
    }
}

fn ops(factor: BoxedStrategy<u64>) -> impl Strategy<Value = Action> {
    let index = any::<usize>();
    prop_oneof![
        8 => (1..20usize).prop_map(Action::Pick),
        4 => any::<u64>().prop_map(Action::PickWhere),
        // Most are rejected.
        2 => (any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(a, b, c)| Action::PickWhere(a & b & c)),
        2 => index.prop_map(Action::Force),
        3 => index.prop_map(Action::Disable),
        3 => index.prop_map(Action::Enable),
        2 => (index, factor.clone()).prop_map(|(index, factor)| Action::SetFactor(index, factor)),
        2 => (index, factor.clone()).prop_map(|(index, factor)| Action::Rescale(index, factor)),
        1 => Just(Action::Reset),
        1 => (factor, -50..50i64).prop_map(|(factor, status)| Action::Add(factor, status)),
        1 => index.prop_map(Action::Remove),
    ]
}

/// Small factors cause ties, large ones spread.
fn small() -> BoxedStrategy<u64> {
    prop_oneof![4 => 0..6u64, 1 => 0..1000u64].boxed()
}

fn any_factor() -> BoxedStrategy<u64> {
    prop_oneof![1 => 0..6u64, 1 => 0..=Factor::MAX.get(), 1 => Just(Factor::MAX.get())].boxed()
}

fn run(factors: &[u64], ops: &[Action]) {
    let mut pair = Pair::new(factors);
    for op in ops {
        pair.apply(op);
        pair.compare();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_history_has_the_documented_picks_and_statuses(
        factors in prop::collection::vec(small(), 0..12),
        ops in prop::collection::vec(ops(small()), 1..80),
    ) {
        run(&factors, &ops);
    }

    #[test]
    fn many_members_make_no_difference(
        factors in prop::collection::vec(small(), 50..200),
        ops in prop::collection::vec(ops(small()), 1..30),
    ) {
        run(&factors, &ops);
    }

    /// Without rescaling, because the oracle is unbounded and would overflow.
    #[test]
    fn the_largest_factors_make_no_difference(
        factors in prop::collection::vec(any_factor(), 0..12),
        ops in prop::collection::vec(ops(any_factor()), 1..80),
    ) {
        let ops: Vec<Action> = ops.into_iter().filter(|op| !matches!(op, Action::Rescale(..))).collect();
        run(&factors, &ops);
    }
}
