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
    scripted(version, |_| (200, "[]".to_owned())).await
}

/// The same with a status and a body for each other path, given without its version.
async fn scripted(
    version: &'static str,
    answer: impl Fn(&str) -> (u16, String) + Send + Sync + 'static,
) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("listener");
    let address = format!("tcp://{}", listener.local_addr().expect("address"));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = asked.clone();
    let answer = Arc::new(answer);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (log, answer) = (log.clone(), Arc::clone(&answer));
            tokio::spawn(async move {
                let mut request = vec![0; 8192];
                let Ok(n) = stream.read(&mut request).await else {
                    return;
                };
                let text = String::from_utf8_lossy(&request[..n]).into_owned();
                let path = text.split(' ').nth(1).unwrap_or_default().to_owned();
                log.lock().expect("log").push(path.clone());
                let (status, body) = match path.as_str() {
                    "/version" => (200, version.to_owned()),
                    "/_ping" => (200, "OK".to_owned()),
                    _ => {
                        let unversioned = path.find("/containers").unwrap_or_default();
                        answer(path[unversioned..].split('?').next().unwrap_or_default())
                    }
                };
                let kind = if body == "OK" {
                    "text/plain"
                } else {
                    "application/json"
                };
                // What has no content has no length either.
                let length = match status {
                    204 => String::new(),
                    _ => format!("Content-Length: {}\r\n", body.len()),
                };
                let reply = format!(
                    "HTTP/1.1 {status} Status\r\nContent-Type: {kind}\r\n{length}Connection: close\r\n\r\n{body}"
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
        assert!(
            failure.message.contains("which is no version"),
            "{failure:?}"
        );
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
            && failure.hints[0].starts_with("correct that address"),
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

const PODMAN: &str = r#"{"Version": "5.4.2", "ApiVersion": "1.41", "MinAPIVersion": "1.24", "Components": [{"Name": "Podman Engine", "Version": "5.4.2"}]}"#;

/// Podman 5.4.2 has states that Docker's API has no word for.
#[tokio::test]
async fn states_that_only_podman_knows_are_read() {
    let id = "a".repeat(64);
    let known = id.clone();
    let (address, _) = scripted(PODMAN, move |path| match path {
        "/containers/json" => (
            200,
            format!(
                r#"[{{"Id": "{id}", "Names": ["/old"], "Image": "i", "State": "stopped"}},
                    {{"Id": "{}", "Names": ["/other"], "Image": "i", "State": "running"}},
                    {{"Id": "{}", "Names": ["/strange"], "Image": "i", "State": "hibernating"}}]"#,
                "b".repeat(64),
                "c".repeat(64)
            ),
        ),
        _ => (
            200,
            format!(
                r#"{{"Id": "{id}", "Name": "/old", "State": {{"Status": "stopped", "Running": false, "ExitCode": 3, "Pid": 0}}}}"#
            ),
        ),
    })
    .await;
    let runtime = Runtime::connect_to(&address).await.expect("connect");
    let all = runtime.list_all().await.expect("a list");
    let states: Vec<&str> = all.iter().map(|c| c.state.status.as_str()).collect();
    // What a word means that nobody knows is not known.
    assert_eq!(states, ["exited", "running", ""]);
    let old = runtime.find_any("old").await.expect("found").facts;
    assert_eq!((&old.id, old.state.status.as_str()), (&known, "exited"));
    assert_eq!(old.state.exit_code, Some(3));
}

/// Between two steps somebody else may take the name of a container that is gone.
#[tokio::test]
async fn a_container_that_was_found_by_name_is_ended_by_its_id() {
    let id = "a".repeat(64);
    let (address, asked) = scripted(PODMAN, move |path| {
        let running = format!(
            r#"{{"Id": "{id}", "Name": "/llm", "Config": {{"Labels": {{"plimsoll.run": "r", "plimsoll.owner": "o"}}}},
                "State": {{"Status": "running", "Running": true, "Pid": 4194300}}}}"#
        );
        match path {
            // The name is another's by now, the container itself is gone.
            "/containers/llm/json" => (200, running),
            "/containers/llm/stop" => (204, String::new()),
            _ if path.ends_with("/stop") => (204, String::new()),
            _ => (404, r#"{"message": "no such container"}"#.to_owned()),
        }
    })
    .await;
    let runtime = Runtime::connect_to(&address).await.expect("connect");
    let ended = runtime.end_ours("llm", std::time::Duration::ZERO).await;
    let asked = asked.lock().expect("log").clone();
    let by_name = |p: &&String| p.contains("/llm/") && !p.contains("/json");
    assert_eq!(asked.iter().find(by_name), None, "{asked:#?}");
    ended.expect("it is gone");
}
