//! The HTTP client of the load: one request, its event stream and their times. Every request ends,
//! whatever the server does, and uses bounded memory.

use super::answer::ResponseRecord;
use super::protocol;
use super::sse::SseReader;
use crate::capture::{ErrorKind, RequestError};
use crate::engine::Dialect;
use crate::error::describe_with_causes;
use crate::redact::Redactor;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Maximum quote of an error body, characters.
const QUOTED: usize = 300;

/// Maximum size of a response without a stream, bytes: a token count response lists each token.
const LONGEST_ANSWER: usize = 16 << 20;

/// Maximum size read of an error body, bytes.
const LONGEST_ERROR: usize = 64 << 10;

/// Longest stream, bytes.
const LONGEST_STREAM: u64 = 256 << 20;

/// Maximum size of a response head, bytes.
const LONGEST_HEAD: usize = 64 << 10;

/// For connecting.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// How long to wait for the end of a body after its last event.
const REST_PATIENCE: Duration = Duration::from_millis(100);

/// Maximum idle time of a reused connection: some servers close idle connections after 5 s, and a
/// request at that moment would fail through no fault of the server.
const IDLE: Duration = Duration::from_secs(2);

/// A request without an answer.
struct Unanswered {
    error: RequestError,
    /// Whether the connection was closed before any byte of a response.
    stale: bool,
}

/// A client of one server. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct HttpClient {
    client: Client<HttpConnector, Full<Bytes>>,
    base: String,
    key: Option<HeaderValue>,
    redactor: Redactor,
}

impl HttpClient {
    /// For the server at `address` (`host:port`), plain HTTP/1.1, no proxy, no redirects.
    pub fn new(
        address: &str,
        key: Option<&str>,
        redactor: &Redactor,
    ) -> Result<HttpClient, String> {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_PATIENCE));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .http1_max_buf_size(LONGEST_HEAD)
            .build(connector);
        let key = key
            .map(|key| {
                let mut value = HeaderValue::try_from(format!("Bearer {key}"))
                    .map_err(|_| "the API key holds what no header can".to_owned())?;
                value.set_sensitive(true);
                Ok::<_, String>(value)
            })
            .transpose()?;
        Ok(HttpClient {
            client,
            base: format!("http://{address}"),
            key,
            redactor: redactor.clone(),
        })
    }

    /// An error with a redacted, shortened message.
    fn error(&self, kind: ErrorKind, message: &str) -> RequestError {
        let plain: String = self
            .redactor
            .redact_text(message.trim())
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .take(QUOTED)
            .collect();
        RequestError {
            kind,
            message: plain,
        }
    }

    async fn post(
        &self,
        path: &str,
        body: Bytes,
    ) -> Result<http::Response<Incoming>, RequestError> {
        // A server may close a connection just as it is reused. Nothing was answered then, and a
        // fresh connection shows whether the server accepts the request.
        match self.post_once(path, body.clone()).await {
            Err(Unanswered { stale: true, .. }) => self.post_once(path, body).await,
            answered => answered,
        }
        .map_err(|unanswered| unanswered.error)
    }

    async fn post_once(
        &self,
        path: &str,
        body: Bytes,
    ) -> Result<http::Response<Incoming>, Unanswered> {
        let unanswered = |message: &str, stale| Unanswered {
            error: self.error(ErrorKind::Connect, message),
            stale,
        };
        let mut request = http::Request::post(format!("{}{path}", self.base))
            .header(CONTENT_TYPE, "application/json");
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, key.clone());
        }
        let request = request
            .body(Full::new(body))
            .map_err(|e| unanswered(&e.to_string(), false))?;
        self.client
            .request(request)
            .await
            .map_err(|e| unanswered(&describe_with_causes(&e), !e.is_connect() && closed(&e)))
    }

    /// Sends a request and returns status and body.
    pub async fn post_and_read(
        &self,
        path: &str,
        body: Bytes,
        patience: Duration,
    ) -> Result<(u16, String), RequestError> {
        let exchange = async {
            let response = self.post(path, body).await?;
            let status = response.status().as_u16();
            let limited = Limited::new(response.into_body(), LONGEST_ANSWER);
            let body = limited
                .collect()
                .await
                .map_err(|e| self.error(ErrorKind::Cut, &e.to_string()))?;
            Ok((
                status,
                String::from_utf8_lossy(&body.to_bytes()).into_owned(),
            ))
        };
        match timeout(patience, exchange).await {
            Ok(done) => done,
            Err(_) => Err(self.error(ErrorKind::Timeout, &format!("no answer in {patience:?}"))),
        }
    }

    /// Sends a request and reads its event stream into `answer` to the end.
    pub async fn post_and_stream(
        &self,
        dialect: Dialect,
        body: Bytes,
        zero: Instant,
        patience: Duration,
        answer: &mut ResponseRecord,
    ) {
        answer.note_sent(since(zero));
        let exchange = self.read_stream(dialect, body, zero, &mut *answer);
        let end = match timeout(patience, exchange).await {
            Ok(end) => end,
            Err(_) => Err(self.error(
                ErrorKind::Timeout,
                &format!("not finished within {patience:?}"),
            )),
        };
        answer.note_end(since(zero), end.err());
    }

    async fn read_stream(
        &self,
        dialect: Dialect,
        body: Bytes,
        zero: Instant,
        answer: &mut ResponseRecord,
    ) -> Result<(), RequestError> {
        let response = self.post(protocol::request_path(dialect), body).await?;
        let status = response.status().as_u16();
        answer.note_status(status);
        if status != 200 {
            return Err(self.refusal(status, response.into_body()).await);
        }
        let mut body = response.into_body();
        let mut reader = SseReader::default();
        let mut bytes = 0u64;
        let too_long = || self.error(ErrorKind::TooLong, "an event without an end");
        let mut begin = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|e| self.error(ErrorKind::Cut, &describe_with_causes(&e)))?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            let at = since(zero);
            bytes += data.len() as u64;
            // Longer than the quote, so that a secret is not cut in two before redaction.
            let room = LONGEST_ERROR.saturating_sub(begin.len());
            begin.extend_from_slice(&data[..data.len().min(room)]);
            reader
                .push_bytes(&data, |event| answer.note_event(dialect, at, event))
                .map_err(|_| too_long())?;
            self.judge(answer)?;
            if answer.is_done() {
                // The end of the body usually follows at once and frees the connection; if the
                // server keeps it open, the response is still complete.
                let rest = async { while let Some(Ok(_)) = body.frame().await {} };
                let _ = timeout(REST_PATIENCE, rest).await;
                return Ok(());
            }
            if bytes > LONGEST_STREAM {
                return Err(self.error(ErrorKind::TooLong, "a stream without an end"));
            }
        }
        let at = since(zero);
        reader
            .end_stream(|event| answer.note_event(dialect, at, event))
            .map_err(|_| too_long())?;
        self.judge(answer)?;
        if answer.is_complete() {
            return Ok(());
        }
        Err(if answer.anything {
            self.error(
                ErrorKind::Cut,
                "the connection ended before the answer was complete",
            )
        } else {
            self.error(
                ErrorKind::Garbage,
                &format!(
                    "no event came, but: {}",
                    String::from_utf8_lossy(&begin).trim()
                ),
            )
        })
    }

    /// Whether the stream so far is valid.
    fn judge(&self, answer: &ResponseRecord) -> Result<(), RequestError> {
        match answer.first_fault() {
            Some((kind, words)) => Err(self.error(kind, words)),
            None => Ok(()),
        }
    }

    async fn refusal(&self, status: u16, body: Incoming) -> RequestError {
        let mut bytes = Vec::new();
        let mut body = Limited::new(body, LONGEST_ERROR);
        while let Some(Ok(frame)) = body.frame().await {
            if bytes.len() >= LONGEST_ERROR {
                break;
            }
            if let Ok(data) = frame.into_data() {
                bytes.extend_from_slice(&data);
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        self.error(
            ErrorKind::Status,
            &format!("HTTP {status}: {}", text.trim()),
        )
    }
}

/// Nanoseconds since `zero`.
fn since(zero: Instant) -> i64 {
    i64::try_from(zero.elapsed().as_nanos()).unwrap_or(i64::MAX)
}

/// Whether the server closed the connection before answering.
fn closed(e: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(e);
    while let Some(cause) = next {
        if let Some(e) = cause.downcast_ref::<hyper::Error>() {
            if e.is_incomplete_message() || e.is_canceled() {
                return true;
            }
        } else if let Some(e) = cause.downcast_ref::<std::io::Error>() {
            use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
            return matches!(e.kind(), ConnectionReset | BrokenPipe);
        }
        next = cause.source();
    }
    false
}
