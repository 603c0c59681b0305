//! Whether a container is TensorRT-LLM's: `trtllm-serve` by any launcher, or Triton with its
//! backend; and its settings. Further ones are in a YAML file (`--extra_llm_api_options`,
//! `--config`), which is named here and not read.

use crate::capture::ContainerFacts;
use crate::engine::argv::{Flags, Grammar, basename};
use crate::engine::process::{ServerCommand, image_name, is_about, is_idle, not_by_name, of_image};
use crate::engine::settings::{name_commonly, variables};
use crate::engine::{Recognition, ServerSettings};
use std::sync::LazyLock;

/// Modules and files that are the server.
const MODULES: &[&str] = &["tensorrt_llm.commands.serve", "tensorrt_llm.serve"];

/// Triton, and the script of its backend that starts it.
const TRITON: &[&str] = &["tritonserver", "launch_triton_server.py"];

/// Words after `trtllm-serve` that do not name a model.
const SUBCOMMANDS: &[&str] = &["serve"];

/// Subcommands of `trtllm-serve` that hold no model's memory, or not as one server.
const OTHERS: &[&str] = &["disaggregated", "mm_embedding_serve"];

/// The server that process 1 is, if it is one.
fn server(facts: &ContainerFacts) -> Option<ServerCommand> {
    ServerCommand::find(facts, |argv| flags_at(argv, &facts.image))
}

/// Whether it is Triton, which takes the model from its repository and not from the command.
fn is_triton(server: &ServerCommand) -> bool {
    server
        .last_word()
        .is_some_and(|word| TRITON.contains(&basename(word)))
}

fn flags_at(argv: &[String], image: &str) -> Option<usize> {
    // `mpirun -n 2 trtllm-llmapi-launch trtllm-serve …`: any launcher may come first.
    let at = (0..argv.len()).find_map(|i| {
        let next = argv.get(i + 1).map(String::as_str);
        match basename(&argv[i]) {
            "trtllm-serve" => {
                let skip = usize::from(next.is_some_and(|w| SUBCOMMANDS.contains(&w)));
                Some(i + 1 + skip)
            }
            "-m" if next.is_some_and(|w| MODULES.contains(&w)) => Some(i + 2),
            // Triton serves many backends; only an image or a script identifies this one.
            word if TRITON.contains(&word) && (is_own_triton(image) || word != "tritonserver") => {
                Some(i + 1)
            }
            _ => None,
        }
    })?;
    let is_other = argv.get(at).is_some_and(|w| OTHERS.contains(&w.as_str()));
    (!is_other).then_some(at)
}

/// Whether the container is TensorRT-LLM's.
pub fn recognise(facts: &ContainerFacts) -> Option<Recognition> {
    if let Some(server) = server(facts) {
        let words: Vec<&str> = server.command.argv[..server.flags_at]
            .iter()
            .skip(server.flags_at.saturating_sub(2))
            .map(|w| basename(w))
            .filter(|w| !w.starts_with('-') && !w.contains('='))
            .collect();
        let mut evidence = format!("process 1 runs `{}`", words.join(" "));
        if is_triton(&server) {
            evidence.push_str(" of an image with the TensorRT-LLM backend");
        }
        return Some(Recognition::serving(evidence));
    }
    let image = &facts.image;
    if image_is_trtllm(image) {
        return of_image(facts, true, "TensorRT-LLM", not_by_name);
    }
    // NIM's images run vLLM or TensorRT-LLM inside; the profile's name shows which.
    let profile = facts
        .env
        .get("NIM_MODEL_PROFILE")
        .map(|p| p.to_ascii_lowercase());
    let named = profile.is_some_and(|p| p.contains("tensorrt_llm") || p.contains("trtllm"));
    if image.starts_with("nvcr.io/nim/") && named {
        return Some(Recognition {
            evidence: format!("image `{image}` with `NIM_MODEL_PROFILE` of TensorRT-LLM"),
            serving: !is_idle(&facts.argv),
        });
    }
    None
}

/// Triton's image with this backend: `tritonserver:25.06-trtllm-python-py3`.
fn is_own_triton(image: &str) -> bool {
    let name = basename(image.split('@').next().unwrap_or_default());
    name.contains("trtllm") || name.contains("tensorrt-llm") || name.contains("tensorrt_llm")
}

/// Whether an image is named after it: `nvidia/tensorrt-llm/release:1.0`, `tensorrtllm-runtime`.
fn image_is_trtllm(image: &str) -> bool {
    let repository = image.split('@').next().unwrap_or_default();
    let name = image_name(image);
    let words: Vec<&str> = name.split(['-', '_', '.']).collect();
    let path = repository.to_ascii_lowercase();
    !is_about(&words)
        && (is_own_triton(image)
            || path.contains("/tensorrt-llm/")
            || ["tensorrt-llm", "tensorrt_llm", "tensorrtllm", "trtllm", "trt-llm"]
                .iter()
                .any(|own| name.to_ascii_lowercase().contains(own)))
        // TGI's image with this backend runs TGI's router.
        && !path.contains("text-generation-inference")
}

/// The flags of `trtllm-serve serve` by what they take, of releases 0.18 to 1.2.
static GRAMMAR: LazyLock<Grammar> =
    LazyLock::new(|| Grammar::from_table(include_str!("flags.txt")));

/// Its own names and the common ones.
const COMMON: &[(&str, &str)] = &[
    ("tp_size", "tensor_parallel_size"),
    ("pp_size", "pipeline_parallel_size"),
    (
        "kv_cache_free_gpu_memory_fraction",
        "free_gpu_memory_fraction",
    ),
    ("max_seq_len", "max_model_len"),
];

/// Variables of other programs that change its memory.
const FOREIGN_ENV: &[&str] = &[
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "PYTORCH_CUDA_ALLOC_CONF",
    "NIM_MODEL_PROFILE",
    "HF_HUB_OFFLINE",
];

/// Settings of the server that process 1 is; of an idle container only its environment.
pub fn read_settings(facts: &ContainerFacts) -> ServerSettings {
    let server = server(facts);
    let mut env = facts.env.clone();
    let mut settings = ServerSettings::default();
    if let Some(server) = server {
        let flags = Flags::read(server.flags(), &GRAMMAR);
        let triton = is_triton(&server);
        env.extend(server.command.env);
        settings.values.extend(flags.texts(&[]));
        let port = if triton { "http_port" } else { "port" };
        settings.port = flags.value(port).and_then(|p| p.parse().ok());
        // Bound to itself, the server is reached from inside its container only.
        settings.host = match flags.value("host") {
            Some(host) => Some(host.to_owned()),
            None if triton => None,
            None => Some("localhost".to_owned()),
        };
        if !triton {
            settings.model = flags.positionals.first().cloned();
        }
        if let Some(model) = &settings.model {
            settings.values.insert("model".to_owned(), model.clone());
        }
        settings.served_model_name = flags.value("served_model_name").map(str::to_owned);
        name_commonly(&mut settings.values, COMMON);
    }
    let own = variables(env, &["TLLM_", "TRTLLM_"], FOREIGN_ENV);
    settings.values.extend(own);
    settings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::process::container;
    use std::collections::BTreeMap;

    fn serving(image: &str, argv: &[&str]) -> Option<bool> {
        recognise(&container(image, argv)).map(|r| r.serving)
    }

    const RELEASE: &str = "nvcr.io/nvidia/tensorrt-llm/release:1.0.0";
    const TRITON_IMAGE: &str = "nvcr.io/nvidia/tritonserver:25.06-trtllm-python-py3";

    #[test]
    fn servers_in_every_dress() {
        for argv in [
            &["trtllm-serve", "m"][..],
            &["trtllm-serve", "serve", "m", "--backend", "pytorch"],
            &["/opt/nvidia/nvidia_entrypoint.sh", "trtllm-serve", "m"],
            &[
                "mpirun",
                "-n",
                "2",
                "--allow-run-as-root",
                "trtllm-llmapi-launch",
                "trtllm-serve",
                "m",
                "--tp_size",
                "2",
            ],
            &["bash", "-c", "export A=1; exec trtllm-serve $MODEL"],
            &["python3", "-m", "tensorrt_llm.commands.serve", "m"],
            &[
                "python3",
                "/app/scripts/launch_triton_server.py",
                "--world_size",
                "4",
            ],
        ] {
            assert_eq!(serving("anything", argv), Some(true), "{argv:?}");
        }
        assert_eq!(
            serving(TRITON_IMAGE, &["tritonserver", "--model-repository=/m"]),
            Some(true)
        );
    }

    #[test]
    fn idle_and_others() {
        assert_eq!(serving(RELEASE, &["sleep", "infinity"]), Some(false));
        assert_eq!(
            serving(RELEASE, &["trtllm-bench", "--model", "m", "throughput"]),
            Some(false)
        );
        assert_eq!(
            serving(
                "nvcr.io/nvidia/ai-dynamo/tensorrtllm-runtime:0.4",
                &["bash"]
            ),
            Some(false)
        );
        assert_eq!(
            serving("nvcr.io/nvidia/tritonserver:25.06-py3", &["tritonserver"]),
            None
        );
        assert_eq!(
            serving("x", &["trtllm-serve", "disaggregated", "-c", "y"]),
            None
        );
        assert_eq!(serving("x", &["echo", "trtllm-serve", "m"]), None);
        assert_eq!(
            serving("nvcr.io/nim/meta/llama:1", &["/opt/nim/start_server.sh"]),
            None
        );
        let mut nim = ContainerFacts {
            image: "nvcr.io/nim/meta/llama:1".to_owned(),
            argv: vec!["/opt/nim/start_server.sh".to_owned()],
            ..ContainerFacts::default()
        };
        nim.env = BTreeMap::from([(
            "NIM_MODEL_PROFILE".to_owned(),
            "tensorrt_llm-h100-fp8".to_owned(),
        )]);
        assert!(recognise(&nim).is_some_and(|r| r.serving));
    }
}

#[cfg(test)]
mod settings_tests {
    use super::*;
    use crate::capture::RequestedSettings;
    use crate::engine::{EngineId, ServeJob};

    fn settings(argv: &[&str]) -> ServerSettings {
        read_settings(&ContainerFacts {
            image: "nvcr.io/nvidia/tritonserver:25.06-trtllm-python-py3".to_owned(),
            argv: argv.iter().map(|w| (*w).to_owned()).collect(),
            env: [
                ("TLLM_LOG_LEVEL", "INFO"),
                ("TRTLLM_API_KEY", "k"),
                ("CUDA_VISIBLE_DEVICES", "0,1"),
            ]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into(),
            ..ContainerFacts::default()
        })
    }

    #[test]
    fn model_first_and_underscores() {
        for argv in [
            &[
                "trtllm-serve",
                "org/m",
                "--tp_size",
                "2",
                "--port",
                "9000",
                "--config=/x.yml",
            ][..],
            &[
                "mpirun",
                "-n",
                "2",
                "trtllm-llmapi-launch",
                "trtllm-serve",
                "serve",
                "org/m",
                "--tp-size=2",
                "--port=9000",
                "--config",
                "/x.yml",
            ],
        ] {
            let s = settings(argv);
            assert_eq!(s.model.as_deref(), Some("org/m"), "{argv:?}");
            assert_eq!((s.port, s.host.as_deref()), (Some(9000), Some("localhost")));
            assert_eq!(s.values["tensor_parallel_size"], "2");
            assert_eq!(s.values["config"], "/x.yml");
            assert_eq!(s.values["TLLM_LOG_LEVEL"], "INFO");
            assert!(!s.values.contains_key("TRTLLM_API_KEY"));
        }
    }

    #[test]
    fn triton_names_no_model() {
        let s = settings(&[
            "tritonserver",
            "--model-repository=/models",
            "--http-port",
            "8100",
        ]);
        assert_eq!((s.model, s.port, s.host), (None, Some(8100), None));
        assert_eq!(s.values["model_repository"], "/models");
    }

    #[test]
    fn serving_a_model() {
        let requested = RequestedSettings {
            tensor_parallel_size: Some(2),
            gpu_memory_utilization: Some(0.8),
            ..RequestedSettings::default()
        };
        let plan = EngineId::TensorRtLlm.serve(&ServeJob {
            model: "m",
            port: 8000,
            settings: &requested,
            extra_engine_args: &["--backend".into(), "pytorch".into()],
        });
        assert_eq!(
            plan.cmd.join(" "),
            "trtllm-serve serve m --host 0.0.0.0 --port 8000 --tp_size 2 --kv_cache_free_gpu_memory_fraction 0.8 --backend pytorch"
        );
    }
}
