//! Patterns of rules: those of resource templates, in which `{identity}` stands for the caller's identity.

use crate::{
    policy::parameters::nearest,
    types::{Glob, GlobError},
};

use super::Identity;

/// The placeholder for the caller's identity.
pub const PLACEHOLDER: &str = "{identity}";

/// Characters of an identity that would mean something in a pattern.
const SPECIAL: [char; 4] = ['*', '?', '[', '\\'];

/// A pattern that has been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    /// None: it differs from identity to identity.
    glob: Option<Glob>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error(transparent)]
    Glob(#[from] GlobError),
    #[error("unknown placeholder `{found}`{}; known: {PLACEHOLDER} (write `\\{{` for a brace itself)", near(.found))]
    Placeholder {
        /// As it is written.
        found: String,
    },
}

fn near(found: &str) -> String {
    nearest(found, [PLACEHOLDER]).map_or_else(String::new, |nearest| format!(" (did you mean `{nearest}`?)"))
}

impl Pattern {
    pub fn new(text: &str) -> Result<Pattern, PatternError> {
        let mut differs = false;
        let mut rest = text;
        while let Some(at) = rest.find(['{', '\\']) {
            if rest[at..].starts_with('\\') {
                let taken = rest[at + 1..].chars().next().map_or(0, char::len_utf8);
                rest = &rest[at + 1 + taken..];
                continue;
            }
            rest = &rest[at..];
            let Some(after) = rest.strip_prefix(PLACEHOLDER) else {
                let end = rest.find('}').map_or(rest.len(), |end| end + 1);
                return Err(PatternError::Placeholder { found: rest[..end].to_owned() });
            };
            (differs, rest) = (true, after);
        }
        // One that differs is checked by the simplest identity: others are escaped, and so change nothing.
        let glob = Glob::new(&text.replace(PLACEHOLDER, "i"))?;
        Ok(Pattern { text: text.to_owned(), glob: (!differs).then_some(glob) })
    }

    /// As it is written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it is the lone `*`.
    pub fn matches_everything(&self) -> bool {
        self.glob.as_ref().is_some_and(Glob::matches_everything)
    }

    /// Whether it differs from identity to identity.
    pub fn has_placeholder(&self) -> bool {
        self.glob.is_none()
    }

    /// What it matches for this identity. None: it names the identity, and there is none.
    pub(super) fn glob_for(&self, identity: &Identity) -> Option<Glob> {
        if let Some(glob) = &self.glob {
            return Some(glob.clone());
        }
        let Identity::Named(name) = identity else { return None };
        let mut literal = String::with_capacity(name.len());
        for c in name.chars() {
            if SPECIAL.contains(&c) {
                literal.push('\\');
            }
            literal.push(c);
        }
        Some(Glob::new(&self.text.replace(PLACEHOLDER, &literal)).expect("checked, and what is put in is escaped"))
    }
}
