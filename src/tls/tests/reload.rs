use std::fs;

use super::authority::{Authority, NOW, PAST, client, load, meet, write};
use crate::{ClientCertificates, ClientTls, Credentials, Files, Looked, Names, Protocol, ServerTls, TlsError};

/// Until a look has shown something.
fn look(credentials: &Credentials) -> Looked {
    for _ in 0..3 {
        let looked = credentials.look();
        if looked != Looked::Unchanged {
            return looked;
        }
    }
    Looked::Unchanged
}

fn identity(names: Result<Option<Names>, String>) -> String {
    let names = names.expect("it is let in").expect("it has shown one");
    names.identity().expect("it has a name").to_owned()
}

#[tokio::test]
async fn the_next_handshake_takes_what_was_reloaded_on_both_sides() {
    let (old, new) = (Authority::new(), Authority::new());
    let of_server = load(old.issue("server", &["a.test"], NOW));
    let of_client = load(old.issue("client", &["old.test"], NOW));
    let server = ServerTls::new(&of_server, ClientCertificates::Required, Protocol::Http2).expect("it serves");
    let client = ClientTls::new(&of_client, None).expect("it connects");
    assert_eq!(identity(meet(&server, &client, "a.test").await.1), "old.test");
    assert_eq!(look(&of_server), Looked::Unchanged);
    // All of it is replaced, the CA too.
    new.issue_over(&old.files("server"), &["a.test"]);
    new.issue_over(&old.files("client"), &["new.test"]);
    assert_eq!(look(&of_server), Looked::Reloaded);
    assert_eq!(look(&of_client), Looked::Reloaded);
    assert_eq!(identity(meet(&server, &client, "a.test").await.1), "new.test");
}

#[tokio::test]
async fn a_set_that_does_not_load_changes_nothing_and_is_told_once() {
    let authority = Authority::new();
    let files = authority.issue("server", &["a.test"], NOW);
    let credentials = load(files.clone());
    let server = ServerTls::new(&credentials, ClientCertificates::Ignored, Protocol::Http2).expect("it serves");
    let trusting = client(authority.trust());
    let before = credentials.expires();
    let key = files.key.clone().expect("named");
    let other = authority.issue("other", &["a.test"], NOW).key.expect("named");
    write(&key, &fs::read_to_string(other).expect("there"));
    assert!(matches!(look(&credentials), Looked::Kept(TlsError::KeyMismatch { .. })));
    assert_eq!(look(&credentials), Looked::Unchanged, "the same files are not told of again");
    authority.issue("server", &["a.test"], PAST);
    assert!(matches!(look(&credentials), Looked::Kept(TlsError::Expired { .. })));
    fs::remove_file(&key).expect("there");
    assert!(matches!(look(&credentials), Looked::Kept(TlsError::Unreadable { .. })));
    assert!(matches!(credentials.reload(), Looked::Kept(TlsError::Unreadable { .. })), "told again when asked again");
    assert_eq!(credentials.expires(), before);
    assert_eq!(meet(&server, &trusting, "a.test").await.0.as_deref(), Ok("hello"), "as before");
    authority.issue("server", &["a.test"], NOW);
    assert_eq!(look(&credentials), Looked::Reloaded);
}

#[tokio::test]
async fn a_file_that_is_still_being_written_waits() {
    let authority = Authority::new();
    let credentials = load(authority.issue("server", &["a.test"], NOW));
    let Files { certificate, .. } = authority.files("server");
    let path = certificate.expect("named");
    let whole = fs::read_to_string(&path).expect("there");
    for end in [10, 20, 30] {
        write(&path, &whole[..end]);
        assert_eq!(credentials.look(), Looked::Unchanged);
    }
    write(&path, &whole);
    assert_eq!(credentials.look(), Looked::Unchanged);
    assert_eq!(credentials.look(), Looked::Reloaded);
}
