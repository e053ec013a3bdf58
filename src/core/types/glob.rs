//! The shell patterns of resource templates, exactly as Doorman reads them (Go's `filepath.Match`): `*` and `?` do not
//! match `/`, `[a-z]` and `[^a-z]` are classes, `\` takes the next character literally, all other characters match
//! themselves. One exception: a lone `*` matches every id, also those with `/`, on which the Go server crashed.
//!
//! Glob libraries differ in just these points (`**`, `{a,b}`, `[!a]`). A template that matched other ids than under
//! Doorman would grant the wrong capacity.

/// A pattern that has been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob {
    parts: Vec<GlobPart>,
    everything: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum GlobPart {
    Literal(char),
    /// One character, not `/`.
    Any,
    /// Any number of characters, not `/`.
    Star,
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GlobError {
    #[error("`[` is never closed by `]`")]
    UnclosedClass,
    #[error(
        "invalid character class: expected characters or ranges, like `[a-z]`; write `\\-` or `\\]` to match `-` or `]`"
    )]
    BadClass,
    #[error("`\\` at the end escapes no character; write `\\\\` for a backslash")]
    TrailingBackslash,
}

impl Glob {
    pub fn new(pattern: &str) -> Result<Glob, GlobError> {
        let mut parts = Vec::new();
        let mut chars = pattern.chars().peekable();
        while let Some(c) = chars.next() {
            parts.push(match c {
                '*' if parts.last() == Some(&GlobPart::Star) => continue,
                '*' => GlobPart::Star,
                '?' => GlobPart::Any,
                '\\' => GlobPart::Literal(chars.next().ok_or(GlobError::TrailingBackslash)?),
                '[' => class(&mut chars)?,
                literal => GlobPart::Literal(literal),
            });
        }
        Ok(Glob { parts, everything: pattern == "*" })
    }

    /// Whether it is the lone `*`.
    pub fn matches_everything(&self) -> bool {
        self.everything
    }

    /// The text that everything it matches begins with.
    pub(crate) fn literal_prefix(&self) -> String {
        let literal = |part: &GlobPart| if let GlobPart::Literal(c) = part { Some(*c) } else { None };
        self.parts.iter().map_while(literal).collect()
    }

    /// Whether `outer` matches everything that it matches, as far as this is easy to see: `outer` is a lone `*`, is
    /// equal, ends with its only wildcard `*`, or this pattern has no wildcards.
    pub fn is_within(&self, outer: &Glob) -> bool {
        if outer.everything || self.parts == outer.parts {
            return outer.everything || !self.everything;
        }
        let literal = self.literal_prefix();
        if literal.chars().count() == self.parts.len() {
            return outer.matches(&literal);
        }
        let Some((GlobPart::Star, prefix)) = outer.parts.split_last() else { return false };
        let is_literal = prefix.iter().all(|part| matches!(part, GlobPart::Literal(_)));
        // The `*` of `outer` does not match `/`.
        let stays = |rest: &[GlobPart]| rest.iter().all(|part| !part.takes('/'));
        !self.everything && is_literal && self.parts.strip_prefix(prefix).is_some_and(stays)
    }

    /// Whether it matches the whole of `text`. The time is at worst proportional to the product of the lengths.
    pub fn matches(&self, text: &str) -> bool {
        if self.everything {
            return true;
        }
        // The position in the text in bytes, always between two characters.
        let (mut part, mut at) = (0, 0);
        let char_at = |at: usize| text[at..].chars().next();
        // Where to continue if the rest does not match: after the last star, which then takes one character more. Going
        // back to earlier stars cannot help, for they cannot cross a `/` that the last one could not cross.
        let mut retry: Option<(usize, usize)> = None;
        loop {
            match self.parts.get(part) {
                Some(GlobPart::Star) => {
                    retry = Some((part, at));
                    part += 1;
                    continue;
                }
                Some(one) if char_at(at).is_some_and(|c| one.takes(c)) => {
                    part += 1;
                    at += char_at(at).map_or(0, char::len_utf8);
                    continue;
                }
                None if at == text.len() => return true,
                _ => {}
            }
            let Some((star, from)) = retry else { return false };
            let Some(taken) = char_at(from).filter(|c| *c != '/') else { return false };
            at = from + taken.len_utf8();
            part = star + 1;
            retry = Some((star, at));
        }
    }
}

impl GlobPart {
    fn takes(&self, c: char) -> bool {
        match self {
            GlobPart::Literal(literal) => *literal == c,
            GlobPart::Any => c != '/',
            GlobPart::Class { negated, ranges } => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *negated
            }
            GlobPart::Star => false,
        }
    }
}

fn class(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<GlobPart, GlobError> {
    let negated = chars.next_if_eq(&'^').is_some();
    let mut ranges = Vec::new();
    loop {
        if !ranges.is_empty() && chars.next_if_eq(&']').is_some() {
            return Ok(GlobPart::Class { negated, ranges });
        }
        let low = class_char(chars)?;
        let high = if chars.next_if_eq(&'-').is_some() { class_char(chars)? } else { low };
        ranges.push((low, high));
    }
}

fn class_char(chars: &mut impl Iterator<Item = char>) -> Result<char, GlobError> {
    match chars.next() {
        None => Err(GlobError::UnclosedClass),
        Some('-' | ']') => Err(GlobError::BadClass),
        Some('\\') => chars.next().ok_or(GlobError::UnclosedClass),
        Some(c) => Ok(c),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn matches_as_go_does() {
        for (pattern, text, expected) in [
            ("*", "a/b/c", true),
            ("*", "", true),
            ("abc", "abc", true),
            ("*c", "abc", true),
            ("a*", "abc", true),
            ("a*", "ab/c", false),
            ("a*/b", "abc/b", true),
            ("a*/b", "a/c/b", false),
            ("a*b*c*d*e*/f", "axbxcxdxe/f", true),
            ("a*b*c*d*e*/f", "axbxcxdxexxx/f", true),
            ("a*b*c*d*e*/f", "axbxcxdxe/xxx/f", false),
            ("a*b?c*x", "abxbbxdbxebxczzx", true),
            ("a*b?c*x", "abxbbxdbxebxczzy", false),
            ("ab[c]", "abc", true),
            ("ab[b-d]", "abc", true),
            ("ab[e-g]", "abc", false),
            ("ab[^c]", "abc", false),
            ("ab[^e-g]", "abc", true),
            ("a\\*b", "a*b", true),
            ("a\\*b", "ab", false),
            ("a?b", "aäb", true),
            ("a[^a]b", "aäb", true),
            ("a???b", "aäb", false),
            ("[a-ζ]*", "α", true),
            ("a?b", "a/b", false),
            ("a*b", "a/b", false),
            ("[\\]a]", "]", true),
            ("[\\-x]", "-", true),
            ("**", "a/b", false),
            ("{a,b}", "{a,b}", true),
            ("*x", "xxx", true),
            ("", "", true),
        ] {
            let glob = Glob::new(pattern).expect(pattern);
            assert_eq!(glob.matches(text), expected, "{pattern} against {text}");
        }
    }

    #[test]
    fn a_pattern_is_within_another() {
        for (inner, outer, expected) in [
            ("shop/user=*", "*", true),
            ("*", "*", true),
            ("*", "**", false),
            ("shop/user=*", "shop/*", true),
            ("shop/user=a?[a-c]*", "shop/*", true),
            ("shop/\\*", "shop/*", true),
            ("shop/user=ann", "shop/user=*", true),
            ("shop/user=ann", "s*/u*", true),
            ("a*b", "a*b", true),
            ("shop/a*/b", "shop/*", false),
            ("shop/[^a]*", "shop/*", false),
            ("shop/[a-z]*", "shop/[a-z]*", true),
            ("shop/*", "shop/user=*", false),
            ("shopping/*", "shop/*", false),
            ("s*", "shop/*", false),
            ("shop/ab*", "shop/a*b*", false),
            ("*", "shop/*", false),
        ] {
            let [inner_glob, outer_glob] = [inner, outer].map(|pattern| Glob::new(pattern).expect(pattern));
            assert_eq!(inner_glob.is_within(&outer_glob), expected, "{inner} in {outer}");
        }
    }

    proptest! {
        #[test]
        fn what_a_pattern_matches_is_matched_by_those_around_it(
            inner in "[ab/]{0,2}(\\*|\\?|\\[\\^a\\])?[ab/]{0,2}\\*?", outer in "[ab/]{0,2}[*?]?[ab]{0,1}\\*?", id in "[ab/]{0,5}",
        ) {
            let [inner, outer] = [inner, outer].map(|pattern| Glob::new(&pattern).expect("a valid pattern"));
            prop_assert!(!(inner.is_within(&outer) && inner.matches(&id)) || outer.matches(&id));
        }
    }

    #[test]
    fn bad_patterns_are_named() {
        for (pattern, error) in [
            ("[]a]", GlobError::BadClass),
            ("[-]", GlobError::BadClass),
            ("[x-]", GlobError::BadClass),
            ("[-x]", GlobError::BadClass),
            ("[a-b-c]", GlobError::BadClass),
            ("[", GlobError::UnclosedClass),
            ("[^", GlobError::UnclosedClass),
            ("[^bc", GlobError::UnclosedClass),
            ("a[", GlobError::UnclosedClass),
            ("a\\", GlobError::TrailingBackslash),
        ] {
            assert_eq!(Glob::new(pattern), Err(error), "{pattern}");
        }
    }

    /// Tries every length for every star.
    fn naive(parts: &[GlobPart], text: &[char]) -> bool {
        match parts {
            [] => text.is_empty(),
            [GlobPart::Star, rest @ ..] => {
                let reach = text.iter().take_while(|c| **c != '/').count();
                (0..=reach).any(|n| naive(rest, &text[n..]))
            }
            [one, rest @ ..] => text.first().is_some_and(|c| one.takes(*c)) && naive(rest, &text[1..]),
        }
    }

    proptest! {
        #![proptest_config(crate::tests::cases(1000))]

        #[test]
        fn agrees_with_exhaustive_search(pattern in "[ab/*?]{0,8}", text in "[ab/]{0,10}") {
            let glob = Glob::new(&pattern).expect("no classes, no escapes");
            let chars: Vec<char> = text.chars().collect();
            prop_assert_eq!(glob.matches(&text), glob.everything || naive(&glob.parts, &chars));
        }
    }
}
