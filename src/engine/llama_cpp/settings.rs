//! Parses and renders the arguments and variables of llama.cpp's server.

use super::recognise;
use crate::capture::ContainerFacts;
use crate::engine::ServerSettings;
use crate::engine::argv::{Flags, Grammar};
use std::sync::LazyLock;

/// Its short flags, and switches before which a word may follow that is not theirs.
static GRAMMAR: LazyLock<Grammar> =
    LazyLock::new(|| Grammar::from_table(include_str!("flags.txt")));

/// Flags with secret values, which are never recorded.
const SECRET: &[&str] = &["api_key", "hf_token"];

/// Variables of other programs that change its memory.
const FOREIGN_ENV: &[&str] = &[
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "GGML_VK_VISIBLE_DEVICES",
    "GGML_CUDA_ENABLE_UNIFIED_MEMORY",
];

/// Settings of the server that process 1 is; of an idle container only its environment.
pub fn read(facts: &ContainerFacts) -> ServerSettings {
    let mut env = facts.env.clone();
    let mut settings = ServerSettings::default();
    let server = recognise::server(facts);
    let mut given = Flags::default();
    if let Some(server) = server {
        given = Flags::read(server.flags(), &GRAMMAR);
        env.extend(server.command.env);
    }
    for (name, value) in env {
        match name.strip_prefix("LLAMA_ARG_") {
            Some(flag) => {
                let flag = flag.to_ascii_lowercase();
                let flag = match flag.as_str() {
                    "n_parallel" => "parallel",
                    "batch" => "batch_size",
                    "ubatch" => "ubatch_size",
                    other => other,
                };
                settings.values.insert(flag.to_owned(), value);
            }
            None if name == "LLAMA_API_KEY" => settings.needs_api_key |= !value.is_empty(),
            None if FOREIGN_ENV.contains(&name.as_str()) => {
                settings.values.insert(name, value);
            }
            None => {}
        }
    }
    // A flag wins over its variable.
    settings.values.extend(given.texts(SECRET));
    settings.needs_api_key |= given.has("api_key") || given.has("api_key_file");
    let value = |name: &str| settings.values.get(name).cloned();
    settings.port = value("port").and_then(|p| p.parse().ok());
    settings.host = value("host");
    settings.model = value("model").or_else(|| value("hf_repo"));
    settings.served_model_name = value("alias");
    settings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::RequestedSettings;
    use crate::engine::{EngineId, ServeJob};

    #[test]
    fn flags_and_variables() {
        let mut facts = ContainerFacts {
            argv: "/app/llama-server -m /m.gguf -c 8192 -ngl 99 --jinja -fa on --port 9 -ctk q8_0 --api-key sk-x -ts 3,1"
                .split(' ')
                .map(str::to_owned)
                .collect(),
            ..ContainerFacts::default()
        };
        facts.env = [
            ("LLAMA_ARG_CTX_SIZE", "1"),
            ("LLAMA_ARG_N_PARALLEL", "4"),
            ("LLAMA_ARG_HOST", "0.0.0.0"),
            ("LLAMA_API_KEY", "sk-y"),
            ("PATH", "/"),
        ]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into();
        let s = read(&facts);
        assert_eq!((s.port, s.model.as_deref()), (Some(9), Some("/m.gguf")));
        assert_eq!(s.host.as_deref(), Some("0.0.0.0"));
        assert!(s.needs_api_key && !format!("{s:?}").contains("sk-"));
        for (key, value) in [
            ("ctx_size", "8192"),
            ("n_gpu_layers", "99"),
            ("parallel", "4"),
            ("flash_attn", "on"),
            ("cache_type_k", "q8_0"),
            ("tensor_split", "3,1"),
            ("jinja", "true"),
        ] {
            assert_eq!(s.values.get(key).map(String::as_str), Some(value), "{key}");
        }
        let settings = RequestedSettings {
            kv_cache_dtype: Some("q8_0".into()),
            max_model_len: Some(2048),
            ..RequestedSettings::default()
        };
        let plan = EngineId::LlamaCpp.serve(&ServeJob {
            model: "/m.gguf",
            port: 8081,
            settings: &settings,
            extra_engine_args: &["-ngl".into(), "99".into()],
        });
        assert_eq!(
            plan.cmd.join(" "),
            "-m /m.gguf --host 0.0.0.0 --port 8081 -ctk q8_0 -ctv q8_0 -c 2048 -ngl 99"
        );
    }
}
