//! Reads the resources of a control plane: a `RateLimitConfig` for each domain.

use std::{borrow::Cow, sync::Arc};

use leaseway_core::types::escaped;
use leaseway_proto::envoy::ratelimit_discovery::{
    RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit, TYPE_URL,
};
use prost::Message as _;
use prost_types::Any;

use crate::rls::{
    definition::{
        self, DETAILED_METRIC, DescriptorDefinition, DomainDefinition, LimitDefinition, QUOTA_MODE, Report,
        SHADOW_MODE, Stated,
    },
    rules::Rules,
};

#[derive(Debug)]
pub(crate) struct LoadedConfigs {
    pub(crate) rules: Rules,
    pub(crate) warnings: Vec<String>,
}

/// The maximum number of mistakes, and of warnings, that are told.
const MAX_TOLD: usize = 20;

/// The maximum length of a message in characters. Messages quote the resource.
const MAX_MESSAGE: usize = 500;

/// Reads all resources. With `merge_domains` several may have the same domain. The error has a line for each mistake,
/// with the resource and the path of the field.
pub(crate) fn load(resources: &[Any], merge_domains: bool) -> Result<LoadedConfigs, String> {
    let (mut rules, mut messages) = (Rules::default(), Messages::default());
    for (index, resource) in resources.iter().enumerate() {
        messages.origin = format!("resources[{index}]").into();
        let config = match decode(resource) {
            Ok(config) => config,
            Err(why) => {
                messages.error(&String::new(), why);
                continue;
            }
        };
        if !config.name.is_empty() {
            messages.origin = format!("resource `{}`", config.name).into();
        }
        let domain = definition::check(domain(&config), Arc::clone(&messages.origin), &mut messages);
        if let Err(message) = definition::add(&mut rules, domain, merge_domains) {
            messages.error(&"domain".to_owned(), message);
        }
    }
    messages.finish().map(|warnings| LoadedConfigs { rules, warnings })
}

fn decode(resource: &Any) -> Result<RateLimitConfig, String> {
    if resource.type_url != TYPE_URL {
        return Err(format!("the type is `{}`, expected `{TYPE_URL}`", resource.type_url));
    }
    RateLimitConfig::decode(&*resource.value).map_err(|error| format!("not a RateLimitConfig: {error}"))
}

fn domain(config: &RateLimitConfig) -> DomainDefinition<'_, String> {
    DomainDefinition {
        at: "domain".to_owned(),
        name: &config.domain,
        descriptors: descriptors(&config.descriptors, "descriptors"),
    }
}

fn descriptors<'t>(list: &'t [RateLimitDescriptor], path: &str) -> Vec<DescriptorDefinition<'t, String>> {
    let described = list.iter().enumerate().map(|(index, descriptor)| {
        let at = format!("{path}[{index}]");
        let flags = [
            (SHADOW_MODE, descriptor.shadow_mode),
            (QUOTA_MODE, descriptor.quota_mode),
            (DETAILED_METRIC, descriptor.detailed_metric),
        ];
        DescriptorDefinition {
            key: &descriptor.key,
            value: &descriptor.value,
            limit: descriptor.rate_limit.as_ref().map(|policy| limit(policy, &format!("{at}.rate_limit"))),
            flags: flags
                .into_iter()
                .filter(|(_, is_set)| *is_set)
                .map(|(name, _)| (name, format!("{at}.{name}")))
                .collect(),
            metadata: descriptor.metadata.clone(),
            descriptors: descriptors(&descriptor.descriptors, &format!("{at}.descriptors")),
            at,
        }
    });
    described.collect()
}

/// A number of 0 is not in the message. It is the limit, unless there is none.
fn limit<'t>(policy: &'t RateLimitPolicy, at: &str) -> LimitDefinition<'t, String> {
    let unit = match RateLimitUnit::try_from(policy.unit) {
        Ok(RateLimitUnit::Unknown) => None,
        Ok(unit) => Some(Cow::Borrowed(unit.as_str_name())),
        Err(_) => Some(Cow::Owned(policy.unit.to_string())),
    };
    LimitDefinition {
        at: at.to_owned(),
        unlimited: policy.unlimited,
        requests_per_unit: (!policy.unlimited || policy.requests_per_unit > 0)
            .then(|| Stated::at(format!("{at}.requests_per_unit"), policy.requests_per_unit)),
        unit: unit.map(|unit| Stated::at(format!("{at}.unit"), unit)),
        name: &policy.name,
        replaces: policy
            .replaces
            .iter()
            .enumerate()
            .map(|(index, replaced)| (format!("{at}.replaces[{index}]"), &*replaced.name))
            .collect(),
    }
}

/// What is wrong with the resources.
#[derive(Debug, Default)]
struct Messages {
    /// The resource that is read.
    origin: Arc<str>,
    errors: Vec<String>,
    /// The number of mistakes that are not told.
    omitted: usize,
    warnings: Vec<String>,
}

impl Messages {
    fn finish(mut self) -> Result<Vec<String>, String> {
        if self.errors.is_empty() {
            return Ok(self.warnings);
        }
        if self.omitted > 0 {
            self.errors.push(format!("... and {} more mistakes", self.omitted));
        }
        Err(self.errors.join("\n"))
    }

    fn told(&self, at: &str, message: &str) -> String {
        let separator = if at.is_empty() { "" } else { ": " };
        let line = format!("{}: {at}{separator}{message}", self.origin);
        let short: String = line.chars().take(MAX_MESSAGE).collect();
        let more = if short.len() < line.len() { "…" } else { "" };
        format!("{}{more}", escaped(&short))
    }
}

impl Report for Messages {
    type Location = String;

    fn error(&mut self, at: &String, message: String) {
        if self.errors.len() < MAX_TOLD {
            self.errors.push(self.told(at, &message));
        } else {
            self.omitted += 1;
        }
    }

    fn warn(&mut self, at: &String, message: String) {
        if self.warnings.len() < MAX_TOLD {
            self.warnings.push(self.told(at, &message));
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
