//! Whether a container is TGI's, where its launcher's flags begin, and what they set; each is a variable too, in capitals.

use crate::capture::ContainerFacts;
use crate::engine::argv::{Flags, Grammar, basename};
use crate::engine::process::{
    ServerCommand, image_name, is_about, not_by_name, of_image, of_variable,
};
use crate::engine::settings::name_commonly;
use crate::engine::{Recognition, ServerSettings};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Programs that are the server, or start it.
const PROGRAMS: &[&str] = &[
    "text-generation-launcher",
    "text-generation-router",
    "tgi-entrypoint.sh",
];

/// Programs of TGI that serve nothing.
const TOOLS: &[&str] = &["text-generation-benchmark"];

/// A variable that only TGI reads.
const OWN_ENV: &str = "TGI_WIGGLE_ROOM";

/// The server that process 1 is, if it is one.
fn server(facts: &ContainerFacts) -> Option<ServerCommand> {
    let ours = image_is_tgi(&facts.image);
    let begins = |word: &String| {
        // Amazon's images start it by a script of a common name.
        PROGRAMS.contains(&basename(word)) || (ours && basename(word) == "entrypoint.sh")
    };
    let flags_at = |argv: &[String]| {
        let at = argv.iter().position(begins)?;
        // An entrypoint runs the command that follows it.
        let other = argv.get(at + 1).map(|w| basename(w));
        let last = argv.iter().rposition(begins)?;
        (other.is_none_or(|w| !TOOLS.contains(&w))).then_some(last + 1)
    };
    let of_flags = || ServerCommand::of_flags(&facts.argv, "--");
    ServerCommand::find(facts, flags_at).or_else(|| of_flags().filter(|_| ours))
}

/// Whether the container is TGI's.
pub fn recognise(facts: &ContainerFacts) -> Option<Recognition> {
    if let Some(server) = server(facts) {
        // A router or launcher script followed by a shell is an interactive session.
        let serving = (server.flags().first()).is_none_or(|w| w.starts_with('-'));
        let evidence = server.evidence(facts);
        return Some(Recognition { evidence, serving });
    }
    of_image(facts, image_is_tgi(&facts.image), "TGI", not_by_name)
        .or_else(|| of_variable(facts, &[OWN_ENV], "TGI", not_by_name))
}

/// Whether an image is named as TGI's are: `text-generation-inference`, Amazon's
/// `huggingface-pytorch-tgi-inference`, `tgi-gaudi`.
fn image_is_tgi(image: &str) -> bool {
    let name = image_name(image);
    let words: Vec<&str> = name.split(['-', '_', '.']).collect();
    let named = name.contains("text-generation-inference") || words.contains(&"tgi");
    named && !is_about(&words)
}

/// The launcher's flags by what they take, of releases 0.9 to 3.3.
static GRAMMAR: LazyLock<Grammar> =
    LazyLock::new(|| Grammar::from_table(include_str!("flags.txt")));

/// Flags that affect memory or what is served, read as variables too. Excludes `HOSTNAME`: Docker
/// sets it to the container's id.
const SETTINGS: &[&str] = &[
    "model_id",
    "revision",
    "sharded",
    "num_shard",
    "quantize",
    "speculate",
    "dtype",
    "kv_cache_dtype",
    "max_concurrent_requests",
    "max_input_tokens",
    "max_input_length",
    "max_total_tokens",
    "max_batch_prefill_tokens",
    "max_batch_total_tokens",
    "max_batch_size",
    "cuda_graphs",
    "cuda_memory_fraction",
    "port",
    "prometheus_port",
];

/// Variables without a flag that affect memory.
const ENV_ONLY: &[&str] = &[
    "ATTENTION",
    "PREFIX_CACHING",
    "PREFILL_CHUNKING",
    "TGI_WIGGLE_ROOM",
    "FLASH_DECODING",
    "USE_FLASH_ATTENTION",
    "HF_HUB_OFFLINE",
    "HF_HOME",
    "HUGGINGFACE_HUB_CACHE",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_TUNABLEOP_ENABLED",
];

/// Its own names and the common ones.
const COMMON: &[(&str, &str)] = &[
    ("model_id", "model"),
    ("quantize", "quantization"),
    ("max_input_length", "max_input_tokens"),
    ("num_shard", "tensor_parallel_size"),
];

/// Flags with secret values, which are never recorded.
const SECRET: &[&str] = &["api_key", "ngrok_authtoken"];

/// Settings of the server that process 1 is; of an idle container only its environment.
pub fn read_settings(facts: &ContainerFacts) -> ServerSettings {
    let server = server(facts);
    let mut env = facts.env.clone();
    let mut flags = Flags::default();
    let serves = server.is_some();
    if let Some(server) = server {
        flags = Flags::read(server.flags(), &GRAMMAR);
        env.extend(server.command.env);
    }
    let mut values = BTreeMap::new();
    // Amazon's entrypoint hands these on as flags.
    for (name, key) in [("HF_MODEL_ID", "model_id"), ("SM_NUM_GPUS", "num_shard")] {
        if let Some(value) = env.get(name).filter(|v| !v.is_empty()) {
            values.insert(key.to_owned(), value.clone());
        }
    }
    for key in SETTINGS {
        if let Some(value) = env.get(&key.to_ascii_uppercase()).filter(|v| !v.is_empty()) {
            values.insert((*key).to_owned(), value.clone());
        }
    }
    for name in ENV_ONLY {
        if let Some(value) = env.get(*name) {
            values.insert((*name).to_owned(), value.clone());
        }
    }
    values.extend(flags.texts(SECRET));
    if serves && !values.contains_key("num_shard") {
        if let Some(shards) = shards(&values, &env) {
            values.insert("num_shard".to_owned(), shards.to_string());
        }
    }
    name_commonly(&mut values, COMMON);
    // Outside its images the launcher listens on 3000.
    let bare = serves && !env.contains_key("PORT") && facts.image.is_empty();
    ServerSettings {
        port: values
            .get("port")
            .and_then(|p| p.parse().ok())
            .or(bare.then_some(3000)),
        host: flags.value("hostname").map(str::to_owned),
        model: values.get("model_id").cloned(),
        served_model_name: None,
        needs_api_key: flags.value("api_key").is_some_and(|k| !k.is_empty())
            || env.get("API_KEY").is_some_and(|k| !k.is_empty()),
        values,
    }
}

/// Shards that the launcher starts by default: one unless it may shard, else one for each device
/// that the first of these variables names. `all` means every device of the host.
fn shards(values: &BTreeMap<String, String>, env: &BTreeMap<String, String>) -> Option<usize> {
    if values
        .get("sharded")
        .is_some_and(|v| v.eq_ignore_ascii_case("false"))
    {
        return Some(1);
    }
    let devices = [
        "CUDA_VISIBLE_DEVICES",
        "NVIDIA_VISIBLE_DEVICES",
        "ZE_AFFINITY_MASK",
    ]
    .iter()
    .find_map(|name| env.get(*name));
    match devices.map(|v| v.trim()) {
        Some("all" | "[not kept]") => None,
        Some("" | "void" | "none") => Some(1),
        Some(list) => Some(list.split(',').count()),
        // Docker's own request of devices may set NVIDIA_VISIBLE_DEVICES later than this is read.
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::process::container;
    use std::collections::BTreeMap;

    fn serving(image: &str, argv: &[&str]) -> Option<bool> {
        recognise(&container(image, argv)).map(|r| r.serving)
    }

    #[test]
    fn servers_in_every_dress() {
        for argv in [
            &["text-generation-launcher", "--model-id", "m"][..],
            &["/tgi-entrypoint.sh", "--model-id", "m"],
            &["/tgi-entrypoint.sh"],
            &[
                "/tgi-entrypoint.sh",
                "text-generation-launcher",
                "--port",
                "80",
            ],
            &["tini", "--", "/usr/local/bin/text-generation-launcher"],
            &[
                "sh",
                "-c",
                "exec text-generation-launcher --model-id $MODEL_ID",
            ],
        ] {
            assert_eq!(serving("anything", argv), Some(true), "{argv:?}");
        }
        let image = "ghcr.io/huggingface/text-generation-inference:3.3.5-rocm";
        assert_eq!(serving(image, &["--model-id", "m"]), Some(true));
        let amazon =
            "763104351884.dkr.ecr.us-east-1.amazonaws.com/huggingface-pytorch-tgi-inference:2.3";
        assert_eq!(serving(amazon, &["./entrypoint.sh"]), Some(true));
    }

    #[test]
    fn idle_and_others() {
        let image = "ghcr.io/huggingface/text-generation-inference:3";
        for argv in [
            &["sleep", "infinity"][..],
            &["bash"],
            &[],
            &["/tgi-entrypoint.sh", "bash"],
        ] {
            assert_eq!(serving(image, argv), Some(false), "{argv:?}");
        }
        assert_eq!(serving("nginx", &["./entrypoint.sh"]), None);
        assert_eq!(serving("vllm/vllm-openai", &["--model", "m"]), None);
        assert_eq!(serving("org/tgi-exporter", &["/exporter"]), None);
        assert_eq!(serving("x", &["echo", "text-generation-launcher"]), None);
        let own = |argv: &str| ContainerFacts {
            argv: vec![argv.to_owned()],
            env: BTreeMap::from([(OWN_ENV.to_owned(), "0.9".to_owned())]),
            ..ContainerFacts::default()
        };
        assert!(recognise(&own("bash")).is_some());
        assert!(recognise(&own("nginx")).is_none());
    }
}

#[cfg(test)]
mod settings_tests {
    use super::*;
    use crate::capture::RequestedSettings;
    use crate::engine::{EngineId, ServeJob};

    fn settings(argv: &[&str], env: &[(&str, &str)]) -> ServerSettings {
        read_settings(&ContainerFacts {
            image: "ghcr.io/huggingface/text-generation-inference:3".to_owned(),
            argv: argv.iter().map(|w| (*w).to_owned()).collect(),
            env: env
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
            ..ContainerFacts::default()
        })
    }

    fn value<'a>(settings: &'a ServerSettings, key: &str) -> Option<&'a str> {
        settings.values.get(key).map(String::as_str)
    }

    #[test]
    fn a_flag_beats_its_variable() {
        let s = settings(
            &[
                "/tgi-entrypoint.sh",
                "--model-id",
                "org/m",
                "--quantize=awq",
                "--sharded",
                "false",
                "--api-key",
                "sk-1",
            ],
            &[
                ("MODEL_ID", "org/other"),
                ("PORT", "80"),
                ("MAX_TOTAL_TOKENS", "4096"),
                ("HOSTNAME", "ab12"),
            ],
        );
        assert_eq!(s.model.as_deref(), Some("org/m"));
        assert_eq!((s.port, s.host.as_deref()), (Some(80), None));
        assert_eq!(value(&s, "quantization"), Some("awq"));
        assert_eq!(value(&s, "max_total_tokens"), Some("4096"));
        assert_eq!(value(&s, "tensor_parallel_size"), Some("1"));
        assert!(s.needs_api_key && !format!("{s:?}").contains("sk-1"));
    }

    #[test]
    fn shards_without_a_flag() {
        let count = |env: &[(&str, &str)]| {
            let s = settings(&["text-generation-launcher"], env);
            value(&s, "tensor_parallel_size").map(str::to_owned)
        };
        assert_eq!(
            count(&[("CUDA_VISIBLE_DEVICES", "0,2,3")]).as_deref(),
            Some("3")
        );
        assert_eq!(count(&[("NVIDIA_VISIBLE_DEVICES", "all")]), None);
        assert_eq!(
            count(&[("SM_NUM_GPUS", "4"), ("NVIDIA_VISIBLE_DEVICES", "0")]).as_deref(),
            Some("4")
        );
        assert_eq!(count(&[("NUM_SHARD", "2")]).as_deref(), Some("2"));
        assert_eq!(count(&[]), None);
        let amazon = settings(&["./entrypoint.sh"], &[("HF_MODEL_ID", "org/m")]);
        assert_eq!(amazon.model.as_deref(), Some("org/m"));
        let idle = settings(&["sleep", "1"], &[("CUDA_VISIBLE_DEVICES", "0,1")]);
        assert_eq!(value(&idle, "tensor_parallel_size"), None);
    }

    #[test]
    fn serving_a_model() {
        let requested = RequestedSettings {
            enforce_eager: true,
            tensor_parallel_size: Some(2),
            max_model_len: Some(4096),
            ..RequestedSettings::default()
        };
        let plan = EngineId::Tgi.serve(&ServeJob {
            model: "m",
            port: 80,
            settings: &requested,
            extra_engine_args: &["--json-output".into()],
        });
        assert_eq!(
            plan.cmd.join(" "),
            "--model-id m --port 80 --num-shard 2 --max-total-tokens 4096 --cuda-graphs 0 --json-output"
        );
    }
}
