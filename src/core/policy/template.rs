//! Templates: settings for the resources that match an id or pattern. An exact id takes precedence; then the first
//! matching pattern applies.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    policy::{parameters::NamedParameter, settings::Settings},
    types::Glob,
};

#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    /// The id or pattern, as written.
    pub identifier_glob: String,
    pub settings: Arc<Settings>,
    /// The algorithm's parameters as configured, to be sent to child nodes. `settings` already includes them.
    pub parameters: Vec<NamedParameter>,
    pub description: Option<String>,
    /// The name of the declaration that it comes from; absent for a template of the configuration.
    pub declaration: Option<Arc<str>>,
}

impl Template {
    /// The id or pattern, with the declaration that it comes from.
    pub fn title(&self) -> String {
        match &self.declaration {
            Some(name) => format!("{name}: {}", self.identifier_glob),
            None => self.identifier_glob.clone(),
        }
    }
}

/// All templates. The time to find one does not depend on their number, unless many patterns begin with the same
/// literal text, such as `*-read` and `*-write`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Repository {
    templates: Vec<(Template, Glob)>,
    exact: BTreeMap<String, usize>,
    /// The templates by the literal text that their patterns begin with, in their order.
    by_prefix: BTreeMap<String, Vec<usize>>,
    /// The lengths of these texts in bytes, in ascending order.
    prefix_lengths: Vec<usize>,
}

impl Repository {
    pub fn new(templates: Vec<(Template, Glob)>) -> Repository {
        let mut repository = Repository::default();
        for (index, (template, glob)) in templates.iter().enumerate() {
            repository.exact.entry(template.identifier_glob.clone()).or_insert(index);
            repository.by_prefix.entry(glob.literal_prefix()).or_default().push(index);
        }
        let lengths: BTreeMap<usize, ()> = repository.by_prefix.keys().map(|prefix| (prefix.len(), ())).collect();
        Repository { templates, prefix_lengths: lengths.into_keys().collect(), ..repository }
    }

    /// The template for a resource. Requests for a resource without a template are granted in full.
    pub fn find(&self, id: &str) -> Option<&Template> {
        let found = self.exact.get(id).copied().or_else(|| self.first_match(id));
        found.map(|index| &self.templates[index].0)
    }

    /// The first pattern that matches.
    fn first_match(&self, id: &str) -> Option<usize> {
        let prefixes = self.prefix_lengths.iter().map_while(|length| (*length <= id.len()).then(|| id.get(..*length)));
        let candidates = prefixes.flatten().filter_map(|prefix| self.by_prefix.get(prefix));
        candidates.fold(None, |first: Option<usize>, candidates| {
            let earlier = candidates.iter().copied().take_while(|index| first.is_none_or(|first| *index < first));
            let mut matching = earlier.filter(|index| self.templates[*index].1.matches(id));
            matching.next().or(first)
        })
    }

    pub fn into_templates(self) -> Vec<(Template, Glob)> {
        self.templates
    }

    pub fn templates(&self) -> impl ExactSizeIterator<Item = &Template> {
        self.templates.iter().map(|(template, _)| template)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{policy::settings::AlgorithmKind, types::Amount};

    fn repository(globs: &[&str]) -> Repository {
        let template = |glob: &&str| {
            let settings = Settings::new(AlgorithmKind::FairShare, Amount::ZERO);
            let template = Template {
                identifier_glob: (*glob).into(),
                settings: settings.into(),
                parameters: Vec::new(),
                description: None,
                declaration: None,
            };
            (template, Glob::new(glob).expect("a valid pattern"))
        };
        Repository::new(globs.iter().map(template).collect())
    }

    fn found<'a>(repository: &'a Repository, id: &str) -> Option<&'a str> {
        repository.find(id).map(|template| template.identifier_glob.as_str())
    }

    #[test]
    fn an_exact_id_wins_over_all_patterns_then_the_first_pattern() {
        let repository = repository(&["fair*", "f*", "fair-special", "a/*", "*"]);
        assert_eq!(found(&repository, "fair-special"), Some("fair-special"));
        assert_eq!(found(&repository, "fair-other"), Some("fair*"));
        assert_eq!(found(&repository, "fun"), Some("f*"));
        assert_eq!(found(&repository, "a/b"), Some("a/*"));
        assert_eq!(found(&repository, "a/b/c"), Some("*"), "a lone star also matches ids with slashes");
        assert_eq!(found(&repository, "f*"), Some("f*"), "an id that looks like a pattern is still an exact name");
    }

    proptest! {
        #[test]
        fn the_index_finds_what_a_search_in_order_finds(
            globs in prop::collection::vec("[ab]{0,2}[*?é]?[ab/]{0,2}|\\*|\\[ab\\][ab]?", 0..12), id in "[abé/]{0,5}",
        ) {
            let globs: Vec<&str> = globs.iter().map(String::as_str).collect();
            let matches = |glob: &&&str| Glob::new(glob).expect("a valid pattern").matches(&id);
            let expected = globs.iter().find(|glob| **glob == id).or_else(|| globs.iter().find(matches));
            let repository = repository(&globs);
            prop_assert_eq!(found(&repository, &id), expected.copied());
        }
    }

    #[test]
    fn without_a_star_some_ids_have_no_template() {
        assert_eq!(found(&repository(&["fair*"]), "other"), None);
    }
}
