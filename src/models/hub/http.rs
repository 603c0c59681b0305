//! The client of the hub: GET over HTTP or TLS, redirects followed by hand so that the token stays with the hub, every
//! size and every wait bounded.

use crate::error::describe_with_causes;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, HeaderValue, LOCATION, RANGE};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::timeout;

/// A head of an answer beyond this is none, bytes.
const LONGEST_HEAD: usize = 64 << 10;

/// How far a hub is trusted with our time and memory.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Redirects of one request.
    pub redirects: usize,
    /// Most files with headers that are read.
    pub files: usize,
    /// Of one config.json or index, bytes.
    pub document: u64,
    /// Of all that one model's question brings, bytes.
    pub all: u64,
    /// For connecting, for the head of an answer and between two pieces of it.
    pub stall: Duration,
    /// For the whole question.
    pub whole: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            redirects: 5,
            // The largest models that are known have some 200.
            files: 2_000,
            document: 32 << 20,
            all: 512 << 20,
            stall: Duration::from_secs(30),
            whole: Duration::from_secs(300),
        }
    }
}

/// Why there is no answer.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum Trouble {
    /// No connection, or it broke.
    #[error("{0}")]
    Connection(String),
    /// Nothing came for too long, seconds.
    #[error("it sent nothing for {0} s")]
    Stalled(f64),
    /// More redirects than any hub needs.
    #[error("it redirects again and again")]
    Redirects,
    /// A redirect that is not followed.
    #[error("it redirects to {0}, where plimsoll sends nothing")]
    Place(String),
    /// An answer of another size or range than was asked for.
    #[error("{0}")]
    Answer(String),
    /// More bytes than is trusted.
    #[error("its answer is longer than {0} MiB")]
    TooLarge(u64),
}

/// An answer to a GET.
#[derive(Debug)]
pub struct Reply {
    /// Of the last server that was asked.
    pub status: StatusCode,
    /// `X-Error-Code`, which distinguishes one 401 from another.
    pub code: String,
    /// The commit that the hub's own answer named.
    pub commit: Option<String>,
    /// What came, at most as much as was asked for.
    pub bytes: Vec<u8>,
    /// Size of the whole file, where the answer has it.
    pub size: Option<u64>,
}

#[cfg(feature = "online")]
type Connector = hyper_rustls::HttpsConnector<HttpConnector>;
#[cfg(not(feature = "online"))]
type Connector = HttpConnector;

#[cfg(feature = "online")]
fn with_tls(tcp: HttpConnector) -> std::io::Result<Connector> {
    Ok(hyper_rustls::HttpsConnectorBuilder::new()
        .with_native_roots()?
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp))
}

/// A build without the feature `online` reaches hubs over plain HTTP: a mirror of one's own.
#[cfg(not(feature = "online"))]
fn with_tls(mut tcp: HttpConnector) -> std::io::Result<Connector> {
    tcp.enforce_http(true);
    Ok(tcp)
}

/// A client of one hub.
pub struct Http {
    client: Client<Connector, Empty<Bytes>>,
    endpoint: Uri,
    token: Option<HeaderValue>,
    limits: Limits,
    /// Bytes that came so far.
    came: AtomicU64,
}

impl Http {
    /// For the hub at `endpoint`.
    ///
    /// # Errors
    /// This host knows no authority that certificates could be checked by.
    pub fn new(endpoint: Uri, token: Option<HeaderValue>, limits: Limits) -> std::io::Result<Http> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(limits.stall));
        let connector = with_tls(tcp)?;
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .http1_max_buf_size(LONGEST_HEAD)
            .build(connector);
        Ok(Http {
            client,
            endpoint,
            token,
            limits,
            came: AtomicU64::new(0),
        })
    }

    /// The beginning of what lies at `path` of the hub: `most` bytes at most. `range`: only these are asked for, and
    /// the rest is not waited for where the server sends it all the same.
    pub async fn get(&self, path: &str, most: u64, range: bool) -> Result<Reply, Trouble> {
        let mut at = self.place(path)?;
        let mut commit = None;
        for _ in 0..=self.limits.redirects {
            let answer = self.once(&at, range.then_some(most)).await?;
            let (head, body) = answer.into_parts();
            if commit.is_none() && same_origin(&at, &self.endpoint) {
                let named = word(&head.headers, "x-repo-commit");
                commit = named.filter(|c| c.len() >= 7 && c.bytes().all(|b| b.is_ascii_hexdigit()));
            }
            if head.status.is_redirection() {
                at = target(&at, &head.headers)?;
                continue;
            }
            let size = size(head.status, &head.headers)?;
            let bytes = if head.status.is_success() {
                self.read(body, most, range).await?
            } else {
                Vec::new()
            };
            return Ok(Reply {
                status: head.status,
                code: word(&head.headers, "x-error-code").unwrap_or_default(),
                commit,
                bytes,
                size,
            });
        }
        Err(Trouble::Redirects)
    }

    /// A place on the hub.
    fn place(&self, path: &str) -> Result<Uri, Trouble> {
        let under = self.endpoint.path().trim_end_matches('/');
        let place = format!("{under}{path}");
        with_path(&self.endpoint, &place).ok_or(Trouble::Place(shown(&place)))
    }

    async fn once(
        &self,
        at: &Uri,
        range: Option<u64>,
    ) -> Result<http::Response<Incoming>, Trouble> {
        let broken =
            |e: &dyn std::error::Error| Trouble::Connection(shown(&describe_with_causes(e)));
        let mut request = http::Request::get(at.clone()).header(
            http::header::USER_AGENT,
            concat!("plimsoll/", env!("CARGO_PKG_VERSION")),
        );
        if let Some(most) = range {
            request = request.header(RANGE, format!("bytes=0-{}", most.saturating_sub(1)));
        }
        // The hub sends downloads to other hosts, which need no token and must not see it.
        if let Some(token) = &self.token {
            if same_origin(at, &self.endpoint) {
                request = request.header(AUTHORIZATION, token.clone());
            }
        }
        let request = request.body(Empty::new()).map_err(|e| broken(&e))?;
        match timeout(self.limits.stall, self.client.request(request)).await {
            Ok(answer) => answer.map_err(|e| broken(&e)),
            Err(_) => Err(self.stalled()),
        }
    }

    fn stalled(&self) -> Trouble {
        Trouble::Stalled(self.limits.stall.as_secs_f64())
    }

    /// A body's first bytes. `part`: what follows them is let go; else it is too much.
    async fn read(&self, mut body: Incoming, most: u64, part: bool) -> Result<Vec<u8>, Trouble> {
        let mut all = Vec::new();
        loop {
            let frame = match timeout(self.limits.stall, body.frame()).await {
                Ok(None) => return Ok(all),
                Ok(Some(frame)) => {
                    frame.map_err(|e| Trouble::Connection(shown(&describe_with_causes(&e))))?
                }
                Err(_) => return Err(self.stalled()),
            };
            let Ok(data) = frame.into_data() else {
                continue;
            };
            let came = self.came.fetch_add(data.len() as u64, Ordering::Relaxed);
            if came + data.len() as u64 > self.limits.all {
                return Err(Trouble::TooLarge(self.limits.all >> 20));
            }
            all.extend_from_slice(&data);
            if all.len() as u64 >= most && part {
                all.truncate(usize::try_from(most).unwrap_or(usize::MAX));
                return Ok(all);
            }
            if all.len() as u64 > most {
                return Err(Trouble::TooLarge(most >> 20));
            }
        }
    }
}

/// The whole file's size, by an answer's head.
fn size(status: StatusCode, headers: &HeaderMap) -> Result<Option<u64>, Trouble> {
    let text = |name| headers.get(name).and_then(|v| v.to_str().ok());
    if status != StatusCode::PARTIAL_CONTENT {
        return Ok(text(CONTENT_LENGTH).and_then(|l| l.parse().ok()));
    }
    let wrong = || Trouble::Answer("it sent another part of the file than requested".into());
    // `bytes 0-99999/4976698672`, `bytes 0-99999/*`
    let range = text(CONTENT_RANGE).ok_or_else(wrong)?;
    let (_, size) = range
        .strip_prefix("bytes 0-")
        .and_then(|r| r.split_once('/'))
        .ok_or_else(wrong)?;
    Ok(size.parse().ok())
}

/// Where a redirect leads.
fn target(from: &Uri, headers: &HeaderMap) -> Result<Uri, Trouble> {
    let location = headers.get(LOCATION).map(HeaderValue::to_str);
    let Some(Ok(location)) = location else {
        return Err(Trouble::Place("none is named".into()));
    };
    let refused = || Trouble::Place(shown(location.split('?').next().unwrap_or_default()));
    let to = if let Some(rest) = location.strip_prefix("//") {
        let scheme = from.scheme_str().unwrap_or("https");
        format!("{scheme}://{rest}").parse().ok()
    } else if location.starts_with('/') {
        with_path(from, location)
    } else {
        location.parse().ok()
    };
    let to: Uri = to.ok_or_else(refused)?;
    let plain = to.scheme() == Some(&Scheme::HTTP);
    let known = plain || to.scheme() == Some(&Scheme::HTTPS);
    if !known || to.host().is_none() || plain && from.scheme() == Some(&Scheme::HTTPS) {
        return Err(refused());
    }
    Ok(to)
}

/// Another path on the same server.
fn with_path(from: &Uri, path: &str) -> Option<Uri> {
    let mut parts = from.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(path).ok()?);
    Uri::from_parts(parts).ok()
}

/// Whether two places are of one server: scheme, host and port.
fn same_origin(a: &Uri, b: &Uri) -> bool {
    let port = |uri: &Uri| {
        let tls = uri.scheme() == Some(&Scheme::HTTPS);
        let named = uri.authority().and_then(Authority::port_u16);
        named.unwrap_or(if tls { 443 } else { 80 })
    };
    let host = |uri: &Uri| uri.host().map(str::to_ascii_lowercase);
    a.scheme() == b.scheme() && host(a).is_some() && host(a) == host(b) && port(a) == port(b)
}

/// A header that is one word of few characters.
fn word(headers: &HeaderMap, name: &str) -> Option<String> {
    let text = headers.get(name)?.to_str().ok()?;
    let plain = text
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    (plain && !text.is_empty() && text.len() <= 100).then(|| text.to_owned())
}

/// A server's words on one line, short.
fn shown(text: &str) -> String {
    let clean = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    clean.take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leads(from: &str, location: &str) -> Result<String, Trouble> {
        let mut headers = HeaderMap::new();
        headers.insert(LOCATION, HeaderValue::from_str(location).unwrap());
        target(&from.parse().unwrap(), &headers).map(|to| to.to_string())
    }

    #[test]
    fn redirects_lead_where_browsers_would_go_and_never_out_of_tls() {
        let hub = "https://hub.test/a/b?c";
        assert_eq!(leads(hub, "/x?y").unwrap(), "https://hub.test/x?y");
        assert_eq!(leads(hub, "//cdn.test/x").unwrap(), "https://cdn.test/x");
        assert_eq!(
            leads(hub, "https://cdn.test/x").unwrap(),
            "https://cdn.test/x"
        );
        for bad in [
            "http://cdn.test/x",
            "file:///etc/passwd",
            "x",
            "",
            "https://",
        ] {
            assert!(matches!(leads(hub, bad), Err(Trouble::Place(_))), "{bad}");
        }
        assert!(leads("http://hub.test/", "http://cdn.test/x").is_ok());
    }

    #[test]
    fn a_server_is_its_scheme_host_and_port() {
        let same = |a: &str, b: &str| same_origin(&a.parse().unwrap(), &b.parse().unwrap());
        assert!(same("https://hub.test/a", "https://HUB.test:443/b"));
        for other in [
            "http://hub.test/",
            "https://hub.test:8443/",
            "https://hub.test.evil/",
            "https://evil/hub.test",
            "https://hub.test@evil/",
        ] {
            assert!(!same("https://hub.test/", other), "{other}");
        }
    }

    #[test]
    fn a_part_has_its_range_and_the_total() {
        let total_of = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_RANGE, HeaderValue::from_static(text));
            size(StatusCode::PARTIAL_CONTENT, &headers)
        };
        assert_eq!(total_of("bytes 0-99/5000"), Ok(Some(5000)));
        assert_eq!(total_of("bytes 0-99/*"), Ok(None));
        assert!(total_of("bytes 100-199/5000").is_err());
        assert!(total_of("").is_err());
    }
}
