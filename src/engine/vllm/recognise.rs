//! Whether a container is vLLM's, and where in process 1's command its server begins.

use crate::capture::ContainerFacts;
use crate::engine::Recognition;
use crate::engine::argv::basename;
use crate::engine::process::{ServerCommand, image_is, of_image, of_process, of_variable};

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
pub fn server(facts: &ContainerFacts) -> Option<ServerCommand> {
    let of_flags = || ServerCommand::of_flags(&facts.argv, "--");
    ServerCommand::find(facts, flags_at)
        .or_else(|| of_flags().filter(|_| image_is_vllm(&facts.image)))
}

/// Whether its first word may be the model: the modules take `--model` only.
pub fn takes_model_first(server: &ServerCommand) -> bool {
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
