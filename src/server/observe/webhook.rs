//! Events of budgets, posted to a URL as the Standard Webhooks specification says.
//!
//! Events wait in a bounded queue and are posted one after the other. Each is repeated until the receiver accepts it,
//! for a day at most. An event keeps its id when it is repeated, also by another master, so receivers can drop
//! repetitions.

use std::{
    collections::VecDeque,
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use bytes::Bytes;
use http::{Request, Uri, header};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use leaseway_tls::{ClientTls, Credentials, Files, Protocol, TlsError};
use ring::{digest, hmac};
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::Notify,
    time::{sleep, timeout},
};

use crate::{
    config::{error::ServeError, read_secret},
    observe::metrics,
};

const MAX_WAITING: usize = 1000;
const ATTEMPT_TIME: Duration = Duration::from_secs(10);
const FIRST_RETRY: Duration = Duration::from_secs(1);
const MAX_RETRY: Duration = Duration::from_secs(60);
/// An event is dropped if the receiver has not accepted it for this long.
const MAX_AGE: Duration = Duration::from_secs(24 * 3600);
/// The prefix of a secret in base64.
const SECRET_PREFIX: &str = "whsec_";
const MIN_SECRET_BYTES: usize = 16;

/// Where to post events, and the secret that signs them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookOptions {
    pub url: WebhookUrl,
    pub secret: PathBuf,
}

/// An `http` or `https` URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookUrl {
    uri: Uri,
    host: String,
    port: u16,
    has_tls: bool,
}

impl std::str::FromStr for WebhookUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<WebhookUrl, String> {
        let expected = || format!("`{text}`: expected a URL like https://hooks.example.com/budgets");
        let uri: Uri = text.parse().map_err(|_| expected())?;
        let has_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(expected()),
        };
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(expected)?;
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(format!(
                "`{text}`: leave out the user and password; the secret of --webhook-secret-file \
                                authenticates the events"
            ));
        }
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(if has_tls { 443 } else { 80 });
        Ok(WebhookUrl { host, port, has_tls, uri })
    }
}

impl fmt::Display for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.uri.fmt(f)
    }
}

#[derive(Debug)]
struct Event {
    id: String,
    body: Bytes,
    since: Instant,
}

/// The events to be posted. Ends with its last handle.
#[derive(Clone)]
pub(crate) struct Webhook(Arc<Queue>);

struct Queue {
    waiting: Mutex<VecDeque<Event>>,
    wake: Notify,
}

impl Webhook {
    /// Starts posting, on the runtime of the caller.
    pub(crate) fn start(options: &WebhookOptions) -> Result<Webhook, ServeError> {
        let poster = Poster { url: options.url.clone(), key: key(&options.secret)?, tls: tls(&options.url)? };
        let queue = Arc::new(Queue { waiting: Mutex::default(), wake: Notify::new() });
        tokio::spawn(poster.run(Arc::downgrade(&queue)));
        Ok(Webhook(queue))
    }

    /// Queues an event. `identity` is the same whenever the same event is queued.
    pub(crate) fn post(&self, identity: &str, body: &Value) {
        let id: String = digest::digest(&digest::SHA256, identity.as_bytes()).as_ref()[..16]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let mut waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.iter().any(|event| event.id == id) {
            return;
        }
        if waiting.len() == MAX_WAITING {
            waiting.pop_front();
            metrics::webhook_event("dropped");
        }
        waiting.push_back(Event { id, body: body.to_string().into(), since: Instant::now() });
        drop(waiting);
        self.0.wake.notify_one();
    }
}

fn key(path: &Path) -> Result<hmac::Key, ServeError> {
    let secret = read_secret(path)?;
    let bytes = match secret.strip_prefix(SECRET_PREFIX) {
        Some(encoded) => BASE64.decode(encoded).unwrap_or_default(),
        None => secret.into_bytes(),
    };
    if bytes.len() < MIN_SECRET_BYTES {
        let why = format!(
            "expected at least {MIN_SECRET_BYTES} bytes, as from `openssl rand -hex 32`, or {SECRET_PREFIX} and base64"
        );
        return Err(ServeError::Secret { path: path.to_owned(), why });
    }
    Ok(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
}

fn tls(url: &WebhookUrl) -> Result<Option<ClientTls>, TlsError> {
    if !url.has_tls {
        return Ok(None);
    }
    ClientTls::for_protocol(Protocol::Http1, &Credentials::load(Files::default())?, None).map(Some)
}

/// Posts events.
struct Poster {
    url: WebhookUrl,
    key: hmac::Key,
    tls: Option<ClientTls>,
}

impl Poster {
    async fn run(self, queue: std::sync::Weak<Queue>) {
        let mut retry = FIRST_RETRY;
        while let Some(queue) = queue.upgrade() {
            let next = queue.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(event) = next else {
                // Wakes up now and then to notice that all handles are gone.
                let _ = timeout(MAX_RETRY, queue.wake.notified()).await;
                continue;
            };
            let posted =
                timeout(ATTEMPT_TIME, self.post(&event)).await.unwrap_or_else(|_| Err("no answer in 10 s".into()));
            let Err(why) = posted else {
                metrics::webhook_event("delivered");
                retry = FIRST_RETRY;
                continue;
            };
            if event.since.elapsed() > MAX_AGE {
                tracing::error!(url = %self.url, id = event.id, why, "webhook event dropped: not accepted for a day");
                metrics::webhook_event("dropped");
                continue;
            }
            metrics::webhook_event("failed");
            tracing::warn!(url = %self.url, id = event.id, why, retry_secs = retry.as_secs(), "webhook event not accepted; retrying");
            queue.waiting.lock().unwrap_or_else(PoisonError::into_inner).push_front(event);
            drop(queue);
            sleep(retry).await;
            retry = (retry * 2).min(MAX_RETRY);
        }
    }

    async fn post(&self, event: &Event) -> Result<(), String> {
        let stream = TcpStream::connect((&*self.url.host, self.url.port)).await.map_err(|error| error.to_string())?;
        match &self.tls {
            None => self.send(event, stream).await,
            Some(tls) => {
                let stream = tls.connect(&self.url.host, stream).await.map_err(|error| error.to_string())?;
                self.send(event, stream).await
            }
        }
    }

    async fn send(
        &self,
        event: &Event,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<(), String> {
        let words = |error: hyper::Error| error.to_string();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(words)?;
        tokio::spawn(connection);
        let answer = sender.send_request(self.request(event)).await.map_err(words)?;
        let status = answer.status();
        if status.is_success() { Ok(()) } else { Err(format!("the receiver answers {status}")) }
    }

    fn request(&self, event: &Event) -> Request<Full<Bytes>> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut signed = hmac::Context::with_key(&self.key);
        signed.update(format!("{}.{now}.", event.id).as_bytes());
        signed.update(&event.body);
        let signature = format!("v1,{}", BASE64.encode(signed.sign()));
        let uri = &self.url.uri;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let host = uri.authority().map_or("", |authority| authority.as_str());
        Request::post(path)
            .header(header::HOST, host)
            .header(header::CONTENT_TYPE, "application/json")
            .header("webhook-id", &event.id)
            .header("webhook-timestamp", now)
            .header("webhook-signature", signature)
            .body(Full::new(event.body.clone()))
            .expect("valid headers")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_need_a_scheme_and_a_host() {
        let url: WebhookUrl = "https://hooks.example.com/a?b=c".parse().expect("a URL");
        assert_eq!((&*url.host, url.port, url.has_tls), ("hooks.example.com", 443, true));
        let url: WebhookUrl = "http://[::1]:8080".parse().expect("a URL");
        assert_eq!((&*url.host, url.port, url.has_tls), ("::1", 8080, false));
        for bad in ["hooks.example.com", "ftp://a/b", "https://", "https://user:word@a/", "https:///a"] {
            assert!(bad.parse::<WebhookUrl>().is_err(), "{bad}");
        }
    }

    /// The example of the specification's reference libraries.
    #[test]
    fn events_are_signed_as_specified() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("secret");
        std::fs::write(&file, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").expect("a file");
        let key = key(&file).expect("a secret");
        let mut signed = hmac::Context::with_key(&key);
        signed.update(br#"msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.{"test": 2432232314}"#);
        assert_eq!(BASE64.encode(signed.sign()), "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        std::fs::write(&file, "short").expect("a file");
        assert!(matches!(super::key(&file), Err(ServeError::Secret { .. })));
    }
}
