//! What is wrong with a request.

use tonic::Status;

/// What is wrong with a request, or with an entry of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Invalid {
    #[error("{field}: required field is missing")]
    Missing { field: String },
    #[error("{field}: {problem}")]
    Field { field: String, problem: String },
    #[error("{field}: {count} entries, this server takes at most {most} ({flag} raises that)")]
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
