//! The KV pool in exact bytes, where the engine's log prints it rounded.

use super::attention::kv_bytes_per_token;
use super::observation::CaptureObservation;
use super::{DtypeMetadata, ModelInfo};
use crate::engine::facts::{FactKey, FactValue, key};

/// Engines print a pool in GiB with two decimals: half of the last digit, bytes.
const ROUNDING_BYTES: i64 = 5_368_710;

/// What one rank's pool takes, by figures that are not rounded, and the source of each.
#[derive(Debug, Default)]
pub struct ExactPool {
    /// Set on the command line.
    requested: Option<(i64, String)>,
    /// Tokens that it holds, times their bytes.
    pub calculated: Option<(i64, String)>,
}

impl ExactPool {
    /// From command line, endpoints, log and the model's files.
    pub fn read_pool(
        o: &CaptureObservation<'_>,
        model: &ModelInfo,
        dtypes: &DtypeMetadata,
    ) -> ExactPool {
        let key = key::kv_cache_memory_bytes;
        let logged = o.log.number(key).map(|n| n as i64);
        let requested = logged.or_else(|| o.settings.values.get(key.name())?.parse().ok());
        ExactPool {
            requested: requested.map(|bytes| (bytes, format!("{key}={bytes}"))),
            calculated: calculated(o, model, dtypes),
        }
    }

    /// The exact figure that a log rounded to `bytes`, over `ranks` ranks; `None` where none agrees with it.
    pub fn exact_figure_behind(&self, bytes: i64, ranks: u64) -> Option<(i64, &str)> {
        let ranks = i64::try_from(ranks).ok()?;
        [&self.requested, &self.calculated]
            .into_iter()
            .flatten()
            .filter_map(|(exact, quote)| Some((exact.checked_mul(ranks)?, quote.as_str())))
            .find(|(exact, _)| {
                exact.abs_diff(bytes) <= ROUNDING_BYTES.saturating_mul(ranks).unsigned_abs()
            })
    }
}

/// Blocks of the endpoints, else tokens of the log, times the bytes of a token.
fn calculated(
    o: &CaptureObservation<'_>,
    model: &ModelInfo,
    dtypes: &DtypeMetadata,
) -> Option<(i64, String)> {
    let ranks = o.engine_ranks();
    let kv_dtype = dtypes.kv_cache.as_deref();
    let token = kv_bytes_per_token(&o.capture.model_files, model, kv_dtype, ranks.tensor)?;
    let (tokens, source) = match (o.probes.num_gpu_blocks, o.probes.block_size) {
        (Some(blocks), Some(size)) => (
            blocks.checked_mul(size)?,
            format!("/metrics: {blocks} blocks of {size} tokens"),
        ),
        _ => {
            let tokens = logged_tokens(o, ranks.engines)?;
            (tokens, format!("log: {tokens} tokens"))
        }
    };
    let all = i64::try_from(tokens.checked_mul(token)?).ok()?;
    let by = if o.capture.model_files.contains_key("config.json") {
        "config.json"
    } else {
        "given figures"
    };
    let quote = format!("{source}; {token} bytes per token by {by}");
    Some((all / ranks.rank_count() as i64, quote))
}

/// Tokens of all engines' pools; `None` where the log has not each engine's, or counts the ranks of a context together.
fn logged_tokens(o: &CaptureObservation<'_>, engines: u64) -> Option<u64> {
    if o.log.has(key::kv_cache_tokens_of_all_ranks) {
        return None;
    }
    let value = |key: FactKey| o.log.fact(key).map(|f| &f.value);
    match value(key::kv_pool_tokens).or_else(|| value(key::kv_cache_tokens))? {
        FactValue::List(each) => {
            (each.len() as u64 == engines).then(|| each.iter().sum::<f64>() as u64)
        }
        value => (value.number().filter(|_| engines == 1)).map(|n| n as u64),
    }
}
