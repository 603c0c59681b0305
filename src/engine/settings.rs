//! Every setting of an engine's server that plimsoll knows: declared once, here.
//!
//! From this table an engine's command line is read and written, a case of `estimate --batch` and the flags of
//! `estimate` are read, and runs are compared. A new setting needs a row here, a field of `estimate::Deployment`, and,
//! where `profile` and `sweep` set it, a field of `RequestedSettings`.

use super::EngineId;
use crate::capture::RequestedSettings;
use std::collections::BTreeMap;

/// What a setting takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    /// A word.
    Text,
    /// A whole number, 1 or more.
    Count,
    /// A count of tokens; vLLM and plimsoll read `8k` and `8K`.
    Tokens,
    /// Above 0, at most 1.
    Share,
    /// Bytes, 1 MiB or more.
    Bytes,
    /// On or off.
    Switch,
}

/// A setting of an engine's server.
#[derive(Debug)]
pub struct Setting {
    /// Its name in results, in a sweep file and in a case of a batch.
    pub name: &'static str,
    /// Further names in a case of a batch.
    pub aliases: &'static [&'static str],
    /// What it takes.
    pub kind: ValueKind,
    /// How each engine that has it names it.
    pub engines: &'static [EngineSetting],
    /// The flag of `plimsoll estimate`, where it has one.
    pub flag: Option<EstimateFlag>,
}

/// A setting as one engine has it.
#[derive(Debug)]
pub struct EngineSetting {
    /// The engine.
    pub engine: EngineId,
    /// Its flags with underscores and its variables, the preferred one first.
    pub names: &'static [&'static str],
    /// Arguments that set it, `{}` for the value; `NAME={}` is a variable. Empty: plimsoll does not set it.
    pub written: &'static str,
}

/// A flag of `plimsoll estimate`.
#[derive(Debug)]
pub struct EstimateFlag {
    /// Its other name.
    pub alias: Option<&'static str>,
    /// What `--help` calls its value.
    pub value_name: &'static str,
    /// What `--help` prints of it.
    pub help: &'static str,
    /// The setting without which it means nothing.
    pub requires: Option<&'static str>,
}

const fn engine(
    engine: EngineId,
    names: &'static [&'static str],
    written: &'static str,
) -> EngineSetting {
    EngineSetting {
        engine,
        names,
        written,
    }
}

const fn flag(value_name: &'static str, help: &'static str) -> EstimateFlag {
    EstimateFlag {
        alias: None,
        value_name,
        help,
        requires: None,
    }
}

const fn aliased(
    alias: &'static str,
    value_name: &'static str,
    help: &'static str,
) -> EstimateFlag {
    EstimateFlag {
        alias: Some(alias),
        ..flag(value_name, help)
    }
}

use EngineId::{LlamaCpp, Ollama, Sglang, TensorRtLlm, Tgi, Vllm};
use ValueKind::{Bytes, Count, Share, Switch, Text, Tokens};

/// The settings, in the order in which people read them.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "tensor_parallel_size",
        aliases: &["tp"],
        kind: Count,
        engines: &[
            engine(Vllm, &["tensor_parallel_size"], "--tensor-parallel-size {}"),
            engine(Sglang, &["tensor_parallel_size", "tp_size"], "--tp-size {}"),
            engine(
                Tgi,
                &["tensor_parallel_size", "num_shard"],
                "--num-shard {}",
            ),
            engine(
                TensorRtLlm,
                &["tensor_parallel_size", "tp_size"],
                "--tp_size {}",
            ),
        ],
        flag: Some(aliased("tp", "N", "Tensor parallel size")),
    },
    Setting {
        name: "pipeline_parallel_size",
        aliases: &["pp"],
        kind: Count,
        engines: &[
            engine(Vllm, &["pipeline_parallel_size"], ""),
            engine(Sglang, &["pipeline_parallel_size", "pp_size"], ""),
            engine(TensorRtLlm, &["pipeline_parallel_size", "pp_size"], ""),
        ],
        flag: Some(aliased("pp", "N", "Pipeline parallel size")),
    },
    Setting {
        name: "data_parallel_size",
        aliases: &["dp"],
        kind: Count,
        engines: &[
            engine(Vllm, &["data_parallel_size"], ""),
            engine(Sglang, &["data_parallel_size", "dp_size"], ""),
        ],
        flag: Some(aliased("dp", "N", "Data parallel size")),
    },
    Setting {
        name: "decode_context_parallel_size",
        aliases: &["dcp"],
        kind: Count,
        engines: &[engine(Vllm, &["decode_context_parallel_size"], "")],
        flag: Some(aliased("dcp", "N", "Decode context parallel size")),
    },
    Setting {
        name: "enable_expert_parallel",
        aliases: &[],
        kind: Switch,
        engines: &[engine(Vllm, &["enable_expert_parallel"], "")],
        flag: Some(aliased(
            "expert-parallel",
            "",
            "Whole experts on each GPU instead of a part of each",
        )),
    },
    Setting {
        name: "expert_parallel_size",
        aliases: &["ep"],
        kind: Count,
        engines: &[
            engine(Sglang, &["expert_parallel_size", "ep_size"], ""),
            engine(TensorRtLlm, &["ep_size"], ""),
        ],
        flag: None,
    },
    Setting {
        name: "dtype",
        aliases: &[],
        kind: Text,
        engines: &[
            engine(Vllm, &["dtype"], "--dtype {}"),
            engine(Sglang, &["dtype"], "--dtype {}"),
            engine(Tgi, &["dtype"], "--dtype {}"),
        ],
        flag: Some(flag("TYPE", "Type of weights and activations")),
    },
    Setting {
        name: "quantization",
        aliases: &["quant"],
        kind: Text,
        engines: &[
            engine(Vllm, &["quantization"], "--quantization {}"),
            engine(Sglang, &["quantization"], "--quantization {}"),
            engine(Tgi, &["quantization", "quantize"], "--quantize {}"),
        ],
        flag: Some(flag(
            "METHOD",
            "Quantization, instead of what the model's config says",
        )),
    },
    Setting {
        name: "kv_cache_dtype",
        aliases: &["kv_dtype"],
        kind: Text,
        engines: &[
            engine(Vllm, &["kv_cache_dtype"], "--kv-cache-dtype {}"),
            engine(Sglang, &["kv_cache_dtype"], "--kv-cache-dtype {}"),
            engine(Tgi, &["kv_cache_dtype"], "--kv-cache-dtype {}"),
            engine(TensorRtLlm, &["kv_cache_dtype"], "--kv_cache_dtype {}"),
            engine(LlamaCpp, &["OLLAMA_KV_CACHE_TYPE"], "-ctk {} -ctv {}"),
            engine(Ollama, &["OLLAMA_KV_CACHE_TYPE"], "OLLAMA_KV_CACHE_TYPE={}"),
        ],
        flag: Some(flag("TYPE", "Type of the KV cache")),
    },
    Setting {
        name: "max_model_len",
        aliases: &[],
        kind: Tokens,
        engines: &[
            engine(Vllm, &["max_model_len"], "--max-model-len {}"),
            // Its `--max-total-tokens` is the size of the KV pool.
            engine(Sglang, &["context_length"], "--context-length {}"),
            engine(Tgi, &["max_total_tokens"], "--max-total-tokens {}"),
            engine(
                TensorRtLlm,
                &["max_model_len", "max_seq_len"],
                "--max_seq_len {}",
            ),
            engine(LlamaCpp, &["ctx_size", "OLLAMA_CONTEXT_LENGTH"], "-c {}"),
            engine(
                Ollama,
                &["OLLAMA_CONTEXT_LENGTH"],
                "OLLAMA_CONTEXT_LENGTH={}",
            ),
        ],
        flag: Some(flag(
            "TOKENS",
            "Longest sequence, prompt and output together, as 8192, 8k or 8K (1024) [default: the model's]",
        )),
    },
    Setting {
        name: "gpu_memory_utilization",
        aliases: &["mem_fraction_static", "free_gpu_memory_fraction"],
        kind: Share,
        engines: &[
            engine(
                Vllm,
                &["gpu_memory_utilization"],
                "--gpu-memory-utilization {}",
            ),
            // Of SGLang it is for weights and pool, and leaves out the rest; of vLLM it holds all.
            engine(Sglang, &["mem_fraction_static"], "--mem-fraction-static {}"),
            engine(Tgi, &["cuda_memory_fraction"], "--cuda-memory-fraction {}"),
            engine(
                TensorRtLlm,
                &[
                    "free_gpu_memory_fraction",
                    "kv_cache_free_gpu_memory_fraction",
                ],
                "--kv_cache_free_gpu_memory_fraction {}",
            ),
        ],
        flag: Some(aliased(
            "mem-fraction-static",
            "SHARE",
            "Share of a GPU's memory that the engine may take, above 0 to 1 (SGLang: --mem-fraction-static)",
        )),
    },
    Setting {
        name: "max_num_batched_tokens",
        aliases: &[],
        kind: Tokens,
        engines: &[
            engine(Vllm, &["max_num_batched_tokens"], ""),
            engine(Sglang, &["chunked_prefill_size"], ""),
            engine(Tgi, &["max_batch_prefill_tokens"], ""),
            engine(TensorRtLlm, &["max_num_tokens"], ""),
        ],
        flag: Some(flag("TOKENS", "Tokens of a step, as 8192 or 8k")),
    },
    Setting {
        name: "max_num_seqs",
        aliases: &[],
        kind: Count,
        engines: &[
            engine(Vllm, &["max_num_seqs"], ""),
            engine(Sglang, &["max_running_requests"], ""),
            engine(Tgi, &["max_batch_size"], ""),
            engine(TensorRtLlm, &["max_batch_size"], ""),
        ],
        flag: Some(flag("N", "Sequences at once")),
    },
    Setting {
        name: "block_size",
        aliases: &[],
        kind: Count,
        engines: &[
            engine(Vllm, &["block_size"], ""),
            engine(Sglang, &["page_size"], ""),
        ],
        flag: Some(flag("TOKENS", "Tokens of a block of the KV cache")),
    },
    Setting {
        name: "enforce_eager",
        aliases: &[],
        kind: Switch,
        engines: &[
            engine(Vllm, &["enforce_eager"], "--enforce-eager"),
            engine(Sglang, &["disable_cuda_graph"], "--disable-cuda-graph"),
            engine(Tgi, &[], "--cuda-graphs 0"),
        ],
        flag: Some(flag("", "No compilation, no CUDA graphs")),
    },
    Setting {
        name: "enable_lora",
        aliases: &[],
        kind: Switch,
        engines: &[
            engine(Vllm, &["enable_lora"], ""),
            engine(Sglang, &["enable_lora"], ""),
        ],
        flag: None,
    },
    Setting {
        name: "max_lora_rank",
        aliases: &["lora_rank"],
        kind: Count,
        engines: &[
            engine(Vllm, &["max_lora_rank"], ""),
            engine(Sglang, &["max_lora_rank"], ""),
        ],
        flag: Some(flag("N", "Rank of the LoRA adapters that may be loaded")),
    },
    Setting {
        name: "max_loras",
        aliases: &[],
        kind: Count,
        engines: &[
            engine(Vllm, &["max_loras"], ""),
            engine(Sglang, &["max_loras_per_batch"], ""),
        ],
        flag: Some(EstimateFlag {
            requires: Some("max_lora_rank"),
            ..flag("N", "LoRA adapters in one batch [default: 1]")
        }),
    },
    Setting {
        name: "kv_cache_memory_bytes",
        aliases: &[],
        kind: Bytes,
        engines: &[engine(Vllm, &["kv_cache_memory_bytes"], "")],
        flag: Some(flag(
            "SIZE",
            "Memory of the KV cache on each GPU, instead of the engine's own sizing",
        )),
    },
    Setting {
        name: "flashinfer_sampler",
        aliases: &[],
        kind: Switch,
        engines: &[engine(Vllm, &["VLLM_USE_FLASHINFER_SAMPLER"], "")],
        flag: None,
    },
    Setting {
        name: "vllm_v1",
        aliases: &[],
        kind: Switch,
        engines: &[engine(Vllm, &["VLLM_USE_V1"], "")],
        flag: None,
    },
];

impl Setting {
    /// The setting of this name.
    pub fn named(name: &str) -> Option<&'static Setting> {
        SETTINGS.iter().find(|s| s.name == name)
    }

    /// The setting that an engine's flag (with underscores) or variable is.
    pub fn of_engine(engine: EngineId, name: &str) -> Option<&'static Setting> {
        let mut settings = SETTINGS.iter();
        settings.find(|s| s.names(engine).contains(&name))
    }

    /// The engine's own names for it; empty where it has no such setting.
    pub fn names(&self, engine: EngineId) -> &'static [&'static str] {
        let own = self.engines.iter().find(|e| e.engine == engine);
        own.map_or(&[], |e| e.names)
    }

    /// The value, under plimsoll's name or one of the engine's, with the name that it has there.
    pub fn value<'a>(
        &self,
        engine: EngineId,
        values: &'a BTreeMap<String, String>,
    ) -> impl Iterator<Item = (&'static str, &'a str)> {
        let mut names = vec![self.name];
        names.extend(self.names(engine).iter().filter(|n| **n != self.name));
        // llama.cpp's slots share the context: a reported `max_model_len` is the part of one slot.
        if engine == LlamaCpp && self.name == "max_model_len" {
            names.rotate_left(1);
        }
        let value = |name: &'static str| Some((name, values.get(name)?.trim()));
        names.into_iter().filter_map(value)
    }

    /// Replaces the value, by whatever name it is there.
    pub fn replace(&self, engine: EngineId, values: &mut BTreeMap<String, String>, value: &str) {
        for name in self.names(engine) {
            values.remove(*name);
        }
        values.insert(self.name.to_owned(), value.to_owned());
    }

    /// The words that set it on the engine's command line, or the engine's variable as `NAME=value`.
    fn written(&self, engine: EngineId, value: &str) -> Vec<String> {
        let own = self.engines.iter().find(|e| e.engine == engine);
        let words = own.map_or("", |e| e.written).split_whitespace();
        words.map(|word| word.replace("{}", value)).collect()
    }
}

/// The arguments, each with its value, that set these settings of an engine; settings that it lacks are left out.
pub fn arguments_of(engine: EngineId, settings: &RequestedSettings) -> Vec<Vec<String>> {
    let set = settings.named().into_iter();
    let arguments =
        set.filter_map(|(name, value)| Some(Setting::named(name)?.written(engine, &value)));
    arguments.filter(|words| !words.is_empty()).collect()
}

/// Whether a variable is a secret by its name.
pub fn looks_secret(name: &str) -> bool {
    ["KEY", "TOKEN", "SECRET", "PASSWORD"]
        .iter()
        .any(|w| name.split('_').any(|part| part == *w))
}

/// The variables that are settings: the engine's own by their beginnings, secrets left out, and
/// the others that are named.
pub fn variables(
    env: BTreeMap<String, String>,
    own: &[&str],
    foreign: &[&str],
) -> impl Iterator<Item = (String, String)> {
    env.into_iter().filter(|(name, _)| {
        let is_own = own.iter().any(|prefix| name.starts_with(prefix));
        (is_own && !looks_secret(name)) || foreign.contains(&name.as_str())
    })
}

/// Puts values in under their common names, too, where these are not given: pairs of an engine's
/// own name and the common one.
pub fn name_commonly(values: &mut BTreeMap<String, String>, pairs: &[(&str, &str)]) {
    for (own, common) in pairs {
        if let Some(value) = values.get(*own).cloned() {
            values.entry((*common).to_owned()).or_insert(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn variables_that_are_settings() {
        let env = map(&[
            ("X_LEVEL", "1"),
            ("X_API_KEY", "2"),
            ("X_KEYS", "3"),
            ("CUDA_VISIBLE_DEVICES", "4"),
            ("PATH", "5"),
        ]);
        let kept: Vec<String> = variables(env, &["X_"], &["CUDA_VISIBLE_DEVICES"])
            .map(|(name, _)| name)
            .collect();
        assert_eq!(kept, ["CUDA_VISIBLE_DEVICES", "X_KEYS", "X_LEVEL"]);
    }

    #[test]
    fn a_common_name_that_is_given_stays() {
        let mut values = map(&[("tp", "2"), ("len", "8"), ("max_len", "9")]);
        let pairs = [
            ("tp", "tensor_parallel"),
            ("len", "max_len"),
            ("no", "none"),
        ];
        name_commonly(&mut values, &pairs);
        assert_eq!(
            (
                values["tensor_parallel"].as_str(),
                values["max_len"].as_str()
            ),
            ("2", "9")
        );
        assert_eq!(values.len(), 4);
    }

    #[test]
    fn each_name_is_one_setting_of_its_engine() {
        for engine in EngineId::ALL {
            let all: Vec<&str> = (SETTINGS.iter())
                .flat_map(|s| s.names(*engine))
                .copied()
                .collect();
            let distinct: BTreeSet<&str> = all.iter().copied().collect();
            assert_eq!(all.len(), distinct.len(), "{engine:?}");
        }
        let mut names: Vec<&str> = SETTINGS.iter().map(|s| s.name).collect();
        names.extend(SETTINGS.iter().flat_map(|s| s.aliases).copied());
        let distinct: BTreeSet<&str> = names.iter().copied().collect();
        assert_eq!(names.len(), distinct.len());
        let requires = SETTINGS.iter().filter_map(|s| s.flag.as_ref()?.requires);
        requires.for_each(|name| assert!(Setting::named(name).is_some(), "{name}"));
    }

    #[test]
    fn what_profile_and_sweep_set_has_a_row() {
        let all = RequestedSettings {
            dtype: Some("half".into()),
            quantization: Some("fp8".into()),
            kv_cache_dtype: Some("fp8".into()),
            tensor_parallel_size: Some(2),
            enforce_eager: true,
            gpu_memory_utilization: Some(0.8),
            max_model_len: Some(4096),
        };
        assert_eq!(arguments_of(Vllm, &all).len(), all.named().len());
        let words = |engine| arguments_of(engine, &all).concat().join(" ");
        assert_eq!(
            words(Sglang),
            "--dtype half --quantization fp8 --kv-cache-dtype fp8 --tp-size 2 --mem-fraction-static 0.8 \
             --context-length 4096 --disable-cuda-graph"
        );
        assert_eq!(words(LlamaCpp), "-ctk fp8 -ctv fp8 -c 4096");
        assert_eq!(
            words(Ollama),
            "OLLAMA_KV_CACHE_TYPE=fp8 OLLAMA_CONTEXT_LENGTH=4096"
        );
    }

    #[test]
    fn the_documentation_lists_every_setting() {
        let mut table = String::from(
            "| setting | vLLM | SGLang | TGI | TensorRT-LLM | llama.cpp, Ollama |\n|---|---|---|---|---|---|\n",
        );
        for setting in SETTINGS {
            let columns = [Vllm, Sglang, Tgi, TensorRtLlm, LlamaCpp].map(|engine| {
                let names = setting.names(engine).iter().map(|n| format!("`{n}`"));
                names.collect::<Vec<_>>().join(", ")
            });
            let mut names = vec![format!("`{}`", setting.name)];
            names.extend(setting.aliases.iter().map(|a| format!("`{a}`")));
            table += &format!("| {} | {} |\n", names.join(", "), columns.join(" | "));
        }
        let page = include_str!("../../docs/ESTIMATE.md");
        assert!(page.contains(&table), "docs/ESTIMATE.md lacks:\n{table}");
    }
}
