//! The status pages, their JSON, and the streams that update them.

use std::{
    collections::BTreeSet,
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpStream},
    process::Command,
};

use serde_json::Value;

use crate::harness::{
    config::{ConfigFile, Template},
    doorman::Asks as _,
    foreign, http,
    server::Server,
    wait::{PATIENCE, eventually},
};

const VIEWS: [&str; 8] = [
    "/",
    "/resources",
    "/resource?resource=mysql",
    "/resource?resource=mysql&span=7d",
    "/why",
    "/why?resource=mysql&holder=alice",
    "/changes",
    "/plan",
];

fn with_mysql() -> Server {
    let server = Server::development();
    server.client("alice").ask("mysql", 40.0);
    server.client("bob").ask("mysql", 1000.0);
    server
}

#[test]
fn every_view_works_without_scripts_and_has_nothing_inline() {
    let server = with_mysql();
    for view in VIEWS {
        let response = http::get(server.http(), view);
        assert_eq!(response.status, 200, "{view}: {response:?}");
        let policy = response.header("content-security-policy").expect("a policy");
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        let page = &response.body;
        for inline in [" style=", "<style", "onclick", "javascript:", "http://", "https://"] {
            assert!(!page.contains(inline), "{view} has `{inline}`: {page}");
        }
        assert_eq!(page.matches("<script").count(), 1, "{view}");
        assert!(page.contains("<h1") && page.contains("<main") && page.contains("lang=\"en\""), "{view}");
        for asset in page.split('"').filter(|text| text.starts_with("/assets/")) {
            let response = http::get(server.http(), asset);
            assert_eq!((response.status, response.body.is_empty()), (200, false), "{asset}");
            assert!(response.header("cache-control").unwrap().contains("immutable"));
        }
    }
    assert!(server.page("/").contains("Healthy"));
    assert!(server.page("/resource?resource=mysql").contains(">bob<"));
    assert!(server.page("/").contains("Resource mysql:") && server.page("/").contains("100 of 100 units held (100 %)"));
    let resource = server.page("/resource?resource=mysql");
    assert!(resource.contains("0 units") && !resource.contains("−0"), "{resource}");
    let form = server.page("/plan");
    assert!(form.contains("This is version 1, which is in force") && form.contains("identifier_glob"), "{form}");
    let unknown = http::get(server.http(), "/resource?resource=mysql&span=1y").body;
    assert!(unknown.contains("15m, 6h or 7d") && !unknown.contains("deserialize"), "{unknown}");
    assert!(server.page("/why?resource=mysql&holder=bob").contains("bob wants 1000, is due 60"));
    assert!(server.page("/changes").contains("version 1 in force") || server.page("/changes").contains("Nothing has"));
    for (path, status) in
        [("/resource?resource=no", 404), ("/why?resource=mysql&holder=no", 404), ("/resources?x=1", 400)]
    {
        assert_eq!(http::get(server.http(), path).status, status, "{path}");
    }
}

#[test]
fn a_pasted_configuration_is_planned_without_applying_it() {
    let server = with_mysql();
    let paste = |text: &str| http::post(server.http(), "/plan", "", text);
    let template = |capacity| {
        format!(
            "text=resources:\n- {{identifier_glob: \"*\", capacity: {capacity}, algorithm: {{kind: FAIR_SHARE}}}}\n"
        )
    };
    let version = server.page("/api/v1/status");
    let planned = paste(&template(50));
    assert_eq!(planned.status, 200, "{planned:?}");
    assert!(planned.header("content-security-policy").unwrap().contains("form-action 'self'"), "{planned:?}");
    for part in ["1 of 1 resources would change", "2 would lose", ">alice<", "capacity: 100 → 50", "capacity: 50, alg"]
    {
        assert!(planned.body.contains(part), "`{part}` is not in {}", planned.body);
    }
    let refused = paste("text=resources: [{identifier_glob: <b>, capacity: -1}]");
    assert!(refused.body.contains("would be refused.") && refused.body.contains("must not be negative"), "{refused:?}");
    assert!(!refused.body.contains("<b>"), "{refused:?}");
    let too_large = paste(&format!("text=#{}", " ".repeat(1 << 20)));
    assert_eq!(too_large.status, 413, "{too_large:?}");
    let foreign = http::post(server.http(), "/plan", "Sec-Fetch-Site: cross-site\r\n", &template(50));
    assert_eq!(foreign.status, 403, "{foreign:?}");
    let config = |status: &str| serde_json::from_str::<Value>(status).unwrap()["config_version"].clone();
    assert_eq!(config(&version), config(&server.page("/api/v1/status")), "the pasted configuration is not applied");
}

#[test]
fn ids_with_html_and_control_characters_are_escaped_everywhere() {
    let server = Server::development();
    let (resource, client) = ("<script>alert('r')</script>\"\u{202e}\n", "<img src=x onerror=\"alert('c')\">\u{1b}[2J");
    server.client(client).ask(resource, 500.0);
    let encoded = |id: &str| id.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
    let (resource, client) = (encoded(resource), encoded(client));
    for path in [
        "/".to_owned(),
        "/resources".to_owned(),
        format!("/resources?search={resource}"),
        format!("/resource?resource={resource}&search={client}"),
        format!("/resource?resource={client}"),
        format!("/why?resource={resource}&holder={client}"),
        format!("/why?resource={client}&holder={resource}"),
        "/changes".to_owned(),
    ] {
        let page = http::get(server.http(), &path).body;
        // Hidden fields of forms contain the raw id.
        let shown = |part: &&str| !part.starts_with("input type=\"hidden\"");
        let page: String = page.split_inclusive('<').filter(shown).collect();
        assert!(!page.contains("<script>") && !page.contains("<img"), "{path}: {page}");
        assert!(!page.contains(['\u{202e}', '\u{1b}']), "{path}: {page}");
    }
    let page = server.page(&format!("/resource?resource={resource}"));
    assert!(page.contains("&lt;img src=x onerror=") && page.contains("\\u001b"), "{page}");
    let mut stream = Live::open(server.http(), &format!("/live?view=%2Fresource&resource={resource}"));
    let message = stream.next();
    let row = message["rows"]["rows"]["0"].as_str().expect("a row");
    assert!(row.contains("&lt;img") && !row.contains("<img"), "{row}");
}

/// A stream of server-sent events.
pub(super) struct Live {
    lines: BufReader<TcpStream>,
    head: String,
}

impl Live {
    pub(super) fn open(server: SocketAddr, path: &str) -> Live {
        let mut stream = TcpStream::connect(server).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {server}\r\n\r\n").unwrap();
        let mut lines = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(lines.read_line(&mut head).unwrap() > 0, "{head}");
        }
        Live { lines, head }
    }

    fn is_streaming(&self) -> bool {
        self.head.starts_with("HTTP/1.1 200") && self.head.contains("text/event-stream")
    }

    pub(super) fn next(&mut self) -> Value {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "the stream ended");
            // Keep-alive messages have no data.
            if let Some(data) = line.strip_prefix("data: ") {
                return serde_json::from_str(data).unwrap();
            }
        }
    }
}

#[test]
fn a_stream_sends_the_whole_page_and_then_changes() {
    let server = with_mysql();
    let mut live = Live::open(server.http(), "/live?view=%2Fresources");
    assert!(live.is_streaming(), "{}", live.head);
    let first = live.next();
    assert_eq!(first["rows"]["count"], 1, "{first}");
    server.client("carol").ask("postgres", 5.0);
    let change = live.next();
    assert_eq!(change["rows"]["count"], 2, "{change}");
    assert!(change["rows"]["rows"]["1"].as_str().unwrap().contains("postgres"), "{change}");
    // An open stream does not delay the shutdown.
    let output = server.stop();
    assert_eq!(output.code, Some(0), "{output:?}");
}

/// Collects the paths of all fields, with `[]` for elements of lists.
fn paths(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            found.insert(path.clone());
            paths(value, &path, found);
        }),
        Value::Array(values) => values.iter().for_each(|value| paths(value, &format!("{path}[]"), found)),
        _ => {}
    }
}

#[test]
fn every_answer_has_exactly_the_documented_fields() {
    let file = ConfigFile::of(&[Template::fair("*", 100.0)]);
    let server = Server::with_config(&file);
    for resource in 0..100 {
        server.client("alice").ask(&format!("r{resource}"), 500.0);
    }
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/api.md")).unwrap();
    let mut looked_at = 0;
    for section in page.split("\n## `/api/v1/").skip(1) {
        let (path, text) = section.split_once('`').unwrap();
        // A stream of changes, which have a section of their own.
        if path == "events" {
            continue;
        }
        let documented: BTreeSet<String> = text
            .lines()
            .filter(|line| line.starts_with("| `"))
            .filter_map(|line| line.split(" |").next())
            .flat_map(|cell| cell.split('`').skip(1).step_by(2))
            .filter(|name| !name.starts_with('?'))
            .map(str::to_owned)
            .collect();
        let query = match path {
            "resource" | "history" | "holders" => "?resource=r1",
            "explain" => "?resource=r1&holder=alice",
            _ => "",
        };
        let answer = eventually("the history has a sample", || {
            let answer: Value = serde_json::from_str(&server.page(&format!("/api/v1/{path}{query}"))).unwrap();
            (path != "history" || answer["samples"][0].is_object()).then_some(answer)
        });
        let mut answered = BTreeSet::new();
        paths(&answer, "", &mut answered);
        let unknown: Vec<_> = answered.difference(&documented).collect();
        assert!(unknown.is_empty(), "/api/v1/{path}: not documented: {unknown:?}");
        // Fields within an absent object or an empty list cannot be checked.
        let is_seen = |name: &&String| {
            let above = name.rsplit_once('.').map(|(above, _)| format!("{above}."));
            above.is_none_or(|above| answered.iter().any(|known| known.starts_with(&above)))
        };
        let missing: Vec<_> = documented.difference(&answered).filter(is_seen).collect();
        assert!(missing.is_empty(), "/api/v1/{path}: documented, but missing: {missing:?}");
        looked_at += 1;
    }
    assert_eq!(looked_at, 9);
}

/// Runs axe-core in a real browser: light and dark, wide and narrow.
#[test]
#[cfg_attr(not(chromium), ignore = "needs LEASEWAY_TEST_CHROMIUM and LEASEWAY_TEST_NODE_MODULES")]
fn pages_have_no_accessibility_violations() {
    let server = with_mysql();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/browser/axe.js");
    let views = VIEWS.map(|view| format!("http://{}{view}", server.http()));
    let output = Command::new("node")
        .arg(script)
        .args(views)
        .env("CHROMIUM", foreign::path("LEASEWAY_TEST_CHROMIUM"))
        .env("NODE_PATH", foreign::path("LEASEWAY_TEST_NODE_MODULES"))
        .output()
        .expect("node runs");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(printed.matches(": no violations").count(), 4 * VIEWS.len(), "{printed}");
}
