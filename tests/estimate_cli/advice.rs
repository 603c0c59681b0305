//! What `estimate` proposes where a deployment does not fit, or not surely: each proposal is asked about again.

use super::{command, document, refused, told};
use crate::common::e2e::Live;
use serde_json::Value;

/// The settings of the actions that a page proposes.
fn proposed(page: &Value) -> Vec<String> {
    let actions = page["actions"].as_array().unwrap().iter();
    actions
        .map(|a| a["setting"].as_str().unwrap().to_owned())
        .collect()
}

/// The page of a line of vLLM on a GPU, and its risk with each proposal.
#[track_caller]
fn asked_again(gpu: &str, line: &str) -> (Value, Vec<(String, String)>) {
    let own = ["--gpu", gpu, "--"];
    let words: Vec<&str> = own.into_iter().chain(line.split(' ')).collect();
    let page = document(&words);
    let again = proposed(&page).into_iter().map(|setting| {
        let words: Vec<&str> = words.iter().copied().chain(setting.split(' ')).collect();
        let risk = document(&words)["risk"]
            .as_str()
            .unwrap_or("unknown")
            .to_owned();
        (setting, risk)
    });
    let again = again.collect();
    (page, again)
}

#[test]
fn each_proposal_lowers_the_risk_of_what_may_not_fit() {
    for (gpu, line) in [
        ("RTX4090", "vllm serve Qwen/Qwen3-8B --max-model-len 32768"),
        (
            "RTX4090",
            "vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.99 --max-model-len 8192",
        ),
        (
            "H100",
            "vllm serve Qwen/Qwen3.5-35B-A3B --gpu-memory-utilization 0.9 --max-num-seqs 1024",
        ),
        ("L40S", "vllm serve Qwen/Qwen3.5-27B-FP8"),
        ("A100-80GB", "sglang serve --model-path Qwen/Qwen3-32B"),
    ] {
        let (page, again) = asked_again(gpu, line);
        let risk = page["risk"].as_str().unwrap();
        if ["low", "medium"].contains(&risk) {
            assert!(again.is_empty(), "{line}: {again:?}");
            continue;
        }
        assert!(!again.is_empty(), "{line}: {risk}");
        for (setting, risk) in &again {
            assert!(
                ["low", "medium"].contains(&risk.as_str()),
                "{line} {setting}: {risk}"
            );
        }
    }
}

#[test]
fn what_the_engine_refuses_does_not_start_and_whole_experts_do() {
    let line = "vllm serve Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8 -tp 8 --max-model-len 32768";
    let (page, again) = asked_again("H100", line);
    let verdict = page["verdict"].as_str().unwrap();
    assert!(
        verdict.starts_with("Does not start: an expert's width of 2560"),
        "{verdict}"
    );
    assert_eq!(
        (&page["fits"], &page["risk"]),
        (&Value::from(false), &Value::from("does-not-fit"))
    );
    let (setting, risk) = &again[0];
    assert!(setting.starts_with("--enable-expert-parallel"), "{again:?}");
    assert_ne!(risk, "does-not-fit");
    let words = format!("--gpu H200 --check-oom -- {line}");
    told(&words.split(' ').collect::<Vec<_>>()).expect(6);
}

#[test]
fn sglang_starts_with_a_pool_that_is_too_small_for_the_longest_request() {
    let (page, again) = asked_again(
        "RTX4090",
        "sglang serve --model-path Qwen/Qwen3-8B --mem-fraction-static 0.8",
    );
    let verdict = page["verdict"].as_str().unwrap();
    assert!(
        verdict.starts_with("Starts, but ")
            && verdict.contains("The engine refuses requests of more than"),
        "{verdict}"
    );
    assert!(
        again
            .iter()
            .any(|(setting, _)| setting.starts_with("--context-length ")),
        "{again:?}"
    );
}

#[test]
fn experts_of_as_few_layers_as_possible_go_to_the_host() {
    let line = "llama-server -m Qwen/Qwen3-30B-A3B -c 8192";
    let words = |more: &str| format!("--gpu RTX4090 --quantization Q8_0 -- {line}{more}");
    let page = |more: &str| document(&words(more).split(' ').collect::<Vec<_>>());
    let found = page("");
    let setting = proposed(&found)
        .into_iter()
        .find(|s| s.starts_with("--n-cpu-moe "));
    let setting = setting.unwrap_or_else(|| panic!("{}", found["actions"]));
    let layers: u64 = setting.split(' ').next_back().unwrap().parse().unwrap();
    assert_eq!(
        page(&format!(" {setting}"))["risk"],
        "medium",
        "no run was measured"
    );
    assert_eq!(
        page(&format!(" --n-cpu-moe {}", layers - 1))["risk"],
        "high"
    );
    let host = &page(&format!(" {setting}"))["host"][0];
    assert!(
        host["bytes"].as_u64().unwrap() > layers * (1 << 28),
        "{host}"
    );
}

#[test]
fn a_line_needs_no_dashes_before_it_where_it_starts_an_engine() {
    let apart = told(&[
        "--gpu",
        "H100",
        "--",
        "vllm",
        "serve",
        "Qwen/Qwen3-8B",
        "-tp",
        "2",
    ]);
    let joined = told(&[
        "--gpu",
        "H100",
        "vllm",
        "serve",
        "Qwen/Qwen3-8B",
        "-tp",
        "2",
    ]);
    let apart = apart.expect(0).stdout;
    assert_eq!(joined.expect(0).stdout, apart);
    let behind = told(&[
        "vllm",
        "serve",
        "Qwen/Qwen3-8B",
        "-tp",
        "2",
        "--gpu",
        "H100",
    ]);
    assert_eq!(behind.expect(0).stdout, apart);
    let ended = Live::start(command(&["--gpu", "H100", "Qwen/Qwen3-8B", "serve"])).end();
    assert!(
        ended
            .expect(2)
            .stderr
            .contains("unexpected argument 'serve'")
    );
}

#[test]
fn a_number_of_gpus_in_a_name_is_said_by_a_flag() {
    for name in ["4x4090", "4 x RTX 4090", "4090 x4"] {
        let said = refused(&["Qwen/Qwen3-8B", "--gpu", name], 2);
        assert!(said.contains("--gpu \"GeForce RTX 4090\" --tp 4"), "{said}");
        assert!(!said.contains("--gpu-memory"), "{said}");
    }
    let said = refused(&["Qwen/Qwen3-8B", "--gpu", "RTX4099"], 2);
    assert!(!said.contains("--tp"), "{said}");
}

#[test]
fn only_gpus_that_have_nvlink_are_called_joined_by_it() {
    let page = |gpu: &str| {
        let release = "--engine-version=0.14.0";
        let page = document(&["meta-llama/Llama-3.1-8B", "--gpu", gpu, "--tp=4", release]);
        page["terms"].to_string()
    };
    let (cards, boards) = (page("RTX4090"), page("A100-80GB"));
    assert!(
        !cards.contains("NVLink") && boards.contains("NVLink"),
        "{cards}\n{boards}"
    );
}

#[test]
fn nothing_is_proposed_that_the_gpu_or_the_model_refuses() {
    // Below compute capability 8.9 vLLM reads no cache in fp8 of latent attention, Gemma 4 and gpt-oss.
    for (gpu, line) in [
        ("RTX 3090", "vllm serve deepseek-ai/DeepSeek-V2-Lite-Chat"),
        ("A100-80GB", "vllm serve google/gemma-4-31B-it"),
    ] {
        let fp8 = format!("{line} --kv-cache-dtype fp8 --max-model-len 4096");
        let (page, _) = asked_again(gpu, &fp8);
        let verdict = page["verdict"].as_str().unwrap();
        assert!(verdict.starts_with("Does not start"), "{line}: {verdict}");
        let (_, again) = asked_again(gpu, line);
        assert!(
            again.iter().all(|(setting, _)| !setting.contains("fp8")),
            "{again:?}"
        );
    }
    // Qwen3-14B has 40,960 positions.
    let line = "vllm serve Qwen/Qwen3-14B --max-model-len 131072";
    let (_, again) = asked_again("L40S", line);
    let lengths: Vec<u64> = again
        .iter()
        .filter_map(|(setting, _)| setting.strip_prefix("--max-model-len ")?.parse().ok())
        .collect();
    assert_eq!(lengths, [40_960], "{again:?}");
}

#[test]
fn a_flag_that_may_lower_what_is_needed_leaves_the_answer_open() {
    let line = "vllm serve Qwen/Qwen3-VL-8B-Instruct --limit-mm-per-prompt {\"image\":1} --max-model-len 8192";
    let (page, _) = asked_again("L4", line);
    assert_eq!(page["fits"], Value::Null);
    let verdict = page["verdict"].as_str().unwrap();
    assert!(verdict.starts_with("Unknown"), "{verdict}");
}
