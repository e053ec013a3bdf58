//! Streams of renewals. The real transport keeps the order of messages on a stream and loses none. Here they are
//! delayed, duplicated and lost as all others, so the state machines are tested with more than they meet.

use std::sync::Arc;

use leaseway_client::session::{StreamReply, StreamRequest, Wants as Asked};
use leaseway_core::{
    engine::stream::{Message, Statement, Stream, StreamAnswer},
    resource::{Answer, Ask, Renewal, Request, invariant::Violation},
    types::Sum,
};

use crate::{
    client::Client,
    network::message::{Participant, ReplyBody, Sender, StreamMessage, given},
    node::OpenStream,
    simulation::{Simulation, nodes::while_packed},
};

impl Simulation<'_> {
    pub(crate) fn stream_message(&mut self, received: StreamMessage) -> Result<(), Violation> {
        let StreamMessage { from, node: index, peer, name, message } = received;
        let (Participant::Client(client), Some(number)) = (from.participant, from.stream) else { return Ok(()) };
        let number = (from.incarnation, number);
        let node = &mut self.nodes[index];
        let is_master = node.master.as_ref().is_some_and(|master| master.peer == peer);
        if !is_master {
            let what = ReplyBody::Redirect(node.master.as_ref().map(|master| master.peer));
            self.reply(index, from, what);
            return Ok(());
        }
        let term = u64::from(node.incarnation);
        let newest = node.streams.get(&client).map(|open| open.number);
        if newest.is_some_and(|newest| number < newest) {
            // The connection of an older stream was closed.
            return Ok(());
        }
        if message.sequence == 1 && newest.is_none_or(|newest| newest < number) {
            let stream = Stream::new(name, false, term);
            node.streams.insert(client, OpenStream { number, stream, turn: None });
        }
        let known = node.streams.get_mut(&client).filter(|open| open.number == number);
        let begun = known.and_then(|open| open.stream.receive(term, message, |()| ()).ok());
        let Some((turn, stated)) = begun else {
            node.streams.get_mut(&client).into_iter().for_each(|open| open.stream = Stream::new("".into(), false, 0));
            self.reply(index, from, ReplyBody::Stream(None));
            return Ok(());
        };
        if let Some(open) = node.streams.get_mut(&client) {
            open.turn = Some((from.number, turn));
        }
        let mut asks: Vec<Ask> = stated.into_iter().map(|statement| statement.ask).collect();
        asks.extend(self.renew_in_place(index, client));
        let is_done = asks.is_empty();
        for ask in asks {
            let Some(master) = &mut self.nodes[index].master else { continue };
            let ticket = master.checks.arrived(from, Sum::ZERO);
            self.input(index, |engine, moment, buffers| {
                buffers.batch.push(Request::Ask(ask), ticket);
                engine.run_round(moment, &mut buffers.batch, &mut buffers.effects);
            })?;
        }
        if is_done {
            self.finish_stream(index, from);
        }
        Ok(())
    }

    /// Renews what the current message renews. Returns the requests that need a round.
    fn renew_in_place(&mut self, index: usize, client: usize) -> Vec<Ask> {
        let (clock, keeps_notes) = (self.clock(), self.pools.is_some());
        let node = &mut self.nodes[index];
        let (Some(open), Some(master)) = (node.streams.get_mut(&client), &mut node.master) else { return Vec::new() };
        let Some((_, turn)) = &mut open.turn else { return Vec::new() };
        let mut renewals = 0;
        let mut asks = Vec::new();
        let in_place = |(): &mut (), renewal: &Renewal<'_>| {
            let renewed =
                while_packed(master, clock, keeps_notes, |packed| packed.renew(renewal, clock, true)).flatten();
            renewals += u64::from(renewed.is_some());
            renewed
        };
        open.stream.renew(turn, 1, in_place, |_, (), ask| asks.push(ask));
        self.renewals += renewals;
        asks
    }

    /// Adds the answer to the only entry of a stream, and sends the answer to the message.
    pub(crate) fn answer_stream(&mut self, index: usize, from: Sender, answer: &Answer) {
        let Participant::Client(client) = from.participant else { return };
        let known = self.nodes[index].streams.get_mut(&client);
        if let Some(OpenStream { number, stream, turn: Some((answered, turn)) }) = known
            && Some(*number) == from.stream.map(|stream| (from.incarnation, stream))
            && *answered == from.number
        {
            stream.answered(turn, 0, Some(answer));
            self.finish_stream(index, from);
        }
    }

    fn finish_stream(&mut self, index: usize, from: Sender) {
        let (unix, Participant::Client(client)) = (self.clock().unix, from.participant) else { return };
        let turn = self.nodes[index].streams.get_mut(&client).and_then(|open| open.turn.take());
        if let Some((_, turn)) = turn {
            self.reply(index, from, ReplyBody::Stream(Some(turn.finish(unix))));
        }
    }
}

/// Converts a message of a client to the form in which it is sent.
pub(crate) fn message(
    client: &Client,
    from: Sender,
    node: usize,
    peer: u8,
    request: StreamRequest<Asked>,
) -> StreamMessage {
    let StreamRequest { stream, sequence, stated, renewed } = request;
    let state = |(index, ask)| Statement { index, resource: (), ask: client.ask(&ask) };
    let message = Message { sequence, stated: stated.into_iter().map(state).collect(), renewed };
    StreamMessage { from: Sender { stream: Some(stream), ..from }, node, peer, name: Arc::clone(&client.name), message }
}

/// Converts an answer on a stream to the form in which a client reads it.
pub(crate) fn reply(resource: &Arc<str>, answer: Option<&StreamAnswer>) -> StreamReply {
    let Some(answer) = answer else { return StreamReply { restart: true, ..StreamReply::default() } };
    let granted = answer.granted.iter().map(|(index, lease)| (*index, given(resource, lease)));
    StreamReply { unix: answer.unix, granted: granted.collect(), left_out: answer.left_out.clone(), restart: false }
}
