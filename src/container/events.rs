//! Events of a container: died, killed, out of memory, restarted, removed.

use super::{Runtime, checked_name, daemon_answer};
use bollard::models::EventMessage;
use bollard::query_parameters::EventsOptionsBuilder;
use futures::StreamExt;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Attributes that are recorded. The others contain labels and command lines.
const KEPT: &[&str] = &["exitCode", "signal", "execID", "execDuration", "oldName"];

/// Events that begin or end a life. Podman has words of its own for two of them.
const OF_LIVES: [&str; 4] = ["start", "die", "died", "destroy"];

/// This many refusals in a row are final.
const REFUSALS: u32 = 3;

/// One event of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerNotice {
    /// The container's id.
    pub id: String,
    /// Its name; empty where the daemon does not give it.
    pub name: String,
    /// Wall time, nanoseconds since the Unix epoch.
    pub wall_ns: i64,
    /// `die`, `oom`, `kill`, `restart`, `start`, `destroy`, `exec_start`, `exec_die`, …
    pub action: String,
    /// Recorded attributes: `exitCode`, `signal`, `execID`.
    pub attributes: BTreeMap<String, String>,
}

impl Runtime {
    /// Passes the container's events to `sink` until `cancel` fires or the container is destroyed;
    /// without an `id` those of all containers, execs apart.
    /// With `since_ns` (wall time) past events are included, as far as the daemon remembers; with `until_ns` it returns after
    /// those before it. (Podman leaves out what it has not written down yet.)
    /// Returns the reason if the daemon offers no events.
    pub async fn watch_events(
        &self,
        id: Option<&str>,
        since_ns: Option<i64>,
        until_ns: Option<i64>,
        cancel: &CancellationToken,
        mut sink: impl FnMut(ContainerNotice) + Send,
    ) -> Option<String> {
        if let Some(process) = self.process() {
            tokio::select! {
                notice = process.wait_for_end() => sink(notice),
                () = cancel.cancelled() => {}
            }
            return None;
        }
        let id = id.map(checked_name).transpose().ok()?;
        let docker = self.daemon().ok()?;
        let mut since = since_ns;
        // After a reconnect the events of the last nanoseconds are repeated.
        let mut seen: HashSet<(i64, String, String, String)> = HashSet::new();
        let mut pause = Duration::from_millis(100);
        let mut refusals = 0;
        loop {
            let mut filters = HashMap::from([("type".to_owned(), vec!["container".to_owned()])]);
            match id {
                Some(id) => filters.insert("container".to_owned(), vec![id.to_owned()]),
                None => filters.insert("event".to_owned(), OF_LIVES.map(str::to_owned).to_vec()),
            };
            let mut options = EventsOptionsBuilder::default().filters(&filters);
            if let Some(ns) = since {
                options = options.since(&event_time(ns));
            }
            if let Some(ns) = until_ns {
                options = options.until(&event_time(ns));
            }
            let mut stream = docker.events(Some(options.build()));
            let failure = loop {
                let message = tokio::select! {
                    message = stream.next() => message,
                    () = cancel.cancelled() => return None,
                };
                match message {
                    Some(Ok(message)) => {
                        let event = understand(message);
                        let key = (
                            event.wall_ns,
                            event.id.clone(),
                            event.action.clone(),
                            event.attributes.get("execID").cloned().unwrap_or_default(),
                        );
                        if !seen.insert(key) {
                            continue;
                        }
                        if seen.len() > 2048 {
                            let recent = event.wall_ns - 1_000_000_000;
                            seen.retain(|(ns, ..)| *ns >= recent);
                        }
                        pause = Duration::from_millis(100);
                        since = since.max(Some(event.wall_ns));
                        let last = id.is_some() && event.action == "destroy";
                        sink(event);
                        if last {
                            return None;
                        }
                    }
                    Some(Err(e)) => break Some(e),
                    None if until_ns.is_some() => return None,
                    None => break None,
                }
            };
            // A refusal is final unless the daemon is still starting; a broken connection or
            // podman's missing header is transient.
            if let Some((status, message)) = failure.as_ref().and_then(daemon_answer) {
                refusals += u32::from(status < 500);
                if refusals >= REFUSALS {
                    return Some(format!("the daemon sends no events: {}", message.trim()));
                }
            }
            tokio::select! {
                () = sleep(pause) => pause = (pause * 2).min(Duration::from_secs(5)),
                () = cancel.cancelled() => return None,
            }
        }
    }
}

/// Seconds and nanoseconds, as daemons read them.
fn event_time(ns: i64) -> String {
    format!(
        "{}.{:09}",
        ns.div_euclid(1_000_000_000),
        ns.rem_euclid(1_000_000_000)
    )
}

/// Docker's word for a podman event.
fn dockers(action: &str) -> &str {
    match action {
        "remove" => "destroy",
        "died" => "die",
        "exec" => "exec_start",
        "exec_died" => "exec_die",
        other => other,
    }
}

fn understand(message: EventMessage) -> ContainerNotice {
    let action = message.action.unwrap_or_default();
    // `exec_create: sh -c …` contains a command line, with any secret in it.
    let action = action.split(':').next().unwrap_or_default().trim();
    let action = dockers(action).to_owned();
    let actor = message.actor.unwrap_or_default();
    let mut attributes = actor.attributes.unwrap_or_default();
    // Podman attaches an exit code to every event; of an exec it is the only information.
    if let Some(code) = attributes.remove("containerExitCode") {
        if matches!(action.as_str(), "die" | "exec_die") {
            attributes.entry("exitCode".into()).or_insert(code);
        }
    }
    ContainerNotice {
        id: actor.id.unwrap_or_default(),
        name: attributes.get("name").cloned().unwrap_or_default(),
        wall_ns: message
            .time_nano
            .or_else(|| message.time?.checked_mul(1_000_000_000))
            .unwrap_or_default(),
        action,
        attributes: attributes
            .into_iter()
            .filter(|(name, _)| KEPT.contains(&name.as_str()))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn podmans_words_are_dockers() {
        let read = |action: &str, attributes: serde_json::Value| {
            let message = serde_json::json!({"Type": "container", "Action": action, "timeNano": 5, "Actor": {"Attributes": attributes}});
            understand(serde_json::from_value(message).expect("event"))
        };
        let coded = |code: &str| serde_json::json!({"containerExitCode": code, "podId": ""});
        for (podmans, dockers, code) in [
            ("remove", "destroy", None),
            ("died", "die", Some("137")),
            ("die", "die", Some("137")),
            ("exec", "exec_start", None),
            ("exec_died", "exec_die", Some("137")),
            ("kill", "kill", None),
        ] {
            let event = read(podmans, coded("137"));
            assert_eq!(event.action, dockers);
            let exit = event.attributes.get("exitCode").map(String::as_str);
            assert_eq!((exit, event.attributes.len()), (code, code.iter().count()));
        }
        let both = serde_json::json!({"containerExitCode": "0", "exitCode": "3"});
        assert_eq!(read("die", both).attributes["exitCode"], "3");
    }

    #[test]
    fn a_command_line_never_gets_into_an_event() {
        let message: EventMessage = serde_json::from_value(serde_json::json!({
            "Type": "container", "Action": "exec_create: vllm serve --api-key s3cr3t", "timeNano": 5,
            "Actor": {"ID": "1", "Attributes": {"execID": "e", "exitCode": "0", "com.label": "--api-key s3cr3t", "image": "i"}}
        }))
        .expect("event");
        let event = understand(message);
        assert_eq!(event.action, "exec_create");
        assert_eq!(
            event.attributes.keys().collect::<Vec<_>>(),
            ["execID", "exitCode"]
        );
        assert!(!format!("{event:?}").contains("s3cr3t"));
    }
}
