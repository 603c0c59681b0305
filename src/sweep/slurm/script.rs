//! The script of an array job: what is asked of Slurm, and the one command of each task.

use crate::error::Failure;
use std::path::{Path, PathBuf};

/// The variable in which Slurm passes a task its number.
const TASK: &str = "SLURM_ARRAY_TASK_ID";

/// What is submitted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SlurmJob {
    /// plimsoll, as the nodes find it.
    pub program: PathBuf,
    /// Whether it tunes; else it sweeps.
    pub tunes: bool,
    /// Name of the sweep; the job is called so.
    pub name: String,
    /// Tasks of the array, each with one shard.
    pub shards: u32,
    /// Folder of the run, absolute, and the same on all nodes: shard N writes to `shard-N` in it.
    pub dir: PathBuf,
    /// Whether there is a file: it lies as `sweep.yaml` in `dir`. Otherwise the sweep is made of
    /// flags.
    pub has_file: bool,
    /// The user's own flags, for each shard.
    pub words: Vec<String>,
    /// Partition.
    pub partition: Option<String>,
    /// Generic resources of each task.
    pub gres: Option<String>,
    /// Time limit of each task, as Slurm writes it.
    pub time_limit: Option<String>,
    /// Account to charge.
    pub account: Option<String>,
    /// Further arguments of sbatch; they come last, so they win.
    pub sbatch_args: Vec<String>,
}

impl SlurmJob {
    /// The copy of the sweep's file, so that a later edit of the original changes no shard.
    pub fn sweep_file(&self) -> PathBuf {
        self.dir.join("sweep.yaml")
    }

    /// The script, kept beside the results.
    pub fn script_file(&self) -> PathBuf {
        self.dir.join("submit.sh")
    }
}

/// The script. The same job gives the same bytes. Values of environment variables are never in it:
/// Slurm hands the environment of the submission to each task.
pub fn render_script(job: &SlurmJob) -> Result<String, Failure> {
    let dir = text_of(&job.dir)?;
    // Slurm drops every backslash of such a path, and its `%a` stays as it is.
    if dir.contains('\\') {
        return Err(Failure::usage(format!(
            "Slurm cannot write its logs to `{dir}`: there is a backslash in it"
        ))
        .hint("choose another folder with --output-dir"));
    }
    let mut asked: Vec<(&str, Option<String>)> = vec![
        ("job-name", Some(job_name(&job.name))),
        ("array", Some(format!("1-{}", job.shards))),
        // A shard of a lost node is begun again elsewhere: it goes on with its journal, in the same
        // log.
        ("requeue", None),
        ("open-mode", Some("append".into())),
        (
            "output",
            Some(format!("{}/shard-%a.log", dir.replace('%', "%%"))),
        ),
        ("nodes", Some("1".into())),
        ("ntasks", Some("1".into())),
        // Slurm does not confine what Docker starts: a second task on the node would use the same
        // GPUs.
        ("exclusive", None),
    ];
    for (option, value) in [
        ("partition", &job.partition),
        ("gres", &job.gres),
        ("time", &job.time_limit),
        ("account", &job.account),
    ] {
        asked.extend(value.clone().map(|v| (option, Some(v))));
    }
    let mut script = String::from("#!/bin/sh\n");
    for (option, value) in asked {
        script.push_str(&match value {
            None => format!("#SBATCH --{option}\n"),
            Some(value) => format!("#SBATCH --{option}={}\n", for_slurm(&value)?),
        });
    }
    if !job.sbatch_args.is_empty() {
        // One line: a flag and its value may be two arguments.
        script.push_str("#SBATCH");
        for argument in &job.sbatch_args {
            script.push(' ');
            script.push_str(&for_slurm(argument)?);
        }
        script.push('\n');
    }
    script.push('\n');
    script.push_str(&task_command(job, dir)?);
    Ok(script)
}

/// The one command of each task.
fn task_command(job: &SlurmJob, dir: &str) -> Result<String, Failure> {
    let mut words = vec![
        quote_word(text_of(&job.program)?)?,
        if job.tunes { "tune" } else { "sweep" }.to_owned(),
    ];
    if job.has_file {
        words.push(quote_word(text_of(&job.sweep_file())?)?);
    }
    words.push(format!(
        "--begin-or-resume={}/shard-\"${TASK}\"",
        quote_word(dir.trim_end_matches('/'))?
    ));
    words.push(format!("--shard=\"${TASK}\"/{}", job.shards));
    for word in &job.words {
        words.push(quote_word(word)?);
    }
    Ok(format!(
        ": \"${{{TASK}:?sbatch starts this script}}\"\nexec {}\n",
        words.join(" \\\n  ")
    ))
}

/// One word for the shell.
pub(super) fn quote_word(word: &str) -> Result<String, Failure> {
    (shlex::try_quote(word).map(|q| q.into_owned())).map_err(|_| unwritable(word))
}

/// One word for Slurm's own reader of `#SBATCH` lines: it knows quotes and backslashes, ends at a
/// `#`, and has no way to write a line break.
fn for_slurm(word: &str) -> Result<String, Failure> {
    if word.contains(['\n', '\r', '\0']) {
        return Err(unwritable(word));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,:%@+[]()*".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        Ok(word.to_owned())
    } else {
        Ok(format!(
            "\"{}\"",
            word.replace('\\', "\\\\").replace('"', "\\\"")
        ))
    }
}

fn unwritable(word: &str) -> Failure {
    Failure::usage(format!(
        "`{}` cannot be written into the script for Slurm",
        word.escape_debug()
    ))
    .hint("it must not contain a line break or a NUL")
}

fn text_of(path: &Path) -> Result<&str, Failure> {
    path.to_str().ok_or_else(|| {
        Failure::usage(format!(
            "the path `{}` is not UTF-8 and cannot be written into the script for Slurm",
            path.display()
        ))
        .hint("choose a folder with a plain name")
    })
}

/// A name that every tool around Slurm can print.
fn job_name(sweep: &str) -> String {
    let plain = |c: char| {
        if c.is_alphanumeric() || "-_.".contains(c) {
            c
        } else {
            '_'
        }
    };
    format!("plimsoll-{}", sweep.chars().map(plain).collect::<String>())
}

#[cfg(test)]
#[path = "script_tests.rs"]
mod tests;
