//! Messages that need more than a row of the table.

use super::VllmLog;
use super::readings::RankLine;
use super::settings::Trust;
use crate::engine::facts::{EngineStep, FactValue, key};
use crate::engine::log::figures::{after, number, number_after};
use crate::engine::log::sheet::Sheet;
use crate::engine::log::text::bare;

/// Rows of `nvidia-smi` kept.
const MOST_GPUS: usize = 64;

/// Notes that an API server writes this log, which then announces readiness.
pub fn server(log: &mut VllmLog, _: &RankLine<'_>, _: &str, _: &mut Sheet) {
    log.server = true;
}

/// The version as the API server announces it.
pub fn server_version(log: &mut VllmLog, _: &RankLine<'_>, rest: &str, _: &mut Sheet) {
    if let Some(version) = version(rest) {
        log.server_version = Some(version.to_owned());
    }
}

/// Next to the logo of block letters: `█  version 0.32.0`, `█  model   /models/m`.
pub fn logo(log: &mut VllmLog, line: &RankLine<'_>, _: &str, _: &mut Sheet) {
    let Some((_, tail)) = line.text.rsplit_once(['█', '▀', '▄']) else {
        return;
    };
    let tail = tail.trim();
    if let Some(version) = tail.strip_prefix("version ").and_then(version) {
        log.server_version = Some(version.to_owned());
    }
    if let Some(model) = tail.strip_prefix("model ") {
        let model = FactValue::Text(model.trim().to_owned());
        log.settings
            .set(key::model, model, Trust::Command, line, "model ");
    }
}

/// `0.8.5` of `0.8.5, serving model X`.
pub fn version(text: &str) -> Option<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '-' | '_');
    let end = text.find(|c| !is_part(c)).unwrap_or(text.len()).min(80);
    let version = text[..end].trim_end_matches('.');
    version
        .starts_with(|c: char| c.is_ascii_digit() || c == 'd')
        .then_some(version)
}

/// The model of `Starting to load model X...`.
pub fn model_name(text: &str) -> Option<&str> {
    Some(text.trim().trim_end_matches("..."))
}

/// The first word of a platform's name.
pub fn platform(text: &str) -> Option<&str> {
    text.split(|c: char| !c.is_alphanumeric()).next()
}

/// The quantization of `Selected SomeKernel for Fp8OnlineLinearMethod`.
pub fn quantized_for(text: &str) -> Option<&'static str> {
    let (method, _) = text.split_once("LinearMethod")?;
    [
        ("Fp8", "fp8"),
        ("AWQ", "awq"),
        ("GPTQ", "gptq"),
        ("CompressedTensors", "compressed-tensors"),
    ]
    .iter()
    .find_map(|(sign, name)| method.contains(sign).then_some(*name))
}

/// The attention backend that a line names, of several that of the language model.
pub fn attention(log: &mut VllmLog, line: &RankLine<'_>, _: &str, _: &mut Sheet) {
    if let Some((rank, name, needle)) = attention_backend(line.text) {
        if log.attention.is_none_or(|known| rank > known) {
            log.attention = Some(rank);
            let name = FactValue::Text(name);
            (log.settings).set(key::attention_backend, name, Trust::Adjusted, line, needle);
        }
    }
}

/// The attention backend that `text` names, with how surely it is the language model's.
fn attention_backend(text: &str) -> Option<(u8, String, &'static str)> {
    if let Some(rest) = after(text, "Using ") {
        if let Some((name, _)) = rest.split_once(" attention backend out of potential") {
            return Some((4, short(name)?, "Using "));
        }
        if let Some((name, behind)) = rest.split_once(" backend") {
            // `backend for vit attention` and `MoE backend` are other parts of the model.
            if (behind.is_empty()
                || behind.starts_with(['.', '`'])
                || behind.starts_with(" on V1")
                || behind.starts_with(" with "))
                && is_attention(name)
            {
                return Some((3, short(name)?, "Using "));
            }
        }
        if let Some(version) = rest.strip_prefix("FlashAttention version ") {
            let version = version.split(|c: char| !c.is_alphanumeric()).next()?;
            return Some((2, format!("FlashAttention version {version}"), "Using "));
        }
    }
    let sign = "is not supported with ";
    let (name, _) = after(text, sign)?.split_once(" backend (support")?;
    let part = if name.contains("Indexer") {
        "indexer only, from a warning"
    } else {
        "from a warning"
    };
    Some((1, format!("{} ({part})", short(name)?), sign))
}

fn short(name: &str) -> Option<String> {
    let name = name.trim().trim_start_matches("AttentionBackendEnum.");
    (!name.is_empty() && name.len() < 60).then(|| name.to_owned())
}

fn is_attention(name: &str) -> bool {
    const KINDS: [&str; 12] = [
        "attention",
        "attn",
        "xformers",
        "flash",
        "sdpa",
        "mla",
        "triton",
        "pallas",
        "flex",
        "aiter",
        "rocm",
        "turboquant",
    ];
    let lower = name.to_lowercase();
    let holds = |kind: &&str| lower.contains(kind);
    KINDS.iter().any(holds) && !["prefill", "moe", "mxfp4"].iter().any(holds)
}

/// `rank 1 in world size 2 is assigned as DP rank 0, PP rank 0, …, TP rank 1`.
pub fn world(log: &mut VllmLog, line: &RankLine<'_>, rest: &str, _: &mut Sheet) {
    let size = |name| number_after(rest, name).map_or(0.0, |n| n.value) + 1.0;
    let (tp, pp) = (size(", TP rank "), size("PP rank "));
    // Only the last rank's line has the sizes; a lone line of rank 0 does not.
    if number(rest).is_some_and(|(world, _)| world.value == tp * pp) {
        for (key, size) in [
            (key::tensor_parallel_size, tp),
            (key::pipeline_parallel_size, pp),
        ] {
            let size = FactValue::Int(size as i64);
            (log.settings).set(key, size, Trust::Mentioned, line, " in world size ");
        }
    }
}

/// The engine is up. Without an API server nothing else announces that it is ready.
pub fn started_up(log: &mut VllmLog, line: &RankLine<'_>, _: &str, sheet: &mut Sheet) {
    if !log.server {
        sheet.step(EngineStep::Ready, line, "init engine (");
    }
}

/// The API server is ready.
pub fn startup_complete(log: &mut VllmLog, line: &RankLine<'_>, _: &str, sheet: &mut Sheet) {
    if !log.startup_complete {
        log.startup_complete = true;
        sheet.restep(EngineStep::Ready, line, "Application startup complete");
    }
}

/// `GPU KV cache size: N tokens`.
pub fn kv_tokens(log: &mut VllmLog, line: &RankLine<'_>, rest: &str, _: &mut Sheet) {
    let needle = "KV cache size: ";
    let Some((n, unit)) = number(rest) else {
        return;
    };
    if !unit.trim_start().starts_with("tokens") {
        return;
    }
    let tokens = FactValue::Int(n.value as i64);
    (log.readings).add(key::kv_cache_tokens, tokens, line, needle, true, false);
    // `CPU KV cache size` since 0.32; before that the CPU backend prints GPU too.
    let (head, _) = line.text.split_once(needle).unwrap_or_default();
    if let Some(device) = head.split_whitespace().next_back().filter(|d| *d != "GPU") {
        let device = FactValue::Text(device.to_owned());
        (log.settings).set(key::device_label, device, Trust::Mentioned, line, needle);
    }
}

/// `Maximum concurrency for N tokens per request: Rx`.
pub fn concurrency(log: &mut VllmLog, line: &RankLine<'_>, rest: &str, _: &mut Sheet) {
    let needle = "Maximum concurrency for ";
    let figures = number(rest).and_then(|(n, rest)| Some((n, number_after(rest, "request: ")?)));
    if let Some((tokens, ratio)) = figures {
        let tokens = FactValue::Int(tokens.value as i64);
        let ratio = FactValue::Float(ratio.value);
        (log.readings).add(key::max_concurrency, ratio, line, needle, true, false);
        let key = key::max_concurrency_tokens;
        (log.readings).add(key, tokens.clone(), line, needle, false, true);
        (log.settings).set(key::max_model_len, tokens, Trust::Inferred, line, needle);
    }
}

/// `# cuda blocks: 88952, # CPU blocks: 0`: the label is the device's name, and with `cpu` in small
/// letters the first number is the KV pool and the second one swap space.
pub fn blocks(log: &mut VllmLog, line: &RankLine<'_>, _: &str, _: &mut Sheet) {
    let needle = " blocks: ";
    let mut parts = line.text.match_indices(needle).filter_map(|(at, _)| {
        let (_, label) = line.text[..at].rsplit_once("# ")?;
        let (count, _) = number(&line.text[at + needle.len()..])?;
        (!label.contains(' ')).then_some((label, FactValue::Int(count.value as i64)))
    });
    let Some((label, count)) = parts.next() else {
        return;
    };
    let host = label.eq_ignore_ascii_case("cpu") || label == "device";
    let key = if host {
        key::num_device_blocks
    } else {
        key::num_gpu_blocks
    };
    log.readings.add(key, count, line, needle, false, true);
    if let Some((_, swap)) = parts.next() {
        (log.readings).add(key::num_cpu_blocks, swap, line, needle, false, true);
    }
    let label = FactValue::Text(label.to_owned());
    (log.settings).set(key::device_label, label, Trust::Used, line, needle);
}

/// Every data-parallel engine has its own pool; the API server prints for all of them.
pub fn blocks_of_engine(log: &mut VllmLog, line: &RankLine<'_>, rest: &str, _: &mut Sheet) {
    if let Some((n, _)) = number(rest) {
        let mut line = *line;
        if let Some(engine) = number_after(line.text, "Engine ") {
            line.origin.dp = Some(engine.value as u32);
        }
        let count = FactValue::Int(n.value as i64);
        let needle = "after num_gpu_blocks is: ";
        (log.readings).add(key::num_gpu_blocks, count, &line, needle, false, true);
    }
}

/// `Overriding num_gpu_blocks=N with num_gpu_blocks_override=M`. The CUDA graph profiler overrides
/// 0 blocks itself; that is not a user setting.
pub fn blocks_forced(log: &mut VllmLog, line: &RankLine<'_>, rest: &str, _: &mut Sheet) {
    let profiled = number(rest).filter(|(n, _)| n.value > 0.0);
    let forced = profiled.and_then(|(_, rest)| number_after(rest, "num_gpu_blocks_override="));
    if let Some(forced) = forced {
        let needle = "Overriding num_gpu_blocks=";
        let count = FactValue::Int(forced.value as i64);
        (log.readings).add(
            key::num_gpu_blocks,
            count.clone(),
            line,
            needle,
            false,
            true,
        );
        let key = key::num_gpu_blocks_override;
        (log.settings).set(key, count, Trust::Adjusted, line, needle);
    }
}

/// The engine's own count of preemptions since its start.
pub fn preempted(log: &mut VllmLog, line: &RankLine<'_>, rest: &str, _: &mut Sheet) {
    if let Some((n, _)) = number(rest) {
        log.trouble.preemptions_counted(n.value as u64, line);
    }
}

/// The periodic statistics: the largest use of the pool, and preemptions.
pub fn statistics(log: &mut VllmLog, line: &RankLine<'_>, _: &str, sheet: &mut Sheet) {
    let needle = "KV cache usage: ";
    if let Some(usage) = number_after(line.text, needle) {
        if log.peak_usage.is_none_or(|peak| usage.value > peak) {
            log.peak_usage = Some(usage.value);
            sheet.figure(key::kv_cache_usage_peak_pct, usage.value, line, needle);
        }
    }
    if let Some(n) = number_after(line.text, ", Preemptions: ").filter(|n| n.value > 0.0) {
        log.trouble.preempted(n.value as u64, line);
    }
}

/// `0, 86874 MiB`: a row of `nvidia-smi --query-gpu=index,memory.used` that was put below the log.
pub fn smi_row(log: &mut VllmLog, line: &RankLine<'_>, _: &str, sheet: &mut Sheet) {
    let Some((index, rest)) = number(bare(line.text)) else {
        return;
    };
    let Some((used, unit)) = rest.strip_prefix(", ").and_then(number) else {
        return;
    };
    let next = index.whole && index.value == log.gpus as f64 && log.gpus < MOST_GPUS;
    if next && used.whole && unit == " MiB" {
        log.gpus += 1;
        sheet.item(key::nvidia_smi_used_mib_per_gpu, used.value, line);
    }
}

/// The fp8 KV cache runs without scales.
pub fn unscaled(log: &mut VllmLog, line: &RankLine<'_>, _: &str, _: &mut Sheet) {
    log.unscaled_fp8
        .get_or_insert_with(|| line.quote("scaling factor"));
}

/// A kept function that was compiled ahead of time does not load (vLLM 0.32, compilation/decorators.py).
pub fn compiled_again(log: &mut VllmLog, line: &RankLine<'_>, _: &str, _: &mut Sheet) {
    log.compiled_again
        .get_or_insert_with(|| line.quote("Compiling model again"));
}

/// The target's weights are loaded: later loads are a draft model's.
pub fn weights_loaded(log: &mut VllmLog, _: &RankLine<'_>, _: &str, _: &mut Sheet) {
    log.trouble.loaded_once = true;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_language_models_backend_counts() {
        let name = |text| attention_backend(text).map(|a| a.1);
        assert_eq!(name("Using XFormers backend."), Some("XFormers".into()));
        assert_eq!(
            name("Using Flash Attention backend on V1 engine."),
            Some("Flash Attention".into())
        );
        assert_eq!(
            name("Using AttentionBackendEnum.TRITON_ATTN backend."),
            Some("TRITON_ATTN".into())
        );
        assert_eq!(
            name("Using FLASHINFER attention backend out of potential backends: ['FLASHINFER']."),
            Some("FLASHINFER".into())
        );
        assert_eq!(
            name(
                "Using FlashInfer backend with HND KV cache layout on V1 engine by default for Blackwell (SM 10.0) GPUs."
            ),
            Some("FlashInfer".into())
        );
        for other in [
            "Using backend AttentionBackendEnum.FLASH_ATTN for vit attention",
            "Using default backend AttentionBackendEnum.TORCH_SDPA for vit attention",
            "Using 'DEEPGEMM_MXFP4' Mxfp4 MoE backend.",
            "Using Marlin backend for WNA16 MoE (group_size=32)",
            "Using FlashAttention MLA prefill backend.",
            "Cannot use FlashAttention-2 backend for Volta and Turing GPUs.",
            "uni is not supported on CPU, fallback to mp distributed executor backend.",
        ] {
            assert_eq!(name(other), None, "{other}");
        }
    }

    #[test]
    fn versions_of_releases_and_builds() {
        assert_eq!(version("0.8.5"), Some("0.8.5"));
        assert_eq!(version("0.30.0, serving model X"), Some("0.30.0"));
        assert_eq!(
            version("0.6.4.dev26+g92d86da2.d20241017) with"),
            Some("0.6.4.dev26+g92d86da2.d20241017")
        );
        assert_eq!(version("dev"), Some("dev"));
        assert_eq!(version(" "), None);
    }
}
