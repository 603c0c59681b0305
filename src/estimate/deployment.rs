//! How a model is served: the engine, its settings and the GPU.

use super::{
    Unknown,
    engines::{llama_cpp::LlamaAsked, vllm::GraphsAsked},
    host_memory::HostAsked,
    own_runs::OwnRuns,
    speculation::Speculation,
    unmodelled::Unmodelled,
};
use crate::engine::EngineId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How a model is to be served. What is `None` takes the engine's default for its version.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Deployment {
    /// The engine for the sizing rules.
    pub engine: EngineId,
    /// The engine that was named, where `engine` is another: Ollama is estimated as llama.cpp.
    pub named: Option<EngineId>,
    /// Its version; `None`: the newest that is known.
    pub version: Option<Version>,
    /// The GPU; without one, only terms that do not depend on it are computed.
    pub gpu: Option<Gpu>,
    /// Tensor parallelism.
    pub tp: u64,
    /// Pipeline parallelism.
    pub pp: u64,
    /// Expert parallelism: 1 where experts are split as all else is.
    pub ep: u64,
    /// Data parallelism of the attention.
    pub dp: u64,
    /// Decode context parallelism.
    pub dcp: u64,
    /// `--dtype`: `bfloat16`, `float16`, `float32`, `auto`.
    pub dtype: Option<String>,
    /// A quantisation by name, instead of the one in the model's config.
    pub quantization: Option<String>,
    /// `--kv-cache-dtype`.
    pub kv_dtype: Option<String>,
    /// `--max-model-len`, tokens.
    pub max_model_len: Option<u64>,
    /// A length beyond the model's positions is taken: vLLM's and SGLang's variable for it is set, or the configuration is
    /// overridden.
    pub longer_allowed: bool,
    /// vLLM's `--no-enable-chunked-prefill`: a prompt is read in one step.
    pub whole_prompts: bool,
    /// `--gpu-memory-utilization`, `--mem-fraction-static`, `free_gpu_memory_fraction`: 0 to 1.
    pub memory_fraction: Option<f64>,
    /// `--max-num-batched-tokens`, tokens.
    pub max_batched_tokens: Option<u64>,
    /// `--max-num-seqs`.
    pub max_seqs: Option<u64>,
    /// `--block-size`, tokens.
    pub block_size: Option<u64>,
    /// How it speculates, where that is computed.
    pub speculation: Option<Speculation>,
    /// Blocks of the cache are kept for other requests with the same beginning; `None`: as the version does.
    pub prefix_caching: Option<bool>,
    /// SGLang's `--max-mamba-cache-size`: states of sequences that are kept.
    pub state_slots: Option<u64>,
    /// `--mamba-ssm-cache-dtype`, SGLang's `--mamba-ssm-dtype`: the type of a state's values; `None`: as the configuration
    /// has it.
    pub state_dtype: Option<String>,
    /// vLLM's `--mamba-cache-dtype`: the type of a convolution's values, and of a state's where nothing else says it.
    pub conv_dtype: Option<String>,
    /// SGLang's `--max-total-tokens`: the most tokens that its pool gets.
    pub pool_tokens: Option<u64>,
    /// TGI's `--max-input-tokens`: tokens of the longest prompt.
    pub prompt_tokens: Option<u64>,
    /// llama.cpp's `--n-gpu-layers`, the output layer counted as one; `None`: all.
    pub gpu_layers: Option<u64>,
    /// The engine keeps layers on the processor where the GPU has no room for all: Ollama, and llama.cpp (of December 2025
    /// and later) where its `--n-gpu-layers` and `--fit` are not given.
    pub moves_layers: bool,
    /// `--language-model-only`, llama.cpp's `--no-mmproj`: towers for images and sound are not loaded, or not on the GPU.
    pub language_only: bool,
    /// vLLM embeds or scores (`--runner pooling`), or not; `None`: as the model is.
    pub pools: Option<bool>,
    /// What llama.cpp and Ollama are asked for besides; of other engines nothing.
    pub llama: LlamaAsked,
    /// What is to lie in the host's memory.
    pub host: HostAsked,
    /// The releases that it may be, oldest and newest, where its version names a year or nothing exact.
    pub versions: Option<[Version; 2]>,
    /// `--enforce-eager`: no CUDA graphs.
    pub eager: Option<bool>,
    /// Which CUDA graphs vLLM is asked for.
    pub graphs: GraphsAsked,
    /// vLLM's `--mm-encoder-tp-mode data`: each GPU has the whole encoder, and a part of the items.
    pub whole_encoder: bool,
    /// LoRA slots.
    pub lora: Option<Lora>,
    /// `--kv-cache-memory-bytes`, bytes per GPU: the engine's own sizing is not asked.
    pub kv_cache_memory: Option<u64>,
    /// FlashInfer's sampler is used, or not; `None`: as the version does.
    pub flashinfer_sampler: Option<bool>,
    /// The CUDA graphs that are to come are taken off the cache (`VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS`); `None`: as
    /// the version does.
    pub graph_forecast: Option<bool>,
    /// vLLM's second model runner (`VLLM_USE_V2_MODEL_RUNNER`); `None`: as the version does for the model.
    pub second_runner: Option<bool>,
    /// `--async-scheduling`: the next step is prepared while one runs. vLLM's default.
    pub async_scheduling: Option<bool>,
    /// vLLM's V0 engine (`VLLM_USE_V1=0`); `None`: the default of the version.
    pub vllm_v0: Option<bool>,
    /// GPUs that its container gets, where the line that starts it says so.
    pub given_gpus: Option<u64>,
    /// Flags that its release does not have, a sentence for each: it does not start.
    pub lacking_flags: Vec<String>,
    /// The same of the newest release, where none is named: whether it starts is not known.
    pub doubtful_flags: Vec<String>,
    /// It runs on the host's processors: no GPU allocator rounds its allocations.
    pub on_cpu: bool,
    /// What was asked for, moves memory and is not modelled.
    pub unmodelled: Vec<Unmodelled>,
    /// What the user's own runs measured of some terms.
    pub own: OwnRuns,
}

impl Deployment {
    /// One GPU's worth of `engine`, all defaults; by the rules of the engine that it runs.
    ///
    /// # Errors
    /// No rules are known of the engine.
    pub fn of_engine(engine: EngineId) -> Result<Self, Unknown> {
        match engine.estimated_as {
            Some(rules) => Ok(Deployment {
                named: (rules != engine).then_some(engine),
                ..Deployment::with_defaults(rules)
            }),
            None => {
                let with_rules = EngineId::ALL.iter().filter(|e| e.estimated_as.is_some());
                let names: Vec<&str> = with_rules.map(|e| e.shown()).collect();
                let name = engine.shown();
                Err(
                    Unknown::new(format!("no memory rules are known for the engine `{name}`"))
                        .hint(format!("engines with rules: {}", names.join(", "))),
                )
            }
        }
    }

    /// The engine that was named, for names and arguments; [`Deployment::engine`] has the rules.
    pub fn named(&self) -> EngineId {
        self.named.unwrap_or(self.engine)
    }

    /// An engine with known rules on one GPU, all defaults.
    pub fn with_defaults(engine: EngineId) -> Self {
        Deployment {
            engine,
            tp: 1,
            pp: 1,
            ep: 1,
            dp: 1,
            dcp: 1,
            moves_layers: engine.takes_what_is_asked(),
            ..Deployment::default()
        }
    }

    /// The same on other numbers of GPUs; experts stay spread where they are.
    pub fn spread_over(&self, tp: u64, pp: u64) -> Deployment {
        let mut spread = Deployment {
            tp,
            pp,
            ..self.clone()
        };
        if self.ep > 1 {
            spread.ep = spread.expert_ranks();
        }
        spread
    }

    /// GPUs over which the experts of a stage are spread: replicas of SGLang are servers of their own, those of vLLM
    /// share the experts.
    pub fn expert_ranks(&self) -> u64 {
        let replicas = match self.engine {
            EngineId::Sglang => 1,
            _ => self.dp.max(1),
        };
        self.tp.max(1).saturating_mul(replicas)
    }

    /// Its version is known to be an older one.
    pub fn is_before(&self, version: Version) -> bool {
        self.version.is_some_and(|own| own < version)
    }

    /// GPUs that one replica takes.
    pub fn gpus(&self) -> u64 {
        let replica = self.tp.max(1).saturating_mul(self.pp.max(1));
        replica.saturating_mul(self.dp.max(1))
    }
}

/// LoRA slots that the engine allocates at its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lora {
    /// `--max-lora-rank`.
    pub rank: u64,
    /// `--max-loras`.
    pub slots: u64,
}

/// A GPU to plan for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gpu {
    /// As it is called in configs/gpus or by the driver.
    pub name: String,
    /// What the driver reports as its memory, bytes: a little less than what is sold.
    #[serde(rename = "total_bytes")]
    pub total: u64,
    /// Taken by others before the engine starts, bytes.
    #[serde(rename = "in_use_bytes")]
    pub in_use: u64,
}

/// A version of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Version {
    /// Major.
    pub major: u32,
    /// Minor.
    pub minor: u32,
    /// Patch.
    pub patch: u32,
    /// Of `0.4.6.post5` 5; 0 where nothing follows the patch.
    #[serde(skip)]
    pub post: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl Version {
    /// The numbers that a version begins with: of `v0.5.5.post1` 0.5.5 and the first release after it, of
    /// `0.19.1rc1+cu128` 0.19.1; a missing patch is 0.
    pub fn leading(text: &str) -> Option<Version> {
        let text = text.trim().trim_start_matches(['v', 'V']);
        let mut parts = text.split(['.', '-', '+']);
        let mut number = || {
            let part = parts.next()?;
            let digits = part
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(part.len());
            part[..digits].parse::<u32>().ok()
        };
        let (major, minor) = (number()?, number()?);
        let version = Version::new(major, minor, number().unwrap_or(0));
        Some(version.after(parts.next().unwrap_or_default()))
    }

    /// The release after this one that a part of a version names: `post1`; any other part names none.
    pub fn after(self, part: &str) -> Version {
        let digits = part.strip_prefix("post").unwrap_or_default();
        let end = digits.find(|c: char| !c.is_ascii_digit());
        let post = digits[..end.unwrap_or(digits.len())].parse().unwrap_or(0);
        Version { post, ..self }
    }

    /// `major.minor.patch`.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Version {
            major,
            minor,
            patch,
            post: 0,
        }
    }
}
