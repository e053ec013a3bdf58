//! The resource that a descriptor or a bucket means: `domain/key=value,key=value`.
//!
//! Keys and values are what strangers send. What has a meaning in an id (`/`, `,`, `=`), what begins an escape (`%`,
//! `~`) and control characters are written as `%` and two digits for each byte, so that two different descriptors never
//! mean the same resource, and a template's pattern says what it seems to: its `*` does not cross the `/` behind the
//! domain, and everything else stands as it was sent.
//!
//! Ids are bounded by the servers. Of a longer one the beginning is kept, and the rest stands as a digest behind `~`:
//! it is still the same resource each time, and a pattern still finds it by its domain and first key.

use ring::digest::{SHA256, digest};

/// As the servers have it.
pub const MAX_BYTES: usize = 256;

/// Of a digest, in hexadecimal.
const DIGEST: usize = 64;

/// What is kept of a longer one.
const KEPT: usize = MAX_BYTES - DIGEST - 1;

/// Writes the resource of these entries into `id`, in the place of what is there. The order of the entries counts: a
/// protocol in which it has no meaning sorts them first.
pub fn write<'e>(id: &mut String, domain: &str, entries: impl IntoIterator<Item = (&'e str, &'e str)>) {
    id.clear();
    escape(id, domain);
    let mut separator = '/';
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

/// As [`write`], into a new string.
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
    matches!(c, '/' | ',' | '=' | '%' | '~') || c.is_control()
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

/// A template's pattern that matches what [`write`] makes of a text, and nothing else.
pub fn pattern(text: &str) -> String {
    let mut escaped = String::new();
    escape(&mut escaped, text);
    let mut pattern = String::new();
    for c in escaped.chars() {
        if matches!(c, '*' | '?' | '[' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use leaseway_core::Glob;

    use super::*;

    #[test]
    fn an_id_says_what_was_sent_in_its_order() {
        assert_eq!(of("shop", [("user", "ann"), ("path", "")]), "shop/user=ann,path=");
        assert_eq!(of("shop", []), "shop");
        assert_eq!(of("größe", [("k", "世界 *?[")]), "größe/k=世界 *?[");
    }

    #[test]
    fn what_has_a_meaning_in_an_id_is_escaped() {
        assert_eq!(of("a/b", [("k=", "x,y%~\n")]), "a%2Fb/k%3D=x%2Cy%25%7E%0A");
        assert_eq!(of("d", [("k", "\u{85}")]), "d/k=%C2%85", "all bytes of a character");
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
    fn an_id_is_never_too_long_and_still_its_own() {
        let long = "é".repeat(500);
        let (one, other) = (of("d", [("k", &*long)]), of("d", [("k", &*format!("{long}x"))]));
        assert_ne!(one, other);
        assert!(one.len() <= MAX_BYTES && other.len() <= MAX_BYTES && one.starts_with("d/k=é"), "{one}");
        assert_eq!(one, of("d", [("k", &*long)]), "the same each time");
        assert_ne!(
            one,
            of("d", [("k", one.strip_prefix("d/k=").expect("it begins so"))]),
            "it cannot be said outright"
        );
        let exact = "x".repeat(MAX_BYTES - "d/k=".len());
        assert!(of("d", [("k", &*exact)]).ends_with(&exact));
    }

    #[test]
    fn a_pattern_of_a_text_matches_its_id_alone() {
        for text in ["plain", "a*b", "[x]?", "back\\slash", "a/b=c,d"] {
            let id = of("d", [("k", text)]);
            let glob = Glob::new(&format!("d/k={}", pattern(text))).expect("a pattern");
            assert!(glob.matches(&id), "{text}");
            assert!(!glob.matches("d/k=aXb") && !glob.matches("d/k=x"), "{text}");
        }
    }
}
