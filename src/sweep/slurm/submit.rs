//! Handing an array job to Slurm, and what is to be known of it afterwards.

use super::script::{SlurmJob, quote_word, render_script};
use crate::error::Failure;
use crate::progress::{Progress, Sink};
use crate::store::{make_folders, write_atomically};
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;
use tokio::process::Command;

/// Variables that would change what the script asks for.
const IN_THE_WAY: [&str; 4] = [
    "SBATCH_ARRAY_INX",
    "SBATCH_OPEN_MODE",
    "SBATCH_OUTPUT",
    "SBATCH_WAIT",
];

/// Slurm, by its commands.
#[derive(Debug, Clone)]
pub struct Slurm {
    /// Set for its commands, besides what this process has.
    pub environment: Vec<(OsString, OsString)>,
    /// From one look at the queue to the next.
    pub pause: Duration,
}

impl Default for Slurm {
    fn default() -> Slurm {
        Slurm {
            environment: Vec::new(),
            // One user's look every few seconds is nothing to a controller; every second would be.
            pause: Duration::from_secs(5),
        }
    }
}

/// A job that Slurm has taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubmittedJob {
    /// Its number.
    pub id: String,
    /// The cluster, where there are several.
    pub cluster: Option<String>,
    /// Shards, numbered from 1.
    pub shards: u32,
    /// Folder of the run.
    pub dir: PathBuf,
}

impl SubmittedJob {
    /// Folder of a shard.
    pub fn shard_dir(&self, shard: u32) -> PathBuf {
        self.dir.join(format!("shard-{shard}"))
    }

    /// All that was printed on a shard's node.
    pub fn shard_log(&self, shard: u32) -> PathBuf {
        self.dir.join(format!("shard-{shard}.log"))
    }

    /// For those who leave before its end: how to look at the job, end it, and join its results.
    pub fn describe_leaving(&self) -> String {
        let SubmittedJob { id, dir, .. } = self;
        let clusters = match &self.cluster {
            Some(name) => format!(" --clusters={name}"),
            None => String::new(),
        };
        let dir = quote_word(&dir.to_string_lossy()).unwrap_or_default();
        format!(
            "job {id} goes on without this plimsoll; to look: squeue{clusters} --jobs={id}; to end it: scancel{clusters} {id}; \
             when it is over: plimsoll sweep merge {dir}/shard-*/"
        )
    }

    fn parse_answer(reply: &str, job: &SlurmJob) -> Option<SubmittedJob> {
        // A line before it may be the site's own.
        let line = reply.lines().map(str::trim).rfind(|l| !l.is_empty())?;
        let (id, cluster) = match line.split_once(';') {
            Some((id, cluster)) => (id, Some(cluster.to_owned())),
            None => (line, None),
        };
        let number = !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit());
        number.then(|| SubmittedJob {
            id: id.to_owned(),
            cluster,
            shards: job.shards,
            dir: job.dir.clone(),
        })
    }
}

impl Slurm {
    /// Writes the script, and the sweep's file beside it, and hands the script to sbatch. Further
    /// output of sbatch is reported.
    pub async fn submit_job(
        &self,
        job: &SlurmJob,
        file: Option<&[u8]>,
        progress: &Sink,
    ) -> Result<SubmittedJob, Failure> {
        let text = render_script(job)?;
        let path = job.script_file();
        make_folders(&job.dir)?;
        if let Some(bytes) = file {
            write_atomically(&job.sweep_file(), bytes)?;
        }
        write_atomically(&path, text.as_bytes())?;
        let mut command = self.command_for("sbatch");
        command.arg("--parsable").arg(&path);
        for name in IN_THE_WAY {
            command.env_remove(name);
        }
        let output = command
            .output()
            .await
            .map_err(|e| command_missing("sbatch", e))?;
        let complaint = complaint_of(&output);
        if !output.status.success() {
            return Err(Failure::environment(format!(
                "Slurm did not accept the job: {}",
                match complaint.as_str() {
                    "" => "sbatch printed no reason",
                    reply => reply,
                }
            ))
            .hint(format!("the script is in `{}`", path.display())));
        }
        if !complaint.is_empty() {
            progress(Progress::Warning(format!("sbatch: {complaint}")));
        }
        let reply = String::from_utf8_lossy(&output.stdout);
        SubmittedJob::parse_answer(&reply, job).ok_or_else(|| {
            Failure::environment(format!(
                "sbatch accepted the script but printed no job number: `{}`",
                reply.trim()
            ))
            .hint("squeue --me shows the job, if there is one")
        })
    }

    /// One of Slurm's commands, without a shell between.
    pub(super) fn command_for(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .envs(self.environment.iter().map(|(k, v)| (k, v)))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }
}

/// What a command complained about, in one line.
pub(super) fn complaint_of(output: &Output) -> String {
    let reply = String::from_utf8_lossy(&output.stderr);
    let lines = reply.lines().map(str::trim).filter(|l| !l.is_empty());
    let lines = lines.map(|l| {
        ["sbatch: ", "squeue: ", "error: "]
            .iter()
            .fold(l, |l, p| l.strip_prefix(p).unwrap_or(l))
    });
    lines.collect::<Vec<_>>().join("; ")
}

/// A command of Slurm's that could not be started.
pub(super) fn command_missing(program: &str, e: io::Error) -> Failure {
    let failure = match e.kind() {
        io::ErrorKind::NotFound => Failure::environment(format!(
            "there is no `{program}` here: this machine does not submit to Slurm"
        )),
        _ => Failure::environment(format!("cannot run `{program}`")).caused_by(e),
    };
    failure
        .hint("--print shows the script: submit it where Slurm's commands are, with `sbatch FILE`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(reply: &str) -> Option<(String, Option<String>)> {
        let job = SlurmJob::default();
        SubmittedJob::parse_answer(reply, &job).map(|s| (s.id, s.cluster))
    }

    #[test]
    fn a_jobs_number_is_read_with_and_without_a_cluster() {
        assert_eq!(parsed("123\n"), Some(("123".into(), None)));
        assert_eq!(
            parsed("123;east\n"),
            Some(("123".into(), Some("east".into())))
        );
        assert_eq!(parsed("Welcome to east\n77\n"), Some(("77".into(), None)));
        assert_eq!(parsed("Submitted batch job 12"), None);
        assert_eq!(parsed(""), None);
    }

    #[test]
    fn the_farewell_can_be_pasted_into_a_shell() {
        let submitted = SubmittedJob {
            id: "12".into(),
            cluster: Some("east".into()),
            shards: 4,
            dir: "/shared/my runs/1".into(),
        };
        insta::assert_snapshot!(submitted.describe_leaving());
    }
}
