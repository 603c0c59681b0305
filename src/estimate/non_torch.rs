//! What PyTorch does not hold: the driver's context, the libraries' modules, buffers of NCCL and of all-reduces.
//!
//! Measured constants in one table: no formula gives them. Each row has the number of its runs.

use super::{
    Deployment, EngineId, Version,
    engines::{self, Generation, vllm},
};
use crate::units::GIB;

/// One line of the table.
struct Line {
    /// Part of the GPU's name; empty for any. `H`: Hopper and datacenter Blackwell; `B`: the latter alone.
    gpu: &'static str,
    /// Tensor parallelism from which it holds.
    tp: u64,
    /// GPUs reach each other by NVLink; does not matter at 1.
    nvlink: bool,
    /// From this version on.
    from: Version,
    /// GiB.
    gib: f64,
    /// Runs.
    runs: u64,
}

impl Line {
    /// Of four GPUs of NVIDIA and more, whatever their number: NCCL no longer counts.
    fn is_of_any_number(&self) -> bool {
        self.tp > 1 && self.from >= Version::new(0, 21, 0)
    }
}

const fn line(gpu: &'static str, tp: u64, nvlink: bool, from: u32, gib: f64, runs: u64) -> Line {
    Line {
        gpu,
        tp,
        nvlink,
        from: Version::new(0, from, 0),
        gib,
        runs,
    }
}

/// What vLLM logs as its non-torch memory, GiB, V1's differences and V0 from 0.6.4.
///
/// The step at 0.17 is what Hopper's runs of 0.19 show beside those of 0.14: at TP 2 and more the buffers of the
/// all-reduces that are fused with norms.
const VLLM: &[Line] = &[
    line("T4", 1, false, 0, 0.04, 7),
    line("L4", 1, false, 0, 0.03, 2),
    line("A100", 1, false, 0, 0.09, 3),
    line("4090", 1, false, 0, 0.08, 1),
    line("H100", 1, false, 0, 0.135, 15),
    line("H100", 1, false, 17, 0.25, 21),
    line("", 1, false, 0, 0.11, 28),
    // From public logs: 0.29 to 0.56 in 0.27, and 0.0 to 1.2 from 0.28 on (RTX 3050, 3090 Ti under WSL, 5090).
    line("", 1, false, 27, 0.3, 10),
    line("H100", 1, false, 27, 0.25, 2),
    line("", 2, true, 0, 0.55, 2),
    line("H", 2, true, 17, 2.07, 4),
    line("", 4, true, 0, 0.60, 2),
    line("H", 4, true, 17, 2.17, 2),
    // 2.10 and 2.10 with NCCL's 1.0 in 0.7.1 and 0.8.5, 0.93 to 2.15 of two nodes in 0.8.3.
    line("", 8, true, 0, 1.1, 4),
    line("", 8, true, 11, 1.8, 2),
    line("H", 8, true, 17, 2.3, 0),
    // 0.95 on GB200 in 0.26, 1.63 on B300 in August 2026, both of four.
    line("B", 2, true, 21, 1.3, 2),
    // What speaks between GPUs is there before the first snapshot: 0.13 at TP 4 in 0.26, on A100 and on GB10, and pools on
    // four L40S say the same; of two GPUs (RTX 3090, 5090 in 0.27) they say 0.6.
    line("", 4, true, 21, 0.15, 1),
    line("", 4, false, 21, 0.15, 1),
    // 0.20 to 0.36 in 0.6.6 to 0.10.2, NCCL's buffers included: RTX 2080 Ti, 3090, 4090, A40, L40S, two to sixteen.
    line("", 2, false, 0, 0.25, 9),
    line("", 2, false, 11, 0.6, 0),
    line("", 4, false, 11, 1.1, 2),
    line("", 8, false, 11, 2.4, 2),
    line("", 16, false, 11, 2.5, 1),
];

/// Of stages of a pipeline on Hopper that nothing else divides, GiB: six ranks of two runs of 0.19 on H100. No norm is
/// fused with an all-reduce there.
const STAGE_GIB: f64 = 0.07;

/// The driver's context with the engine's kernels, GiB: `init_cuda_memory` of 26 runs on H100 is 0.51 at TP 1.
pub const CONTEXT_GIB: f64 = 0.5;
/// With NCCL's buffers: 1.53 at TP 2 and 1.55 at TP 4 (6 runs on H100).
const CONTEXT_TP_GIB: f64 = 1.5;
/// NCCL's part of it where GPUs are joined by PCIe: eight RTX 3090 had 0.63 in use in all.
const NCCL_PCIE_GIB: f64 = 0.4;
/// What vLLM 0.8.0 to 0.9.1 counted besides, as it took all that torch does not hold: part of the context.
const ABSOLUTE_GIB: f64 = 0.42;
/// What V0 before 0.7 logged besides: 0.35 in 2 runs of 0.6.4.
const OLD_V0_GIB: f64 = 0.25;

/// What PyTorch does not hold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NonTorch {
    /// Bytes that the engine's own sizing counts.
    pub counted: u64,
    /// Bytes taken besides, before the engine looks: a context, NCCL.
    pub before: u64,
    /// Runs that it comes from.
    pub runs: u64,
}

/// Ranks that speak with each other by NCCL: stages of a pipeline and experts of several replicas do as well.
pub fn linked_ranks(deployment: &Deployment) -> u64 {
    let replica = deployment.tp.max(1).saturating_mul(deployment.pp.max(1));
    replica.max(deployment.ep)
}

/// Whether nothing but stages of a pipeline divides a model on Hopper, in releases where that was seen to take nothing
/// beside what one GPU does.
pub fn has_stages_alone(deployment: &Deployment) -> bool {
    let version = vllm::version(deployment);
    let measured = version >= Version::new(0, 11, 0) && version < Version::new(0, 27, 0);
    measured
        && engines::generation_of(deployment) == Some(Generation::Hopper)
        && deployment.pp > 1
        && deployment.tp.max(deployment.ep) <= 1
}

/// What a deployment takes beside PyTorch.
pub fn of(deployment: &Deployment) -> NonTorch {
    let gib = |g: f64| (g * GIB) as u64;
    let tp = linked_ranks(deployment);
    // llama.cpp does without NCCL where it splits by layers: 466 and 467 MiB of two GPUs were in none of its buffers.
    let has_nccl = tp > 1 && deployment.engine != EngineId::LlamaCpp;
    let gpu = engines::gpu_model(deployment);
    let name = gpu.map_or("", |g| g.name.as_str());
    let nvlink = engines::has_nvlink(deployment);
    let foreign = engines::is_foreign(deployment);
    // The context is that of an H100; a smaller GPU has a smaller one, of which a hundredth of the GPU is counted at most.
    let own = gib(CONTEXT_GIB);
    let held = (deployment.gpu.as_ref()).map_or(own, |gpu| own.min(gpu.total / 100));
    let by_pcie = has_nccl && gpu.is_some() && !nvlink && !foreign;
    let nccl = if !has_nccl {
        0.0
    } else if by_pcie {
        NCCL_PCIE_GIB
    } else {
        CONTEXT_TP_GIB - CONTEXT_GIB
    };
    if deployment.engine != EngineId::Vllm {
        // 0.55 on four L4 and four RTX 4090, 0.77 on four RTX 5090 (SGLang).
        let counted = if by_pcie && deployment.engine == EngineId::Sglang {
            held + gib(nccl)
        } else if has_nccl {
            gib(CONTEXT_TP_GIB)
        } else {
            own
        };
        return NonTorch {
            counted,
            before: 0,
            runs: 0,
        };
    }
    let generation = engines::generation_of(deployment);
    let hopper = generation == Some(Generation::Hopper);
    // The norms of Hopper and of datacenter Blackwell are fused with all-reduces.
    let fused = hopper || nvlink && generation == Some(Generation::Blackwell);
    let version = vllm::version(deployment);
    // NCCL's buffers came into being after the first snapshot until pull request 25359 (0.11) turned that around.
    let nccl_first = version >= Version::new(0, 11, 0);
    let found = VLLM
        .iter()
        .filter(|l| {
            let named = match l.gpu {
                "" => true,
                "H" => fused,
                "B" => fused && !hopper,
                "H100" => hopper,
                other => name.split(' ').any(|w| w == other),
            };
            let wide = if foreign && l.is_of_any_number() {
                false
            } else if tp == 1 {
                l.tp == 1
            } else {
                l.tp > 1 && l.tp <= tp && l.nvlink == nvlink
            };
            named && wide && l.from <= version
        })
        .max_by_key(|l| {
            // A newer row counts before an older one of the GPU's own, but on Hopper, which has rows for each step; of
            // several GPUs that of as many, but for what holds of any number.
            let named = !l.gpu.is_empty();
            let widest = if l.is_of_any_number() { 16 } else { l.tp };
            (named && fused, widest, l.from, named)
        });
    let (mut counted, runs) = match found {
        _ if has_stages_alone(deployment) => (STAGE_GIB, 2),
        Some(l) => (l.gib, l.runs),
        None => (0.11, 0),
    };
    // Rows of GPUs that are joined by PCIe have them.
    if tp > 1 && !nccl_first && nvlink {
        counted += CONTEXT_TP_GIB - CONTEXT_GIB;
    }
    match vllm::rule(deployment) {
        vllm::Rule::Absolute => counted += ABSOLUTE_GIB,
        // All that is not free was counted, the context included, up to 0.3.0 (worker/worker.py; 0.3.3 takes differences).
        vllm::Rule::FreeMemory if version < Version::new(0, 3, 1) => {
            counted += OLD_V0_GIB + ABSOLUTE_GIB;
        }
        vllm::Rule::FreeMemory => counted += OLD_V0_GIB,
        vllm::Rule::Increase if version < Version::new(0, 7, 0) => counted += OLD_V0_GIB,
        _ => {}
    }
    NonTorch {
        counted: gib(counted),
        before: held + gib(nccl),
        runs,
    }
}
