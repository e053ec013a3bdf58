//! The schedule compared with a literal implementation of the algorithm, with documented vectors, and at its limits.

use std::{
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
};

use proptest::{collection::vec, prelude::*};
use serde_json::{Value, json};

use crate::balancer::{Factor, Member, Schedule};

/// A literal implementation of the documented algorithm, as an oracle: each pick visits all members.
#[derive(Debug, Clone, Default)]
struct NaiveSchedule {
    /// In configuration order. Removed members stay as `None`, so that indexes are never reused.
    members: Vec<Option<NaiveMember>>,
}

#[derive(Debug, Clone)]
struct NaiveMember {
    factor: u64,
    status: i128,
    enabled: bool,
}

impl NaiveSchedule {
    fn add(&mut self, factor: u64, status: i64) {
        self.members.push(Some(NaiveMember { factor, status: status.into(), enabled: true }));
    }

    fn pick(&mut self) -> Option<usize> {
        let total = self.accrue();
        let mut candidate: Option<(usize, i128)> = None;
        for (index, member) in self.usable() {
            if candidate.is_none_or(|(_, status)| member.status > status) {
                candidate = Some((index, member.status));
            }
        }
        let (index, _) = candidate?;
        self.member(index)?.status -= total;
        Some(index)
    }

    /// Disables the next member for this pick until one is accepted. Returns the candidates in order, and the picked
    /// member.
    fn pick_where(&mut self, accept: impl Fn(usize) -> bool) -> (Vec<usize>, Option<usize>) {
        let mut asked = Vec::new();
        let picked = loop {
            let mut trial = self.clone();
            asked
                .iter()
                .for_each(|index| trial.member(*index).expect("only present members are candidates").enabled = false);
            let Some(candidate) = trial.pick() else { break None };
            asked.push(candidate);
            if accept(candidate) {
                asked.iter().for_each(|index| {
                    trial.member(*index).expect("only present members are candidates").enabled = true
                });
                *self = trial;
                break Some(candidate);
            }
        };
        (asked, picked)
    }

    fn force(&mut self, index: usize) -> bool {
        if !self.member(index).is_some_and(|member| member.enabled) {
            return false;
        }
        let total = self.accrue();
        self.member(index).expect("it is enabled").status -= total;
        true
    }

    fn rescale(&mut self, index: usize, factor: u64) {
        if self.member(index).is_none_or(|member| member.factor == factor) {
            return;
        }
        let (enabled, all, sum) = (self.enabled_total(), self.total(), self.enabled_sum());
        self.member(index).expect("it is present").factor = factor;
        let (new_enabled, new_all) = (self.enabled_total(), self.total());
        for member in self.members.iter_mut().flatten() {
            let (new, old) = if member.enabled { (new_enabled, enabled) } else { (new_all, all) };
            if old != 0 {
                // Integer division rounds toward 0.
                member.status = member.status * new / old;
            }
        }
        if enabled != 0 {
            let rest = sum * new_enabled / enabled - self.enabled_sum();
            if let Some(first) = self.members.iter_mut().flatten().find(|member| member.enabled) {
                first.status += rest;
            }
        }
    }

    fn member(&mut self, index: usize) -> Option<&mut NaiveMember> {
        self.members[index].as_mut()
    }

    fn usable(&self) -> impl Iterator<Item = (usize, &NaiveMember)> {
        let present = self.members.iter().enumerate().filter_map(|(index, member)| Some((index, member.as_ref()?)));
        present.filter(|(_, member)| member.enabled)
    }

    fn accrue(&mut self) -> i128 {
        self.members.iter_mut().flatten().filter(|member| member.enabled).for_each(|member| {
            member.status += i128::from(member.factor);
        });
        self.enabled_total()
    }

    fn enabled_total(&self) -> i128 {
        self.usable().map(|(_, member)| i128::from(member.factor)).sum()
    }

    fn enabled_sum(&self) -> i128 {
        self.usable().map(|(_, member)| member.status).sum()
    }

    fn total(&self) -> i128 {
        self.members.iter().flatten().map(|member| i128::from(member.factor)).sum()
    }
}

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

/// The schedule and the oracle, with the members by index of the oracle.
struct Pair {
    ours: Schedule,
    naive: NaiveSchedule,
    members: Vec<Member>,
}

impl Pair {
    fn new(factors: &[u64]) -> Pair {
        let mut pair = Pair { ours: Schedule::new(), naive: NaiveSchedule::default(), members: Vec::new() };
        factors.iter().for_each(|factor| pair.add(*factor, 0));
        pair
    }

    fn add(&mut self, factor: u64, status: i64) {
        self.members.push(self.ours.add_with_status(Factor::of(factor), status));
        self.naive.add(factor, status);
    }

    fn index(&self, member: Member) -> usize {
        self.members.iter().position(|known| *known == member).expect("it was added")
    }

    /// Performs an action on both schedules, and compares the picks.
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
        let index = |member| members.iter().position(|known| *known == member).expect("it was added");
        let next = self.ours.peek_where(|member| accept(index(member)));
        let picked = self.ours.pick_where(|member| {
            asked.push(index(member));
            accept(index(member))
        });
        assert_eq!(next, picked);
        assert_eq!((asked, picked.map(|member| self.index(member))), self.naive.pick_where(accept));
    }

    fn change(&mut self, index: usize, change: impl Fn(&mut NaiveMember)) {
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

/// Initial factors and actions: few members, many members, and the largest factors. The latter are not rescaled, because
/// the oracle is unbounded and would overflow.
fn histories() -> impl Strategy<Value = (Vec<u64>, Vec<Action>)> {
    let history = |factor: BoxedStrategy<u64>, members: Range<usize>, actions: Range<usize>| {
        (vec(factor.clone(), members), vec(ops(factor), actions))
    };
    let without_rescaling = |(factors, mut actions): (Vec<u64>, Vec<Action>)| {
        actions.retain(|action| !matches!(action, Action::Rescale(..)));
        (factors, actions)
    };
    prop_oneof![
        history(small(), 0..12, 1..80),
        history(small(), 50..200, 1..30),
        history(any_factor(), 0..12, 1..80).prop_map(without_rescaling),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(768) })]

    #[test]
    fn picks_and_statuses_equal_those_of_a_literal_implementation((factors, actions) in histories()) {
        let mut pair = Pair::new(&factors);
        for action in actions {
            pair.apply(&action);
            pair.compare();
        }
    }
}

#[test]
fn extreme_factors_and_statuses_do_not_overflow() {
    let mut schedule = Schedule::new();
    let [a, b] = [1, 1].map(|factor| schedule.add(Factor::of(factor)));
    let c = schedule.add_with_status(Factor::of(1), i64::MIN);
    for _ in 0..20 {
        assert!(schedule.force(a));
        [a, b, c].into_iter().for_each(|member| schedule.rescale(member, Factor::MAX));
        assert!(schedule.force(a));
        [a, b, c].into_iter().for_each(|member| schedule.set_factor(member, Factor::of(1)));
        schedule.disable(c);
        schedule.enable(c);
    }
    let statuses = [a, b, c].map(|member| schedule.status(member).expect("no member was removed"));
    assert!(statuses.iter().all(|status| status.abs() < 1 << 110));
    assert_eq!(schedule.pick(), Some(b));
}

#[test]
fn a_full_schedule_picks_in_turn_and_rejects_another_member() {
    let mut schedule = Schedule::new();
    let members: Vec<Member> = (0..Schedule::MAX_MEMBERS).map(|_| schedule.add(Factor::MAX)).collect();
    for member in members.iter().take(100) {
        assert_eq!(schedule.pick(), Some(*member));
    }
    assert!(catch_unwind(AssertUnwindSafe(|| schedule.add(Factor::of(1)))).is_err());
    schedule.remove(members[100]);
    schedule.add(Factor::of(1));
    assert_eq!(schedule.pick(), Some(members[101]));
}

fn factor(value: &Value) -> Factor {
    Factor::of(value["lbfactor"].as_u64().expect("a factor"))
}

/// Replays a vector. Returns its picks by name, and the statuses after each pick.
fn replay(vector: &Value) -> (Vec<Option<&str>>, Vec<Vec<Option<i128>>>) {
    let mut schedule = Schedule::new();
    let mut members = Vec::new();
    for configured in vector["members"].as_array().expect("members") {
        let name = configured["name"].as_str().expect("a name");
        let status = vector["initial_lbstatus"][name].as_i64().unwrap_or(0);
        let member = schedule.add_with_status(factor(configured), status);
        members.push((name, member));
        if configured["enabled"] == false {
            schedule.disable(member);
        }
    }
    let (mut picks, mut statuses) = (Vec::new(), Vec::new());
    for number in 0..vector["picks_count"].as_u64().expect("a number") {
        let mut forced = None;
        for event in vector["events"].as_array().into_iter().flatten().filter(|event| event["before_pick"] == number) {
            let name = event["member"].as_str().unwrap_or_default();
            let member = members.iter().find(|(known, _)| *known == name).map(|(_, member)| *member);
            match (event["op"].as_str().expect("an operation"), member) {
                ("add", None) => members.push((name, schedule.add(factor(event)))),
                ("reset", None) => schedule.reset(),
                ("disable", Some(member)) => schedule.disable(member),
                ("enable", Some(member)) => schedule.enable(member),
                ("set_lbfactor", Some(member)) => schedule.set_factor(member, factor(event)),
                ("remove", Some(member)) => schedule.remove(member),
                ("force", Some(member)) => forced = Some(member),
                (op, member) => panic!("{op} of {member:?}"),
            }
        }
        let picked = match forced {
            Some(member) => schedule.force(member).then_some(member),
            None => schedule.pick(),
        };
        picks.push(members.iter().find(|(_, member)| Some(*member) == picked).map(|(name, _)| *name));
        statuses.push(members.iter().map(|(_, member)| schedule.status(*member)).collect());
    }
    (picks, statuses)
}

/// `testdata/byrequests.json` describes its fields. Its `unit_rounds` belong to another algorithm.
#[test]
fn documented_vectors_are_reproduced() {
    let file: Value = serde_json::from_str(include_str!("../../testdata/byrequests.json")).expect("valid JSON");
    assert_eq!(file["format"], "byrequests-vectors/1");
    for vector in file["vectors"].as_array().expect("vectors") {
        let (id, (picks, statuses)) = (&vector["id"], replay(vector));
        if let Some(first) = vector["first_picks"].as_array() {
            assert_eq!(vector["first_picks"], json!(picks[..first.len()]), "{id}");
            assert_eq!(vector["final_lbstatus"], json!(statuses.last()), "{id}");
        } else {
            assert_eq!(vector["picks"], json!(picks), "{id}");
            assert_eq!(vector["lbstatus_after"], json!(statuses), "{id}");
        }
        for (name, count) in vector["counts"].as_object().expect("counts") {
            assert_eq!(*count, picks.iter().filter(|picked| **picked == Some(name)).count(), "{id}: {name}");
        }
        if let Some(period) = vector["period"].as_u64().map(|period| period as usize) {
            assert!(picks.iter().zip(&picks[period..]).all(|(pick, later)| pick == later), "{id}");
        }
    }
}
