//! Escapes text from clients for terminals, logs and pages.
//!
//! An id may contain any character. Characters that move a cursor, begin a line, change the direction of writing or are
//! invisible are escaped as in JSON (`\n`, `\u001b`, `\u202e`). So escaping a JSON string keeps it valid.

use std::{borrow::Cow, fmt::Write as _};

/// `text` on one line, with control and invisible characters escaped.
pub fn escaped(text: &str) -> Cow<'_, str> {
    escape(text, |_| false)
}

/// As [`escaped`], but line breaks stay.
pub fn escaped_lines(text: &str) -> Cow<'_, str> {
    escape(text, |c| c == '\n')
}

fn escape(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_escaped = |c: char| is_unseen(c) && !stays(c);
    let Some(first) = text.find(is_escaped) else { return Cow::Borrowed(text) };
    let mut escaped = text[..first].to_owned();
    for c in text[first..].chars() {
        match c {
            c if !is_escaped(c) => escaped.push(c),
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            '\t' => escaped.push_str("\\t"),
            c => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(escaped, "\\u{unit:04x}").expect("writing to a string cannot fail");
                }
            }
        }
    }
    Cow::Owned(escaped)
}

/// Whether a character is a control character, or one that Unicode uses for direction, joining, width or tags.
fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}' | '\u{3164}' | '\u{115f}'..='\u{1160}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_characters_stay_as_they_are() {
        for text in ["", "mysql", "we\"ird\\ <b>", "grüße, 世界 👍"] {
            assert!(matches!(escaped(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }

    #[test]
    fn control_and_invisible_characters_are_escaped() {
        for (text, seen) in [
            ("\u{1b}[2J", "\\u001b[2J"),
            ("a\nb\r\tc", "a\\nb\\r\\tc"),
            ("\u{7f}\u{9b}31m", "\\u007f\\u009b31m"),
            ("a\u{202e}b\u{200b}", "a\\u202eb\\u200b"),
            ("\u{e0041}", "\\udb40\\udc41"),
        ] {
            assert_eq!(escaped(text), seen);
        }
        assert_eq!(escaped_lines("a\n\u{1b}b\r\n"), "a\n\\u001bb\\r\n");
    }

    #[test]
    fn escaped_json_has_the_same_meaning() {
        let id = "\u{1b}\n\u{202e}\u{e0041}\u{9b}";
        let json = serde_json::to_string(id).expect("a string");
        let back: String = serde_json::from_str(&escaped(&json)).expect("it is JSON still");
        assert_eq!(back, id);
    }
}
