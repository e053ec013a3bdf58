//! Declarations: templates that gateways derive from their rules. The peers keep them.

use std::sync::Arc;

use leaseway_raft::{Command, Declaration, Declarations, MasterLease, ProposeError};

use super::NodeHandle;
use crate::{
    config::{ConfigError, parse_declared},
    node::request_error::NotMaster,
};

/// Maximum length of a name in bytes. A domain may need three bytes for each of its own.
const MAX_NAME: usize = 320;
const MAX_DECLARATIONS: usize = 1000;
/// Maximum length of one declaration, and of all of them, in bytes.
const MAX_TEXT: usize = 1 << 20;
const MAX_TEXTS: usize = 4 << 20;

/// Why templates were not declared.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeclareError {
    #[error("this peer is not the master")]
    NotMaster(NotMaster),
    #[error("the templates come from the parent ({0}): declare them at the root of the tree")]
    HasParent(String),
    #[error("invalid `name` of {0} bytes: expected 1 to {MAX_NAME} bytes without control characters, such as rls/shop")]
    Name(usize),
    #[error("`{name}` has {bytes} bytes, but at most {MAX_TEXT} are allowed: declare fewer templates")]
    TooLong { name: Arc<str>, bytes: usize },
    #[error(transparent)]
    Invalid(#[from] ConfigError),
    #[error("`{0}`: a declaration needs a `version`, in milliseconds since the Unix epoch")]
    NoVersion(Arc<str>),
    #[error(
        "version {version} of `{name}` is not newer than version {in_force} from {by}, which is in force: see \
         `leaseway declarations list`"
    )]
    Older { name: Arc<str>, version: u64, in_force: u64, by: Arc<str> },
    #[error(
        "there would be {count} declarations with {bytes} bytes, but at most {MAX_DECLARATIONS} with {MAX_TEXTS} bytes \
         are allowed: delete unused declarations (`leaseway declarations delete`)"
    )]
    Full { count: usize, bytes: usize },
    #[error(transparent)]
    Proposal(#[from] ProposeError),
}

/// The outcome of a declaration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Declared {
    /// The version in force; 0 without one.
    pub(crate) version: u64,
    pub(crate) changed: bool,
}

impl NodeHandle {
    /// The stored declarations. Empty if no peers keep any.
    pub(crate) fn declarations(&self) -> Arc<Declarations> {
        self.raft().map(|raft| raft.read(|state| Arc::clone(state.declarations()))).unwrap_or_default()
    }

    /// Checks that this peer may store a declaration of this name, now.
    pub(crate) fn check_declares(&self, name: &str) -> Result<MasterLease, DeclareError> {
        if let Some(parent) = self.parent() {
            let addresses = parent.addresses.iter().map(ToString::to_string).collect::<Vec<_>>();
            return Err(DeclareError::HasParent(addresses.join(", ")));
        }
        if name.is_empty() || name.len() > MAX_NAME || name.contains(char::is_control) {
            return Err(DeclareError::Name(name.len()));
        }
        let master_lease = self.master_lease().map_err(DeclareError::NotMaster)?;
        Ok(master_lease.expect("with peers, a master has a lease"))
    }

    /// The patterns of a declaration.
    pub(crate) fn declared_patterns(name: &Arc<str>, text: &str) -> Result<Vec<String>, DeclareError> {
        if text.len() > MAX_TEXT {
            return Err(DeclareError::TooLong { name: Arc::clone(name), bytes: text.len() });
        }
        Ok(parse_declared(name, text)?.into_iter().map(|(template, _)| template.identifier_glob).collect())
    }

    /// Stores a declaration, or removes it. Returns when it is in force at this peer. The caller makes one call at a
    /// time, and has checked the text.
    pub(crate) async fn declare(
        &self,
        name: Arc<str>,
        version: u64,
        text: Option<&str>,
        by: Arc<str>,
    ) -> Result<Declared, DeclareError> {
        let master_lease = self.check_declares(&name)?;
        if let Some(known) = next(&self.declarations(), &name, version, text)? {
            return Ok(known);
        }
        let at_unix = self.clock.now().unix;
        let declaration = text.map(|text| Declaration { version, text: text.into(), at_unix, by });
        let version = declaration.as_ref().map_or(0, |declaration| declaration.version);
        let Some(raft) = self.raft() else { return Err(ProposeError::Deposed.into()) };
        raft.propose(&master_lease, vec![Command::Declare { name, declaration }]).await?;
        // If the node is gone, the process is ending.
        let _ = self.apply_raft_state().await;
        Ok(Declared { version, changed: true })
    }
}

/// Decides about a declaration. Returns the outcome if there is nothing to change.
fn next(
    stored: &Declarations,
    name: &Arc<str>,
    version: u64,
    text: Option<&str>,
) -> Result<Option<Declared>, DeclareError> {
    let known = stored.get(name);
    let older = |known: &Declaration| DeclareError::Older {
        name: Arc::clone(name),
        version,
        in_force: known.version,
        by: Arc::clone(&known.by),
    };
    match (known, text) {
        (None, None) => return Ok(Some(Declared { version: 0, changed: false })),
        (Some(known), None) if version != 0 && version < known.version => return Err(older(known)),
        (Some(_), None) => return Ok(None),
        (Some(known), Some(text)) if *known.text == *text => {
            return Ok(Some(Declared { version: known.version, changed: false }));
        }
        (_, Some(_)) if version == 0 => return Err(DeclareError::NoVersion(Arc::clone(name))),
        (Some(known), Some(_)) if version <= known.version => return Err(older(known)),
        (_, Some(_)) => {}
    }
    let others = stored.iter().filter(|(other, _)| *other != name);
    let (count, bytes) =
        others.fold((1, text.map_or(0, str::len)), |(count, bytes), (_, other)| (count + 1, bytes + other.text.len()));
    if count > MAX_DECLARATIONS || bytes > MAX_TEXTS {
        return Err(DeclareError::Full { count, bytes });
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(all: &[(&str, u64, &str)]) -> Declarations {
        let one = |(name, version, text): &(&str, u64, &str)| {
            let (text, by) = (Arc::from(*text), "gateway-1".into());
            ((*name).into(), Declaration { version: *version, text, at_unix: 0, by })
        };
        all.iter().map(one).collect()
    }

    fn decided(
        stored: &Declarations,
        name: &str,
        version: u64,
        text: Option<&str>,
    ) -> Result<Option<Declared>, String> {
        next(stored, &name.into(), version, text).map_err(|error| error.to_string())
    }

    #[test]
    fn newer_versions_win_and_equal_content_is_accepted() {
        let stored = stored(&[("rls/shop", 20, "new")]);
        let unchanged = |version| Ok(Some(Declared { version, changed: false }));
        assert_eq!(decided(&stored, "rls/shop", 21, Some("newer")), Ok(None));
        assert_eq!(decided(&stored, "rls/other", 1, Some("x")), Ok(None));
        for version in [0, 10, 20, 30] {
            assert_eq!(decided(&stored, "rls/shop", version, Some("new")), unchanged(20), "{version}");
        }
        for version in [10, 20] {
            let refused = decided(&stored, "rls/shop", version, Some("old")).expect_err("not newer");
            assert!(refused.contains("not newer than version 20 from gateway-1"), "{refused}");
        }
        assert!(decided(&stored, "rls/shop", 0, Some("x")).is_err_and(|error| error.contains("needs a `version`")));
        assert_eq!(decided(&stored, "rls/unknown", 0, None), unchanged(0));
        assert_eq!(
            [0, 20, 30].map(|version| decided(&stored, "rls/shop", version, None)),
            [Ok(None), Ok(None), Ok(None)]
        );
        assert!(decided(&stored, "rls/shop", 19, None).is_err(), "an older gateway no longer has the domain");
    }

    #[test]
    fn number_and_size_are_bounded() {
        let names: Vec<String> = (0..MAX_DECLARATIONS).map(|n| format!("rls/{n}")).collect();
        let full = stored(&names.iter().map(|name| (&**name, 1, "x")).collect::<Vec<_>>());
        assert_eq!(decided(&full, "rls/0", 2, Some("y")), Ok(None));
        assert!(decided(&full, "rls/more", 2, Some("y")).is_err_and(|error| error.contains("1001 declarations")));
        let large = "x".repeat(MAX_TEXTS - 1);
        let large = stored(&[("rls/large", 1, &large)]);
        assert_eq!(decided(&large, "rls/more", 2, Some("y")), Ok(None));
        assert!(decided(&large, "rls/more", 2, Some("yy")).is_err_and(|error| error.contains("4194305 bytes")));
        let too_long = NodeHandle::declared_patterns(&"rls/x".into(), &"x".repeat(MAX_TEXT + 1));
        assert!(matches!(too_long, Err(DeclareError::TooLong { .. })));
    }

    #[test]
    fn a_declaration_has_templates_only() {
        let patterns =
            |text: &str| NodeHandle::declared_patterns(&"rls/x".into(), text).map_err(|error| error.to_string());
        let template = "{identifier_glob: 'x/*', capacity: 1, algorithm: {kind: FAIR_SHARE}}";
        assert_eq!(patterns(&format!("resources: [{template}]")), Ok(vec!["x/*".to_owned()]));
        for (text, says) in [
            ("resources: []".to_owned(), "rls/x:1:12: `resources` has no templates"),
            (
                format!("resources: [{template}]\naccess: [{{who: '*', may: read, resources: '*'}}]"),
                "must not have `access`",
            ),
            (
                format!("resources: [{template}, {{identifier_glob: '*', capacity: 1, algorithm: {{kind: STATIC}}}}]"),
                "must not have the template `*`",
            ),
            ("access: [{who: '*', may: read, resources: '*'}]".to_owned(), "no `resources`"),
        ] {
            let refused = patterns(&text).expect_err(says);
            assert!(refused.contains(says), "{refused}");
        }
    }
}
