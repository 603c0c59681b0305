//! Whether a container is vLLM's, where in process 1's command its server begins, and the settings there.

use crate::capture::ContainerFacts;
use crate::engine::argv::{Flags, Grammar, basename};
use crate::engine::process::{ServerCommand, image_is, of_image, of_process, of_variable};
use crate::engine::settings::variables;
use crate::engine::{Recognition, ServerSettings};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Modules that are servers when run with `python -m`.
const MODULES: &[&str] = &[
    "vllm.entrypoints.openai.api_server",
    "vllm.entrypoints.api_server",
];

/// The same as files, for images that name the file.
const FILES: &[&str] = &[
    "vllm/entrypoints/openai/api_server.py",
    "vllm/entrypoints/api_server.py",
];

/// Variables that vLLM itself reads, set by its images or for it. Not the `VLLM_URL`, `VLLM_HOST`
/// or `VLLM_API_KEY` that any client of a vLLM elsewhere carries.
const OWN_ENV: &[&str] = &[
    "VLLM_USAGE_SOURCE",
    "VLLM_NO_USAGE_STATS",
    "VLLM_TARGET_DEVICE",
    "VLLM_WORKER_MULTIPROC_METHOD",
    "VLLM_CPU_KVCACHE_SPACE",
    "VLLM_CPU_OMP_THREADS_BIND",
    "VLLM_ATTENTION_BACKEND",
    "VLLM_USE_V1",
    "VLLM_LOGGING_LEVEL",
    "VLLM_CONFIG_ROOT",
    "VLLM_CACHE_ROOT",
    "VLLM_ENABLE_CUDA_COMPATIBILITY",
    "VLLM_USE_TRITON_FLASH_ATTN",
    "VLLM_ENABLE_V1_MULTIPROCESSING",
];

/// The server that process 1 is, if it is one.
fn server(facts: &ContainerFacts) -> Option<ServerCommand> {
    let of_flags = || ServerCommand::of_flags(&facts.argv, "--");
    ServerCommand::find(facts, flags_at)
        .or_else(|| of_flags().filter(|_| image_is_vllm(&facts.image)))
}

/// Whether its first word may be the model: the modules take `--model` only.
fn takes_model_first(server: &ServerCommand) -> bool {
    server.last_word().is_none_or(|word| word == "serve")
}

fn flags_at(argv: &[String]) -> Option<usize> {
    // Any wrapper may come first: an init, `numactl`, a profiler, an entrypoint script.
    (0..argv.len()).find_map(|i| {
        let word = argv[i].as_str();
        let next = argv.get(i + 1).map(String::as_str);
        let after = argv.get(i + 2).map(String::as_str);
        match (word, next) {
            (program, Some("serve")) if basename(program) == "vllm" => Some(i + 2),
            ("-m", Some("vllm" | "vllm.entrypoints.cli.main")) if after == Some("serve") => {
                Some(i + 3)
            }
            ("-m", Some(module)) if MODULES.contains(&module) => Some(i + 2),
            (file, _) if FILES.iter().any(|f| file.ends_with(f)) => Some(i + 1),
            _ => None,
        }
    })
}

/// Whether the container is vLLM's.
pub fn recognise(facts: &ContainerFacts) -> Option<Recognition> {
    if let Some(server) = server(facts) {
        // Only the last two words: earlier ones may contain anything, even a secret in a variable.
        let words = &server.command.argv[server.flags_at.saturating_sub(2)..server.flags_at];
        return Some(Recognition::serving(match words {
            [] => server.evidence(facts),
            words => format!("process 1 runs `{}`", words.join(" ")),
        }));
    }
    let of_label = |label| {
        Recognition::present(
            &format!("label `{label}` names vLLM"),
            &of_process(&facts.argv),
        )
    };
    of_image(facts, image_is_vllm(&facts.image), "vLLM", of_process)
        .or_else(|| own_label(facts).map(of_label))
        .or_else(|| of_variable(facts, OWN_ENV, "vLLM", of_process))
}

fn image_is_vllm(image: &str) -> bool {
    image_is(image, &["vllm"])
}

/// An image label that names vLLM. Labels of compose and the like name services, not contents.
fn own_label(facts: &ContainerFacts) -> Option<&str> {
    facts.labels.iter().find_map(|(key, value)| {
        let title = matches!(
            key.as_str(),
            "org.opencontainers.image.title"
                | "org.opencontainers.image.source"
                | "org.opencontainers.image.url"
                | "name"
        );
        let own = (title && image_is_vllm(value.trim_end_matches(".git")))
            || (key == "plimsoll.engine" && value == "vllm");
        own.then_some(key.as_str())
    })
}

static GRAMMAR: LazyLock<Grammar> =
    LazyLock::new(|| Grammar::from_table(include_str!("flags.txt")));

/// Flags with secret values, which are never recorded.
const SECRET: &[&str] = &["api_key", "hf_token"];

/// Flags that vLLM reads as integers with a suffix.
const HUMAN: &[&str] = &[
    "max_model_len",
    "max_num_batched_tokens",
    "max_num_scheduled_tokens",
    "max_num_queued_tokens",
    "kv_cache_memory_bytes",
];

/// Variables of other programs that change its memory.
const FOREIGN_ENV: &[&str] = &[
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_HIP_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "CUDA_LAUNCH_BLOCKING",
    "HF_HUB_OFFLINE",
];

/// Settings of the server that process 1 is; of an idle container only its environment.
pub fn read_settings(facts: &ContainerFacts) -> ServerSettings {
    let server = server(facts);
    let mut env = facts.env.clone();
    let mut settings = ServerSettings::default();
    if let Some(server) = server {
        env.extend(server.command.env.clone());
        let flags = Flags::read(server.flags(), &GRAMMAR);
        let takes_model = takes_model_first(&server);
        read_flags(&flags, takes_model, &mut settings);
    }
    settings.needs_api_key |= env.get("VLLM_API_KEY").is_some_and(|v| !v.is_empty());
    let kept = variables(env, &["VLLM_"], FOREIGN_ENV);
    settings.values.extend(kept);
    settings
}

fn read_flags(flags: &Flags, positional_model: bool, settings: &mut ServerSettings) {
    // Where both are given, `vllm serve` goes by the word and not by `--model`.
    let tag = if positional_model {
        flags.positionals.first().map(String::as_str)
    } else {
        None
    };
    settings.model = tag.or_else(|| flags.value("model")).map(str::to_owned);
    settings.port = flags.value("port").and_then(|p| p.parse().ok());
    settings.host = flags.value("host").map(str::to_owned);
    // With several names the server answers to all and calls itself by the first.
    settings.served_model_name = flags.value("served_model_name").map(str::to_owned);
    settings.needs_api_key = flags
        .get("api_key")
        .is_some_and(|f| f.values.iter().any(|v| !v.is_empty()));
    let mut values = BTreeMap::new();
    for flag in &flags.given {
        let own = flag.name.split('.').next().unwrap_or_default();
        if SECRET.contains(&own) {
            continue;
        }
        let text = flag.values.join(" ");
        let text = if HUMAN.contains(&own) {
            plain_integer(&text)
        } else {
            text
        };
        values.insert(flag.name.clone(), text);
    }
    if let Some(model) = &settings.model {
        values.insert("model".to_owned(), model.clone());
    }
    settings.values = values;
}

/// `1k` → 1000, `1K` → 1024, `25.6k` → 25600, as vLLM reads them; `-1` is its `auto`. What it
/// would refuse stays as it is.
fn plain_integer(text: &str) -> String {
    if text == "-1" || text.eq_ignore_ascii_case("auto") {
        return "auto".to_owned();
    }
    let Some(last) = text.chars().last() else {
        return String::new();
    };
    let power = match last.to_ascii_lowercase() {
        'k' => 1,
        'm' => 2,
        'g' => 3,
        't' => 4,
        _ => return text.to_owned(),
    };
    let number = &text[..text.len() - 1];
    // Fractions only of decimal units: vLLM refuses `1.5K`.
    let parsed = if last.is_ascii_uppercase() {
        number
            .parse::<u64>()
            .ok()
            .and_then(|n| n.checked_mul(1024_u64.pow(power)))
    } else {
        number
            .parse::<f64>()
            .ok()
            .map(|n| n * 1000_f64.powi(power as i32))
            .filter(|n| *n >= 0.0 && *n < u64::MAX as f64)
            .map(|n| n.round() as u64)
    };
    parsed.map_or_else(|| text.to_owned(), |n| n.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::process::container as facts;
    use std::collections::BTreeMap;

    fn serving(image: &str, argv: &[&str]) -> Option<bool> {
        recognise(&facts(image, argv)).map(|r| r.serving)
    }

    #[test]
    fn servers_in_every_dress() {
        for argv in [
            &["vllm", "serve", "m"][..],
            &["/opt/vllm/bin/vllm", "serve", "m"],
            &["python3", "/usr/local/bin/vllm", "serve", "m"],
            &[
                "python3",
                "-m",
                "vllm.entrypoints.openai.api_server",
                "--model",
                "m",
            ],
            &[
                "python3",
                "-u",
                "-m",
                "vllm.entrypoints.cli.main",
                "serve",
                "m",
            ],
            &[
                "python",
                "/app/vllm/entrypoints/openai/api_server.py",
                "--model",
                "m",
            ],
            &["/usr/bin/tini", "-g", "--", "vllm", "serve", "m"],
            &["dumb-init", "vllm", "serve", "m"],
            &["/opt/nvidia/nvidia_entrypoint.sh", "vllm", "serve", "m"],
            &["sh", "-c", "vllm serve m --port 9"],
            &[
                "bash",
                "-lc",
                "source /env && exec numactl -N0 vllm serve $M",
            ],
            &[
                "tini",
                "--",
                "bash",
                "-c",
                "A=1 python3 -m vllm.entrypoints.api_server --model m",
            ],
        ] {
            assert_eq!(serving("anything", argv), Some(true), "{argv:?}");
        }
        assert_eq!(
            serving("vllm/vllm-openai:v0.8.5", &["--model", "m"]),
            Some(true)
        );
    }

    #[test]
    fn idle_containers_with_vllm_inside() {
        for image in [
            "vllm/vllm-openai:latest",
            "rocm/vllm:rocm6.4",
            "nvcr.io/nvidia/vllm:25.09-py3",
            "plimsoll/vllm-cpu",
            "plimsoll-e2e/vllm-cpu",
            "reg:5000/x/vllm@sha256:00",
        ] {
            for argv in [
                &["sleep", "infinity"][..],
                &["tail", "-f", "/dev/null"],
                &["/bin/bash"],
                &["tini", "--", "bash", "-l"],
                &["sh", "-c", "while true; do sleep 60; done"],
                &["vllm", "bench", "serve", "--model", "m"],
                &["echo", "vllm", "serve"],
                &[],
            ] {
                assert_eq!(serving(image, argv), Some(false), "{image} {argv:?}");
            }
        }
    }

    #[test]
    fn not_fooled() {
        let mut nginx = facts("nginx:1.27", &["nginx", "-g", "daemon off;"]);
        nginx.env = BTreeMap::from([
            ("VLLM_URL".into(), "http://x".into()),
            ("VLLM_NO_USAGE_STATS".into(), "1".into()),
        ]);
        nginx.labels = BTreeMap::from([("com.docker.compose.service".into(), "vllm".into())]);
        assert_eq!(recognise(&nginx), None);
        assert_eq!(serving("vllm/vllm-router:1", &["router"]), None);
        assert_eq!(serving("org/vllm-exporter", &["/exporter"]), None);
        assert_eq!(serving("vllm-project/something", &["sleep", "1"]), None);
        assert_eq!(serving("bench-client", &["vllm", "bench", "serve"]), None);
        assert_eq!(serving("plain", &["sh", "-c", "echo vllm serve m"]), None);
        let mut idle = facts("my/llm", &["sleep", "infinity"]);
        idle.env = BTreeMap::from([("VLLM_URL".into(), "http://x".into())]);
        assert_eq!(recognise(&idle), None);
    }

    #[test]
    fn variables_and_labels() {
        let mut idle = facts("my/llm", &["sleep", "infinity"]);
        idle.env = BTreeMap::from([("VLLM_USAGE_SOURCE".into(), "production-docker-image".into())]);
        let recognition = recognise(&idle).unwrap();
        assert!(
            !recognition.serving && recognition.evidence.contains("VLLM_USAGE_SOURCE"),
            "{recognition:?}"
        );
        let mut labelled = facts("my/llm", &["python3", "app.py"]);
        labelled.labels = BTreeMap::from([(
            "org.opencontainers.image.source".into(),
            "https://github.com/vllm-project/vllm.git".into(),
        )]);
        assert!(!recognise(&labelled).unwrap().serving);
    }
}

#[cfg(test)]
mod settings_tests {
    use super::*;
    use crate::capture::RequestedSettings;
    use crate::engine::{EngineId, ServeJob};

    fn settings(argv: &[&str]) -> ServerSettings {
        read_settings(&ContainerFacts {
            argv: argv.iter().map(|w| (*w).to_owned()).collect(),
            ..ContainerFacts::default()
        })
    }

    fn value<'a>(settings: &'a ServerSettings, key: &str) -> Option<&'a str> {
        settings.values.get(key).map(String::as_str)
    }

    #[test]
    fn a_real_container() {
        let inspect = include_str!("../../../tests/fixtures/vllm/inspect/docker-inspect-eng3.json");
        let inspect: serde_json::Value = serde_json::from_str(inspect).unwrap();
        let texts = |v: &serde_json::Value| -> Vec<String> {
            v.as_array()
                .unwrap()
                .iter()
                .map(|w| w.as_str().unwrap().to_owned())
                .collect()
        };
        let facts = ContainerFacts {
            argv: std::iter::once(inspect[0]["Path"].as_str().unwrap().to_owned())
                .chain(texts(&inspect[0]["Args"]))
                .collect(),
            env: texts(&inspect[0]["Config"]["Env"])
                .iter()
                .filter_map(|e| e.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned())))
                .collect(),
            ..ContainerFacts::default()
        };
        let s = read_settings(&facts);
        assert_eq!(s.model.as_deref(), Some("/models/tiny-llama"));
        assert_eq!(s.served_model_name.as_deref(), Some("tiny-llama"));
        assert_eq!((s.port, s.needs_api_key), (None, false));
        assert_eq!(value(&s, "enforce_eager"), Some("true"));
        assert_eq!(value(&s, "max_model_len"), Some("2048"));
        assert_eq!(value(&s, "kv_cache_memory_bytes"), Some("268435456"));
        assert_eq!(value(&s, "HF_HUB_OFFLINE"), Some("1"));
        assert_eq!(value(&s, "VLLM_NO_USAGE_STATS"), Some("1"));
        assert_eq!(value(&s, "PATH"), None);
    }

    #[test]
    fn spellings() {
        let s = settings(&[
            "python3",
            "-m",
            "vllm.entrypoints.openai.api_server",
            "--model=org/m",
            "--served_model_name",
            "a",
            "b",
            "--port=9000",
            "--host",
            "0.0.0.0",
            "-tp",
            "2",
            "-pp=3",
            "-dp4",
            "-q",
            "fp8",
            "--dtype",
            "half",
            "--kv-cache-dtype",
            "fp8",
            "--gpu-memory-util",
            "0.5",
            "--max-model-len",
            "128K",
            "--block-size",
            "32",
            "--no-enable-prefix-caching",
            "--kv-cache-memory=1g",
            "--speculative-config",
            "{\"model\": \"d\"}",
            "--config",
            "/etc/vllm.yaml",
            "-O3",
        ]);
        assert_eq!(s.model.as_deref(), Some("org/m"));
        assert_eq!(s.served_model_name.as_deref(), Some("a"));
        assert_eq!((s.port, s.host.as_deref()), (Some(9000), Some("0.0.0.0")));
        for (key, expected) in [
            ("served_model_name", "a b"),
            ("tensor_parallel_size", "2"),
            ("pipeline_parallel_size", "3"),
            ("data_parallel_size", "4"),
            ("quantization", "fp8"),
            ("dtype", "half"),
            ("kv_cache_dtype", "fp8"),
            ("gpu_memory_utilization", "0.5"),
            ("max_model_len", "131072"),
            ("block_size", "32"),
            ("enable_prefix_caching", "false"),
            ("kv_cache_memory_bytes", "1000000000"),
            ("speculative_config", "{\"model\": \"d\"}"),
            ("config", "/etc/vllm.yaml"),
            ("optimization_level", "3"),
        ] {
            assert_eq!(value(&s, key), Some(expected), "{key}");
        }
    }

    #[test]
    fn the_model_of_vllm_serve() {
        for argv in [
            &["vllm", "serve", "m", "--enforce-eager"][..],
            &["vllm", "serve", "--enforce-eager", "m"],
            &["vllm", "serve", "--model", "m"],
            &["vllm", "serve", "m", "--model", "other"],
            &["sh", "-c", "MODEL=m; vllm serve \"$MODEL\" --api-key k"],
        ] {
            assert_eq!(settings(argv).model.as_deref(), Some("m"), "{argv:?}");
        }
        assert_eq!(
            settings(&["vllm", "bench", "latency", "--model", "m"]).model,
            None
        );
    }

    #[test]
    fn keys_are_noticed_and_never_kept() {
        let s = settings(&[
            "vllm",
            "serve",
            "m",
            "--api-key",
            "sk-one",
            "sk-two",
            "--hf-token",
            "hf_x",
        ]);
        assert!(s.needs_api_key);
        let mut facts = ContainerFacts {
            argv: vec!["sleep".into(), "1".into()],
            ..ContainerFacts::default()
        };
        facts.env = [
            ("VLLM_API_KEY", "sk-one"),
            ("VLLM_S3_SECRET", "x"),
            ("VLLM_CPU_KVCACHE_SPACE", "4"),
            ("HF_TOKEN", "y"),
        ]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into();
        let e = read_settings(&facts);
        assert!(e.needs_api_key);
        assert_eq!(
            e.values.keys().collect::<Vec<_>>(),
            ["VLLM_CPU_KVCACHE_SPACE"]
        );
        for text in [format!("{s:?}"), format!("{e:?}")] {
            assert!(!text.contains("sk-") && !text.contains("hf_x"), "{text}");
        }
    }

    #[test]
    fn human_integers() {
        for (text, expected) in [
            ("1k", "1000"),
            ("1K", "1024"),
            ("25.6k", "25600"),
            ("128K", "131072"),
            ("1M", "1048576"),
            ("2g", "2000000000"),
            ("auto", "auto"),
            ("-1", "auto"),
            ("4096", "4096"),
            ("1.5K", "1.5K"),
            ("many", "many"),
            ("é", "é"),
            ("99999999999999999999T", "99999999999999999999T"),
            ("", ""),
        ] {
            assert_eq!(plain_integer(text), expected, "{text}");
        }
    }

    #[test]
    fn serving_a_model() {
        let settings = RequestedSettings {
            dtype: Some("bfloat16".into()),
            enforce_eager: true,
            max_model_len: Some(2048),
            gpu_memory_utilization: Some(0.5),
            ..RequestedSettings::default()
        };
        let plan = EngineId::Vllm.serve(&ServeJob {
            model: "m",
            port: 8000,
            settings: &settings,
            extra_engine_args: &["--x".into()],
        });
        assert_eq!(
            plan.cmd.join(" "),
            "--model m --port 8000 --dtype bfloat16 --gpu-memory-utilization 0.5 --max-model-len 2048 --enforce-eager --x"
        );
        assert_eq!(plan.health_path, "/health");
        // The flag is still known to the newest release beside its positional word.
        assert!(
            include_str!("../../../tests/fixtures/vllm/help/help-serve-all.txt")
                .contains("\n  --model MODEL ")
        );
    }
}
