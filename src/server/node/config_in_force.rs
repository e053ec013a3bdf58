//! The configuration in force.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex},
};

use leaseway_core::{
    policy::{
        access::Policy,
        overrides::{Override, Overrides},
        settings::{AlgorithmKind, Settings},
        template::{Repository, Template},
    },
    types::{Amount, Millis},
};
use leaseway_raft::{Overriding, RaftHandle};

use crate::config::{Loaded, initial_config::longest_lease};

/// A configuration, and where it came from.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConfigInForce {
    pub(crate) repository: Repository,
    /// The templates that gateways have declared, in the order of the declarations' names. The node actor sets them.
    pub(crate) declared: Arc<Repository>,
    /// The access policy, if the configuration has one.
    pub(crate) access: Option<Arc<Policy>>,
    /// Starts at 1 and counts replacements.
    pub(crate) version: u64,
    /// A file name, or a description.
    pub(crate) source: String,
    /// The YAML as the operator wrote it. Empty if the templates come from a parent.
    pub(crate) text: Arc<str>,
    /// Why the newest replacement was refused, if it was.
    pub(crate) rejected: Option<String>,
    /// Temporary settings of operators. The node actor sets them.
    pub(crate) overrides: Arc<Overrides>,
    /// The settings of resources with limits of their own, which share them if template and limit are the same.
    pub(super) limited: Arc<Mutex<SharedSettings>>,
}

/// Settings by the address of the template's settings and the bits of the limit.
type SharedSettings = HashMap<(usize, u64), Arc<Settings>>;

/// Maximum number of shared settings. Further resources with limits have settings of their own.
const MAX_SHARED: usize = 4096;

/// The limit of a resource, if peers keep one.
pub(super) fn limit_of(raft: Option<&RaftHandle>, id: &str) -> Option<Amount> {
    raft?.read(|state| state.limits().get(id).map(|limit| limit.capacity))
}

impl ConfigInForce {
    pub(crate) fn is_same_as(&self, loaded: &Loaded) -> bool {
        (&self.repository, &self.access) == (&loaded.repository, &loaded.access)
    }

    /// The template of a resource. The configuration comes first, then declarations, then a lone `*` of the
    /// configuration.
    fn find(&self, id: &str) -> Option<&Template> {
        let configured = self.repository.find(id);
        match configured {
            Some(template) if template.identifier_glob != "*" || id == "*" => configured,
            _ => self.declared.find(id).or(configured),
        }
    }

    /// The matching template with its origin, for people.
    pub(super) fn template_of(&self, id: &str) -> Option<String> {
        self.find(id).map(Template::title)
    }

    /// The name of the declaration that the matching template comes from, if it does.
    pub(super) fn declaration_of(&self, id: &str) -> Option<Arc<str>> {
        self.find(id)?.declaration.clone()
    }

    /// The settings of the matching template, if there is one.
    pub(crate) fn template_settings(&self, id: &str) -> Option<Arc<Settings>> {
        self.find(id).map(|template| Arc::clone(&template.settings))
    }

    /// The longest time that clients may trust a lease.
    pub(crate) fn longest_lease(&self) -> Millis {
        let (configured, declared) = (longest_lease(&self.repository), &self.declared);
        if declared.templates().len() == 0 { configured } else { configured.max(longest_lease(declared)) }
    }

    /// The settings of a resource: those of its template, with the limit of the resource in place of the capacity. A
    /// limit without a template is divided by FAIR_SHARE.
    pub(super) fn settings_for(&self, id: &str, limit: Option<Amount>) -> Arc<Settings> {
        static UNMATCHED: LazyLock<Arc<Settings>> = LazyLock::new(|| Settings::unmatched().into());
        static LIMITED: LazyLock<Arc<Settings>> =
            LazyLock::new(|| Settings::new(AlgorithmKind::FairShare, Amount::ZERO).into());
        let template = self.template_settings(id);
        let Some(limit) = limit else { return template.unwrap_or_else(|| Arc::clone(&UNMATCHED)) };
        let template = template.unwrap_or_else(|| Arc::clone(&LIMITED));
        let key = (Arc::as_ptr(&template).addr(), limit.get().to_bits());
        let mut shared = self.limited.lock().expect("no panic while the settings are locked");
        if let Some(known) = shared.get(&key) {
            return Arc::clone(known);
        }
        let settings = Arc::new(limited(&template, limit));
        if shared.len() < MAX_SHARED {
            shared.insert(key, Arc::clone(&settings));
        }
        settings
    }
}

/// Load reports of the protected resource cannot raise the capacity above its limit.
fn limited(template: &Settings, limit: Amount) -> Settings {
    let (floor, ceiling) = template.load_bounds;
    let load_bounds = (floor.map(|floor| floor.min(limit)), ceiling.map(|_| limit));
    Settings { capacity: limit, load_bounds, ..template.clone() }
}

/// `at`: the time of a process, when it is `unix_ms`.
pub(crate) fn override_of((target, kept): &Overriding, unix_ms: u64, at: Millis) -> Override {
    Override {
        target: target.clone(),
        value: kept.value,
        ends: at.plus(Millis(kept.until_unix_ms.saturating_sub(unix_ms))),
        by: Arc::clone(&kept.by),
        why: Arc::clone(&kept.why),
    }
}

#[cfg(test)]
mod tests {
    use leaseway_core::types::Glob;

    use super::*;
    use crate::config;

    fn declared(name: &str, globs: &[&str]) -> Vec<(Template, Glob)> {
        let template = |(capacity, glob): (usize, &&str)| {
            format!("- {{identifier_glob: '{glob}', capacity: {capacity}, algorithm: {{kind: FAIR_SHARE}}}}\n")
        };
        let text: String = globs.iter().enumerate().map(template).collect();
        config::parse_declared(&name.into(), &format!("resources:\n{text}")).expect("valid")
    }

    #[test]
    fn configured_templates_come_first_then_declared_ones_then_a_lone_star() {
        let text = "resources: [{identifier_glob: 'shop/user=ann', capacity: 1}, {identifier_glob: 'shop/path=*', capacity: 2},
            {identifier_glob: '*', capacity: 3, algorithm: {kind: FAIR_SHARE}}]";
        let repository = config::parse("test", text).expect("valid").repository;
        let templates = [
            declared("rls/a", &["shop/user=*", "shop/path=/x", "other/*"]),
            declared("rls/b", &["shop/user=bob", "shop/user=*", "b/*"]),
        ];
        let declared = Arc::new(Repository::new(templates.concat()));
        let with = |repository| ConfigInForce { repository, declared: Arc::clone(&declared), ..Default::default() };
        let config = with(repository);
        for (id, title) in [
            ("shop/user=ann", "shop/user=ann"),
            ("shop/path=/x", "rls/a: shop/path=/x"),
            ("shop/path=y", "shop/path=*"),
            ("shop/user=eve", "rls/a: shop/user=*"),
            ("shop/user=bob", "rls/b: shop/user=bob"),
            ("other/x", "rls/a: other/*"),
            ("b/x", "rls/b: b/*"),
            ("elsewhere", "*"),
            ("*", "*"),
        ] {
            assert_eq!(config.template_of(id).as_deref(), Some(title), "{id}");
        }
        let alone = with(Repository::default());
        assert_eq!(alone.template_of("b/x").as_deref(), Some("rls/b: b/*"));
        assert_eq!(alone.template_of("elsewhere"), None);
    }

    #[test]
    fn a_limit_replaces_the_capacity_and_equal_settings_are_shared() {
        let amount = |amount: f64| Amount::clamped(amount);
        let mut settings = Settings::new(AlgorithmKind::ProportionalShare, amount(100.0));
        settings.load_bounds = (Some(amount(50.0)), Some(amount(200.0)));
        let template = Template {
            identifier_glob: "t/*".into(),
            settings: settings.into(),
            parameters: Vec::new(),
            description: None,
            declaration: None,
        };
        let glob = leaseway_core::types::Glob::new("t/*").expect("a pattern");
        let config = ConfigInForce { repository: Repository::new(vec![(template, glob)]), ..Default::default() };
        let of = |id: &str, limit: Option<f64>| config.settings_for(id, limit.map(amount));
        let (a, b, other) = (of("t/a", Some(40.0)), of("t/b", Some(40.0)), of("t/c", Some(300.0)));
        assert!(Arc::ptr_eq(&a, &b) && Arc::ptr_eq(&of("t/a", None), &of("t/b", None)));
        assert_eq!((a.capacity, a.kind), (amount(40.0), AlgorithmKind::ProportionalShare));
        assert_eq!(a.load_bounds, (Some(amount(40.0)), Some(amount(40.0))));
        assert_eq!(other.load_bounds, (Some(amount(50.0)), Some(amount(300.0))));
        let alone = of("alone", Some(7.0));
        assert_eq!((alone.capacity, alone.kind), (amount(7.0), AlgorithmKind::FairShare));
        assert_eq!(of("alone", None).kind, AlgorithmKind::NoAlgorithm);
    }
}
