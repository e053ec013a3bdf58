//! The HTTP gateway: leases of callers, permits, and problems.

use std::{fs, thread};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{
    config::{self, ConfigFile, Template},
    gateway::Gateway,
    prometheus::{Sample, Scrape},
    server::Server,
    wait::eventually,
};

fn server_with(capacity: f64) -> Server {
    Server::with_config(&ConfigFile::new(&config::text(&[Template::fair("*", capacity)])))
}

fn gateway_to(server: &Server) -> Gateway {
    Gateway::for_http(&server.grpc().to_string(), &[])
}

#[test]
fn a_lease_is_granted_renewed_and_released_under_the_clients_name() {
    let server = server_with(100.0);
    let gateway = gateway_to(&server);
    let asked = json!({ "client": "alice", "resource": "db/main", "wants": 40 });
    let got = gateway.ask("POST", "/v1/leases", &asked);
    assert_eq!((got.status, got.header("cache-control")), (200, Some("no-store")), "{got:?}");
    let lease = got.json();
    assert_eq!((lease["capacity"].as_f64(), lease["client"].as_str()), (Some(40.0), Some("alice")));
    let left = lease["expires_in"].as_f64().unwrap();
    assert!(left > 3000.0 && left <= 3600.0, "{lease}");
    let has = |client: &str| {
        let status = server.status(&["db/main"]);
        let holders = status["resources"][0]["holder"].as_array().unwrap().clone();
        holders.into_iter().find(|holder| holder["id"] == client).map(|holder| holder["granted"].as_f64().unwrap())
    };
    assert_eq!(has("alice"), Some(40.0));

    let keep = json!({ "client": "alice", "resource": "db/main", "wants": 70, "token": lease["token"] });
    let kept = gateway.ask("PUT", "/v1/leases", &keep);
    assert_eq!((kept.status, kept.json()["capacity"].as_f64()), (200, Some(70.0)), "{kept:?}");
    assert_ne!(kept.json()["token"], lease["token"], "the renewed lease has a new token");

    let token = kept.json()["token"].as_str().unwrap().to_owned();
    let released =
        gateway.ask("DELETE", &format!("/v1/leases?client=alice&resource=db%2Fmain&token={token}"), &Value::Null);
    assert_eq!((released.status, &*released.body), (204, ""), "{released:?}");
    assert_eq!(has("alice"), None);
}

#[test]
fn acquire_beyond_the_limit_returns_429_with_ratelimit_headers() {
    let server = server_with(4.0);
    let gateway = gateway_to(&server);
    let first = gateway.acquire("mysql", 1, 5.0);
    assert_eq!(first.status, 200, "{first:?}");
    assert_eq!(first.json()["permits"], 1);
    let refused = eventually("there are no permits left", || {
        let told = gateway.acquire("mysql", 3, 0.0);
        (told.status != 200).then_some(told)
    });
    assert_eq!(refused.status, 429, "{refused:?}");
    assert_eq!(refused.problem().0, "over_limit");
    assert!(refused.json()["type"].as_str().unwrap().ends_with("#quota-exceeded"));
    assert_eq!(refused.json()["violated-policies"], json!(["mysql"]));
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&seconds));
    assert!(refused.header("ratelimit-policy").unwrap().starts_with("\"mysql\";q="), "{refused:?}");
    assert!(refused.header("ratelimit").unwrap().starts_with("\"mysql\";r="), "{refused:?}");
}

/// A server with budgets of 300 per day, `tokens` and `cents`, and rates of 100.
fn server_with_budgets() -> Server {
    let template = |name: &str| {
        format!(
            "- identifier_glob: \"{name}\"\n  capacity: 300\n  algorithm: {{kind: BUDGET, refresh_interval: 1, \
             learning_mode_duration: 0, parameters: {{period: day}}}}\n"
        )
    };
    let rates = config::text(&[Template::fair("*", 100.0)]).replacen("resources:\n", "", 1);
    Server::with_config(&ConfigFile::new(&format!("resources:\n{}{}{rates}", template("tokens"), template("cents"))))
}

#[test]
fn two_gateways_spend_a_budget_and_no_more() {
    let server = server_with_budgets();
    let gateways = [(); 2].map(|()| Gateway::for_http(&server.grpc().to_string(), &[]));
    let spend = |gateway: &Gateway, amount: f64| {
        gateway.ask("POST", "/v1/resources/tokens/spend", &json!({ "amount": amount, "wait": 5 }))
    };
    let mut spent = 0.0;
    for amount in [2.5, 7.5].into_iter().cycle() {
        let passed = gateways.iter().filter(|gateway| spend(gateway, amount).status == 200).count();
        spent += passed as f64 * amount;
        if passed < 2 {
            break;
        }
    }
    assert!(spent > 150.0 && spent <= 300.0, "{spent}");
    let refused = gateways[0].ask("POST", "/v1/resources/tokens/spend", &json!({ "amount": 301, "wait": 0 }));
    assert_eq!((refused.status, refused.problem().0), (429, "not_covered".to_owned()), "{refused:?}");
    let nothing = spend(&gateways[0], 0.0).json();
    let seconds = |name: &str| nothing[name].as_i64().unwrap();
    assert_eq!(seconds("period_end") - seconds("period_start"), 86_400, "{nothing}");
    let rate = gateways[0].ask("POST", "/v1/resources/tokens/acquire", &json!({}));
    assert_eq!((rate.status, rate.problem().0), (409, "other_kind".to_owned()), "{rate:?}");
    let none = gateways[0].ask("POST", "/v1/resources/other/spend", &json!({ "amount": 1 }));
    assert_eq!((none.status, none.problem().0), (429, "not_covered".to_owned()), "{none:?}");
}

/// Spends nothing of a budget, and returns what the gateway may spend.
fn left(gateway: &Gateway, budget: &str) -> f64 {
    let told = gateway.ask("POST", &format!("/v1/resources/{budget}/spend"), &json!({ "amount": 0, "wait": 5 }));
    told.json()["left"].as_f64().unwrap()
}

#[test]
fn an_amount_is_reserved_settled_and_charged() {
    let server = server_with_budgets();
    let gateway = gateway_to(&server);
    let reserve = |body: Value| gateway.ask("POST", "/v1/resources/tokens/reservations", &body);
    let reserved = reserve(json!({ "amount": 200.5, "wait": 10 }));
    assert_eq!((reserved.status, reserved.json()["amount"].as_f64()), (201, Some(200.5)), "{reserved:?}");
    assert!(reserved.json()["period_end"].is_i64(), "{reserved:?}");
    let refused = reserve(json!({ "amount": 100, "wait": 0 }));
    assert_eq!((refused.status, refused.problem().0), (429, "not_covered".to_owned()), "{refused:?}");
    assert_eq!(refused.json()["violated-policies"], json!(["tokens"]));
    let settle = reserved.header("location").unwrap().to_owned();
    let settled = gateway.ask("POST", &settle, &json!({ "used": 50.5 }));
    let told = json!({ "resource": "tokens", "reserved": 200.5, "used": 50.5, "owed": 0.0 });
    assert_eq!((settled.status, settled.json()), (200, told));
    let again = gateway.ask("POST", &settle, &json!({ "used": 0 }));
    assert_eq!((again.status, again.problem().0), (404, "no_such_reservation".to_owned()), "{again:?}");
    assert!(left(&gateway, "tokens") >= 150.0, "the rest came back");

    let charge = |body: Value| gateway.ask("POST", "/v1/resources/tokens/charge", &body);
    let charged = charge(json!({ "amount": 240 })).json();
    assert!(charged["owed"].as_f64().unwrap() > 0.0, "{charged}");
    eventually("the debt is paid", || (charge(json!({ "amount": 0 })).json()["owed"] == 0.0).then_some(()));
    let refused = reserve(json!({ "amount": 10, "wait": 2 }));
    assert_eq!(refused.status, 429, "9.5 are left: {refused:?}");
    let expired = reserve(json!({ "amount": 5, "wait": 10, "expires_in": 1 }));
    assert_eq!(expired.status, 201, "{expired:?}");
    std::thread::sleep(std::time::Duration::from_secs(2));
    let refused = reserve(json!({ "amount": 5, "wait": 2 }));
    assert_eq!(refused.status, 429, "the reservation has expired, so it is spent: {refused:?}");

    let both = reserve(json!({ "amount": 1, "permits": 1 }));
    assert_eq!((both.status, both.problem().0), (400, "bad_value".to_owned()), "{both:?}");
    let neither = charge(json!({}));
    assert_eq!((neither.status, neither.problem().0), (400, "missing_field".to_owned()), "{neither:?}");
    let other = reserve(json!({ "permits": 1 }));
    assert_eq!((other.status, other.problem().0), (409, "other_kind".to_owned()), "{other:?}");
}

#[test]
fn amounts_of_budgets_are_taken_with_permits_of_rates() {
    let server = server_with_budgets();
    let gateway = gateway_to(&server);
    let limits = |tokens: f64, pages: u32, cents: f64| {
        json!([
            { "resource": "tokens", "amount": tokens },
            { "resource": "pages", "permits": pages },
            { "resource": "cents", "amount": cents },
        ])
    };
    let ask =
        |path: &str, limits: &Value, wait: f64| gateway.ask("POST", path, &json!({ "limits": limits, "wait": wait }));
    let acquired = ask("/v1/acquire", &limits(10.5, 1, 20.0), 10.0);
    assert_eq!(acquired.status, 200, "{acquired:?}");
    let taken = &acquired.json()["limits"];
    assert_eq!(
        (&taken[0]["amount"], &taken[1]["permits"], &taken[2]["amount"]),
        (&json!(10.5), &json!(1), &json!(20.0))
    );
    assert!(acquired.header("ratelimit-policy").unwrap().starts_with("\"pages\";q="), "{acquired:?}");

    let reserved = ask("/v1/reserve", &limits(200.0, 1, 100.0), 10.0);
    assert_eq!(reserved.status, 201, "{reserved:?}");
    for path in ["/v1/acquire", "/v1/reserve"] {
        let at_once = ask(path, &limits(1.0, 1, 200.0), 0.0);
        assert_eq!((at_once.status, at_once.problem().0), (429, "not_covered".to_owned()), "{at_once:?}");
        let refused = ask(path, &limits(1.0, 1, 200.0), 2.0);
        assert_eq!((refused.status, refused.problem().0), (429, "not_covered".to_owned()), "{refused:?}");
        assert_eq!(refused.json()["violated-policies"], json!(["cents"]), "{refused:?}");
        let refused = ask(path, &limits(1.0, 1_000_000, 1.0), 2.0);
        assert_eq!((refused.status, refused.problem().0), (429, "over_limit".to_owned()), "{refused:?}");
        assert_eq!(refused.json()["violated-policies"], json!(["pages"]), "{refused:?}");
    }
    let settle = reserved.header("location").unwrap().to_owned();
    let used = |pages: f64| json!({ "limits": [{ "used": 50.5 }, { "used": pages }, { "used": 100 }] });
    let wrong = gateway.ask("POST", &settle, &used(0.5));
    assert_eq!((wrong.status, wrong.problem().0), (409, "other_reservation".to_owned()), "{wrong:?}");
    assert!(wrong.problem().1.contains("`limits[1].used` is 0.5, but permits were reserved"), "{wrong:?}");
    let settled = gateway.ask("POST", &settle, &used(1.0));
    assert_eq!(settled.status, 200, "{settled:?}");
    let tokens = json!({ "resource": "tokens", "reserved": 200.0, "used": 50.5, "owed": 0.0 });
    let pages = json!({ "resource": "pages", "reserved": 1, "used": 1, "debt": 0 });
    assert_eq!((&settled.json()["limits"][0], &settled.json()["limits"][1]), (&tokens, &pages));
    // 61 and 120 are spent. Refused requests took nothing.
    let rest = ask("/v1/acquire", &limits(239.0, 1, 180.0), 10.0);
    assert_eq!(rest.status, 200, "{rest:?}");
    let refused = ask("/v1/acquire", &limits(0.5, 1, 0.0), 2.0);
    assert_eq!(refused.json()["violated-policies"], json!(["tokens"]), "{refused:?}");
}

#[test]
fn usage_is_spent_at_the_prices_of_a_file() {
    let server = server_with_budgets();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("prices.json");
    fs::write(&file, r#"{"gpt-4o": {"input": 0.25, "output": 1}}"#).unwrap();
    let gateway = Gateway::for_http(&server.grpc().to_string(), &["--prices", file.to_str().unwrap()]);
    let usage = |input: u32, output: u32| json!({ "input": input, "output": output });
    let spend = |model: &str, usage: Value| {
        let body = json!({ "model": model, "usage": usage, "wait": 5 });
        gateway.ask("POST", "/v1/resources/tokens/spend", &body)
    };
    let spent = spend("gpt-4o", usage(10, 3));
    assert_eq!((spent.status, spent.json()["amount"].as_f64()), (200, Some(5.5)), "{spent:?}");

    let reserved = gateway.ask(
        "POST",
        "/v1/reserve",
        &json!({ "limits": [
            { "resource": "tokens", "model": "gpt-4o", "usage": usage(400, 100) },
            { "resource": "pages" },
        ], "wait": 5 }),
    );
    assert_eq!((reserved.status, &reserved.json()["limits"][0]["amount"]), (201, &json!(200.0)), "{reserved:?}");
    let settle = reserved.header("location").unwrap().to_owned();
    let used = json!({ "limits": [{ "model": "gpt-4o", "usage": usage(100, 20) }, { "used": 1 }] });
    let settled = gateway.ask("POST", &settle, &used);
    let tokens = json!({ "resource": "tokens", "reserved": 200.0, "used": 45.0, "owed": 0.0 });
    assert_eq!((settled.status, &settled.json()["limits"][0]), (200, &tokens), "{settled:?}");
    // 50.5 are spent.
    let rest = spend("gpt-4o", usage(2, 249));
    assert_eq!((rest.status, rest.json()["amount"].as_f64()), (200, Some(249.5)), "{rest:?}");
    let refused = spend("gpt-4o", usage(1, 0));
    assert_eq!((refused.status, refused.problem().0), (429, "not_covered".to_owned()), "{refused:?}");

    for (model, usage, field) in [("gpt-4", usage(1, 1), "model"), ("gpt-4o", json!({ "cached": 1 }), "usage")] {
        let told = spend(model, usage);
        assert_eq!((told.status, told.problem().0), (400, "bad_value".to_owned()), "{told:?}");
        assert_eq!(told.json()["field"], field, "{told:?}");
        assert!(told.problem().1.contains("known: "), "{told:?}");
    }

    fs::write(&file, r#"{"gpt-4o": {"input": "free"}}"#).unwrap();
    let rejected =
        || gateway.ask("GET", "/metrics", &Value::Null).body.contains("reloads_total{outcome=\"rejected\"} 1");
    eventually("the invalid table is rejected", || rejected().then_some(()));
    assert_eq!(spend("gpt-4o", usage(0, 0)).status, 200, "the previous prices stay in force");
    fs::write(&file, r#"{"gpt-5": {"input": 0.5}}"#).unwrap();
    eventually("the prices are reloaded", || (spend("gpt-5", json!({ "input": 0 })).status == 200).then_some(()));
}

#[test]
fn usage_needs_a_price_table() {
    let server = server_with_budgets();
    let gateway = gateway_to(&server);
    let body = json!({ "model": "gpt-4o", "usage": { "input": 1 } });
    let told = gateway.ask("POST", "/v1/resources/tokens/spend", &body);
    assert_eq!((told.status, told.json()["field"].as_str()), (400, Some("usage")), "{told:?}");
    assert!(told.problem().1.contains("--prices"), "{told:?}");
}

#[test]
fn several_limits_are_reserved_together_and_settled_by_limit() {
    let templates = [Template::fair("small", 4.0), Template::fair("*", 0.1)];
    let server = Server::with_config(&ConfigFile::new(&config::text(&templates)));
    // Saved permits hardly change: 0.1 per second for an hour.
    let gateway = Gateway::for_http(&server.grpc().to_string(), &["--window", "big=360/3600"]);
    let reserve = |big: u32, small: u32, wait: f64| {
        let limits = json!([{ "resource": "big", "permits": big }, { "resource": "small", "permits": small }]);
        gateway.ask("POST", "/v1/reserve", &json!({ "limits": limits, "wait": wait }))
    };
    let remaining = || gateway.ask("GET", "/v1/resources/big", &Value::Null).json()["remaining"].as_f64().unwrap();
    let reserved = reserve(200, 1, 5.0);
    assert_eq!(reserved.status, 201, "{reserved:?}");
    assert_eq!(
        (&reserved.json()["limits"][0]["permits"], &reserved.json()["limits"][1]["permits"]),
        (&json!(200), &json!(1))
    );
    let before = remaining();
    let refused = reserve(300, 1, 0.0);
    assert_eq!((refused.status, refused.problem().0), (429, "over_limit".to_owned()), "{refused:?}");
    let settle = reserved.header("location").unwrap().to_owned();
    assert!(settle.ends_with("/settle_all"));
    let one = gateway.ask("POST", &settle.replace("_all", ""), &json!({ "used": 1 }));
    assert_eq!((one.status, one.problem().0), (409, "other_reservation".to_owned()), "{one:?}");
    let few = gateway.ask("POST", &settle, &json!({ "limits": [{ "used": 1 }] }));
    assert!(few.problem().1.contains("covers 2 limits, but `limits` has 1"), "{few:?}");
    let settled = gateway.ask("POST", &settle, &json!({ "limits": [{ "used": 150 }, { "used": 1 }] }));
    assert_eq!(settled.status, 200, "{settled:?}");
    let big = json!({ "resource": "big", "reserved": 200, "used": 150, "debt": 0 });
    assert_eq!(settled.json()["limits"][0], big);
    assert!(remaining() >= before + 50.0, "{before}, then {}", remaining());
    let again = gateway.ask("POST", &settle, &json!({ "limits": [{ "used": 1 }, { "used": 1 }] }));
    assert_eq!((again.status, again.problem().0), (404, "no_such_reservation".to_owned()), "{again:?}");
}

#[test]
fn permits_of_several_limits_are_taken_together_or_not_at_all() {
    let templates = [Template::fair("small", 4.0), Template::fair("*", 0.1)];
    let server = Server::with_config(&ConfigFile::new(&config::text(&templates)));
    // Saved permits hardly change: 0.1 per second for an hour.
    let gateway = Gateway::for_http(&server.grpc().to_string(), &["--window", "big=360/3600"]);
    let acquire = |big: u32, small: u32, wait: f64| {
        let limits = json!([{ "resource": "big", "permits": big }, { "resource": "small", "permits": small }]);
        gateway.ask("POST", "/v1/acquire", &json!({ "limits": limits, "wait": wait }))
    };
    let first = acquire(100, 1, 5.0);
    assert_eq!(first.status, 200, "{first:?}");
    let limits = first.json()["limits"].clone();
    assert_eq!((limits[0]["resource"].as_str(), limits[0]["permits"].as_u64()), (Some("big"), Some(100)));
    assert_eq!((limits[1]["resource"].as_str(), limits[1]["permits"].as_u64()), (Some("small"), Some(1)));
    for field in ["ratelimit-policy", "ratelimit"] {
        let policies = first.header(field).unwrap();
        assert!(policies.starts_with("\"big\";") && policies.contains(", \"small\";"), "{first:?}");
    }
    let big = || gateway.ask("GET", "/v1/resources/big", &Value::Null).json()["remaining"].as_f64().unwrap();
    let (before, refused) = eventually("there are too few permits of one limit", || {
        let before = big();
        let told = acquire(1, 3, 0.0);
        (told.status != 200).then_some((before, told))
    });
    assert_eq!((refused.status, refused.problem().0), (429, "over_limit".to_owned()), "{refused:?}");
    assert_eq!(refused.json()["violated-policies"], json!(["small"]));
    assert!(refused.problem().1.contains("`small`"), "{refused:?}");
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&seconds) && refused.header("ratelimit").unwrap().contains("\"big\";r="));
    assert!(big() >= before, "nothing was taken from the other limit");
    let waited = acquire(1, 3, 20.0);
    assert_eq!(waited.status, 200, "{waited:?}");
    // The other limit may refuse, too, but its permits will be available earlier.
    let never = acquire(1000, 1, 0.0);
    assert!(never.problem().1.starts_with("1000 permits of `big`"), "{never:?}");
}

#[test]
fn a_reservation_settles_once_and_expires() {
    let server = server_with(1000.0);
    let gateway = gateway_to(&server);
    let reserve = |lasts: f64| {
        let told = eventually("there are permits", || {
            let told = gateway.ask(
                "POST",
                "/v1/resources/tokens/reservations",
                &json!({ "permits": 10, "wait": 5, "expires_in": lasts }),
            );
            (told.status != 429).then_some(told)
        });
        assert_eq!((told.status, told.json()["permits"].as_u64()), (201, Some(10)), "{told:?}");
        told.header("location").unwrap().to_owned()
    };
    let place = reserve(600.0);
    let settled = gateway.ask("POST", &place, &json!({ "used": 4 }));
    assert_eq!((settled.status, settled.json()["used"].as_u64()), (200, Some(4)), "{settled:?}");
    assert_eq!(settled.json()["reserved"], 10);
    let again = gateway.ask("POST", &place, &json!({ "used": 4 }));
    assert_eq!((again.status, again.problem().0), (404, "no_such_reservation".to_owned()));

    let late = reserve(1.0);
    let standing = || gateway.ask("GET", "/v1/resources/tokens", &Value::Null).json()["reservations"].as_u64();
    eventually("the reservation expires", || (standing() == Some(0)).then_some(()));
    assert_eq!(gateway.ask("POST", &late, &json!({ "used": 4 })).status, 404);
    for nonsense in ["x", "00000000000000000000000000000000", "%FF"] {
        let told = gateway.ask("POST", &format!("/v1/reservations/{nonsense}/settle"), &json!({ "used": 1 }));
        assert!(matches!(told.status, 400 | 404), "{told:?}");
    }
}

#[test]
fn invalid_requests_get_the_field_and_the_expected_value() {
    let server = server_with(100.0);
    let gateway = gateway_to(&server);
    let lease = |more: Value| {
        let mut body = json!({ "client": "alice", "resource": "mysql", "wants": 40 });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ("POST", "/v1/leases", body)
    };
    let acquire = "/v1/resources/mysql/acquire";
    for ((method, path, body), status, reason, field) in [
        (lease(json!({ "wants": -1 })), 400, "bad_value", "wants"),
        (lease(json!({ "wants": "40" })), 400, "bad_value", "wants"),
        (lease(json!({ "client": "" })), 400, "bad_value", "client"),
        (lease(json!({ "resource": "x".repeat(257) })), 400, "bad_value", "resource"),
        (lease(json!({ "priority": 40_000 })), 400, "bad_value", "priority"),
        (lease(json!({ "permits": 1 })), 400, "unknown_field", "permits"),
        (("POST", "/v1/leases", json!({ "client": "alice", "wants": 1 })), 400, "missing_field", "resource"),
        (("PUT", "/v1/leases", json!({ "client": "a", "resource": "r", "wants": 1 })), 400, "missing_field", "token"),
        (("POST", acquire, json!({ "permit": 1 })), 400, "unknown_field", "permit"),
        (("POST", acquire, json!({ "permits": 0 })), 400, "bad_value", "permits"),
        (("POST", acquire, json!({ "wait": 61 })), 400, "bad_value", "wait"),
        (("POST", "/v1/resources/mysql/acquire?permits=3", Value::Null), 400, "unknown_field", "permits"),
        (("POST", "/v1/acquire", json!({ "limits": [] })), 400, "bad_value", "limits"),
        (("POST", "/v1/acquire", json!({ "wait": 1 })), 400, "missing_field", "limits"),
        (("POST", "/v1/acquire", json!({ "limits": [{ "permits": 1 }] })), 400, "missing_field", "limits[0].resource"),
        (
            ("POST", "/v1/acquire", json!({ "limits": [{ "resource": "a" }, { "resource": "b", "permits": 0 }] })),
            400,
            "bad_value",
            "limits[1].permits",
        ),
        (("DELETE", "/v1/leases?client=alice", Value::Null), 400, "missing_field", "resource"),
        (("DELETE", "/v1/leases?client=a&resource=b&token=c", Value::Null), 400, "bad_value", "token"),
    ] {
        let told = gateway.ask(method, path, &body);
        assert_eq!((told.status, told.problem().0), (status, reason.to_owned()), "{body}: {told:?}");
        assert_eq!(told.json()["field"], field, "{told:?}");
        assert!(told.problem().1.contains(&format!("`{field}`")), "{told:?}");
    }
    let nowhere = gateway.ask("GET", "/v2", &Value::Null);
    assert_eq!((nowhere.status, nowhere.problem().0), (404, "not_found".to_owned()));
    let method = gateway.ask("PATCH", "/v1/leases", &Value::Null);
    assert_eq!((method.status, method.problem().0), (405, "no_such_method".to_owned()));
    assert_eq!(method.header("allow"), Some("POST,PUT,DELETE"));
}

#[test]
fn without_a_server_requests_fail_with_the_reason() {
    let gateway = Gateway::for_http("127.0.0.1:1", &[]);
    let told = gateway.acquire("mysql", 1, 0.0);
    assert_eq!((told.status, told.problem().0), (503, "no_lease".to_owned()), "{told:?}");
    let lease = gateway.ask("POST", "/v1/leases", &json!({ "client": "a", "resource": "mysql", "wants": 1 }));
    assert_eq!((lease.status, lease.problem().0), (503, "no_master".to_owned()), "{lease:?}");
    assert!(lease.header("retry-after").is_some() && told.header("retry-after").is_some());
    let lenient = Gateway::for_http("127.0.0.1:1", &["--without-lease", "allow"]);
    assert_eq!(lenient.acquire("mysql", 1, 0.0).status, 200);
}

#[test]
fn requests_are_counted_and_the_openapi_document_is_served() {
    let server = server_with(100.0);
    let gateway = gateway_to(&server);
    assert_eq!(gateway.acquire("mysql", 1, 5.0).status, 200);
    assert_eq!(gateway.acquire("mysql", 0, 5.0).status, 400);
    let scrape = Scrape::parse(&gateway.ask("GET", "/metrics", &Value::Null).body);
    let series = scrape.series("leaseway_gateway_http_requests_total");
    for (code, count) in [("200", 1.0), ("400", 1.0), ("429", 0.0)] {
        let is_it =
            |labels: &[(&str, &str)], of: &Sample| labels.iter().all(|(name, value)| of.labels[*name] == *value);
        let found = series.iter().find(|sample| is_it(&[("operation", "acquire"), ("code", code)], sample));
        assert_eq!(found.map(|sample| sample.value), Some(count), "{code}");
    }
    let document = gateway.ask("GET", "/openapi.json", &Value::Null);
    assert_eq!(document.header("content-type"), Some("application/json"));
    let paths = document.json()["paths"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert!(paths.iter().any(|path| path == "/v1/resources/{resource}/acquire"), "{paths:?}");
    let ready = gateway.ask("GET", "/readyz", &Value::Null);
    assert!(ready.status == 200 && ready.body.starts_with("ready"), "{ready:?}");
}

#[test]
fn a_stopping_gateway_answers_waiting_requests_and_releases_its_leases() {
    let server = server_with(5.0);
    let gateway = gateway_to(&server);
    assert_eq!(gateway.acquire("mysql", 5, 5.0).status, 200);
    let mut waiting = gateway.connect();
    let waits = thread::spawn(move || {
        waiting.request("POST", "/v1/resources/mysql/acquire", &json!({ "permits": 250, "wait": 60 }))
    });
    // A request waits if one permit is left and is yet refused to another caller.
    eventually("the request waits", || {
        let standing = gateway.ask("GET", "/v1/resources/mysql", &Value::Null).json();
        let is_there = standing["remaining"].as_f64().unwrap() >= 1.0;
        (is_there && gateway.acquire("mysql", 1, 0.0).status == 429).then_some(())
    });
    gateway.signal(Signal::TERM);
    let told = waits.join().unwrap();
    assert!(matches!(told.status, 429 | 503), "{told:?}");
    let output = gateway.finish();
    assert_eq!(output.code, Some(0), "{output:?}");
    let status = server.status(&["mysql"]);
    assert_eq!(status["resources"][0]["held"].as_f64(), Some(0.0), "{status}");
}
