//! One page over HTTP, for Prometheus: `GET /metrics`.

use super::metrics::MetricsPage;
use crate::error::Failure;
use crate::redact::redact_distinct;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Maximum number of connections. Beyond it the oldest is closed, because a reader is finished long
/// before.
const MOST_CONNECTIONS: usize = 256;
/// Bytes of a request's head.
const LONGEST_HEAD: usize = 16 << 10;
/// Timeout of a request's head, and of a whole connection.
const HEAD: Duration = Duration::from_secs(5);
const CONNECTION: Duration = Duration::from_secs(60);

/// A listening socket.
pub struct MetricsServer(TcpListener);

impl MetricsServer {
    /// Listens.
    pub async fn open(address: SocketAddr) -> Result<MetricsServer, Failure> {
        TcpListener::bind(address)
            .await
            .map(MetricsServer)
            .map_err(|e| {
                Failure::environment(format!("cannot listen on `{address}`"))
                    .hint("choose another address with --listen")
                    .caused_by(e)
            })
    }

    /// Its address, for when the system chose the port.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.0.local_addr().ok()
    }

    /// Serves the latest page until the sender of the pages is gone.
    pub async fn serve_pages(self, pages: watch::Receiver<MetricsPage>) {
        let mut open: VecDeque<AbortHandle> = VecDeque::new();
        let mut gone = pages.clone();
        loop {
            let accepted = tokio::select! {
                accepted = self.0.accept() => accepted,
                () = async { while gone.changed().await.is_ok() {} } => return,
            };
            // A connection broken before it was accepted is the client's problem; without free file
            // handles the only remedy is to wait.
            let Ok((stream, _)) = accepted else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            open.retain(|connection| !connection.is_finished());
            if open.len() >= MOST_CONNECTIONS {
                if let Some(oldest) = open.pop_front() {
                    oldest.abort();
                }
            }
            let pages = pages.clone();
            let connection = tokio::spawn(async move {
                let service = service_fn(|request| {
                    let answer = answer_request(&request, &pages);
                    async move { Ok::<_, Infallible>(answer) }
                });
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEAD)
                    .max_buf_size(LONGEST_HEAD)
                    .serve_connection(TokioIo::new(stream), service);
                let _ = tokio::time::timeout(CONNECTION, connection).await;
            });
            open.push_back(connection.abort_handle());
        }
    }
}

fn answer_request(
    request: &Request<Incoming>,
    pages: &watch::Receiver<MetricsPage>,
) -> Response<Full<Bytes>> {
    let accepts = |kind: &str| {
        let accept = request.headers().get(header::ACCEPT);
        accept.is_some_and(|v| v.to_str().is_ok_and(|v| v.contains(kind)))
    };
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let plain = |status, text: &str| (status, "text/plain", text.to_owned());
    let page = pages.borrow();
    let (status, kind, body) = match request.uri().path() {
        _ if !is_read => plain(StatusCode::METHOD_NOT_ALLOWED, ""),
        "/metrics" if page.prometheus.is_empty() => {
            plain(StatusCode::SERVICE_UNAVAILABLE, "nothing was read yet\n")
        }
        // Containers and processes may have arbitrary names.
        "/metrics" if accepts("application/openmetrics-text") => (
            StatusCode::OK,
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            redact_distinct(&page.open_metrics).into_owned(),
        ),
        "/metrics" => (
            StatusCode::OK,
            "text/plain; version=0.0.4; charset=utf-8",
            redact_distinct(&page.prometheus).into_owned(),
        ),
        _ => plain(StatusCode::NOT_FOUND, "the figures are at /metrics\n"),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let kind = header::HeaderValue::from_static(kind);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn page(text: &str) -> MetricsPage {
        MetricsPage {
            open_metrics: format!("{text}# EOF\n"),
            prometheus: text.to_owned(),
        }
    }

    async fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = match request.split_once(" HTTP/1.1") {
            Some(_) => request.to_owned(),
            None => format!("{request} HTTP/1.1"),
        };
        let request = format!("{request}\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.unwrap();
        reply
    }

    #[tokio::test]
    async fn the_latest_page_is_served_until_there_are_no_more() {
        let (sender, pages) = watch::channel(page("a 1\n"));
        let door = MetricsServer::open(([127, 0, 0, 1], 0).into())
            .await
            .unwrap();
        let address = door.local_address().unwrap();
        let served = tokio::spawn(door.serve_pages(pages));
        assert!(
            ask(address, "GET /metrics")
                .await
                .ends_with("\r\n\r\na 1\n")
        );
        sender.send(page("a 2\n")).unwrap();
        let reply = ask(address, "GET /metrics").await;
        assert!(
            reply.starts_with("HTTP/1.1 200") && reply.ends_with("a 2\n"),
            "{reply}"
        );
        assert!(reply.contains("text/plain; version=0.0.4"), "{reply}");
        let open =
            "GET /metrics HTTP/1.1\r\naccept: application/openmetrics-text; version=1.0.0\r\nx: y";
        let reply = ask(address, open).await;
        assert!(
            reply.contains("application/openmetrics-text; version=1.0.0")
                && reply.ends_with("a 2\n# EOF\n"),
            "{reply}"
        );
        assert!(ask(address, "GET /").await.starts_with("HTTP/1.1 404"));
        assert!(
            ask(address, "POST /metrics")
                .await
                .starts_with("HTTP/1.1 405")
        );
        drop(sender);
        served.await.unwrap();
        assert!(
            MetricsServer::open(address).await.is_ok(),
            "the door is shut"
        );
    }

    #[tokio::test]
    async fn connections_that_drip_do_not_shut_the_scraper_out() {
        let (_sender, pages) = watch::channel(page("a 1\n"));
        let door = MetricsServer::open(([127, 0, 0, 1], 0).into())
            .await
            .unwrap();
        let address = door.local_address().unwrap();
        tokio::spawn(door.serve_pages(pages));
        for count in [200, 600] {
            let mut slow = Vec::new();
            for _ in 0..count {
                let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
                stream.write_all(b"GET /met").await.unwrap();
                slow.push(stream);
            }
            // With more than there may be, the oldest is closed; else the scraper is answered before any is.
            let mut first = slow.swap_remove(0);
            let given_up = async {
                let _ = first.read(&mut [0; 64]).await;
            };
            tokio::select! {
                biased;
                reply = ask(address, "GET /metrics") => assert!(reply.ends_with("a 1\n"), "{reply}"),
                () = given_up, if count < MOST_CONNECTIONS => panic!("a slow one was given up first"),
            }
        }
    }
}
