use leaseway_proto::envoy::ratelimit_discovery::RateLimitReplace;

use super::*;
use crate::rls::rules::{Limit, Unit};

pub(in crate::rls::xds) fn packed(config: &RateLimitConfig) -> Any {
    Any { type_url: TYPE_URL.to_owned(), value: config.encode_to_vec() }
}

fn config(name: &str, domain: &str, descriptors: Vec<RateLimitDescriptor>) -> RateLimitConfig {
    RateLimitConfig { name: name.to_owned(), domain: domain.to_owned(), descriptors }
}

fn descriptor(key: &str, value: &str, rate_limit: Option<RateLimitPolicy>) -> RateLimitDescriptor {
    RateLimitDescriptor { key: key.to_owned(), value: value.to_owned(), rate_limit, ..RateLimitDescriptor::default() }
}

fn per(unit: RateLimitUnit, requests_per_unit: u32) -> RateLimitPolicy {
    RateLimitPolicy { unit: unit.into(), requests_per_unit, ..RateLimitPolicy::default() }
}

fn unlimited() -> RateLimitPolicy {
    RateLimitPolicy { unlimited: true, ..RateLimitPolicy::default() }
}

#[test]
fn resources_are_rules_like_those_of_files() {
    let nested = RateLimitDescriptor {
        descriptors: vec![descriptor("user", "", Some(per(RateLimitUnit::Week, 7)))],
        shadow_mode: true,
        ..descriptor("path", "/api/*", Some(per(RateLimitUnit::Second, 3)))
    };
    let shop = [
        descriptor("user", "", Some(per(RateLimitUnit::Minute, 5))),
        descriptor("user", "banned", Some(per(RateLimitUnit::Day, 0))),
        descriptor("user", "root", Some(unlimited())),
        nested,
    ];
    let resources = [packed(&config("one", "shop", shop.to_vec())), packed(&config("two", "other", Vec::new()))];
    let LoadedConfigs { rules, warnings } = load(&resources, false).expect("valid");
    assert_eq!(warnings, [""; 0]);
    assert!(rules.domain("other").is_some());
    let shop = rules.domain("shop").expect("it was read");
    let limit = |entries: &[(&'static str, &'static str)]| {
        shop.rule(entries.iter().copied()).map(|found| (found.rule.limit, found.rule.shadow))
    };
    let per = |unit, requests| Limit::PerUnit { requests, unit };
    assert_eq!(limit(&[("user", "ann")]), Some((per(Unit::Minute, 5), false)));
    assert_eq!(limit(&[("user", "banned")]), Some((per(Unit::Day, 0), false)));
    assert_eq!(limit(&[("user", "root")]), Some((Limit::Unlimited, false)));
    assert_eq!(limit(&[("path", "/api/x")]), Some((per(Unit::Second, 3), true)));
    assert_eq!(limit(&[("path", "/api/x"), ("user", "ann")]), Some((per(Unit::Week, 7), false)));
}

#[test]
fn errors_have_the_resource_the_path_and_what_was_expected() {
    let day = || per(RateLimitUnit::Day, 1);
    let of = |descriptor: RateLimitDescriptor| config("r", "d", vec![descriptor]);
    let replacing = |name: &str| RateLimitPolicy {
        name: "x".to_owned(),
        replaces: vec![RateLimitReplace { name: name.to_owned() }],
        ..day()
    };
    let below = RateLimitDescriptor {
        descriptors: vec![descriptor("b", "", Some(day())), descriptor("", "", None)],
        ..descriptor("a", "", None)
    };
    for (config, says) in [
        (config("r", "", Vec::new()), "resource `r`: domain: `domain` is missing"),
        (config("", "", Vec::new()), "resources[0]: domain: `domain` is missing"),
        (of(descriptor("", "x", None)), "resource `r`: descriptors[0]: a descriptor needs a `key`"),
        (of(below), "resource `r`: descriptors[0].descriptors[1]: a descriptor needs a `key`"),
        (
            config("r", "d", vec![descriptor("a", "", None), descriptor("a", "", None)]),
            "resource `r`: descriptors[1]: duplicate descriptor `d.a` in this list",
        ),
        (
            of(descriptor("a", "", Some(RateLimitPolicy::default()))),
            "resource `r`: descriptors[0].rate_limit: a limit needs a `unit`, one of second, minute,",
        ),
        (
            of(descriptor("a", "", Some(RateLimitPolicy { unit: 9, ..day() }))),
            "resource `r`: descriptors[0].rate_limit.unit: unknown unit `9`; known: second, minute,",
        ),
        (
            of(descriptor("a", "", Some(RateLimitPolicy { unlimited: true, ..day() }))),
            "resource `r`: descriptors[0].rate_limit.unit: `unit` contradicts",
        ),
        (
            of(descriptor("a", "", Some(replacing("x")))),
            "resource `r`: descriptors[0].rate_limit.replaces[0]: a rule cannot replace itself",
        ),
        (
            of(descriptor("a", "", Some(replacing("")))),
            "descriptors[0].rate_limit.replaces[0]: an element of `replaces` needs the `name`",
        ),
    ] {
        let error = load(&[packed(&config)], false).expect_err(says);
        assert!(error.contains(says), "{error}\n{says}");
    }
}

#[test]
fn one_wrong_resource_rejects_all() {
    let good = |name| packed(&config(name, "d", Vec::new()));
    let error = load(&[good("one"), good("two")], false).expect_err("one domain in two resources");
    assert_eq!(
        error,
        "resource `two`: domain: duplicate domain `d`: it is also in resource `one`; define each domain in one place, or set --rls-merge-domains"
    );
    let of_other_type = Any { type_url: "type.googleapis.com/x.Y".to_owned(), value: Vec::new() };
    let error = load(&[good("one"), of_other_type], false).expect_err("another type");
    assert!(error.starts_with("resources[1]: the type is `type.googleapis.com/x.Y`, expected `"), "{error}");
    let garbage = Any { value: vec![0xff; 8], ..good("one") };
    let error = load(&[garbage], false).expect_err("garbage");
    assert!(error.starts_with("resources[0]: not a RateLimitConfig: "), "{error}");
}

#[test]
fn messages_are_bounded_and_escaped() {
    let long = "x".repeat(10_000) + "\n";
    let many = (0..30).map(|_| descriptor(&long, "", Some(RateLimitPolicy::default()))).collect();
    let error = load(&[packed(&config("a\nb", "d", many))], false).expect_err("mistakes");
    assert_eq!(error.lines().count(), MAX_TOLD + 1, "{error}");
    assert!(error.ends_with("more mistakes") && error.len() < 20_000, "{error}");
    assert!(error.starts_with("resource `a\\nb`: "), "{error}");
}

#[test]
fn flags_without_an_effect_are_warnings() {
    let flags = RateLimitDescriptor { shadow_mode: true, quota_mode: true, ..descriptor("a", "", None) };
    let LoadedConfigs { warnings, .. } = load(&[packed(&config("r", "d", vec![flags]))], false).expect("valid");
    let [shadow, quota] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(quota.contains("descriptors[0].quota_mode: `quota_mode` has no effect without"), "{quota}");
    assert!(shadow.contains("descriptors[0].shadow_mode: `shadow_mode` has no effect without"), "{shadow}");
}
