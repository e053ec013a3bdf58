//! The server's side of a stream of renewals: a client that holds very many leases says what has changed, and renews
//! all others with one message.
//!
//! A client numbers its entries and *states* each once, as in a request for capacity. Later messages *renew* entries by
//! their numbers. A renewal stands for the request that names the lease in the last answer, with the wants that were
//! stated last. That is true because the two sides take turns, and a message acknowledges the answer before it:
//!
//! - Messages are numbered. One that repeats a number, or leaves one out, is not applied: the stream ends, and the
//!   client states everything on another.
//! - A client that does not take an answer for an entry, because it came too late (rule 6), states that entry again.
//! - A stream ends with the term of its master. The next master, even on the same server, knows nothing of it.
//!
//! So each renewal is decided by the rules for tokens, echoes and claims of src/core/lease/protocol.md.

use std::{ops::Range, sync::Arc};

use crate::{
    lease::holder::ShownLease,
    planted::{self, Fault},
    resource::{Answer, Ask, Lease, Renewal, Renewed},
    types::{Claims, Millis},
};

/// One entry that a client states: as one of a request for capacity.
#[derive(Debug, Clone, PartialEq)]
pub struct Statement<R> {
    pub index: u32,
    pub resource: R,
    pub ask: Ask,
}

/// A message of a client.
#[derive(Debug, Clone, PartialEq)]
pub struct Message<R> {
    /// The first message of a stream has number 1.
    pub sequence: u64,
    pub stated: Vec<Statement<R>>,
    /// The entries that are renewed.
    pub renewed: Vec<Range<u32>>,
}

/// The answer to a [`Message`]. All renewed entries that it does not list were renewed: their leases have the same
/// capacity, length and refresh interval as before, counted from when the message was sent.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StreamAnswer {
    pub sequence: u64,
    /// The time of the decision in Unix seconds, from which renewed leases count on the wire.
    pub unix: i64,
    pub granted: Vec<(u32, Lease)>,
    /// Entries that keep the leases they have. They have to be stated again.
    pub left_out: Vec<u32>,
}

/// Why the client has to state everything again, on another stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// The message is not the one after the last.
    Sequence,
    /// It names an entry that was not stated.
    Index,
    /// The stream was opened under another master, or in an earlier term of this one.
    Term,
}

impl Restart {
    /// The reason, for the client's log.
    pub fn reason(self) -> &'static str {
        match self {
            Restart::Sequence => "the message is out of order: it does not follow the last one that was answered",
            Restart::Index => "the message names an entry that was never sent on this stream",
            Restart::Term => "the stream was opened in another term of the master",
        }
    }
}

/// A message that is being answered.
#[derive(Debug)]
pub struct Turn {
    answer: StreamAnswer,
    renewed: Vec<Range<u32>>,
    /// A planted fault: the leases were given by an older master.
    is_of_older_master: bool,
}

/// The entries of one client. `R` is a resource, as the caller reaches it.
pub struct Stream<R> {
    client: Arc<str>,
    is_gateway: bool,
    term: u64,
    /// The number of the next message.
    next: u64,
    entries: Vec<Entry<R>>,
}

struct Entry<R> {
    resource: R,
    claims: Claims,
    /// The lease that a renewal names. Absent until the client has one.
    lease: Option<ShownLease>,
    /// The length of that lease. Zero if this stream has not given it.
    length: Millis,
}

impl<R> Stream<R> {
    /// A stream of this client, opened in this term of the master.
    pub fn new(client: Arc<str>, is_gateway: bool, term: u64) -> Stream<R> {
        Stream { client, is_gateway, term, next: 1, entries: Vec::new() }
    }

    pub fn client(&self) -> &Arc<str> {
        &self.client
    }

    pub fn is_gateway(&self) -> bool {
        self.is_gateway
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The resource of an entry.
    pub fn resource_mut(&mut self, index: u32) -> Option<&mut R> {
        self.entries.get_mut(index as usize).map(|entry| &mut entry.resource)
    }

    /// Begins to answer a message. Call [`renew`](Self::renew), and [`answered`](Self::answered) for each statement.
    ///
    /// # Errors
    ///
    /// The message must not be applied; the stream ends.
    pub fn receive<S>(
        &mut self,
        term: u64,
        message: Message<S>,
        mut reach: impl FnMut(&S) -> R,
    ) -> Result<(Turn, Vec<Statement<S>>), Restart> {
        let Message { sequence, stated, renewed } = message;
        let is_of_older_master = term != self.term;
        if is_of_older_master && !planted::is(Fault::RenewsForOlderMaster) {
            return Err(Restart::Term);
        }
        let is_repeated = sequence < self.next && planted::is(Fault::AppliesDeltaTwice);
        if sequence != self.next && !is_repeated {
            return Err(Restart::Sequence);
        }
        self.next = self.next.max(sequence.saturating_add(1));
        for statement in &stated {
            let entry = Entry {
                resource: reach(&statement.resource),
                claims: statement.ask.claims.clone(),
                lease: statement.ask.has,
                length: Millis(0),
            };
            let index = statement.index as usize;
            if index == self.entries.len() {
                self.entries.push(entry);
            } else {
                *self.entries.get_mut(index).ok_or(Restart::Index)? = entry;
            }
        }
        // Each at most once, so that a short message cannot cause much work.
        let count: usize = renewed.iter().map(ExactSizeIterator::len).sum();
        if count > self.entries.len() || renewed.iter().any(|range| range.end as usize > self.entries.len()) {
            return Err(Restart::Index);
        }
        let answer = StreamAnswer { sequence, ..StreamAnswer::default() };
        Ok((Turn { answer, renewed, is_of_older_master }, stated))
    }

    /// Renews up to `maximum` of the entries that the message renews. `in_place` tries to do so without a round. Calls
    /// `ask` with each request that needs a round; its answer belongs into [`answered`](Self::answered). Returns
    /// whether there are more.
    pub fn renew(
        &mut self,
        turn: &mut Turn,
        maximum: usize,
        mut in_place: impl FnMut(&mut R, &Renewal<'_>) -> Option<Renewed>,
        mut ask: impl FnMut(u32, &R, Ask),
    ) -> bool {
        let mut left = maximum as u32;
        while let Some(range) = turn.renewed.last_mut() {
            let end = range.end.min(range.start.saturating_add(left));
            for index in range.start..end {
                let entry = &mut self.entries[index as usize];
                let Some(has) = &mut entry.lease else {
                    turn.answer.left_out.push(index);
                    continue;
                };
                if turn.is_of_older_master {
                    continue;
                }
                let (client, length) = (&*self.client, entry.length);
                let renewal = has.token.map(|token| Renewal { client, token, length });
                if let Some(renewed) = renewal.and_then(|renewal| in_place(&mut entry.resource, &renewal)) {
                    has.expiry_time = renewed.expiry_time;
                    continue;
                }
                let (claims, has) = (entry.claims.clone(), Some(*has));
                let asked =
                    Ask { claims, has, is_gateway: self.is_gateway, ..Ask::of_nothing(Arc::clone(&self.client)) };
                ask(index, &entry.resource, asked);
            }
            left -= end.saturating_sub(range.start);
            range.start = end;
            if range.start >= range.end {
                turn.renewed.pop();
            } else {
                return true;
            }
        }
        false
    }

    /// Adds the answer to the request of an entry.
    pub fn answered(&mut self, turn: &mut Turn, index: u32, answer: Option<&Answer>) {
        let Some(entry) = self.entries.get_mut(index as usize) else { return };
        let Some(Answer::Granted(lease)) = answer else {
            turn.answer.left_out.push(index);
            return;
        };
        let has = ShownLease { token: Some(lease.token), capacity: lease.capacity, expiry_time: lease.expiry_time };
        (entry.lease, entry.length) = (Some(has), lease.length);
        turn.answer.granted.push((index, *lease));
    }
}

impl Turn {
    /// The answer. `unix`: the time of the decision in Unix seconds.
    pub fn finish(self, unix: i64) -> StreamAnswer {
        StreamAnswer { unix, ..self.answer }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        tests::harness::ask,
        types::{Amount, Token},
    };

    const LENGTH: Millis = Millis::from_secs(60);

    fn lease(token: u64, capacity: f64) -> Lease {
        Lease {
            token: Token::new(token).expect("it is not zero"),
            capacity: Amount::clamped(capacity),
            length: LENGTH,
            refresh: Millis::from_secs(5),
            expiry_time: 60,
            safe_capacity: 0.0,
            priority: 0,
            is_unlimited: false,
            pool: None,
            budget: None,
        }
    }

    fn stated(index: u32, wants: f64) -> Statement<u32> {
        Statement { index, resource: 100 + index, ask: ask("a", wants, None) }
    }

    /// `renewed`: the first and the end of each range.
    fn message(sequence: u64, stated: Vec<Statement<u32>>, renewed: &[(u32, u32)]) -> Message<u32> {
        Message { sequence, stated, renewed: renewed.iter().map(|(first, end)| *first..*end).collect() }
    }

    fn opened() -> Stream<u32> {
        let mut stream = Stream::new("a".into(), false, 7);
        let message = message(1, (0..3).map(|index| stated(index, 10.0)).collect(), &[]);
        let (mut turn, asked) = stream.receive(7, message, |resource| *resource).expect("it is the first");
        for statement in asked {
            let index = statement.index;
            stream.answered(&mut turn, index, Some(&Answer::Granted(lease(u64::from(index) + 1, 10.0))));
        }
        assert_eq!(turn.finish(0).granted.len(), 3);
        stream
    }

    fn renewed(expiry_time: i64) -> Option<Renewed> {
        Some(Renewed { expiry_time })
    }

    #[test]
    fn a_renewal_that_needs_a_round_asks_with_the_lease_of_the_last_answer() {
        let mut stream = opened();
        let (mut turn, _) = stream.receive(7, message(2, vec![], &[(0, 3)]), |resource| *resource).expect("the next");
        let mut asked = Vec::new();
        let in_place = |resource: &mut u32, renewal: &Renewal<'_>| {
            assert_eq!((renewal.client, renewal.length), ("a", LENGTH));
            if *resource == 101 { None } else { renewed(65) }
        };
        let more = stream.renew(&mut turn, 10, in_place, |index, resource, ask| asked.push((index, *resource, ask)));
        assert!(!more);
        let [(1, 101, asked)] = &asked[..] else { panic!("{asked:?}") };
        let has = asked.has.expect("it has a lease");
        assert_eq!((has.token, has.capacity, asked.drops_late), (Token::new(2), Amount::clamped(10.0), true));
        stream.answered(&mut turn, 1, Some(&Answer::Granted(lease(9, 4.0))));
        let answer = turn.finish(5);
        assert_eq!((answer.granted, answer.left_out, answer.unix), (vec![(1, lease(9, 4.0))], vec![], 5));
    }

    #[test]
    fn renewals_are_done_in_parts() {
        let mut stream = opened();
        let (mut turn, _) =
            stream.receive(7, message(2, vec![], &[(0, 1), (1, 3)]), |resource| *resource).expect("the next");
        let mut seen = Vec::new();
        let mut parts = 1;
        while stream.renew(
            &mut turn,
            2,
            |resource, _| {
                seen.push(*resource);
                renewed(65)
            },
            |_, _, _| panic!("all are renewed in place"),
        ) {
            parts += 1;
        }
        seen.sort_unstable();
        assert_eq!((seen, parts), (vec![100, 101, 102], 2));
        assert_eq!(turn.finish(0), StreamAnswer { sequence: 2, ..StreamAnswer::default() });
    }

    #[test]
    fn no_message_is_applied_twice_or_out_of_order() {
        for sequence in [0, 1, 3, u64::MAX] {
            let again = opened().receive(7, message(sequence, vec![stated(0, 99.0)], &[]), |resource| *resource);
            assert_eq!(again.err(), Some(Restart::Sequence), "{sequence}");
        }
    }

    #[test]
    fn a_stream_ends_with_the_term_of_its_master() {
        let next = opened().receive(8, message(2, vec![], &[(0, 3)]), |resource| *resource);
        assert_eq!(next.err(), Some(Restart::Term));
    }

    #[test]
    fn entries_that_were_not_stated_cannot_be_named() {
        for unknown in [message(2, vec![], &[(0, 4)]), message(2, vec![stated(4, 1.0)], &[])] {
            assert_eq!(opened().receive(7, unknown, |resource| *resource).err(), Some(Restart::Index));
        }
    }

    #[test]
    fn an_entry_without_a_lease_is_left_out_of_renewals() {
        let mut stream = opened();
        let message_2 = message(2, vec![stated(1, 5.0)], &[]);
        let (mut turn, _) = stream.receive(7, message_2, |resource| *resource).expect("the next");
        stream.answered(&mut turn, 1, Some(&Answer::NotYet));
        assert_eq!(turn.finish(0).left_out, [1]);
        let (mut turn, _) = stream.receive(7, message(3, vec![], &[(0, 2)]), |resource| *resource).expect("the next");
        stream.renew(&mut turn, 10, |_, _| renewed(65), |_, _, _| panic!("it has no lease to name"));
        assert_eq!(turn.finish(0).left_out, [1]);
    }
}
