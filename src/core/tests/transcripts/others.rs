//! The parent of a node and the peers of its master, in transcripts. Peers store proposals immediately.

use std::fmt::Write as _;

use goldenscript::ArgumentConsumer;

use super::{
    Failure, Transcript,
    render::{amount, duration, number, time},
};
use crate::{
    allocation::division::Terms,
    lease::{promises::Changes, proposer::Proposal},
    resource::{
        Resource, ResourceOptions,
        supply::{DemandSummary, Supply},
    },
    tests::harness::options,
    types::{ClusterClock, ClusterTime, Epoch, Millis},
};

impl Transcript {
    /// The parent lends this capacity for this time, with its terms.
    pub(super) fn supply(&mut self, mut args: ArgumentConsumer<'_>) -> Result<(), Failure> {
        let capacity = amount(args.next_pos().ok_or("how much?")?)?;
        let until = self.now.plus(duration(args.next_pos().ok_or("how long?")?)?);
        let priority = args.take_key("priority").map_or(Ok(0), str::parse)?;
        let top_up = args.take_key("top_up").map_or(Ok(0.0), str::parse)?;
        let mut terms = Vec::new();
        while let Some((key, value)) = args.next_key() {
            let said = match key {
                "level" => Terms::Level(value.parse()?),
                "each" => Terms::Each(amount(value)?),
                "share" => Terms::Share { equal: value.parse()?, top_up },
                other => return Err(format!("there are no terms called `{other}`").into()),
            };
            terms.push((priority, said));
        }
        args.reject_next()?;
        self.supplies += 1;
        let version = self.supplies;
        let now = self.now;
        self.resource()?.supply(now, Supply { capacity, until, terms, version, ..Supply::default() });
        Ok(())
    }

    /// Prints the report to the parent.
    pub(super) fn summarize(&mut self) -> Result<String, Failure> {
        let now = self.now;
        let DemandSummary { claims, outstanding, learning, version, .. } = self.resource()?.summarize(now);
        let mut output = "told:".to_owned();
        for claim in &claims {
            write!(output, " {}x{}", claim.subclients, number(claim.wants.get()))?;
            if claim.priority != 0 {
                write!(output, "@{}", claim.priority)?;
            }
        }
        write!(
            output,
            "{} outstanding {}, ",
            if claims.is_empty() { " no clients," } else { "," },
            number(outstanding.get())
        )?;
        match version {
            0 => output += "nothing lent yet",
            version => write!(output, "supply {version}")?,
        }
        output += if learning { ", learning\n" } else { "\n" };
        Ok(output)
    }

    /// Prints whether a report is due before the next refresh.
    pub(super) fn early(&mut self) -> Result<String, Failure> {
        let early = self.resource()?.asks_early();
        Ok(if early { "the parent should hear of this now\n" } else { "the next refresh is soon enough\n" }.to_owned())
    }
}

impl Transcript {
    /// Prints proposals, and whether answers wait for them.
    pub(super) fn promise(&mut self) -> Result<String, Failure> {
        let now = self.now;
        let Proposal { changes, awaits } = self.resource()?.take_changes(now);
        let mut output = String::new();
        if let Some(changes) = changes {
            write!(output, "log: {}", told(&changes, now))?;
            output += if awaits == Some(changes.number) { " (first)\n" } else { "\n" };
            self.peer.apply(&changes, ClusterTime(now.0))?;
            self.resource()?.acknowledge(changes.number);
        }
        Ok(output)
    }

    /// The master dies. Its successor starts with the peers' state.
    pub(super) fn fail(&mut self) -> Result<(), Failure> {
        let inherited = self.peer.inherited(ClusterClock::default(), self.now, self.now);
        let (settings, source) = (self.resource()?.settings().clone(), self.resource()?.source());
        let epoch = inherited.newest.ok_or("nothing was promised yet")?;
        let options = ResourceOptions {
            epoch: Epoch(epoch.0),
            since: self.now,
            inherited: Some(inherited),
            source,
            ..options(settings)
        };
        self.resource = Some(Resource::new(options));
        Ok(())
    }
}

fn told(changes: &Changes, now: Millis) -> String {
    let mut told = format!("at most {}", number(changes.total.get()));
    if let Some(horizon) = changes.horizon {
        told += &format!(", nothing beyond {}", time(horizon.since(ClusterTime(now.0))));
    }
    told
}
