//! The vectors in `testdata/byrequests.json`, with every pick and every status. The file describes its fields. Vectors
//! with rounds of whole units belong to another algorithm.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::balancer::{Factor, Member, Schedule};

#[derive(Deserialize)]
struct File {
    format: String,
    vectors: Vec<Vector>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vector {
    id: String,
    #[serde(rename = "source")]
    _source: String,
    members: Vec<Configured>,
    picks_count: usize,
    #[serde(default)]
    initial_lbstatus: BTreeMap<String, i64>,
    #[serde(default)]
    events: Vec<Event>,
    picks: Option<Vec<Option<String>>>,
    first_picks: Option<Vec<Option<String>>>,
    lbstatus_after: Option<Vec<Vec<Option<i128>>>>,
    final_lbstatus: Option<Vec<Option<i128>>>,
    counts: BTreeMap<String, usize>,
    period: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Configured {
    name: String,
    lbfactor: u64,
    #[serde(default = "yes")]
    enabled: bool,
}

fn yes() -> bool {
    true
}

#[derive(Deserialize)]
struct Event {
    before_pick: usize,
    #[serde(flatten)]
    op: Op,
}

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum Op {
    Disable { member: String },
    Enable { member: String },
    SetLbfactor { member: String, lbfactor: u64 },
    Add { member: String, lbfactor: u64 },
    Remove { member: String },
    Reset,
    Force { member: String },
}

/// Performs an action of a vector.
#[derive(Default)]
struct Run {
    schedule: Schedule,
    members: Vec<(String, Member)>,
    forced: Option<Member>,
    picks: Vec<Option<String>>,
    statuses: Vec<Vec<Option<i128>>>,
}

impl Run {
    fn of(vector: &Vector) -> Run {
        let mut run = Run::default();
        for configured in &vector.members {
            let status = vector.initial_lbstatus.get(&configured.name).copied().unwrap_or(0);
            let member = run.schedule.add_with_status(Factor::of(configured.lbfactor), status);
            run.members.push((configured.name.clone(), member));
            if !configured.enabled {
                run.schedule.disable(member);
            }
        }
        for pick in 0..vector.picks_count {
            vector.events.iter().filter(|event| event.before_pick == pick).for_each(|event| run.apply(&event.op));
            run.pick();
        }
        run
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Disable { member } => self.schedule.disable(self.member(member)),
            Op::Enable { member } => self.schedule.enable(self.member(member)),
            Op::SetLbfactor { member, lbfactor } => {
                self.schedule.set_factor(self.member(member), Factor::of(*lbfactor));
            }
            Op::Add { member, lbfactor } => {
                let added = self.schedule.add(Factor::of(*lbfactor));
                self.members.push((member.clone(), added));
            }
            Op::Remove { member } => self.schedule.remove(self.member(member)),
            Op::Reset => self.schedule.reset(),
            Op::Force { member } => self.forced = Some(self.member(member)),
        }
    }

    fn pick(&mut self) {
        let picked = match self.forced.take() {
            Some(member) => self.schedule.force(member).then_some(member),
            None => self.schedule.pick(),
        };
        let name = |picked| self.members.iter().find(|(_, member)| *member == picked).map(|(name, _)| name.clone());
        self.picks.push(picked.and_then(name));
        self.statuses.push(self.members.iter().map(|(_, member)| self.schedule.status(*member)).collect());
    }

    fn member(&self, name: &str) -> Member {
        self.members.iter().find(|(known, _)| known == name).expect("events name members").1
    }

    fn count(&self, name: &str) -> usize {
        self.picks.iter().flatten().filter(|picked| *picked == name).count()
    }
}

fn file() -> File {
    serde_json::from_str(include_str!("../../../testdata/byrequests.json")).expect("the vectors can be read")
}

#[test]
fn every_vector_is_scheduled_as_it_says() {
    for vector in &file().vectors {
        let (run, id) = (Run::of(vector), &vector.id);
        if let Some(picks) = &vector.picks {
            assert_eq!(&run.picks, picks, "{id}");
        }
        if let Some(picks) = &vector.first_picks {
            assert_eq!(&run.picks[..picks.len()], picks, "{id}");
        }
        if let Some(statuses) = &vector.lbstatus_after {
            assert_eq!(&run.statuses, statuses, "{id}");
        }
        if let Some(statuses) = &vector.final_lbstatus {
            assert_eq!(run.statuses.last(), Some(statuses), "{id}");
        }
        for (name, count) in &vector.counts {
            assert_eq!(run.count(name), *count, "{id}: {name}");
        }
        if let Some(period) = vector.period.filter(|period| *period <= run.picks.len()) {
            let repeated = run.picks.iter().zip(&run.picks[period..]).all(|(one, later)| one == later);
            assert!(repeated && run.statuses[period - 1].iter().all(|status| *status == Some(0)), "{id}");
        }
    }
}

#[test]
fn the_vectors_are_all_there_and_each_says_what_is_picked() {
    let file = file();
    assert_eq!(file.format, "byrequests-vectors/1");
    assert_eq!(file.vectors.len(), 28);
    for vector in &file.vectors {
        let long = vector.first_picks.is_some() && vector.final_lbstatus.is_some();
        assert!(long || (vector.picks.is_some() && vector.lbstatus_after.is_some()), "{}", vector.id);
    }
    let ops = file.vectors.iter().flat_map(|vector| &vector.events).map(|event| match event.op {
        Op::Disable { .. } => "disable",
        Op::Enable { .. } => "enable",
        Op::SetLbfactor { .. } => "set_lbfactor",
        Op::Add { .. } => "add",
        Op::Remove { .. } => "remove",
        Op::Reset => "reset",
        Op::Force { .. } => "force",
    });
    assert_eq!(
        ops.collect::<BTreeSet<_>>(),
        BTreeSet::from(["add", "disable", "enable", "force", "remove", "reset", "set_lbfactor"])
    );
}
