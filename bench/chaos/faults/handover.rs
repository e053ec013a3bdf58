//! Handovers under bad links: an operator transfers mastership or removes the master while messages to its successor
//! are late or lost.
//!
//! The master asks its successor to stand for election as soon as the successor has every entry. Without TLS the
//! injector can recognise this message, and connections stall exactly there. With TLS, or if the message is to be lost,
//! messages to the successor are delayed by a part of a heartbeat, and the links degrade up to three such delays after
//! the master has stopped: by then the entries may have arrived, and the message may be in transit. Three phases
//! follow:
//!
//! - *Late*: messages from the master to its successor, and the answers, are stalled or lost, until the master gives
//!   up, continues as master, and reconnects.
//! - *Pair*: the master and its successor reach each other over the new connection. The master is cut off from other
//!   peers, which are a majority together with the successor. Their vote leases end.
//! - *Alone*: the old message arrives. Newer connections stall, and the master is cut off from all peers.
//!
//! TCP retransmits lost messages of the first phase. In a namespace it does so at an unpredictable time, so the second
//! phase lasts to the end; otherwise it does so immediately.

use std::{ops::Range, time::Duration};

use crate::chaos::{
    faults::{
        network::ActiveFault,
        packets::{LinkState, Stalled},
    },
    schedule::{Fault, ScheduledFault},
};

/// The fractions of the duration at which the phases *pair* and *alone* begin.
const PAIR: f64 = 0.5;
const ALONE: f64 = 0.8;

/// The delay of messages to the successor before the links degrade, in heartbeats.
const DELAY: f64 = 0.3;

/// The path of the message, `/leaseway.peer.v1.Peers/Stand`, as HPACK (RFC 7541) encodes it for the first time on a
/// connection.
pub(crate) const STAND: [u8; 21] = [
    0x62, 0x82, 0x8d, 0x05, 0xf0, 0x3f, 0x4b, 0xd6, 0x52, 0xd8, 0xbf, 0x70, 0xaf, 0xac, 0xa5, 0xb1, 0x0c, 0x6e, 0x48,
    0xea, 0x93,
];

/// How messages from the master to its successor are held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    Stall,
    Cut,
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The master has not stopped yet.
    Before,
    Late,
    Pair,
    Alone,
}

impl Fault {
    /// Whether the fault makes a master hand over.
    pub(crate) fn hands_over(self) -> bool {
        matches!(self, Fault::HandOver | Fault::Replace)
    }
}

impl ScheduledFault {
    fn trouble(&self) -> Trouble {
        match self.dice % 8 {
            0..5 => Trouble::Stall,
            5..7 => Trouble::Cut,
            _ => Trouble::Nothing,
        }
    }

    /// The successor of this master.
    pub(crate) fn next_master(&self, node: &Range<usize>, master: usize) -> usize {
        let others = node.len() - 1;
        node.start + (master - node.start + 1 + (self.dice >> 3) as usize % others) % node.len()
    }
}

impl ActiveFault {
    /// The master that hands over. `None` once the links have degraded.
    pub(crate) fn about_to_stop(&self) -> Option<usize> {
        let [master, _] = self.victims[..] else { return None };
        self.degraded_ms.is_none().then_some(master)
    }

    /// Whether connections stall at the message itself, which the injector has to recognise.
    pub(crate) fn stalls_at_message(&self) -> bool {
        self.is_in_the_clear && self.fault.trouble() == Trouble::Stall
    }

    /// Degrades the links from now on.
    pub(crate) fn is_late(&mut self, now_ms: u64) {
        (self.degraded_ms, self.fault.at_ms) = (Some(now_ms), now_ms);
    }

    /// If the message cannot be recognised, degrades the links some time after the master has stopped. The duration of
    /// the fault counts from then.
    pub(crate) fn look(&mut self, is_master: bool, now_ms: u64) {
        if self.stalls_at_message() || self.term_ended_ms.is_none() && is_master {
            return;
        }
        let ended = *self.term_ended_ms.get_or_insert(now_ms);
        if Duration::from_millis(now_ms - ended) >= self.until_trouble() {
            self.is_late(now_ms);
        }
    }

    /// The delay of messages to the successor before the links degrade.
    fn delay(&self) -> Duration {
        self.heartbeat.mul_f64(DELAY)
    }

    /// The time from the stop of the master until the links degrade. When the master stops, an entry or a heartbeat is
    /// usually in transit, and some more messages follow before the one that is to be late. Without outstanding entries
    /// the master sends that one immediately.
    fn until_trouble(&self) -> Duration {
        let part = self.fault.part();
        let messages = if part < 0.3 { 2.5 * part } else { 1.2 + 2.0 * part };
        // A message that is to be lost must be sent after the links degrade.
        let messages = if self.fault.trouble() == Trouble::Cut { messages - 1.0 } else { messages };
        self.delay().mul_f64(messages.max(0.0))
    }

    fn part(&self, now_ms: u64) -> Part {
        let Some(since) = self.degraded_ms else { return Part::Before };
        match now_ms.saturating_sub(since) as f64 / self.fault.lasts_ms.max(1) as f64 {
            gone if gone < PAIR => Part::Late,
            gone if gone < ALONE => Part::Pair,
            _ => Part::Alone,
        }
    }

    /// The state of the link over which `from` reaches `to`.
    pub(crate) fn hand_over(&self, node: &Range<usize>, from: usize, to: usize, now_ms: u64) -> LinkState {
        let mut state = LinkState::default();
        let [master, next] = self.victims[..] else { return state };
        let trouble = self.fault.trouble();
        if !node.contains(&master) || trouble == Trouble::Nothing || from == to {
            return state;
        }
        let (towards, back) = ((from, to) == (master, next), (from, to) == (next, master));
        // The peers that are a majority together with the successor.
        let is_third = |peer: usize| {
            let others = (1..node.len()).map(|place| node.start + (next - node.start + place) % node.len());
            others.filter(|other| *other != master).take(node.len() / 2).any(|other| other == peer)
        };
        let third = if from == master { is_third(to) } else { to == master && is_third(from) };
        match (self.part(now_ms), trouble) {
            (Part::Before, _) if towards && !self.stalls_at_message() => state.delay_there = self.delay(),
            (Part::Late | Part::Pair, Trouble::Stall) if towards => state.stalled = Stalled::Older,
            (Part::Late, Trouble::Stall) => state.cut_back = back,
            (Part::Late, Trouble::Cut) => (state.cut_there, state.cut_back) = (towards, back),
            (Part::Alone, Trouble::Stall) if towards => {
                (state.stalled, state.cut_back) = (Stalled::Newer, true);
            }
            (Part::Alone, Trouble::Stall) => {
                let is_cut = from == master || to == master;
                (state.cut_there, state.cut_back) = (is_cut, is_cut);
            }
            (Part::Pair | Part::Alone, _) => (state.cut_there, state.cut_back) = (third, third),
            _ => {}
        }
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::schedule::Aim;

    /// A handover of the first of five peers. Its links degrade after one second, for one second.
    fn hand_over(dice: u32) -> ActiveFault {
        let aim = Aim { node: 0, peer: None };
        // The second message is the late one.
        let dice = dice | 1 << 31;
        let fault = ScheduledFault { number: 0, at_ms: 0, lasts_ms: 1000, kind: Fault::HandOver, aim, dice };
        let mut one = ActiveFault::of(fault, vec![0, fault.next_master(&(0..5), 0)], Duration::from_millis(50), false);
        one.look(true, 500);
        one.look(false, 900);
        one.look(false, 910);
        one.look(false, 1000);
        one
    }

    /// A matrix of link states, with a row for each sender and a column for each receiver: `~` delayed, `s` stalled,
    /// `n` newer connections stalled, `x` cut both ways, `>` only data from the row's peer arrives, `<` only data to it
    /// arrives.
    fn picture(one: &ActiveFault, now_ms: u64) -> Vec<String> {
        let letter = |from, to| match one.hand_over(&(0..5), from, to, now_ms) {
            LinkState { stalled: Stalled::Older, .. } => 's',
            LinkState { stalled: Stalled::Newer, .. } => 'n',
            LinkState { cut_there: true, cut_back: true, .. } => 'x',
            LinkState { cut_there: true, .. } => '<',
            LinkState { cut_back: true, .. } => '>',
            LinkState { delay_there, .. } if !delay_there.is_zero() => '~',
            _ => '.',
        };
        (0..5).map(|from| (0..5).map(|to| letter(from, to)).collect()).collect()
    }

    const GOOD: &str = ".....";

    #[test]
    fn a_stalled_message_arrives_when_the_master_is_alone_after_a_time_with_its_successor() {
        // The successor is peer 2. It would have a majority with peers 3 and 4.
        let one = hand_over(1 << 3);
        assert_eq!(one.victims, [0, 2]);
        let mut waits = ActiveFault { degraded_ms: None, ..one.clone() };
        assert_eq!(picture(&waits, 1400), ["..~..", GOOD, GOOD, GOOD, GOOD]);
        waits.is_in_the_clear = true;
        assert_eq!(picture(&waits, 1400), [GOOD; 5], "the message itself is waited for");
        assert_eq!(picture(&one, 1000), ["..s..", GOOD, ">....", GOOD, GOOD]);
        assert_eq!(picture(&one, 1500), ["..sxx", GOOD, GOOD, "x....", "x...."]);
        assert_eq!(picture(&one, 1900), [".xnxx", "x....", "x....", "x....", "x...."]);
    }

    #[test]
    fn a_lost_message_is_retransmitted_while_the_master_goes_on_with_its_successor() {
        // The successor is peer 4. It would have a majority with peers 1 and 2.
        let one = hand_over(3 << 3 | 5);
        assert_eq!(picture(&one, 1000), ["....<", GOOD, GOOD, GOOD, ">...."]);
        for now_ms in [1500, 1900] {
            assert_eq!(picture(&one, now_ms), [".xx..", "x....", "x....", GOOD, GOOD]);
        }
        assert_eq!(picture(&hand_over(7), 1500), [GOOD; 5]);
    }

    #[tokio::test]
    async fn the_handover_message_is_recognised_by_its_path() {
        let (near, mut far) = tokio::io::duplex(1 << 16);
        let client = tokio::spawn(async move {
            let (mut send, connection) = h2::client::handshake(near).await.unwrap();
            tokio::spawn(connection);
            let uri = "http://peer/leaseway.peer.v1.Peers/Stand";
            let request = http::Request::post(uri).body(()).unwrap();
            send.send_request(request, true).unwrap().0.await
        });
        let mut sent = Vec::new();
        while !sent.windows(STAND.len()).any(|window| window == STAND) {
            let read = tokio::io::AsyncReadExt::read_buf(&mut far, &mut sent);
            let read = tokio::time::timeout(Duration::from_secs(30), read).await.expect("the path is sent");
            assert!(read.unwrap() > 0, "{sent:x?}");
        }
        client.abort();
    }

    #[test]
    fn links_degrade_after_the_master_has_stopped() {
        let one = hand_over(0);
        assert_eq!((one.about_to_stop(), one.term_ended_ms), (None, Some(900)));
        assert_eq!((one.degraded_ms, one.fault.ends_ms()), (Some(1000), 2000));
    }
}
