//! Patterns in access rules: globs in which `{identity}` stands for the caller's identity.

use crate::{
    policy::parameters::nearest,
    types::{Glob, GlobError},
};

use super::Identity;

/// The placeholder for the caller's identity.
pub const PLACEHOLDER: &str = "{identity}";

/// Characters with a meaning in globs.
const SPECIAL: [char; 4] = ['*', '?', '[', '\\'];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    /// Absent if the pattern contains the placeholder, so that its glob depends on the identity.
    glob: Option<Glob>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error(transparent)]
    Glob(#[from] GlobError),
    #[error("unknown placeholder `{found}`{}; known: {PLACEHOLDER} (write `\\{{` for a brace itself)", near(.found))]
    Placeholder { found: String },
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
        // Identities are escaped before insertion, so a pattern that is valid for one identity is valid for all.
        let glob = Glob::new(&text.replace(PLACEHOLDER, "i"))?;
        Ok(Pattern { text: text.to_owned(), glob: (!differs).then_some(glob) })
    }

    /// The text as configured.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn matches_everything(&self) -> bool {
        self.glob.as_ref().is_some_and(Glob::matches_everything)
    }

    pub fn has_placeholder(&self) -> bool {
        self.glob.is_none()
    }

    /// The glob for this identity; `None` if the pattern has a placeholder and the identity has no name.
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
        Some(
            Glob::new(&self.text.replace(PLACEHOLDER, &literal))
                .expect("the pattern was checked, and the identity is escaped"),
        )
    }
}
