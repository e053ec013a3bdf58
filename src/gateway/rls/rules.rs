//! Which rule a descriptor falls under.
//!
//! Rules form a tree for each domain, as the files write them. A descriptor is followed entry by entry. At each level
//! the most specific rule counts: the one of key and value, else the first whose value has a `*` and that the entry's
//! value is like, else the one of the key alone. A limit counts for descriptors that end at its level: one with
//! more entries, or with fewer, is under no limit.

use std::{collections::HashMap, sync::Arc};

use super::{meters::Meters, unit::Unit};
use crate::resource_id;

/// All rules of a gateway, by domain.
#[derive(Debug, Default)]
pub struct Rules {
    domains: HashMap<Box<str>, Domain>,
}

/// The rules of a domain.
#[derive(Debug)]
pub struct Domain {
    pub name: Arc<str>,
    /// The file that they are from.
    pub file: Arc<str>,
    pub descriptors: Level,
    /// What is counted of requests.
    pub meters: Meters,
}

/// What an entry of a descriptor may be, at one depth of the tree.
#[derive(Debug, Default)]
pub struct Level(HashMap<Box<str>, Values>);

/// Rules of one key.
#[derive(Debug, Default)]
struct Values {
    exact: HashMap<Box<str>, Node>,
    /// In the order of the file.
    patterns: Vec<(ValuePattern, Node)>,
    any: Option<Box<Node>>,
}

/// What a rule says of the value of its key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ValueMatch {
    /// It is this one.
    Exactly(Box<str>),
    /// It is like this.
    Like(ValuePattern),
    /// It may be any.
    Any,
}

/// A value with at least one `*`, each of which stands for any characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ValuePattern(Box<str>);

impl ValuePattern {
    /// `None`: there is no `*` in it.
    pub fn new(text: &str) -> Option<ValuePattern> {
        text.contains('*').then(|| ValuePattern(text.into()))
    }

    /// Whether a value is like this.
    pub fn matches(&self, value: &str) -> bool {
        let mut parts = self.0.split('*');
        let (first, last) = (parts.next().unwrap_or_default(), parts.next_back().unwrap_or_default());
        let Some(mut rest) = value.strip_prefix(first).and_then(|rest| rest.strip_suffix(last)) else { return false };
        parts.all(|part| match rest.split_once(part) {
            Some((_, after)) => {
                rest = after;
                true
            }
            None => false,
        })
    }

    /// What values that are like this have in common, as the name of what they share: the beginning where only the end
    /// is open, else the whole pattern.
    pub fn common(&self) -> &str {
        self.0.strip_suffix('*').filter(|beginning| !beginning.contains('*')).unwrap_or(&self.0)
    }

    /// As a template's pattern has it.
    pub fn glob(&self) -> String {
        self.0.split('*').map(resource_id::pattern).collect::<Vec<_>>().join("*")
    }
}

/// One descriptor of a file.
#[derive(Debug, Default)]
pub struct Node {
    /// What holds for descriptors that end here.
    pub rule: Option<Arc<Rule>>,
    pub below: Level,
    /// All values that fall under it share what there is.
    pub shares_values: bool,
}

/// What holds for a descriptor.
#[derive(Debug)]
pub struct Rule {
    /// Where in its tree: `key_value.key`, as envoyproxy/ratelimit's statistics name it.
    pub path: Arc<str>,
    /// How much may pass.
    pub limit: Limit,
    /// It is evaluated, and lets everything pass.
    pub shadow: bool,
    /// What others call it that replace it, and what callers are told.
    pub name: Option<Box<str>>,
    /// Rules that do not count where this one does.
    pub replaces: Vec<Box<str>>,
    /// Each value of a key without one is counted by itself.
    pub detailed: bool,
    /// What is counted of descriptors.
    pub meters: Meters,
}

/// How much may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    Unlimited,
    /// So many in a window.
    PerUnit {
        requests: u32,
        unit: Unit,
    },
}

/// A rule that a descriptor falls under.
#[derive(Debug, Clone, Copy)]
pub struct Matched<'r> {
    pub rule: &'r Arc<Rule>,
    /// Some of its values share what there is: [`shared`](Rules::shared) says which.
    pub shares: bool,
}

impl Rules {
    /// Adds a domain, unless there is one of the name: then that is returned.
    pub fn add(&mut self, domain: Domain) -> Result<(), &Domain> {
        let name: Box<str> = domain.name.as_ref().into();
        if self.domains.contains_key(&name) {
            return Err(&self.domains[&name]);
        }
        self.domains.insert(name, domain);
        Ok(())
    }

    /// The rules of a domain.
    pub fn domain(&self, name: &str) -> Option<&Domain> {
        self.domains.get(name)
    }

    /// All domains, in no order.
    pub fn domains(&self) -> impl Iterator<Item = &Domain> {
        self.domains.values()
    }
}

impl Domain {
    /// The rule of a descriptor, if there is one.
    pub fn rule<'e>(&self, entries: impl IntoIterator<Item = (&'e str, &'e str)>) -> Option<Matched<'_>> {
        let (mut level, mut shares, mut last) = (&self.descriptors, false, None);
        for (key, value) in entries {
            let (node, _) = level.find(key, value)?;
            (level, last) = (&node.below, Some(node));
            shares |= node.shares_values;
        }
        let rule = last?.rule.as_ref()?;
        Some(Matched { rule, shares })
    }

    /// The entries of a descriptor as they stand in the name of its resource: where values share what there is, what
    /// they have in common.
    pub fn shared<'e: 'r, 'r>(
        &'r self,
        entries: impl IntoIterator<Item = (&'e str, &'e str)> + 'r,
    ) -> impl Iterator<Item = (&'r str, &'r str)> {
        let mut level = Some(&self.descriptors);
        entries.into_iter().map(move |(key, value)| match level.and_then(|level| level.find(key, value)) {
            Some((node, common)) => {
                level = Some(&node.below);
                (key, if node.shares_values { common } else { value })
            }
            None => (key, value),
        })
    }
}

impl Level {
    /// Adds a descriptor. Returns false if there is one already for the same.
    pub fn add(&mut self, key: &str, value: ValueMatch, node: Node) -> bool {
        let values = self.0.entry(key.into()).or_default();
        match value {
            ValueMatch::Exactly(value) if !values.exact.contains_key(&value) => drop(values.exact.insert(value, node)),
            ValueMatch::Like(pattern) if !values.patterns.iter().any(|(other, _)| *other == pattern) => {
                values.patterns.push((pattern, node));
            }
            ValueMatch::Any if values.any.is_none() => values.any = Some(Box::new(node)),
            _ => return false,
        }
        true
    }

    /// All descriptors of this level, in no order.
    pub fn descriptors(&self) -> impl Iterator<Item = (&str, ValueMatch, &Node)> {
        self.0.iter().flat_map(|(key, values)| {
            let exact = values.exact.iter().map(|(value, node)| (ValueMatch::Exactly(value.clone()), node));
            let patterns = values.patterns.iter().map(|(pattern, node)| (ValueMatch::Like(pattern.clone()), node));
            let any = values.any.iter().map(|node| (ValueMatch::Any, &**node));
            exact.chain(patterns).chain(any).map(|(value, node)| (&**key, value, node))
        })
    }

    /// The descriptor that an entry falls under, and what all values there have in common.
    fn find(&self, key: &str, value: &str) -> Option<(&Node, &str)> {
        let values = self.0.get(key)?;
        if let Some((value, node)) = values.exact.get_key_value(value) {
            return Some((node, value));
        }
        if let Some((pattern, node)) = values.patterns.iter().find(|(pattern, _)| pattern.matches(value)) {
            return Some((node, pattern.common()));
        }
        values.any.as_deref().map(|node| (node, ""))
    }
}

impl Rule {
    /// Whether one of these rules replaces the one of this name.
    pub fn replaced<'r>(rules: impl Iterator<Item = Option<&'r Rule>> + Clone, name: Option<&str>) -> bool {
        let Some(name) = name else { return false };
        rules.flatten().any(|rule| rule.replaces.iter().any(|replaced| **replaced == *name))
    }
}

#[cfg(test)]
mod tests;
