//! Problems of single entries of a request that is answered all the same.
//!
//! A request is refused as a whole only for what concerns all of it: its client id, a field that every encoder fills
//! in, the message itself. Doorman's Go client repeats a request that failed, to the byte, until it is answered, and
//! does nothing else meanwhile: an entry that can never be answered must not stand in the way of the others. It is left
//! out, or answered by what is known of its holder, and the answer says so.

use leaseway_core::escaped;
use leaseway_proto::doorman::Problem;

use super::invalid::Invalid;
use crate::observe::{
    logging::Throttle,
    metrics::{self, Reason},
};

/// The most problems in an answer; all are counted.
const MAX_PROBLEMS: usize = 100;
/// The longest part of an id that is shown.
const ID_BYTES: usize = 256;

/// What is wrong with entries of one request.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    told: Vec<Problem>,
    /// The first client that has asked again too soon, and for what.
    too_soon: Option<(String, String)>,
}

impl Problems {
    /// Counts a problem with what `client` says about a resource, writes it into the log, and keeps it for the answer.
    #[cold]
    pub(super) fn note(&mut self, reason: Reason, client: &str, resource: &str, message: &str) {
        metrics::entry_has_problem(reason);
        let resource = cut(resource, ID_BYTES);
        match reason {
            // In normal operation.
            Reason::NotYet => {}
            Reason::TooSoon => {
                self.too_soon.get_or_insert_with(|| (cut(client, ID_BYTES).to_owned(), resource.to_owned()));
                warn(&HASTY, reason, client, resource, message);
            }
            _ => warn(&LOGGED, reason, client, resource, message),
        }
        if self.told.len() < MAX_PROBLEMS {
            self.told.push(Problem {
                resource_id: Some(resource.to_owned()),
                reason: Some(reason.name().to_owned()),
                message: Some(message.to_owned()),
            });
        }
    }

    /// What was read; nothing, and a note, if it makes no sense. What every encoder fills in, and is missing, is wrong
    /// with the request.
    #[inline]
    pub(super) fn check<T>(
        &mut self,
        reason: Reason,
        client: &str,
        resource: &str,
        read: Result<T, Invalid>,
    ) -> Result<Option<T>, Invalid> {
        match read {
            Ok(read) => Ok(Some(read)),
            Err(invalid) => self.note_invalid(reason, client, resource, invalid),
        }
    }

    #[cold]
    fn note_invalid<T>(
        &mut self,
        reason: Reason,
        client: &str,
        resource: &str,
        invalid: Invalid,
    ) -> Result<Option<T>, Invalid> {
        if matches!(invalid, Invalid::Missing { .. }) {
            return Err(invalid);
        }
        self.note(reason, client, resource, &invalid.to_string());
        Ok(None)
    }

    pub(super) fn into_wire(self) -> Vec<Problem> {
        self.told
    }

    /// The first client that has asked again too soon, and for what.
    pub(super) fn too_soon(&self) -> Option<(&str, &str)> {
        self.too_soon.as_ref().map(|(client, resource)| (&**client, &**resource))
    }
}

/// The beginning of a text, in whole characters.
fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    &text[..end]
}

static LOGGED: Throttle = Throttle::new();
/// Of clients that ask too soon, which may be many, so that they hide no other problem.
static HASTY: Throttle = Throttle::new();

/// Ids are untrusted: they are cut and escaped.
fn warn(throttle: &Throttle, reason: Reason, client: &str, resource: &str, message: &str) {
    let Some(unsaid) = throttle.turn() else { return };
    let (client, resource, message) = (escaped(cut(client, ID_BYTES)), escaped(resource), escaped(message));
    let reason = reason.name();
    tracing::warn!(%client, %resource, reason, unsaid, "an entry of a request has a problem: {message}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_bounded() {
        let mut problems = Problems::default();
        for _ in 0..10 * MAX_PROBLEMS {
            problems.note(Reason::BadId, "c", &"ü".repeat(ID_BYTES), "is too long");
        }
        let told = problems.into_wire();
        assert_eq!(told.len(), MAX_PROBLEMS);
        assert_eq!(told[0].resource_id(), "ü".repeat(ID_BYTES / 2));
        assert_eq!(cut("aü", 2), "a");
        assert_eq!(cut("aü", 3), "aü");
    }

    #[test]
    fn every_reason_has_a_word_of_its_own() {
        let words: std::collections::BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(words.len(), Reason::ALL.len());
        assert!(
            Reason::ALL.iter().enumerate().all(|(at, reason)| *reason as usize == at),
            "counters are found by place"
        );
    }
}
