//! The resource id of a descriptor or a bucket: `domain/key=value,key=value`.
//!
//! Callers choose keys and values. Separators (`/`, `,`, `=`), escape characters (`%`, `~`) and control characters are
//! percent-encoded, so that different descriptors never have the same id. `*` and `\` are encoded, too: a template
//! whose pattern is the text of an id would apply to it before all others. The `*` of a template's pattern does not
//! match the `/` after the domain. All other characters are unchanged.
//!
//! Servers limit the length of ids. A longer id is cut, and ends with `~` and a digest of the whole id. The result is
//! deterministic, and patterns still match its domain and first key.

use ring::digest::{SHA256, digest};

/// The default of `--max-id-bytes` of servers.
pub const MAX_BYTES: usize = 256;

/// The length of a digest in hexadecimal.
const DIGEST: usize = 64;

/// The number of bytes that a shortened id keeps.
const KEPT: usize = MAX_BYTES - DIGEST - 1;

/// Overwrites `id` with the id for these entries. Their order matters, so protocols without an order sort them first.
pub fn write<'e>(id: &mut String, domain: &str, entries: impl IntoIterator<Item = (&'e str, &'e str)>) {
    write_marked(id, domain, "", entries);
}

/// As [`write`], with a text before the entries that is not escaped. A `~` in it keeps these ids apart from all others.
pub fn write_marked<'e>(
    id: &mut String,
    domain: &str,
    mark: &str,
    entries: impl IntoIterator<Item = (&'e str, &'e str)>,
) {
    id.clear();
    escape(id, domain);
    let mut separator = '/';
    if !mark.is_empty() {
        id.push(separator);
        id.push_str(mark);
        separator = ',';
    }
    for (key, value) in entries {
        id.push(separator);
        escape(id, key);
        id.push('=');
        escape(id, value);
        separator = ',';
    }
    if id.len() > MAX_BYTES {
        shorten(id);
    }
}

/// Like [`write`], into a new string.
pub fn of<'e>(domain: &str, entries: impl IntoIterator<Item = (&'e str, &'e str)>) -> String {
    let mut id = String::new();
    write(&mut id, domain, entries);
    id
}

fn escape(id: &mut String, text: &str) {
    let mut plain = 0;
    for (at, c) in text.char_indices() {
        if !is_escaped(c) {
            continue;
        }
        id.push_str(&text[plain..at]);
        plain = at + c.len_utf8();
        for byte in text[at..plain].bytes() {
            id.push('%');
            id.extend([byte >> 4, byte & 0xf].map(digit));
        }
    }
    id.push_str(&text[plain..]);
}

fn is_escaped(c: char) -> bool {
    matches!(c, '/' | ',' | '=' | '%' | '~' | '*' | '\\') || c.is_control()
}

fn digit(half: u8) -> char {
    char::from_digit(half.into(), 16).unwrap_or('0').to_ascii_uppercase()
}

#[cold]
fn shorten(id: &mut String) {
    let whole = digest(&SHA256, id.as_bytes());
    let kept = (0..=KEPT).rev().find(|at| id.is_char_boundary(*at)).unwrap_or(0);
    id.truncate(kept);
    id.push('~');
    id.extend(whole.as_ref().iter().flat_map(|byte| [byte >> 4, byte & 0xf]).map(digit));
}

/// A pattern for templates that matches only the escaped `text`.
pub fn pattern(text: &str) -> String {
    let mut escaped = String::new();
    escape(&mut escaped, text);
    let mut pattern = String::new();
    for c in escaped.chars() {
        if matches!(c, '?' | '[') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use leaseway_core::types::Glob;

    use super::*;

    #[test]
    fn an_id_has_the_entries_in_order() {
        assert_eq!(of("shop", [("user", "ann"), ("path", "")]), "shop/user=ann,path=");
        assert_eq!(of("shop", []), "shop");
        assert_eq!(of("größe", [("k", "世界 ?[")]), "größe/k=世界 ?[");
    }

    #[test]
    fn separators_and_escapes_are_escaped() {
        assert_eq!(of("a/b", [("k=", "x,y%~\n")]), "a%2Fb/k%3D=x%2Cy%25%7E%0A");
        assert_eq!(of("d", [("k", "a*\\")]), "d/k=a%2A%5C");
        assert_eq!(of("d", [("k", "\u{85}")]), "d/k=%C2%85", "all bytes of a character are escaped");
        let pairs = [
            (of("d", [("a", "b,c=d")]), of("d", [("a", "b"), ("c", "d")])),
            (of("d", [("a", "%2C")]), of("d", [("a", ",")])),
            (of("d/a=b", [("c", "d")]), of("d", [("a=b/c", "d")])),
        ];
        for (one, other) in pairs {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn long_ids_are_shortened_and_still_differ() {
        let long = "é".repeat(500);
        let (one, other) = (of("d", [("k", &*long)]), of("d", [("k", &*format!("{long}x"))]));
        assert_ne!(one, other);
        assert!(one.len() <= MAX_BYTES && other.len() <= MAX_BYTES && one.starts_with("d/k=é"), "{one}");
        assert_eq!(one, of("d", [("k", &*long)]), "the same each time");
        assert_ne!(
            one,
            of("d", [("k", one.strip_prefix("d/k=").expect("the prefix"))]),
            "a shortened id cannot be sent as a value"
        );
        let exact = "x".repeat(MAX_BYTES - "d/k=".len());
        assert!(of("d", [("k", &*exact)]).ends_with(&exact));
    }

    #[test]
    fn a_pattern_matches_the_id_of_its_text_only() {
        for text in ["plain", "a*b", "[x]?", "back\\slash", "a/b=c,d"] {
            let id = of("d", [("k", text)]);
            let glob = Glob::new(&format!("d/k={}", pattern(text))).expect("a pattern");
            assert!(glob.matches(&id), "{text}");
            assert!(!glob.matches("d/k=aXb") && !glob.matches("d/k=x"), "{text}");
        }
    }
}
