//! Typed values out of the tree: the one place that knows how a number, a duration or a text is written, and how to say
//! that it is not one. Every complaint has the same form: what it is about, what was written, what was expected.

use std::{ops::RangeInclusive, rc::Rc};

use leaseway_core::{Amount, nearest};

use super::{
    diagnostic::{Findings, Position},
    node::{Entry, Node, Value},
};

/// Longer texts are refused: aliases could multiply them, and they are of no use on a status page.
const MAX_TEXT: usize = 4096;

/// A value with what it is called in complaints.
#[derive(Clone)]
pub struct Field<'n, 't> {
    /// `` `capacity` ``, `a template`.
    label: String,
    /// Where its key is; for an element of a list where it is itself.
    pub key: Position,
    node: &'n Node<'t>,
}

/// The entries of a map all of whose keys are known.
pub struct Fields<'n, 't> {
    entries: &'n [Entry<'t>],
}

impl<'n, 't> Fields<'n, 't> {
    /// The value of a key, if the key is there.
    pub fn get(&self, key: &str) -> Option<Field<'n, 't>> {
        self.entries.iter().find(|entry| entry.key == key).map(Field::of)
    }

    /// The same for a key that need not be there: `null` is as if it were not, as it was to Doorman.
    pub fn optional(&self, key: &str) -> Option<Field<'n, 't>> {
        self.get(key).filter(|field| !field.is_nothing())
    }
}

impl<'n, 't> Field<'n, 't> {
    /// A value that has no key of its own.
    pub(super) fn element(label: &str, node: &'n Node<'t>) -> Field<'n, 't> {
        Field { label: label.to_owned(), key: node.at, node }
    }

    fn of(entry: &'n Entry<'t>) -> Field<'n, 't> {
        Field { label: format!("`{}`", entry.key), key: entry.at, node: &entry.value }
    }

    /// `key:` and nothing more.
    pub fn is_nothing(&self) -> bool {
        self.node.is_nothing()
    }

    /// Where to point for what is wrong with the value: at the value, or at the key if there is no value to see.
    pub fn at(&self) -> Position {
        if self.is_nothing() { self.key } else { self.node.at }
    }

    /// Whether the value is a list, for what may be written as either a list or a map.
    pub(super) fn is_list(&self) -> bool {
        matches!(self.node.value, Value::List(_))
    }

    pub(super) fn is_empty_list(&self) -> bool {
        matches!(&self.node.value, Value::List(items) if items.is_empty())
    }

    /// `{}`.
    pub fn is_empty_map(&self) -> bool {
        matches!(&self.node.value, Value::Map(entries) if entries.is_empty())
    }

    /// Says that the value is something else than expected.
    pub fn wrong(&self, expected: &str, found: &mut Findings) {
        let message = if self.is_nothing() {
            format!("{} has no value, expected {expected}", self.label)
        } else {
            format!("{} is {}, expected {expected}", self.label, self.written())
        };
        found.error(self.at(), message);
    }

    /// Says what about the value, which is of the right type, cannot be.
    pub fn refuse(&self, why: impl std::fmt::Display, found: &mut Findings) {
        found.error(self.at(), format!("{} is {}: {why}", self.label, self.written()));
    }

    /// The value as a YAML document of its own under a key: for another reader. Aliases are filled in; comments are
    /// lost.
    pub fn document(&self, key: &str) -> String {
        let mut text = format!("{key}:");
        self.node.write(2, &mut text);
        text
    }

    fn written(&self) -> String {
        match &self.node.value {
            Value::Scalar { text, plain } => {
                let short: String = text.chars().take(80).collect();
                let more = if short.len() < text.len() { "…" } else { "" };
                let quote = if *plain { "" } else { "\"" };
                format!("`{quote}{short}{more}{quote}`")
            }
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a map".to_owned(),
        }
    }

    /// Any scalar, as it is written.
    pub fn text(&self, expected: &str, found: &mut Findings) -> Option<&'n str> {
        match &self.node.value {
            Value::Scalar { text, .. } if text.len() > MAX_TEXT => {
                self.refuse(format!("it is longer than {MAX_TEXT} bytes"), found);
                None
            }
            Value::Scalar { text, .. } if !self.is_nothing() => Some(text),
            _ => {
                self.wrong(expected, found);
                None
            }
        }
    }

    /// A number, possibly infinite or NaN.
    pub(super) fn number(&self, expected: &str, found: &mut Findings) -> Option<f64> {
        self.unquoted(expected, number, found)
    }

    /// An amount of capacity.
    pub(super) fn amount(&self, expected: &str, found: &mut Findings) -> Option<Amount> {
        let number = self.number(expected, found)?;
        Amount::new(number).map_err(|error| self.refuse(error, found)).ok()
    }

    /// A whole number in a range.
    pub fn whole(&self, range: RangeInclusive<i64>, expected: &str, found: &mut Findings) -> Option<i64> {
        self.unquoted(expected, |text| whole(text).filter(|value| range.contains(value)), found)
    }

    /// A scalar that means something only without quotes. YAML makes text of what is quoted, and Doorman refused it.
    fn unquoted<T>(&self, expected: &str, read: impl Fn(&str) -> Option<T>, found: &mut Findings) -> Option<T> {
        let hint = match &self.node.value {
            Value::Scalar { text, plain: true } => match read(text) {
                Some(value) => return Some(value),
                None if octal(text) => "; remove the leading zero, which makes it octal to some YAML parsers",
                None => "",
            },
            Value::Scalar { text, .. } if read(text).is_some() => "; remove the quotes",
            _ => "",
        };
        self.wrong(&format!("{expected}{hint}"), found);
        None
    }

    /// `true` or `false`.
    pub fn flag(&self, found: &mut Findings) -> Option<bool> {
        self.unquoted("true or false", |text| text.to_ascii_lowercase().parse().ok(), found)
    }

    /// The elements of a list of at most so many, each under this name.
    pub fn elements(&self, limit: usize, label: &str, expected: &str, found: &mut Findings) -> Vec<Field<'n, 't>> {
        self.list(limit, expected, found).iter().map(|item| Field::element(label, item)).collect()
    }

    /// A list of at most so many elements.
    pub(super) fn list(&self, limit: usize, expected: &str, found: &mut Findings) -> &'n [Rc<Node<'t>>] {
        match &self.node.value {
            Value::List(items) if items.len() <= limit => return items,
            Value::List(items) => {
                let message = format!("{} has {} elements, at most {limit} are allowed", self.label, items.len());
                found.error(self.key, message);
            }
            _ => self.wrong(expected, found),
        }
        &[]
    }

    /// A map with these keys. Others are complained about, each where it is.
    pub fn map(&self, known: &[&str], found: &mut Findings) -> Option<Fields<'n, 't>> {
        let Value::Map(entries) = &self.node.value else {
            let keys = if known.len() == 1 { "the key" } else { "the keys" };
            self.wrong(&format!("a map with {keys} {}", known.join(", ")), found);
            return None;
        };
        for entry in entries.iter().filter(|entry| !known.contains(&&*entry.key)) {
            found.error(entry.at, unknown("key", &entry.key, known));
        }
        Some(Fields { entries })
    }

    /// A map with any keys.
    pub fn entries(&self, expected: &str, found: &mut Findings) -> Vec<(&'n str, Field<'n, 't>)> {
        let Value::Map(entries) = &self.node.value else {
            self.wrong(expected, found);
            return Vec::new();
        };
        entries.iter().map(|entry| (&*entry.key, Field::of(entry))).collect()
    }
}

/// A word that should have been one of these.
pub fn unknown(what: &str, word: &str, known: &[&str]) -> String {
    let suggestion = nearest(word, known.iter().copied())
        .map_or_else(String::new, |nearest| format!(" (did you mean `{nearest}`?)"));
    format!("unknown {what} `{word}`{suggestion}; known: {}", known.join(", "))
}

/// Decimal numbers as YAML and Go write them, with `_` between digits as Doorman's parser allowed. Rust's own parser
/// would also take `inf` and `nan`, which in YAML are words.
fn number(text: &str) -> Option<f64> {
    match text {
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Some(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Some(f64::NEG_INFINITY),
        ".nan" | ".NaN" | ".NAN" => Some(f64::NAN),
        _ if octal(text) || !text.chars().all(|c| c.is_ascii_digit() || "+-.eE_".contains(c)) => None,
        _ => text.replace('_', "").parse().ok(),
    }
}

/// `60.0` is whole, too: some tools write every number so.
pub(super) fn whole(text: &str) -> Option<i64> {
    if octal(text) {
        return None;
    }
    text.replace('_', "").parse().ok().or_else(|| number(text).and_then(integer))
}

/// A number without a fraction, as far as numbers are exact.
fn integer(number: f64) -> Option<i64> {
    const EXACT: f64 = (1u64 << 53) as f64;
    (number.fract() == 0.0 && number.abs() < EXACT).then_some(number as i64)
}

/// `010` is eight to YAML 1.1, which Doorman read, and ten to YAML 1.2.
fn octal(text: &str) -> bool {
    let digits = text.trim_start_matches(['+', '-']);
    digits.len() > 1 && digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_')
}
