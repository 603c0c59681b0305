//! What `run` starts: the container of each preset, and of a line of `docker run`, as people can start it themselves.

use crate::common;
use common::e2e::{Live, plimsoll};
use plimsoll::engine::EngineId;
use plimsoll::engine::settings::{SETTINGS, Setting, argument_text};
use plimsoll::preset::SHIPPED;
use std::io::Write as _;
use std::path::Path;

const SECRET: &str = "hf_secret-of-this-test";

#[track_caller]
fn dry(words: &[&str]) -> String {
    let mut command = plimsoll(&[&["run", "--dry-run"], words].concat());
    command.env("HF_TOKEN", SECRET).env_remove("HF_HOME");
    let ended = Live::start(command).end().expect(0);
    let printed = format!("{}{}", ended.stdout, ended.stderr);
    assert!(!printed.contains(SECRET), "{printed}");
    ended.stdout
}

/// The line of a preset; those that name no model are started with one.
fn line(name: &str) -> String {
    let mut words = vec![
        "--preset",
        name,
        "--name",
        "my-engine",
        "--as",
        "docker-run",
    ];
    if SHIPPED[name].model.is_none() {
        words.extend(["--model", "Qwen/Qwen3-8B"]);
    }
    dry(&words)
}

#[test]
fn each_preset_is_the_line_that_its_engine_documents() {
    let lines = SHIPPED.keys().map(|name| format!("{name}\n{}", line(name)));
    insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"));
}

/// Holds the table of a page against what the program knows, or writes it where `UPDATE_RECIPES` is set.
fn holds_table(page: &str, subject: &str, table: &str) {
    let begin =
        format!("<!-- {subject}, made by UPDATE_RECIPES=1 cargo test --test offline presets -->\n");
    let end = format!("<!-- end of the {subject} -->");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(&begin).unwrap();
    let (_, after) = rest.split_once(&end).unwrap();
    let current = format!("{before}{begin}\n{table}\n{end}{after}");
    if std::env::var_os("UPDATE_RECIPES").is_some() {
        std::fs::write(&path, &current).unwrap();
        return;
    }
    assert!(
        text == current,
        "the {subject} of {page} are not those of configs/"
    );
}

#[test]
fn the_recipes_page_lists_each_preset() {
    let mut table = String::from("| preset | starts |\n|---|---|\n");
    for (name, preset) in SHIPPED.iter() {
        table += &format!("| `{name}` | {} |\n", preset.description);
    }
    holds_table("docs/RECIPES.md", "presets", &table);
}

#[test]
fn the_engines_page_lists_what_each_engine_calls_a_setting() {
    let engines = [
        EngineId::Vllm,
        EngineId::Sglang,
        EngineId::Tgi,
        EngineId::TensorRtLlm,
        EngineId::LlamaCpp,
        EngineId::Ollama,
    ];
    let flag = |setting: &Setting, engine: EngineId| {
        let dash = if engine == EngineId::TensorRtLlm {
            "_"
        } else {
            "-"
        };
        let named = setting.names(engine).next();
        let named = named.map(|name| format!("--{}", name.replace('_', dash)));
        argument_text(engine, &setting.name, "").or(named)
    };
    let mut table = String::from(
        "| vLLM | SGLang | TGI | TensorRT-LLM | llama.cpp | Ollama |\n|---|---|---|---|---|---|\n",
    );
    for setting in SETTINGS.iter() {
        let flags = engines.map(|engine| flag(setting, engine));
        if flags.iter().flatten().count() < 3 {
            continue;
        }
        let cells = flags.map(|f| {
            f.map_or(String::new(), |f| {
                format!("`{}`", f.trim_end_matches([' ', '=']).replace("  ", " "))
            })
        });
        table += &format!("| {} |\n", cells.join(" | "));
    }
    holds_table("docs/ENGINES.md", "settings", &table);
}

const LINE: &[&str] = &[
    "docker",
    "run",
    "--gpus",
    "\"device=0,1\"",
    "--shm-size=16g",
    "--ulimit",
    "memlock=-1",
    "--cpus",
    "8",
    "-e",
    "HF_TOKEN",
    "-e",
    "VLLM_LOGGING_LEVEL=DEBUG",
    "--mount",
    "type=bind,source=/data,target=/models,readonly",
    "-p",
    "9000:9000",
    "vllm/vllm-openai:v0.19.1",
    "--model",
    "/models/m",
    "-tp",
    "2",
    "--port",
    "9000",
];

#[test]
fn a_line_of_docker_run_is_started_as_it_is() {
    let words = [&["--name", "x", "--as", "docker-run", "--"], LINE].concat();
    let line = dry(&words);
    for part in [
        "--gpus '\"device=0,1\"'",
        "--shm-size 16g",
        "--ulimit memlock=-1",
        "-e HF_TOKEN \\",
        "-e VLLM_LOGGING_LEVEL=DEBUG",
        "-v /data:/models:ro",
        "-p 9000:9000",
        "  --model /models/m -tp 2 --port 9000",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    let whole = dry(&[&["--name", "x", "--"], LINE].concat());
    assert!(
        whole.contains("GPUs: device=0,1") && whole.contains("-v /data:/models:ro"),
        "{whole}"
    );
    let mut command = plimsoll(&[&["run", "--dry-run", "--"], LINE].concat());
    command.env_remove("HF_TOKEN");
    let told = Live::start(command).end().expect(0).stderr;
    assert!(told.contains("`--cpus 8` is not used"), "{told}");
}

#[test]
fn the_file_of_compose_starts_the_same_as_the_line() {
    let shown = |words: &[&str]| -> serde_json::Value {
        let words = [&["estimate", "--show-settings", "--json"], words].concat();
        let ended = Live::start(plimsoll(&words)).end().expect(0);
        serde_json::from_str(&ended.stdout).unwrap()
    };
    let words = [&["--name", "x", "--as", "compose", "--"], LINE].concat();
    let mut file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    file.write_all(dry(&words).as_bytes()).unwrap();
    let composed = shown(&["--compose", file.path().to_str().unwrap()]);
    let line = shown(&[&["--"], LINE].concat());
    for key in [
        "engine", "version", "argv", "settings", "gpus", "shm", "secrets",
    ] {
        assert_eq!(composed[key], line[key], "{key}");
    }
}

#[test]
fn services_of_compose_start_as_compose_starts_them() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("My-Stack");
    std::fs::create_dir(&folder).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    write(
        ".env",
        "# The model\nMODEL=Qwen/Qwen3-8B # large\nexport TAG='v0.19.1'\n",
    );
    write("chat.env", "VLLM_LOGGING_LEVEL=DEBUG\nVLLM_USE_V1=0\n");
    let file = r#"
volumes: {cache: , models: {external: true}}
services:
  chat:
    image: vllm/vllm-openai:${TAG}
    command: --model ${MODEL} --max-model-len ${LENGTH:-4096}
    depends_on: {rerank: {condition: service_healthy}, embed: {condition: service_started}}
    env_file: [chat.env]
    environment: [VLLM_USE_V1=1, HF_TOKEN]
    volumes: ["cache:/root/.cache/huggingface", "models:/m", "./own:/own:ro", "~/far:/far"]
    ulimits: {memlock: -1}
    mem_limit: 64g
    cap_add: [SYS_NICE]
    networks: [back]
    restart: always
  embed: {image: vllm/vllm-openai:v0.19.1, command: --model Qwen/Qwen3-Embedding-0.6B}
  rerank: {image: vllm/vllm-openai:v0.19.1, command: --model BAAI/bge-reranker-v2-m3}
"#;
    write("compose.yaml", file);
    let path = folder.join("compose.yaml");
    let mut command = plimsoll(&["run", "--dry-run", "--as=docker-run", "--compose"]);
    command
        .arg(&path)
        .env("HOME", "/home/u")
        .env_remove("HF_TOKEN");
    let ended = Live::start(command).end().expect(0);
    let order: Vec<&str> = ["embed", "rerank", "chat"].into();
    let lines: Vec<&str> = ended.stdout.split("docker run -d").skip(1).collect();
    for (line, service) in lines.iter().zip(&order) {
        assert!(line.contains(&format!("-{service} ")), "{service}: {line}");
    }
    let own = folder.join("own");
    for part in [
        "vllm/vllm-openai:v0.19.1",
        "--model Qwen/Qwen3-8B --max-model-len 4096",
        "-e VLLM_LOGGING_LEVEL=DEBUG",
        "-e VLLM_USE_V1=1",
        "-v my-stack_cache:/root/.cache/huggingface",
        "-v models:/m",
        &format!("-v {}:/own:ro", own.display()),
        "-v /home/u/far:/far",
        "--ulimit memlock=-1",
        "--memory 64g",
        "--cap-add SYS_NICE",
    ] {
        assert!(lines[2].contains(part), "{part}: {}", lines[2]);
    }
    assert!(
        ended.stderr.contains("chat: `networks` is not used"),
        "{}",
        ended.stderr
    );
    assert!(!ended.stderr.contains("restart"), "{}", ended.stderr);
    let named = dry(&["--compose", path.to_str().unwrap(), "--service=embed"]);
    assert!(
        named.contains("Qwen3-Embedding") && !named.contains("reranker"),
        "{named}"
    );
}

#[test]
fn a_flag_wins_over_the_words_of_a_preset() {
    let line = dry(&[
        "--preset=vllm-cpu",
        "--max-model-len=8192",
        "--enforce-eager",
        "--as=docker-run",
    ]);
    assert_eq!(line.matches("--max-model-len").count(), 1, "{line}");
    assert!(line.contains("--max-model-len 8192"), "{line}");
    assert_eq!(line.matches("--enforce-eager").count(), 1, "{line}");
    assert!(line.contains("--kv-cache-memory-bytes 268435456"), "{line}");
}

#[test]
fn a_line_without_a_container_or_an_engine_is_refused() {
    for (words, error) in [
        (&["vllm", "serve", "m"][..], "starts no container"),
        (
            &["docker", "run", "nginx"],
            "no engine that can be profiled is known in `nginx`",
        ),
    ] {
        let command = plimsoll(&[&["run", "--dry-run", "--"], words].concat());
        let ended = Live::start(command).end().expect(2);
        assert!(ended.stderr.contains(error), "{}", ended.stderr);
    }
    let words = ["docker", "run", "nosuch/custom:1", "--model", "org/m"];
    let line = dry(&[&["--engine=vllm", "--as=docker-run", "--"], &words[..]].concat());
    assert!(line.contains("nosuch/custom:1"), "{line}");
}

#[test]
fn the_runtime_of_nvidia_gives_gpus_without_a_request() {
    let variable = "NVIDIA_VISIBLE_DEVICES=0,1";
    for (more, gpus) in [
        (&["--runtime", "nvidia"][..], "GPUs: all"),
        (&["--runtime", "nvidia", "-e", variable], "GPUs: device=0,1"),
        (&["-e", variable], "GPUs: none"),
    ] {
        let line = ["vllm/vllm-openai:v0.11.0", "--model", "Qwen/Qwen3-8B"];
        let start = ["run", "--dry-run", "--", "docker", "run"];
        let command = plimsoll(&[&start[..], more, &line].concat());
        let ended = Live::start(command).end().expect(0);
        assert!(ended.stdout.contains(gpus), "{}", ended.stdout);
    }
}

/// Arguments that the servers take, as scripts/engine-drift reads them from their source.
fn documented(engine: &str) -> serde_json::Value {
    let table = include_str!("fixtures/engine-arguments.json");
    let table: serde_json::Value = serde_json::from_str(table).unwrap();
    table[engine].clone()
}

#[test]
fn the_words_of_a_preset_are_arguments_of_its_server() {
    // TensorRT-LLM takes the cache's type by a flag since 1.3, and no dtype; transformers sets no limits.
    let settings = [
        "--tp=2",
        "--gpu-memory-utilization=0.5",
        "--max-model-len=8192",
    ];
    let more = [
        "--dtype=bfloat16",
        "--quantization=fp8",
        "--kv-cache-dtype=fp8_e5m2",
        "--enforce-eager",
    ];
    let mut held = 0;
    for (name, preset) in SHIPPED.iter() {
        let engine = preset.engine.clone().unwrap_or_default();
        let table = documented(&engine);
        let Some(values) = table["values"].as_str() else {
            continue;
        };
        let asked: Vec<&str> = match engine.as_str() {
            "sglang" => [&settings[..], &more[..]].concat(),
            "transformers" => Vec::new(),
            _ => settings.to_vec(),
        };
        let words = [
            "--preset",
            name,
            "--model",
            "Qwen/Qwen3-8B",
            "--as",
            "docker-run",
        ];
        let line = dry(&[&words[..], &asked[..]].concat());
        let line = shlex::split(&line.replace("\\\n", " ")).unwrap();
        let image = preset.image.as_deref().unwrap();
        let at = line.iter().position(|w| w == image).unwrap();
        let switches = table["switches"].as_str().unwrap();
        let has = |all: &str, flag: &str| all.split(' ').any(|f| f == flag);
        let mut words = line[at + 1..].iter().skip_while(|w| !w.starts_with("--"));
        while let Some(word) = words.next() {
            let flag = word.split('=').next().unwrap();
            let takes = has(values, flag);
            assert!(
                takes || has(switches, flag),
                "{name}: {word} is no argument of {engine} {}",
                table["version"]
            );
            if takes && !word.contains('=') {
                let value = words.next();
                assert!(
                    value.is_some_and(|v| !v.starts_with("--")),
                    "{name}: {word} {value:?}"
                );
            }
        }
        held += 1;
    }
    let of = "four of vllm, two of sglang, tensorrt-llm, transformers";
    assert_eq!(held, 8, "{of}");
}

#[test]
fn a_mistyped_preset_is_answered_with_the_nearest() {
    let command = plimsoll(&["run", "--preset", "vllm-cud", "--model", "m", "--dry-run"]);
    let told = Live::start(command).end().expect(2).stderr;
    assert!(told.contains("did you mean `vllm-cuda`"), "{told}");
}

#[test]
fn only_the_ports_of_a_line_are_published() {
    let image = "vllm/vllm-openai:v0.19.1";
    let published = |options: &[&str]| {
        let words = [
            &["--as", "docker-run", "--", "docker", "run", "--gpus", "all"],
            options,
            &[image, "m"],
        ];
        let line = dry(&words.concat());
        let ports = line.lines().filter(|l| l.trim_start().starts_with("-p "));
        ports.map(|l| l.trim().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(published(&[]), [""; 0]);
    assert_eq!(published(&["-p", "8080:8000"]), ["-p 8080:8000 \\"]);
    let several = published(&[
        "-p",
        "127.0.0.1:8080:8000/tcp",
        "-p9001:9000",
        "-p",
        "53:53/udp",
    ]);
    assert_eq!(several, ["-p 8080:8000 \\", "-p 9001:9000 \\"]);
}
