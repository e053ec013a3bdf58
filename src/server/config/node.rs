//! YAML text as a tree in which every value and every key knows its place.
//!
//! The tree is built from the parser's events and not taken from a YAML library's own tree: those forget what we need
//! (duplicate keys, whether a number was quoted) and copy what an alias refers to each time, so that nine short lines
//! can become gigabytes. Here an alias shares the value it refers to; depth and the number of values are bounded.

use std::{borrow::Cow, collections::HashMap, rc::Rc, slice};

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError};

use super::diagnostic::{Findings, Lines, Position};

/// A configuration needs six levels.
const MAX_DEPTH: usize = 32;
/// 10,000 templates with 50 values each.
const MAX_NODES: usize = 500_000;
/// No map of ours has as many as twenty keys.
const MAX_KEYS: usize = 100;
/// In bytes. Keys are searched for likely spellings, which takes time.
const MAX_KEY: usize = 200;

/// A value and where it begins.
#[derive(Debug)]
pub(super) struct Node<'t> {
    pub(super) at: Position,
    pub(super) value: Value<'t>,
    /// How many levels there are below. Aliases can pile up more of them than are ever open at once.
    height: usize,
}

#[derive(Debug)]
pub(super) enum Value<'t> {
    /// `plain`: written without quotes, so that it may be a number or nothing at all.
    Scalar {
        text: Cow<'t, str>,
        plain: bool,
    },
    List(Vec<Rc<Node<'t>>>),
    Map(Vec<Entry<'t>>),
}

/// A key with its value. The keys of a map differ.
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
    /// The value is missing: `key:`, `key: ~` or `key: null`.
    pub(super) fn is_nothing(&self) -> bool {
        match &self.value {
            Value::Scalar { text, plain } => *plain && is_null(text),
            Value::List(_) | Value::Map(_) => false,
        }
    }

    /// Appends the value in block style behind what introduces it (`key:` or `-`), with the line's end.
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

/// What YAML takes for nothing when it is not quoted.
fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

/// A scalar as it can stand anywhere. What was quoted stays quoted, because a number in quotes is none.
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

/// The tree of the one document in `text`. `None`: there is none, or it is not YAML, which is then among the findings.
pub(super) fn parse<'t>(text: &'t str, found: &mut Findings) -> Option<Rc<Node<'t>>> {
    let mut builder = Builder::default();
    // The parser puts what it misses at the end of a file on a line of its own even if there is none, and counts bytes
    // instead of characters in directives.
    let lines = Lines::of(text);
    let place = |marker: &Marker| lines.nearest(position(marker));
    for event in Parser::new_from_str(text) {
        let step = match event {
            Ok((event, span)) => builder.take(event, place(&span.start), found),
            Err(error) => Err((place(error.marker()), syntax_error(&error))),
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

/// What is usually behind the parser's messages.
const HINTS: [(&str, &str); 8] = [
    ("alias", ALIAS),
    ("unknown anchor", ALIAS),
    ("tabs disallowed", TABS),
    ("a tab", TABS),
    ("tab cannot", TABS),
    ("mapping values are not allowed", "check the indentation; text that contains `: ` needs quotes"),
    ("unexpected character", "text that begins with this character needs quotes"),
    ("recursion limit", "a configuration has only a few levels"),
];
const TABS: &str = "indent with spaces, not with tabs";
const ALIAS: &str = "a value that begins with `*` is a YAML alias: put patterns in quotes, like \"*\"";

/// The parser's message, with a hint if there is one.
fn syntax_error(error: &ScanError) -> String {
    let info = error.info();
    let hint = HINTS.iter().find(|(what, _)| info.contains(what));
    hint.map_or_else(|| format!("not YAML: {info}"), |(_, hint)| format!("not YAML: {info} ({hint})"))
}

/// Collections that are not closed yet; `anchor` is 0 without one.
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

/// A mistake after which reading on would only produce nonsense.
type Stop = (Position, String);

impl<'t> Builder<'t> {
    fn take(&mut self, event: Event<'t>, at: Position, found: &mut Findings) -> Result<(), Stop> {
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) => self.document(at),
            Event::Scalar(.., Some(_)) | Event::SequenceStart(_, Some(_)) | Event::MappingStart(_, Some(_)) => {
                Err((at, "YAML tags (`!…`) are not understood: leave it out".to_owned()))
            }
            Event::Scalar(text, style, anchor, None) => {
                let plain = style == ScalarStyle::Plain;
                self.place(at, anchor, Value::Scalar { text, plain }, found)
            }
            Event::SequenceStart(anchor, None) => self.open(at, anchor, Content::List(Vec::new())),
            Event::MappingStart(anchor, None) => {
                let (entries, key) = (Vec::new(), None);
                self.open(at, anchor, Content::Map { entries, key })
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(found),
            Event::Alias(anchor) => {
                let inside = || (at, "this alias refers to what it is part of".to_owned());
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
        let Open { at, anchor, content } = self.open.pop().expect("the parser closes only what it has opened");
        let value = match content {
            Content::List(items) => Value::List(items),
            Content::Map { entries, .. } => Value::Map(self.merge(entries, found)?),
        };
        self.place(at, anchor, value, found)
    }

    /// YAML 1.1's `<<: *other`, which Doorman's files may use: the keys of another map, where this one has none.
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
                found.error(at, "`<<` merges maps, expected an alias of a map, or a list of such");
                continue;
            };
            // Copied entries count: a reference to a map is much shorter than the map.
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

    fn place(&mut self, at: Position, anchor: usize, value: Value<'t>, found: &mut Findings) -> Result<(), Stop> {
        self.count(at, 1)?;
        let height = value.height();
        check_depth(at, height)?;
        let node = Rc::new(Node { at, value, height });
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        self.attach(node, found)
    }

    /// Hands a finished value to the collection it is in.
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

/// Walking and dropping the tree recurse; a bound on its depth is a bound on the stack.
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
