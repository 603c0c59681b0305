//! Parses and renders the arguments of `trtllm-serve`. Further settings are in a YAML file
//! (`--extra_llm_api_options`, `--config`), which is named here and not read.

use super::recognise;
use crate::capture::ContainerFacts;
use crate::engine::ServerSettings;
use crate::engine::argv::{Flags, Grammar};
use crate::engine::settings::{name_commonly, variables};
use std::sync::LazyLock;

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
pub fn read(facts: &ContainerFacts) -> ServerSettings {
    let server = recognise::server(facts);
    let mut env = facts.env.clone();
    let mut settings = ServerSettings::default();
    if let Some(server) = server {
        let flags = Flags::read(server.flags(), &GRAMMAR);
        let triton = recognise::is_triton(&server);
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
    use crate::capture::RequestedSettings;
    use crate::engine::{EngineId, ServeJob};

    fn settings(argv: &[&str]) -> ServerSettings {
        read(&ContainerFacts {
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
