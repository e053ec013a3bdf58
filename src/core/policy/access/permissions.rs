//! The permissions of one identity: the rules that apply to it, with its name inserted into their patterns.

use crate::types::Glob;

use super::{AccessRequest, Action, Actions, Condition, Identity, Pattern, Policy, Rule};

#[derive(Debug, Clone)]
pub struct Permissions {
    identity: Identity,
    granted: Vec<Granted>,
}

/// A rule that applies to the identity.
#[derive(Debug, Clone)]
pub(super) struct Granted {
    name: String,
    may: Actions,
    all_resources: bool,
    resources: Vec<Glob>,
    clients: Vec<Glob>,
    nodes: Vec<Glob>,
    max_priority: i16,
}

/// The outcome of a permission check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision<'p> {
    pub allowed: bool,
    /// The rule that allows the request. For a denial, the rule with the fewest unmet conditions, if any applies to the
    /// identity.
    pub rule: Option<&'p str>,
    /// The first condition of that rule that the request does not meet.
    pub unmet: Option<Condition>,
}

/// Actions that the operator may perform without any rule.
const OPERATORS: [Action; 7] =
    [Action::Read, Action::Configure, Action::Pools, Action::Peers, Action::Override, Action::Limits, Action::Declare];

impl Granted {
    pub(super) fn of(rule: &Rule, identity: &Identity) -> Granted {
        let globs =
            |patterns: &[Pattern]| patterns.iter().filter_map(|pattern| pattern.glob_for(identity)).collect::<Vec<_>>();
        Granted {
            name: rule.name.clone(),
            may: rule.may,
            all_resources: rule.resources.iter().any(Pattern::matches_everything),
            resources: globs(&rule.resources),
            clients: globs(&rule.clients),
            nodes: globs(&rule.nodes),
            max_priority: rule.max_priority.unwrap_or(i16::MAX),
        }
    }

    fn has_resource(&self, action: Action, resource: Option<&str>) -> bool {
        let is_covered = || match (action, resource) {
            (Action::Declare, Some(pattern)) => {
                Glob::new(pattern).is_ok_and(|pattern| self.resources.iter().any(|glob| pattern.is_within(glob)))
            }
            _ => some(&self.resources, resource),
        };
        !action.is_of_resources() || self.all_resources || is_covered()
    }

    fn has_holder(&self, action: Action, holder: Option<&str>) -> bool {
        let holders = if action == Action::Lend { &self.nodes } else { &self.clients };
        !action.is_of_holders() || some(holders, holder)
    }

    fn has_priority(&self, action: Action, priority: Option<i16>) -> bool {
        !action.is_of_holders() || priority.is_none_or(|priority| priority <= self.max_priority)
    }

    pub(super) fn unmet(&self, request: &AccessRequest<'_>) -> impl Iterator<Item = Condition> + use<> {
        let AccessRequest { action, resource, holder, priority } = *request;
        let unmet = [
            (Condition::May, self.may.has(action)),
            (Condition::Resource, self.has_resource(action, resource)),
            (Condition::Holder, self.has_holder(action, holder)),
            (Condition::Priority, self.has_priority(action, priority)),
        ];
        unmet.into_iter().filter(|(_, is_met)| !is_met).map(|(condition, _)| condition)
    }
}

fn some(globs: &[Glob], text: Option<&str>) -> bool {
    text.is_none_or(|text| globs.iter().any(|glob| glob.matches(text)))
}

impl Permissions {
    pub(super) fn new(policy: &Policy, identity: &Identity) -> Permissions {
        let rules = policy.rules().iter().filter(|rule| rule.is_for(identity));
        Permissions { identity: identity.clone(), granted: rules.map(|rule| Granted::of(rule, identity)).collect() }
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    fn is_operators(&self, action: Action) -> bool {
        self.identity == Identity::Operator && OPERATORS.contains(&action)
    }

    /// The highest priority at which the action is allowed; `None` if it is not allowed at all, `i16::MAX` if there is
    /// no limit.
    pub fn ceiling(&self, action: Action, resource: &str, holder: &str) -> Option<i16> {
        let allow = |granted: &&Granted| {
            granted.may.has(action)
                && granted.has_holder(action, Some(holder))
                && granted.has_resource(action, Some(resource))
        };
        self.granted.iter().filter(allow).map(|granted| granted.max_priority).max()
    }

    /// Whether the action is allowed on every resource.
    pub fn covers_everything(&self, action: Action) -> bool {
        self.is_operators(action) || self.granted.iter().any(|granted| granted.may.has(action) && granted.all_resources)
    }

    pub fn is_empty(&self) -> bool {
        self.granted.is_empty() && self.identity != Identity::Operator
    }

    pub fn decide(&self, request: &AccessRequest<'_>) -> Decision<'_> {
        if self.is_operators(request.action) {
            return Decision { allowed: true, rule: None, unmet: None };
        }
        let judged = self.granted.iter().map(|granted| {
            let mut unmet = granted.unmet(request);
            let first = unmet.next();
            (usize::from(first.is_some()) + unmet.count(), first, granted)
        });
        // The first rule with the fewest unmet conditions.
        match judged.min_by_key(|(count, ..)| *count) {
            Some((_, unmet, granted)) => Decision { allowed: unmet.is_none(), rule: Some(&granted.name), unmet },
            None => Decision { allowed: false, rule: None, unmet: Some(Condition::Who) },
        }
    }

    /// Like [`decide`](Self::decide), but returns the reason of a denial as a sentence.
    pub fn check(&self, request: &AccessRequest<'_>) -> Result<(), String> {
        let decision = self.decide(request);
        if decision.allowed { Ok(()) } else { Err(decision.sentence(&self.identity, request)) }
    }
}

impl Decision<'_> {
    pub fn sentence(&self, identity: &Identity, request: &AccessRequest<'_>) -> String {
        let who = format!("`{identity}`");
        let Some(rule) = self.rule else {
            return match self.allowed {
                true => format!("{who} may {request}: it holds the server's admin token"),
                false => format!("{who} may not {request}: no rule applies to this identity"),
            };
        };
        let lacks = match self.unmet {
            None => return format!("{who} may {request}: rule `{rule}` allows it"),
            Some(Condition::Who) => "does not apply to it",
            Some(Condition::May) => "does not allow this action",
            Some(Condition::Resource) => "does not cover this resource",
            Some(Condition::Holder) if request.action == Action::Lend => "does not cover this child node",
            Some(Condition::Holder) => "does not cover this client",
            Some(Condition::Priority) => "allows only lower priorities (`max_priority`)",
        };
        format!("{who} may not {request}: no rule allows this; the closest, `{rule}`, {lacks}")
    }
}
