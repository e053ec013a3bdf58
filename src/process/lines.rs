//! What a process says, line by line.

use std::io::{BufRead as _, BufReader, Read};

/// Longer lines are broken, so that a process that never ends a line does not make this one grow.
const LONGEST: u64 = 64 << 10;

/// Calls `heard` with each line, without its end, until there are no more.
pub(crate) fn each_line(from: impl Read, mut heard: impl FnMut(&str)) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    // An error is the end: the other side is gone.
    while let Ok(1..) = from.by_ref().take(LONGEST).read_until(b'\n', &mut line) {
        heard(String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']));
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &[u8]) -> Vec<String> {
        let mut heard = Vec::new();
        each_line(text, |line| heard.push(line.to_owned()));
        heard
    }

    #[test]
    fn lines_come_without_their_ends() {
        assert_eq!(said(b"one\n\ntwo\r\nthree"), ["one", "", "two", "three"]);
        assert_eq!(said(b""), [""; 0]);
    }

    #[test]
    fn invalid_text_and_a_line_that_never_ends_are_passed_on() {
        assert_eq!(said(b"\xff!\n"), ["\u{fffd}!"]);
        let long = [b'x'; LONGEST as usize + 1];
        assert_eq!(said(&long).iter().map(String::len).collect::<Vec<_>>(), [LONGEST as usize, 1]);
    }
}
