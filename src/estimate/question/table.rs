//! What a model needs at each number of requests and each length.

use super::{Reading, Risk};
use crate::estimate::{Deployment, Unknown};
use serde::{Deserialize, Serialize};

/// One answer of the table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Requests at once.
    pub concurrency: u64,
    /// Tokens of each.
    pub length: u64,
    /// Bytes on the GPU that needs most: all terms and what these requests keep.
    pub needed: u64,
    /// The cache's part of it, bytes.
    pub cache: u64,
    /// Whether it fits; null without a GPU.
    pub fits: Option<bool>,
    /// How great the risk is; null without a GPU.
    pub risk: Option<Risk>,
}

/// Lengths of the table by default: powers, as far as the model reads, and its own end.
pub fn lengths(most: Option<u64>) -> Vec<u64> {
    let mut all: Vec<u64> = [2048, 8192, 32_768, 131_072]
        .into_iter()
        .filter(|n| most.is_none_or(|most| *n <= most))
        .collect();
    all.extend(most.filter(|n| *n <= 131_072));
    all.sort_unstable();
    all.dedup();
    all
}

/// Numbers of requests of the table by default.
pub const CONCURRENCIES: [u64; 5] = [1, 4, 16, 64, 256];

/// The table, row by row: all numbers of requests of one length, then the next length.
///
/// # Errors
/// The missing input.
pub fn table(
    asked: &Deployment,
    concurrencies: &[u64],
    lengths: &[u64],
    read: &dyn Fn(&Deployment) -> Result<Reading, Unknown>,
) -> Result<Vec<Entry>, Unknown> {
    let mut entries = Vec::with_capacity(concurrencies.len().saturating_mul(lengths.len()));
    for length in lengths {
        let with = Deployment {
            max_model_len: Some(*length),
            ..asked.clone()
        };
        let reading = read(&with)?;
        for concurrency in concurrencies {
            entries.push(Entry {
                concurrency: *concurrency,
                length: *length,
                needed: reading.needed(*concurrency),
                cache: reading.request.saturating_mul(*concurrency),
                fits: reading.fits(*concurrency),
                risk: reading.risk(*concurrency),
            });
        }
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::EngineId;

    #[test]
    fn each_length_is_read_once_and_grows_with_the_requests() {
        let read = |d: &Deployment| {
            Ok(Reading {
                besides: 10,
                request: d.max_model_len.unwrap_or(0),
                ..Reading::default()
            })
        };
        let asked = Deployment::with_defaults(EngineId::Vllm);
        let entries = table(&asked, &[1, 3], &[5, 7], &read).unwrap();
        let needed: Vec<u64> = entries.iter().map(|e| e.needed).collect();
        assert_eq!(needed, [15, 25, 17, 31]);
        assert_eq!(entries[3].fits, None);
    }

    #[test]
    fn lengths_end_where_the_model_does() {
        assert_eq!(lengths(Some(40_960)), [2048, 8192, 32_768, 40_960]);
        assert_eq!(lengths(Some(1024)), [1024]);
        assert_eq!(lengths(Some(1 << 20)).last(), Some(&131_072));
    }
}
