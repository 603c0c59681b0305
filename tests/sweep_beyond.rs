//! `plimsoll sweep` beyond this machine, from end to end, with stand-ins for ssh and for Slurm's
//! commands: what is asked for over there, and what becomes of the runs here.

use crate::common;
use common::e2e::{Ended, Live, plimsoll};
use plimsoll::matrix::{
    Cell, CellRow, OomMemory, PlanOptions, RowFigures, RowStatus, Shard, SweepDefinition, SweepPlan,
};
use plimsoll::sweep::{Cells, Journal, SweepSession};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Two groups of two cells.
const MATRIX: &str = "name: far\nmodels:\n  - {model_id: [m, n], container_name: c, input_lengths: 8, output_lengths: 8, batch_sizes: [1, 2]}\n";

/// Runs its last argument as the shell over there does, unless the line is cut.
const SSH: &str = r#"#!/bin/sh
for line; do :; done
[ -e THERE/cut ] && exit 255
cd THERE && HOME=THERE PATH=THERE/bin:/usr/bin:/bin exec sh -c "$line"
"#;

/// Keeps its words, and adds a row to the run that it is told to go on with. Refuses it, or loses
/// the line in the middle, where that is asked for.
const STAND_IN: &str = r#"#!/bin/sh
if [ "$1" = --version ]; then echo "plimsoll VERSION"; exit; fi
printf '%s\n' "$@" >>~/words
cat >/dev/null
for word; do
  case $word in
    --begin-or-resume=*) run=${word#--begin-or-resume=} ;;
    --dry-run) exit ;;
  esac
done
[ -e ~/refuse ] && exit 2
mkdir -p "$run"
echo row >>"$run/journal.jsonl"
if [ -e ~/lose ]; then mv ~/lose ~/cut; exit 255; fi
"#;

/// Takes a job, and has forgotten it at the first look.
const SBATCH: &str = "#!/bin/sh\necho 7\n";
const SQUEUE: &str = "#!/bin/sh\necho 'Invalid job id specified' >&2\nexit 1\n";

/// This machine, with a folder to work in, and the other.
struct Machines(tempfile::TempDir);

fn program(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn rows(run: &Path) -> usize {
    let text = std::fs::read_to_string(run.join("journal.jsonl")).unwrap_or_default();
    text.lines().count()
}

impl Machines {
    fn new() -> Machines {
        let machines = Machines(tempfile::tempdir().unwrap());
        let there = machines.there().display().to_string();
        let at = |name: &str| machines.0.path().join("bin").join(name);
        program(&at("ssh"), &SSH.replace("THERE", &there));
        program(&at("sbatch"), SBATCH);
        program(&at("squeue"), SQUEUE);
        let stand_in = STAND_IN.replace("VERSION", env!("CARGO_PKG_VERSION"));
        program(&machines.there().join("bin/plimsoll"), &stand_in);
        std::fs::create_dir(machines.here()).unwrap();
        std::fs::write(machines.here().join("sweep.yaml"), MATRIX).unwrap();
        machines
    }

    fn here(&self) -> PathBuf {
        self.0.path().join("here")
    }

    fn there(&self) -> PathBuf {
        self.0.path().join("there")
    }

    /// From the folder here.
    #[track_caller]
    fn sweep(&self, words: &[&str], code: i32) -> Ended {
        let mut command = plimsoll(&[&["sweep", "sweep.yaml"], words].concat());
        let path = std::env::var("PATH").unwrap();
        let bin = self.0.path().join("bin");
        command.current_dir(self.here());
        command.env("PATH", format!("{}:{path}", bin.display()));
        Live::start(command).end().expect(code)
    }

    /// The same over there.
    #[track_caller]
    fn far(&self, words: &[&str], code: i32) -> Ended {
        self.sweep(&[&["--docker-host=ssh://node"], words].concat(), code)
    }

    fn on_the_other(&self, name: &str) {
        std::fs::write(self.there().join(name), "").unwrap();
    }

    /// What plimsoll was asked for there, in order.
    fn words(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.there().join("words")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The folders of the runs that were named so there, in order.
    fn runs(&self) -> Vec<String> {
        let words = self.words().into_iter();
        words
            .filter_map(|w| Some(w.strip_prefix("--begin-or-resume=")?.to_owned()))
            .collect()
    }

    fn results(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.here().join("results/far"));
        let entries = entries.into_iter().flatten();
        entries.map(|e| e.unwrap().path()).collect()
    }
}

#[test]
fn a_part_is_a_part_over_there_too() {
    let machines = Machines::new();
    machines.far(&["--shard=2/3"], 0);
    let words = machines.words();
    assert!(words.contains(&"--shard=2/3".to_owned()), "{words:?}");
    machines.far(&["--shard=3/2"], 2);
    assert_eq!(machines.words(), words, "nothing is asked for in vain");
}

#[test]
fn a_run_is_not_written_over_from_afar() {
    let machines = Machines::new();
    let run = machines.here().join("run");
    std::fs::create_dir(&run).unwrap();
    std::fs::write(run.join("journal.jsonl"), "a\nb\nc\n").unwrap();
    let refused = machines.far(&["--output-dir=run"], 2);
    assert!(
        refused.error().contains("holds a run"),
        "{}",
        refused.stderr
    );
    let refused = machines.far(&["--resume=run"], 2);
    assert!(
        refused.error().contains("this machine"),
        "{}",
        refused.stderr
    );
    assert_eq!((rows(&run), machines.words()), (3, Vec::new()));

    // One that was fetched is a run like any other.
    machines.far(&["--output-dir=fetched"], 0);
    let refused = machines.far(&["--output-dir=fetched"], 2);
    assert!(
        refused.error().contains("holds a run"),
        "{}",
        refused.stderr
    );
    assert_eq!(rows(&machines.here().join("fetched")), 1);
}

#[test]
fn runs_of_one_name_have_folders_of_their_own_over_there() {
    let machines = Machines::new();
    machines.far(&["--output-dir=run"], 0);
    machines.far(&["--output-dir=other/run"], 0);
    let runs = machines.runs();
    assert_ne!(runs[0], runs[1]);
    assert_eq!(rows(&machines.here().join("other/run")), 1);
    machines.far(&["--resume=run"], 0);
    assert_eq!(machines.runs()[2], runs[0]);
    assert_eq!(rows(&machines.here().join("run")), 2);
}

#[test]
fn after_a_connection_broke_off_the_run_is_found_again() {
    let machines = Machines::new();
    machines.on_the_other("lose");
    let broken = machines.far(&["--shard=1/2"], 3);
    assert!(broken.error().contains("broke off"), "{}", broken.stderr);
    let [run] = &machines.results()[..] else {
        panic!("{:?}", machines.results());
    };
    assert_eq!(rows(run), 0, "nothing could be fetched");
    let hints = broken.hints().join("\n");
    let named = format!(
        "--resume=results/far/{}",
        run.file_name().unwrap().to_string_lossy()
    );
    for word in [&named, "--shard=1/2", "--docker-host=ssh://node"] {
        assert!(hints.contains(word), "{word}: {hints}");
    }

    std::fs::remove_file(machines.there().join("cut")).unwrap();
    machines.far(&["--shard=1/2", &named], 0);
    machines.far(&["--shard=1/2", "--resume"], 0);
    assert_eq!((rows(run), machines.results().len()), (3, 1));
    let runs = machines.runs();
    assert!(runs.iter().all(|r| *r == runs[0]), "{runs:?}");

    // The latest run of another part or of another machine is another run.
    let other = machines.far(&["--shard=2/2", "--resume"], 2);
    assert!(other.error().contains("part 2/2"), "{}", other.stderr);
    let other = machines.sweep(&["--docker-host=ssh://third", &named], 2);
    assert!(other.error().contains("ssh://node"), "{}", other.stderr);
    assert_eq!(machines.runs(), runs);
}

#[test]
fn what_is_refused_over_there_leaves_no_run_here() {
    let machines = Machines::new();
    machines.on_the_other("refuse");
    let refused = machines.far(&[], 2);
    assert!(!refused.stderr.contains("fetched"), "{}", refused.stderr);
    assert_eq!(machines.results(), Vec::<PathBuf>::new());
}

fn matrix() -> SweepDefinition {
    let no_preset = |_: &str| panic!("there is none");
    plimsoll::matrix::read_sweep("sweep.yaml", MATRIX, &|_| None, &no_preset).unwrap()
}

fn done(cell: &Cell) -> CellRow {
    CellRow {
        cell: cell.id.clone(),
        group: cell.group.clone(),
        status: RowStatus::Done,
        cause: None,
        phase: None,
        message: None,
        attempt: 1,
        ended: "2026-11-20T10:03:00Z".into(),
        took_s: 12.5,
        profile: None,
        figures: RowFigures::default(),
    }
}

/// A shard of a run in which this cell alone was asked for, and measured.
fn shard(folder: &Path, cell: &Cell) {
    std::fs::create_dir_all(folder).unwrap();
    let sweep = matrix();
    let options = PlanOptions {
        fresh: false,
        shard: Some(Shard { index: 1, of: 1 }),
        only: &[cell.id.to_string()],
        known_oom: &OomMemory::default(),
        retry_oom: false,
    };
    let plan = SweepPlan::for_sweep(&sweep, &options).unwrap();
    Cells::of_plan(&plan).write_file(folder).unwrap();
    let (mut journal, _) = Journal::open_folder(folder).unwrap();
    let session = SweepSession::new("far", "2026-11-20T10:00:00Z".into(), false, plan.shard);
    journal.write_session(&session).unwrap();
    journal.write_end(&done(cell)).unwrap();
}

#[test]
fn a_job_has_done_all_when_the_cells_that_were_asked_for_are_done() {
    let machines = Machines::new();
    let cell = &matrix().cells[0];
    shard(&machines.here().join("run/shard-1"), cell);
    let only = format!("--only={}", cell.id);
    let slurm = ["--submit=slurm", "--output-dir=run"];
    let ended = machines.sweep(&[&slurm[..], &[only.as_str()]].concat(), 0);
    assert!(
        ended.stderr.contains("1 shards of 1 cells"),
        "{}",
        ended.stderr
    );
    assert!(!ended.stderr.contains("not run"), "{}", ended.stderr);

    let ended = machines.sweep(&slurm, 5);
    assert!(
        ended.stderr.contains("3 cells were not run"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_job_goes_on_where_the_one_before_it_ended() {
    let machines = Machines::new();
    let slurm = ["--submit=slurm", "--resume", "--print"];
    let none = machines.sweep(&slurm, 2);
    assert!(none.error().contains("no earlier run"), "{}", none.stderr);

    let results = machines.here().join("results/far");
    shard(&results.join("20260101_000000/shard-1"), &matrix().cells[0]);
    // A run without shards is no job's.
    shard(&results.join("20260102_000000"), &matrix().cells[0]);
    let script = machines.sweep(&slurm, 0).stdout;
    let folder = results.join("20260101_000000").display().to_string();
    assert!(
        script.contains(&format!("--begin-or-resume={folder}/shard-")),
        "{script}"
    );
    // A part has the groups that it had.
    assert!(script.contains("--array=1-1\n"), "{script}");
    let other = machines.sweep(&[&slurm[..], &["--nodes=2"]].concat(), 2);
    assert!(other.error().contains("in 1 parts"), "{}", other.stderr);
    let new = machines.sweep(&["--submit=slurm", "--print"], 0).stdout;
    assert!(new.contains("--array=1-2\n"), "{new}");
}
