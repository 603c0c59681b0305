//! `compare`, `validate` and `calibrate` as people use them: files in, pages, tables and exit codes out.

use crate::common::captures;
use crate::common::pages::terminal_page;
use assert_cmd::Command;
use captures::*;
use plimsoll::breakdown::{Component, Confidence, Evidence, EvidenceSource, Part};
use plimsoll::capture::RunEnd;
use plimsoll::compare::calculated::{Calculated, CalculatedFigure, Item};
use plimsoll::compare::correlate::Correlations;
use plimsoll::compare::deployment::deployment_of;
use plimsoll::compare::given::{ExternalFigures, GivenReport, KvBasis};
use plimsoll::compare::profiles::Pair;
use plimsoll::compare::subject::Subject;
use plimsoll::compare::validate::{RunValidation, Validation};
use plimsoll::estimate::{EngineId, Version};
use plimsoll::profile::Profile;
use plimsoll::report;
use plimsoll::report::page::TextOptions;
use proptest::prelude::*;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// vLLM on two GPUs.
fn gpu() -> Profile {
    static ONE: OnceLock<Profile> = OnceLock::new();
    ONE.get_or_init(|| two_gpus().derive()).clone()
}

/// The same with graphs of another size, as its log tells them.
fn with_graphs(gib: &str) -> Profile {
    let mut built = two_gpus();
    for line in &mut built.lines {
        line.text = line
            .text
            .replace("took 0.50 GiB", &format!("took {gib} GiB"));
    }
    let mut profile = built.derive();
    profile.metadata.run_id = format!("graphs-{gib}");
    profile
}

/// A folder with profiles, and a state folder.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join("results").join(name)
    }

    fn put(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn profile(&self, name: &str, profile: &Profile) -> PathBuf {
        self.put(name, serde_json::to_vec(profile).unwrap())
    }

    /// Runs plimsoll: exit code, standard output, standard error, each in one line.
    fn run(&self, args: &[&str], files: &[&Path]) -> (i32, String, String) {
        let out = Command::cargo_bin("plimsoll")
            .unwrap()
            .args(args)
            .args(files)
            .env("XDG_STATE_HOME", self.0.path().join("state"))
            .env_remove("PLIMSOLL_RESULTS_DIR")
            .current_dir(self.0.path())
            .output()
            .unwrap();
        // Sentences are wrapped: in one line they can be searched.
        let text = |bytes: Vec<u8>| {
            let text = String::from_utf8(bytes).unwrap();
            text.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        (
            out.status.code().unwrap(),
            text(out.stdout),
            text(out.stderr),
        )
    }

    fn json(&self, args: &[&str], files: &[&Path]) -> Value {
        let (code, out, err) = self.run(args, files);
        assert_eq!(code, 0, "{err}");
        serde_json::from_str(&out).unwrap()
    }
}

fn row<'a>(document: &'a Value, key: &str) -> &'a Value {
    let rows = document["components"].as_array().unwrap();
    rows.iter().find(|r| r["component"] == key).unwrap()
}

#[test]
fn a_profile_against_itself_differs_in_nothing() {
    let folder = Folder::new();
    let a = folder.profile("a.json", &gpu());
    let (code, out, err) = folder.run(
        &["compare", "--fail-on", "0%", "--ignore-below", "0"],
        &[&a, &a],
    );
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("A and B are the same file"), "{out}");
    let document = folder.json(&["compare", "--json"], &[&a, &a]);
    assert_eq!(document["diff_gb"], 0.0);
    assert_eq!(document["settings"], serde_json::json!([]));
    for row in document["components"].as_array().unwrap() {
        let known = !row["profile1_gb"].is_null();
        assert_eq!(row["diff_gb"].as_f64(), known.then_some(0.0), "{row}");
    }
}

/// How far each part moves by itself is learnt from repeats.
#[test]
fn a_part_may_move_as_far_as_the_repeats_of_a_baseline_show() {
    let folder = Folder::new();
    for graphs in ["0.50", "0.51", "0.52"] {
        folder.profile(&format!("base/{graphs}.json"), &with_graphs(graphs));
    }
    let base = folder.path("base");
    let base = base.to_str().unwrap();
    let near = folder.profile("near.json", &with_graphs("0.525"));
    let far = folder.profile("far.json", &with_graphs("0.80"));
    let against = |new: &Path, more: &[&str]| {
        folder.run(&[&["compare", "--against", base], more].concat(), &[new])
    };
    let (code, out, err) = against(&near, &[]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(
        out.contains("more than 3 repeats of the baseline allow"),
        "{out}"
    );
    let (code, out, _) = against(&far, &[]);
    assert_eq!(code, 7, "{out}");
    let wanted = "MOVED BY MORE THAN 3 REPEATS OF THE BASELINE ALLOW: ";
    assert!(out.contains(wanted) && out.contains("CUDA graphs"), "{out}");

    // For a pull request: short, and the verdict first.
    let (_, document, _) = against(&far, &["--json"]);
    let page = Command::cargo_bin("plimsoll").unwrap();
    let page = { page }
        .args(["report", "-", "--format", "md", "--output"])
        .arg(folder.path("page.md"))
        .write_stdin(document)
        .output()
        .unwrap();
    assert!(page.status.success(), "{page:?}");
    let page = std::fs::read_to_string(folder.path("page.md")).unwrap();
    assert!(page.lines().count() <= 60, "{page}");
    let head: String = page.lines().take(6).collect();
    assert!(head.contains("MOVED BY MORE THAN"), "{page}");

    let (code, _, err) = folder.run(&["compare", "--against"], &[&near, &far]);
    assert_eq!(code, 2, "{err}");
    std::fs::remove_file(folder.path("base/0.50.json")).unwrap();
    let (code, _, err) = against(&near, &[]);
    assert!(
        code == 2 && err.contains("has 2 profiles to learn tolerances from, and needs 3"),
        "{err}"
    );
}

#[test]
fn a_component_that_grew_fails_the_build() {
    let folder = Folder::new();
    let a = folder.profile("a.json", &gpu());
    let b = folder.profile("b.json", &with_graphs("0.80"));
    let (code, out, _) = folder.run(&["compare", "--fail-on", "5%"], &[&a, &b]);
    assert_eq!(code, 7, "{out}");
    assert!(
        out.contains("MOVED BY MORE THAN 5 %") && out.contains("CUDA graphs"),
        "{out}"
    );
    assert_eq!(
        folder.run(&["compare"], &[&a, &b]).0,
        0,
        "without a limit nothing fails"
    );
    // 0.3 GiB more on each of two GPUs.
    let document = folder.json(&["compare", "--json"], &[&a, &b]);
    let graphs = row(&document, "cuda_graphs");
    assert!(
        (graphs["diff_gb"].as_f64().unwrap() - 0.6).abs() < 1e-6,
        "{graphs}"
    );
    assert!(
        (graphs["diff_pct"].as_f64().unwrap() - 60.0).abs() < 1e-3,
        "{graphs}"
    );
    assert_eq!(document["diff_gb"], 0.0, "the peak was the same");
    // Small differences are noise where one says so.
    let quiet = ["compare", "--fail-on", "5%", "--ignore-below", "1GiB"];
    assert_eq!(folder.run(&quiet, &[&a, &b]).0, 0);
}

#[test]
fn figures_of_another_batch_are_not_judged() {
    let folder = Folder::new();
    let mut other = gpu();
    other.parameters.workload.input_len = 4096;
    other.dtype_metadata.weights = Some("float8_e4m3fn".into());
    let a = folder.profile("a.json", &gpu());
    let b = folder.profile("b.json", &other);
    let (code, out, _) = folder.run(&["compare"], &[&a, &b]);
    assert_eq!(code, 0);
    let error = out.find("[not_comparable]").unwrap();
    let settings = out.find("Settings that differ").unwrap();
    let memory = out.find("Memory at the peak").unwrap();
    assert!(error < settings && settings < memory, "{out}");
    let verdict = out.find("Not comparable: weights_dtype differs").unwrap();
    let last = out[verdict..].lines().count();
    assert!(
        last < 24 && verdict > memory,
        "the verdict is on the last screen: {out}"
    );
    let (code, _, err) = folder.run(&["compare", "--fail-on", "5%"], &[&a, &b]);
    assert_eq!(code, 2, "{err}");
    assert!(
        err.contains("input_len differs: 1024 and 4096") && err.contains("weights_dtype"),
        "{err}"
    );
    let (code, out, _) = folder.run(&["compare", "--fail-on", "5%", "--force"], &[&a, &b]);
    assert_eq!(code, 0, "{out}");
}

#[test]
fn what_one_side_does_not_know_is_never_0() {
    let mut without = gpu();
    let parts = &mut without.memory_breakdown.components;
    parts.retain(|p| p.component != Component::CudaGraphs);
    let mut pair = Pair::compare_subjects(
        &Subject::subject_of_profile(&gpu(), "a"),
        &Subject::subject_of_profile(&without, "b"),
    );
    let graphs = pair
        .components
        .iter()
        .find(|r| r.component == "cuda_graphs")
        .unwrap();
    assert!(graphs.profile1_gb.is_some() && graphs.profile2_gb.is_none());
    assert_eq!((graphs.diff_gb, graphs.diff_pct), (None, None));
    assert!(graphs.profile2_unknown.is_some());
    pair.judge_components(0.0, 0);
    let limit = pair.limit.unwrap();
    assert_eq!(limit.not_judged, ["cuda_graphs"]);
}

#[test]
fn another_witness_of_the_same_part_is_told() {
    let mut other = gpu();
    for e in other
        .evidence
        .iter_mut()
        .filter(|e| e.used && e.component == Component::ModelWeights)
    {
        e.source = EvidenceSource::MeasuredDelta;
    }
    let pair = Pair::compare_subjects(
        &Subject::subject_of_profile(&gpu(), "a"),
        &Subject::subject_of_profile(&other, "b"),
    );
    let told = pair.warnings.iter().any(|w| {
        w == "Model weights rests on different witnesses: the engine's log in A, measured in B"
    });
    assert!(told, "{:?}", pair.warnings);
}

#[test]
fn a_run_that_failed_is_not_judged() {
    let mut failed = gpu();
    failed.metadata.outcome = RunEnd::BenchFailed("exit code 1".into());
    let pair = Pair::compare_subjects(
        &Subject::subject_of_profile(&gpu(), "a"),
        &Subject::subject_of_profile(&failed, "b"),
    );
    assert_eq!(pair.incomparable, ["B: the run failed: exit code 1"]);
}

const OLDER: &str = r#"{
  "memory_breakdown": {"model_weights_gb": 13.0, "kv_cache_gb": 0.5, "activations_gb": 1.0, "framework_overhead_gb": -0.25, "total_gb": 14.25},
  "model_info": {"model_name": "org/seven", "dtype": "torch.float16", "prompt_length": 8, "batch_size": 1}
}"#;

#[test]
fn a_document_of_an_earlier_tool_is_read_by_its_totals() {
    let folder = Folder::new();
    let a = folder.put("old.json", OLDER);
    let b = folder.profile("new.json", &gpu());
    let document = folder.json(&["compare", "--json"], &[&a, &b]);
    assert_eq!(row(&document, "model_weights")["profile1_gb"], 13.0);
    assert_eq!(document["profile1"]["model"], "org/seven");
    let warnings = document["warnings"].to_string();
    assert!(warnings.contains("earlier schema"), "{warnings}");
    // Its overhead is one figure: the parts of the other's are in no row of it.
    assert!(row(&document, "cuda_graphs")["profile1_gb"].is_null());

    let given = [
        "compare",
        "--calc-weights",
        "13.1",
        "--calc-kv",
        "0.7",
        "--calc-activations",
        "0.9",
        "--calc-overhead",
        "0.6",
    ];
    let (code, out, err) = folder.run(&given, &[&a]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("Excellent") && out.contains("Poor"), "{out}");
    assert!(out.contains("the overhead is negative"), "{out}");
    assert!(
        out.contains("KV cache pool: calculated 40 % too high, which is wrong"),
        "{out}"
    );
}

#[test]
fn figures_calculated_elsewhere_are_graded_over_all_profiles() {
    let folder = Folder::new();
    let files = [
        folder.profile("a.json", &gpu()),
        folder.profile("b.json", &with_graphs("0.80")),
    ];
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let document = folder.json(
        &[
            "compare",
            "--json",
            "--calc-weights",
            "30.5",
            "--calc-kv",
            "40GiB",
        ],
        &files,
    );
    assert_eq!(document["profiles"].as_array().unwrap().len(), 2);
    let rows = &document["profiles"][0]["rows"];
    assert_eq!(rows[0]["grade"], "excellent");
    assert_eq!(rows[1]["grade"], "poor");
    assert_eq!(rows[1]["error_pct"], -50.0);
    assert_eq!(document["summary"][1]["n"], 2);
    let (code, out, _) = folder.run(
        &["compare", "--calc-weights", "30.5", "--fail-on", "2%"],
        &files,
    );
    assert_eq!(code, 0, "{out}");
    let (code, out, _) = folder.run(&["compare", "--calc-kv", "40", "--fail-on", "15%"], &files);
    assert_eq!(code, 7, "{out}");
}

#[test]
fn a_figure_for_the_load_is_not_a_figure_for_the_pool() {
    // 11 % of 80 GiB were in use.
    let given = ExternalFigures {
        kv: Some(9 * GIB),
        ..ExternalFigures::default()
    };
    let subjects = [Subject::subject_of_profile(&gpu(), "a")];
    let pool = GivenReport::compare_with_given(&subjects, &given);
    assert!(
        pool.profiles[0].recommendations[0].contains("--kv-basis used"),
        "{pool:?}"
    );
    let used = ExternalFigures {
        basis: KvBasis::Used,
        ..given
    };
    let used = GivenReport::compare_with_given(&subjects, &used);
    let error = used.profiles[0].rows[0].error_pct.unwrap();
    assert!((error - (9.0 / 8.8 - 1.0) * 100.0).abs() < 0.01, "{error}");
    assert!(used.profiles[0].recommendations.is_empty());
}

#[test]
fn what_is_no_profile_is_told_with_the_right_code() {
    let folder = Folder::new();
    let good = folder.profile("good.json", &gpu());
    let text = folder.put("notes.txt", "dear diary");
    let newer = folder.put(
        "newer.json",
        r#"{"schema_version": "5.0", "memory_breakdown": {}}"#,
    );
    let missing = folder.path("missing.json");
    let empty = folder.path("empty");
    std::fs::create_dir_all(&empty).unwrap();
    for (args, files, code, said) in [
        (&["compare"][..], vec![&good, &text], 2, "is not a profile"),
        (&["compare"][..], vec![&good, &newer], 2, "newer plimsoll"),
        (&["compare"][..], vec![&good, &missing], 2, "cannot read"),
        (&["compare"][..], vec![&good, &empty], 2, "is a folder"),
        (&["compare"][..], vec![&good], 2, "two profiles"),
        (
            &["compare"][..],
            vec![&good, &good, &good],
            2,
            "two profiles",
        ),
        (
            &["compare", "--fail-on=-1%"][..],
            vec![&good, &good],
            2,
            "percent",
        ),
        (&["compare", "--calc-kv=-3"][..], vec![&good], 2, "GiB"),
        (&["validate"][..], vec![&empty], 2, "there is no profile in"),
        (&["validate"][..], vec![&text], 2, "is not a profile"),
        (&["validate"][..], vec![&missing], 2, "cannot read"),
        (
            &["calibrate"][..],
            vec![&empty],
            2,
            "there is no profile in",
        ),
        (
            &["calibrate", "--correlations"][..],
            vec![&empty],
            2,
            "there is no profile in",
        ),
    ] {
        let files: Vec<&Path> = files.into_iter().map(PathBuf::as_path).collect();
        let (ended, out, err) = folder.run(args, &files);
        assert_eq!(ended, code, "{args:?} {files:?}: {err}");
        assert!(
            err.contains(said) && !err.contains("bug"),
            "{args:?}: {err}"
        );
        assert!(out.is_empty(), "{out}");
    }
}

#[test]
fn names_from_outside_are_no_formulas_in_a_spreadsheet() {
    let folder = Folder::new();
    let mut evil = gpu();
    evil.configuration
        .effective
        .insert("model".into(), "=HYPERLINK(\"x\")".into());
    evil.model_info.name = Some("=HYPERLINK(\"x\")".into());
    let a = folder.profile("a.json", &gpu());
    let b = folder.profile("b.json", &evil);
    let table = folder.path("t.csv");
    let (code, _, err) = folder.run(&["compare", "--csv", table.to_str().unwrap()], &[&a, &b]);
    assert_eq!(code, 0, "{err}");
    let text = std::fs::read_to_string(&table).unwrap();
    assert!(
        text.starts_with("component,unit,profile1,profile2,diff,diff_pct"),
        "{text}"
    );
    assert!(
        text.contains("\"'=HYPERLINK")
            && !text.contains(",\"=HYPERLINK")
            && !text.contains(",=HYPERLINK"),
        "{text}"
    );
    let reports = folder.path("reports");
    let args = ["validate", "--output-dir", reports.to_str().unwrap()];
    assert_eq!(folder.run(&args, &[&b]).0, 0);
    let csv = std::fs::read_dir(&reports)
        .unwrap()
        .flatten()
        .map(|e| e.path());
    let csv = csv
        .into_iter()
        .find(|p| p.extension().is_some_and(|e| e == "csv"))
        .unwrap();
    let text = std::fs::read_to_string(csv).unwrap();
    assert!(
        text.contains("'=HYPERLINK") && !text.contains(",=HYPERLINK"),
        "{text}"
    );
}

/// Parts, as a peak of a run may have them.
fn parts() -> impl Strategy<Value = Profile> {
    const PARTS: [Component; 5] = [
        Component::Baseline,
        Component::ModelWeights,
        Component::KvCache,
        Component::CudaGraphs,
        Component::Unexplained,
    ];
    let bytes = proptest::option::of(-(1i64 << 40)..(1i64 << 40));
    (
        proptest::array::uniform5(bytes),
        proptest::option::of(0..(1u64 << 45)),
    )
        .prop_map(|(parts, total)| {
            let mut profile = gpu();
            profile.memory_breakdown.total_measured_bytes = total;
            profile.memory_breakdown.components = PARTS
                .iter()
                .zip(parts)
                .filter_map(|(component, bytes)| {
                    Some(Part {
                        component: *component,
                        bytes: bytes?,
                        gb: 0.0,
                        percent: 0.0,
                        confidence: Confidence::unknown_confidence(),
                    })
                })
                .collect();
            profile
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_other_way_round_is_the_negative(a in parts(), b in parts(), percent in 0.0..100.0f64) {
        let (a, b) = (Subject::subject_of_profile(&a, "a"), Subject::subject_of_profile(&b, "b"));
        let (mut there, back) = (Pair::compare_subjects(&a, &b), Pair::compare_subjects(&b, &a));
        prop_assert_eq!(there.diff_gb.map(|d| -d), back.diff_gb);
        prop_assert_eq!(there.components.len(), back.components.len());
        for (one, other) in there.components.iter().zip(&back.components) {
            prop_assert_eq!(&one.component, &other.component);
            prop_assert_eq!(one.diff_gb.map(|d| -d), other.diff_gb);
            prop_assert_eq!(one.profile1_gb.is_none(), one.profile1_unknown.is_some());
            prop_assert_eq!(one.diff_gb.is_some(), one.profile1_gb.is_some() && one.profile2_gb.is_some());
        }
        // What is judged and what is not are all there is, and nothing moves against itself.
        there.judge_components(percent, 0);
        let limit = there.limit.unwrap();
        prop_assert!(limit.exceeded.iter().all(|e| !limit.not_judged.contains(e)));
        let mut same = Pair::compare_subjects(&a, &a);
        same.judge_components(0.0, 0);
        prop_assert!(same.limit.unwrap().exceeded.is_empty());
        prop_assert!(same.settings.is_empty());
    }
}

/// What might have been calculated for [`gpu`].
fn calculated() -> Calculated {
    let mut c = Calculated::nothing_calculated("nobody calculated it");
    c.basis = "the test's own figures".into();
    let weights = CalculatedFigure {
        value: Ok(GPU.weights),
        band: Some((GPU.weights - MIB, GPU.weights + MIB)),
    };
    let kv_pool = CalculatedFigure {
        value: Ok(44 * GIB),
        band: Some((43 * GIB, 45 * GIB)),
    };
    c.set_claim(Item::Weights, weights);
    c.set_claim(Item::KvPool, kv_pool);
    c.set_claim(Item::KvTokens, Ok(436_904).into());
    c.set_claim(Item::CudaGraphs, Ok(GIB).into());
    c
}

#[test]
fn a_pool_is_held_against_the_pool_of_one_gpu() {
    let run = RunValidation::validate_run(&gpu(), "a.json", &calculated());
    let of = |item| run.items.iter().find(|r| r.item == item).unwrap();
    // Each GPU has 40 GiB, both together 80.
    assert_eq!(of(Item::KvPool).measured, Some(40.0 * GIB as f64));
    assert!((of(Item::KvPool).error_pct.unwrap() - 10.0).abs() < 1e-9);
    assert_eq!(
        (of(Item::KvPool).within_tolerance, of(Item::KvPool).in_band),
        (Some(true), Some(false))
    );
    assert_eq!(of(Item::KvTokens).error_pct, Some(0.0));
    assert_eq!(
        (
            of(Item::Weights).within_tolerance,
            of(Item::Weights).in_band
        ),
        (Some(true), Some(true))
    );
    assert_eq!(
        of(Item::CudaGraphs).within_tolerance,
        Some(false),
        "twice as much is beyond 40 %"
    );
    // The load's own activations are not the peak of the engine's profile run.
    assert!(
        of(Item::Total)
            .unknown
            .as_ref()
            .unwrap()
            .contains("nobody calculated it")
    );
    assert!(
        run.items.iter().all(|r| r.item != Item::Activation),
        "neither side knows it"
    );

    let mut all = Validation::validate_runs(vec![run.clone(), run.clone(), run], Vec::new());
    let advice = all.recommendations.join("\n");
    assert!(
        advice.contains("CUDA graphs is calculated 100 % too high for all runs"),
        "{advice}"
    );
    assert!(
        advice.contains("KV pool: 0 of 3 measurements of all runs lie in the 90 % interval"),
        "{advice}"
    );
    all.judge_errors(None);
    let limit = all.limit.as_ref().unwrap();
    assert_eq!((limit.judged, limit.exceeded.len()), (12, 3));
    insta::assert_snapshot!(terminal_page(
        &report::validation::validation_report(&all),
        TextOptions::default()
    ));
}

#[test]
fn host_memory_is_not_held_against_a_gpu() {
    let mut profile = serving_host().derive();
    profile.evidence.push(Evidence {
        component: Component::KvCache,
        gpu_id: 0,
        bytes: 512 * MIB as i64,
        source: EvidenceSource::EngineMetrics,
        quote: "kv_cache_memory_bytes".into(),
        used: false,
    });
    profile.memory_breakdown.components.push(Part {
        component: Component::KvCache,
        bytes: 100 * MIB as i64,
        gb: 0.0,
        percent: 0.0,
        confidence: Confidence::unknown_confidence(),
    });
    let mut c = calculated();
    c.set_claim(Item::Total, Ok(GIB).into());
    let run = RunValidation::validate_run(&profile, "a.json", &c);
    let of = |item| run.items.iter().find(|r| r.item == item).unwrap();
    assert!(
        of(Item::Total)
            .unknown
            .as_ref()
            .unwrap()
            .contains("host memory")
    );
    // The pool is the engine's word, and not what of it was touched.
    assert_eq!(of(Item::KvPool).measured, Some(512.0 * MIB as f64));
    assert!(
        deployment_of(&profile)
            .unwrap_err()
            .what
            .contains("reference")
    );
}

#[test]
fn a_deployment_is_what_was_in_force() {
    let d = deployment_of(&gpu()).unwrap();
    assert_eq!(
        (d.engine, d.version),
        (EngineId::Vllm, Some(Version::new(0, 11, 0)))
    );
    assert_eq!((d.tp, d.pp, d.max_model_len), (2, 1, Some(8192)));
    assert_eq!(
        (d.eager, d.dtype.as_deref()),
        (Some(false), Some("bfloat16"))
    );
    let gpu = d.gpu.unwrap();
    // The other tenant is on the first.
    assert_eq!(
        (gpu.total, gpu.in_use),
        (81_559 * MIB - GPU.reserved, GPU.tenant),
        "as CUDA counts it: without what the driver keeps"
    );
}

#[test]
fn reports_are_written_for_each_batch() {
    let folder = Folder::new();
    folder.profile("a.json", &gpu());
    folder.profile("deep/b.json", &with_graphs("0.80"));
    folder.put("results.json", r#"{"document": "sweep"}"#);
    let results = folder.path("");
    for _ in 0..2 {
        let (code, out, err) = folder.run(&["validate"], &[&results]);
        assert_eq!(code, 0, "{out}{err}");
        assert!(
            out.contains("2 runs") && err.contains("summary:"),
            "{out}{err}"
        );
    }
    let names: Vec<String> = std::fs::read_dir(folder.path("validation-reports"))
        .unwrap()
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    let count = |start: &str, end: &str| {
        names
            .iter()
            .filter(|n| n.starts_with(start) && n.ends_with(end))
            .count()
    };
    assert_eq!(
        (
            count("batch-summary-", ".txt"),
            count("batch-validation-", ".csv")
        ),
        (2, 2),
        "{names:?}"
    );
    let document = folder.json(&["validate", "--json"], &[&results]);
    assert_eq!(document["runs"].as_array().unwrap().len(), 2);
    assert_eq!(document["document"], "validation");
}

#[test]
fn what_was_measured_is_held_against_what_is_calculated() {
    let folder = Folder::new();
    let mut profile = gpu();
    profile.model_info.name = Some("Qwen/Qwen3-8B".into());
    folder.profile("a.json", &profile);
    folder.profile("copy.json", &profile);
    profile.model_info.name = Some("nobody/knows-this".into());
    profile.metadata.run_id = "another".into();
    folder.profile("unknown.json", &profile);
    let document = folder.json(&["validate", "--json"], &[&folder.path("")]);
    let runs = document["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2, "a copy is no second run");
    let of = |file: &str| {
        let ends = |r: &&Value| r["file"].as_str().unwrap().ends_with(file);
        runs.iter().find(ends).unwrap()["items"].as_array().unwrap()
    };
    let item = |file: &str, name: &str| {
        let found = of(file).iter().find(|i| i["item"] == name);
        found.unwrap_or_else(|| panic!("{name} in {file}")).clone()
    };
    // 36 layers, 4 of 8 heads on each of 2 GPUs, 128 values, keys and values of 2 bytes.
    let tokens = item("a.json", "kv_tokens")["calculated"].as_f64().unwrap();
    let pool = item("a.json", "kv_pool")["calculated"].as_f64().unwrap();
    // What is less than a block of 16 is left.
    assert!(
        (0.0..16.0 * 73_728.0).contains(&(pool - tokens * 73_728.0)),
        "{pool} / {tokens}"
    );
    let weights = item("a.json", "weights")["calculated"].as_f64().unwrap();
    assert!(
        (weights / (1u64 << 30) as f64 - 7.64).abs() < 0.05,
        "{weights}"
    );
    let unknown = item("unknown.json", "weights");
    assert!(unknown["calculated"].is_null() && unknown["error_pct"].is_null());
    assert!(unknown.to_string().contains("knows-this"), "{unknown}");
}

#[test]
fn an_estimate_takes_what_own_runs_have_taught() {
    let folder = Folder::new();
    for gib in ["0.50", "0.60", "0.70"] {
        let mut profile = with_graphs(gib);
        profile.model_info.name = Some("Qwen/Qwen3-8B".into());
        folder.profile(&format!("{gib}.json"), &profile);
    }
    let learned = folder.json(&["calibrate", "--json"], &[&folder.path("")]);
    let key = &learned["entries"][0]["key"];
    let (version, tp) = (key["version"].as_str().unwrap(), key["tp"].to_string());
    let asked = |more: &[&str]| {
        let deployment = [
            "Qwen/Qwen3-8B",
            "--gpu",
            "H100",
            "--engine-version",
            version,
        ];
        let args = [&["estimate", "--json", "--tp", &tp][..], &deployment, more].concat();
        folder.json(&args, &[])
    };
    let graphs = |e: &Value| e["per_gpu"]["cuda_graph_gib"].as_f64().unwrap();
    let told = asked(&[]);
    let last = learned["runs"].as_array().unwrap().last().unwrap();
    let bytes = last["cuda_graphs"].as_f64().unwrap();
    assert!(
        (graphs(&told) - bytes / (1u64 << 30) as f64).abs() < 0.001,
        "{told}"
    );
    assert!(
        told["terms"]
            .to_string()
            .contains("the last start of this model")
    );
    let formula = asked(&["--no-calibration"]);
    assert!((graphs(&formula) - graphs(&told)).abs() > 0.001);
    // Of another version nothing is known.
    let args = [
        "estimate",
        "Qwen/Qwen3-8B",
        "--gpu",
        "H100",
        "--engine-version",
        "0.19.0",
        "--json",
    ];
    assert!(!folder.json(&args, &[]).to_string().contains("last start"));
    let broken = folder.put("broken.json", "{}");
    let args = ["estimate", "Qwen/Qwen3-8B", "--calibration"];
    let (code, _, err) = folder.run(&args, &[&broken]);
    assert!(
        code == 2 && err.contains("is not a calibration that"),
        "{err}"
    );
}

#[test]
fn overheads_are_learned_from_three_runs_and_a_run_counts_once() {
    let folder = Folder::new();
    folder.profile("a.json", &with_graphs("0.50"));
    folder.profile("b.json", &with_graphs("0.60"));
    let results = folder.path("");
    let two = folder.json(&["calibrate", "--json"], &[&results]);
    assert_eq!(two["entries"][0]["key"]["gpu"], "H100 SXM 80GB");
    assert_eq!(two["entries"][0]["cuda_graphs"]["n"], 2);
    assert!(
        two["entries"][0]["cuda_graphs"]["figures"].is_null(),
        "two are no data"
    );
    folder.profile("c.json", &with_graphs("0.70"));
    folder.profile("pretends.json", &{
        let mut p = with_graphs("9.00");
        p.metadata.simulated = true;
        p
    });
    let three = folder.json(&["calibrate", "--json"], &[&results]);
    let graphs = &three["entries"][0]["cuda_graphs"];
    assert_eq!(graphs["n"], 3);
    let median = graphs["figures"]["median"].as_u64().unwrap() as f64 / GIB as f64;
    assert!((median - 0.6).abs() < 1e-6, "{graphs}");
    assert!(
        folder
            .0
            .path()
            .join("state/plimsoll/calibration.json")
            .is_file()
    );
    // The state folder remembers what the results folder has lost.
    std::fs::remove_file(folder.path("a.json")).unwrap();
    let later = folder.json(&["calibrate", "--json"], &[&results]);
    assert_eq!(later["runs"].as_array().unwrap().len(), 3);
    let fresh = folder.json(&["calibrate", "--json", "--fresh"], &[&results]);
    assert_eq!(fresh["runs"].as_array().unwrap().len(), 2);

    let (code, out, err) = folder.run(&["calibrate"], &[&results]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("CUDA graphs at the last start"), "{out}");
    assert!(
        out.contains("1 of them: the engine or a device is simulated"),
        "{out}"
    );
    let diary = folder.put("diary.json", r#"{"schema_version": "1.0"}"#);
    let (code, _, err) = folder.run(
        &["calibrate", "--output", diary.to_str().unwrap()],
        &[&results],
    );
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("not a calibration that"), "{err}");
}

#[test]
fn correlations_need_three_runs() {
    let mut all = Vec::new();
    for (i, batch) in [2u32, 4, 8, 16].into_iter().enumerate() {
        let mut p = gpu();
        p.parameters.workload.max_concurrency = Some(batch);
        p.memory_breakdown.activations_gb = Some(f64::from(batch) * 0.5 + 1.0);
        p.memory_breakdown.framework_overhead_gb = Some([4.0, 3.0, 2.0, 1.0][i]);
        p.memory_breakdown.model_weights_gb = Some([1.0, 2.0, 4.0, 8.0][i]);
        all.push(p);
    }
    let refs: Vec<&Profile> = all.iter().collect();
    let found = Correlations::correlate_profiles(&refs);
    let of = |x: &str, y: &str| {
        found
            .across_runs
            .iter()
            .find(|c| c.x.starts_with(x) && c.y.starts_with(y))
            .unwrap()
    };
    assert!((of("activations", "batch").pearson.unwrap() - 1.0).abs() < 1e-9);
    let overhead = of("framework overhead", "model weights");
    assert!((overhead.spearman.unwrap() + 1.0).abs() < 1e-9 && overhead.pearson.unwrap() > -1.0);
    assert_eq!(
        of("peak", "batch").unknown.as_deref(),
        Some("no data: one of them is always the same")
    );
    assert!(
        of("framework overhead", "parameters")
            .unknown
            .as_ref()
            .unwrap()
            .starts_with("no data: 0 points")
    );
    insta::assert_snapshot!(terminal_page(
        &report::chapters::correlations_report(&found),
        TextOptions::default()
    ));
    let folder = Folder::new();
    let one = folder.profile("a.json", &gpu());
    let (code, out, _) = folder.run(&["calibrate", "--correlations"], &[&one]);
    assert_eq!(code, 0);
    assert!(out.contains("no data"), "{out}");
    assert!(
        !folder.0.path().join("state").exists(),
        "looking changes nothing"
    );
}

#[test]
fn the_page_of_two_profiles() {
    let mut other = with_graphs("0.80");
    other
        .configuration
        .effective
        .insert("max_num_seqs".into(), "512".into());
    let flags = ["block_size", "enable_prefix_caching", "seed"];
    let effective = &mut other.configuration.effective;
    effective.extend(flags.map(|name| (name.into(), "None".into())));
    other.parameters.workload.num_prompts = Some(400);
    other.parameters.workload.input_len = 2048;
    let mut pair = Pair::compare_subjects(
        &Subject::subject_of_profile(&gpu(), "a.json"),
        &Subject::subject_of_profile(&other, "b.json"),
    );
    pair.judge_components(5.0, 1 << 20);
    insta::assert_snapshot!(terminal_page(
        &report::compare::pair_report(&pair),
        TextOptions::default()
    ));
}

#[test]
fn the_page_of_figures_calculated_elsewhere() {
    let given = ExternalFigures {
        weights: Some(30 * GIB),
        kv: Some(9 * GIB),
        activations: Some(GIB),
        overhead: Some(2 * GIB),
        basis: KvBasis::Pool,
    };
    let subjects = [
        Subject::subject_of_profile(&gpu(), "a.json"),
        Subject::subject_of_profile(&with_graphs("0.80"), "b.json"),
    ];
    insta::assert_snapshot!(terminal_page(
        &report::given::given_report(&GivenReport::compare_with_given(&subjects, &given)),
        TextOptions::default()
    ));
}
