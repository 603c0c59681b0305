//! A sweep asks the estimate what fits before anything is started: the real binary, on GPUs of the stand-in.

use crate::common;
use crate::common::stage;
use common::e2e::{Ended, Live, plimsoll};
use serde_json::Value;

const SWEEP: &str = "\
defaults: {preset: vllm-cuda, gpus: 1, batch_sizes: [1, 8], input_lengths: 128, output_lengths: 128, max_model_len: 4096}
models:
  - {model_id: meta-llama/Llama-3.1-70B}
  - {model_id: meta-llama/Llama-3.1-8B}
  - {model_id: nobody/knows-70B, model_params: 70.0e+9, num_layers: 80, num_heads: 64, num_kv_heads: 8, head_dim: 128, hidden_size: 8192}
  - {model_id: nobody/knows-8B}
  - {model_id: m, preset: reference, gpus: none}
";

/// A dry run where no Docker is: the plan is told first.
fn dry_run(gpus: &str, args: &[&str]) -> Ended {
    let dir = tempfile::tempdir().unwrap();
    let (file, scenario) = (dir.path().join("sizes.yaml"), dir.path().join("scenario"));
    std::fs::write(&file, SWEEP).unwrap();
    std::fs::write(&scenario, gpus).unwrap();
    let file = file.display().to_string();
    let mut command = plimsoll(&["sweep", &file, "--dry-run"]);
    command
        .args(args)
        .arg(format!("--results-dir={}", dir.path().display()))
        .env("HF_HUB_CACHE", "/nowhere")
        .env("DOCKER_HOST", "unix:///nowhere.sock")
        .env("PLIMSOLL_NVML_LIBRARY", stage::library())
        .env(stage::SCENARIO_VARIABLE, &scenario);
    Live::start(command).end().expect(3)
}

fn plan(gpus: &str, args: &[&str]) -> Value {
    let args = [&["--json"], args].concat();
    serde_json::from_str(&dry_run(gpus, &args).stdout).unwrap()
}

/// What is said of each group that will run: its model and the answer.
fn answers(plan: &Value) -> Vec<(&str, &str)> {
    let groups = plan["groups"].as_array().unwrap().iter();
    assert!(groups.clone().all(|g| g["fit"]["why"].is_string()));
    groups
        .map(|g| {
            (
                g["model"].as_str().unwrap(),
                g["fit"]["answer"].as_str().unwrap(),
            )
        })
        .collect()
}

const RTX_4090: &str =
    "gpu GPU-11111111-bbbb-1111-1111-111111111111 24564 364 NVIDIA GeForce RTX 4090\n";
const B200: &str = "gpu GPU-22222222-cccc-2222-2222-222222222222 183359 600 NVIDIA B200\n";

#[test]
fn what_cannot_fit_is_left_out_and_what_may_is_run() {
    let small = plan(RTX_4090, &[]);
    assert_eq!(
        answers(&small),
        [
            ("meta-llama/Llama-3.1-8B", "fits"),
            ("nobody/knows-70B", "may_not_fit"),
            ("nobody/knows-8B", "unknown"),
            ("m", "unknown"),
        ]
    );
    let skipped = small["skipped"].as_array().unwrap();
    assert_eq!(skipped.len(), 2, "{skipped:?}");
    for cell in skipped {
        assert_eq!(cell["model"], "meta-llama/Llama-3.1-70B");
        assert_eq!(cell["cause"], "does_not_fit");
        assert!(cell["why"].as_str().unwrap().contains("RTX 4090"));
    }
    let page = dry_run(RTX_4090, &[]).stdout;
    for words in [
        "fits by the estimate: the cache holds",
        "may not fit by the estimate",
        "2 cells skipped",
        "--run-anyway",
        "Whether 2 groups fit is not known",
    ] {
        assert!(page.contains(words), "{words}:\n{page}");
    }

    let anyway = plan(RTX_4090, &["--run-anyway"]);
    let first = answers(&anyway)[0];
    assert_eq!(first, ("meta-llama/Llama-3.1-70B", "does_not_fit"));
    assert_eq!(anyway["skipped"].as_array().unwrap().len(), 0);

    // The largest GPU that is here is the one that counts.
    let large = plan(&format!("{RTX_4090}{B200}"), &[]);
    assert_eq!(answers(&large)[0], ("meta-llama/Llama-3.1-70B", "fits"));
    assert_eq!(large["skipped"].as_array().unwrap().len(), 0);
}
