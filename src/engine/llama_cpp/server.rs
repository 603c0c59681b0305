//! Whether a container is llama.cpp's, where in process 1's command its server begins, and the settings there.

use crate::capture::ContainerFacts;
use crate::engine::argv::{Flags, Grammar, basename};
use crate::engine::process::{ServerCommand, image_is, of_image, of_process};
use crate::engine::{Recognition, ServerSettings};
use std::sync::LazyLock;

/// Names of its images: `ghcr.io/ggml-org/llama.cpp:server-cuda`.
const IMAGES: &[&str] = &["llama.cpp", "ik_llama.cpp", "llamacpp", "llama-server"];

/// The server that process 1 is, if it is one.
fn server(facts: &ContainerFacts) -> Option<ServerCommand> {
    let image = image_is(&facts.image, IMAGES);
    // Only the images for serving have the server as their entrypoint.
    let tag = basename(&facts.image)
        .rsplit_once(':')
        .map_or("", |(_, t)| t);
    let entrypoint = image && tag.starts_with("server");
    let of_flags = || ServerCommand::of_flags(&facts.argv, "-");
    ServerCommand::find(facts, |argv| flags_at(argv, image))
        .or_else(|| of_flags().filter(|_| entrypoint))
}

fn flags_at(argv: &[String], image: bool) -> Option<usize> {
    (0..argv.len()).find_map(|i| {
        let next = argv.get(i + 1).map(String::as_str);
        match basename(&argv[i]) {
            "llama-server" => Some(i + 1),
            "llama_cpp" | "llama" if next == Some("serve") => Some(i + 2),
            // The script of the `full` images.
            "tools.sh" if matches!(next, Some("--server" | "-s")) => Some(i + 2),
            // Its name until June 2024.
            "server" if image => Some(i + 1),
            _ => None,
        }
    })
}

/// Whether the container is llama.cpp's.
pub fn recognise(facts: &ContainerFacts) -> Option<Recognition> {
    if let Some(server) = server(facts) {
        return Some(Recognition::serving(server.evidence(facts)));
    }
    let named = image_is(&facts.image, IMAGES);
    of_image(facts, named, "llama.cpp", of_process)
}

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
pub fn read_settings(facts: &ContainerFacts) -> ServerSettings {
    let mut env = facts.env.clone();
    let mut settings = ServerSettings::default();
    let server = server(facts);
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
    use crate::engine::process::container;

    fn serving(image: &str, argv: &[&str]) -> Option<bool> {
        recognise(&container(image, argv)).map(|r| r.serving)
    }

    #[test]
    fn servers_and_others() {
        let image = "ghcr.io/ggml-org/llama.cpp:server-cuda-b6123";
        for (image, argv) in [
            ("any", &["/app/llama-server", "-m", "/m.gguf"][..]),
            ("any", &["sh", "-c", "exec llama-server -m $M"]),
            (image, &["-m", "/m.gguf"]),
            (
                "ghcr.io/ggml-org/llama.cpp:full",
                &["/app/tools.sh", "--server", "-m", "x"],
            ),
            (
                "ghcr.io/ggerganov/llama.cpp:server",
                &["/server", "-m", "x"],
            ),
        ] {
            assert_eq!(serving(image, argv), Some(true), "{image} {argv:?}");
        }
        assert_eq!(serving(image, &["sleep", "1"]), Some(false));
        assert_eq!(
            serving(
                "ghcr.io/ggml-org/llama.cpp:full",
                &["/app/tools.sh", "--bench"]
            ),
            Some(false)
        );
        assert_eq!(serving("any", &["/server", "-m", "x"]), None);
        assert_eq!(serving("ollama/ollama", &["/bin/ollama", "serve"]), None);
        assert_eq!(serving("any", &["grep", "llama-server"]), None);
    }
}

#[cfg(test)]
mod settings_tests {
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
        let s = read_settings(&facts);
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
