//! Mistakes with their places. All of a file's mistakes are collected and shown at once, in the order of the file: an
//! operator who repairs a configuration during an incident should not have to run the server once per mistake.

use std::{fmt, sync::Arc};

/// More mistakes than this are counted, not shown: the rest are hardly read, and often follow from the first ones.
const MAX_SHOWN: usize = 50;
/// More than this are not even kept while reading, so that a hostile file cannot make its list of mistakes larger than
/// itself.
const MAX_KEPT: usize = 1000;
/// Longer messages are cut: they quote the file, and a file may have anything in it.
const MAX_MESSAGE: usize = 500;

/// A place in a file. Lines and columns (in characters) count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    pub line: usize,
    /// The character in the line.
    pub column: usize,
}

impl Position {
    /// Where a file begins, for what is wrong with all of it.
    pub(super) const START: Position = Position { line: 1, column: 1 };
}

/// How long the lines of a text are. They end as YAML says: LF, CR LF or CR.
pub(super) struct Lines(Vec<usize>);

impl Lines {
    pub(super) fn of(text: &str) -> Lines {
        let mut widths = vec![0];
        let mut before = '\n';
        for c in text.chars() {
            match (before, c) {
                ('\r', '\n') => {}
                (_, '\n' | '\r') => widths.push(0),
                _ => *widths.last_mut().expect("it begins with a line") += 1,
            }
            before = c;
        }
        Lines(widths)
    }

    /// Just behind the last character.
    pub(super) fn end(&self) -> Position {
        Position { line: self.0.len(), column: self.0.last().map_or(1, |width| width + 1) }
    }

    /// The nearest place that there is: on a character, or just behind the last one of a line.
    pub(super) fn nearest(&self, at: Position) -> Position {
        match self.0.get(at.line.wrapping_sub(1)) {
            Some(width) => Position { line: at.line, column: at.column.min(width + 1) },
            None => self.end(),
        }
    }
}

/// Something about a configuration file, and where. Displayed as `FILE:LINE:COLUMN: message`, which editors jump to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// The file, as it was named to us.
    pub file: Arc<str>,
    /// Where in the file.
    pub at: Position,
    /// What is the matter, on one line.
    pub message: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { line, column } = self.at;
        write!(f, "{}:{line}:{column}: {}", self.file, self.message)
    }
}

/// A configuration that cannot be used, with everything that is wrong with it. Displayed with one mistake per line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The mistakes, in the order of the file.
    pub diagnostics: Vec<Diagnostic>,
    /// How many more there are.
    pub omitted: usize,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.diagnostics.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{diagnostic}")?;
        }
        if self.omitted > 0 {
            write!(f, "\n... and {} more mistakes", self.omitted)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// What has been found so far while reading a file. Readers go on after a mistake with a substitute for the bad value;
/// their results are not used unless [`Findings::finish`] says that there was no mistake.
pub struct Findings {
    file: Arc<str>,
    errors: Vec<Diagnostic>,
    dropped: usize,
    warnings: Vec<Diagnostic>,
}

impl Findings {
    pub(super) fn new(file: &str) -> Findings {
        Findings { file: file.into(), errors: Vec::new(), dropped: 0, warnings: Vec::new() }
    }

    /// Whether there was a mistake.
    pub(super) fn any(&self) -> bool {
        !self.errors.is_empty()
    }

    /// A mistake: the file will be refused.
    pub fn error(&mut self, at: Position, message: impl AsRef<str>) {
        if self.errors.len() < MAX_KEPT {
            self.errors.push(diagnostic(&self.file, at, message.as_ref()));
        } else {
            self.dropped += 1;
        }
    }

    /// Something the operator should know, though the file can be used.
    pub fn warn(&mut self, at: Position, message: impl AsRef<str>) {
        if self.warnings.len() < MAX_SHOWN {
            self.warnings.push(diagnostic(&self.file, at, message.as_ref()));
        }
    }

    /// The warnings, or all mistakes.
    pub(super) fn finish(self) -> Result<Vec<Diagnostic>, ConfigError> {
        if self.errors.is_empty() {
            return Ok(in_order(self.warnings));
        }
        let mut diagnostics = in_order(self.errors);
        let omitted = diagnostics.len().saturating_sub(MAX_SHOWN) + self.dropped;
        diagnostics.truncate(MAX_SHOWN);
        Err(ConfigError { diagnostics, omitted })
    }
}

/// By position. What is reached through several YAML aliases is read several times, but its mistakes are told once.
fn in_order(mut diagnostics: Vec<Diagnostic>) -> Vec<Diagnostic> {
    diagnostics.sort_by_key(|diagnostic| diagnostic.at);
    diagnostics.dedup();
    diagnostics
}

/// Messages quote the file; control characters in them must not reach a terminal or break the one line.
fn diagnostic(file: &Arc<str>, at: Position, message: &str) -> Diagnostic {
    let mut shown = String::with_capacity(message.len().min(MAX_MESSAGE));
    for (count, c) in message.chars().enumerate() {
        if count == MAX_MESSAGE {
            shown.push('…');
            break;
        }
        if c.is_control() {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    Diagnostic { file: file.clone(), at, message: shown }
}
