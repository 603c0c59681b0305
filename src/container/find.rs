//! Finds the container that the user named, and never another one.

use super::inspect::{InspectedContainer, known_states, status_word};
use super::{RUN_LABEL, Runtime, checked_name, daemon_failure};
use crate::capture::{ContainerFacts, ContainerState};
use crate::error::Failure;
use crate::wording::did_you_mean;
use bollard::models::ContainerSummary;
use bollard::query_parameters::ListContainersOptionsBuilder;
use std::collections::HashMap;

/// Shortest part of an id that selects a container.
const SHORTEST_ID: usize = 4;

impl Runtime {
    /// The running container that `wanted` names: by its exact name, its id or a unique prefix of
    /// it (at least 4 hexadecimal digits), or by `label=KEY[=VALUE]`.
    pub async fn find_container(&self, wanted: &str) -> Result<InspectedContainer, Failure> {
        let found = self.find_any(wanted).await?;
        match refuse_state(&found.facts) {
            Some(failure) => Err(failure),
            None => Ok(found),
        }
    }

    /// As [`Self::find_container`], for a container in any state.
    pub async fn find_any(&self, wanted: &str) -> Result<InspectedContainer, Failure> {
        if let Some(process) = self.process() {
            return Ok(process.inspect());
        }
        let wanted = wanted.trim();
        let id = match wanted.strip_prefix("label=") {
            Some(label) => {
                let with_label = self.list_containers(true, &[label]).await?;
                choose_labelled(label, &with_label)?
            }
            None => {
                let name = checked_name(wanted.strip_prefix('/').unwrap_or(wanted))?;
                choose(name, &self.list_containers(true, &[]).await?)?
            }
        };
        let gone = || {
            Failure::environment(format!("container `{wanted}` was removed just now"))
                .hint("`docker ps` shows those that are there")
        };
        self.inspect_container(&id).await?.ok_or_else(gone)
    }

    /// The running containers with the fields in Docker's list: ids, names, images, labels, state,
    /// ports.
    pub async fn list_running(&self) -> Result<Vec<ContainerFacts>, Failure> {
        self.list_containers(false, &[]).await
    }

    /// All containers, running or not, with the fields in Docker's list.
    pub async fn list_all(&self) -> Result<Vec<ContainerFacts>, Failure> {
        self.list_containers(true, &[]).await
    }

    /// The containers that plimsoll created, running or not.
    pub async fn list_ours(&self) -> Result<Vec<ContainerFacts>, Failure> {
        self.list_containers(true, &[RUN_LABEL]).await
    }

    async fn list_containers(
        &self,
        stopped_too: bool,
        labels: &[&str],
    ) -> Result<Vec<ContainerFacts>, Failure> {
        let mut options = ListContainersOptionsBuilder::default().all(stopped_too);
        if !labels.is_empty() {
            let labels = labels.iter().map(|l| (*l).to_owned()).collect();
            options = options.filters(&HashMap::from([("label".to_owned(), labels)]));
        }
        let options = options.build();
        let listed = self
            .ask_again(|docker| {
                let listed = docker.list_containers(Some(options.clone()));
                async move { known_states(listed.await) }
            })
            .await
            .map_err(|e| daemon_failure("cannot list the containers", e))?;
        let mut facts: Vec<ContainerFacts> = listed.into_iter().map(summarize_container).collect();
        facts.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(facts)
    }
}

fn summarize_container(c: ContainerSummary) -> ContainerFacts {
    // Linked containers have further names, `/other/alias`; the own name has one slash.
    let names = c.names.unwrap_or_default();
    let own = names
        .iter()
        .find(|n| n.matches('/').count() <= 1)
        .or(names.first());
    let redactor = crate::redact::Redactor::default();
    ContainerFacts {
        id: c.id.unwrap_or_default(),
        name: own
            .map(|n| n.trim_start_matches('/').to_owned())
            .unwrap_or_default(),
        image: c.image.unwrap_or_default(),
        image_id: c.image_id.unwrap_or_default(),
        labels: c
            .labels
            .unwrap_or_default()
            .into_iter()
            .map(|(n, v)| (n.clone(), redactor.redact_setting(&n, &v)))
            .collect(),
        published_ports: c
            .ports
            .unwrap_or_default()
            .into_iter()
            .filter_map(|p| {
                Some((
                    p.private_port,
                    format!(
                        "{}:{}",
                        p.ip.filter(|i| !i.is_empty())
                            .unwrap_or_else(|| "0.0.0.0".into()),
                        p.public_port?
                    ),
                ))
            })
            .collect(),
        state: ContainerState {
            status: status_word(c.state),
            ..Default::default()
        },
        created_ns: c.created.and_then(|s| s.checked_mul(1_000_000_000)),
        ..Default::default()
    }
}

fn choose(wanted: &str, all: &[ContainerFacts]) -> Result<String, Failure> {
    // A name takes precedence over an id with the same prefix, as in Docker.
    if let Some(c) = all.iter().find(|c| c.name == wanted || c.id == wanted) {
        return Ok(c.id.clone());
    }
    let id = wanted.to_ascii_lowercase();
    if id.len() >= SHORTEST_ID && id.bytes().all(|b| b.is_ascii_hexdigit()) {
        let matches: Vec<&ContainerFacts> = all.iter().filter(|c| c.id.starts_with(&id)).collect();
        match matches.as_slice() {
            [] => {}
            [one] => return Ok(one.id.clone()),
            several => return Err(ambiguous(&format!("the id `{wanted}`"), several)),
        }
    }
    Err(unknown_container(wanted, all))
}

fn choose_labelled(label: &str, with_label: &[ContainerFacts]) -> Result<String, Failure> {
    let running: Vec<&ContainerFacts> = with_label
        .iter()
        .filter(|c| c.state.status == "running")
        .collect();
    match (running.as_slice(), with_label) {
        ([one], _) => Ok(one.id.clone()),
        ([], [one]) => Ok(one.id.clone()),
        ([], []) => Err(
            Failure::environment(format!("no container has the label `{label}`"))
                .hint("`docker ps --format '{{.Names}}: {{.Labels}}'` shows the labels of each"),
        ),
        ([], several) => Err(ambiguous(
            &format!("the label `{label}`"),
            &several.iter().collect::<Vec<_>>(),
        )),
        (several, _) => Err(ambiguous(&format!("the label `{label}`"), several)),
    }
}

fn ambiguous(what: &str, several: &[&ContainerFacts]) -> Failure {
    let list: Vec<String> = several
        .iter()
        .map(|c| format!("{} ({})", c.name, short_id(&c.id)))
        .collect();
    Failure::environment(format!("{what} fits {} containers", several.len()))
        .hint(format!("name one of them: {}", list.join(", ")))
}

fn unknown_container(wanted: &str, all: &[ContainerFacts]) -> Failure {
    let failure = Failure::environment(format!("no container is named `{wanted}`"));
    let failure = match did_you_mean(wanted, all.iter().map(|c| c.name.as_str()), 3) {
        Some(suggestion) => failure.hint(suggestion),
        None => failure,
    };
    let running: Vec<String> = all
        .iter()
        .filter(|c| c.state.status == "running")
        .map(|c| format!("{} ({})", c.name, c.image))
        .collect();
    match running.len() {
        0 => failure.hint("no container is running; `docker ps --all` shows the stopped ones"),
        n if n > 12 => failure.hint(format!(
            "{n} containers are running; `docker ps` lists them"
        )),
        _ => failure.hint(format!("running containers: {}", running.join(", "))),
    }
}

/// Why nothing can be run in the container now; `None` if it runs.
pub fn refuse_state(c: &ContainerFacts) -> Option<Failure> {
    let (name, state) = (&c.name, &c.state);
    let failure = match state.status.as_str() {
        "running" => return None,
        "paused" => Failure::environment(format!("container `{name}` is paused"))
            .hint(format!("`docker unpause {name}` lets it go on")),
        "restarting" => Failure::environment(format!(
            "container `{name}` is restarting: it ended, and Docker starts it again"
        ))
        .hint(format!("`plimsoll why {name}` finds why it ends")),
        "created" => {
            Failure::environment(format!("container `{name}` was created but never started"))
                .hint(format!("start it: `docker start {name}`"))
        }
        _ if c.image.is_empty() && c.image_id.is_empty() => {
            Failure::environment(format!("{name} has ended, and its exit code is unknown"))
                .hint("`plimsoll why FILE` reads its log: the file that it wrote, or `journalctl -u SERVICE > FILE`")
        }
        status => {
            let code = state
                .exit_code
                .map_or_else(String::new, |code| format!(", exit code {code}"));
            let oom = if state.oom_killed {
                ", killed for lack of memory"
            } else {
                ""
            };
            let status = if status.is_empty() {
                "its state is not known"
            } else {
                status
            };
            Failure::environment(format!(
                "container `{name}` is not running: {status}{code}{oom}"
            ))
            .hint(format!("start it: `docker start {name}`"))
            .hint(format!("`plimsoll why {name}` finds why it ended"))
        }
    };
    Some(failure)
}

/// An id as `docker ps` shows it.
pub(crate) fn short_id(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(name: &str, id: &str, status: &str) -> ContainerFacts {
        ContainerFacts {
            name: name.into(),
            id: id.into(),
            image: "i".into(),
            state: ContainerState {
                status: status.into(),
                exit_code: Some(3),
                ..Default::default()
            },
            ..Default::default()
        }
    }

    fn all() -> Vec<ContainerFacts> {
        vec![
            container("vllm-server", "abcd1111", "running"),
            container("tgi", "abcd2222", "running"),
            container("abcd", "ffff0000", "exited"),
            container("old", "eeee9999", "exited"),
        ]
    }

    #[test]
    fn a_container_is_chosen_by_name_or_by_the_beginning_of_its_id_only() {
        assert_eq!(choose("tgi", &all()).expect("name"), "abcd2222");
        assert_eq!(choose("abcd2", &all()).expect("prefix"), "abcd2222");
        assert_eq!(choose("ABCD2", &all()).expect("prefix"), "abcd2222");
        assert_eq!(choose("abcd", &all()).expect("the name wins"), "ffff0000");
        assert!(choose("vllm", &all()).is_err(), "part of a name is no name");
        assert!(choose("ffe", &all()).is_err() && choose("fff", &all()).is_err());
    }

    #[test]
    fn a_wrong_name_is_answered_with_near_ones_and_what_runs() {
        let f = choose("vlm-server", &all()).expect_err("unknown");
        assert_eq!(f.message, "no container is named `vlm-server`");
        assert_eq!(f.hints[0], "did you mean `vllm-server`?");
        assert_eq!(f.hints[1], "running containers: vllm-server (i), tgi (i)");
        let mut two = all();
        two.push(container("x", "abcd2229", "running"));
        let f = choose("abcd222", &two).expect_err("two");
        assert_eq!(f.message, "the id `abcd222` fits 2 containers");
        assert_eq!(f.hints[0], "name one of them: tgi (abcd2222), x (abcd2229)");
    }

    #[test]
    fn a_label_prefers_the_running_container() {
        let some = [
            container("a", "1", "exited"),
            container("b", "2", "running"),
        ];
        assert_eq!(choose_labelled("k=v", &some).expect("one runs"), "2");
        assert_eq!(choose_labelled("k=v", &some[..1]).expect("only one"), "1");
        assert!(choose_labelled("k", &[]).is_err());
    }

    #[test]
    fn an_unknown_exit_code_is_not_reported() {
        for status in ["restarting", "paused", "removing", ""] {
            let mut container = container("a", "1", status);
            container.state.exit_code = None;
            let failure = refuse_state(&container).expect("refused");
            assert!(!failure.message.contains("exit code"), "{failure}");
        }
    }

    #[test]
    fn the_end_of_a_stopped_container_is_described() {
        let f = refuse_state(&container("old", "1", "exited")).expect("refused");
        assert_eq!(
            f.message,
            "container `old` is not running: exited, exit code 3"
        );
        assert_eq!(f.hints[0], "start it: `docker start old`");
        assert!(refuse_state(&container("a", "1", "running")).is_none());
    }
}
