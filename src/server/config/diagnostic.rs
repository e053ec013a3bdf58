//! Mistakes and their positions. All mistakes of a file are reported together, in the order of the file, so that an
//! operator in an incident does not need one attempt per mistake.

use std::{fmt, sync::Arc};

/// Maximum number of mistakes shown. Later ones are only counted: they are often consequences of the first.
const MAX_SHOWN: usize = 50;
/// Maximum number of mistakes kept while parsing, to bound the memory for hostile files.
const MAX_KEPT: usize = 1000;
/// Longer messages are truncated, because they quote the file.
const MAX_MESSAGE: usize = 500;

/// A position in a file. Lines and columns (in characters) start at 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    pub line: usize,
    pub column: usize,
}

impl Position {
    /// The start of the file, for mistakes of the whole file.
    pub(super) const START: Position = Position { line: 1, column: 1 };
}

/// The lengths of the lines of a text. As in YAML, lines end with LF, CR LF or CR.
pub(super) struct Lines(Vec<usize>);

impl Lines {
    pub(super) fn of(text: &str) -> Lines {
        let mut widths = vec![0];
        let mut before = '\n';
        for c in text.chars() {
            match (before, c) {
                ('\r', '\n') => {}
                (_, '\n' | '\r') => widths.push(0),
                _ => *widths.last_mut().expect("there is a first line") += 1,
            }
            before = c;
        }
        Lines(widths)
    }

    /// The position after the last character.
    pub(super) fn end(&self) -> Position {
        Position { line: self.0.len(), column: self.0.last().map_or(1, |width| width + 1) }
    }

    /// The nearest valid position, which is a character or the end of a line.
    pub(super) fn nearest(&self, at: Position) -> Position {
        match self.0.get(at.line.wrapping_sub(1)) {
            Some(width) => Position { line: at.line, column: at.column.min(width + 1) },
            None => self.end(),
        }
    }
}

/// A message about a position in a file. Displayed as `FILE:LINE:COLUMN: message`, which editors understand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    pub file: Arc<str>,
    pub at: Position,
    /// One line.
    pub message: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { line, column } = self.at;
        write!(f, "{}:{line}:{column}: {}", self.file, self.message)
    }
}

/// The mistakes of an invalid configuration. Displayed one per line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// In the order of the file.
    pub diagnostics: Vec<Diagnostic>,
    /// Number of mistakes not in `diagnostics`.
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

/// Collects mistakes and warnings while a file is parsed. Readers continue after a mistake with a substitute; their
/// results are used only if [`Findings::finish`] succeeds.
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

    /// Whether there are mistakes.
    pub(super) fn any(&self) -> bool {
        !self.errors.is_empty()
    }

    /// Adds a mistake. The file will be refused.
    pub fn error(&mut self, at: Position, message: impl AsRef<str>) {
        if self.errors.len() < MAX_KEPT {
            self.errors.push(diagnostic(&self.file, at, message.as_ref()));
        } else {
            self.dropped += 1;
        }
    }

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

/// Sorts by position and removes duplicates, which occur because the target of several aliases is read several times.
fn in_order(mut diagnostics: Vec<Diagnostic>) -> Vec<Diagnostic> {
    diagnostics.sort_by_key(|diagnostic| diagnostic.at);
    diagnostics.dedup();
    diagnostics
}

/// Escapes control characters, because messages quote the file.
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
