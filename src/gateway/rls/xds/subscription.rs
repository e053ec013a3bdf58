//! The subscription of a gateway: what it accepted, and the requests that say so. It does no I/O.

use leaseway_proto::envoy::{
    discovery::{DiscoveryRequest, DiscoveryResponse, Node, Status, node::UserAgentVersionType},
    ratelimit_discovery::TYPE_URL,
};
use prost_types::{Struct, Value, value::Kind};
use tonic::Code;

use super::config::{self, LoadedConfigs};

#[derive(Debug)]
pub(super) struct Subscription {
    node: Node,
    merge_domains: bool,
    /// The version in force; empty before the first.
    version: String,
    rejections: Rejections,
}

/// The last response, if it was rejected.
#[derive(Debug, Default)]
pub(super) struct Rejections(Option<Rejection>);

#[derive(Debug)]
struct Rejection {
    version: String,
    why: String,
    repeats: u32,
}

/// A response, and the request that answers it.
pub(super) enum Received<R> {
    Accepted {
        request: R,
        loaded: LoadedConfigs,
    },
    Rejected {
        request: R,
        why: String,
        /// How often the same response was rejected before.
        repeats: u32,
    },
    /// Not subscribed. An answer would subscribe to this type.
    OfOtherType,
}

pub(super) fn node(id: String, metadata: Vec<(String, String)>) -> Node {
    let value = |text| Value { kind: Some(Kind::StringValue(text)) };
    Node {
        id,
        cluster: String::new(),
        metadata: (!metadata.is_empty())
            .then(|| Struct { fields: metadata.into_iter().map(|(key, text)| (key, value(text))).collect() }),
        user_agent_name: "leaseway".to_owned(),
        user_agent_version_type: Some(UserAgentVersionType::UserAgentVersion(env!("CARGO_PKG_VERSION").to_owned())),
    }
}

impl Rejections {
    /// Adds a rejection. Returns what the answer says, and how often the same response was rejected before.
    pub(super) fn add(&mut self, version: &str, why: &str) -> (Status, u32) {
        let before = self.0.as_ref().filter(|before| before.version == version && before.why == why);
        let repeats = before.map_or(0, |before| before.repeats.saturating_add(1));
        self.0 = Some(Rejection { version: version.to_owned(), why: why.to_owned(), repeats });
        (Status { code: Code::InvalidArgument.into(), message: why.to_owned() }, repeats)
    }
}

impl Subscription {
    pub(super) fn new(node: Node, merge_domains: bool) -> Subscription {
        Subscription { node, merge_domains, version: String::new(), rejections: Rejections::default() }
    }

    /// The first request of a stream.
    pub(super) fn subscribe(&self) -> DiscoveryRequest {
        self.request("", None)
    }

    pub(super) fn receive(&mut self, response: &DiscoveryResponse) -> Received<DiscoveryRequest> {
        if response.type_url != TYPE_URL {
            return Received::OfOtherType;
        }
        match config::load(&response.resources, self.merge_domains) {
            Ok(loaded) => {
                self.version.clone_from(&response.version_info);
                self.rejections = Rejections::default();
                Received::Accepted { request: self.request(&response.nonce, None), loaded }
            }
            Err(why) => {
                let (status, repeats) = self.rejections.add(&response.version_info, &why);
                Received::Rejected { request: self.request(&response.nonce, Some(status)), why, repeats }
            }
        }
    }

    fn request(&self, nonce: &str, error_detail: Option<Status>) -> DiscoveryRequest {
        DiscoveryRequest {
            version_info: self.version.clone(),
            node: Some(self.node.clone()),
            resource_names: Vec::new(),
            type_url: TYPE_URL.to_owned(),
            response_nonce: nonce.to_owned(),
            error_detail,
        }
    }
}

#[cfg(test)]
mod tests {
    use leaseway_proto::envoy::ratelimit_discovery::{RateLimitConfig, RateLimitDescriptor};

    use super::{super::config::tests::packed, *};

    fn response(version: &str, key: &str) -> DiscoveryResponse {
        let descriptors = vec![RateLimitDescriptor { key: key.to_owned(), ..RateLimitDescriptor::default() }];
        let config = RateLimitConfig { name: "r".into(), domain: "shop".into(), descriptors };
        DiscoveryResponse {
            version_info: version.to_owned(),
            resources: vec![packed(&config)],
            type_url: TYPE_URL.to_owned(),
            nonce: format!("nonce of {version}"),
        }
    }

    fn answer(subscription: &mut Subscription, response: &DiscoveryResponse) -> DiscoveryRequest {
        match subscription.receive(response) {
            Received::Accepted { request, .. } | Received::Rejected { request, .. } => request,
            Received::OfOtherType => panic!("{response:?}"),
        }
    }

    #[test]
    fn answers_have_the_accepted_version_and_the_nonce_of_the_response() {
        let mut subscription = Subscription::new(node("gw-1".into(), vec![("zone".into(), "a".into())]), false);
        let first = subscription.subscribe();
        assert_eq!((&*first.version_info, &*first.response_nonce, &*first.type_url), ("", "", TYPE_URL));
        assert_eq!(first.node.as_ref().map(|node| &*node.id), Some("gw-1"));
        for (version, key, in_force, says) in [
            ("1", "", "", Some("resource `r`: descriptors[0]: a descriptor needs a `key`")),
            ("2", "user", "2", None),
            ("3", "", "2", Some("descriptors[0]")),
            ("4", "user", "4", None),
        ] {
            let answer = answer(&mut subscription, &response(version, key));
            assert_eq!((&*answer.version_info, answer.response_nonce), (in_force, format!("nonce of {version}")));
            let error = answer.error_detail.map(|status| (status.code, status.message));
            assert_eq!(error.is_some(), says.is_some(), "{version}");
            let is_said = |(code, message): (i32, String)| code == 3 && message.contains(says.unwrap_or_default());
            assert!(error.is_none_or(is_said), "{version}");
        }
        let again = subscription.subscribe();
        assert_eq!((&*again.version_info, &*again.response_nonce), ("4", ""), "a new stream has new nonces");
    }

    #[test]
    fn repeated_rejections_are_counted() {
        let mut subscription = Subscription::new(node("gw".into(), Vec::new()), false);
        let mut repeats = |version, key| match subscription.receive(&response(version, key)) {
            Received::Rejected { repeats, .. } => Some(repeats),
            _ => None,
        };
        let bad = [repeats("1", ""), repeats("1", ""), repeats("1", ""), repeats("2", ""), repeats("2", "")];
        assert_eq!(bad, [Some(0), Some(1), Some(2), Some(0), Some(1)]);
        assert_eq!([repeats("3", "user"), repeats("2", "")], [None, Some(0)]);
    }

    #[test]
    fn resources_of_other_types_are_not_answered() {
        let mut subscription = Subscription::new(node("gw".into(), Vec::new()), false);
        let other = DiscoveryResponse { type_url: "type.googleapis.com/x.Cluster".into(), ..response("1", "user") };
        assert!(matches!(subscription.receive(&other), Received::OfOtherType));
        assert_eq!(subscription.subscribe().version_info, "");
    }
}
