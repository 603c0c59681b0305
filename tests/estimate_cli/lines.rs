//! Lines of `docker run`, files of Compose and manifests of Kubernetes, as people write them.

use super::{document, refused, term_bytes, told};
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::Path;

#[track_caller]
fn shown(words: &[&str]) -> Value {
    document(&[&["--show-settings"], words].concat())
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

#[test]
fn variables_of_a_line_and_of_its_files_count() {
    let variables = file("VLLM_USE_V1=0\n");
    let variables = variables.path().to_str().unwrap();
    let image = ["vllm/vllm-openai:v0.9.1", "--model", "Qwen/Qwen3-8B"];
    let docker = ["--gpu", "H100", "--", "docker", "run", "--gpus", "all"];
    let activations = |words: &[&str]| {
        let found = document(words);
        term_bytes(&found, "activation")
    };
    let v1 = activations(&[&docker[..], &image].concat());
    let v0 = activations(&[&docker[..], &["--env-file", variables], &image].concat());
    assert_ne!(v0, v1);
    let serve = ["vllm", "serve", "Qwen/Qwen3-8B"];
    let line = [
        "--gpu",
        "H100",
        "--engine-version",
        "0.9.1",
        "--",
        "VLLM_USE_V1=0",
    ];
    assert_eq!(activations(&[&line[..], &serve].concat()), v0);
    // What cannot be read may set anything.
    let absent = document(&[&docker[..], &["--env-file", "/absent"], &image].concat());
    assert_eq!(absent["fits"], Value::Null);
}

#[test]
fn the_file_of_flags_counts_and_the_line_wins() {
    let flags = file(
        "model: Qwen/Qwen3-8B\nmax_model_len: 4096\ntensor-parallel-size: 2\nenforce-eager: true\n",
    );
    let config = flags.path().to_str().unwrap();
    let gpu = ["--gpu", "H100", "--"];
    let serve = |more: &[&str]| document(&[&gpu[..], &["vllm", "serve"], more].concat());
    let same = ["Qwen/Qwen3-8B", "-tp", "2", "--enforce-eager"];
    let read = serve(&["--config", config, "--max-model-len", "8192"]);
    let written = serve(&[&same[..], &["--max-model-len", "8192"]].concat());
    assert_eq!(read["terms"], written["terms"]);
    assert_eq!(read["max_model_len"], json!(8192));
    // In a container it is the file that is mounted there.
    let mount = format!("{config}:/serve.yaml:ro");
    let docker = ["docker", "run", "--gpus", "all", "-v", &mount];
    let image = ["vllm/vllm-openai:v0.19.1", "--config=/serve.yaml"];
    let inside = document(&[&gpu[..], &docker, &image].concat());
    assert_eq!(inside["max_model_len"], json!(4096));
    let absent = refused(
        &[&gpu[..], &["vllm", "serve", "--config", "/absent"]].concat(),
        2,
    );
    assert!(
        absent.contains("`--config /absent` cannot be read"),
        "{absent}"
    );
}

#[test]
fn a_repository_of_llama_cpp_without_a_tag_is_its_usual_file() {
    let weights = |name: &str| {
        let line = ["--gpu", "RTX 4090", "--", "llama-server", "-c", "8192"];
        term_bytes(&document(&[&line[..], &["-hf", name]].concat()), "weights")
    };
    let repository = "unsloth/Qwen3-8B-GGUF";
    assert_eq!(
        weights(repository),
        weights(&format!("{repository}:Q4_K_M"))
    );
    let line = [
        "--gpu",
        "RTX 4090",
        "--",
        "llama-server",
        "-c",
        "8192",
        "-hf",
        repository,
    ];
    let file = ["--hf-file", "Qwen3-8B-Q8_0.gguf"];
    let eight = term_bytes(&document(&[&line[..], &file].concat()), "weights");
    assert_eq!(eight, weights(&format!("{repository}:Q8_0")));
}

#[test]
fn fewer_sizes_take_less_for_graphs_and_eager_takes_nothing() {
    let graphs = |more: &[&str]| {
        let line = ["--gpu", "H100", "--", "vllm", "serve", "Qwen/Qwen3-8B"];
        term_bytes(&document(&[&line[..], more].concat()), "cuda_graphs")
    };
    let sizes = ["--cudagraph-capture-sizes", "1,2,4"];
    let (all, few) = (graphs(&[]), graphs(&sizes));
    assert!(0 < few && few < all, "{few} of {all}");
    assert_eq!(graphs(&[&sizes[..], &["--enforce-eager"]].concat()), 0);
}

#[test]
fn the_file_that_a_line_names_has_the_format_of_the_model_in_front() {
    let line = [
        "--gpu",
        "RTX 3060",
        "--",
        "llama-server",
        "-c",
        "8192",
        "-m",
    ];
    let weights = |file: &str| {
        let found = document(&[&["Qwen/Qwen3-8B"], &line[..], &[file]].concat());
        term_bytes(&found, "weights")
    };
    let (four, sixteen) = (weights("/m/Qwen3-8B-Q4_K_M.gguf"), weights("/m/model.gguf"));
    assert!(four * 3 < sixteen, "{four} of {sixteen}");
}

#[test]
fn a_flag_that_the_release_does_not_have_does_not_fit() {
    let fits = |release: &str| {
        let image = format!("vllm/vllm-openai:{release}");
        let run = [
            "--gpu", "H100", "--", "docker", "run", "--gpus", "all", &image,
        ];
        let flags = ["--model", "Qwen/Qwen3-8B", "--swap-space", "16"];
        let found = document(&[&run[..], &flags].concat());
        (found["fits"].clone(), found["verdict"].to_string())
    };
    let (gone, verdict) = fits("v0.25.1");
    assert_eq!(gone, json!(false));
    assert!(verdict.contains("has no --swap-space"), "{verdict}");
    assert_eq!(fits("v0.10.0").0, json!(true));
    // Of which patch on a flag is gone is not known.
    assert_eq!(fits("v0.19.0").0, json!(true));
}

#[test]
fn a_service_beside_an_engine_that_takes_the_gpu_too_is_named() {
    let compose = file(
        "services:\n  a:\n    image: vllm/vllm-openai:v0.19.1\n    gpus: all\n    command: --model Qwen/Qwen3-8B --gpu-memory-utilization 0.5\n  b:\n    image: example.com/embedder:1\n    gpus: all\n",
    );
    let found = document(&[
        "--gpu",
        "L40S",
        "--compose",
        compose.path().to_str().unwrap(),
    ]);
    assert_eq!(found["fits"], json!(true), "{found:#}");
    let warnings = found["warnings"].to_string();
    assert!(
        warnings.contains("service `b` may get the same GPU"),
        "{warnings}"
    );
}

#[test]
fn a_step_without_an_end_holds_back_more() {
    let line = [
        "--gpu",
        "H100",
        "--engine-version",
        "0.5.9",
        "--",
        "python",
        "-m",
        "sglang.launch_server",
    ];
    let model = ["--model-path", "Qwen/Qwen3-32B", "--context-length", "8192"];
    let fits = |more: &[&str]| document(&[&line[..], &model, more].concat())["fits"].clone();
    assert_eq!(fits(&[]), json!(true));
    assert_eq!(fits(&["--chunked-prefill-size", "-1"]), json!(false));
}

#[test]
fn ollama_takes_the_models_context_and_one_for_each_request() {
    let of = |more: &[&str]| {
        let found = document(
            &[
                &["--gpu", "RTX 4090", "--engine", "ollama", "qwen3:8b"],
                more,
            ]
            .concat(),
        );
        term_bytes(&found, "kv_cache")
    };
    assert_eq!(
        of(&["--max-model-len", "131072"]),
        of(&["--max-model-len", "40960"])
    );
    let verdict = |n: &str| {
        let line = ["--gpu", "RTX 4090", "--engine", "ollama", "qwen3:8b"];
        let load = ["--max-model-len", "32768", "--max-num-seqs", n];
        document(&[&line[..], &load].concat())["verdict"].to_string()
    };
    assert!(verdict("1").contains("Fits"), "{}", verdict("1"));
    let eight = verdict("8");
    assert!(eight.contains("Not all of it fits"), "{eight}");
}

#[test]
fn a_line_is_read_with_the_entrypoint_of_its_image() {
    let line = "export LEN=16k\nsudo docker run -dit --rm --gpus '\"device=1,2\"' -eHF_TOKEN=hf_abc --shm-size=8g \\\n \
                -v $HOME/m:/models -p8000:8000 -e PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True \\\n \
                vllm/vllm-openai:v0.19.1 /models/q -tp 2 --max-model-len $LEN --api-key sk-secret --seed $SEED > log 2>&1 &";
    let got = shown(&["--", line]);
    assert_eq!(got["engine"], "vllm");
    assert_eq!(got["version"], "0.19.1");
    assert_eq!(got["serve_argv"][1], "serve");
    assert_eq!(got["model"], "/models/q");
    assert_eq!(
        got["settings"],
        json!({"tensor_parallel_size": 2, "max_model_len": 16000})
    );
    assert_eq!(
        got["gpus"],
        json!({"request": {"ids": ["1", "2"]}, "needed": 2})
    );
    assert_eq!(got["shm"], json!({"size_bytes": 8_u64 << 30, "ipc": null}));
    assert_eq!(got["secrets"], json!(["HF_TOKEN", "--api-key"]));
    assert_eq!(
        got["unresolved"],
        json!(["$HOME (only in a mount)", "$SEED (in the command)"])
    );
    assert!(!got.to_string().contains("sk-secret") && !got.to_string().contains("hf_abc"));
}

#[test]
fn an_entrypoint_that_is_there_already_is_named() {
    let got = shown(&[
        "--",
        "docker run --gpus all vllm/vllm-openai:v0.19.1 vllm serve org/m",
    ]);
    assert_eq!(got["model"], "org/m");
    assert!(
        got["warnings"][0]
            .as_str()
            .unwrap()
            .starts_with("it will not start")
    );
}

#[test]
fn the_wrapped_line_is_estimated_as_the_bare_one() {
    let bare = [
        "--gpu",
        "H100",
        "--engine-version",
        "0.19.1",
        "--",
        "vllm",
        "serve",
        "Qwen/Qwen3-8B",
        "-tp",
        "2",
    ];
    let line = "docker run --gpus all vllm/vllm-openai:v0.19.1 Qwen/Qwen3-8B -tp 2";
    let (bare, wrapped) = (document(&bare), document(&["--gpu", "H100", "--", line]));
    assert_eq!(bare["verdict"], wrapped["verdict"]);
    assert_eq!(bare, wrapped);
}

#[test]
fn a_service_of_compose_is_read_through_its_script() {
    let file = file(
        "x-gpu: &gpu {deploy: {resources: {reservations: {devices: [{driver: nvidia, count: 2, capabilities: [gpu]}]}}}}\n\
         services:\n  ui: {image: org/open-webui}\n  llm:\n    <<: *gpu\n    image: ${IMG_NOT_SET:-vllm/vllm-openai:v0.20.0}\n    \
         shm_size: 2gb\n    environment: [NGC_API_KEY=x, \"N=${N_NOT_SET:-}\"]\n    entrypoint:\n      - bash\n      - -c\n      - |\n        \
         n=\"$${N:-3}\"\n        X=()\n        case \"$$n\" in *[!0-9]*) exit 1 ;; esac\n        \
         if [ \"$$n\" -gt 0 ]; then X=(--speculative-config \"{\\\"method\\\":\\\"mtp\\\",\\\"num_speculative_tokens\\\":$$n}\"); fi\n        \
         exec vllm serve \"$$@\" \"$${X[@]}\"\n      - --\n    command: --model org/m\n      --tensor-parallel-size ${TP_NOT_SET:-2}\n",
    );
    let got = shown(&["--compose", file.path().to_str().unwrap()]);
    assert_eq!(got["service"], "llm");
    assert_eq!(got["settings"], json!({"tensor_parallel_size": 2}));
    assert_eq!(
        got["speculative"],
        json!({"method": "mtp", "num_speculative_tokens": 3, "only_by_running_the_script": true})
    );
    assert_eq!(got["gpus"], json!({"request": {"count": 2}, "needed": 2}));
    assert_eq!(got["secrets"], json!(["NGC_API_KEY"]));
    assert_eq!(got["unresolved"], json!([]));
}

#[test]
fn a_pod_is_read_with_its_limits_and_secrets() {
    let file = file(
        "apiVersion: apps/v1\nkind: Deployment\nspec:\n  template:\n    spec:\n      volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 2Gi}}]\n      \
         containers:\n      - name: s\n        image: lmsysorg/sglang:v0.5.5\n        command: [\"/bin/sh\", \"-c\"]\n        \
         args: [\"sglang serve $M --tp 4\"]\n        env:\n        - {name: M, value: org/m}\n        \
         - {name: HF_TOKEN, valueFrom: {secretKeyRef: {name: a, key: b}}}\n        resources: {limits: {nvidia.com/gpu: \"4\"}}\n        \
         volumeMounts: [{name: shm, mountPath: /dev/shm}]\n",
    );
    let got = shown(&["--manifest", file.path().to_str().unwrap()]);
    assert_eq!(
        (&got["engine"], &got["version"]),
        (&json!("sglang"), &json!("0.5.5"))
    );
    assert_eq!(got["model"], "org/m");
    assert_eq!(got["gpus"], json!({"request": {"count": 4}, "needed": 4}));
    assert_eq!(got["shm"]["size_bytes"], 2_u64 << 30);
    assert_eq!(got["secrets"], json!(["HF_TOKEN"]));
}

#[test]
fn an_engine_without_rules_is_named_with_what_is_missing() {
    let line = "docker run --gpus all openmmlab/lmdeploy:v0.9.2 lmdeploy serve api_server org/m --tp 2 --session-len 8192";
    let got = shown(&["--", line]);
    assert_eq!(got["engine"], "lmdeploy");
    assert_eq!(
        got["settings"],
        json!({"tensor_parallel_size": 2, "max_model_len": 8192})
    );
    let answer = refused(&["--", line], 2);
    assert!(
        answer.contains("the memory of lmdeploy cannot be estimated"),
        "{answer}"
    );
}

#[test]
fn weights_that_a_process_of_vllm_holds_for_servers_are_no_server() {
    let preload = "vllm preload --model org/m -tp 2 --seed-token a-secret";
    let image = "docker run --gpus all --entrypoint vllm vllm/vllm-openai:v0.33.0";
    for line in [preload.to_owned(), preload.replacen("vllm", image, 1)] {
        let got = shown(&["--", &line]);
        assert_eq!(
            (&got["engine"], &got["model"]),
            (&json!("vllm-preload"), &json!("org/m"))
        );
        assert_eq!(
            got["settings"],
            json!({"tensor_parallel_size": 2}),
            "{line}"
        );
        assert_eq!(got["unknown_flags"], json!([]), "{line}");
        assert!(!got.to_string().contains("a-secret"), "{got}");
        let answer = refused(&["--", &line], 2);
        assert!(
            answer.contains("it has no KV cache, and servers with `--load-format ipc_cache`"),
            "{answer}"
        );
    }
    let serves = shown(&["--", "vllm serve org/m --served-model-name preload"]);
    assert_eq!(serves["engine"], "vllm");
}

/// `NAME.txt` or `NAME.yaml` beside `NAME.expected.json`, whose keys the answer must have.
#[test]
fn lines_are_read_key_by_key() {
    check_folder(Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/launch"
    )));
}

/// Cases of others, which are in no release.
#[test]
fn the_lines_of_a_folder_are_read_key_by_key() {
    if let Some(folder) = std::env::var_os("PLIMSOLL_LINES") {
        check_folder(Path::new(&folder));
    }
}

#[track_caller]
fn check_folder(folder: &Path) {
    let mut wrong = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let Some(name) = path.to_str().unwrap().strip_suffix(".expected.json") else {
            continue;
        };
        let expected: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let (line, yaml) = (format!("{name}.txt"), format!("{name}.yaml"));
        let form = expected["form"].as_str().unwrap();
        let words: &[&str] = if Path::new(&line).exists() {
            &["--", &std::fs::read_to_string(&line).unwrap()]
        } else if form.contains("compose") {
            &["--compose", &yaml]
        } else {
            &["--manifest", &yaml]
        };
        let ended = told(&[&["--json", "--show-settings"], words].concat());
        let got: Value = serde_json::from_str(&ended.stdout).unwrap_or_default();
        if got.is_null() {
            wrong.push(format!("{name}: {}", ended.stderr));
        }
        let own = expected["service"].as_str();
        let several = got.as_array().into_iter().flatten();
        let got = several
            .into_iter()
            .find(|g| g["service"].as_str() == own)
            .unwrap_or(&got);
        for (key, value) in expected.as_object().unwrap() {
            let mut value = value.clone();
            if let Some(shm) = value.as_object_mut().filter(|_| key == "shm") {
                shm.remove("note");
            }
            if !["source", "form", "notes"].contains(&key.as_str()) && got[key] != value {
                wrong.push(format!("{name}: {key} is {}, not {value}", got[key]));
            }
        }
    }
    wrong.sort();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
