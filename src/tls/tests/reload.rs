use std::fs;

use super::authority::{Authority, NOW, PAST, client, load, meet, write};
use crate::{ClientCertificates, ClientTls, Credentials, Files, Names, Protocol, Reload, ServerTls, TlsError};

/// The first change within three checks: a change counts once two checks agree.
fn next_change(credentials: &Credentials) -> Reload {
    for _ in 0..3 {
        let reload = credentials.check();
        if reload != Reload::Unchanged {
            return reload;
        }
    }
    Reload::Unchanged
}

fn identity(names: Result<Option<Names>, String>) -> String {
    let names = names.expect("accepted").expect("a certificate");
    names.identity().expect("it has a name").to_owned()
}

#[tokio::test]
async fn handshakes_use_reloaded_credentials_on_both_sides() {
    let (old, new) = (Authority::new(), Authority::new());
    let of_server = load(old.issue("server", &["a.test"], NOW));
    let of_client = load(old.issue("client", &["old.test"], NOW));
    let server = ServerTls::new(&of_server, ClientCertificates::Required, Protocol::Http2).expect("it serves");
    let client = ClientTls::new(&of_client, None).expect("it connects");
    assert_eq!(identity(meet(&server, &client, "a.test").await.1), "old.test");
    assert_eq!(next_change(&of_server), Reload::Unchanged);
    // Replaces all files, including the CA.
    new.issue_over(&old.files("server"), &["a.test"]);
    new.issue_over(&old.files("client"), &["new.test"]);
    assert_eq!(next_change(&of_server), Reload::Done);
    assert_eq!(next_change(&of_client), Reload::Done);
    assert_eq!(identity(meet(&server, &client, "a.test").await.1), "new.test");
}

#[tokio::test]
async fn files_that_do_not_load_are_reported_once_and_the_previous_content_stays() {
    let authority = Authority::new();
    let files = authority.issue("server", &["a.test"], NOW);
    let credentials = load(files.clone());
    let server = ServerTls::new(&credentials, ClientCertificates::Ignored, Protocol::Http2).expect("it serves");
    let trusting = client(authority.trust());
    let before = credentials.expires();
    let key = files.key.clone().expect("named");
    let other = authority.issue("other", &["a.test"], NOW).key.expect("named");
    write(&key, &fs::read_to_string(other).expect("there"));
    assert!(matches!(next_change(&credentials), Reload::Failed(TlsError::KeyMismatch { .. })));
    assert_eq!(next_change(&credentials), Reload::Unchanged, "the same error is reported once");
    authority.issue("server", &["a.test"], PAST);
    assert!(matches!(next_change(&credentials), Reload::Failed(TlsError::Expired { .. })));
    fs::remove_file(&key).expect("there");
    assert!(matches!(next_change(&credentials), Reload::Failed(TlsError::Unreadable { .. })));
    assert!(
        matches!(credentials.reload(), Reload::Failed(TlsError::Unreadable { .. })),
        "an explicit reload reports it again"
    );
    assert_eq!(credentials.expires(), before);
    assert_eq!(meet(&server, &trusting, "a.test").await.0.as_deref(), Ok("hello"), "as before");
    authority.issue("server", &["a.test"], NOW);
    assert_eq!(next_change(&credentials), Reload::Done);
}

#[tokio::test]
async fn a_file_is_read_once_it_has_stopped_changing() {
    let authority = Authority::new();
    let credentials = load(authority.issue("server", &["a.test"], NOW));
    let Files { certificate, .. } = authority.files("server");
    let path = certificate.expect("named");
    let whole = fs::read_to_string(&path).expect("there");
    for end in [10, 20, 30] {
        write(&path, &whole[..end]);
        assert_eq!(credentials.check(), Reload::Unchanged);
    }
    write(&path, &whole);
    assert_eq!(credentials.check(), Reload::Unchanged);
    assert_eq!(credentials.check(), Reload::Done);
}
