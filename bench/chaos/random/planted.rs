//! Rules that are left out, each with what suits it, and the seed whose books show it.

use std::time::Duration;

use super::{args::RandomArgs, first_that_shows, layout::ClusterShape, schedule::Mishap};
use crate::{
    error::Error,
    output::{note, print},
    signal::Interrupt,
    table,
};

/// What brings a rule into play.
struct Suited {
    fault: &'static str,
    shape: ClusterShape,
    only: &'static [Mishap],
    lease: u32,
}

/// How long each run lasts.
const LENGTH: Duration = Duration::from_secs(40);

const MASTERS: &[Mishap] = &[Mishap::Kill, Mishap::Pause, Mishap::Herd, Mishap::Crash];
const BELOW: &[Mishap] = &[Mishap::Capacity, Mishap::LostAnswers, Mishap::Kill, Mishap::Crash];

const GATEWAY_ALONE: &[Mishap] = &[Mishap::LostParent, Mishap::LostAnswers, Mishap::SlowClients];

const fn suited(fault: &'static str, shape: ClusterShape, only: &'static [Mishap], lease: u32) -> Suited {
    Suited { fault, shape, only, lease }
}

const ALL: [Suited; 13] = [
    suited("frees-unconfirmed", ClusterShape::Three, MASTERS, 5),
    suited("forgets-early", ClusterShape::Three, MASTERS, 5),
    suited("answers-before-commit", ClusterShape::Three, &[Mishap::Kill, Mishap::SlowDisks], 5),
    suited("estate-ends-early", ClusterShape::Three, MASTERS, 5),
    suited("estate-is-free", ClusterShape::Three, MASTERS, 5),
    suited("first-name-frees", ClusterShape::Three, MASTERS, 5),
    suited("old-master-goes-on", ClusterShape::Three, &[Mishap::CutOff], 10),
    suited("stale-hand-over", ClusterShape::Three, &[Mishap::HandOver], 5),
    suited("hides-outstanding", ClusterShape::Tree, BELOW, 5),
    suited("outlives-parent", ClusterShape::Tree, &[Mishap::LostParent], 3),
    suited("assignment-outlasts-lease", ClusterShape::Three, &[Mishap::Gateway], 3),
    suited("forgets-assignments", ClusterShape::Three, &[Mishap::Crash], 10),
    suited("uses-ended-lease", ClusterShape::Three, GATEWAY_ALONE, 3),
];

/// One after the other, as far as there are seeds.
pub(super) fn table(args: &RandomArgs, interrupt: &Interrupt, say: &dyn Fn(String)) -> Result<(), Error> {
    let mut rows = Vec::new();
    let mut missed = Vec::new();
    for Suited { fault, shape, only, lease } in ALL {
        let with = RandomArgs {
            shape,
            only: only.to_vec(),
            lease: lease.try_into().unwrap_or(args.lease),
            length: LENGTH,
            plant: Some(fault.to_owned()),
            ..args.clone()
        };
        let found = first_that_shows(&with, interrupt, say)?;
        let flags = with.plan_words().join(" ");
        rows.push(match found {
            Some(run) => {
                let masters = run.two_masters_in_words();
                [fault.to_owned(), flags, run.seed.to_string(), run.over.to_string(), masters]
            }
            None => {
                missed.push(fault);
                [fault.to_owned(), flags, "not found".into(), "0".into(), String::new()]
            }
        });
        note(&rows[rows.len() - 1].join(" | "));
    }
    print(&table::render(&["left out", "flags", "found by seed", "resources over", "masters"], 2, &rows))?;
    match missed.as_slice() {
        [] => Ok(()),
        missed => Err(Error::Unnoticed { fault: missed.join(", "), seeds: args.seeds.get() }),
    }
}
