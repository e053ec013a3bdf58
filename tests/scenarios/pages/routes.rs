//! Doorman's paths redirect to the pages, and pages escape ids.

use crate::harness::{doorman::Asks as _, http, server::Server};

#[test]
fn unknown_paths_are_not_found_and_list_the_pages() {
    let response = http::get(Server::shared().http(), "/no/such/page?x=1");
    assert_eq!(response.status, 404, "{response:?}");
    for text in ["There is no page /no/such/page here", "/resources  Resources", "/metrics", "/readyz"] {
        assert!(response.body.contains(text), "{text}: {}", response.body);
    }
}

#[test]
fn doormans_paths_redirect_to_pages() {
    for (path, to) in [
        ("/debug/status", "/"),
        ("/debug/resources", "/resources"),
        ("/debug/resources?resource=a%2Fb%0D", "/resource?resource=a%2Fb%0D"),
    ] {
        let response = http::get(Server::shared().http(), path);
        assert_eq!((response.status, response.header("location")), (301, Some(to)), "{path}");
    }
}

#[test]
fn ids_with_html_are_escaped_and_linked() {
    let server = Server::shared();
    let (resource, client) = ("<script>alert('r')</script>\"'", "<img src=x onerror=\"alert('c')\">");
    server.client(client).ask(resource, 5.0);
    let link = "/resource?resource=%3Cscript%3Ealert%28%27r%27%29%3C%2Fscript%3E%22%27";
    for path in ["/", "/resources", link, "/resource?resource=%3Cscript%3Eunknown"] {
        let page = http::get(server.http(), path).body;
        assert!(!page.contains("<script>") && !page.contains("<img"), "{path}: {page}");
    }
    assert!(server.page("/resources").contains(&format!("href=\"{link}")));
    let page = server.page(link);
    assert!(page.contains("&lt;img src=x onerror=") && page.contains("&lt;script&gt;alert"), "{page}");
}

#[test]
fn pages_forbid_frames_and_inline_scripts() {
    for path in ["/", "/debug/status", "/resources", "/resource?resource=x", "/metrics", "/healthz", "/no"] {
        let response = http::get(Server::shared().http(), path);
        let header = |name| response.header(name).unwrap_or_default();
        assert!(header("content-security-policy").contains("frame-ancestors 'none'"), "{path}: {response:?}");
        assert!(!header("content-security-policy").contains("unsafe"), "{path}: {response:?}");
        assert_eq!((header("x-content-type-options"), header("x-frame-options")), ("nosniff", "DENY"), "{path}");
        assert!(!response.body.contains("<style") && !response.body.contains("style=\""), "{path}: {response:?}");
    }
}
