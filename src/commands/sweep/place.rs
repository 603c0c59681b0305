//! Where a run of a sweep or a tuning goes, or which earlier one goes on: by flags that both have.

use crate::cli::MachineArgs;
use crate::console::Console;
use crate::error::Failure;
use crate::matrix::Shard;
use crate::sweep::{Folder, folder};
use std::path::{Path, PathBuf};

/// What the flags say of a run's folder, and of the machine that it is on.
pub struct RunPlace<'a> {
    /// `sweep` or `tune`.
    pub verb: &'static str,
    /// Of its folder in `runs`.
    pub name: &'a str,
    /// The folder of all runs.
    pub runs: PathBuf,
    /// `--resume`; empty: the latest.
    pub resume: Option<&'a PathBuf>,
    /// `--output-dir`.
    pub output_dir: Option<&'a PathBuf>,
    /// Whether `--retry-failed` asks for an earlier run.
    pub retry_failed: bool,
    /// The part.
    pub shard: Option<Shard>,
    /// Beyond this machine.
    pub machines: &'a MachineArgs,
}

impl RunPlace<'_> {
    /// The part that is asked for.
    pub fn parse_shard(machines: &MachineArgs) -> Result<Option<Shard>, Failure> {
        let shard = machines.shard.as_deref().map(str::parse::<Shard>);
        (shard.transpose()).map_err(|e| Failure::usage(format!("--shard: {e}")))
    }

    /// The folder that the user names for the run.
    pub fn named_folder(&self) -> Option<&PathBuf> {
        let resumed = self.resume.filter(|p| !p.as_os_str().is_empty());
        (resumed.or(self.machines.begin_or_resume.as_ref())).or(self.output_dir)
    }

    /// Whether an earlier run is to go on.
    pub fn goes_on(&self) -> bool {
        self.resume.is_some() || self.machines.begin_or_resume.is_some() || self.retry_failed
    }

    /// The run that is to go on; `None` where a new one is to begin.
    pub fn earlier_run(&self) -> Result<Option<PathBuf>, Failure> {
        match self.named_folder() {
            _ if !self.goes_on() => Ok(None),
            Some(path) if path.join(folder::REMOTE_FILE).exists() => Err(elsewhere_begun(path)),
            Some(path) if folder::has_journal(path) => Ok(Some(path.clone())),
            // A shard that is started again by its scheduler begins or goes on, whichever it is.
            Some(_) if self.machines.begin_or_resume.is_some() => Ok(None),
            Some(path) => Err(no_run_in(path)),
            None => (self.latest_run(|path| folder::begun_here(path, self.shard))).map(Some),
        }
    }

    /// The folder of this run, and whether it goes on with an earlier one.
    pub fn open_folder(&self, console: &Console) -> Result<(Folder, bool), Failure> {
        let now = jiff::Zoned::now();
        if let Some(earlier) = self.earlier_run()? {
            return Ok((Folder::open_earlier(&earlier, &now)?, true));
        }
        let folder = match self.named_folder() {
            Some(path) => {
                if self.goes_on() {
                    let shown = path.display();
                    console.print_note(&format!("there is no run in {shown} yet: it begins"));
                }
                Folder::create_at(path, &now)?
            }
            None => Folder::create_new(&self.runs, self.name, &now)?,
        };
        Ok((folder, false))
    }

    /// The latest run that is one of these.
    pub fn latest_run(&self, one_of_these: impl Fn(&Path) -> bool) -> Result<PathBuf, Failure> {
        let latest = folder::latest_run(&self.runs, self.name, one_of_these);
        latest.ok_or_else(|| {
            let (name, runs) = (self.name, self.runs.display());
            let part = (self.shard).map_or(String::new(), |shard| format!("part {shard} of "));
            Failure::usage(format!(
                "there is no earlier run of {part}{} `{name}` in `{runs}`",
                self.verb
            ))
            .hint("leave out --resume, or name its folder: --resume=DIR")
        })
    }
}

/// Rows that were added here would be lost with the next that are fetched.
fn elsewhere_begun(folder: &Path) -> Failure {
    let shown = folder.display();
    Failure::usage(format!("the run in `{shown}` was begun on another machine"))
        .hint("resume it there with the same --docker-host ssh://HOST")
        .hint(format!(
            "to move it to this machine for good, remove `{shown}/{}`, which names the other",
            folder::REMOTE_FILE
        ))
}

/// A folder that was named to be resumed, and holds no run: it may be a typing error.
pub fn no_run_in(folder: &Path) -> Failure {
    Failure::usage(format!(
        "there is no run to resume in `{}`",
        folder.display()
    ))
    .hint(folder::JOURNAL_FILE_HINT)
    .hint("to begin a new run, leave out --resume and --retry-failed")
}
