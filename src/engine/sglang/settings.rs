//! Parses and renders the arguments and variables of an SGLang server.

use super::recognise;
use crate::capture::ContainerFacts;
use crate::engine::argv::{Flags, Grammar};
use crate::engine::settings::{flag_names, variables};
use crate::engine::{EngineId, ServerSettings};
use std::sync::LazyLock;

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
pub fn read(facts: &ContainerFacts) -> ServerSettings {
    let mut env = facts.env.clone();
    let mut settings = ServerSettings::default();
    if let Some(server) = recognise::server(facts) {
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
        let s = read(&facts);
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
        let served = read(&ContainerFacts {
            argv: plan.cmd,
            ..ContainerFacts::default()
        });
        assert_eq!(
            (served.port, served.model),
            (Some(31000), Some("org/m".to_owned()))
        );
    }
}
