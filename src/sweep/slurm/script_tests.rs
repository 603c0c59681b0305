//! The text of the script, and that hostile words come through it as they went in.

use super::*;
use proptest::prelude::*;
use std::process::Command;

fn job() -> SlurmJob {
    SlurmJob {
        program: "/opt/plimsoll/bin/plimsoll".into(),
        name: "batch scaling".into(),
        shards: 4,
        dir: "/shared/results/batch-scaling/20261121_130152".into(),
        has_file: true,
        words: vec!["--name=batch scaling".into(), "--retries=2".into()],
        ..SlurmJob::default()
    }
}

#[test]
fn with_nothing_asked_for() {
    insta::assert_snapshot!(render_script(&job()).unwrap());
}

#[test]
fn with_all_that_can_be_asked_for() {
    let job = SlurmJob {
        partition: Some("gpu,long".into()),
        gres: Some("gpu:h100:8".into()),
        time_limit: Some("2-00:00:00".into()),
        account: Some("llm team".into()),
        sbatch_args: vec![
            "--constraint".into(),
            "a100&nvlink".into(),
            "--comment=it's #1".into(),
        ],
        has_file: false,
        words: vec![
            "--container=engine".into(),
            "--model=org/it's a \"model\"".into(),
            "--only=$(touch x)`touch y`".into(),
        ],
        dir: "/shared/my runs/100% $(x)".into(),
        ..job()
    };
    insta::assert_snapshot!(render_script(&job).unwrap());
}

/// What plimsoll would be called with: the script is run by a real shell, a stand-in prints its words.
fn words_that_arrive(job: &SlurmJob) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("it's $(a) \"program\"");
    std::fs::write(&program, "#!/bin/sh\nprintf '%s\\0' \"$@\"\n").unwrap();
    std::fs::set_permissions(
        &program,
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let file = dir.path().join("submit.sh");
    let job = SlurmJob {
        program,
        ..job.clone()
    };
    std::fs::write(&file, render_script(&job).unwrap()).unwrap();
    let ended = Command::new("sh")
        .arg(&file)
        .env(TASK, "3")
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let output = String::from_utf8(ended.stdout).unwrap();
    output.split_terminator('\0').map(str::to_owned).collect()
}

#[test]
fn each_task_takes_its_shard_and_goes_on_where_it_was() {
    assert_eq!(
        words_that_arrive(&job()),
        [
            "sweep",
            "/shared/results/batch-scaling/20261121_130152/sweep.yaml",
            "--begin-or-resume=/shared/results/batch-scaling/20261121_130152/shard-3",
            "--shard=3/4",
            "--name=batch scaling",
            "--retries=2",
        ]
    );
}

#[test]
fn run_by_hand_it_names_sbatch() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("submit.sh");
    std::fs::write(&file, render_script(&job()).unwrap()).unwrap();
    let ended = Command::new("sh")
        .arg(&file)
        .env_remove(TASK)
        .output()
        .unwrap();
    assert!(!ended.status.success());
    assert!(String::from_utf8_lossy(&ended.stderr).contains("sbatch starts this script"));
}

#[test]
fn what_slurm_cannot_read_is_refused() {
    for job in [
        SlurmJob {
            partition: Some("a\nb".into()),
            ..job()
        },
        SlurmJob {
            sbatch_args: vec!["--comment=a\rb".into()],
            ..job()
        },
        SlurmJob {
            dir: "/shared/a\nb".into(),
            ..job()
        },
        SlurmJob {
            dir: "/shared/a\\b".into(),
            ..job()
        },
        SlurmJob {
            words: vec!["--name=a\0b".into()],
            ..job()
        },
    ] {
        let failure = render_script(&job).unwrap_err();
        assert_eq!(failure.code, crate::error::ExitCode::Usage, "{failure}");
        assert!(!failure.hints.is_empty(), "{failure}");
    }
}

proptest! {
    // Each case is a shell.
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever the flags and the folder are called, plimsoll gets them as they are, and nothing of
    /// them is run.
    #[test]
    fn words_come_through_as_they_are(
        words in prop::collection::vec("[ -~\\n\\té]{0,12}", 0..5),
        folder in "[ -\\[\\]-~é]{1,12}",
    ) {
        let dir = format!("/{}", folder.trim_matches('/'));
        let job = SlurmJob { words: words.clone(), dir: dir.clone().into(), ..job() };
        let arrived = words_that_arrive(&job);
        let dir = dir.trim_end_matches('/');
        prop_assert_eq!(&arrived[2], &format!("--begin-or-resume={dir}/shard-3"));
        prop_assert_eq!(&arrived[4..], &words[..]);
    }

    /// Slurm reads one option a line: no value can add another.
    #[test]
    fn no_value_adds_a_line(value in "\\PC{0,20}") {
        let lines = |job: &SlurmJob| render_script(job).map(|s| s.matches("#SBATCH --").count());
        let plain = lines(&SlurmJob { account: Some("a".into()), ..job() }).unwrap();
        let Ok(text) = render_script(&SlurmJob { account: Some(value), ..job() }) else { return Ok(()) };
        prop_assert_eq!(text.lines().filter(|l| l.starts_with("#SBATCH ")).count(), plain);
    }
}
