//! The subscription of a gateway to changes: responses have only the resources that are new, have changed or are gone.
//! It does no I/O.

use std::collections::BTreeMap;

use leaseway_proto::envoy::{
    discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, Node, Resource, Status},
    ratelimit_discovery::TYPE_URL,
};
use prost_types::Any;

use super::{
    config,
    subscription::{Received, Rejections},
};

#[derive(Debug)]
pub(super) struct DeltaSubscription {
    node: Node,
    merge_domains: bool,
    /// The resources in force by name, with their versions.
    resources: BTreeMap<String, (String, Any)>,
    rejections: Rejections,
}

impl DeltaSubscription {
    pub(super) fn new(node: Node, merge_domains: bool) -> DeltaSubscription {
        DeltaSubscription { node, merge_domains, resources: BTreeMap::new(), rejections: Rejections::default() }
    }

    /// The first request of a stream. It names the resources in force, so that the server sends the others only.
    pub(super) fn subscribe(&self) -> DeltaDiscoveryRequest {
        let version = |(name, (version, _)): (&String, &(String, Any))| (name.clone(), version.clone());
        DeltaDiscoveryRequest {
            initial_resource_versions: self.resources.iter().map(version).collect(),
            ..self.request("", None)
        }
    }

    /// Applies a response in full, or rejects it in full.
    pub(super) fn receive(&mut self, response: &DeltaDiscoveryResponse) -> Received<DeltaDiscoveryRequest> {
        if response.type_url != TYPE_URL {
            return Received::OfOtherType;
        }
        let mut changed = self.resources.clone();
        changed.retain(|name, _| !response.removed_resources.contains(name));
        for Resource { name, version, resource } in &response.resources {
            changed.insert(name.clone(), (version.clone(), resource.clone().unwrap_or_default()));
        }
        let all: Vec<Any> = changed.values().map(|(_, resource)| resource.clone()).collect();
        match config::load(&all, self.merge_domains) {
            Ok(loaded) => {
                self.resources = changed;
                self.rejections = Rejections::default();
                Received::Accepted { request: self.request(&response.nonce, None), loaded }
            }
            Err(why) => {
                let (status, repeats) = self.rejections.add(&response.system_version_info, &why);
                Received::Rejected { request: self.request(&response.nonce, Some(status)), why, repeats }
            }
        }
    }

    fn request(&self, nonce: &str, error_detail: Option<Status>) -> DeltaDiscoveryRequest {
        DeltaDiscoveryRequest {
            node: Some(self.node.clone()),
            type_url: TYPE_URL.to_owned(),
            response_nonce: nonce.to_owned(),
            error_detail,
            ..DeltaDiscoveryRequest::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use leaseway_proto::envoy::ratelimit_discovery::{RateLimitConfig, RateLimitDescriptor};

    use super::{super::config::tests::packed, *};

    fn response(nonce: &str, changed: &[(&str, &str)], removed: &[&str]) -> DeltaDiscoveryResponse {
        let resource = |(domain, key): &(&str, &str)| {
            let descriptors = vec![RateLimitDescriptor { key: (*key).to_owned(), ..RateLimitDescriptor::default() }];
            let config = RateLimitConfig { name: String::new(), domain: (*domain).to_owned(), descriptors };
            Resource { name: format!("of {domain}"), version: nonce.to_owned(), resource: Some(packed(&config)) }
        };
        DeltaDiscoveryResponse {
            resources: changed.iter().map(resource).collect(),
            removed_resources: removed.iter().map(|domain| format!("of {domain}")).collect(),
            type_url: TYPE_URL.to_owned(),
            nonce: nonce.to_owned(),
            ..DeltaDiscoveryResponse::default()
        }
    }

    #[test]
    fn changes_add_up_and_a_rejected_one_changes_nothing() {
        let mut subscription = DeltaSubscription::new(super::super::subscription::node("gw".into(), Vec::new()), false);
        assert!(subscription.subscribe().initial_resource_versions.is_empty());
        for (nonce, changed, removed, in_force) in [
            ("1", &[("a", "user"), ("b", "user")][..], &[][..], Some("a,b")),
            ("2", &[("c", "user")], &["a"], Some("b,c")),
            ("3", &[("d", "user"), ("e", "")], &["b"], None),
            ("4", &[("b", "other")], &["never there"], Some("b,c")),
        ] {
            let (request, domains) = match subscription.receive(&response(nonce, changed, removed)) {
                Received::Accepted { request, loaded } => {
                    let mut domains: Vec<_> = loaded.rules.domains().map(|domain| domain.name.to_string()).collect();
                    domains.sort();
                    (request, Some(domains.join(",")))
                }
                Received::Rejected { request, .. } => (request, None),
                Received::OfOtherType => panic!("{nonce}"),
            };
            assert_eq!(domains.as_deref(), in_force, "{nonce}");
            assert_eq!((&*request.response_nonce, request.error_detail.is_some()), (nonce, in_force.is_none()));
        }
        let again = subscription.subscribe().initial_resource_versions;
        let expected = [("of b", "4"), ("of c", "2")].map(|(name, version)| (name.to_owned(), version.to_owned()));
        assert_eq!(again, expected.into(), "a new stream names what is in force");
    }
}
