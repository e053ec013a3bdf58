//! YAML with positions, for all of Leaseway's YAML files (`leaseway up` has one): parsing reports every mistake of a
//! file, each with line and column. The caller walks the tree with typed readers ([`Field`]).
//!
//! The tree is built from the parser's events. The tree of a YAML library loses duplicate keys and quotes, and copies
//! the target of an alias each time, so that nine short lines can become gigabytes. Here aliases share their target,
//! and the depth and the number of values are bounded.

use std::{borrow::Cow, collections::HashMap, ops::RangeInclusive, rc::Rc, slice};

use leaseway_core::{
    policy::parameters::nearest,
    types::{Amount, parse_quantity},
};
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError};
use serde_json::Value as Json;

pub use super::diagnostic::Findings;
use super::{
    MAX_BYTES,
    diagnostic::{ConfigError, Diagnostic, Lines, Position},
};

/// Maximum depth. Configurations have six levels.
const MAX_DEPTH: usize = 32;
/// Maximum number of values: enough for 10,000 templates with 50 values each.
const MAX_NODES: usize = 500_000;
/// Maximum number of keys in a map. Known maps have fewer than twenty.
const MAX_KEYS: usize = 100;
/// Maximum length of a key in bytes. Unknown keys are compared with known ones, which takes time.
const MAX_KEY: usize = 200;
/// Maximum length of a text in bytes, because aliases could multiply it.
const MAX_TEXT: usize = 4096;

/// A valid file.
#[derive(Debug)]
pub struct Document<'b, T> {
    pub content: T,
    pub text: &'b str,
    /// In the order of the file.
    pub warnings: Vec<Diagnostic>,
}

/// Parses a file in memory. `file` and `what` are the names of the file and its root in messages; `empty` is the
/// message for an empty file. The result of `walk` is used only if there are no mistakes.
pub fn read<'b, T>(
    file: &str,
    bytes: &'b [u8],
    what: &str,
    empty: &str,
    walk: impl FnOnce(&Field<'_, '_>, &mut Findings) -> T,
) -> Result<Document<'b, T>, ConfigError> {
    let mut found = Findings::new(file);
    let walked = text(bytes, &mut found).and_then(|text| match parse(text, &mut found) {
        Some(root) if !root.is_nothing() => Some((walk(&Field::element(what, &root), &mut found), text)),
        _ => {
            // A syntax error has been reported already.
            if !found.any() {
                found.error(Position::START, empty);
            }
            None
        }
    });
    let warnings = found.finish()?;
    let (content, text) = walked.expect("without a result there is a finding");
    Ok(Document { content, text, warnings })
}

fn text<'b>(bytes: &'b [u8], found: &mut Findings) -> Option<&'b str> {
    if bytes.len() > MAX_BYTES {
        found.error(Position::START, format!("larger than {MAX_BYTES} bytes, the maximum"));
        return None;
    }
    match std::str::from_utf8(bytes) {
        // Strips the byte order mark, so that it does not count as a column.
        Ok(text) => Some(text.strip_prefix('\u{feff}').unwrap_or(text)),
        Err(error) => {
            let good = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
            found.error(Lines::of(&good).end(), "not UTF-8: save the file in UTF-8");
            None
        }
    }
}

/// A value and its name in messages.
#[derive(Clone)]
pub struct Field<'n, 't> {
    /// Such as `` `capacity` `` or `a template`.
    label: String,
    /// The position of the key; for an element of a list, of the element.
    pub key: Position,
    node: &'n Node<'t>,
}

/// The entries of a map with known keys.
pub struct Fields<'n, 't> {
    entries: &'n [Entry<'t>],
}

impl<'n, 't> Fields<'n, 't> {
    pub fn get(&self, key: &str) -> Option<Field<'n, 't>> {
        self.entries.iter().find(|entry| entry.key == key).map(Field::of)
    }

    /// The value of an optional key. As in Doorman, `null` means missing.
    pub fn optional(&self, key: &str) -> Option<Field<'n, 't>> {
        self.get(key).filter(|field| !field.is_nothing())
    }
}

impl<'n, 't> Field<'n, 't> {
    /// A value without a key.
    pub(super) fn element(label: &str, node: &'n Node<'t>) -> Field<'n, 't> {
        Field { label: label.to_owned(), key: node.at, node }
    }

    fn of(entry: &'n Entry<'t>) -> Field<'n, 't> {
        Field { label: format!("`{}`", entry.key), key: entry.at, node: &entry.value }
    }

    /// Whether the value is missing or `null`.
    pub fn is_nothing(&self) -> bool {
        self.node.is_nothing()
    }

    /// The position for messages: the value, or the key if the value is missing.
    pub fn at(&self) -> Position {
        if self.is_nothing() { self.key } else { self.node.at }
    }

    pub(super) fn is_list(&self) -> bool {
        matches!(self.node.value, Value::List(_))
    }

    pub(super) fn is_empty_list(&self) -> bool {
        matches!(&self.node.value, Value::List(items) if items.is_empty())
    }

    pub fn is_empty_map(&self) -> bool {
        matches!(&self.node.value, Value::Map(entries) if entries.is_empty())
    }

    /// Reports a value of the wrong type.
    pub fn wrong(&self, expected: &str, found: &mut Findings) {
        let message = if self.is_nothing() {
            format!("{} has no value, expected {expected}", self.label)
        } else {
            format!("{} is {}, expected {expected}", self.label, self.written())
        };
        found.error(self.at(), message);
    }

    /// Reports an invalid value of the right type.
    pub fn refuse(&self, why: impl std::fmt::Display, found: &mut Findings) {
        found.error(self.at(), format!("{} is {}: {why}", self.label, self.written()));
    }

    /// The value as a YAML document under a key. Aliases are expanded, and comments are lost.
    pub fn document(&self, key: &str) -> String {
        let mut text = format!("{key}:");
        self.node.write(2, &mut text);
        text
    }

    /// The value as JSON, if it has at most `limit` values. Aliases are expanded.
    pub fn json(&self, mut limit: usize) -> Option<Json> {
        self.node.json(&mut limit)
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

    /// A scalar as written.
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

    /// A number, possibly infinite or NaN, or a quantity such as `5k` or `60000/min`.
    pub(super) fn quantity(&self, expected: &str, found: &mut Findings) -> Option<f64> {
        let quantity = |text: &str| number(text).or_else(|| (!octal(text)).then(|| parse_quantity(text)).flatten());
        self.unquoted(expected, quantity, found)
    }

    /// An amount of capacity, or a rate such as `60000/min`.
    pub(super) fn amount(&self, expected: &str, found: &mut Findings) -> Option<Amount> {
        let number = self.quantity(expected, found)?;
        Amount::new(number).map_err(|error| self.refuse(error, found)).ok()
    }

    /// A whole number in a range.
    pub fn whole(&self, range: RangeInclusive<i64>, expected: &str, found: &mut Findings) -> Option<i64> {
        self.unquoted(expected, |text| whole(text).filter(|value| range.contains(value)), found)
    }

    /// A scalar that must not be quoted: YAML treats quoted scalars as text.
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

    /// The elements of a list, each with this name in messages.
    pub fn elements(&self, limit: usize, label: &str, expected: &str, found: &mut Findings) -> Vec<Field<'n, 't>> {
        self.list(limit, expected, found).iter().map(|item| Field::element(label, item)).collect()
    }

    /// A list of at most `limit` elements.
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

    /// A map with these keys. Reports others.
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

/// The message about an unknown word, with a suggestion.
pub fn unknown(what: &str, word: &str, known: &[&str]) -> String {
    let suggestion = nearest(word, known.iter().copied())
        .map_or_else(String::new, |nearest| format!(" (did you mean `{nearest}`?)"));
    format!("unknown {what} `{word}`{suggestion}; known: {}", known.join(", "))
}

/// Decimal numbers in the syntax of YAML and Go, with `_` between digits as in Doorman. Rust's parser would also accept
/// `inf` and `nan`, which are text in YAML.
fn number(text: &str) -> Option<f64> {
    match text {
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Some(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Some(f64::NEG_INFINITY),
        ".nan" | ".NaN" | ".NAN" => Some(f64::NAN),
        _ if octal(text) || !text.chars().all(|c| c.is_ascii_digit() || "+-.eE_".contains(c)) => None,
        _ => text.replace('_', "").parse().ok(),
    }
}

/// Accepts `60.0`, because some tools write all numbers as floats.
pub(super) fn whole(text: &str) -> Option<i64> {
    if octal(text) {
        return None;
    }
    text.replace('_', "").parse().ok().or_else(|| number(text).and_then(integer))
}

/// The number as an integer if it has no fraction and is exact.
fn integer(number: f64) -> Option<i64> {
    const EXACT: f64 = (1u64 << 53) as f64;
    (number.fract() == 0.0 && number.abs() < EXACT).then_some(number as i64)
}

/// `010` is eight in YAML 1.1, which Doorman uses, and ten in YAML 1.2.
fn octal(text: &str) -> bool {
    let digits = text.trim_start_matches(['+', '-']);
    digits.len() > 1 && digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_')
}

/// A value and its position.
#[derive(Debug)]
pub(super) struct Node<'t> {
    pub(super) at: Position,
    pub(super) value: Value<'t>,
    /// Number of levels below this node. Aliases can make it exceed the number of open collections.
    height: usize,
}

#[derive(Debug)]
pub(super) enum Value<'t> {
    /// `plain`: without quotes, so it may be a number or `null`.
    Scalar {
        text: Cow<'t, str>,
        plain: bool,
    },
    List(Vec<Rc<Node<'t>>>),
    Map(Vec<Entry<'t>>),
}

/// A key, unique in its map, and its value.
#[derive(Debug, Clone)]
pub(super) struct Entry<'t> {
    pub(super) key: Cow<'t, str>,
    pub(super) at: Position,
    pub(super) value: Rc<Node<'t>>,
}

impl Value<'_> {
    fn height(&self) -> usize {
        let below = match self {
            Value::Scalar { .. } => return 0,
            Value::List(items) => items.iter().map(|item| item.height).max(),
            Value::Map(entries) => entries.iter().map(|entry| entry.value.height).max(),
        };
        below.unwrap_or(0) + 1
    }
}

impl Node<'_> {
    /// Whether the value is missing: `key:`, `key: ~` or `key: null`.
    fn is_nothing(&self) -> bool {
        match &self.value {
            Value::Scalar { text, plain } => *plain && is_null(text),
            Value::List(_) | Value::Map(_) => false,
        }
    }

    fn json(&self, left: &mut usize) -> Option<Json> {
        *left = left.checked_sub(1)?;
        Some(match &self.value {
            Value::Scalar { text, plain: false } => text.as_ref().into(),
            Value::Scalar { text, .. } => match text.as_ref() {
                null if is_null(null) => Json::Null,
                "true" | "True" | "TRUE" => true.into(),
                "false" | "False" | "FALSE" => false.into(),
                other => number(other).filter(|number| number.is_finite()).map_or_else(|| other.into(), Json::from),
            },
            Value::List(items) => Json::Array(items.iter().map(|item| item.json(left)).collect::<Option<_>>()?),
            Value::Map(entries) => {
                let fields = entries.iter().map(|entry| Some((entry.key.to_string(), entry.value.json(left)?)));
                Json::Object(fields.collect::<Option<_>>()?)
            }
        })
    }

    /// Appends the value in block style after `key:` or `-`, and ends the line.
    pub(super) fn write(&self, indent: usize, text: &mut String) {
        match &self.value {
            Value::Scalar { text: scalar, plain } => text.push_str(&format!(" {}\n", quoted(scalar, *plain))),
            Value::List(items) if items.is_empty() => text.push_str(" []\n"),
            Value::Map(entries) if entries.is_empty() => text.push_str(" {}\n"),
            Value::List(items) => {
                text.push('\n');
                for item in items {
                    text.push_str(&format!("{:indent$}-", ""));
                    item.write(indent + 2, text);
                }
            }
            Value::Map(entries) => {
                text.push('\n');
                for Entry { key, value, .. } in entries {
                    text.push_str(&format!("{:indent$}{}:", "", quoted(key, !is_null(key))));
                    value.write(indent + 2, text);
                }
            }
        }
    }
}

/// Whether YAML reads the unquoted text as null.
fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

/// A scalar that is valid anywhere. Quoted ones stay quoted, because a quoted number is text.
fn quoted(text: &str, plain: bool) -> String {
    let harmless = |c: char| c.is_ascii_alphanumeric() || "._+-~/".contains(c);
    if plain && text.chars().all(harmless) && text.chars().any(|c| c.is_ascii_alphanumeric()) {
        return text.to_owned();
    }
    if plain && matches!(text, "" | "~") {
        return "~".to_owned();
    }
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            _ if c.is_control() => quoted.push_str(&format!("\\U{:08X}", u32::from(c))),
            _ => quoted.push(c),
        }
    }
    quoted + "\""
}

/// The tree of the document in `text`. `None` if it is empty, or after a syntax error, which is reported.
pub(super) fn parse<'t>(text: &'t str, found: &mut Findings) -> Option<Rc<Node<'t>>> {
    let mut builder = Builder::default();
    // Some markers of the parser are outside of the text: at its end, and in directives, where it counts bytes.
    let lines = Lines::of(text);
    let nearest = |marker: &Marker| lines.nearest(position(marker));
    for event in Parser::new_from_str(text) {
        let step = match event {
            Ok((event, span)) => builder.take(event, nearest(&span.start), found),
            Err(error) => Err((nearest(error.marker()), syntax_error(&error))),
        };
        if let Err((at, message)) = step {
            found.error(at, message);
            return None;
        }
    }
    builder.root
}

fn position(marker: &Marker) -> Position {
    Position { line: marker.line(), column: marker.col() + 1 }
}

/// Hints for messages of the parser.
const HINTS: [(&str, &str); 12] = [
    ("alias", ALIAS),
    ("unknown anchor", ALIAS),
    ("tabs disallowed", TABS),
    ("a tab", TABS),
    ("tab cannot", TABS),
    (
        "mapping values are not allowed",
        "`: ` is not allowed here: check the indentation, and put text that contains `: ` in quotes",
    ),
    ("unexpected character", "text that begins with this character needs quotes"),
    ("recursion limit", "nested too deeply: a configuration has only a few levels"),
    ("flow sequence", "expected `,` or `]`: is a `[` not closed?"),
    ("flow mapping", "expected `,` or `}`: is a `{` not closed?"),
    ("quoted scalar", "a quotation mark is not closed"),
    ("expected node content", "a value is missing"),
];
const TABS: &str = "indent with spaces, not with tabs";
const ALIAS: &str = "a value that begins with `*` is a YAML alias: put patterns in quotes, like \"*\"";

/// A plain message, or the parser's if there is none.
fn syntax_error(error: &ScanError) -> String {
    let info = error.info();
    let hint = HINTS.iter().find(|(what, _)| info.contains(what));
    format!("not YAML: {}", hint.map_or(info, |(_, hint)| hint))
}

/// An open collection; `anchor` is 0 if it has none.
struct Open<'t> {
    at: Position,
    anchor: usize,
    content: Content<'t>,
}

enum Content<'t> {
    List(Vec<Rc<Node<'t>>>),
    Map { entries: Vec<Entry<'t>>, key: Option<Rc<Node<'t>>> },
}

#[derive(Default)]
struct Builder<'t> {
    open: Vec<Open<'t>>,
    anchors: HashMap<usize, Rc<Node<'t>>>,
    nodes: usize,
    documents: usize,
    root: Option<Rc<Node<'t>>>,
}

/// A mistake that ends parsing.
type Stop = (Position, String);

impl<'t> Builder<'t> {
    fn take(&mut self, event: Event<'t>, at: Position, found: &mut Findings) -> Result<(), Stop> {
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) => self.document(at),
            Event::Scalar(.., Some(_)) | Event::SequenceStart(_, Some(_)) | Event::MappingStart(_, Some(_)) => {
                Err((at, "YAML tags (`!…`) are not supported: remove the tag".to_owned()))
            }
            Event::Scalar(text, style, anchor, None) => {
                let plain = style == ScalarStyle::Plain;
                self.put(at, anchor, Value::Scalar { text, plain }, found)
            }
            Event::SequenceStart(anchor, None) => self.open(at, anchor, Content::List(Vec::new())),
            Event::MappingStart(anchor, None) => {
                let (entries, key) = (Vec::new(), None);
                self.open(at, anchor, Content::Map { entries, key })
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(found),
            Event::Alias(anchor) => {
                let inside = || (at, "this alias refers to a value that contains it".to_owned());
                let node = self.anchors.get(&anchor).cloned().ok_or_else(inside)?;
                self.attach(node, found)
            }
        }
    }

    fn document(&mut self, at: Position) -> Result<(), Stop> {
        self.documents += 1;
        if self.documents > 1 {
            let message = "a second YAML document begins here: a configuration is one document, remove the `---`";
            return Err((at, message.to_owned()));
        }
        Ok(())
    }

    fn open(&mut self, at: Position, anchor: usize, content: Content<'t>) -> Result<(), Stop> {
        check_depth(at, self.open.len() + 1)?;
        self.open.push(Open { at, anchor, content });
        Ok(())
    }

    fn close(&mut self, found: &mut Findings) -> Result<(), Stop> {
        let Open { at, anchor, content } = self.open.pop().expect("the parser closes open collections only");
        let value = match content {
            Content::List(items) => Value::List(items),
            Content::Map { entries, .. } => Value::Map(self.merge(entries, found)?),
        };
        self.put(at, anchor, value, found)
    }

    /// Merges the keys of other maps (`<<: *other` of YAML 1.1, which Doorman's files may use).
    fn merge(&mut self, mut entries: Vec<Entry<'t>>, found: &mut Findings) -> Result<Vec<Entry<'t>>, Stop> {
        let Some(index) = entries.iter().position(|entry| entry.key == "<<") else {
            return Ok(entries);
        };
        let Entry { at, value, .. } = entries.remove(index);
        let sources = match &value.value {
            Value::List(sources) => sources,
            _ => slice::from_ref(&value),
        };
        for source in sources {
            let Value::Map(merged) = &source.value else {
                found.error(at, "`<<` merges maps, expected an alias of a map, or a list of aliases");
                continue;
            };
            // Copied entries count as values, because an alias is much shorter than its map.
            self.count(at, merged.len())?;
            for entry in merged {
                if !entries.iter().any(|own| own.key == entry.key) {
                    add(&mut entries, entry.clone())?;
                }
            }
        }
        Ok(entries)
    }

    fn count(&mut self, at: Position, nodes: usize) -> Result<(), Stop> {
        self.nodes += nodes;
        if self.nodes > MAX_NODES {
            return Err((at, format!("more than {MAX_NODES} values in one configuration")));
        }
        Ok(())
    }

    fn put(&mut self, at: Position, anchor: usize, value: Value<'t>, found: &mut Findings) -> Result<(), Stop> {
        self.count(at, 1)?;
        let height = value.height();
        check_depth(at, height)?;
        let node = Rc::new(Node { at, value, height });
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        self.attach(node, found)
    }

    /// Adds a complete value to the innermost open collection.
    fn attach(&mut self, node: Rc<Node<'t>>, found: &mut Findings) -> Result<(), Stop> {
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.root = Some(node),
            Some(Content::List(items)) => items.push(node),
            Some(Content::Map { entries, key }) => match key.take() {
                None => *key = Some(node),
                Some(key) => enter(entries, &key, node, found)?,
            },
        }
        Ok(())
    }
}

/// Bounds the depth of the tree, and with it the stack: walking and dropping it are recursive.
fn check_depth(at: Position, levels: usize) -> Result<(), Stop> {
    if levels > MAX_DEPTH {
        return Err((at, format!("more than {MAX_DEPTH} levels deep: a configuration has only a few")));
    }
    Ok(())
}

/// Adds a key and its value to a map.
fn enter<'t>(
    entries: &mut Vec<Entry<'t>>,
    key: &Rc<Node<'t>>,
    value: Rc<Node<'t>>,
    found: &mut Findings,
) -> Result<(), Stop> {
    let at = key.at;
    let text = match &key.value {
        Value::Scalar { text, .. } if !key.is_nothing() => text,
        _ => {
            found.error(at, "a key must be text");
            return Ok(());
        }
    };
    if text.len() > MAX_KEY {
        return Err((at, format!("a key longer than {MAX_KEY} bytes")));
    }
    if let Some(first) = entries.iter().find(|entry| entry.key == *text) {
        let line = first.at.line;
        found.error(at, format!("duplicate key `{text}`: it is already given on line {line}"));
        return Ok(());
    }
    let key = text.clone();
    add(entries, Entry { key, at, value })
}

fn add<'t>(entries: &mut Vec<Entry<'t>>, entry: Entry<'t>) -> Result<(), Stop> {
    if entries.len() == MAX_KEYS {
        return Err((entry.at, format!("more than {MAX_KEYS} keys in one map")));
    }
    entries.push(entry);
    Ok(())
}
