//! A sweep as an array job, on a real Slurm of four nodes: nothing is lost with a node, nothing of
//! what a user writes is run by a shell, and who leaves is told the way back.

use crate::common::cluster;
use crate::{common, tune};
use cluster::Cluster;
use common::docker;
use common::e2e::{Live, plimsoll, wait_for};
use plimsoll::error::ExitCode;
use plimsoll::progress::{Progress, Sink};
use plimsoll::sweep::slurm::{Slurm, SlurmJob, SubmittedJob, WaitOutcome};
use std::path::Path;
use std::sync::{Arc, Mutex};
use tokio_util::sync::CancellationToken;

/// News, kept.
fn news() -> (Sink, Arc<Mutex<Vec<String>>>) {
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let into = Arc::clone(&told);
    let sink: Sink = Arc::new(move |news| {
        if let Progress::Note(text) | Progress::Warning(text) = news {
            into.lock().unwrap().push(text);
        }
    });
    (sink, told)
}

fn states(waited: WaitOutcome) -> Vec<Option<String>> {
    match waited {
        WaitOutcome::Over(ends) => ends.into_iter().map(|e| e.state).collect(),
        WaitOutcome::Left => panic!("nobody left"),
    }
}

fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Goes on with the journal in its `--begin-or-resume=`, six rows in all; the second shard waits after its
/// third row for a file, the first time that it runs.
const JOURNAL: &str = r#"
for word; do
  case $word in
    --begin-or-resume=*) dir=${word#--begin-or-resume=} ;;
    --shard=*) shard=${word#--shard=} ;;
  esac
done
mkdir -p "$dir"
echo "$SLURMD_NODENAME" >>"$dir/nodes"
printf '%s\n' "$HF_TOKEN" >"$dir/token"
printf '%s\n' "$@" >"$dir/words"
echo "begins $shard"
row=$(cat "$dir/journal" 2>/dev/null | wc -l)
while [ "$row" -lt 6 ]; do
  row=$((row + 1))
  echo "$shard row $row" >>"$dir/journal"
  while [ "$shard $row" = "2/4 3" ] && [ ! -e "$dir/../go-on" ]; do sleep 0.1; done
done
echo "ends $shard"
"#;

#[tokio::test(flavor = "multi_thread")]
async fn with_a_node_nothing_is_lost() {
    needs!(Slurm);
    let cluster = Cluster::start();
    let dir = cluster.run_dir("run");
    let slurm = cluster.slurm(&[("HF_TOKEN", "hf_not_in_the_script")]);
    let job = SlurmJob {
        program: cluster.stand_in(JOURNAL),
        name: "lost node".into(),
        shards: 4,
        dir: dir.clone(),
        has_file: true,
        words: vec!["--retries=2".into()],
        ..SlurmJob::default()
    };
    let (sink, told) = news();
    let submitted = slurm
        .submit_job(&job, Some(b"models: []\n"), &sink)
        .await
        .unwrap();
    assert_eq!(
        std::fs::read(dir.join("sweep.yaml")).unwrap(),
        b"models: []\n"
    );

    let waiting = tokio::spawn({
        let (slurm, submitted, sink) = (slurm.clone(), submitted.clone(), sink.clone());
        async move {
            let mut looks = 0;
            let stop = CancellationToken::new();
            let waited = slurm
                .wait_for_job(&submitted, &mut || looks += 1, &sink, &stop)
                .await;
            (waited.unwrap(), looks)
        }
    });
    let second = submitted.shard_dir(2);
    let node = wait_for("three rows of the second shard", || {
        (lines(&second.join("journal")).len() == 3).then(|| lines(&second.join("nodes"))[0].clone())
    });
    // The others have to be seen running on their own nodes, too.
    wait_for("four shards at once", || {
        let nodes: std::collections::BTreeSet<String> = (1..=4)
            .filter_map(|s| {
                lines(&submitted.shard_dir(s).join("nodes"))
                    .first()
                    .cloned()
            })
            .collect();
        (nodes.len() == 4).then_some(())
    });
    cluster.lose(&node);
    std::fs::write(dir.join("go-on"), "").unwrap();
    let (waited, looks) = cluster.within(waiting).await.unwrap();

    assert_eq!(states(waited), vec![Some("completed".to_owned()); 4]);
    assert!(looks > 1);
    for shard in 1..=4 {
        let folder = submitted.shard_dir(shard);
        let rows: Vec<String> = (1..=6).map(|r| format!("{shard}/4 row {r}")).collect();
        assert_eq!(lines(&folder.join("journal")), rows, "each row once");
        assert_eq!(lines(&folder.join("token")), ["hf_not_in_the_script"]);
        let words = [
            "sweep".to_owned(),
            dir.join("sweep.yaml").display().to_string(),
            format!("--begin-or-resume={}", folder.display()),
            format!("--shard={shard}/4"),
            "--retries=2".to_owned(),
        ];
        assert_eq!(lines(&folder.join("words")), words);
    }
    let nodes = lines(&second.join("nodes"));
    assert_eq!(nodes.len(), 2, "begun twice");
    assert_ne!(nodes[0], nodes[1], "on another node");
    // The log of the first time is kept.
    let log = lines(&submitted.shard_log(2));
    assert_eq!(
        log.iter().filter(|l| *l == "begins 2/4").count(),
        2,
        "{log:?}"
    );
    assert_eq!(log.last().map(String::as_str), Some("ends 2/4"));
    let told = told.lock().unwrap().clone();
    assert!(
        told.iter()
            .any(|l| l.starts_with("shard 2: back in the queue")),
        "{told:?}"
    );
    let script = std::fs::read_to_string(job.script_file()).unwrap();
    assert!(!script.contains("hf_not_in_the_script"));
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_names_arrive_as_they_are() {
    needs!(Slurm);
    let cluster = Cluster::start();
    let dir = cluster.run_dir("a b's \"c\" $(touch x) `touch y` 100% #1");
    let hostile = "it's \"$(touch x)\" `touch y` #1 ; \\ 100%a";
    let job = SlurmJob {
        program: cluster.stand_in(JOURNAL),
        name: hostile.into(),
        shards: 1,
        dir: dir.clone(),
        has_file: true,
        words: vec![format!("--name={hostile}\nand on"), String::new()],
        partition: Some("main".into()),
        time_limit: Some("10:00".into()),
        sbatch_args: vec!["--comment".into(), hostile.into(), "--nice=5".into()],
        ..SlurmJob::default()
    };
    let slurm = cluster.slurm(&[("SBATCH_ARRAY_INX", "1-3")]);
    let (sink, _) = news();
    let stop = CancellationToken::new();
    let submitted = slurm.submit_job(&job, Some(b"x"), &sink).await.unwrap();
    let waited = cluster
        .within(slurm.wait_for_job(&submitted, &mut || (), &sink, &stop))
        .await
        .unwrap();
    assert_eq!(states(waited), [Some("completed".to_owned())]);

    // A variable of the shell changes no array.
    let shown = cluster.ask("scontrol", &["show", "job", &submitted.id]);
    assert!(
        shown.contains("ArrayTaskId=1") && !shown.contains("ArrayTaskId=2"),
        "{shown}"
    );
    let words = std::fs::read_to_string(submitted.shard_dir(1).join("words")).unwrap();
    assert!(
        words.ends_with(&format!("--name={hostile}\nand on\n\n")),
        "{words}"
    );
    assert_eq!(lines(&submitted.shard_log(1)), ["begins 1/1", "ends 1/1"]);
    assert!(shown.contains(&format!("Comment={hostile}")), "{shown}");
    assert!(shown.contains("TimeLimit=00:10:00"), "{shown}");
    assert!(!dir.join("x").exists() && !Path::new("x").exists() && !Path::new("y").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_slurm_refuses_is_told_in_its_words() {
    needs!(Slurm);
    let cluster = Cluster::start();
    let job = SlurmJob {
        program: "/bin/true".into(),
        shards: 2,
        dir: cluster.run_dir("run"),
        partition: Some("nowhere".into()),
        ..SlurmJob::default()
    };
    let (sink, _) = news();
    let failure = cluster
        .slurm(&[])
        .submit_job(&job, None, &sink)
        .await
        .unwrap_err();
    assert_eq!(failure.code, ExitCode::Environment);
    assert!(failure.message.contains("invalid partition"), "{failure}");
    assert!(
        failure.hints.iter().any(|h| h.contains("submit.sh")),
        "{failure:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn who_leaves_leaves_the_job_running() {
    needs!(Slurm);
    let cluster = Cluster::start();
    let job = SlurmJob {
        program: cluster.stand_in("exec sleep 600\n"),
        shards: 2,
        dir: cluster.run_dir("run"),
        ..SlurmJob::default()
    };
    let slurm = cluster.slurm(&[]);
    let (sink, told) = news();
    let submitted = slurm.submit_job(&job, None, &sink).await.unwrap();
    let stop = CancellationToken::new();
    let mut look = {
        let stop = stop.clone();
        move || {
            // Both may begin between two looks, or one after the other.
            let told = told.lock().unwrap();
            let says = |line: &str| told.iter().any(|l| l == line);
            let both = says("shard 1: running") && says("shard 2: running");
            if both || says("shards 1-2: running") {
                stop.cancel();
            }
        }
    };
    let waiting = slurm.wait_for_job(&submitted, &mut look, &sink, &stop);
    let waited = cluster.within(waiting).await.unwrap();
    assert_eq!(waited, WaitOutcome::Left);
    let queue = |id: &str| {
        cluster.ask(
            "squeue",
            &["--noheader", "--array", "--format=%T", "--jobs", id],
        )
    };
    assert_eq!(
        queue(&submitted.id).lines().collect::<Vec<_>>(),
        ["RUNNING", "RUNNING"]
    );

    // The words that it leaves can be followed.
    let farewell = submitted.describe_leaving();
    assert!(
        farewell.contains(&format!("scancel {}", submitted.id)),
        "{farewell}"
    );
    cluster.ask("scancel", &[&submitted.id]);
    let stop = CancellationToken::new();
    let waited = cluster
        .within(slurm.wait_for_job(&submitted, &mut || (), &sink, &stop))
        .await
        .unwrap();
    assert_eq!(states(waited), vec![Some("cancelled".to_owned()); 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_slurm_has_forgotten_is_over() {
    needs!(Slurm);
    let cluster = Cluster::start();
    let gone = SubmittedJob {
        id: "987654".into(),
        cluster: None,
        shards: 2,
        dir: cluster.run_dir("run"),
    };
    let (sink, told) = news();
    let stop = CancellationToken::new();
    let waited = cluster
        .slurm(&[])
        .wait_for_job(&gone, &mut || (), &sink, &stop)
        .await
        .unwrap();
    assert_eq!(states(waited), [None, None]);
    assert!(told.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_away_is_waited_for() {
    needs!(Slurm);
    let cluster = Cluster::start();
    let job = SlurmJob {
        program: cluster.stand_in(JOURNAL),
        shards: 1,
        dir: cluster.run_dir("run"),
        ..SlurmJob::default()
    };
    let (sink, told) = news();
    let stop = CancellationToken::new();
    let mut slurm = cluster.slurm(&[]);
    let submitted = slurm.submit_job(&job, None, &sink).await.unwrap();
    // Another configuration, of a controller that is not there, until it was told.
    let away = cluster.dir().join("away.conf");
    let text = std::fs::read_to_string(cluster.conf()).unwrap();
    let moved: Vec<&str> = text
        .lines()
        .filter(|l| !l.starts_with("SlurmctldPort"))
        .collect();
    std::fs::write(&away, format!("{}\nSlurmctldPort=1\n", moved.join("\n"))).unwrap();
    let link = cluster.dir().join("link.conf");
    std::os::unix::fs::symlink(&away, &link).unwrap();
    slurm.environment = vec![("SLURM_CONF".into(), link.clone().into())];
    let mut looks = 0;
    let mut look = || {
        looks += 1;
        if looks == 2 {
            std::fs::remove_file(&link).unwrap();
            std::os::unix::fs::symlink(cluster.conf(), &link).unwrap();
        }
    };
    let waiting = slurm.wait_for_job(&submitted, &mut look, &sink, &stop);
    let waited = cluster.within(waiting).await.unwrap();
    assert_eq!(states(waited), [Some("completed".to_owned())]);
    let told = told.lock().unwrap().clone();
    let silent = told
        .iter()
        .filter(|l| l.contains("does not answer"))
        .count();
    assert_eq!(silent, 1, "once: {told:?}");
}

#[tokio::test]
async fn without_slurm_there_is_still_the_script() {
    let dir = tempfile::tempdir().unwrap();
    let slurm = Slurm {
        environment: vec![("PATH".into(), dir.path().into())],
        ..Slurm::default()
    };
    let job = SlurmJob {
        program: "/bin/true".into(),
        shards: 2,
        dir: dir.path().join("run"),
        ..SlurmJob::default()
    };
    let failure = slurm.submit_job(&job, None, &news().0).await.unwrap_err();
    assert_eq!(failure.code, ExitCode::Environment);
    assert!(failure.message.contains("no `sbatch`"), "{failure}");
    assert!(
        failure.hints.iter().any(|h| h.contains("--print")),
        "{failure:?}"
    );
}

/// Four groups of six cells, on engines of the sweep's own.
const MATRIX: &str = r#"
name: four-groups
models:
  - model_id: reference/small
    image: plimsoll/reference-engine:dev
    engine: reference
    dtype: [auto, bfloat16, float16, float32]
    input_lengths: [16, 32, 48]
    output_lengths: [4]
    batch_sizes: [1, 2]
    num_iters: 3
    extra_engine_args: ["--weights", "16MiB", "--kv-pool", "8MiB", "--activation", "4MiB", "--load-ms", "0"]
"#;

/// The rows of a journal that tell a cell's end.
fn rows(dir: &Path) -> Vec<serde_json::Value> {
    let rows = lines(&dir.join("journal.jsonl"));
    let rows = rows
        .iter()
        .filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok());
    rows.filter_map(|l| l.pointer("/end/row").cloned())
        .collect()
}

/// Loses the node of the second shard as soon as that has measured a cell.
fn lose_the_second_shards_node(cluster: &Cluster, dir: &Path) {
    let second = dir.join("shard-2");
    wait_for("a first cell of the second shard", || {
        let log = lines(&dir.join("shard-2.log"));
        assert!(!log.iter().any(|l| l.starts_with("error")), "{log:#?}");
        (!rows(&second).is_empty()).then_some(())
    });
    let queue = cluster.ask("squeue", &["--noheader", "--array", "--format=%i|%N"]);
    let node = queue
        .lines()
        .find_map(|l| l.split_once("_2|"))
        .expect("its node")
        .1;
    cluster.lose(node);
    assert!(rows(&second).len() < 6, "it was lost in the middle");
}

/// Every cell once and measured, and nothing left behind.
#[track_caller]
fn all_measured_once(dir: &Path) {
    let mut cells = Vec::new();
    for shard in 1..=4 {
        let rows = rows(&dir.join(format!("shard-{shard}")));
        for row in &rows {
            assert_eq!(row["status"], "done", "{row:#}");
            cells.push(row["cell"].as_str().unwrap().to_owned());
        }
        let groups: std::collections::BTreeSet<String> =
            rows.iter().map(|r| r["group"].to_string()).collect();
        assert_eq!((rows.len(), groups.len()), (6, 1), "shard {shard}");
    }
    cells.sort();
    cells.dedup();
    assert_eq!(cells.len(), 24);
    for shard in 1..=4 {
        let id = std::fs::read_to_string(dir.join(format!("shard-{shard}/id"))).unwrap();
        let label = format!("label=plimsoll.sweep={}", id.trim());
        let left = docker(&["ps", "-aq", "--filter", &label]).unwrap();
        assert_eq!(left, "", "containers of shard {shard}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn real_shards_lose_no_cell_with_their_node() {
    needs!(Slurm, Docker, ReferenceEngine);
    let cluster = Cluster::start();
    let dir = cluster.run_dir("run");
    let job = SlurmJob {
        program: env!("CARGO_BIN_EXE_plimsoll").into(),
        name: "four groups".into(),
        shards: 4,
        dir: dir.clone(),
        has_file: true,
        words: vec![
            "--memory-backend=host".into(),
            format!("--results-dir={}", dir.display()),
        ],
        ..SlurmJob::default()
    };
    let slurm = cluster.slurm(&[]);
    let (sink, told) = news();
    let submitted = slurm
        .submit_job(&job, Some(MATRIX.as_bytes()), &sink)
        .await
        .unwrap();
    let waiting = tokio::spawn(async move {
        let stop = CancellationToken::new();
        slurm
            .wait_for_job(&submitted, &mut || (), &sink, &stop)
            .await
            .unwrap()
    });
    lose_the_second_shards_node(&cluster, &dir);
    let states = states(cluster.within(waiting).await.unwrap());
    let logs = || (1..=4).map(|s| lines(&dir.join(format!("shard-{s}.log"))).join("\n"));
    assert_eq!(
        states,
        vec![Some("completed".to_owned()); 4],
        "{}",
        logs().collect::<String>()
    );
    let told = told.lock().unwrap().clone();
    assert!(
        told.iter()
            .any(|l| l.starts_with("shard 2: back in the queue")),
        "{told:?}"
    );
    all_measured_once(&dir);
}

#[test]
fn submitted_waited_for_and_merged() {
    needs!(Slurm, Docker, ReferenceEngine);
    let cluster = Cluster::start();
    let (dir, file) = (cluster.run_dir("run"), cluster.run_dir("matrix.yaml"));
    std::fs::write(&file, MATRIX).unwrap();
    let mut command = plimsoll(&[
        "sweep",
        &file.display().to_string(),
        "--submit=slurm",
        "--nodes=4",
        "--partition=main",
        "--memory-backend=host",
        &format!("--output-dir={}", dir.display()),
    ]);
    command.env("SLURM_CONF", cluster.conf());
    let sweep = Live::start(command);
    lose_the_second_shards_node(&cluster, &dir);
    let ended = sweep.end().expect(0);
    assert!(
        ended.stderr.contains("shard 2: back in the queue"),
        "{}",
        ended.stderr
    );
    all_measured_once(&dir);
    // Wherever the joined results lie, they are all there.
    let joined = ended
        .stderr
        .lines()
        .find_map(|l| l.strip_prefix("results: "))
        .expect("where");
    let csv = lines(&Path::new(joined).join("results.csv"));
    assert_eq!(csv.len(), 1 + 24, "{csv:?}");
}

#[test]
fn a_tuning_in_shards_is_answered_though_a_node_is_lost() {
    needs!(Slurm, Docker, ReferenceEngine);
    let cluster = Cluster::start();
    let (dir, file) = (cluster.run_dir("run"), cluster.run_dir("tuned.yaml"));
    tune::settings_file(
        &file,
        5,
        "max-num-seqs: [4, 8, 16], num-scheduler-steps: [1, 2, 4]",
    );
    let (named, into) = (
        file.display().to_string(),
        format!("--output-dir={}", dir.display()),
    );
    let own = [
        "tune",
        &named,
        "--submit=slurm",
        "--nodes=2",
        "--partition=main",
        &into,
    ];
    let mut command = plimsoll(&[&own, &tune::QUICK[..]].concat());
    command.env("SLURM_CONF", cluster.conf());
    let submitted = Live::start(command);
    lose_the_second_shards_node(&cluster, &dir);
    let ended = submitted.end().expect(0);
    assert!(
        ended.stderr.contains("shard 2: back in the queue"),
        "{}",
        ended.stderr
    );
    let [one, two] = [1, 2].map(|n| tune::measured(&dir.join(format!("shard-{n}"))));
    let all: std::collections::BTreeSet<&String> = one.iter().chain(&two).collect();
    assert_eq!(all.len(), one.len() + two.len(), "a load was sent twice");
    assert!(
        ended.stdout.contains("of 9 combinations"),
        "{}",
        ended.stdout
    );
    assert!(
        ended.stdout.contains("Best of what was tried: "),
        "{}",
        ended.stdout
    );
}
