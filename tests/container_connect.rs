//! Meeting a daemon: the failures, with a scripted one where a real one cannot be had.
#![allow(missing_docs)]

use plimsoll::container::Runtime;
use plimsoll::error::ExitCode;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A daemon that answers `/version` with this body and everything else with an empty list; returns
/// its address and the paths that were asked.
async fn daemon(version: &'static str) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("listener");
    let address = format!("tcp://{}", listener.local_addr().expect("address"));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let log = log.clone();
            tokio::spawn(async move {
                let mut request = vec![0; 8192];
                let Ok(n) = stream.read(&mut request).await else {
                    return;
                };
                let text = String::from_utf8_lossy(&request[..n]).into_owned();
                let path = text.split(' ').nth(1).unwrap_or_default().to_owned();
                let body = match path.as_str() {
                    "/version" => version,
                    "/_ping" => "OK",
                    _ => "[]",
                };
                log.lock().expect("log").push(path);
                let kind = if body == "OK" {
                    "text/plain"
                } else {
                    "application/json"
                };
                let reply = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                );
                let _ = stream.write_all(reply.as_bytes()).await;
            });
        }
    });
    (address, asked)
}

#[tokio::test]
async fn an_old_daemon_is_refused_with_a_sentence() {
    let (address, _) =
        daemon(r#"{"Version": "19.03.1", "ApiVersion": "1.40", "MinAPIVersion": "1.12"}"#).await;
    let failure = Runtime::connect_to(&address).await.expect_err("too old");
    assert_eq!(failure.code, ExitCode::Environment);
    assert_eq!(
        failure.message,
        "the Docker daemon (19.03.1) speaks API 1.40; plimsoll needs 1.41 or newer (Docker 20.10)"
    );
}

#[tokio::test]
async fn a_daemon_that_has_moved_on_is_refused_with_a_sentence() {
    let (address, _) =
        daemon(r#"{"Version": "99", "ApiVersion": "1.90", "MinAPIVersion": "1.60"}"#).await;
    let failure = Runtime::connect_to(&address).await.expect_err("too new");
    assert!(
        failure.message.contains("refuses API versions below 1.60"),
        "{}",
        failure.message
    );
}

#[tokio::test]
async fn the_version_agreed_on_is_sent_with_every_request() {
    let version = r#"{"Version": "5.0", "ApiVersion": "1.60", "MinAPIVersion": "1.44", "Components": [{"Name": "Podman Engine", "Version": "5.0"}]}"#;
    let (address, asked) = daemon(version).await;
    let runtime = Runtime::connect_to(&address).await.expect("connect");
    assert_eq!(
        (runtime.version().api.as_str(), runtime.version().podman),
        ("1.53", true)
    );
    assert_eq!(runtime.list_running().await.expect("list"), []);
    assert!(
        asked
            .lock()
            .expect("log")
            .iter()
            .any(|p| p.starts_with("/v1.53/containers/json")),
        "{asked:?}"
    );
}

/// What releases of Docker tell of themselves, and what is spoken to them: the lower of both, and
/// never less than what they take. (Docker 29 answers nothing below 1.44.)
#[tokio::test]
async fn the_lower_of_both_versions_is_spoken() {
    for (version, spoken) in [
        (
            r#"{"Version": "20.10.0", "ApiVersion": "1.41", "MinAPIVersion": "1.12"}"#,
            "1.41",
        ),
        (
            r#"{"Version": "24.0.9", "ApiVersion": "1.43", "MinAPIVersion": "1.12"}"#,
            "1.43",
        ),
        (
            r#"{"Version": "28.5.2", "ApiVersion": "1.51", "MinAPIVersion": "1.24"}"#,
            "1.51",
        ),
        (
            r#"{"Version": "29.0.0", "ApiVersion": "1.52", "MinAPIVersion": "1.44"}"#,
            "1.52",
        ),
        (
            r#"{"Version": "29.2.0", "ApiVersion": "1.53", "MinAPIVersion": "1.44"}"#,
            "1.53",
        ),
        (
            r#"{"Version": "31.0.0", "ApiVersion": "1.60", "MinAPIVersion": "1.53"}"#,
            "1.53",
        ),
        (
            r#"{"Version": "4.3.1", "ApiVersion": "1.41", "MinAPIVersion": "1.24", "Components": [{"Name": "Podman Engine", "Version": "4.3.1"}]}"#,
            "1.41",
        ),
    ] {
        let (address, asked) = daemon(version).await;
        let runtime = Runtime::connect_to(&address).await.expect(version);
        assert_eq!(runtime.version().api, spoken, "{version}");
        assert_eq!(runtime.list_running().await.expect("list"), []);
        let asked = asked.lock().expect("log");
        let list = asked.iter().find(|p| p.contains("/containers/json"));
        let prefix = format!("/v{spoken}/");
        assert!(list.is_some_and(|p| p.starts_with(&prefix)), "{asked:?}");
    }
}

#[tokio::test]
async fn a_daemon_that_names_no_version_is_refused_with_a_sentence() {
    for version in [r#"{"Version": "28.0"}"#, r#"{"ApiVersion": "two"}"#] {
        let (address, _) = daemon(version).await;
        let failure = Runtime::connect_to(&address).await.expect_err(version);
        assert_eq!(failure.code, ExitCode::Environment);
        assert!(failure.message.contains("no API version"), "{failure:?}");
    }
}

#[tokio::test]
async fn who_is_not_there_is_told_with_a_way_out() {
    let dir = tempfile::tempdir().expect("dir");
    let absent = dir.path().join("absent.sock");
    let failure = Runtime::connect_to(&format!("unix://{}", absent.display()))
        .await
        .expect_err("absent");
    assert_eq!(failure.code, ExitCode::Environment);
    assert!(
        failure.message.contains("there is no socket")
            && failure.hints.iter().any(|h| h.contains("DOCKER_HOST")),
        "{failure:?}"
    );

    // A socket file whose owner is gone.
    let silent = dir.path().join("silent.sock");
    drop(UnixListener::bind(&silent).expect("socket"));
    let failure = Runtime::connect_to(&format!("unix://{}", silent.display()))
        .await
        .expect_err("silent");
    assert!(failure.message.contains("nothing listens"), "{failure:?}");

    let listener = UnixListener::bind(dir.path().join("denied.sock")).expect("socket");
    std::fs::set_permissions(
        dir.path().join("denied.sock"),
        PermissionsExt::from_mode(0o000),
    )
    .expect("chmod");
    // Root may use every socket.
    if !rustix::process::geteuid().is_root() {
        let failure = Runtime::connect_to(&format!(
            "unix://{}",
            dir.path().join("denied.sock").display()
        ))
        .await
        .expect_err("denied");
        assert!(
            failure.message.contains("no permission") && failure.hints[0].contains("docker"),
            "{failure:?}"
        );
    }
    drop(listener);

    for host in ["ssh://me@gpu-1", "https://gpu-1:2376", "tcp://127.0.0.1:1"] {
        let failure = Runtime::connect_to(host).await.expect_err(host);
        assert_eq!(failure.code, ExitCode::Environment);
        assert!(
            failure.message.contains(host) && !failure.hints.is_empty(),
            "{failure:?}"
        );
    }
}
