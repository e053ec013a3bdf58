//! The peers of the master, in transcripts: all of them store what it promises at once.

use std::fmt::Write as _;

use super::{
    Failure, Transcript,
    words::{number, time},
};
use crate::lease::proposer::Proposal;
use crate::{
    lease::promises::Changes,
    resource::{Birth, Resource},
    tests::harness::birth,
    types::{
        cluster_clock::{ClusterClock, ClusterTime},
        time::Millis,
        token::Epoch,
    },
};

impl Transcript {
    /// What the log is told before the answers leave, or besides.
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

    /// The master dies, and its successor begins with what the peers know.
    pub(super) fn fail(&mut self) -> Result<(), Failure> {
        let inherited = self.peer.inherited(ClusterClock::default(), self.now, self.now);
        let (settings, source) = (self.resource()?.settings().clone(), self.resource()?.source());
        let epoch = inherited.newest.ok_or("nothing was promised yet")?;
        let birth =
            Birth { epoch: Epoch(epoch.0), since: self.now, inherited: Some(inherited), source, ..birth(settings) };
        self.resource = Some(Resource::new(birth));
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
