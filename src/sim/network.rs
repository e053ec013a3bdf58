//! The network between clients and nodes: messages are late, get lost and come twice. Links that are cut are the
//! business of the world, which knows their ends.

pub(crate) mod message;

use leaseway_core::Millis;
use serde::Deserialize;

use crate::scenario::units::{Between, Part, Span};

/// How good it is.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Network {
    pub delay: Between,
    /// So many copies never arrive.
    pub loss: Part,
    /// So many arrive twice.
    pub duplicates: Part,
    /// The second time up to so much later.
    pub(crate) late: Span,
    /// So long a caller waits for an answer; raised to what the delay makes necessary.
    pub(crate) deadline: Span,
}

impl Default for Network {
    fn default() -> Network {
        Network {
            delay: Between::default(),
            loss: Part::default(),
            duplicates: Part::default(),
            late: Span::millis(30_000),
            deadline: Span::millis(3_000),
        }
    }
}

impl Network {
    /// Nothing is lost and nothing comes twice any more.
    pub(crate) fn heal(&mut self) {
        (self.loss, self.duplicates) = (Part(0.0), Part(0.0));
    }

    /// How long an answer may take: there and back, and some room.
    pub(crate) fn deadline(&self) -> Millis {
        self.deadline.0.max(Millis(self.delay.most.0 * 2 + 1_000))
    }

    /// How long a message is under way: its first and its second copy.
    pub(crate) fn delays(&self, rng: &mut fastrand::Rng) -> (Option<Millis>, Option<Millis>) {
        let first = self.delay.pick(rng);
        let second = happens(self.duplicates, rng).then(|| first.plus(Millis(rng.u64(0..=self.late.0.0))));
        // So a message may come very late, and for the first time.
        (Some(first).filter(|_| !happens(self.loss, rng)), second.filter(|_| !happens(self.loss, rng)))
    }
}

fn happens(part: Part, rng: &mut fastrand::Rng) -> bool {
    part.0 > 0.0 && rng.f64() < part.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_lost_and_so_many_come_twice() {
        let mut network = Network {
            delay: Between { least: Millis(10), most: Millis(100) },
            loss: Part(0.1),
            duplicates: Part(0.2),
            ..Network::default()
        };
        let mut rng = fastrand::Rng::with_seed(1);
        let sent: Vec<_> = (0..10_000).map(|_| network.delays(&mut rng)).collect();
        let lost = sent.iter().filter(|(first, _)| first.is_none()).count();
        let twice = sent.iter().filter(|(_, second)| second.is_some()).count();
        assert!((900..1100).contains(&lost) && (1600..2000).contains(&twice), "{lost} lost, {twice} twice");
        assert!(sent.iter().flat_map(|(first, _)| first).all(|delay| (10..=100).contains(&delay.0)));
        assert!(sent.iter().all(|(first, second)| first <= second || second.is_none()));
        let only_late = sent.iter().filter(|(first, second)| first.is_none() && second.is_some()).count();
        assert!((140..220).contains(&only_late), "{only_late}");
        network.heal();
        assert!((0..1000).all(|_| matches!(network.delays(&mut rng), (Some(_), None))));
        assert_eq!(network.deadline(), Millis(3_000));
    }
}
