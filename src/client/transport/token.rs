//! Bearer tokens, for authentication without a certificate.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    service::Interceptor,
};

/// Minimum time between two reads of a token file. Requests trigger the reads.
const RELOAD_INTERVAL: Duration = Duration::from_secs(1);

/// A token that is sent with every request. A token from a file is read again when the file changes.
#[derive(Clone)]
pub struct Token(Arc<Source>);

enum Source {
    GrantedLease(MetadataValue<Ascii>),
    File { path: PathBuf, cached: Mutex<TokenFile> },
}

struct TokenFile {
    value: MetadataValue<Ascii>,
    read_at: Instant,
    /// Whether the last error was already logged.
    complained: bool,
}

/// An invalid token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadToken {
    /// The file cannot be read.
    #[error("cannot read the token in {}: {why}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The I/O error.
        why: String,
    },
    /// The token is empty, has several lines, or has invisible characters.
    #[error("{0}: a token is one line of visible ASCII characters")]
    Malformed(String),
}

impl Token {
    /// A fixed token.
    pub fn new(text: &str) -> Result<Token, BadToken> {
        Ok(Token(Arc::new(Source::GrantedLease(header(text, "the token")?))))
    }

    /// A token in a file, which is read again when the file changes.
    pub fn file(path: impl Into<PathBuf>) -> Result<Token, BadToken> {
        let path = path.into();
        let value = read(&path)?;
        let cached = Mutex::new(TokenFile { value, read_at: Instant::now(), complained: false });
        Ok(Token(Arc::new(Source::File { path, cached })))
    }

    fn header(&self) -> MetadataValue<Ascii> {
        match &*self.0 {
            Source::GrantedLease(value) => value.clone(),
            Source::File { path, cached } => cached.lock().unwrap_or_else(PoisonError::into_inner).reload_if_due(path),
        }
    }
}

impl TokenFile {
    /// Keeps the last token if the file cannot be read.
    fn reload_if_due(&mut self, path: &Path) -> MetadataValue<Ascii> {
        if self.read_at.elapsed() >= RELOAD_INTERVAL {
            self.read_at = Instant::now();
            match read(path) {
                Ok(value) => (self.value, self.complained) = (value, false),
                Err(error) => {
                    if !std::mem::replace(&mut self.complained, true) {
                        tracing::warn!("{error}; the previous token stays in use");
                    }
                }
            }
        }
        self.value.clone()
    }
}

fn read(path: &Path) -> Result<MetadataValue<Ascii>, BadToken> {
    let unreadable = |error: std::io::Error| BadToken::Unreadable { file: path.to_owned(), why: error.to_string() };
    // Servers ignore a trailing line break, too.
    header(fs::read_to_string(path).map_err(unreadable)?.trim_end_matches(['\r', '\n']), &path.display().to_string())
}

fn header(token: &str, source: &str) -> Result<MetadataValue<Ascii>, BadToken> {
    // Not every proxy can handle other characters.
    let visible = !token.is_empty() && token.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    let value = visible.then(|| MetadataValue::try_from(format!("Bearer {token}")).ok()).flatten();
    let mut value = value.ok_or_else(|| BadToken::Malformed(source.to_owned()))?;
    // Keeps the token out of logs.
    value.set_sensitive(true);
    Ok(value)
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Adds the token, if any, to every request.
#[derive(Debug, Clone, Default)]
pub struct Bearer(pub Option<Token>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert("authorization", token.header());
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(token: &Token) -> String {
        token.header().to_str().expect("ASCII").to_owned()
    }

    #[test]
    fn a_token_is_one_visible_line_and_is_not_logged() {
        assert_eq!(Token::new("secret").map(|token| sent(&token)).as_deref(), Ok("Bearer secret"));
        for wrong in ["", "a\nb", "\u{e4}", "a\tb"] {
            assert!(Token::new(wrong).is_err_and(|error| error.to_string().contains("one line")), "{wrong:?}");
        }
        assert!(!format!("{:?}", Token::new("secret")).contains("secret"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_file_is_reloaded_and_a_missing_file_keeps_the_token() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("token");
        assert!(Token::file(&file).is_err_and(|error| error.to_string().contains(&file.display().to_string())));
        fs::write(&file, "one\n").expect("written");
        let token = Token::file(&file).expect("a token");
        fs::write(&file, "two\n").expect("written");
        assert_eq!(sent(&token), "Bearer one", "within the reload interval");
        tokio::time::advance(RELOAD_INTERVAL).await;
        assert_eq!(sent(&token), "Bearer two");
        fs::remove_file(&file).expect("deleted");
        tokio::time::advance(RELOAD_INTERVAL).await;
        assert_eq!(sent(&token), "Bearer two");
    }
}
