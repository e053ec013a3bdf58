//! Secrets that are read from files.

use crate::config::error::ServeError;

/// A file's content, without the line break at its end.
pub(crate) fn read_secret(path: &std::path::Path) -> Result<String, ServeError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| ServeError::Secret { path: path.to_owned(), why: error.to_string() })?;
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() {
        return Err(ServeError::Secret { path: path.to_owned(), why: "it is empty".into() });
    }
    Ok(text.to_owned())
}
