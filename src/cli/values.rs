//! Words of the command line for choices of the modules below: those do not know clap.

use crate::compare::given::KvBasis;
use crate::estimate::question::What;
use crate::matrix::BenchWord;
use crate::telemetry::BackendChoice;
use crate::tune::TuningGoal;
use clap::ValueEnum;
use clap::builder::PossibleValue;

/// Lets the variants of an enum be named on the command line, each by its word and explained by its help.
macro_rules! value_words {
    ($choice:ty { $($variant:ident = $word:literal, $help:literal;)* }) => {
        impl ValueEnum for $choice {
            fn value_variants<'a>() -> &'a [Self] {
                &[$(<$choice>::$variant),*]
            }

            fn to_possible_value(&self) -> Option<PossibleValue> {
                Some(match self {
                    $(<$choice>::$variant => PossibleValue::new($word).help($help),)*
                })
            }
        }
    };
}

value_words! { BackendChoice {
    Auto = "auto", "NVML where the container uses an NVIDIA GPU that can be read, else its AMD or Intel GPUs, else host";
    Nvml = "nvml", "NVIDIA GPUs, through the driver's library";
    Amd = "amd", "The container's AMD GPUs, through the kernel's files or AMD's tools";
    Intel = "intel", "The container's discrete Intel GPUs, through the kernel's account of open devices";
    Host = "host", "The container's host memory, through its cgroup";
} }

value_words! { BenchWord {
    Auto = "auto", "The engine's own client where a server is reused, its latency bench with --fresh";
    Latency = "latency", "The latency bench, a process for each cell";
    Throughput = "throughput", "The throughput bench, a process for each cell";
    Serve = "serve", "The engine's own client";
    Builtin = "builtin", "plimsoll's own client";
} }

value_words! { KvBasis {
    Pool = "pool", "The pool as the engine reserves it";
    Used = "used", "What the requests used of it at most";
} }

value_words! { TuningGoal {
    Throughput = "throughput", "Generated tokens per second";
    Cost = "cost", "Generated tokens per second of each GPU: the price of a token falls as it rises";
    Concurrency = "concurrency", "Concurrent requests";
} }

value_words! { What {
    MaxConcurrency = "max-concurrency", "Requests of --max-model-len at once";
    MaxModelLen = "max-model-len", "The longest sequence, at --concurrency";
    MaxBatch = "max-batch", "The largest --max-num-seqs whose sequences all fit";
    MinGpus = "min-gpus", "The fewest GPUs of this kind, by tensor parallelism, then pipeline parallelism";
    GpuMemoryUtilization = "gpu-memory-utilization", "The smallest share of the memory";
} }
