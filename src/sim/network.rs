//! The network between clients and nodes: it delays, loses and duplicates messages. The simulation itself handles cut
//! links, because it knows the two ends of each message.

pub(crate) mod message;

use leaseway_core::types::Millis;
use serde::Deserialize;

use crate::units::{Between, Part, Span};

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Network {
    pub delay: Between,
    /// The fraction of copies that are lost.
    pub loss: Part,
    /// The fraction of messages that are duplicated.
    pub duplicates: Part,
    /// Maximum additional delay of the duplicate.
    pub(crate) late: Span,
    /// The request timeout. Raised if a round trip may take longer.
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
    /// Stops losing and duplicating messages.
    pub(crate) fn heal(&mut self) {
        (self.loss, self.duplicates) = (Part(0.0), Part(0.0));
    }

    /// The request timeout: at least a round trip and a second.
    pub(crate) fn deadline(&self) -> Millis {
        self.deadline.0.max(Millis(self.delay.most.0 * 2 + 1_000))
    }

    /// The delays of a message and of its duplicate.
    pub(crate) fn delays(&self, rng: &mut fastrand::Rng) -> (Option<Millis>, Option<Millis>) {
        let first = self.delay.pick(rng);
        let second = happens(self.duplicates, rng).then(|| first.plus(Millis(rng.u64(0..=self.late.0.0))));
        // The original may be lost and the duplicate arrive, very late.
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
    fn messages_are_lost_and_duplicated_at_the_given_rates() {
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
