//! `plimsoll sweep` with containers that it starts itself: one engine for a group, a row for every
//! cell whatever the engine does, and a way on from wherever a run stopped.

use crate::common;
use crate::common::sweeps;
use common::e2e::{Engine, Live, codes, parts_sum_to_the_peak, read, run, wait_for};
use common::{docker, unique, whole_seconds};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use sweeps::{Desk, Swept, end, id, journal, parts_are, records, time};

/// What all of them have in common.
const DEFAULTS: &str = r#"
defaults:
  image: plimsoll/reference-engine:dev
  engine: reference
  input_lengths: [16, 32]
  output_lengths: [8]
  batch_sizes: [1, 4]
  num_iters: 3
  engine_args: {weights: 64MiB, kv-pool: 32MiB, activation: 16MiB}
"#;

const TRUTH: [(&str, f64); 3] = [
    ("model_weights_bytes", 64.0),
    ("kv_cache_bytes", 32.0),
    ("activations_bytes", 16.0),
];

fn text(rest: &str) -> String {
    format!("name: ref{DEFAULTS}{rest}")
}

/// Every profile has the start-up as its own, though its capture began after it.
#[track_caller]
fn started_before_its_capture(swept: &Swept, start: &Value, cell: &Value) {
    parts_are(cell, TRUTH);
    let profile = swept.profile(cell);
    parts_sum_to_the_peak(&profile);
    assert_eq!(profile["metadata"]["mode"], "started");
    assert!(
        !codes(&profile).contains(&"sampler_gap"),
        "{:?}",
        codes(&profile)
    );
    assert_eq!(
        codes(&profile).contains(&"log_times_coarse"),
        whole_seconds()
    );
    let parts = profile["memory_breakdown"]["components"]
        .as_array()
        .unwrap();
    let runtime = parts.iter().find(|p| p["component"] == "runtime");
    let runtime = runtime.and_then(|p| p["bytes"].as_i64());
    assert!(
        runtime.is_some_and(|b| b > 0) || whole_seconds(),
        "{parts:#?}"
    );
    let capture = swept.folder.join(cell["row"]["profile"].as_str().unwrap());
    let capture = read(&capture.with_extension("capture").join("capture.json"));
    let shared = &capture["shared_start"];
    assert_eq!(shared["run_id"], start["run_id"], "{shared:#}");
    // What a cell took is its own time: the engine's start stands by itself.
    let took = std::time::Duration::from_secs_f64(cell["row"]["took_s"].as_f64().unwrap());
    let began = time(&cell["row"]["ended"]) - took;
    let slack = std::time::Duration::from_secs(1);
    assert!(began + slack >= time(&start["at"]), "{cell:#}\n{start:#}");
}

#[test]
fn one_engine_for_a_group_and_a_row_for_every_cell() {
    needs!(Docker, ReferenceEngine);
    let desk = Desk::new();
    let file = desk.file(&text(
        r#"
models:
  - model_id: tiny
  - model_id: broken
    extra_engine_args: ["--fault", "crash@ready"]
  - model_id: oom
    memory: 128MiB
    extra_engine_args: ["--fault", "oom@ready"]
"#,
    ));
    let swept = desk.sweep(&[&file], 5);
    assert_eq!(swept.ends("tiny"), ["done"; 4]);
    assert_eq!(swept.ends("broken"), ["failed engine_died start"; 4]);
    let oom = ["failed oom start"];
    let implied = ["skipped implied_oom"; 3];
    assert_eq!(swept.ends("oom"), [&oom[..], &implied].concat());
    let starts = swept.records("start");
    let of: BTreeSet<&str> = starts.iter().filter_map(|s| s["group"].as_str()).collect();
    assert_eq!(
        (starts.len(), of.len()),
        (3, 3),
        "one for each group: {starts:#?}"
    );
    for cell in swept.of_model("tiny") {
        let start = starts.iter().find(|s| s["group"] == cell["group"]).unwrap();
        assert_eq!(start["failed"], Value::Null);
        started_before_its_capture(&swept, start, cell);
    }
    // The engine's last words are why the others have no figures.
    for cell in swept.of_model("broken") {
        let message = cell["row"]["message"].as_str().unwrap();
        assert!(message.contains("layer 17 does not fit"), "{message}");
        assert_eq!(cell["row"]["figures"]["peak_bytes"], Value::Null);
    }

    // What ran out of memory is not tried in the next run, unless that is asked for.
    let again: Vec<String> = swept.of_model("oom").into_iter().map(id).collect();
    let only: Vec<String> = again.iter().map(|id| format!("--only={id}")).collect();
    let mut args = vec![file.as_str()];
    args.extend(only.iter().map(String::as_str));
    let known = desk.sweep(&args, 4);
    assert_ne!(known.folder, swept.folder);
    assert_eq!(known.ends("oom"), ["skipped known_oom"; 4]);
    assert_eq!((known.begun().len(), known.records("start").len()), (0, 0));
    args.push("--retry-oom");
    let on = format!("--resume={}", known.folder.display());
    let went_on = desk.sweep(&[&args[..], &[on.as_str()]].concat(), 4);
    assert_eq!(went_on.ends("oom"), [&oom[..], &implied].concat());
    let retried = desk.sweep(&args, 4);
    assert_eq!(retried.ends("oom"), [&oom[..], &implied].concat());
    assert_eq!(retried.records("start").len(), 1);
}

#[test]
fn a_process_of_its_own_for_each_cell() {
    needs!(Docker, ReferenceEngine);
    let desk = Desk::new();
    let file = desk.file(&text("models:\n  - {model_id: tiny, input_lengths: 16}\n"));
    let swept = desk.sweep(&[&file, "--fresh"], 0);
    assert_eq!(swept.ends("tiny"), ["done"; 2]);
    let starts = swept.records("start");
    let containers: BTreeSet<&str> = starts
        .iter()
        .filter_map(|s| s["container"].as_str())
        .collect();
    assert_eq!((starts.len(), containers.len()), (2, 2), "{starts:#?}");
    for cell in swept.of_model("tiny") {
        parts_are(cell, TRUTH);
    }
}

/// Kills the engine of a group once its first cell is measured and its second runs.
fn kill_in_the_middle(desk: &Desk, file: &str, kill: impl Fn(&str)) -> Swept {
    let out = desk.results().join("dies/20260101_000000");
    let at = format!("--output-dir={}", out.display());
    let live = Live::start(desk.command(&[file, &at]));
    let container = wait_for("a cell that was measured and one that runs", || {
        let journal = journal(&out);
        let measured = records(&journal, "end").len() == 1 && records(&journal, "begin").len() == 2;
        let container = &records(&journal, "start").first()?["container"];
        measured.then(|| container.as_str().unwrap().to_owned())
    });
    kill(&container);
    let swept = Swept::of(live.end().expect(5));
    assert_eq!(
        swept.ends("tiny"),
        ["done", "failed engine_died bench", "done"]
    );
    assert_eq!(
        swept.records("start").len(),
        2,
        "another one for the last cell"
    );
    swept
}

/// The second cell takes many seconds.
fn to_be_killed(place: &str) -> String {
    format!(
        r#"
name: dies
defaults:
  {place}
  engine: reference
  input_lengths: [16]
  output_lengths: [8]
  engine_args: {{weights: 16MiB, kv-pool: 8MiB, activation: 4MiB}}
models:
  - {{model_id: tiny, batch_sizes: 1, num_prompts: 2}}
  - {{model_id: tiny, batch_sizes: 2, num_prompts: 1000}}
  - {{model_id: tiny, batch_sizes: 3, num_prompts: 3}}
"#
    )
}

#[test]
fn an_engine_that_dies_costs_no_other_cell() {
    needs!(Docker, ReferenceEngine);
    let desk = Desk::new();
    let file = desk.file(&to_be_killed("image: plimsoll/reference-engine:dev"));
    kill_in_the_middle(&desk, &file, |container| {
        docker(&["kill", container]).unwrap();
    });
}

#[test]
fn a_server_that_dies_in_an_idle_container_is_started_again() {
    needs!(Docker, ReferenceEngine);
    let desk = Desk::new();
    let idle = Engine::idle_with_shell("sweep-dies", &[]);
    let before = idle.processes();
    let file = desk.file(&to_be_killed(&format!("container_name: {}", idle.name)));
    kill_in_the_middle(&desk, &file, |container| {
        assert_eq!(container, idle.id);
        let list = docker(&["exec", container, "ps"]).unwrap();
        let server = list.lines().find(|l| l.contains("/reference-engine serve"));
        let pid = server.and_then(|l| l.split_whitespace().next()).unwrap();
        let kill = format!("kill -9 {pid}");
        docker(&["exec", container, "sh", "-c", &kill]).unwrap();
    });
    assert_eq!(idle.processes(), before);
    assert_eq!(idle.leftovers(), [""; 0]);
}

#[test]
fn what_hangs_is_given_up_in_its_time() {
    needs!(Docker, OwnsProcesses, ReferenceEngine);
    let desk = Desk::new();
    let idle = Engine::idle("sweep-hangs");
    let file = desk.file(&format!(
        r#"
name: hangs
timeout: 10s
health_timeout: 3s
defaults:
  engine: reference
  input_lengths: [16]
  output_lengths: [8]
  batch_sizes: [1]
  num_iters: 1
  engine_args: {{weights: 16MiB, kv-pool: 8MiB, activation: 4MiB}}
models:
  - model_id: never
    image: plimsoll/reference-engine:dev
    batch_sizes: [1, 2, 4]
    extra_engine_args: --fault hang@loading_weights
  - model_id: stuck
    container_name: {0}
    bench: latency
    extra_engine_args: --fault hang@warmup_start
  - model_id: well
    container_name: {0}
    bench: latency
"#,
        idle.name
    ));
    let before = idle.processes();
    let swept = desk.sweep(&[&file], 5);
    assert_eq!(swept.ends("never"), ["failed not_ready start"; 3]);
    assert_eq!(swept.ends("stuck"), ["failed timeout bench"]);
    assert_eq!(swept.ends("well"), ["done"]);
    let starts = swept.records("start");
    assert_eq!(starts.len(), 1, "what hangs once hangs again: {starts:#?}");
    assert!(starts[0]["failed"].is_string());
    assert_eq!(idle.processes(), before);
}

/// What a run left is done by the next, once the user says so: no cell twice, none forgotten.
#[test]
fn a_run_that_is_interrupted_goes_on() {
    needs!(Docker, ReferenceEngine);
    let desk = Desk::new();
    let (absent, idle) = (unique("sweep-absent"), Engine::idle("sweep-absent-yet"));
    let file = desk.file(&text(&format!(
        r#"
models:
  - {{model_id: absent, container_name: {absent}, image: null, batch_sizes: 1, input_lengths: 16}}
  - {{model_id: tiny, batch_sizes: [1, 10, 12], num_iters: 4}}
"#
    )));
    let out = desk.results().join("ref/20260101_000000");
    let at = format!("--output-dir={}", out.display());
    let live = Live::start(desk.command(&[&file, &at]));
    wait_for("a cell that was measured", || {
        let journal = journal(&out);
        let ends = records(&journal, "end");
        ends.iter()
            .any(|e| e["row"]["status"] == "done")
            .then_some(())
    });
    // Nobody else works on the same folder meanwhile.
    let going_on = format!("--resume={}", out.display());
    let second = Live::start(desk.command(&[&file, &going_on])).end();
    let pid = format!("pid {}", live.pid());
    assert!(second.error().contains(&pid), "{}", second.stderr);
    second.expect(3);

    live.signal(rustix::process::Signal::INT);
    let stopped = Swept::of(live.end().expect(130));
    assert!(
        stopped.ended.stderr.contains(&going_on),
        "{}",
        stopped.ended.stderr
    );
    assert_eq!(stopped.ends("absent"), ["failed missing prepare"]);
    let rows: BTreeMap<String, Value> = stopped
        .cells()
        .filter(|c| !c["row"].is_null())
        .map(|c| (id(c), c["row"].clone()))
        .collect();
    assert!((2..7).contains(&rows.len()), "{:#}", stopped.results);

    let resumed = desk.sweep(&[&file, "--resume"], 5);
    assert_eq!(
        resumed.folder.canonicalize().unwrap(),
        out.canonicalize().unwrap()
    );
    assert_eq!(resumed.ends("tiny"), ["done"; 6]);
    // What was not there says nothing of its cell: it is looked for again.
    let mut kept = rows;
    kept.retain(|_, row| row["cause"] != "missing");
    let left: Vec<String> = (resumed.cells())
        .filter(|c| c["row"]["cause"] != "missing")
        .map(id)
        .filter(|c| !kept.contains_key(c))
        .collect();
    let begun: BTreeSet<String> = resumed.begun().into_iter().collect();
    assert_eq!(begun, left.into_iter().collect());
    for cell in resumed.cells().filter(|c| kept.contains_key(&id(c))) {
        assert_eq!(cell["row"], kept[&id(cell)], "it keeps its row");
    }
    let sessions = resumed.records("sweep");
    assert_eq!(sessions.len(), 2);

    if crate::common::rootless() {
        // Its server, which publishes no port, is out of reach there.
        return;
    }
    // The container is there now.
    docker(&["rename", &idle.name, &absent]).unwrap();
    let retried = desk.sweep(&[&file, "--resume"], 0);
    let failed = stopped.of_model("absent").into_iter().map(id);
    assert_eq!(retried.begun(), failed.collect::<Vec<_>>());
    assert_eq!(retried.ends("absent"), ["done"]);
}

fn ids(cells: impl Iterator<Item = String>) -> BTreeSet<String> {
    cells.collect()
}

#[test]
fn parts_of_a_sweep_are_the_whole() {
    needs!(Docker, ReferenceEngine);
    let desk = Desk::new();
    let file = desk.file(&text(
        "models:\n  - {model_id: [one, two], batch_sizes: 1, num_iters: 1}\n",
    ));
    let plan = Live::start(desk.command(&[&file, "--dry-run", "--json"]))
        .end()
        .expect(0);
    let plan: Value = serde_json::from_str(&plan.stdout).unwrap();
    let groups = plan["groups"].as_array().unwrap();
    let all = ids(groups.iter().flat_map(|g| {
        let cells = g["cells"].as_array().unwrap();
        cells.iter().map(id).collect::<Vec<_>>()
    }));
    assert_eq!(all.len(), 4, "{plan:#}");
    assert!(!desk.results().exists(), "nothing is written");

    let mut parts = Vec::new();
    for part in ["1/2", "2/2"] {
        let swept = desk.sweep(&[&file, &format!("--shard={part}")], 0);
        let cells = ids(swept.cells().map(id));
        assert_eq!(cells.len(), 2);
        assert!(swept.cells().all(|c| end(c) == "done"));
        parts.push((swept, cells));
    }
    // Each part goes on with its own run, whichever is the latest.
    let first = &parts[0].0.folder;
    let resumed = desk.sweep(&[&file, "--shard=1/2", "--resume"], 0);
    assert_eq!(&resumed.folder, first);
    let told = resumed.ended.stderr.as_str();
    assert!(
        told.contains("sweep ref: nothing left to measure"),
        "{told}"
    );
    let on = format!("--resume={}", first.display());
    let other = Live::start(desk.command(&[&file, "--shard=2/2", &on])).end();
    assert!(other.error().contains("part 1/2"), "{}", other.stderr);
    other.expect(2);
    assert_eq!(&parts[0].1 | &parts[1].1, all);
    let merged = desk.dir().join("merged");
    let [one, two] = [0, 1].map(|n: usize| parts[n].0.folder.display().to_string());
    let merged = merged.display().to_string();
    let joined = Swept::of(run(&["sweep", "merge", &one, &two, "--output", &merged]).expect(0));
    assert_eq!(ids(joined.cells().map(id)), all);
    assert!(joined.cells().all(|c| end(c) == "done"));

    let only = all.first().unwrap();
    let swept = desk.sweep(&[&file, &format!("--only={only}")], 0);
    assert_eq!(swept.cells().map(id).collect::<Vec<_>>(), [only.as_str()]);
}

#[test]
fn a_dry_run_tells_what_is_not_there_and_starts_nothing() {
    needs!(Docker, ReferenceEngine);
    let desk = Desk::new();
    let (container, image) = (unique("sweep-nowhere"), "plimsoll/no-such-image:dev");
    let volume = desk.dir().join("no-such-folder").display().to_string();
    let file = desk.file(&text(&format!(
        r#"
models:
  - {{model_id: a, image: null, container_name: {container}}}
  - {{model_id: b, image: "{image}", engine: null}}
  - {{model_id: c, volumes: "{volume}:/models"}}
  - {{model_id: well}}
"#
    )));
    for json in [false, true] {
        let mut args = vec![file.as_str(), "--dry-run"];
        args.extend(json.then_some("--json"));
        let ended = Live::start(desk.command(&args)).end().expect(3);
        assert_eq!(
            ended.error(),
            "3 of 4 groups of cells cannot be measured, each for the reason above"
        );
        for what in [container.as_str(), image, &volume] {
            let told = |l: &str| l.contains("cannot be measured: ") && l.contains(what);
            assert!(ended.stderr.lines().any(told), "{what}:\n{}", ended.stderr);
        }
        let absent = format!("image `{image}` is not here");
        assert!(ended.stderr.contains(&absent), "{}", ended.stderr);
        match json {
            true => {
                let plan: Value = serde_json::from_str(&ended.stdout).unwrap();
                assert_eq!((&plan["cells"], &plan["starts"]), (&16.into(), &4.into()));
            }
            false => assert!(
                ended.stdout.contains("16 cells in 4 groups"),
                "{}",
                ended.stdout
            ),
        }
    }
    assert!(!desk.results().exists() && desk.containers().is_empty());
    assert!(!std::path::Path::new(&volume).exists());
}

/// An image that was made of a container of ours hands its labels to whatever is started from it.
#[test]
fn labels_that_came_with_an_image_make_no_container_this_sweeps() {
    needs!(Docker, ReferenceEngine);
    let desk = Desk::new();
    let file = desk.file(&text(
        "models:\n  - {model_id: tiny, batch_sizes: 1, input_lengths: 16}\n",
    ));
    let swept = desk.sweep(&[&file], 0);
    let sweep = std::fs::read_to_string(swept.folder.join("id")).unwrap();
    let owner = plimsoll::container::leftovers::boot_id();
    let labels = format!(
        "LABEL plimsoll.sweep={} plimsoll.run=lost plimsoll.owner={owner}:4194303:1",
        sweep.trim()
    );
    let of_ours = Engine::idle("sweep-of-ours");
    let image = unique("sweep-image");
    docker(&["commit", "-c", &labels, &of_ours.id, &image]).unwrap();
    let theirs = Engine::run("sweep-theirs", &[], &image, &["idle"]);

    let resume = format!("--resume={}", swept.folder.display());
    let ended = Live::start(desk.command(&[&file, &resume])).end().expect(0);
    let running = docker(&["inspect", "-f", "{{.State.Running}}", &theirs.id]);
    assert_eq!(running.as_deref(), Ok("true"), "{}", ended.stderr);
    let told = format!(
        "`{}` has this sweep's labels, perhaps from its image",
        theirs.name
    );
    assert!(ended.stderr.contains(&told), "{}", ended.stderr);
    drop(theirs);
    docker(&["rmi", &image]).unwrap();
}
#[test]
fn an_adaptive_sweep_measures_the_loads_that_decide_and_marks_the_others() {
    needs!(Docker, ReferenceEngine);
    let desk = Desk::new();
    let file = desk.file(&text(
        r#"
models:
  - model_id: curve
    input_lengths: 16
    batch_sizes: [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]
    num_prompts: 64
    engine_args: {activation-ms: 0, token-us: 10000}
"#,
    ));
    let swept = desk.sweep(&[&file, "--adaptive=80"], 0);
    let cells = swept.of_model("curve");
    let figure = |cell: &&Value| {
        cell["row"]["figures"]["tokens_per_second"]
            .as_f64()
            .unwrap()
    };
    let (measured, between): (Vec<&Value>, Vec<&Value>) =
        cells.iter().partition(|cell| cell["status"] == "done");
    assert!(
        measured.len() >= 3 && !between.is_empty(),
        "{:?}",
        swept.ends("curve")
    );
    for ends in [0, 11] {
        assert_eq!(cells[ends]["status"], "done");
    }
    for cell in &between {
        assert_eq!(cell["status"], "interpolated");
        assert_eq!(cell["row"]["profile"], Value::Null);
        let known = measured.iter().map(figure);
        let (low, high) = known.fold((f64::MAX, 0.0f64), |(a, b), f| (a.min(f), b.max(f)));
        assert!((low..=high).contains(&figure(cell)), "{cell:#}");
    }
    let counts = &swept.results["counts"];
    assert_eq!(counts["interpolated"], between.len());
    // No table has its figure as a number that was measured.
    assert!(
        swept.ended.stdout.contains("interpolated"),
        "{}",
        swept.ended.stdout
    );
    let page = run(&[
        "report",
        &swept.folder.display().to_string(),
        "--format",
        "md",
        "--full",
        "-o",
        "-",
    ]);
    assert!(page.expect(0).stdout.contains("≈ "));

    // Without the flag the run goes on to what was not measured.
    let on = format!("--resume={}", swept.folder.display());
    let whole = desk.sweep(&[&file, &on], 0);
    assert_eq!(whole.ends("curve"), ["done"; 12]);
    assert_eq!(whole.begun().len(), between.len());
}

#[test]
fn what_engines_compile_is_kept_from_one_start_to_the_next_where_that_is_asked_for() {
    needs!(Docker, ReferenceEngine);
    let desk = Desk::new();
    let file = desk.file(&text(
        r#"
models:
  - model_id: compiled
    input_lengths: 16
    batch_sizes: 1
    engine_args: {compile-ms: 20, settle-ms: [100, 110, 120]}
"#,
    ));
    let compiled = |swept: &Swept| {
        let logs = swept.of_model("compiled").into_iter().map(|cell| {
            let group = cell["group"].as_str().unwrap();
            let start = swept
                .folder
                .join("starts")
                .join(format!("{group}-start.capture"));
            std::fs::read_to_string(start.join("log.txt")).unwrap()
        });
        let words = logs.map(|log| log.contains("compiled=cached"));
        words.filter(|cached| *cached).count()
    };
    let image = docker(&[
        "image",
        "inspect",
        "-f",
        "{{.Id}}",
        common::e2e::REFERENCE_IMAGE,
    ]);
    let volumes = || {
        let own = format!(
            "label=plimsoll.compile-cache={}",
            image.as_ref().unwrap().trim()
        );
        docker(&["volume", "ls", "-q", "--filter", &own]).unwrap()
    };
    assert_eq!(compiled(&desk.sweep(&[&file], 0)), 0);
    // Another test's volume may be here already.
    let before = volumes();
    assert!(compiled(&desk.sweep(&[&file, "--compile-cache"], 0)) >= 2);
    let volume = volumes().trim().to_owned();
    assert!(
        volume.starts_with("plimsoll-compile-cache-"),
        "{before:?} {volume:?}"
    );
    let listed = run(&["clean", "--compile-caches"]).expect(0);
    assert!(listed.stdout.contains(&volume) && volumes().contains(&volume));
    let removed = run(&["clean", "--compile-caches", "--apply", "--json"]).expect(0);
    let removed: Value = serde_json::from_str(&removed.stdout).unwrap();
    let names = removed["volumes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| &v["name"]);
    assert!(
        names.into_iter().any(|name| name == volume.as_str()),
        "{removed:#}"
    );
}
