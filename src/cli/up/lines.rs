//! What several processes say, on one terminal: line by line, each with the name of who says it.

use std::io::{self, IsTerminal as _, Write as _};

use anstyle::{AnsiColor, Style};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};

/// Longer lines are broken, so that nobody who never ends a line makes this process grow.
const LONGEST: u64 = 64 << 10;

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

    /// In one piece, so that lines never mix. Nothing can be done if nobody reads any more: the processes go on.
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

/// Who speaks: its place among all, its name, and the width of the widest name.
#[derive(Debug, Clone)]
pub(super) struct Speaker {
    pub(super) index: usize,
    pub(super) label: String,
    pub(super) width: usize,
}

/// Passes on what a process says until it says no more. `heard` gets each line as it was said.
pub(super) async fn relay(from: impl AsyncRead + Unpin, to: Stream, who: Speaker, heard: impl FnMut(&str)) {
    let prefix = prefix(&who.label, who.width, to.is_colourful().then_some(who.index));
    each_line(from, &prefix, |line| to.write(line.as_bytes()), heard).await;
}

async fn each_line(
    from: impl AsyncRead + Unpin,
    prefix: &str,
    mut write: impl FnMut(&str),
    mut heard: impl FnMut(&str),
) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    // An error is the end: the other side is gone.
    while let Ok(1..) = (&mut from).take(LONGEST).read_until(b'\n', &mut line).await {
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches(['\n', '\r']);
        write(&format!("{prefix}{text}\n"));
        heard(text);
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn said(text: &[u8]) -> (Vec<String>, Vec<String>) {
        let (mut written, mut heard) = (Vec::new(), Vec::new());
        each_line(text, "a | ", |line| written.push(line.to_owned()), |line| heard.push(line.to_owned())).await;
        (written, heard)
    }

    #[tokio::test]
    async fn every_line_has_its_prefix_and_its_end() {
        let (written, heard) = said(b"one\n\ntwo\r\nthree").await;
        assert_eq!(written, ["a | one\n", "a | \n", "a | two\n", "a | three\n"]);
        assert_eq!(heard, ["one", "", "two", "three"]);
        assert_eq!(said(b"").await.0, [""; 0]);
    }

    #[tokio::test]
    async fn what_is_no_text_and_what_never_ends_is_passed_on_all_the_same() {
        assert_eq!(said(b"\xff!\n").await.0, ["a | \u{fffd}!\n"]);
        let long = [b'x'; LONGEST as usize + 1];
        let (written, _) = said(&long).await;
        assert_eq!(written.iter().map(String::len).collect::<Vec<_>>(), [LONGEST as usize + 5, 6]);
    }

    /// Lines arrive in pieces, in any order; each is written whole.
    #[tokio::test]
    async fn lines_of_several_never_mix() {
        let written = std::cell::RefCell::new(Vec::new());
        let (mut a, from_a) = tokio::io::duplex(64);
        let (mut b, from_b) = tokio::io::duplex(64);
        let write = |line: &str| written.borrow_mut().push(line.to_owned());
        let speak = async {
            use tokio::io::AsyncWriteExt as _;
            for (piece_of_a, piece_of_b) in [("he", "good "), ("llo\nmore", "bye\n"), ("\n", "")] {
                a.write_all(piece_of_a.as_bytes()).await.expect("it is read");
                b.write_all(piece_of_b.as_bytes()).await.expect("it is read");
                tokio::task::yield_now().await;
            }
            drop((a, b));
        };
        tokio::join!(each_line(from_a, "a | ", write, |_| ()), each_line(from_b, "b | ", write, |_| ()), speak);
        let mut written = written.into_inner();
        written.sort_unstable();
        assert_eq!(written, ["a | hello\n", "a | more\n", "b | good bye\n"]);
    }

    #[test]
    fn prefixes_line_up_and_are_coloured_only_if_asked() {
        assert_eq!(prefix("a", 6, None), "a      | ");
        assert_eq!(prefix("root/a", 6, None), "root/a | ");
        assert_eq!(prefix("a", 1, Some(0)), "\u{1b}[36ma |\u{1b}[0m ");
        assert_ne!(prefix("a", 1, Some(0)), prefix("a", 1, Some(1)));
        assert_eq!(prefix("a", 1, Some(0)), prefix("a", 1, Some(COLOURS.len())));
    }
}
