//! The differences between two access policies, rule by rule.

use leaseway_core::policy::access::{Pattern, Policy, Rule};

use super::Difference;

pub(in super::super) fn between_policies(before: Option<&Policy>, after: Option<&Policy>) -> Vec<Difference> {
    let mut differences = Vec::new();
    match (before.is_some(), after.is_some()) {
        (false, true) => differences.push(changed("access", "default", "allowed", "denied")),
        (true, false) => differences.push(changed("access", "default", "denied", "allowed")),
        _ => {}
    }
    let [before, after] = [before, after].map(|policy| policy.map(Policy::rules).unwrap_or_default());
    let find = |rules: &[Rule], name: &str| rules.iter().position(|rule| rule.name == name);
    for rule in before.iter().filter(|rule| find(after, &rule.name).is_none()) {
        differences.push(Difference::Removed { template: label(rule), had: in_short(rule) });
    }
    for rule in after {
        let Some(index) = find(before, &rule.name) else {
            differences.push(Difference::Added { template: label(rule), brings: in_short(rule) });
            continue;
        };
        let pairs = fields(&before[index]).into_iter().zip(fields(rule)).filter(|(before, after)| before != after);
        differences.extend(pairs.map(|((field, from), (_, to))| changed(&label(rule), field, &from, &to)));
    }
    differences
}

fn changed(template: &str, field: &'static str, from: &str, to: &str) -> Difference {
    Difference::Changed { template: template.to_owned(), field, from: from.to_owned(), to: to.to_owned() }
}

fn label(rule: &Rule) -> String {
    format!("access rule `{}`", rule.name)
}

fn in_short(rule: &Rule) -> String {
    let shown = fields(rule).into_iter().filter(|(field, value)| matches!(*field, "who" | "may") || value != "all");
    shown.map(|(field, value)| format!("{field} {value}")).collect::<Vec<_>>().join(", ")
}

/// All fields of a rule in words. The rule is destructured by name, so that a new field must be added here.
fn fields(rule: &Rule) -> Vec<(&'static str, String)> {
    let Rule { name: _, who, may, resources, clients, nodes, max_priority } = rule;
    vec![
        ("who", in_words(who)),
        ("may", may.to_string()),
        (
            "resources",
            if resources.iter().any(Pattern::matches_everything) { "all".into() } else { in_words(resources) },
        ),
        ("clients", in_words(clients)),
        ("nodes", in_words(nodes)),
        ("max_priority", max_priority.map_or_else(|| "all".to_owned(), |most| most.to_string())),
    ]
}

/// Patterns in the notation of the configuration.
pub(in super::super) fn in_words(patterns: &[Pattern]) -> String {
    patterns.iter().map(Pattern::text).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use leaseway_server::config;

    use super::{super::as_text, *};

    fn differences(before: &str, after: &str) -> String {
        let read = |text: &str| {
            let text = format!("resources: [{{identifier_glob: '*', algorithm: {{kind: NO_ALGORITHM}}}}]\n{text}");
            config::parse("f", &text).unwrap_or_else(|error| panic!("{error}")).access
        };
        as_text(&between_policies(read(before).as_deref(), read(after).as_deref()))
    }

    #[test]
    fn rules_are_added_removed_and_changed() {
        let web = "access:\n- {name: web, who: 'web-*', may: ask}\n";
        assert_eq!(differences(web, web), "no difference");
        assert_eq!(
            differences("", web),
            "access: default allowed → denied\n\
             access rule `web`: new, with who web-*, may ask, clients {identity} {identity}/*, nodes {identity}"
        );
        assert!(differences(web, "").starts_with("access: default denied → allowed\n"));
        let changed =
            "access:\n- {name: web, who: ['web-*', api], may: [ask, read], resources: 'db/*', max_priority: 3}\n";
        assert_eq!(
            differences(web, changed),
            "access rule `web`: who web-* → web-* api\n\
             access rule `web`: may ask → ask, read\n\
             access rule `web`: resources all → db/*\n\
             access rule `web`: max_priority all → 3"
        );
    }
}
