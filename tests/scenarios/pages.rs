//! Pages for people and probes, at the addresses that Doorman has.

use crate::harness::{
    config::{ConfigFile, Template},
    doorman::Asks as _,
    http,
    server::Server,
};

#[test]
fn probes_are_answered() {
    let server = Server::development();
    assert_eq!(server.page("/healthz"), "ok\n");
    assert_eq!(server.page("/readyz"), "ready: master\n");
}

#[test]
fn every_unknown_path_leads_to_the_status_page() {
    let server = Server::development();
    for path in ["/favicon.ico", "/debug", "/no/such/page?x=1"] {
        let response = http::get(server.http(), path);
        assert_eq!((response.status, response.header("location")), (301, Some("/debug/status")), "{path}");
    }
}

#[test]
fn the_status_page_shows_server_resources_and_configuration() {
    let config = ConfigFile::of(&[
        Template { kind: "PROPORTIONAL_SHARE", ..Template::fair("mysql*", 120.0) },
        Template::fair("*", 10.0),
    ]);
    let server = Server::with_flags(&["--config", config.path(), "--id", "the one"]);
    server.client("alice").ask("mysql", 33.0);
    let page = server.page("/debug/status");
    for part in [
        "the one",
        "This is the master",
        config.path(),
        "version 1",
        ">mysql</a>",
        "33",
        "PROPORTIONAL_SHARE",
        "mysql*",
    ] {
        assert!(page.contains(part), "`{part}` is not in {page}");
    }
    assert!(http::get(server.http(), "/debug/status").header("content-type").unwrap().starts_with("text/html"));
}

#[test]
fn the_resources_page_shows_all_or_one_with_its_clients() {
    let server = Server::development();
    server.client("alice").ask("mysql", 33.0);
    server.client("bob").ask("postgres/main & co", 44.0);
    let page = server.page("/debug/resources");
    assert!(page.contains(">mysql</a>") && page.contains(">postgres/main &amp; co</a>"), "{page}");
    let page = server.page("/debug/resources?resource=postgres%2Fmain%20%26%20co");
    assert!(page.contains("<td>bob</td>") && !page.contains("alice"), "{page}");
    let page = server.page("/debug/resources?resource=unknown");
    assert!(page.contains("There is no such resource"), "{page}");
}

#[test]
fn ids_with_html_in_them_are_text_and_nothing_else() {
    let server = Server::development();
    let (resource, client) = ("<script>alert('r')</script>\"'", "<img src=x onerror=\"alert('c')\">");
    server.client(client).ask(resource, 5.0);
    let link = "/debug/resources?resource=%3Cscript%3Ealert%28%27r%27%29%3C%2Fscript%3E%22%27";
    for path in ["/debug/status", "/debug/resources", link, "/debug/resources?resource=%3Cscript%3Eunknown"] {
        let page = server.page(path);
        assert!(!page.contains("<script") && !page.contains("<img"), "{path}: {page}");
    }
    let page = server.page("/debug/resources");
    assert!(page.contains(&format!("href=\"{link}\"")), "the link leads to it: {page}");
    let page = server.page(link);
    assert!(page.contains("&lt;img src=x onerror=") && page.contains("&lt;script&gt;alert"), "{page}");
}

#[test]
fn browsers_are_told_to_frame_no_page_and_to_run_nothing_inline() {
    let server = Server::development();
    for path in ["/", "/debug/status", "/debug/resources", "/debug/resources?resource=x", "/metrics", "/healthz", "/no"]
    {
        let response = http::get(server.http(), path);
        let header = |name| response.header(name).unwrap_or_default();
        assert!(header("content-security-policy").contains("frame-ancestors 'none'"), "{path}: {response:?}");
        assert!(!header("content-security-policy").contains("unsafe"), "{path}: {response:?}");
        assert_eq!((header("x-content-type-options"), header("x-frame-options")), ("nosniff", "DENY"), "{path}");
        assert!(!response.body.contains("<style") && !response.body.contains("style=\""), "{path}: {response:?}");
    }
}

#[test]
fn pages_are_for_the_names_of_the_server_alone() {
    let server = Server::with_flags(&["--http-names", "limits.example,other.example"]);
    let status = |path: &str, host: &str| http::get_as(server.http(), path, host).status;
    for path in ["/", "/debug/status", "/metrics", "/api/v1/status"] {
        for host in ["127.0.0.1", "localhost:5150", "limits.example", "OTHER.example:80"] {
            assert_eq!(status(path, host), 200, "{path} at {host}");
        }
        assert_eq!(status(path, "rebound.example:5150"), 421, "{path}");
    }
    assert_eq!(status("/healthz", "rebound.example"), 200, "probes use any name");
    let refused = http::get_as(server.http(), "/", "rebound.example");
    assert!(refused.body.contains("--http-names") && refused.body.contains("`rebound.example`"), "{refused:?}");
}
