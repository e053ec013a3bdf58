//! Pages for people and probes, at the addresses that Doorman has.

use crate::harness::{
    config::{ConfigFile, Template},
    doorman::Asks as _,
    http,
    server::Server,
};

#[test]
fn every_unknown_path_leads_to_the_status_page() {
    for path in ["/favicon.ico", "/debug", "/no/such/page?x=1"] {
        let response = http::get(Server::shared().http(), path);
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
fn ids_with_html_in_them_are_text_and_links_lead_to_their_clients() {
    let server = Server::shared();
    let (resource, client) = ("<script>alert('r')</script>\"'", "<img src=x onerror=\"alert('c')\">");
    server.client(client).ask(resource, 5.0);
    let link = "/debug/resources?resource=%3Cscript%3Ealert%28%27r%27%29%3C%2Fscript%3E%22%27";
    for path in ["/debug/status", "/debug/resources", link, "/debug/resources?resource=%3Cscript%3Eunknown"] {
        let page = server.page(path);
        assert!(!page.contains("<script") && !page.contains("<img"), "{path}: {page}");
    }
    assert!(server.page("/debug/resources").contains(&format!("href=\"{link}\"")));
    let page = server.page(link);
    assert!(page.contains("&lt;img src=x onerror=") && page.contains("&lt;script&gt;alert"), "{page}");
}

#[test]
fn pages_forbid_frames_and_inline_scripts() {
    for path in ["/", "/debug/status", "/debug/resources", "/debug/resources?resource=x", "/metrics", "/healthz", "/no"]
    {
        let response = http::get(Server::shared().http(), path);
        let header = |name| response.header(name).unwrap_or_default();
        assert!(header("content-security-policy").contains("frame-ancestors 'none'"), "{path}: {response:?}");
        assert!(!header("content-security-policy").contains("unsafe"), "{path}: {response:?}");
        assert_eq!((header("x-content-type-options"), header("x-frame-options")), ("nosniff", "DENY"), "{path}");
        assert!(!response.body.contains("<style") && !response.body.contains("style=\""), "{path}: {response:?}");
    }
}
