//! What else is to be known about a forecast, as sentences: the same wherever people read it.

use super::Foreseen;
use crate::types::amount::{Sum, readable};

impl Foreseen {
    /// What has to end before dues are what they will be, and what is not foreseen.
    pub fn sentences(&self) -> Vec<String> {
        let said = |sum: Sum| (sum > Sum::ZERO).then(|| readable(sum.get()));
        let end = self.until.0.div_ceil(1000);
        let mut all = Vec::new();
        if self.due.1.is_none() {
            all.push("a pool decides as requests come: what each client would be due is not foreseen".to_owned());
        }
        all.extend(
            said(self.over).map(|over| {
                format!("{over} more is held than there would be: until that has ended no client gets more")
            }),
        );
        all.extend(said(self.beyond).map(|beyond| {
            format!(
                "{beyond} is held by clients that would be due less: others get it as those confirm, in {end} s at the \
                 latest"
            )
        }));
        all.extend(said(self.unnamed).map(|unnamed| {
            format!(
                "{unnamed} of what earlier masters promised has not been named by its holders yet: they get it back as \
                 they ask, and others what is left of it, in {end} s at the latest"
            )
        }));
        if self.learning.0 > 0 {
            let left = self.learning.0.div_ceil(1000);
            all.push(format!("its master still learns for {left} s: it divides after that"));
        }
        all
    }
}
