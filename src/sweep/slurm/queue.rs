//! Watching an array job until Slurm's queue no longer has it.

use super::submit::{Slurm, SubmittedJob, command_missing, complaint_of};
use crate::error::Failure;
use crate::progress::{Progress, Sink};
use std::collections::BTreeMap;
use tokio_util::sync::CancellationToken;

/// States after which a task does not run again, as Slurm writes them.
const OVER: &str = "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED \
    REVOKED TIMEOUT";

/// Reasons that come and go while a task waits for its turn; the user cannot act on them.
const PASSING: [&str; 6] = ["None", "Priority", "Resources", "BeginTime", "Cleaning", ""];

/// How waiting ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitOutcome {
    /// No task is left in the queue.
    Over(Vec<ShardEnd>),
    /// The user left; the job goes on.
    Left,
}

/// How one shard left the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardEnd {
    /// Which, from 1.
    pub shard: u32,
    /// Slurm's last word, in small letters: `completed`, `failed` (plimsoll ended with another
    /// code than 0), `node_fail`, ... `None` when Slurm forgot the task before it was asked.
    pub state: Option<String>,
}

/// Where a task is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TaskPlace {
    state: String,
    /// Why it waits, where that is worth telling.
    reason: Option<String>,
}

impl TaskPlace {
    fn is_over(&self) -> bool {
        OVER.split(' ').any(|state| state == self.state)
    }

    fn describe_place(&self) -> String {
        let state = self.state.to_lowercase();
        match &self.reason {
            Some(reason) => format!("{state} ({reason})"),
            None => state,
        }
    }
}

/// What Slurm answered to one question.
#[derive(Debug, Clone, PartialEq, Eq)]
enum QueueAnswer {
    /// The tasks that it still knows, by shard.
    Tasks(BTreeMap<u32, TaskPlace>),
    /// It knows no such job any more.
    Forgotten,
    /// It gave no answer, and why.
    Silent(String),
}

impl Slurm {
    /// Waits until no task of the job is in the queue. Each change is reported; `look` is called at
    /// each look at the queue. When `stop` fires the job is left to go on.
    pub async fn wait_for_job(
        &self,
        job: &SubmittedJob,
        look: &mut (dyn FnMut() + Send),
        progress: &Sink,
        stop: &CancellationToken,
    ) -> Result<WaitOutcome, Failure> {
        let mut known = BTreeMap::new();
        let mut silent = false;
        loop {
            let answer = tokio::select! {
                answer = self.ask_queue(job) => answer?,
                () = stop.cancelled() => return Ok(WaitOutcome::Left),
            };
            look();
            match answer {
                QueueAnswer::Tasks(tasks) => {
                    silent = false;
                    for line in changes(&known, &tasks) {
                        progress(Progress::Note(line));
                    }
                    for line in describe_held(&job.id, &known, &tasks) {
                        progress(Progress::Warning(line));
                    }
                    let over = tasks.values().all(TaskPlace::is_over);
                    known.extend(tasks);
                    if over {
                        return Ok(WaitOutcome::Over(ends(job.shards, &known)));
                    }
                }
                QueueAnswer::Forgotten => return Ok(WaitOutcome::Over(ends(job.shards, &known))),
                QueueAnswer::Silent(why) => {
                    // A controller that is restarted comes back; the job runs on meanwhile.
                    if !silent {
                        progress(Progress::Warning(format!(
                            "Slurm does not answer: {why}. It is asked again until it does; the jobs run on"
                        )));
                    }
                    silent = true;
                }
            }
            tokio::select! {
                () = tokio::time::sleep(self.pause) => {}
                () = stop.cancelled() => return Ok(WaitOutcome::Left),
            }
        }
    }

    async fn ask_queue(&self, job: &SubmittedJob) -> Result<QueueAnswer, Failure> {
        let mut command = self.command_for("squeue");
        command.args(["--noheader", "--array", "--states=all", "--format=%i|%T|%r"]);
        command.arg(format!("--jobs={}", job.id));
        if let Some(cluster) = &job.cluster {
            command.arg(format!("--clusters={cluster}"));
        }
        let output = command
            .output()
            .await
            .map_err(|e| command_missing("squeue", e))?;
        let complaint = complaint_of(&output);
        Ok(match output.status.success() {
            true => QueueAnswer::Tasks(tasks(&job.id, &String::from_utf8_lossy(&output.stdout))),
            false if complaint.contains("Invalid job id") => QueueAnswer::Forgotten,
            false => QueueAnswer::Silent(complaint),
        })
    }
}

/// The tasks that squeue lists; whatever else it prints is left out.
fn tasks(id: &str, reply: &str) -> BTreeMap<u32, TaskPlace> {
    let task = |line: &str| {
        let mut fields = line.trim().splitn(3, '|');
        let (job, shard) = fields.next()?.split_once('_')?;
        let state = fields.next()?.to_owned();
        let reason = fields.next().unwrap_or_default();
        // The state of an ended task is its reason; the reason field is often an old one.
        let telling = state == "PENDING" && !PASSING.contains(&reason);
        let reason = telling.then(|| reason.to_owned());
        (job == id).then_some(())?;
        Some((shard.parse().ok()?, TaskPlace { state, reason }))
    };
    reply.lines().filter_map(task).collect()
}

/// What changed, a line for each place that shards are in now.
fn changes(before: &BTreeMap<u32, TaskPlace>, now: &BTreeMap<u32, TaskPlace>) -> Vec<String> {
    let mut moved: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for (shard, place) in now {
        let old = before.get(shard);
        if old != Some(place) {
            let back = old.is_some_and(|o| o.state != "PENDING") && place.state == "PENDING";
            let words = if back {
                format!("back in the queue, {}", place.describe_place())
            } else {
                place.describe_place()
            };
            moved.entry(words).or_default().push(*shard);
        }
    }
    let line = |(words, shards): (String, Vec<u32>)| match shards.as_slice() {
        [one] => format!("shard {one}: {words}"),
        many => format!("shards {}: {words}", ranges(many)),
    };
    moved.into_iter().map(line).collect()
}

/// Tasks that Slurm starts no more by itself, since the look before: a launch that failed, or an
/// administrator. Who waits for them would wait for ever.
fn describe_held(
    id: &str,
    before: &BTreeMap<u32, TaskPlace>,
    now: &BTreeMap<u32, TaskPlace>,
) -> Vec<String> {
    let is_held = |place: &TaskPlace| {
        let reason = place.reason.as_deref().unwrap_or_default();
        reason.to_lowercase().contains("held")
    };
    now.iter()
        .filter(|(shard, place)| is_held(place) && !before.get(shard).is_some_and(is_held))
        .map(|(shard, _)| {
            format!("shard {shard} is held by Slurm: `scontrol release {id}_{shard}` lets it go on")
        })
        .collect()
}

/// `1-3, 7`: numbers in order as people write them.
fn ranges(numbers: &[u32]) -> String {
    let runs = numbers.chunk_by(|a, b| a + 1 == *b);
    let run = |run: &[u32]| match run {
        [first, .., last] => format!("{first}-{last}"),
        other => other.iter().map(u32::to_string).collect(),
    };
    runs.map(run).collect::<Vec<_>>().join(", ")
}

fn ends(shards: u32, known: &BTreeMap<u32, TaskPlace>) -> Vec<ShardEnd> {
    let end = |shard| ShardEnd {
        shard,
        state: known
            .get(&shard)
            .filter(|p| p.is_over())
            .map(|p| p.state.to_lowercase()),
    };
    (1..=shards).map(end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(lines: &[&str]) -> BTreeMap<u32, TaskPlace> {
        tasks("12", &lines.join("\n"))
    }

    #[test]
    fn what_squeue_lists_is_read() {
        let tasks = listed(&[
            "CLUSTER: east",
            "12_1|RUNNING|None",
            "12_2|PENDING|(JobHeldAdmin|x)",
            "12_3|NODE_FAIL|NodeDown",
            "13_4|RUNNING|None",
            "12|RUNNING|None",
        ]);
        assert_eq!(tasks.keys().copied().collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(tasks[&2].describe_place(), "pending ((JobHeldAdmin|x))");
        assert_eq!(tasks[&3].describe_place(), "node_fail");
        assert!(tasks[&3].is_over() && !tasks[&1].is_over());
    }

    #[test]
    fn a_change_is_reported_once_and_shards_together() {
        let waiting = listed(&[
            "12_1|PENDING|Priority",
            "12_2|PENDING|None",
            "12_4|PENDING|None",
        ]);
        assert_eq!(
            changes(&BTreeMap::new(), &waiting),
            ["shards 1-2, 4: pending"]
        );
        // Another passing reason is no change.
        let still = listed(&[
            "12_1|PENDING|Resources",
            "12_2|PENDING|None",
            "12_4|PENDING|None",
        ]);
        assert!(changes(&waiting, &still).is_empty());
        let running = listed(&["12_1|RUNNING|None", "12_2|PENDING|PartitionDown"]);
        assert_eq!(
            changes(&waiting, &running),
            ["shard 2: pending (PartitionDown)", "shard 1: running"]
        );
        let requeued = listed(&["12_1|PENDING|BeginTime"]);
        assert_eq!(
            changes(&running, &requeued),
            ["shard 1: back in the queue, pending"]
        );
    }

    #[test]
    fn who_must_let_a_held_task_go_is_named_once() {
        let waiting = listed(&["12_1|PENDING|Resources", "12_2|RUNNING|None"]);
        let now = listed(&[
            "12_1|PENDING|JobHeldAdmin",
            "12_2|PENDING|launch failed requeued held",
        ]);
        assert!(describe_held("12", &BTreeMap::new(), &waiting).is_empty());
        let lines = describe_held("12", &waiting, &now);
        assert_eq!(lines.len(), 2);
        assert!(lines[1].contains("`scontrol release 12_2`"), "{lines:?}");
        assert!(describe_held("12", &now, &now).is_empty());
    }

    #[test]
    fn a_task_that_slurm_forgot_while_it_ran_has_no_last_word() {
        let known = listed(&["12_1|COMPLETED|None", "12_2|RUNNING|None"]);
        let states: Vec<_> = ends(3, &known).into_iter().map(|e| e.state).collect();
        assert_eq!(states, [Some("completed".into()), None, None]);
    }
}
