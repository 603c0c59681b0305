//! Several models on the same GPUs, as a chapter of an estimate: who starts when, with what, and what is left.

use super::unknown_cell;
use crate::engine::facts::Severity;
use crate::estimate::question::Risk;
use crate::report::content::{AnswerState, Chapter, ContentBlock, note_block};
use crate::report::figures::estimate_cell;
use crate::report::layout::{counted_noun, grouped_count};
use crate::report::tables::TableBuilder;
use crate::units::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Models, and what else holds memory, on the same GPUs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SharedGpus {
    /// In the order in which they start; running ones first.
    pub tenants: Vec<SharedTenant>,
    /// The GPUs with what is left of them.
    pub gpus: Vec<SharedGpu>,
    /// All start and hold what is asked for, as they are asked for; null where that is unknown.
    pub fits_as_asked: Option<bool>,
    /// The same with the settings that are named; null where that is unknown.
    pub fits: Option<bool>,
    /// Each order of starting does.
    pub any_order: bool,
    /// The greatest risk of them.
    pub risk: Option<Risk>,
    /// Memory of the other models than the one shown by parts, bytes.
    pub beside_main_bytes: u64,
}

/// One of them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SharedTenant {
    /// The service's, the container's or the model's name, or the size that was named.
    pub name: String,
    /// The model; null for running ones.
    pub model: Option<String>,
    /// Its GPUs.
    pub gpus: Vec<String>,
    /// Bytes of each of its GPUs once it serves; null where that is unknown.
    pub takes_bytes: Option<u64>,
    /// The setting that it needs and was not asked for with.
    pub setting: Option<String>,
    /// The setting that fixes its cache, whatever others hold when it starts.
    pub cache_setting: Option<String>,
    /// Requests of its longest length at once.
    pub concurrency: Option<f64>,
    /// Its longest sequence, tokens.
    pub max_model_len: Option<u64>,
    /// Whether it starts and holds the requested load; null for running ones, and if unknown.
    pub fits: Option<bool>,
    /// Why it does not fit, why that is unknown, or what is not counted.
    pub reason: Option<String>,
}

/// A GPU of theirs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SharedGpu {
    /// As its request names it.
    pub gpu: String,
    /// Its memory, bytes.
    pub total_bytes: u64,
    /// What all of them leave, bytes; null where one of them is not known.
    pub left_bytes: Option<u64>,
}

impl SharedGpus {
    fn models(&self) -> impl Iterator<Item = &SharedTenant> {
        let starts = |t: &&SharedTenant| t.model.is_some() || t.reason.is_some();
        self.tenants.iter().filter(starts)
    }

    /// No GPU is of two of them.
    fn are_apart(&self) -> bool {
        let mut of_all = self.tenants.iter().flat_map(|t| &t.gpus);
        let mut seen = BTreeSet::new();
        self.models().count() > 1 && of_all.all(|gpu| seen.insert(gpu))
    }

    /// `1.20 GiB of each GPU is left`; nothing where that is unknown.
    fn left(&self) -> Option<String> {
        let left = self.gpus.iter().map(|gpu| gpu.left_bytes);
        let least = left.collect::<Option<Vec<u64>>>()?.into_iter().min()?;
        let of = if self.gpus.len() > 1 {
            " of the fullest GPU"
        } else {
            ""
        };
        Some(format!("{}{of} is left", Bytes(least)))
    }
}

/// Whether all of them fit.
pub(super) fn verdict_of_sharing(shared: &SharedGpus) -> (AnswerState, String) {
    let count = shared.models().count();
    let (all, fit) = match count {
        1 => ("It".to_owned(), ("fits", "does not fit")),
        n => (format!("These {n} models"), ("fit", "do not fit")),
    };
    let left = shared.left();
    let left = left.map_or(String::new(), |left| format!("; {left}"));
    let in_turn = match (count, shared.any_order) {
        (1, _) => String::new(),
        _ if shared.are_apart() => ", each on a GPU of its own".to_owned(),
        (_, true) => ", started one after the other".to_owned(),
        (_, false) => {
            let names: Vec<&str> = shared.models().map(|t| t.name.as_str()).collect();
            format!(", started in this order: {}", names.join(", "))
        }
    };
    let unfit = |fits: Option<bool>| shared.models().find(|t| t.fits == fits);
    let because = |tenant: &SharedTenant| {
        let reason = (tenant.reason.as_deref()).unwrap_or("what it needs is not known");
        format!(": `{}`: {reason}", tenant.name)
    };
    let state = match (shared.fits_as_asked, shared.fits) {
        (Some(true), _) => match shared.risk {
            Some(Risk::Low) => AnswerState::Safe,
            Some(Risk::High) => AnswerState::Critical,
            _ => AnswerState::Tight,
        },
        (_, Some(_)) => AnswerState::Failed,
        (_, None) => AnswerState::Unknown,
    };
    let (fit, unfit_word) = fit;
    let verdict = match (shared.fits_as_asked, shared.fits) {
        (Some(true), _) if state == AnswerState::Critical => format!(
            "{all} may not fit: at the upper end of its bands one of them runs out of memory{left}"
        ),
        (Some(true), _) => format!("{all} {fit} as asked for{in_turn}{left}"),
        (_, Some(true)) => format!(
            "{all} {unfit_word} as asked for, but {fit} with the settings below{in_turn}{left}"
        ),
        (_, Some(false)) => {
            let why = unfit(Some(false)).map_or(String::new(), because);
            format!("{all} {unfit_word}{why}")
        }
        (_, None) => {
            let least_known = shared.models().find(|t| t.takes_bytes.is_none());
            let why = least_known.or_else(|| unfit(None));
            let why = why.map_or(String::new(), because);
            format!("Unknown whether {} {fit}{why}{left}", all.to_lowercase())
        }
    };
    (state, verdict)
}

/// The table of them.
pub(super) fn shared_chapter(shared: &SharedGpus) -> Chapter {
    let several = shared.gpus.len() > 1;
    let mut rows = TableBuilder::of_items(&shared.tenants)
        .words("starts", "name", |t| &t.name)
        .figures("GiB", "gib", |t| {
            t.takes_bytes.map_or_else(unknown_cell, estimate_cell)
        });
    if several {
        rows = rows.words("GPUs", "gpus", |t| t.gpus.join(","));
    }
    let table = rows
        .words("holds", "holds", |t| {
            let both = t.concurrency.zip(t.max_model_len);
            both.map_or(String::new(), |(n, longest)| {
                let requests = counted_noun(n.max(0.0) as usize, "request");
                format!("{requests} of {} tokens", grouped_count(longest))
            })
        })
        .known_words("needs", "setting", |t| t.setting.as_deref())
        .grid_of_rows("shared", "");
    let mut blocks: Vec<ContentBlock> = table.map(ContentBlock::Table).into_iter().collect();
    if several {
        let left = |gpu: &SharedGpu| {
            let left = gpu.left_bytes.map(|b| Bytes(b).to_string());
            let left = left.unwrap_or_else(|| "an unknown amount".to_owned());
            format!("GPU {}: {left} of {}", gpu.gpu, Bytes(gpu.total_bytes))
        };
        let all: Vec<String> = shared.gpus.iter().map(left).collect();
        blocks.push(ContentBlock::Text(format!("Left: {}.", all.join("; "))));
    }
    let apart = shared.are_apart();
    if shared.models().count() > 1 && !apart {
        let text = "Start each when the one before it serves: an engine that starts measures what is free.";
        blocks.push(ContentBlock::Text(text.into()));
    }
    blocks.extend(shared.models().filter_map(|t| {
        let (setting, name) = (t.cache_setting.as_ref()?, &t.name);
        let text = format!("{setting} beside it fixes the cache of `{name}`.");
        Some(ContentBlock::Text(text))
    }));
    blocks.extend(shared.tenants.iter().filter_map(|t| {
        let text = format!("{}: {}", t.name, t.reason.as_ref()?);
        Some(note_block(Severity::Warning, "estimate", text))
    }));
    if shared.fits_as_asked == Some(false) && shared.fits == Some(true) {
        let text = "Each share is large enough with every part at its upper limit. By the estimate it holds more.";
        blocks.push(ContentBlock::Text(text.into()));
    }
    let title = if apart {
        "Each on a GPU of its own"
    } else {
        "On the same GPU"
    };
    Chapter::of_blocks("shared", title, blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_models_on_one_gpu_are_shown_as_on_the_same() {
        let on = |gpus: [&str; 2], as_asked| SharedGpus {
            tenants: gpus
                .map(|gpu| SharedTenant {
                    name: format!("on {gpu}"),
                    model: Some("m".into()),
                    gpus: vec![gpu.to_owned()],
                    takes_bytes: Some(1 << 30),
                    ..SharedTenant::default()
                })
                .to_vec(),
            fits_as_asked: Some(as_asked),
            fits: Some(true),
            any_order: true,
            ..SharedGpus::default()
        };
        let apart = on(["0", "1"], true);
        let chapter = shared_chapter(&apart);
        assert_eq!(chapter.title, "Each on a GPU of its own");
        assert!(!format!("{chapter:?}").contains("Start each when"));
        let (_, verdict) = verdict_of_sharing(&apart);
        assert!(verdict.contains("each on a GPU of its own"), "{verdict}");
        let same = on(["0", "0"], false);
        let chapter = shared_chapter(&same);
        assert_eq!(chapter.title, "On the same GPU");
        let text = format!("{chapter:?}");
        assert!(text.contains("Start each when") && text.contains("it holds more"));
    }
}
