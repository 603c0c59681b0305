//! Whether a container is SGLang's, where in process 1's command its server begins, and the settings there.

use crate::capture::ContainerFacts;
use crate::engine::argv::{Flags, Grammar, basename};
use crate::engine::process::{ServerCommand, image_is, of_image, of_process, of_variable};
use crate::engine::settings::{flag_names, variables};
use crate::engine::{EngineId, Recognition, ServerSettings};
use std::sync::LazyLock;

/// Names of its images: `lmsysorg/sglang`, `rocm/sgl-dev`.
const IMAGES: &[&str] = &["sglang", "sgl-dev"];

/// Variables that SGLang's images set or it alone reads.
const OWN_ENV: &[&str] = &["SGL_MODEL_GATEWAY", "SGLANG_USE_AITER", "SGLANG_LOG_MS"];

/// The server that process 1 is, if it is one.
fn server(facts: &ContainerFacts) -> Option<ServerCommand> {
    ServerCommand::find(facts, flags_at)
}

fn flags_at(argv: &[String]) -> Option<usize> {
    // Any wrapper may come first: an init, `numactl`, the entrypoint of NVIDIA's images.
    (0..argv.len()).find_map(|i| {
        let word = argv[i].as_str();
        match (word, argv.get(i + 1).map(String::as_str)) {
            (program, Some("serve")) if basename(program) == "sglang" => Some(i + 2),
            ("-m", Some("sglang.launch_server")) => Some(i + 2),
            (file, _) if file.ends_with("sglang/launch_server.py") => Some(i + 1),
            // The title that the main process gives itself.
            (title, _) if title.starts_with("sglang::http_server") => Some(i + 1),
            _ => None,
        }
    })
}

/// Whether the container is SGLang's.
pub fn recognise(facts: &ContainerFacts) -> Option<Recognition> {
    if let Some(server) = server(facts) {
        // Only the last two words: earlier ones may contain anything, even a secret.
        let at = server.flags_at;
        let words = server.command.argv[at.saturating_sub(2)..at].join(" ");
        return Some(Recognition::serving(format!("process 1 runs `{words}`")));
    }
    of_image(facts, image_is(&facts.image, IMAGES), "SGLang", of_process)
        .or_else(|| of_variable(facts, OWN_ENV, "SGLang", of_process))
}

/// Spellings of one flag; the right one is the word that other engines have for it.
static GRAMMAR: LazyLock<Grammar> = LazyLock::new(|| {
    // Long flags that an alias is found by when they are shortened.
    let spelled = ["model_path", "tokenizer_path", "mamba_scheduler_strategy"];
    let names = flag_names(EngineId::Sglang).chain(spelled);
    Grammar::from_table(include_str!("flags.txt")).with_names(names)
});

/// Flags with secret values, which are never recorded.
const SECRET: &[&str] = &["api_key", "admin_api_key", "ssl_keyfile_password"];

/// Variables of other programs that change its memory.
const FOREIGN_ENV: &[&str] = &[
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "HF_HUB_OFFLINE",
];

/// Settings of the server that process 1 is; of an idle container only its environment.
pub fn read_settings(facts: &ContainerFacts) -> ServerSettings {
    let mut env = facts.env.clone();
    let mut settings = ServerSettings::default();
    if let Some(server) = server(facts) {
        let flags = Flags::read(server.flags(), &GRAMMAR);
        settings.port = flags.value("port").and_then(|p| p.parse().ok());
        settings.host = flags.value("host").map(str::to_owned);
        // `sglang serve MODEL`: the first word, unless it is a flag.
        let serve = server.last_word() == Some("serve");
        let first = server.flags().first();
        let first = first.filter(|w| serve && !w.starts_with('-'));
        settings.model = flags
            .value("model")
            .or(first.map(String::as_str))
            .map(str::to_owned);
        settings.served_model_name = flags.value("served_model_name").map(str::to_owned);
        settings.needs_api_key = flags.value("api_key").is_some_and(|v| !v.is_empty());
        settings.values.extend(flags.texts(SECRET));
        env.extend(server.command.env);
        // Data-parallel attention shares the tensor-parallel ranks out; it adds none.
        if settings.values.contains_key("enable_dp_attention") {
            if let Some(size) = settings.values.remove("data_parallel_size") {
                settings.values.insert("dp_attention_size".to_owned(), size);
            }
        }
    }
    let kept = variables(env, &["SGLANG_", "SGL_"], FOREIGN_ENV);
    settings.values.extend(kept);
    settings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::process::container;

    fn serving(image: &str, argv: &[&str]) -> Option<bool> {
        recognise(&container(image, argv)).map(|r| r.serving)
    }

    #[test]
    fn servers_and_idle_containers() {
        for argv in [
            &["python3", "-m", "sglang.launch_server", "--model-path", "m"][..],
            &[
                "/opt/nvidia/nvidia_entrypoint.sh",
                "sglang",
                "serve",
                "--model-path",
                "m",
            ],
            &[
                "bash",
                "-c",
                "cd /x && exec python3 -m sglang.launch_server --model m",
            ],
            &[
                "python",
                "/sgl-workspace/sglang/python/sglang/launch_server.py",
            ],
        ] {
            assert_eq!(serving("any", argv), Some(true), "{argv:?}");
        }
        for image in [
            "lmsysorg/sglang:v0.5.9-cu129",
            "rocm/sgl-dev:x",
            "nvcr.io/nvidia/sglang:25.10-py3",
        ] {
            assert_eq!(serving(image, &["sleep", "inf"]), Some(false), "{image}");
        }
        assert_eq!(serving("x/sglang-router", &["sleep", "inf"]), None);
        assert_eq!(serving("any", &["echo", "sglang", "serve"]), None);
        assert_eq!(
            serving("any", &["python3", "-m", "sglang.bench_serving"]),
            None
        );
        assert_eq!(
            serving("any", &["python3", "-m", "sglang_router.launch_router"]),
            None
        );
    }
}

#[cfg(test)]
mod settings_tests {
    use super::*;
    use crate::capture::RequestedSettings;
    use crate::engine::ServeJob;

    #[test]
    fn spellings_and_secrets() {
        let mut facts = ContainerFacts {
            argv: [
                "python3",
                "-m",
                "sglang.launch_server",
                "--model-path",
                "org/m",
                "--tp",
                "4",
                "--dp-size=2",
                "--enable-dp-attention",
                "--mem-fraction-static",
                "0.8",
                "--port",
                "31000",
                "--api-key",
                "sk-x",
                "--served-model-name",
                "m",
            ]
            .map(str::to_owned)
            .to_vec(),
            ..ContainerFacts::default()
        };
        facts.env = [
            ("SGLANG_API_KEY", "sk-y"),
            ("CUDA_VISIBLE_DEVICES", "2,3"),
            ("PATH", "/"),
        ]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into();
        let s = read_settings(&facts);
        assert_eq!((s.port, s.model.as_deref()), (Some(31000), Some("org/m")));
        assert!(s.needs_api_key && !format!("{s:?}").contains("sk-"));
        for (key, value) in [
            ("tensor_parallel_size", "4"),
            ("dp_attention_size", "2"),
            ("mem_fraction_static", "0.8"),
            ("CUDA_VISIBLE_DEVICES", "2,3"),
        ] {
            assert_eq!(s.values.get(key).map(String::as_str), Some(value), "{key}");
        }
        assert!(!s.values.contains_key("PATH") && !s.values.contains_key("data_parallel_size"));
        let plan = EngineId::Sglang.serve(&ServeJob {
            model: "org/m",
            port: 31000,
            settings: &RequestedSettings::default(),
            extra_engine_args: &[],
        });
        let served = read_settings(&ContainerFacts {
            argv: plan.cmd,
            ..ContainerFacts::default()
        });
        assert_eq!(
            (served.port, served.model),
            (Some(31000), Some("org/m".to_owned()))
        );
    }
}
