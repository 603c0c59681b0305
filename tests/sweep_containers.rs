//! `plimsoll sweep` in containers that are the user's: they run on as they were found, whether the
//! engine was started in them or served already; and those on different GPUs do not wait for each
//! other.

use crate::common;
use crate::common::stage;
use crate::common::sweeps;
use common::docker;
use common::e2e::{Engine, Live};
use std::collections::BTreeSet;
use sweeps::{Desk, Swept, parts_are};

/// Settings of an engine that is started by the sweep.
const DEFAULTS: &str = r#"
  engine: reference
  input_lengths: [16, 32]
  output_lengths: [8]
  batch_sizes: [1]
  num_iters: 3
  engine_args: {weights: 64MiB, kv-pool: 32MiB, activation: 16MiB}
"#;

const TRUTH: [(&str, f64); 3] = [
    ("model_weights_bytes", 64.0),
    ("kv_cache_bytes", 32.0),
    ("activations_bytes", 16.0),
];

fn text(rest: &str) -> String {
    format!("name: theirs\ndefaults:{DEFAULTS}{rest}")
}

#[test]
fn a_server_is_started_once_in_an_idle_container() {
    needs!(Docker, ReferenceEngine);
    let desk = Desk::new();
    let engines = [
        Engine::idle_with_shell("sweep-shell", &[]),
        Engine::idle("sweep-bare"),
    ];
    let before = engines.each_ref().map(Engine::processes);
    let file = desk.file(&text(&format!(
        "models:\n  - {{model_id: tiny, container_name: [{}, {}]}}\n",
        engines[0].name, engines[1].name
    )));
    let swept = desk.sweep(&[&file], 0);
    assert_eq!(swept.ends("tiny"), ["done"; 4]);
    let starts: Vec<&str> = swept
        .records("start")
        .iter()
        .filter_map(|s| s["container"].as_str())
        .collect();
    assert_eq!(starts, engines.each_ref().map(|e| e.id.as_str()));
    for cell in swept.cells() {
        parts_are(cell, TRUTH);
        assert_eq!(swept.profile(cell)["metadata"]["mode"], "started");
    }
    assert_eq!(engines.each_ref().map(Engine::processes), before);
    assert_eq!(engines[0].leftovers(), [""; 0]);
    // Nothing can be removed in an image without programs, and that is told.
    let stays = format!("stays in container `{}`", engines[1].name);
    let said = &swept.ended.stderr;
    assert_eq!(said.matches("stays in container").count(), 1, "{said}");
    assert!(said.contains(&stays), "{said}");
}

/// A folder that is named to be resumed and holds no run is a typing error: nothing is made there.
#[test]
fn a_run_that_is_not_there_is_not_resumed() {
    needs!(Docker, ReferenceEngine);
    let desk = Desk::new();
    let file = desk.file(&text("models: [{model_id: tiny, container_name: none}]\n"));
    let absent = desk.results().join("typo");
    let resume = format!("--resume={}", absent.display());
    for more in [&[][..], &["--dry-run"], &["--retry-failed"]] {
        let mut args = vec![file.as_str(), resume.as_str()];
        args.extend(more);
        let ended = Live::start(desk.command(&args)).end().expect(2);
        let ended = ended.says(&["no run to resume", "typo"], "leave out --resume");
        assert!(!absent.exists(), "{}", ended.stderr);
    }
}

#[test]
fn a_bench_of_its_own_for_each_cell_of_an_idle_container() {
    needs!(Docker, ReferenceEngine);
    let desk = Desk::new();
    let idle = Engine::idle_with_shell("sweep-fresh", &[]);
    let before = idle.processes();
    let models = format!(
        "models:\n  - {{model_id: tiny, container_name: {}}}\n",
        idle.name
    );
    let file = desk.file(&text(&models));
    let swept = desk.sweep(&[&file, "--fresh"], 0);
    assert_eq!(swept.ends("tiny"), ["done"; 2]);
    for cell in swept.cells() {
        parts_are(cell, TRUTH);
        let profile = swept.profile(cell);
        assert_eq!(profile["metadata"]["mode"], "idle");
        assert_eq!(
            profile["latency_stats"]["bench"], "latency",
            "{:#}",
            profile["latency_stats"]
        );
    }
    assert_eq!(idle.processes(), before);
    assert_eq!(idle.leftovers(), [""; 0]);
}

/// What serves is measured as it is, or not at all: it is never started, stopped or taken for
/// another model.
#[test]
fn a_container_that_serves_is_measured_as_it_is() {
    needs!(Docker, ReferenceEngine);
    let desk = Desk::new();
    let sizes = [
        "--weights",
        "16MiB",
        "--kv-pool",
        "8MiB",
        "--activation",
        "16MiB",
    ];
    let engine = Engine::serving("sweep-serving", &[], &sizes);
    let before = engine.processes();
    let file = desk.file(&format!(
        r#"
name: theirs
defaults: {{container_name: {}, output_lengths: 8, batch_sizes: 2, num_iters: 3}}
models:
  - {{model_id: reference/test, bench: serve, input_lengths: [16, 32]}}
  - {{model_id: reference/test, bench: builtin, input_lengths: [16, 32]}}
  - {{model_id: reference/test, bench: latency, input_lengths: [16, 32]}}
  - {{model_id: reference/other, input_lengths: [16, 32]}}
"#,
        engine.name
    ));
    let swept = desk.sweep(&[&file], 5);
    let ends = |bench: &str| -> Vec<String> {
        let cells = swept.of_model("reference/test").into_iter();
        cells
            .filter(|c| c["load"]["bench"] == bench)
            .map(sweeps::end)
            .collect()
    };
    assert_eq!(ends("serve"), ["done"; 2]);
    assert_eq!(ends("builtin"), ["done"; 2]);
    assert_eq!(ends("latency"), ["failed refused prepare"; 2]);
    assert_eq!(swept.ends("reference/other"), ["failed refused prepare"; 2]);
    let other = swept.of_model("reference/other")[0]["row"]["message"]
        .as_str()
        .unwrap();
    assert!(other.contains("it serves `reference/test`"), "{other}");
    assert_eq!(swept.records("start").len(), 0);
    for cell in swept.cells().filter(|c| c["status"] == "done") {
        parts_are(cell, [("activations_bytes", 16.0); 3]);
        assert_eq!(
            cell["row"]["figures"]["model_weights_bytes"],
            serde_json::Value::Null
        );
    }
    assert_eq!(engine.processes(), before);
}

#[test]
fn flags_in_the_place_of_a_file() {
    needs!(Docker, ReferenceEngine);
    let desk = Desk::new();
    let sizes = [
        "--weights",
        "16MiB",
        "--kv-pool",
        "8MiB",
        "--activation",
        "4MiB",
        "--activation-ms",
        "1",
    ];
    let engine = Engine::serving("sweep-flags", &[], &sizes);
    let mut args = vec![
        "--container",
        engine.name.as_str(),
        "--model",
        "reference/test",
    ];
    args.extend([
        "--input-len",
        "16",
        "32",
        "--output-len",
        "8",
        "--batch-size",
        "1",
        "4",
    ]);
    let swept = desk.sweep(&args, 0);
    assert_eq!(swept.ends("reference/test"), ["done"; 4]);
    let loads: BTreeSet<String> = swept
        .cells()
        .map(|c| {
            format!(
                "{} {} {}",
                c["load"]["input_len"], c["load"]["output_len"], c["load"]["batch_size"]
            )
        })
        .collect();
    assert_eq!(
        loads,
        ["16 8 1", "16 8 4", "32 8 1", "32 8 4"]
            .map(str::to_owned)
            .into()
    );
    assert_eq!(swept.records("start").len(), 0);
}

/// What ran out of memory and fits now is measured from then on.
#[test]
fn more_memory_takes_back_what_ran_out_of_it() {
    needs!(Docker, ReferenceEngine);
    let desk = Desk::new();
    let limit = |mib: &str| {
        [
            "--memory".to_owned(),
            mib.to_owned(),
            "--memory-swap".into(),
            mib.into(),
        ]
    };
    let small = limit("80m");
    let engine = Engine::idle_with_shell("sweep-room", &small.each_ref().map(String::as_str));
    let models = format!(
        "models:\n  - {{model_id: tiny, container_name: {}}}\n",
        engine.name
    );
    let file = desk.file(&text(&models));
    let swept = desk.sweep(&[&file], 4);
    assert_eq!(
        swept.ends("tiny"),
        ["failed oom start", "skipped implied_oom"]
    );

    let row = &swept.of_model("tiny")[0]["row"];
    assert!(row["took_s"].as_f64().unwrap() > 0.05, "{row:#}");
    let profile = row["profile"].as_str().unwrap();
    assert!(profile.starts_with("starts/"), "{profile}");
    assert!(swept.folder.join(profile).is_file(), "{profile}");
    assert_eq!(row["figures"]["simulated"], true);
    let known = desk.sweep(&[&file], 4);
    assert_eq!(known.ends("tiny"), ["skipped known_oom"; 2]);
    let message = known.of_model("tiny")[0]["row"]["message"].to_string();
    let words = "at a limit of 80.00 MiB; --retry-oom tries it again";
    assert!(message.contains(words), "{message}");

    let large = limit("512m");
    let mut update = vec!["update"];
    update.extend(large.iter().map(String::as_str));
    update.push(&engine.id);
    docker(&update).unwrap();
    let larger = desk.sweep(&[&file], 0);
    assert_eq!(larger.ends("tiny"), ["done"; 2]);
    let first = format!("--resume={}", swept.folder.display());
    let retried = desk.sweep(&[&file, &first, "--retry-failed"], 0);
    assert_eq!(retried.folder, swept.folder);
    assert_eq!(retried.ends("tiny"), ["done"; 2]);
    let plan = Live::start(desk.command(&[&file, "--dry-run", "--json"]))
        .end()
        .expect(0);
    let plan: serde_json::Value = serde_json::from_str(&plan.stdout).unwrap();
    assert_eq!(
        (&plan["cells"], &plan["skipped"]),
        (&2.into(), &serde_json::json!([]))
    );
}

const GPUS: &str = "\
gpu GPU-00000000-aaaa-0000-0000-000000000000 81559 551 NVIDIA H100 80GB HBM3
gpu GPU-11111111-bbbb-1111-1111-111111111111 81559 551 NVIDIA H100 80GB HBM3
at 0 gpu 0 used=1000 power=90000 temp=40 util=0
at 0 gpu 1 used=1000 power=90000 temp=40 util=0
";

#[test]
fn those_on_different_gpus_run_side_by_side() {
    needs!(Docker, ReferenceEngine);
    let desk = Desk::new();
    let on = |what: &str, gpu: &str| {
        let variable = format!("NVIDIA_VISIBLE_DEVICES={gpu}");
        Engine::run(
            what,
            &["-e", &variable],
            common::e2e::REFERENCE_IMAGE,
            &["idle"],
        )
    };
    let engines = [
        on("sweep-gpu0", "0"),
        on("sweep-gpu0-too", "GPU-00000000-aaaa-0000-0000-000000000000"),
        on("sweep-gpu1", "1"),
    ];
    let scenario = desk.dir().join("scenario");
    std::fs::write(&scenario, GPUS).unwrap();
    let [a, b, c] = engines.each_ref().map(|e| e.name.as_str());
    let file = desk.file(&text(&format!(
        "models:\n  - {{model_id: zero, container_name: {a}}}\n  - {{model_id: zero-too, container_name: {b}}}\n  - {{model_id: one, container_name: {c}}}\n",
    )));
    let mut command = desk.command(&[&file, "--memory-backend=nvml"]);
    command.arg("--nvml-lib").arg(stage::library());
    command.env(stage::SCENARIO_VARIABLE, &scenario);
    let swept = Swept::of(Live::start(command).end().expect(0));
    let [zero, too, one] = ["zero", "zero-too", "one"].map(|model| {
        assert_eq!(swept.ends(model), ["done"; 2], "{model}");
        swept.span(&swept.of_model(model))
    });
    let overlap = |a: (_, _), b: (_, _)| a.0 < b.1 && b.0 < a.1;
    assert!(overlap(zero, one), "{zero:?} {one:?}");
    assert!(!overlap(zero, too), "{zero:?} {too:?}");
    for (model, gpu) in [
        ("zero", "GPU-0000"),
        ("zero-too", "GPU-0000"),
        ("one", "GPU-1111"),
    ] {
        for cell in swept.of_model(model) {
            let devices = swept.profile(cell)["gpu_info"].to_string();
            assert!(devices.contains(gpu), "{model}: {devices}");
        }
    }
}
