//! What several processes say, on one terminal: line by line, each with the name of its process.

use std::io::{self, IsTerminal as _, Write as _};

use anstyle::{AnsiColor, Style};
use leaseway_core::escaped;

/// Easily told apart, on dark and on light.
const COLOURS: [AnsiColor; 6] =
    [AnsiColor::Cyan, AnsiColor::Yellow, AnsiColor::Green, AnsiColor::Magenta, AnsiColor::Blue, AnsiColor::Red];

/// Where lines go: each process's own two streams stay two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Output,
    Errors,
}

impl Stream {
    fn is_colourful(self) -> bool {
        // See no-color.org.
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        wanted
            && match self {
                Stream::Output => io::stdout().is_terminal(),
                Stream::Errors => io::stderr().is_terminal(),
            }
    }

    /// In one piece, so that lines never mix. A reader that has gone away is ignored: the processes go on.
    fn write(self, line: &[u8]) {
        let _ = match self {
            Stream::Output => io::stdout().lock().write_all(line),
            Stream::Errors => io::stderr().lock().write_all(line),
        };
    }
}

/// In front of every line of a process: its name, as wide as the widest.
pub(super) fn prefix(label: &str, width: usize, colour: Option<usize>) -> String {
    let style = colour.map_or_else(Style::new, |index| COLOURS[index % COLOURS.len()].on_default());
    format!("{style}{label:<width$} |{style:#} ")
}

/// A process that speaks: its place among all, its name, and the width of the widest name.
#[derive(Debug)]
pub(super) struct Speaker {
    pub(super) index: usize,
    pub(super) label: String,
    pub(super) width: usize,
}

impl Speaker {
    /// What passes on a line of it.
    pub(super) fn passes_on(&self, to: Stream) -> impl FnMut(&str) + Send + 'static {
        let prefix = prefix(&self.label, self.width, to.is_colourful().then_some(self.index));
        // What a process says is escaped by itself, unless it fails in an unforeseen way.
        move |line| to.write(format!("{prefix}{}\n", escaped(line)).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_line_up_and_are_coloured_only_if_asked() {
        assert_eq!(prefix("a", 6, None), "a      | ");
        assert_eq!(prefix("root/a", 6, None), "root/a | ");
        assert_eq!(prefix("a", 1, Some(0)), "\u{1b}[36ma |\u{1b}[0m ");
        assert_ne!(prefix("a", 1, Some(0)), prefix("a", 1, Some(1)));
        assert_eq!(prefix("a", 1, Some(0)), prefix("a", 1, Some(COLOURS.len())));
    }
}
