//! Several models on the same GPU: services of a file of Compose, and one model beside what is there.

use super::{document, refused, told};
use serde_json::{Value, json};
use std::io::Write as _;

const GPU_0: &str =
    "{resources: {reservations: {devices: [{driver: nvidia, count: 1, capabilities: [gpu]}]}}}";

/// Services of vLLM with these words, all on the first GPU.
fn compose(services: &[(&str, &str)]) -> tempfile::NamedTempFile {
    let mut text = "services:\n".to_owned();
    for (name, words) in services {
        text += &format!(
            "  {name}:\n    image: vllm/vllm-openai:v0.19.1\n    command: --model {words}\n    deploy: {GPU_0}\n"
        );
    }
    text += "  db:\n    image: postgres\n";
    written(&text)
}

fn written(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

#[track_caller]
fn planned(file: &tempfile::NamedTempFile, more: &[&str]) -> Value {
    let path = file.path().to_str().unwrap();
    document(&[&["--compose", path, "--gpu", "H100"], more].concat())
}

fn names(document: &Value) -> Vec<&str> {
    let tenants = document["shared"]["tenants"].as_array().unwrap();
    tenants
        .iter()
        .map(|t| t["name"].as_str().unwrap())
        .collect()
}

#[test]
fn services_on_one_gpu_get_shares_that_fit_together() {
    let file = compose(&[
        ("chat", "Qwen/Qwen3-8B --max-model-len 16384"),
        ("small", "Qwen/Qwen3-0.6B --max-model-len 8192"),
    ]);
    let plan = planned(&file, &[]);
    assert_eq!(plan["id"], "Qwen/Qwen3-8B");
    assert_eq!(names(&plan), ["small", "chat"]);
    assert_eq!(plan["shared"]["fits"], json!(true));
    assert_eq!(plan["shared"]["fits_as_asked"], json!(false));
    let actions = plan["actions"].as_array().unwrap();
    assert_eq!(actions.len(), 2, "{actions:?}");
    // As it stands it does not start, so a script is told so.
    let path = file.path().to_str().unwrap();
    told(&["--compose", path, "--gpu", "H100", "--check-oom"]).expect(6);

    // What is advised fits as it is written.
    let share = |n: usize| actions[n]["setting"].as_str().unwrap().to_owned();
    let file = compose(&[
        (
            "chat",
            &format!("Qwen/Qwen3-8B --max-model-len 16384 {}", share(1)),
        ),
        (
            "small",
            &format!("Qwen/Qwen3-0.6B --max-model-len 8192 {}", share(0)),
        ),
    ]);
    let again = planned(&file, &[]);
    assert_eq!(again["shared"]["fits_as_asked"], json!(true));
    assert_eq!(again["actions"], json!([]));
    // One of them alone is read as ever.
    let alone = planned(&file, &["--service", "small"]);
    assert!(alone.get("shared").is_none());
    assert_eq!(alone["id"], "Qwen/Qwen3-0.6B");
}

#[test]
fn services_on_gpus_of_their_own_do_not_share() {
    let service = |name: &str, id: &str| {
        format!(
            "  {name}:\n    image: vllm/vllm-openai:v0.19.1\n    command: --model Qwen/Qwen3-8B\n    \
             gpus: [{{device_ids: [\"{id}\"]}}]\n"
        )
    };
    let both = |a: &str, b: &str| {
        planned(
            &written(&format!(
                "services:\n{}{}",
                service("a", a),
                service("b", b)
            )),
            &[],
        )
    };
    assert_eq!(both("0", "1")["shared"]["fits_as_asked"], json!(true));
    assert_eq!(both("1", "1")["shared"]["fits_as_asked"], json!(false));
    let mixed = written(&format!(
        "services:\n{}{}",
        service("a", "0"),
        service("b", "GPU-77")
    ));
    let path = mixed.path().to_str().unwrap();
    let said = refused(&["--compose", path, "--gpu", "H100"], 2);
    assert!(
        said.contains("by number") && said.contains("GPU-77"),
        "{said}"
    );
}

#[test]
fn a_service_that_cannot_be_estimated_is_counted_by_its_share_or_leaves_the_answer_open() {
    let file = compose(&[
        ("chat", "Qwen/Qwen3-8B --max-model-len 16384"),
        (
            "embed",
            "Qwen/Qwen3-0.6B --worker-cls my.Worker --gpu-memory-utilization 0.1",
        ),
    ]);
    let plan = planned(&file, &[]);
    assert_eq!(plan["shared"]["fits"], Value::Null);
    let embed = &plan["shared"]["tenants"][0];
    assert!(embed["takes_bytes"].as_u64() > Some(8 << 30), "{embed}");
    assert!(
        embed["reason"].as_str().unwrap().contains("--worker-cls"),
        "{embed}"
    );
    let file = compose(&[("chat", "Qwen/Qwen3-8B"), ("other", "acme/unknown-7B")]);
    let plan = planned(&file, &[]);
    assert_eq!(plan["shared"]["tenants"][0]["takes_bytes"], Value::Null);
    assert_eq!(plan["shared"]["gpus"][0]["left_bytes"], Value::Null);
    let verdict = plan["verdict"].as_str().unwrap();
    assert!(
        verdict.starts_with("Unknown") && verdict.contains("`other`"),
        "{verdict}"
    );
    let path = file.path().to_str().unwrap();
    told(&["--compose", path, "--gpu", "H100", "--check-oom"]).expect(3);
}

#[test]
fn engines_that_measure_differently_start_in_their_order() {
    let service = |name: &str, image: &str, command: &str| {
        format!("  {name}:\n    image: {image}\n    command: {command}\n    gpus: all\n")
    };
    let sglang = "python3 -m sglang.launch_server --model-path Qwen/Qwen3-0.6B --host 0.0.0.0 --context-length 8192";
    let vllm = "--model Qwen/Qwen3-8B --gpu-memory-utilization 0.6 --max-model-len 8192";
    let text = [
        "services:\n".to_owned(),
        service("rerank", "lmsysorg/sglang:v0.5.5", sglang),
        service("chat", "vllm/vllm-openai:v0.19.1", vllm),
    ];
    let plan = planned(&written(&text.concat()), &[]);
    // SGLang takes a part of what is free: first, it leaves too little.
    assert_eq!(names(&plan), ["chat", "rerank"]);
    assert_eq!(plan["shared"]["any_order"], json!(false));
    let verdict = plan["verdict"].as_str().unwrap();
    assert!(verdict.contains("in this order: chat, rerank"), "{verdict}");
    let rerank = &plan["shared"]["tenants"][1];
    assert!(
        rerank["reason"].as_str().unwrap().contains("CUDA graphs"),
        "{rerank}"
    );
}

#[test]
fn who_has_a_gpu_alone_keeps_its_share_and_each_gpu_is_used_up() {
    let service = |name: &str, words: &str, gpu: u32| {
        format!(
            "  {name}:\n    image: vllm/vllm-openai:v0.19.1\n    command: --model {words}\n    deploy: {{resources: \
             {{reservations: {{devices: [{{driver: nvidia, device_ids: ['{gpu}'], capabilities: [gpu]}}]}}}}}}\n"
        )
    };
    let file = written(&format!(
        "services:\n{}{}{}",
        service("chat", "Qwen/Qwen3-8B --gpu-memory-utilization 0.6", 0),
        service("small", "Qwen/Qwen3-4B --gpu-memory-utilization 0.6", 0),
        service("alone", "Qwen/Qwen3-14B --gpu-memory-utilization 0.9", 1),
    ));
    let plan = planned(&file, &[]);
    assert_eq!(plan["shared"]["fits"], json!(true));
    let actions = plan["actions"].as_array().unwrap();
    let effects: Vec<&str> = (actions.iter())
        .map(|a| a["effect"].as_str().unwrap())
        .collect();
    assert_eq!(effects.len(), 2, "{effects:?}");
    assert!(effects.iter().all(|e| !e.contains("alone")), "{effects:?}");
    let shares = actions.iter().map(|a| a["setting"].as_str().unwrap());
    let shares = shares.map(|s| s.rsplit(' ').next().unwrap().parse::<f64>().unwrap());
    assert!(
        shares.sum::<f64>() > 0.9,
        "what the smaller leaves is given to the larger"
    );
}

#[test]
fn a_model_beside_a_size_gets_the_share_that_is_left() {
    let words = [
        "Qwen/Qwen3-8B",
        "--gpu",
        "H100",
        "--max-model-len",
        "8192",
        "--beside",
        "20GiB",
    ];
    let plan = document(&words);
    assert_eq!(names(&plan), ["20GiB", "Qwen/Qwen3-8B"]);
    let setting = plan["actions"][0]["setting"].as_str().unwrap();
    let share: f64 = setting.rsplit(' ').next().unwrap().parse().unwrap();
    assert!((0.6..0.75).contains(&share), "{setting}");
    assert_eq!(plan["gpu"]["in_use_bytes"], 20_u64 << 30);
    // Twice is both.
    let plan = document(&[&words[..], &["--beside", "30GiB"]].concat());
    assert_eq!(plan["gpu"]["in_use_bytes"], 50_u64 << 30);
    let said = refused(&["Qwen/Qwen3-8B", "--gpu", "H100", "--beside", "20"], 2);
    assert!(said.contains("20GiB"), "{said}");
    let said = refused(&["Qwen/Qwen3-8B", "--beside", "20GiB"], 2);
    assert!(said.contains("--gpu"), "{said}");
}

#[test]
fn the_page_of_several() {
    let file = compose(&[
        ("chat", "Qwen/Qwen3-8B --max-model-len 16384"),
        ("small", "Qwen/Qwen3-0.6B --max-model-len 8192"),
    ]);
    let path = file.path().to_str().unwrap();
    let page = told(&["--compose", path, "--gpu", "H100"]).expect(0).stdout;
    insta::assert_snapshot!(page);
    // The document makes the same page.
    let json = told(&["--compose", path, "--gpu", "H100", "--json"])
        .expect(0)
        .stdout;
    let kept = written(&json);
    let report = [
        "report",
        kept.path().to_str().unwrap(),
        "--format",
        "txt",
        "--output",
        "-",
    ];
    let again = super::Live::start(super::plimsoll(&report))
        .end()
        .expect(0)
        .stdout;
    assert!(again.contains("--kv-cache-memory-bytes"), "{again}");
}
