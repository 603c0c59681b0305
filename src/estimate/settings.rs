//! A deployment as an engine's own command line describes it: the flags as `engine/` reads them.

use super::{Deployment, EngineId, Lora, Moves, Unknown, Unmodelled, unmodelled};
use std::collections::BTreeMap;
use std::str::FromStr;

/// vLLM's rank of LoRA adapters where nobody says (vLLM 0.11, config/lora.py).
const LORA_RANK: u64 = 16;

/// Least memory of a KV cache, bytes: what is below it was meant in another unit.
pub const LEAST_CACHE: u64 = 1 << 20;

/// What becomes of a value that no engine takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IllegalValue {
    /// It is an error: a person wrote it.
    IsRefused,
    /// It counts as unset: the engine ran with it, and printed it in a form of its own (`None`).
    IsUnset,
}

impl Deployment {
    /// The deployment that an engine's settings describe, flag name with underscores → value, with what of them is not
    /// modelled; and the name of a draft model. `asked` are those of the settings that were asked for: an engine that
    /// prints its defaults asks for nothing with them.
    ///
    /// # Errors
    /// An engine without rules, or a value that is none: the flag and what it holds.
    pub fn from_settings(
        engine: EngineId,
        values: &BTreeMap<String, String>,
        asked: &BTreeMap<String, String>,
        illegal: IllegalValue,
    ) -> Result<(Deployment, Option<String>), Unknown> {
        let mut deployment = Deployment::of_engine(engine)?;
        apply(&mut deployment, &Read { values, illegal })?;
        let (found, draft) = unmodelled::of_settings(deployment.engine, asked);
        deployment.unmodelled.extend(found);
        Ok((deployment, draft))
    }
}

fn apply(d: &mut Deployment, read: &Read<'_>) -> Result<(), Unknown> {
    let values = read.values;
    put(
        &mut d.tp,
        read.size(&["tensor_parallel_size", "num_shard", "tp_size"])?,
    );
    put(
        &mut d.pp,
        read.size(&["pipeline_parallel_size", "pp_size"])?,
    );
    put(&mut d.dp, read.size(&["data_parallel_size", "dp_size"])?);
    put(&mut d.dcp, read.size(&["decode_context_parallel_size"])?);
    if read.switch("enable_expert_parallel") == Some(true) {
        d.ep = d.tp.saturating_mul(d.dp);
    }
    put(&mut d.ep, read.size(&["expert_parallel_size", "ep_size"])?);
    let words = |names: &[&str]| read.text(names).map(str::to_owned);
    keep(&mut d.dtype, words(&["dtype"]));
    keep(&mut d.quantization, words(&["quantization", "quantize"]));
    keep(
        &mut d.kv_dtype,
        words(&["kv_cache_dtype", "OLLAMA_KV_CACHE_TYPE"]),
    );
    keep(
        &mut d.max_model_len,
        read.size(match d.engine {
            // Its slots share the cells out: `max_model_len` is what one of them has.
            EngineId::LlamaCpp => &["ctx_size", "OLLAMA_CONTEXT_LENGTH", "max_model_len"],
            _ => &[
                "max_model_len",
                "context_length",
                "max_total_tokens",
                "max_seq_len",
            ],
        })?,
    );
    keep(
        &mut d.memory_fraction,
        read.share(&[
            "gpu_memory_utilization",
            "mem_fraction_static",
            "cuda_memory_fraction",
            "free_gpu_memory_fraction",
            "kv_cache_free_gpu_memory_fraction",
        ])?,
    );
    keep(
        &mut d.max_batched_tokens,
        read.size(&[
            "max_num_batched_tokens",
            "chunked_prefill_size",
            "max_batch_prefill_tokens",
            "max_num_tokens",
        ])?,
    );
    keep(
        &mut d.max_seqs,
        read.size(&["max_num_seqs", "max_running_requests", "max_batch_size"])?,
    );
    keep(
        &mut d.block_size,
        read.size(&["block_size", "page_size", "tokens_per_block"])?,
    );
    keep(
        &mut d.eager,
        read.switch("enforce_eager")
            .or_else(|| read.switch("disable_cuda_graph")),
    );
    keep(
        &mut d.kv_cache_memory,
        read.bytes(&["kv_cache_memory_bytes"])?,
    );
    keep(&mut d.vllm_v0, read.switch("VLLM_USE_V1").map(|v1| !v1));
    keep(
        &mut d.flashinfer_sampler,
        read.switch("VLLM_USE_FLASHINFER_SAMPLER"),
    );
    if read.switch("enable_lora") == Some(true) {
        d.lora = Some(Lora {
            rank: read.size(&["max_lora_rank"])?.unwrap_or(LORA_RANK),
            slots: read
                .size(&["max_loras", "max_loras_per_batch"])?
                .unwrap_or(1),
        });
    }
    // vLLM's `auto` shortens what the model can read until one request fits.
    let length = values.get("max_model_len").map(|v| v.trim());
    if length.is_some_and(|v| v.eq_ignore_ascii_case("auto") || v == "-1") {
        let name = "--max-model-len auto, which fits the length to the memory";
        d.unmodelled.push(Unmodelled::new(name, Moves::Down, &[]));
    }
    Ok(())
}

/// The values as they were written.
struct Read<'a> {
    values: &'a BTreeMap<String, String>,
    illegal: IllegalValue,
}

impl Read<'_> {
    /// The first of these that is set to something; `auto` is as good as nothing.
    fn text(&self, names: &[&str]) -> Option<&str> {
        let said = |name: &&str| self.values.get(*name).map(|v| v.trim());
        names
            .iter()
            .filter_map(said)
            .find(|v| !v.is_empty() && !v.eq_ignore_ascii_case("auto") && !self.is_printed_none(v))
    }

    /// What an engine prints of a setting that it does not have.
    fn is_printed_none(&self, value: &str) -> bool {
        self.illegal == IllegalValue::IsUnset && value.eq_ignore_ascii_case("none")
    }

    /// The one of these names that is set, as a flag.
    fn flag(&self, names: &[&str]) -> String {
        let name = names.iter().find(|n| self.values.contains_key(**n));
        name.copied().unwrap_or_default().replace('_', "-")
    }

    fn judged<T>(&self, read: Result<Option<T>, Unknown>) -> Result<Option<T>, Unknown> {
        match self.illegal {
            IllegalValue::IsRefused => read,
            IllegalValue::IsUnset => Ok(read.unwrap_or(None)),
        }
    }

    fn number<T: FromStr>(&self, names: &[&str]) -> Result<Option<T>, Unknown> {
        let Some(text) = self.text(names) else {
            return Ok(None);
        };
        self.judged(text.parse().map(Some).map_err(|_| {
            let flag = self.flag(names);
            Unknown::new(format!("`--{flag} {text}` is no number"))
        }))
    }

    /// A count above 0; -1 is the engines' own `auto` (SGLang; vLLM for its longest length).
    fn size(&self, names: &[&str]) -> Result<Option<u64>, Unknown> {
        match self.text(names) {
            Some("-1") => return Ok(None),
            Some(text) if text.starts_with('-') && text.parse::<f64>().is_ok() => {}
            _ => match self.number::<u64>(names)? {
                Some(0) => {}
                n => return Ok(n),
            },
        }
        let flag = self.flag(names);
        self.judged(Err(Unknown::new(format!("`--{flag}` must be 1 or more"))))
    }

    /// A share of the memory, above 0 and up to 1.
    fn share(&self, names: &[&str]) -> Result<Option<f64>, Unknown> {
        match self.number::<f64>(names)? {
            Some(n) if !(n > 0.0 && n <= 1.0) => {
                let flag = self.flag(names);
                self.judged(Err(Unknown::new(format!(
                    "`--{flag}` must be above 0 and at most 1"
                ))))
            }
            n => Ok(n),
        }
    }

    /// Bytes of a cache.
    fn bytes(&self, names: &[&str]) -> Result<Option<u64>, Unknown> {
        match self.number::<u64>(names)? {
            Some(n) if n < LEAST_CACHE => {
                let flag = self.flag(names);
                self.judged(Err(Unknown::new(format!(
                    "`--{flag}` must be 1 MiB or more"
                ))))
            }
            n => Ok(n),
        }
    }

    fn switch(&self, name: &str) -> Option<bool> {
        match self.values.get(name)?.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Some(true),
            "false" | "0" | "no" | "off" => Some(false),
            _ => None,
        }
    }
}

fn put(field: &mut u64, value: Option<u64>) {
    *field = value.unwrap_or(*field);
}

fn keep<T>(field: &mut Option<T>, value: Option<T>) {
    if value.is_some() {
        *field = value;
    }
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
        let values = own.settings(&facts).values;
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
        assert_eq!(names(&d), ["--cpu-offload-gb"]);
    }

    #[test]
    fn a_command_line_of_sglang() {
        let (d, _) = read(
            "python3 -m sglang.launch_server --model-path m --tp-size 4 --mem-fraction-static 0.8 --context-length 4096 \
             --max-running-requests 32 --disable-cuda-graph --chunked-prefill-size -1",
        );
        assert_eq!((d.engine, d.tp), (EngineId::Sglang, 4));
        assert_eq!(
            (d.memory_fraction, d.max_model_len),
            (Some(0.8), Some(4096))
        );
        assert_eq!((d.max_seqs, d.eager), (Some(32), Some(true)));
        assert_eq!(d.max_batched_tokens, None);
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
                "vllm serve m --seed 1 --port 9 --cpu-offload-gb 0 --no-such-flag 3 --kv-offloading-size 8 -cc.mode 3"
            ),
            [
                "--compilation-config.mode",
                "--kv-offloading-size",
                "--no-such-flag (unknown flag)"
            ]
        );
        assert_eq!(
            of(
                "vllm serve m --speculative-config {\"method\":\"mtp\",\"num_speculative_tokens\":2}"
            ),
            ["speculative decoding (mtp)"]
        );
        assert_eq!(
            of(
                "python3 -m sglang.launch_server --model-path m --speculative-algorithm EAGLE --speculative-num-steps 3 \
                --schedule-policy lpm --max-total-tokens 4096"
            ),
            ["--max-total-tokens", "speculative decoding (EAGLE)"]
        );
        assert_eq!(of("vllm serve m --max-model-len auto").len(), 1);
        assert!(of("llama-server -m /m.gguf -c 4096 --port 80 -ngl 99 --jinja").is_empty());
    }

    #[test]
    fn what_is_no_number_is_told_with_its_flag() {
        let wrong = |key: &str, value: &str| {
            let values = [(key.to_owned(), value.to_owned())].into();
            Deployment::from_settings(EngineId::Vllm, &values, &values, IllegalValue::IsRefused)
                .unwrap_err()
                .what
        };
        assert_eq!(
            wrong("max_model_len", "many"),
            "`--max-model-len many` is no number"
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
            let said = wrong(key, value);
            let flag = format!("`--{}` must be ", key.replace('_', "-"));
            assert!(said.starts_with(&flag), "{key} {value}: {said}");
        }
    }
}
