//! A deployment as an engine's own command line describes it: the flags as `engine/` reads them.

use super::case::{generation_of, version_of, versions_of};
use super::engines::llama_cpp::{self, LlamaAsked};
use super::engines::vllm::GraphsAsked;
use super::host_memory::HostAsked;
use super::{Deployment, EngineId, Lora, Unknown, Unmodelled, pooling, unmodelled};
use crate::engine::settings::{SETTINGS, Setting, ValueKind};
use serde_json::Value;
use std::collections::BTreeMap;

/// vLLM's default rank of LoRA adapters (vLLM 0.11, config/lora.py).
const LORA_RANK: u64 = 16;
/// SGLang's `--max-prefill-tokens` by default.
const SGLANG_PREFILL: u64 = 16384;

/// Least memory of a KV cache, bytes: a smaller number was meant in another unit.
pub const LEAST_CACHE: u64 = 1 << 20;

/// How an invalid value is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IllegalValue {
    /// As an error: a person wrote it.
    IsRefused,
    /// As unset: the engine ran with it, and printed it in a form of its own (`None`).
    IsUnset,
}

impl Deployment {
    /// The deployment that an engine's settings describe, flag name with underscores → value, with what of them is not
    /// modelled; and the name of a draft model. `asked` are those of the settings that were asked for: an engine that
    /// prints its defaults asks for nothing with them.
    ///
    /// # Errors
    /// An engine without rules, or an invalid value, with its flag.
    pub fn from_settings(
        engine: EngineId,
        values: &BTreeMap<String, String>,
        asked: &BTreeMap<String, String>,
        illegal: IllegalValue,
    ) -> Result<(Deployment, Option<String>), Unknown> {
        let mut deployment = Deployment::of_engine(engine)?;
        let engine = deployment.engine;
        let read = Read {
            engine,
            values,
            illegal,
        };
        apply(&mut deployment, &read)?;
        let mut besides = unmodelled::of_settings(engine, asked);
        if engine == EngineId::LlamaCpp {
            // Where a server reports its slots, and none were asked for, they share the context.
            if values.contains_key("parallel") && !asked.contains_key("parallel") {
                deployment.llama.unified.get_or_insert(true);
            }
            let gpus = deployment.gpus();
            let unmodelled = &mut besides.unmodelled;
            deployment.llama.settle(values, gpus, unmodelled);
        }
        let chunked = asked.get("enable_chunked_prefill");
        deployment.whole_prompts = chunked.is_some_and(|v| v.eq_ignore_ascii_case("false"));
        deployment.longer_allowed |= overrides_model(asked);
        if illegal == IllegalValue::IsUnset {
            // It ran: what would have refused it was not there, or is not among what it printed.
            deployment.whole_prompts = false;
            deployment.longer_allowed = true;
            besides
                .speculation
                .iter_mut()
                .for_each(|s| s.names_model = true);
        }
        deployment.host = HostAsked::read(engine, asked);
        deployment.unmodelled.extend(besides.unmodelled);
        deployment.speculation = besides.speculation;
        Ok((deployment, besides.draft))
    }

    /// Takes a version as people write it; a warning where it does not name one release.
    pub fn set_version(&mut self, text: &str) -> Option<String> {
        let (version, exact) = version_of(text, self.engine);
        self.versions = versions_of(text, self.engine).filter(|_| !exact);
        // Of a year the newest.
        let version = version.or(self.versions.map(|[_, newest]| newest));
        self.version = version;
        self.vllm_v0 = generation_of(text).or(self.vllm_v0);
        match version {
            _ if exact => None,
            Some(version) => Some(format!(
                "the version `{text}` is not exact: {version} is assumed"
            )),
            None => {
                self.unmodelled.push(unmodelled::unclear_version(text));
                Some(format!(
                    "the version `{text}` is not known: the newest is assumed"
                ))
            }
        }
    }
}

fn apply(d: &mut Deployment, read: &Read<'_>) -> Result<(), Unknown> {
    read.check_choices()?;
    for name in HostAsked::NUMBERS {
        let text = read.values.get(name).map_or("", |text| text.trim());
        let unset =
            text.is_empty() || ["auto", "none"].contains(&text.to_ascii_lowercase().as_str());
        if !unset && text.parse::<f64>().is_err() {
            let flag = name.replace('_', "-");
            read.refuse::<()>(format!("invalid number in `--{flag} {text}`"))?;
        }
    }
    d.tp = read.count("tensor_parallel_size")?.unwrap_or(d.tp);
    d.pp = read.count("pipeline_parallel_size")?.unwrap_or(d.pp);
    d.dp = read.count("data_parallel_size")?.unwrap_or(d.dp);
    d.dcp = read.count("decode_context_parallel_size")?.unwrap_or(d.dcp);
    if read.switch("enable_expert_parallel") == Some(true) {
        d.ep = d.expert_ranks();
    }
    d.ep = read.count("expert_parallel_size")?.unwrap_or(d.ep);
    let dtype = read.text("dtype");
    d.dtype = dtype.map(|t| t.trim_start_matches("torch.").to_owned());
    d.quantization = read.text("quantization").map(str::to_owned);
    d.kv_dtype = read.text("kv_cache_dtype").map(|value| {
        let setting = Setting::named("kv_cache_dtype");
        setting
            .map_or(value, |s| s.engine_value(read.engine, value))
            .to_owned()
    });
    d.max_model_len = read.count("max_model_len")?;
    d.longer_allowed = read.switch("longer_allowed") == Some(true);
    d.memory_fraction = read.share("gpu_memory_utilization")?;
    let is_llama = read.engine == EngineId::LlamaCpp;
    let own_step = llama_cpp::own_step(read.values).filter(|_| is_llama);
    d.max_batched_tokens = read.count("max_num_batched_tokens")?.or(own_step);
    // SGLang does not split prompts then (server_args.py): a step has as many tokens as `max_prefill_tokens` allows.
    if read.engine == EngineId::Sglang && read.text("max_num_batched_tokens") == Some("-1") {
        let longest = read.values.get("max_prefill_tokens");
        let longest = longest.and_then(|n| n.trim().parse().ok());
        d.max_batched_tokens = longest.or(Some(SGLANG_PREFILL));
    }
    d.max_seqs = read.count("max_num_seqs")?;
    d.block_size = read
        .count("block_size")?
        .or_else(|| read.block_of_kernels());
    let without_prefixes = read.switch("disable_radix_cache");
    d.prefix_caching = (read.switch("enable_prefix_caching")).or(without_prefixes.map(|off| !off));
    d.language_only = read.switch("language_model_only") == Some(true)
        || allows_no_item(read.values)
        || is_llama && llama_cpp::lacks_encoder(read.values);
    if read.engine == EngineId::Vllm {
        d.pools = pooling::of_flags(read.values);
        d.graphs = GraphsAsked::read(&unmodelled::with_parts(read.values));
        let data = |(name, on): (&str, &str)| read.values.get(name).is_some_and(|v| v.trim() == on);
        let flags = [
            ("mm_encoder_tp_mode", "data"),
            ("enable_multimodal_encoder_data_parallel", "true"),
        ];
        d.whole_encoder = flags.into_iter().any(data);
    }
    if is_llama {
        d.llama = LlamaAsked::read(read.values, &mut d.kv_dtype);
    }
    d.state_slots = read.count("max_mamba_cache_size")?;
    d.state_dtype = read.text("mamba_ssm_dtype").map(str::to_owned);
    d.conv_dtype = read.text("mamba_cache_dtype").map(str::to_owned);
    if read.engine == EngineId::Sglang {
        d.pool_tokens = read.count("token_pool_limit")?;
    }
    if read.engine == EngineId::Tgi {
        d.prompt_tokens = read.count("max_input_tokens")?;
    }
    // `all` and -2 are all; `auto`, its default, and -1 leave it to the engine.
    let layers = read.text("n_gpu_layers");
    d.gpu_layers = layers.and_then(|n| n.parse().ok());
    d.moves_layers &= layers.is_none_or(|n| matches!(n, "auto" | "-1"))
        && read.values.get("fit").is_none_or(|fit| fit != "off");
    let no_graphs = unmodelled::without_graphs(read.engine, read.values).is_some();
    d.eager = (read.switch("enforce_eager")).or(no_graphs.then_some(true));
    d.kv_cache_memory = read.count("kv_cache_memory_bytes")?;
    d.vllm_v0 = read.switch("vllm_v1").map(|v1| !v1);
    d.flashinfer_sampler = read.switch("flashinfer_sampler");
    d.second_runner = read.switch("second_runner");
    d.async_scheduling = read.switch("async_scheduling");
    d.graph_forecast = read.switch("graph_forecast");
    if read.switch("enable_lora") == Some(true) {
        d.lora = Some(Lora {
            rank: read.count("max_lora_rank")?.unwrap_or(LORA_RANK),
            slots: read.count("max_loras")?.unwrap_or(1),
        });
    }
    // vLLM's `auto` shortens what the model can read until one request fits.
    let length = read.values.get("max_model_len").map(|v| v.trim());
    if length.is_some_and(|v| v.eq_ignore_ascii_case("auto") || v == "-1") {
        d.unmodelled.push(Unmodelled::fitted_length());
    }
    Ok(())
}

/// The values as they were written.
struct Read<'a> {
    engine: EngineId,
    values: &'a BTreeMap<String, String>,
    illegal: IllegalValue,
}

impl<'a> Read<'a> {
    /// A setting's value with the flag that it was set by; `auto` and empty texts leave it unset.
    fn value(&self, name: &str) -> Option<(String, &'a str)> {
        let mut set = Setting::named(name)?.value(self.engine, self.values);
        let unset = |v: &str| v.is_empty() || v.eq_ignore_ascii_case("auto");
        let (name, value) = set.find(|(_, v)| !unset(v) && !self.is_printed_none(v))?;
        Some((format!("--{}", name.replace('_', "-")), value))
    }

    /// Refuses a value that the engine's parser of flags refuses.
    fn check_choices(&self) -> Result<(), Unknown> {
        for setting in SETTINGS.iter() {
            let choices = setting.choices(self.engine);
            let Some((flag, text)) = self.value(&setting.name).filter(|_| !choices.is_empty())
            else {
                continue;
            };
            let plain = text.trim_start_matches("torch.");
            if !choices.iter().any(|c| c == plain) {
                let engine = self.engine.shown();
                let choices = choices.join(", ");
                self.refuse::<()>(format!("`{flag} {text}`: {engine} takes {choices}"))?;
            }
        }
        Ok(())
    }

    /// Tokens of a block where SGLang's kernels of latent attention take one size alone (server_args.py).
    fn block_of_kernels(&self) -> Option<u64> {
        let names = ["attention_backend", "decode_attention_backend"];
        let mut named = names.iter().filter_map(|name| self.values.get(*name));
        let block = |kernels: &String| match kernels.trim() {
            "flashmla" => Some(64),
            "cutlass_mla" => Some(128),
            _ => None,
        };
        named
            .find_map(block)
            .filter(|_| self.engine == EngineId::Sglang)
    }

    fn text(&self, name: &str) -> Option<&'a str> {
        self.value(name).map(|(_, value)| value)
    }

    /// What an engine prints of a setting that it does not have.
    fn is_printed_none(&self, value: &str) -> bool {
        self.illegal == IllegalValue::IsUnset && value.eq_ignore_ascii_case("none")
    }

    fn refuse<T>(&self, what: String) -> Result<Option<T>, Unknown> {
        match self.illegal {
            IllegalValue::IsRefused => Err(Unknown::new(what)),
            IllegalValue::IsUnset => Ok(None),
        }
    }

    /// A whole number above 0, or bytes of a cache; -1 is the engines' own `auto` (SGLang; vLLM for its longest length).
    fn count(&self, name: &str) -> Result<Option<u64>, Unknown> {
        // llama.cpp writes "as the model has" as 0, and Ollama "as it chooses".
        let is_auto = |text: &str| {
            let own = matches!(name, "max_model_len" | "max_num_seqs");
            text == "-1" || self.engine == EngineId::LlamaCpp && own && text == "0"
        };
        let Some((flag, text)) = self.value(name).filter(|(_, text)| !is_auto(text)) else {
            return Ok(None);
        };
        let bytes = Setting::named(name).is_some_and(|s| s.kind == ValueKind::Bytes);
        let (least, least_text) = if bytes {
            (LEAST_CACHE, "1 MiB")
        } else {
            (1, "1")
        };
        let negative = text.starts_with('-') && text.parse::<f64>().is_ok();
        match text.parse::<u64>() {
            Ok(n) if n >= least => Ok(Some(n)),
            Err(_) if !negative => self.refuse(format!("invalid number in `{flag} {text}`")),
            _ => self.refuse(format!("`{flag}` must be {least_text} or more")),
        }
    }

    /// A share of the memory, above 0 and up to 1.
    fn share(&self, name: &str) -> Result<Option<f64>, Unknown> {
        let Some((flag, text)) = self.value(name) else {
            return Ok(None);
        };
        match text.parse::<f64>() {
            Ok(n) if n > 0.0 && n <= 1.0 => Ok(Some(n)),
            Ok(_) => self.refuse(format!("`{flag}` must be above 0 and at most 1")),
            Err(_) => self.refuse(format!("invalid number in `{flag} {text}`")),
        }
    }

    fn switch(&self, name: &str) -> Option<bool> {
        let mut set = Setting::named(name)?.value(self.engine, self.values);
        set.find_map(|(_, value)| match value.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Some(true),
            "false" | "0" | "no" | "off" => Some(false),
            _ => None,
        })
    }
}

/// Whether flags change the model's configuration, its positions perhaps.
fn overrides_model(values: &BTreeMap<String, String>) -> bool {
    const FLAGS: [&str; 6] = [
        "hf_overrides",
        "hf_config_path",
        "rope_scaling",
        "rope_parameters",
        "json_model_override_args",
        "model_override_args",
    ];
    let changes = |name: &String| FLAGS.contains(&name.split('.').next().unwrap_or(name));
    values.keys().any(changes)
}

/// The value of a flag that takes JSON; null where it is not given, or is none.
pub(super) fn json_value(values: &BTreeMap<String, String>, name: &str) -> Value {
    let text = values.get(name).map_or("null", String::as_str);
    serde_json::from_str(text).unwrap_or_default()
}

/// Whether neither images nor videos are allowed: vLLM loads no encoder then.
fn allows_no_item(values: &BTreeMap<String, String>) -> bool {
    const LIMIT: &str = "limit_mm_per_prompt";
    let whole = json_value(values, LIMIT);
    let none_of = |kind: &str| {
        let own = values.get(&format!("{LIMIT}.{kind}")).map(String::as_str);
        own == Some("0") || whole.get(kind).and_then(Value::as_u64) == Some(0)
    };
    none_of("image") && none_of("video")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::ContainerFacts;
    use crate::engine;

    /// A command line, read as the engine's own.
    fn read(line: &str) -> (Deployment, Option<String>) {
        let facts = ContainerFacts {
            argv: line.split_whitespace().map(str::to_owned).collect(),
            ..ContainerFacts::default()
        };
        let (own, _) = engine::recognise(&facts).unwrap();
        let values = (own.settings)(&facts).values;
        Deployment::from_settings(own, &values, &values, IllegalValue::IsRefused).unwrap()
    }

    #[test]
    fn a_command_line_of_vllm() {
        let (d, draft) = read(
            "vllm serve Qwen/Qwen3-8B -tp 2 --max-model-len 8K --gpu-memory-utilization 0.85 --enforce-eager \
             --kv-cache-dtype fp8 --max-num-seqs 64 --enable-expert-parallel --enable-lora --max-loras 2 --dtype auto \
             --kv-cache-memory-bytes 1g --speculative-config {\"model\":\"d\"} --cpu-offload-gb 4",
        );
        assert_eq!((d.engine, d.tp, d.ep), (EngineId::Vllm, 2, 2));
        assert_eq!((d.max_model_len, d.max_seqs), (Some(8192), Some(64)));
        assert_eq!((d.memory_fraction, d.eager), (Some(0.85), Some(true)));
        assert_eq!(
            (d.kv_dtype.as_deref(), d.dtype.as_deref()),
            (Some("fp8"), None)
        );
        assert_eq!(d.lora, Some(Lora { rank: 16, slots: 2 }));
        assert_eq!(d.kv_cache_memory, Some(1_000_000_000));
        assert_eq!(draft.as_deref(), Some("d"));
        assert_eq!((d.host.weights, names(&d).len()), (4 << 30, 0));
    }

    #[test]
    fn a_command_line_of_sglang() {
        let (d, _) = read(
            "python3 -m sglang.launch_server --model-path m --tp-size 4 --mem-fraction-static 0.8 --context-length 4096 \
             --max-running-requests 32 --disable-cuda-graph --chunked-prefill-size -1",
        );
        // As argparse takes them: the beginnings of flags.
        let (short, _) = read(
            "python3 -m sglang.launch_server --model-path m --tp 4 --mem-frac 0.8 --context-len 4096 \
             --max-running 32 --disable-cuda-graph --chunked-prefill-size -1 --attention-backend fa3",
        );
        assert_eq!(short, d);
        assert_eq!((d.engine, d.tp), (EngineId::Sglang, 4));
        assert_eq!(
            (d.memory_fraction, d.max_model_len),
            (Some(0.8), Some(4096))
        );
        assert_eq!((d.max_seqs, d.eager), (Some(32), Some(true)));
        // A prompt is read in one piece, of as many tokens as `--max-prefill-tokens` allows.
        assert_eq!(d.max_batched_tokens, Some(16384));
    }

    #[test]
    fn the_model_of_sglang_may_be_its_first_word() {
        let model = |line: &str| {
            let argv = line.split_whitespace().map(str::to_owned).collect();
            let facts = ContainerFacts {
                argv,
                ..ContainerFacts::default()
            };
            (EngineId::Sglang.settings)(&facts).model
        };
        assert_eq!(model("sglang serve org/m --tp 2").as_deref(), Some("org/m"));
        assert_eq!(
            model("sglang serve --tp 2 --model-path a").as_deref(),
            Some("a")
        );
        assert_eq!(model("python3 -m sglang.launch_server org/m"), None);
    }

    #[test]
    fn the_pool_of_sglang_is_no_length_of_context() {
        let line = "python3 -m sglang.launch_server --model-path m --max-total-tokens 400000";
        assert_eq!(read(line).0.max_model_len, None);
        let line = "text-generation-launcher --model-id m --max-total-tokens 4096";
        assert_eq!(read(line).0.max_model_len, Some(4096));
    }

    #[test]
    fn values_that_an_engines_parser_refuses_are_refused() {
        let read = |engine: EngineId, name: &str, value: &str, illegal| {
            let values = BTreeMap::from([
                (name.to_owned(), value.to_owned()),
                ("enable_lora".to_owned(), "true".to_owned()),
            ]);
            Deployment::from_settings(engine, &values, &values, illegal).map(|(d, _)| d.dtype)
        };
        let refused = IllegalValue::IsRefused;
        let why = read(EngineId::Vllm, "dtype", "bf16", refused).unwrap_err();
        let text = "`--dtype bf16`: vllm takes half, float16, bfloat16, float, float32";
        assert_eq!(why.what, text);
        assert!(read(EngineId::Vllm, "max_lora_rank", "7", refused).is_err());
        assert!(read(EngineId::Vllm, "cpu_offload_gb", "10GiB", refused).is_err());
        assert!(read(EngineId::Vllm, "cpu_offload_gb", "2.5", refused).is_ok());
        for (engine, value) in [
            (EngineId::Vllm, "auto"),
            (EngineId::Vllm, "torch.bfloat16"),
            (EngineId::Sglang, "half"),
            // Which it takes is not known here.
            (EngineId::Tgi, "bf16"),
        ] {
            assert!(read(engine, "dtype", value, refused).is_ok(), "{value}");
        }
        // What an engine printed it also took.
        assert!(read(EngineId::Vllm, "dtype", "bf16", IllegalValue::IsUnset).is_ok());
    }

    fn names(deployment: &Deployment) -> Vec<&str> {
        let all = deployment.unmodelled.iter();
        all.map(|u| u.name.as_str()).collect()
    }

    #[test]
    fn flags_that_move_memory_or_are_not_known_are_named() {
        let of = |line: &str| {
            let (d, _) = read(line);
            names(&d)
                .iter()
                .map(|n| (*n).to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            of(
                "text-generation-launcher --model-id m --port 80 --num-shard 2 --speculate 4 --quantize awq"
            ),
            ["speculative decoding (4)"]
        );
        assert_eq!(
            of(
                "vllm serve m --seed 1 --port 9 --cpu-offload-gb 0 --no-such-flag 3 --kv-offloading-size 8 -cc.mode 1"
            ),
            ["--compilation-config.mode", "--no-such-flag (unknown flag)"]
        );
        assert_eq!(
            of(
                "vllm serve m --speculative-config {\"method\":\"mtp\",\"num_speculative_tokens\":2}"
            ),
            [""; 0]
        );
        assert_eq!(
            of(
                "python3 -m sglang.launch_server --model-path m --speculative-algorithm EAGLE --speculative-num-steps 3 \
                --schedule-policy lpm --max-total-tokens 4096 --swa-full-tokens-ratio 0.5"
            ),
            ["--swa-full-tokens-ratio", "speculative decoding (EAGLE)"]
        );
        assert_eq!(of("vllm serve m --max-model-len auto").len(), 1);
        assert!(
            of("llama-server -m /m.gguf -c 4096 --port 80 -ngl 99 -ub 1024 --jinja").is_empty()
        );
        let step = |line| read(line).0.max_batched_tokens;
        assert_eq!(step("llama-server -m /m.gguf -ub 1024"), Some(1024));
        assert_eq!(step("vllm serve m --ubatch-size 1024"), None);
        // Keys and values of one type are a cache of that type.
        assert!(of("llama-server -m /m.gguf -ctk q8_0 -ctv q8_0").is_empty());
        assert!(of("llama-server -m /m.gguf -ctk q8_0").is_empty());
        let types = |line| {
            let d = read(line).0;
            (d.kv_dtype, d.llama.values_dtype)
        };
        let text = |t: &str| Some(t.to_owned());
        assert_eq!(
            types("llama-server -m m -ctk q8_0"),
            (text("q8_0"), text("f16"))
        );
        assert_eq!(
            types("llama-server -m m -ctv q4_0"),
            (text("f16"), text("q4_0"))
        );
        assert_eq!(
            types("llama-server -m m -ctk q8_0 -ctv q8_0"),
            (text("q8_0"), None)
        );
    }

    #[test]
    fn a_value_that_is_no_number_is_reported_with_its_flag() {
        let wrong = |key: &str, value: &str| {
            let values = [(key.to_owned(), value.to_owned())].into();
            let engine = if key == "mem_fraction_static" {
                EngineId::Sglang
            } else {
                EngineId::Vllm
            };
            Deployment::from_settings(engine, &values, &values, IllegalValue::IsRefused)
                .unwrap_err()
                .what
        };
        assert_eq!(
            wrong("max_model_len", "many"),
            "invalid number in `--max-model-len many`"
        );
        assert_eq!(
            wrong("tensor_parallel_size", "0"),
            "`--tensor-parallel-size` must be 1 or more"
        );
        for (key, value) in [
            ("gpu_memory_utilization", "2"),
            ("gpu_memory_utilization", "-1"),
            ("gpu_memory_utilization", "0"),
            ("mem_fraction_static", "nan"),
            ("max_num_seqs", "-4"),
            ("max_model_len", "-8192"),
            ("kv_cache_memory_bytes", "0"),
            ("kv_cache_memory_bytes", "24"),
        ] {
            let message = wrong(key, value);
            let flag = format!("`--{}` must be ", key.replace('_', "-"));
            assert!(message.starts_with(&flag), "{key} {value}: {message}");
        }
    }
}
