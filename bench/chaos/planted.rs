//! Planted faults: for each rule that a server can leave out, the chaos arguments that are likely to reveal it, and the
//! first seed that does.

use std::time::Duration;

use crate::{
    chaos::{args::ChaosArgs, first_that_shows, layout::ClusterShape, schedule::Fault},
    common::{
        error::Error,
        output::{self, note, print},
        server::Interrupt,
    },
};

/// Chaos arguments under which a missing rule is likely to be noticed.
struct Suited {
    rule: &'static str,
    shape: ClusterShape,
    only: &'static [Fault],
    lease: u32,
}

const LENGTH: Duration = Duration::from_secs(40);

const MASTERS: &[Fault] = &[Fault::Kill, Fault::Pause, Fault::Herd, Fault::Crash];
const BELOW: &[Fault] = &[Fault::Capacity, Fault::LostAnswers, Fault::Kill, Fault::Crash];

const GATEWAY_ALONE: &[Fault] = &[Fault::LostParent, Fault::LostAnswers, Fault::SlowClients];

const fn suited(rule: &'static str, shape: ClusterShape, only: &'static [Fault], lease: u32) -> Suited {
    Suited { rule, shape, only, lease }
}

const ALL: [Suited; 13] = [
    suited("frees-unconfirmed", ClusterShape::Three, MASTERS, 5),
    suited("forgets-early", ClusterShape::Three, MASTERS, 5),
    suited("answers-before-commit", ClusterShape::Three, &[Fault::Kill, Fault::SlowDisks], 5),
    suited("unclaimed-ends-early", ClusterShape::Three, MASTERS, 5),
    suited("unclaimed-is-free", ClusterShape::Three, MASTERS, 5),
    suited("first-claim-frees", ClusterShape::Three, MASTERS, 5),
    suited("old-master-goes-on", ClusterShape::Three, &[Fault::CutOff], 10),
    suited("stale-hand-over", ClusterShape::Three, &[Fault::HandOver], 5),
    suited("hides-outstanding", ClusterShape::Tree, BELOW, 5),
    suited("outlives-parent", ClusterShape::Tree, &[Fault::LostParent], 3),
    suited("assignment-outlasts-lease", ClusterShape::Three, &[Fault::Gateway], 3),
    suited("forgets-assignments", ClusterShape::Three, &[Fault::Crash], 10),
    suited("uses-ended-lease", ClusterShape::Three, GATEWAY_ALONE, 3),
];

/// Tries each rule with all seeds until one reveals that the rule is missing.
pub(crate) fn table(args: &ChaosArgs, interrupt: &Interrupt, say: &dyn Fn(String)) -> Result<(), Error> {
    let mut rows = Vec::new();
    let mut missed = Vec::new();
    for Suited { rule, shape, only, lease } in ALL {
        let with = ChaosArgs {
            shape,
            only: only.to_vec(),
            lease,
            length: LENGTH,
            plant: Some(rule.to_owned()),
            ..args.clone()
        };
        let found = first_that_shows(&with, interrupt, say)?;
        let flags = with.plan_words().join(" ");
        rows.push(match found {
            Some(run) => {
                let masters = run.two_masters_text();
                [rule.to_owned(), flags, run.seed.to_string(), run.over.to_string(), masters]
            }
            None => {
                missed.push(rule);
                [rule.to_owned(), flags, "not found".into(), "0".into(), String::new()]
            }
        });
        note(&rows[rows.len() - 1].join(" | "));
    }
    print(&output::render(&["left out", "flags", "found by seed", "resources over", "masters"], 2, &rows))?;
    match missed.as_slice() {
        [] => Ok(()),
        missed => Err(Error::Unnoticed { rule: missed.join(", "), seeds: args.seeds.get() }),
    }
}
