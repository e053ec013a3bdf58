//! Templates: settings for the resources that match an id or pattern. An exact id takes precedence; then the first
//! matching pattern applies.

use std::sync::Arc;

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
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Repository {
    templates: Vec<(Template, Glob)>,
}

impl Repository {
    pub fn new(templates: Vec<(Template, Glob)>) -> Repository {
        Repository { templates }
    }

    /// The template for a resource. Requests for a resource without a template are granted in full.
    pub fn find(&self, id: &str) -> Option<&Template> {
        let exact = self.templates.iter().find(|(template, _)| template.identifier_glob == id);
        exact.or_else(|| self.templates.iter().find(|(_, glob)| glob.matches(id))).map(|(template, _)| template)
    }

    pub fn templates(&self) -> impl ExactSizeIterator<Item = &Template> {
        self.templates.iter().map(|(template, _)| template)
    }
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn without_a_star_some_ids_have_no_template() {
        assert_eq!(found(&repository(&["fair*"]), "other"), None);
    }
}
