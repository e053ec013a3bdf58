//! Invalid requests, and problems of single entries in a request that is answered.
//!
//! A request is refused as a whole only if its client id, a required field or the message itself is invalid. Doorman's
//! Go client repeats a failed request unchanged until it succeeds, so an entry that can never be answered must not
//! block the others. Such an entry is left out of the answer, or answered from what is known about its holder, and the
//! answer carries a `Problem`.

use leaseway_core::types::escaped;
use leaseway_proto::doorman::Problem;
use tonic::Status;

use crate::observe::{
    logging::Throttle,
    metrics::{self, Reason},
    refusals::Refusals,
};

/// Maximum number of problems in an answer; metrics count all.
const MAX_PROBLEMS: usize = 100;
/// Longer ids are truncated in logs and answers.
const ID_BYTES: usize = 256;

/// Why a request, or an entry of it, is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Invalid {
    #[error("{field}: required field is missing")]
    Missing { field: String },
    #[error("{field}: {problem}")]
    Field { field: String, problem: String },
    #[error("{field}: {count} entries, but this server takes at most {most}: raise its {flag}")]
    TooMany { field: String, count: usize, most: usize, flag: &'static str },
}

impl From<Invalid> for Status {
    fn from(invalid: Invalid) -> Status {
        Status::invalid_argument(invalid.to_string())
    }
}

pub(super) fn invalid(field: impl Into<String>, problem: impl Into<String>) -> Invalid {
    Invalid::Field { field: field.into(), problem: problem.into() }
}

pub(super) fn required<T>(value: Option<T>, field: impl FnOnce() -> String) -> Result<T, Invalid> {
    value.ok_or_else(|| Invalid::Missing { field: field() })
}

/// Problems with the entries of one request.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    /// The client that has sent the request. Empty if there is no problem.
    client: String,
    problems: Vec<Problem>,
    /// The resource of the first entry that came too soon.
    too_soon: Option<String>,
}

impl Problems {
    /// Counts a problem, logs it, and keeps it for the answer.
    #[cold]
    pub(super) fn note(&mut self, reason: Reason, client: &str, resource: &str, message: &str) {
        metrics::entry_has_problem(reason);
        let resource = cut(resource, ID_BYTES);
        match reason {
            // Part of normal operation. Those that came too soon are counted, and listed in the audit log.
            Reason::NotYet => {}
            Reason::TooSoon => {
                self.too_soon.get_or_insert_with(|| resource.to_owned());
            }
            _ => warn(reason, client, resource, message),
        }
        if self.client.is_empty() {
            self.client = cut(client, ID_BYTES).to_owned();
        }
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(Problem {
                resource_id: Some(resource.to_owned()),
                reason: Some(reason.name().to_owned()),
                message: Some(message.to_owned()),
            });
        }
    }

    /// Unwraps a parsed value. An invalid one becomes a problem and `None`, a missing required field an error.
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
        self.problems
    }

    /// The first client that asked too soon, and its resource.
    pub(super) fn too_soon(&self) -> Option<(&str, &str)> {
        self.too_soon.as_ref().map(|resource| (&*self.client, &**resource))
    }

    /// Counts the refused entries by client, for the pages.
    #[inline]
    pub(super) fn count(&self, refusals: &Refusals) {
        // Part of normal operation: waiting for the parent, and requests that ask for what is not due along with the
        // rest.
        let is_normal = |reason: &str| [Reason::NotYet, Reason::TooSoon].iter().any(|normal| normal.name() == reason);
        for problem in self.problems.iter().filter(|problem| !is_normal(problem.reason())) {
            refusals.add(&self.client, problem.resource_id(), problem.reason());
        }
    }
}

/// Truncates a text at a character boundary.
fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    &text[..end]
}

static LOG: Throttle = Throttle::new();

/// Logs a problem. Ids are untrusted, so they are truncated and escaped.
fn warn(reason: Reason, client: &str, resource: &str, message: &str) {
    let Some(suppressed) = LOG.turn() else { return };
    let (client, resource, message) = (escaped(cut(client, ID_BYTES)), escaped(resource), escaped(message));
    let reason = reason.name();
    tracing::warn!(%client, %resource, reason, suppressed, "problem with a request entry: {message}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_in_an_answer_are_bounded() {
        let mut problems = Problems::default();
        for _ in 0..10 * MAX_PROBLEMS {
            problems.note(Reason::BadId, "c", &"ü".repeat(ID_BYTES), "is too long");
        }
        let problems = problems.into_wire();
        assert_eq!(problems.len(), MAX_PROBLEMS);
        assert_eq!(problems[0].resource_id(), "ü".repeat(ID_BYTES / 2));
        assert_eq!(cut("aü", 2), "a");
        assert_eq!(cut("aü", 3), "aü");
    }
}
