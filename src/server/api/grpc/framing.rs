//! What gRPC puts before each message.

use bytes::{BufMut as _, Bytes};
use prost::Message;
use tonic::Status;

use super::entries::{EntryCount, LOOKED_AT};

/// Before each message: whether it is compressed, and its length.
pub(super) const PREFIX: usize = 5;

/// A message with its prefix.
pub(super) fn framed<M: Message>(message: &M) -> Bytes {
    let mut framed = Vec::with_capacity(PREFIX + message.encoded_len());
    framed.put_bytes(0, PREFIX);
    message.encode(&mut framed).expect("a vector grows as needed");
    set_length(&mut framed);
    framed.into()
}

/// Of the message behind the prefix, in the prefix.
pub(super) fn set_length(framed: &mut [u8]) {
    let length = framed.len() - PREFIX;
    let length = u32::try_from(length).expect("answers are as long as requests, which are at most 4 GiB");
    framed[1..PREFIX].copy_from_slice(&length.to_be_bytes());
}

pub(super) fn too_long(length: usize, most: usize) -> Status {
    Status::out_of_range(format!(
        "the message is {length} bytes long, this server takes at most {most} (--max-message-bytes raises that)"
    ))
}

/// Where in its messages a body is.
#[derive(Debug, Default)]
pub(super) struct Framing {
    /// The prefix of the next message, as far as it has come.
    prefix: [u8; PREFIX],
    /// How much of it has.
    known: usize,
    /// How much of its message has come, and has not.
    came: usize,
    missing: usize,
    /// Of a message that is worth looking at.
    entries: Option<Box<EntryCount>>,
}

impl Framing {
    /// Takes note of what has come. A message that is too long is one as soon as its length is known.
    pub(super) fn pass(&mut self, mut data: &[u8], most: usize) -> Result<(), Status> {
        while !data.is_empty() {
            if self.known < PREFIX {
                let taken = data.len().min(PREFIX - self.known);
                let (now, later) = data.split_at(taken);
                self.prefix[self.known..][..taken].copy_from_slice(now);
                self.known += taken;
                data = later;
                if self.known < PREFIX {
                    return Ok(());
                }
                let [_, length @ ..] = self.prefix;
                self.missing = u32::from_be_bytes(length) as usize;
                if self.missing > most {
                    return Err(too_long(self.missing, most));
                }
                self.entries = (self.missing > LOOKED_AT).then(Box::default);
            }
            let taken = data.len().min(self.missing);
            let (now, later) = data.split_at(taken);
            if let Some(entries) = &mut self.entries {
                entries.pass(now);
            }
            data = later;
            (self.came, self.missing) = (self.came + taken, self.missing - taken);
            if self.missing == 0 {
                (self.known, self.came) = (0, 0);
            }
        }
        Ok(())
    }

    /// Entries of the message that came last, or comes, if it is long.
    pub(super) fn entries(&self) -> usize {
        self.entries.as_ref().map_or(0, |entries| entries.entries())
    }

    /// Bytes that are kept until the message is complete.
    pub(super) fn pending(&self) -> usize {
        self.known + self.came
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tonic::Code;

    use super::*;

    fn message(length: usize) -> Vec<u8> {
        let mut framed = vec![0];
        framed.extend_from_slice(&(length as u32).to_be_bytes());
        framed.resize(PREFIX + length, b'x');
        framed
    }

    #[test]
    fn a_message_that_is_too_long_is_one_when_its_prefix_has_come() {
        let mut framing = Framing::default();
        let long = message(101);
        framing.pass(&long[..4], 100).expect("its length is not known");
        assert_eq!(framing.pass(&long[4..5], 100).expect_err("it is known now").code(), Code::OutOfRange);
        Framing::default().pass(&message(100), 100).expect("as long as it may be");
    }

    proptest! {
        #[test]
        fn what_is_pending_is_what_came_of_an_incomplete_message(
            lengths in prop::collection::vec(0_usize..50, 1..5), cuts in prop::collection::vec(1_usize..20, 1..50),
        ) {
            let all: Vec<u8> = lengths.iter().flat_map(|length| message(*length)).collect();
            let ends: Vec<usize> = lengths.iter().scan(0, |end, length| {
                *end += PREFIX + length;
                Some(*end)
            }).collect();
            let (mut framing, mut at) = (Framing::default(), 0);
            for cut in cuts.iter().cycle().take(all.len()) {
                let next = (at + cut).min(all.len());
                framing.pass(&all[at..next], 50).expect("none is too long");
                at = next;
                let begin = ends.iter().rev().find(|end| **end <= at).copied().unwrap_or_default();
                prop_assert_eq!(framing.pending(), at - begin);
            }
            prop_assert_eq!((at, framing.pending()), (all.len(), 0));
        }
    }
}
