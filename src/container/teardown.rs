//! The end of a container: asked to stop, killed if it does not, removed if plimsoll created it.
//!
//! What counts is how the container is afterwards, not what the daemon answered: an answer may be
//! cut off or come too late. Every step can be repeated, so an end that broke off anywhere is
//! finished by the next.
//!
//! Ends containers that plimsoll created.

use super::inspect::parse_inspection;
use super::{
    CREATED_LABEL, OWNER_LABEL, RUN_LABEL, Runtime, checked_name, daemon_answer, daemon_failure,
    is_not_found,
};
use crate::capture::ContainerFacts;
use crate::error::Failure;
use bollard::errors::Error;
use bollard::query_parameters::{
    KillContainerOptionsBuilder, RemoveContainerOptionsBuilder, StopContainerOptionsBuilder,
};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// For one look at a container: a busy daemon takes its time, a hanging one for ever.
const LOOK_LIMIT: Duration = Duration::from_secs(20);

/// For one removal: a large layer on a slow disk.
const REMOVE_LIMIT: Duration = Duration::from_secs(30);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(200);

/// Exit code of what ended by SIGKILL.
const KILLED: i64 = 137;

/// How long each part of an end may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// From asking to killing.
    pub grace: Duration,
    /// From killing to giving up.
    pub kill_wait: Duration,
    /// From trouble with the daemon to the one further attempt.
    pub retry_after: Duration,
}

impl Patience {
    /// With this grace, and the usual times for the rest.
    pub fn for_grace(grace: Duration) -> Patience {
        Patience {
            grace,
            kill_wait: Duration::from_secs(10),
            retry_after: Duration::from_secs(30),
        }
    }
}

/// Whether a container, as it is now, may be ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum May {
    /// It may.
    Act,
    /// Not now, for this reason; in a moment perhaps.
    Wait(String),
    /// No, for this reason.
    Not(String),
}

/// Asked at every look, before each step: the container may have changed since it was judged.
pub type PermissionCheck<'a> = &'a mut (dyn FnMut(&ContainerFacts) -> May + Send);

/// A container as it was found.
#[derive(Debug)]
pub enum ContainerStatus {
    /// There is none of that id.
    Gone,
    /// It is not to be touched, for this reason.
    Left(String),
    /// Here it is.
    Here(Box<ContainerFacts>),
}

/// How an end came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Torn {
    /// It has ended. `by_us`: it was stopped or removed here.
    Over {
        /// Whether because of what was done here.
        by_us: bool,
    },
    /// It was left alone, for this reason.
    Left(String),
    /// It could not be ended: a sentence.
    Failed(String),
}

/// An end, and how it came about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Teardown {
    /// How it came out.
    pub torn: Torn,
    /// What was done, in order: `stopped in 2.1 s`, `killed after 60 s`, `removed`.
    pub steps: Vec<String>,
}

impl Runtime {
    /// Ends a container: SIGTERM, after the grace SIGKILL. With `remove`, then removes it and its
    /// anonymous volumes, if it carries plimsoll's labels. If the daemon fails it is tried once
    /// more, unless `cancel` has fired.
    pub async fn tear_down(
        &self,
        id: &str,
        remove: bool,
        patience: Patience,
        may: PermissionCheck<'_>,
        cancel: &CancellationToken,
    ) -> Teardown {
        let mut act = TeardownRun::new(self, id, patience, may, cancel);
        act.remove = remove;
        let mut torn = act.attempt().await;
        if let Err(trouble) = &torn {
            if act.pause(trouble).await {
                torn = act.attempt().await;
            }
        }
        // A removal with a lost answer may be in progress: wait for it.
        if act.asked_removal && torn.is_err() {
            torn = act.removed(torn).await;
        }
        Teardown {
            torn: torn.unwrap_or_else(|trouble| Torn::Failed(trouble.words)),
            steps: act.steps,
        }
    }

    /// Looks at a container that is to be acted on, and once more where the daemon fails. `Err`: it
    /// failed again.
    pub async fn look_before(
        &self,
        id: &str,
        patience: Patience,
        may: PermissionCheck<'_>,
        cancel: &CancellationToken,
    ) -> Result<ContainerStatus, String> {
        let mut act = TeardownRun::new(self, id, patience, may, cancel);
        let mut state = act.read_status().await;
        if let Err(trouble) = &state {
            if act.pause(trouble).await {
                state = act.read_status().await;
            }
        }
        state.map_err(|trouble| trouble.words)
    }
}

/// Whether plimsoll created the container: it carries both of our labels.
pub fn is_ours(facts: &ContainerFacts) -> bool {
    let has = |label: &str| facts.labels.contains_key(label);
    has(RUN_LABEL) && has(OWNER_LABEL)
}

/// Whether something runs in it, frozen or not.
pub fn is_running(facts: &ContainerFacts) -> bool {
    matches!(
        facts.state.status.as_str(),
        "running" | "paused" | "restarting"
    )
}

/// Why an attempt came to nothing.
struct TeardownTrouble {
    words: String,
    /// The container's status at the time; empty where it could not be looked at.
    status: String,
    /// Whether the daemon could not be reached, rather than refused something.
    broken: bool,
}

impl TeardownTrouble {
    fn for_grace(words: String, status: &str) -> TeardownTrouble {
        TeardownTrouble {
            words,
            status: status.to_owned(),
            broken: false,
        }
    }
}

struct TeardownRun<'a> {
    runtime: &'a Runtime,
    /// As it was named; from the first look on its id, because a name may go to another one.
    id: String,
    patience: Patience,
    may: PermissionCheck<'a>,
    cancel: &'a CancellationToken,
    remove: bool,
    steps: Vec<String>,
    /// What Docker does when the container has ended: its restart policy.
    policy: String,
    stopped: bool,
    asked_removal: bool,
}

impl<'a> TeardownRun<'a> {
    fn new(
        runtime: &'a Runtime,
        id: &'a str,
        patience: Patience,
        may: PermissionCheck<'a>,
        cancel: &'a CancellationToken,
    ) -> Self {
        TeardownRun {
            runtime,
            id: id.to_owned(),
            patience: Patience {
                grace: whole_seconds(patience.grace),
                ..patience
            },
            may,
            cancel,
            remove: false,
            steps: Vec::new(),
            policy: String::new(),
            stopped: false,
            asked_removal: false,
        }
    }

    /// The container as it is, whether it may be touched or not.
    async fn read_facts(&mut self) -> Result<Option<ContainerFacts>, TeardownTrouble> {
        let trouble = |words: String| TeardownTrouble {
            words,
            status: String::new(),
            broken: true,
        };
        let id = checked_name(&self.id).map_err(|f| trouble(f.message))?;
        let look = || self.runtime.inspect_once(id);
        let asked = async {
            match self.runtime.ask_again(|_| look()).await {
                // A wrong answer here would leave a container behind for good: ask twice.
                Err(e) if is_not_found(&e) => look().await,
                answer => answer,
            }
        };
        match timeout(LOOK_LIMIT, asked).await {
            Ok(Ok(found)) => {
                let host = found.host_config.as_ref();
                let policy = host.and_then(|h| h.restart_policy.as_ref()?.name);
                self.policy = policy.map(|p| p.to_string()).unwrap_or_default();
                let facts = parse_inspection(found).facts;
                self.id.clone_from(&facts.id);
                Ok(Some(facts))
            }
            Ok(Err(e)) if is_not_found(&e) => Ok(None),
            Ok(Err(e)) => Err(trouble(error_words("cannot look at it", e))),
            Err(_) => Err(trouble(format!(
                "cannot look at it: the daemon did not answer in {} s",
                LOOK_LIMIT.as_secs()
            ))),
        }
    }

    /// The container, once it may be touched or it is known that it may not.
    async fn read_status(&mut self) -> Result<ContainerStatus, TeardownTrouble> {
        let until = Instant::now() + self.patience.grace + self.patience.kill_wait;
        loop {
            let Some(facts) = self.read_facts().await? else {
                return Ok(ContainerStatus::Gone);
            };
            match (self.may)(&facts) {
                May::Act => return Ok(ContainerStatus::Here(Box::new(facts))),
                May::Not(why) => return Ok(ContainerStatus::Left(why)),
                May::Wait(why) if Instant::now() >= until || self.cancel.is_cancelled() => {
                    return Ok(ContainerStatus::Left(why));
                }
                May::Wait(_) => sleep(LOOK).await,
            }
        }
    }

    async fn attempt(&mut self) -> Result<Torn, TeardownTrouble> {
        let mut state = self.read_status().await?;
        if matches!(&state, ContainerStatus::Here(facts) if is_running(facts)) {
            state = self.stop(state).await?;
        }
        let facts = match state {
            ContainerStatus::Gone => {
                return Ok(Torn::Over {
                    by_us: self.stopped || self.asked_removal,
                });
            }
            ContainerStatus::Left(why) => return Ok(Torn::Left(why)),
            ContainerStatus::Here(facts) => facts,
        };
        if self.remove {
            self.remove(&facts).await
        } else {
            Ok(Torn::Over {
                by_us: self.stopped,
            })
        }
    }

    /// Stops what runs, and gives how it is then.
    async fn stop(&mut self, state: ContainerStatus) -> Result<ContainerStatus, TeardownTrouble> {
        let was_paused =
            matches!(&state, ContainerStatus::Here(facts) if facts.state.status == "paused");
        let began = Instant::now();
        let mut complaint = self.ask_to_stop().await;
        let mut waited = began.elapsed();
        self.stopped = true;
        let mut now = self.read_status().await?;
        if was_paused && complaint.is_some() && is_paused(&now) {
            // What is frozen takes no signal, and not every daemon thaws it for that.
            self.unpause().await;
            complaint = self.ask_to_stop().await;
            waited = began.elapsed();
            now = self.read_status().await?;
        }
        if !still_runs(&now) {
            self.report_stop(&now, began);
            return Ok(now);
        }
        // It was perhaps never asked, and then it has a right to its grace. How long our own looks at it
        // took on a busy host does not count.
        if let Some(words) = complaint.filter(|_| waited < self.patience.grace) {
            return Err(TeardownTrouble::for_grace(words, status(&now)));
        }
        let complaint = self.kill().await;
        let until = Instant::now() + self.patience.kill_wait;
        loop {
            now = self.read_status().await?;
            if !still_runs(&now) {
                self.steps
                    .push(format!("killed after {}", elapsed_seconds(began)));
                self.report_policy(&now);
                return Ok(now);
            }
            if is_paused(&now) {
                self.unpause().await;
            }
            if Instant::now() >= until {
                let since = self.patience.kill_wait.as_secs();
                let mut words = format!("it still runs {since} s after it was killed");
                if let Some(complaint) = complaint {
                    words = format!("{words}: {complaint}");
                }
                return Err(TeardownTrouble::for_grace(words, status(&now)));
            }
            sleep(LOOK).await;
        }
    }

    fn report_stop(&mut self, now: &ContainerStatus, began: Instant) {
        let how = stopped_how(now);
        self.steps.push(format!("{how} {}", elapsed_seconds(began)));
        self.report_policy(now);
    }

    fn report_policy(&mut self, now: &ContainerStatus) {
        if self.remove || !matches!(now, ContainerStatus::Here(_)) {
            return;
        }
        let policy = &self.policy;
        match policy.as_str() {
            "always" => self.steps.push(format!(
                "its restart policy `{policy}` starts it again only with Docker itself"
            )),
            "unless-stopped" | "on-failure" => self.steps.push(format!(
                "its restart policy `{policy}` does not start it again"
            )),
            _ => {}
        }
    }

    /// `docker stop`; what went wrong with it. Nothing went wrong when time was up.
    async fn ask_to_stop(&self) -> Option<String> {
        let grace = self.patience.grace;
        let options = StopContainerOptionsBuilder::default()
            .t(i32::try_from(grace.as_secs()).unwrap_or(i32::MAX))
            .build();
        // The answer comes when it has stopped: wait for that, not for the client's two minutes.
        let limit = grace + self.patience.kill_wait;
        let stop = async {
            let docker = self.patient(limit)?;
            docker.stop_container(&self.id, Some(options)).await
        };
        match timeout(limit, stop).await {
            Ok(Err(e)) => complaint("cannot stop it", e),
            _ => None,
        }
    }

    async fn kill(&self) -> Option<String> {
        let options = KillContainerOptionsBuilder::default()
            .signal("SIGKILL")
            .build();
        let limit = self.patience.kill_wait;
        let kill = async {
            let docker = self.patient(limit)?;
            docker.kill_container(&self.id, Some(options)).await
        };
        match timeout(limit, kill).await {
            Ok(Err(e)) => complaint("cannot kill it", e),
            Ok(Ok(())) => None,
            Err(_) => Some("the daemon did not answer".into()),
        }
    }

    async fn unpause(&mut self) {
        let asked = async {
            let docker = self.runtime.daemon()?;
            docker.unpause_container(&self.id).await
        };
        if matches!(timeout(self.patience.kill_wait, asked).await, Ok(Ok(()))) {
            self.steps.push("unpaused".into());
        }
    }

    async fn remove(&mut self, facts: &ContainerFacts) -> Result<Torn, TeardownTrouble> {
        if !is_ours(facts) {
            return Ok(Torn::Left(
                "it does not carry plimsoll's labels: it is not removed".into(),
            ));
        }
        let trouble = |words: String| TeardownTrouble::for_grace(words, &facts.state.status);
        // Never by force: that would be a SIGKILL for what was started again just now.
        let options = RemoveContainerOptionsBuilder::default().v(true).build();
        let asked = async {
            let docker = self.patient(REMOVE_LIMIT)?;
            docker.remove_container(&self.id, Some(options)).await
        };
        match timeout(REMOVE_LIMIT, asked).await {
            Ok(Ok(())) => {
                self.steps.push("removed".into());
                Ok(Torn::Over { by_us: true })
            }
            // It was there a moment ago: whether it is gone is looked at, not believed.
            Ok(Err(e)) if is_not_found(&e) => match self.read_facts().await? {
                Some(_) => Err(trouble(error_words("cannot remove it", e))),
                None => Ok(Torn::Over {
                    by_us: self.stopped || self.asked_removal,
                }),
            },
            // Another client removes it, or it was started again.
            Ok(Err(e)) if daemon_answer(&e).is_some_and(|(code, _)| code == 409) => {
                Err(trouble(match daemon_answer(&e) {
                    Some((_, message)) if message.contains("already in progress") => {
                        "its removal is in progress already".into()
                    }
                    _ => error_words("cannot remove it", e),
                }))
            }
            Ok(Err(e)) => {
                self.asked_removal = true;
                Err(trouble(error_words("cannot remove it", e)))
            }
            Err(_) => {
                self.asked_removal = true;
                let limit = REMOVE_LIMIT.as_secs();
                Err(trouble(format!("its removal takes longer than {limit} s")))
            }
        }
    }

    /// Waits before the further attempt, or until the container has changed by itself. `false`:
    /// there is to be none.
    async fn pause(&mut self, trouble: &TeardownTrouble) -> bool {
        let began = Instant::now();
        while began.elapsed() < self.patience.retry_after {
            if self.cancel.is_cancelled() {
                return false;
            }
            let left = self.patience.retry_after.saturating_sub(began.elapsed());
            sleep(LOOK.min(left)).await;
            let now = match self.read_facts().await {
                Ok(Some(facts)) => facts.state.status,
                Ok(None) => break,
                Err(_) => continue,
            };
            // A removal under way is not over yet. A daemon that was away and is back is asked at once.
            let back = trouble.status.is_empty() && trouble.broken;
            let changed = now != trouble.status && now != "removing";
            if back || (changed && !trouble.status.is_empty()) {
                break;
            }
        }
        let waited = elapsed_seconds(began);
        self.steps
            .push(format!("{}; looked again after {waited}", trouble.words));
        true
    }

    /// Waits for a removal that was asked for.
    async fn removed(
        &mut self,
        torn: Result<Torn, TeardownTrouble>,
    ) -> Result<Torn, TeardownTrouble> {
        let until = Instant::now() + self.patience.kill_wait;
        while Instant::now() < until && !self.cancel.is_cancelled() {
            match self.read_facts().await {
                Ok(None) => return Ok(Torn::Over { by_us: true }),
                Ok(Some(facts)) if facts.state.status == "removing" => sleep(LOOK).await,
                Ok(Some(_)) | Err(_) => break,
            }
        }
        torn
    }

    /// The client, with its own limit out of the way.
    fn patient(&self, limit: Duration) -> Result<bollard::Docker, Error> {
        let docker = self.runtime.daemon()?.clone();
        Ok(docker.with_timeout(limit + Duration::from_secs(5)))
    }
}

fn status(state: &ContainerStatus) -> &str {
    match state {
        ContainerStatus::Here(facts) => &facts.state.status,
        ContainerStatus::Gone | ContainerStatus::Left(_) => "",
    }
}

fn still_runs(state: &ContainerStatus) -> bool {
    matches!(state, ContainerStatus::Here(facts) if is_running(facts))
}

/// The daemon itself kills what does not obey, and whoever ended so was not asked only.
fn stopped_how(state: &ContainerStatus) -> &'static str {
    match state {
        ContainerStatus::Here(facts) if facts.state.exit_code == Some(KILLED) => "killed after",
        _ => "stopped in",
    }
}

/// The daemon counts a grace in whole seconds: it is given rather more than less.
fn whole_seconds(grace: Duration) -> Duration {
    let more = u64::from(grace.subsec_nanos() > 0);
    Duration::from_secs(grace.as_secs().saturating_add(more))
}

fn is_paused(state: &ContainerStatus) -> bool {
    status(state) == "paused"
}

/// What went wrong, unless it was done already: 404 for what is gone, 304 and 409 for what does
/// not run.
fn complaint(what: &str, e: Error) -> Option<String> {
    match daemon_answer(&e) {
        Some((304 | 404, _)) => None,
        Some((409, message)) if message.contains("is not running") => None,
        _ => Some(error_words(what, e)),
    }
}

/// A failure with its cause, as one sentence.
fn error_words(what: &str, e: Error) -> String {
    let failure = daemon_failure(what, e);
    match &failure.source {
        Some(cause) => format!("{}: {cause}", failure.message),
        None => failure.message,
    }
}

fn elapsed_seconds(since: Instant) -> String {
    let elapsed = since.elapsed().as_secs_f64();
    if elapsed < 10.0 {
        format!("{elapsed:.1} s")
    } else {
        format!("{elapsed:.0} s")
    }
}

/// Maximum difference between the label `plimsoll.created` and Docker's creation time, nanoseconds:
/// Docker may be busy, and its clock slightly off.
const CREATION: u64 = 600_000_000_000;

/// Whether our labels on a container are its own. They can come from an image that was made of a
/// container of ours, or from a tool that recreates a container with all its labels: then they
/// belong to the other container, and this one to a user.
pub fn labels_are_its_own(facts: &ContainerFacts, image: &BTreeMap<String, String>) -> bool {
    let own = |label| facts.labels.get(label) != image.get(label);
    let label = facts.labels.get(CREATED_LABEL);
    let stated = label.and_then(|label| label.parse::<jiff::Timestamp>().ok());
    let stated_ns = stated.and_then(|at| i64::try_from(at.as_nanosecond()).ok());
    let apart = stated_ns.zip(facts.created_ns).map(|(a, b)| a.abs_diff(b));
    let copied = apart.is_some_and(|ns| ns > CREATION);
    own(OWNER_LABEL) && own(RUN_LABEL) && !copied
}

impl Runtime {
    /// Whether a container's labels are ours and its own; false if its image is no longer on this
    /// machine.
    pub async fn is_of_us(&self, facts: &ContainerFacts) -> Result<bool, Failure> {
        let image = self.image_labels(&facts.image_id).await?;
        Ok(is_ours(facts) && image.is_some_and(|image| labels_are_its_own(facts, &image)))
    }

    /// Ends and removes the container of that name or id at once, if this run created it. Another
    /// run's container is left alone without an error. `Err`: its state is unknown, or it still
    /// exists.
    pub(super) async fn end_of_run(&self, id: &str, run_id: &str) -> Result<(), Failure> {
        let mut may = |facts: &ContainerFacts| {
            let of_run = facts.labels.get(RUN_LABEL).is_some_and(|run| run == run_id);
            if is_ours(facts) && of_run {
                May::Act
            } else {
                May::Not("another run's".into())
            }
        };
        let never = CancellationToken::new();
        let patience = Patience::for_grace(Duration::ZERO);
        let done = self.tear_down(id, true, patience, &mut may, &never).await;
        match done.torn {
            Torn::Over { .. } | Torn::Left(_) => Ok(()),
            Torn::Failed(why) => Err(Failure::environment(why)),
        }
    }

    /// Ends and removes a container of ours. If it is gone already this succeeds; one that plimsoll
    /// did not create is left alone, with an error.
    pub async fn end_ours(&self, id: &str, grace: Duration) -> Result<(), Failure> {
        let mut may = |facts: &ContainerFacts| {
            if is_ours(facts) {
                May::Act
            } else {
                May::Not(format!(
                    "container `{}` was not created by plimsoll: it is left alone",
                    facts.name
                ))
            }
        };
        let never = CancellationToken::new();
        let patience = Patience::for_grace(grace);
        let done = self.tear_down(id, true, patience, &mut may, &never).await;
        match done.torn {
            Torn::Over { .. } => Ok(()),
            Torn::Left(why) | Torn::Failed(why) => Err(Failure::environment(why)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::ContainerState;

    #[test]
    fn a_grace_below_a_second_is_no_kill_at_once() {
        for (ms, s) in [(0, 0), (1, 1), (900, 1), (1000, 1), (1001, 2), (60_000, 60)] {
            let whole = whole_seconds(Duration::from_millis(ms));
            assert_eq!(whole, Duration::from_secs(s), "{ms} ms");
        }
    }

    #[test]
    fn what_ended_by_sigkill_is_reported_as_killed() {
        let ended = |exit_code| {
            let state = ContainerState {
                exit_code,
                ..ContainerState::default()
            };
            ContainerStatus::Here(Box::new(ContainerFacts {
                state,
                ..ContainerFacts::default()
            }))
        };
        assert_eq!(stopped_how(&ended(Some(137))), "killed after");
        for code in [Some(0), Some(143), None] {
            assert_eq!(stopped_how(&ended(code)), "stopped in");
        }
        assert_eq!(stopped_how(&ContainerStatus::Gone), "stopped in");
    }
}
