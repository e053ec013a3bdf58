//! Decisions by example, and compared with a simple second implementation.

use proptest::{prelude::*, sample::select};

use super::*;

fn patterns(texts: &[&str]) -> Vec<Pattern> {
    texts.iter().map(|text| Pattern::new(text).expect(text)).collect()
}

fn rule(name: &str, who: &[&str], may: &[Action]) -> Rule {
    Rule {
        name: name.into(),
        who: patterns(who),
        may: may.iter().copied().collect(),
        resources: patterns(&["*"]),
        clients: patterns(&["{identity}", "{identity}/*"]),
        nodes: patterns(&["{identity}"]),
        max_priority: None,
    }
}

fn named(name: &str) -> Identity {
    Identity::named(name).expect(name)
}

fn asks<'a>(resource: &'a str, client: &'a str, priority: i16) -> AccessRequest<'a> {
    AccessRequest { action: Action::Ask, resource: Some(resource), holder: Some(client), priority: Some(priority) }
}

fn allows(policy: &Policy, identity: &Identity, request: &AccessRequest<'_>) -> bool {
    policy.of(identity).decide(request).allowed
}

#[test]
fn reserved_or_invalid_names_are_no_identities() {
    for (text, error) in [
        ("", IdentityError::Empty),
        ("a\nb", IdentityError::Unseen),
        ("a\u{202e}b", IdentityError::Unseen),
        ("anonymous", IdentityError::Reserved),
        ("operator", IdentityError::Reserved),
    ] {
        assert_eq!(Identity::named(text), Err(error), "{text:?}");
    }
    assert_eq!(Identity::named(&"a".repeat(513)), Err(IdentityError::TooLong));
}

#[test]
fn denials_name_the_nearest_rule_of_the_identity_and_no_other() {
    let secret = rule("secret", &["db"], &[Action::Ask]);
    let web = Rule { resources: patterns(&["db/*"]), ..rule("web", &["web"], &[Action::Ask]) };
    let policy = Policy::new(vec![secret, web]);
    let said =
        |identity: &str, request: AccessRequest<'_>| policy.of(&named(identity)).check(&request).expect_err("no");
    for (request, says) in [
        (asks("db/1", "bob", 0), "`web`, does not cover this client"),
        (asks("cache", "web", 0), "`web`, does not cover this resource"),
        (
            AccessRequest::to(Action::Configure),
            "may not change the configuration: no rule allows this; the closest, `web`",
        ),
    ] {
        let said = said("web", request);
        assert!(said.contains(says), "{said}");
    }
    assert!(said("stranger", asks("db/1", "db", 0)).ends_with("no rule applies to this identity"));
    let escaped = said("web", asks("x\u{1b}[2J\n", "web", 0));
    assert!(escaped.contains("`x\\u001b[2J\\n`"), "{escaped}");
}

#[test]
fn placeholders_are_checked() {
    let unknown = |found: &str| Err(PatternError::Placeholder { found: found.into() });
    for (text, expected) in [
        ("{identity}", Ok(true)),
        ("a/{identity}/*", Ok(true)),
        ("\\{a\\}", Ok(false)),
        ("a\\\\{identity}", Ok(true)),
        ("{idenity}/*", unknown("{idenity}")),
        ("a{b", unknown("{b")),
        ("{identity}{x}", unknown("{x}")),
    ] {
        assert_eq!(Pattern::new(text).map(|pattern| pattern.has_placeholder()), expected, "{text}");
    }
    assert_eq!(Pattern::new("{identity}["), Err(PatternError::Glob(crate::types::GlobError::UnclosedClass)));
    let said = unknown("{idenity}").map(|_: bool| ()).expect_err("an unknown placeholder").to_string();
    assert_eq!(
        said,
        "unknown placeholder `{idenity}` (did you mean `{identity}`?); known: {identity} (write `\\{` for a brace \
         itself)"
    );
}

#[test]
fn explanation_lists_unmet_conditions() {
    let policy = Policy::new(vec![
        rule("web", &["web"], &[Action::Ask]),
        Rule { max_priority: Some(1), ..rule("low", &["*"], &[Action::Ask]) },
        rule("ops", &["ops"], &[Action::Read]),
    ]);
    let explained = policy.explain(&named("web"), &asks("db", "web/1", 5));
    let explained: Vec<_> = explained.iter().map(|(rule, unmet)| (rule.name.as_str(), unmet.as_slice())).collect();
    assert_eq!(
        explained,
        [("web", &[][..]), ("low", &[Condition::Priority]), ("ops", &[Condition::Who, Condition::May]),]
    );
}

/// The second implementation: replaces and compares strings, rule by rule.
mod plain {
    use super::*;

    /// Matches the whole text, or a prefix before a final `*`. The `*` matches no `/`, unless it is the whole pattern.
    fn matches(pattern: &str, text: &str) -> bool {
        match pattern.strip_suffix('*') {
            Some("") => true,
            Some(start) => text.strip_prefix(start).is_some_and(|rest| !rest.contains('/')),
            None => pattern == text,
        }
    }

    fn matches_for(identity: &Identity, pattern: &Pattern, text: &str) -> bool {
        let is_named = matches!(identity, Identity::Named(_));
        (is_named || !pattern.text().contains("{identity}"))
            && matches(&pattern.text().replace("{identity}", identity.text()), text)
    }

    pub(super) fn allows(policy: &Policy, identity: &Identity, request: &AccessRequest<'_>) -> bool {
        let operators = ["read", "configure", "pools", "peers", "override", "limits", "declare"];
        if *identity == Identity::Operator && operators.contains(&request.action.name()) {
            return true;
        }
        for rule in policy.rules() {
            let mut is_for = false;
            for who in &rule.who {
                is_for |= match identity {
                    Identity::Anonymous => who.text() == "anonymous",
                    Identity::Operator => ["*", "operator"].contains(&who.text()),
                    Identity::Named(name) => matches_for(identity, who, name),
                };
            }
            let holders = if request.action == Action::Lend { &rule.nodes } else { &rule.clients };
            let names = |patterns: &[Pattern], text: Option<&str>| match text {
                None => true,
                Some(text) => patterns.iter().any(|pattern| matches_for(identity, pattern, text)),
            };
            let asks = [Action::Ask, Action::Lend].contains(&request.action);
            let of_all = [Action::Configure, Action::Peers].contains(&request.action);
            let high = match (request.priority, rule.max_priority) {
                (Some(priority), Some(most)) => asks && priority > most,
                _ => false,
            };
            if is_for
                && rule.may.iter().any(|action| action == request.action)
                && (of_all || names(&rule.resources, request.resource))
                && (!asks || names(holders, request.holder))
                && !high
            {
                return true;
            }
        }
        false
    }
}

const NAMES: [&str; 8] = ["a", "b", "ab", "a/b", "a/b/c", "b/a", "anonymous", "operator"];

fn any_pattern() -> impl Strategy<Value = Vec<Pattern>> {
    let text = select(vec![
        "a",
        "b",
        "a*",
        "a/*",
        "*",
        "a/b*",
        "{identity}",
        "{identity}/*",
        "{identity}*",
        "anonymous",
        "operator",
    ]);
    prop::collection::vec(text.prop_map(|text| Pattern::new(text).expect("a pattern")), 0..3)
}

prop_compose! {
    fn any_rule()(
        who in any_pattern(),
        may in prop::collection::vec(select(Action::ALL.to_vec()), 0..4),
        resources in any_pattern(),
        clients in any_pattern(),
        nodes in any_pattern(),
        max_priority in prop::option::of(-2i16..3),
    ) -> Rule {
        Rule { name: "r".into(), who, may: may.into_iter().collect(), resources, clients, nodes, max_priority }
    }
}

fn any_identity() -> impl Strategy<Value = Identity> {
    select(NAMES.to_vec()).prop_map(|name| Identity::parse(name).expect("a name"))
}

proptest! {
    #![proptest_config(crate::tests::cases(2000))]

    #[test]
    fn decides_as_the_plain_implementation_does(
        rules in prop::collection::vec(any_rule(), 0..5),
        identity in any_identity(),
        action in select(Action::ALL.to_vec()),
        resource in prop::option::of(select(NAMES.to_vec())),
        holder in prop::option::of(select(NAMES.to_vec())),
        priority in prop::option::of(-3i16..4),
    ) {
        let policy = Policy::new(rules);
        let request = AccessRequest { action, resource, holder, priority };
        let expected = plain::allows(&policy, &identity, &request);
        let permissions = policy.of(&identity);
        prop_assert_eq!(permissions.decide(&request).allowed, expected);
        let is_operators = identity == Identity::Operator && !action.is_of_holders();
        let explained = policy.explain(&identity, &request).iter().any(|(_, unmet)| unmet.is_empty());
        prop_assert_eq!(explained || is_operators, expected);
        if let (true, Some(resource), Some(holder)) = (action.is_of_holders(), resource, holder) {
            let ceiling = permissions.ceiling(action, resource, holder);
            let below = ceiling.is_some_and(|ceiling| priority.is_none_or(|priority| priority <= ceiling));
            prop_assert_eq!(below, expected, "a ceiling is a decision for every priority");
        }
    }

    #[test]
    fn an_identity_is_never_a_pattern(name in "[ab*?\\[\\]\\\\{}/-]{1,6}", client in "[ab*?\\[\\]\\\\{}/-]{1,6}") {
        prop_assume!(Identity::named(&name).is_ok());
        let own = Rule { clients: patterns(&["{identity}"]), ..rule("own", &["*"], &[Action::Ask]) };
        let policy = Policy::new(vec![own]);
        prop_assert_eq!(allows(&policy, &named(&name), &asks("db", &client, 0)), name == client);
    }
}
