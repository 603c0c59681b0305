//! Deaths staged for real, a row each: what was done to a container, and what `why` must say of it. How long each call
//! took is printed; nothing depends on it.

use crate::common::e2e::{Engine, REFERENCE_IMAGE, run, skip, wait_for};
use crate::common::{docker, image};
use crate::trouble::ParentCgroup;
use serde_json::Value;
use std::path::Path;
use std::time::Instant;

/// Sizes of a reference engine that starts at once.
const SMALL: &str =
    "--weights 4MiB --kv-pool 4MiB --activation 1MiB --load-ms 0 --settle-ms 20 --start-ms 20";
/// Last words of vLLM and of the libraries that it loads with.
const NO_MODEL: &str = "echo \"OSError: org/none is not a local folder and is not a valid model identifier listed on 'https://huggingface.co/models'\"; exit 1";
const GATED: &str = "echo 'huggingface_hub.errors.GatedRepoError: 401 Client Error. Cannot access gated repo for url https://huggingface.co/org/gated/resolve/main/config.json.'; exit 1";
const CORE_KILLED: &str = "echo 'INFO Model loading took 14.99 GiB'; sleep 100 & kill -9 $!; wait $!; echo 'ERROR (APIServer pid=1) Engine core proc EngineCore_DP0 died unexpectedly, exitcode: -9'; exit 1";
const STUCK: &str = "for i in 1 2 3 4; do echo 'INFO [shm_broadcast.py:501] No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging.'; done; sleep 1000";
const SHM: &str = "dd if=/dev/zero of=/dev/shm/nccl-x bs=64k count=100; exit 1";
const DISK: &str = "dd if=/dev/zero of=/models/blob bs=64k count=100; exit 1";
/// A child that is killed for lack of memory in a container that goes on.
const WORKER: &str = "dd if=/dev/zero of=/dev/null bs=200M count=1; echo worker gone; sleep 1000";

/// What runs in the container.
enum Program {
    /// `serve` of the reference engine with these arguments besides [`SMALL`]'s.
    Serve(&'static str),
    /// A bench of the reference engine.
    Bench(&'static str),
    /// `sh -c` in an image with a shell.
    Shell(&'static str),
    /// The arguments of an image without an entrypoint.
    Bare(&'static [&'static str]),
}
use Program::{Bare, Bench, Serve, Shell};

/// What is done to it, and what is waited for.
enum Deed {
    /// It ends by itself.
    Ends,
    /// It does not start.
    NeverStarts,
    /// Docker starts it again.
    Loops,
    /// `docker VERB` on one that runs.
    Docker(&'static str),
    /// It runs on, once this is in its log.
    RunsOn(&'static str),
}
use Deed::{Docker, Ends, Loops, NeverStarts, RunsOn};

/// Kind, options, program, deed; the cause, and a word of the first advice or its evidence.
type Row = (
    &'static str,
    &'static [&'static str],
    Program,
    Deed,
    Option<&'static str>,
    &'static str,
);

const CGROUP: Option<&str> = Some("host_ram_oom_cgroup");
const OUTSIDE: Option<&str> = Some("killed_by_user_or_orchestrator");

fn rows() -> Vec<Row> {
    // Without the kernel's log a kill of unknown hand may have been for lack of memory.
    let core_killed = match std::fs::File::open("/dev/kmsg") {
        Ok(_) => OUTSIDE,
        Err(_) => Some("host_ram_oom_kernel"),
    };
    vec![
        (
            "a flag that is not known",
            &[],
            Serve("--no-such-flag"),
            Ends,
            Some("bad_flag"),
            "--no-such-flag",
        ),
        (
            "a flag that is missing",
            &[],
            Bench("bench latency"),
            Ends,
            Some("bad_flag"),
            "`--model`",
        ),
        (
            "a flag in the program's place",
            &[],
            Bare(&["--model", "x"]),
            NeverStarts,
            Some("bad_flag"),
            "a flag stands",
        ),
        (
            "a program that the image has not",
            &[],
            Bare(&["no-such-program"]),
            NeverStarts,
            Some("program_not_found"),
            "`no-such-program`",
        ),
        (
            "a model that is not there",
            &[],
            Shell(NO_MODEL),
            Ends,
            Some("model_not_found_or_gated"),
            "org/none",
        ),
        (
            "a gated model",
            &[],
            Shell(GATED),
            Ends,
            Some("model_not_found_or_gated"),
            "HF_TOKEN",
        ),
        (
            "out of memory while loading",
            &["--memory=24m"],
            Serve("--weights 64MiB"),
            Ends,
            CGROUP,
            "24.00 MiB",
        ),
        (
            "out of memory at the pool",
            &["--memory=24m"],
            Serve("--kv-pool 64MiB"),
            Ends,
            CGROUP,
            "24.00 MiB",
        ),
        (
            "out of memory under load",
            &["--memory=24m"],
            Bench("bench latency --model x --weights 4MiB --kv-pool 4MiB --activation 64MiB"),
            Ends,
            CGROUP,
            "24.00 MiB",
        ),
        (
            "a worker out of memory",
            &["--memory=32m"],
            Shell(WORKER),
            RunsOn("worker gone"),
            CGROUP,
            "32.00 MiB",
        ),
        (
            "a full /dev/shm",
            &["--shm-size=1m"],
            Shell(SHM),
            Ends,
            Some("shm_too_small"),
            "--shm-size",
        ),
        (
            "a full disk",
            &["--tmpfs=/models:size=1m"],
            Shell(DISK),
            Ends,
            Some("disk_full"),
            "No space left",
        ),
        (
            "a port that is taken",
            &["--network=container:HOLDER"],
            Serve(""),
            Ends,
            Some("port_in_use"),
            "Address already in use",
        ),
        (
            "GPUs without a toolkit",
            &["--gpus=all"],
            Bare(&["true"]),
            NeverStarts,
            Some("no_gpu_visible"),
            "nvidia-ctk",
        ),
        (
            "killed",
            &[],
            Serve(""),
            Docker("kill"),
            OUTSIDE,
            "docker kill",
        ),
        (
            "stopped",
            &[],
            Serve(""),
            Docker("stop"),
            OUTSIDE,
            "docker stop",
        ),
        (
            "removed",
            &[],
            Serve(""),
            Docker("rm --force"),
            OUTSIDE,
            "docker kill",
        ),
        (
            "an engine core that was killed",
            &[],
            Shell(CORE_KILLED),
            Ends,
            core_killed,
            "exitcode: -9",
        ),
        (
            "a hang",
            &[],
            Shell(STUCK),
            RunsOn("broadcast block"),
            Some("hang_no_progress"),
            "py-spy",
        ),
        (
            "a loop of policy always",
            &["--restart=always"],
            Serve("--no-such-flag"),
            Loops,
            Some("bad_flag"),
            "--no-such-flag",
        ),
        (
            "a loop of policy unless-stopped",
            &["--restart=unless-stopped"],
            Serve("--no-such-flag"),
            Loops,
            Some("bad_flag"),
            "--no-such-flag",
        ),
        (
            "a loop of policy on-failure",
            &["--restart=on-failure:3"],
            Serve("--no-such-flag"),
            Loops,
            Some("bad_flag"),
            "--no-such-flag",
        ),
        (
            "a loop out of memory",
            &["--restart=always", "--memory=24m"],
            Serve("--weights 64MiB"),
            Loops,
            CGROUP,
            "24.00 MiB",
        ),
        (
            "a crash that nothing explains",
            &[],
            Serve("--fault crash@weights_loaded"),
            Ends,
            None,
            "the log above",
        ),
        (
            "one that was never started",
            &[],
            Serve(""),
            NeverStarts,
            Some("no_failure"),
            "never started",
        ),
        (
            "one that serves",
            &[],
            Serve(""),
            RunsOn("phase=ready"),
            Some("no_failure"),
            "no failure",
        ),
    ]
}

/// Stages a row; `None` where this machine cannot.
fn stage(row: &Row, holder: &Engine) -> Engine {
    let (kind, options, program, deed, ..) = row;
    let options: Vec<String> = options
        .iter()
        .map(|o| o.replace("HOLDER", &holder.name))
        .collect();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let shell = image().expect("image");
    let words = |text: &str| -> Vec<String> {
        text.split(' ')
            .filter(|w| !w.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let (image, args) = match program {
        // The last of a flag that is given twice counts.
        Serve(more) => (
            REFERENCE_IMAGE,
            words(&format!("serve --model x {SMALL} {more}")),
        ),
        Bench(line) => (REFERENCE_IMAGE, words(line)),
        Shell(script) => (
            shell.as_str(),
            ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
        ),
        Bare(args) => (
            shell.as_str(),
            args.iter().map(|a| (*a).to_owned()).collect(),
        ),
    };
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let staged = match deed {
        NeverStarts => Engine::create("death", &options, image, &args),
        _ => Engine::run("death", &options, image, &args),
    };
    match deed {
        Ends => drop(docker(&["wait", &staged.id]).expect("its end")),
        NeverStarts if kind.contains("never started") => {}
        NeverStarts => drop(docker(&["start", &staged.id]).expect_err("it starts")),
        Loops => wait_for("a restart", || {
            let count = docker(&["inspect", "-f", "{{.RestartCount}}", &staged.id]).ok()?;
            (count != "0").then_some(())
        }),
        Docker(verb) => {
            staged.wait_for_log("phase=ready");
            let mut args: Vec<&str> = verb.split(' ').collect();
            args.push(&staged.id);
            docker(&args).expect(verb);
        }
        RunsOn(line) => staged.wait_for_log(line),
    }
    staged
}

#[test]
fn every_staged_death_has_its_cause() {
    needs!(Docker, ReferenceEngine);
    let serve = format!("serve --model holder {SMALL}");
    let serve: Vec<&str> = serve.split(' ').collect();
    let holder = Engine::run("death-holder", &[], REFERENCE_IMAGE, &serve);
    holder.wait_for_log("phase=ready");
    let rows = rows();
    let mut failures = Vec::new();
    let mut longest = 0.0f64;
    for row in &rows {
        let (kind, options, .., cause, word) = row;
        if options.contains(&"--gpus=all") && Path::new("/dev/nvidiactl").exists() {
            eprintln!("{kind}: not staged, this machine has GPUs");
            continue;
        }
        let staged = stage(row, &holder);
        let began = Instant::now();
        let answer = run(&["why", &staged.name, "--json"]);
        let took = began.elapsed().as_secs_f64();
        longest = longest.max(took);
        println!(
            "{took:5.2} s  {kind}: {}",
            cause.unwrap_or("no cause named")
        );
        let found: Value = serde_json::from_str(&answer.stdout).unwrap_or(Value::Null);
        if found["cause"].as_str() != *cause || !answer.stdout.contains(word) {
            failures.push(format!("{kind}: {found:#}{}", answer.stderr));
        }
    }
    println!("{} kinds, the longest call took {longest:.2} s", rows.len());
    assert!(rows.len() >= 25, "{}", rows.len());
    assert!(
        failures.is_empty(),
        "{} of {}:\n{}",
        failures.len(),
        rows.len(),
        failures.join("\n")
    );
}

#[test]
fn a_limit_of_a_slice_above_is_the_cause_at_load() {
    needs!(Docker, ReferenceEngine, Root);
    let parent = match ParentCgroup::new("24M") {
        Ok(parent) => parent,
        Err(why) => return skip(test_name!(), &why),
    };
    let args = ["serve", "--model", "x", "--weights", "64MiB"];
    let staged = Engine::run("death-slice", &[&parent.flag()], REFERENCE_IMAGE, &args);
    docker(&["wait", &staged.id]).expect("its end");
    let answer = run(&["why", &staged.name, "--json"]).expect(0);
    let found: Value = serde_json::from_str(&answer.stdout).expect("JSON");
    assert_eq!(found["cause"], "host_ram_oom_cgroup", "{found:#}");
    let text = found["advice"][0]["text"].as_str().expect("advice");
    assert!(text.contains("above the container's own"), "{found:#}");
}
