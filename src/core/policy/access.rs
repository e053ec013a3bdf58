//! Access control: rules that grant actions to identities, from the `access:` section of the configuration.
//!
//! Rules only add permissions: a request is allowed if any rule allows it, and denied otherwise. The order of rules is
//! irrelevant. The server authenticates identities, and maps calls to actions.

mod identity;
mod pattern;
mod permissions;
#[cfg(test)]
mod tests;

use std::fmt;

use self::permissions::Granted;
use crate::types::{HolderKind, escaped};

pub use self::{
    identity::{Identity, IdentityError},
    pattern::{PLACEHOLDER, Pattern, PatternError},
    permissions::{Decision, Permissions},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Ask for capacity as a client, release it, and listen for hints.
    Ask,
    /// Ask for capacity as a child node.
    Lend,
    /// Read status, pages, metrics, configurations, peers and pools.
    Read,
    Configure,
    /// Change assignments of pools.
    Pools,
    /// Add and remove peers.
    Peers,
    /// Override the capacity of a resource.
    Override,
    /// Set the capacity of a single resource for good.
    Limits,
    /// Declare templates, as gateways do for their rules. The resource of a request is the pattern of a template, which
    /// must be within a pattern of the rule.
    Declare,
}

impl Action {
    pub const ALL: [Action; 9] = [
        Action::Ask,
        Action::Lend,
        Action::Read,
        Action::Configure,
        Action::Pools,
        Action::Peers,
        Action::Override,
        Action::Limits,
        Action::Declare,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Action::Ask => "ask",
            Action::Lend => "lend",
            Action::Read => "read",
            Action::Configure => "configure",
            Action::Pools => "pools",
            Action::Peers => "peers",
            Action::Override => "override",
            Action::Limits => "limits",
            Action::Declare => "declare",
        }
    }

    pub fn named(name: &str) -> Option<Action> {
        Action::ALL.into_iter().find(|action| action.name() == name)
    }

    /// The action of a holder that asks for capacity.
    pub fn of(kind: HolderKind) -> Action {
        match kind {
            HolderKind::Client => Action::Ask,
            HolderKind::Node => Action::Lend,
        }
    }

    /// Whether rules can restrict the action to certain resources.
    pub fn is_of_resources(self) -> bool {
        !matches!(self, Action::Configure | Action::Peers)
    }

    /// Whether the action is performed under the name of a client or child node.
    pub fn is_of_holders(self) -> bool {
        matches!(self, Action::Ask | Action::Lend)
    }

    fn bit(self) -> u16 {
        1 << self as u8
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Actions(u16);

impl Actions {
    pub fn has(self, action: Action) -> bool {
        self.0 & action.bit() != 0
    }

    pub fn union(self, other: Actions) -> Actions {
        Actions(self.0 | other.0)
    }

    pub fn iter(self) -> impl Iterator<Item = Action> {
        Action::ALL.into_iter().filter(move |action| self.has(*action))
    }
}

impl FromIterator<Action> for Actions {
    fn from_iter<I: IntoIterator<Item = Action>>(actions: I) -> Actions {
        Actions(actions.into_iter().fold(0, |set, action| set | action.bit()))
    }
}

impl fmt::Display for Actions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.iter().map(Action::name).collect::<Vec<_>>().join(", "))
    }
}

/// Grants actions to identities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Its name in denials and explanations.
    pub name: String,
    /// Patterns of the identities that the rule applies to. `{identity}` is not expanded here.
    pub who: Vec<Pattern>,
    pub may: Actions,
    pub resources: Vec<Pattern>,
    /// The client ids that the identity may use.
    pub clients: Vec<Pattern>,
    /// The child node ids that the identity may use.
    pub nodes: Vec<Pattern>,
    /// The highest priority in requests of its clients and child nodes; absent: no limit.
    pub max_priority: Option<i16>,
}

impl Rule {
    /// Whether the rule applies to this identity. A lone `*` matches every authenticated identity. A caller without an
    /// identity matches only `anonymous`, so it never gets permissions by accident.
    pub fn is_for(&self, identity: &Identity) -> bool {
        let is_meant = |pattern: &Pattern| match identity {
            Identity::Anonymous => pattern.text() == identity.text(),
            Identity::Operator => pattern.matches_everything() || pattern.text() == identity.text(),
            Identity::Named(name) => pattern.glob_for(identity).is_some_and(|glob| glob.matches(name)),
        };
        self.who.iter().any(is_meant)
    }
}

/// A request for permission. A `None` field is not checked: the request is allowed if any value of that field would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessRequest<'a> {
    pub action: Action,
    pub resource: Option<&'a str>,
    pub holder: Option<&'a str>,
    pub priority: Option<i16>,
}

impl<'a> AccessRequest<'a> {
    pub fn to(action: Action) -> AccessRequest<'a> {
        AccessRequest { action, resource: None, holder: None, priority: None }
    }

    pub fn on(action: Action, resource: &'a str) -> AccessRequest<'a> {
        AccessRequest { resource: Some(resource), ..AccessRequest::to(action) }
    }
}

impl fmt::Display for AccessRequest<'_> {
    /// The text after "may" or "may not".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.action {
            Action::Ask => "ask for",
            Action::Lend => "be lent",
            Action::Read => "read",
            Action::Configure => "change the configuration",
            Action::Pools => "manage",
            Action::Peers => "change the peers",
            Action::Override => "override the capacity of",
            Action::Limits => "set the limit of",
            Action::Declare => "declare templates for",
        };
        f.write_str(verb)?;
        match self.resource {
            Some(resource) => write!(f, " `{}`", shown(resource))?,
            None if self.action == Action::Read => f.write_str(" about this server")?,
            None if self.action.is_of_resources() => f.write_str(" a resource")?,
            None => {}
        }
        if let Some(holder) = self.holder {
            let kind = if self.action == Action::Lend { "child node" } else { "client" };
            write!(f, " as {kind} `{}`", shown(holder))?;
        }
        match self.priority {
            Some(priority) => write!(f, " at priority {priority}"),
            None => Ok(()),
        }
    }
}

/// Maximum length of a displayed id, in characters.
const MAX_SHOWN: usize = 100;

/// Escapes an id for logs and terminals, and truncates it.
fn shown(id: &str) -> String {
    let cut: String = id.chars().take(MAX_SHOWN).collect();
    let more = if cut.len() < id.len() { "…" } else { "" };
    format!("{}{more}", escaped(&cut))
}

/// The conditions of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    /// The identity is one of those under `who`.
    Who,
    /// The action is one of those under `may`.
    May,
    /// The resource is one of those under `resources`.
    Resource,
    /// The client or child node is one of those under `clients` or `nodes`.
    Holder,
    Priority,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    rules: Vec<Rule>,
}

impl Policy {
    pub fn new(rules: Vec<Rule>) -> Policy {
        Policy { rules }
    }

    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    pub fn of(&self, identity: &Identity) -> Permissions {
        Permissions::new(self, identity)
    }

    /// The conditions of each rule that the request does not meet. A rule without unmet conditions allows the request.
    pub fn explain(&self, identity: &Identity, request: &AccessRequest<'_>) -> Vec<(&Rule, Vec<Condition>)> {
        let unmet = |rule: &Rule| {
            let who = (!rule.is_for(identity)).then_some(Condition::Who);
            who.into_iter().chain(Granted::of(rule, identity).unmet(request)).collect()
        };
        self.rules.iter().map(|rule| (rule, unmet(rule))).collect()
    }
}
