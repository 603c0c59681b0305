//! The KV pools of one rank: reads their lines, groups the parts of one pool, and separates the
//! draft model's.

use super::ranks::{ByRank, RankId, Shape};
use crate::engine::facts::{Fact, FactKey, FactValue, key, known_entries};
use crate::engine::log::Line;
use crate::engine::log::figures::{after, complete_count, gib_after, whole_after};
use crate::engine::log::sheet::Sheet;
use std::collections::BTreeMap;

/// Pools and lines of one that are kept: a draft model has some more, a log of nonsense has many.
const MOST: usize = 16;

/// One line about a pool that was allocated.
#[derive(Debug, Clone, Default)]
struct Part {
    /// `Full`, `SWA`; empty where it has none.
    label: String,
    tokens: Option<u64>,
    k: Option<f64>,
    v: Option<f64>,
    /// K and V together, where they are printed as one.
    size: Option<f64>,
    quote: String,
    at: Option<i64>,
}

impl Part {
    fn gib(&self) -> Option<f64> {
        self.size.or_else(|| Some(self.k? + self.v?))
    }

    fn fact(&self, value: FactValue) -> Fact {
        Fact::new(value, vec![self.quote.clone()], self.at)
    }
}

/// The pool of one model on one rank.
#[derive(Debug, Clone, Default)]
struct Pool {
    parts: Vec<Part>,
    /// The sum that a pool with sliding windows prints below its parts.
    swa_sum: Option<Part>,
    closed: bool,
}

/// A pool as it counts.
struct Counted {
    gib: Option<f64>,
    tokens: Option<u64>,
    parts: Vec<Part>,
    /// More than one part.
    hybrid: bool,
    quotes: Vec<String>,
    at: Option<i64>,
}

/// The pools of one rank, in the order of their allocation: the first is the model's.
#[derive(Debug, Clone, Default)]
pub struct Pools {
    pools: Vec<Pool>,
    /// The true figures of a pool that is sized after graph capture.
    late: Option<Part>,
    late_draft: Option<Part>,
}

fn part(label: &str, rest: &str, line: &Line<'_>, needle: &str) -> Part {
    Part {
        label: label.to_owned(),
        tokens: after(rest, "#tokens: ").and_then(complete_count),
        k: gib_after(rest, " K size: "),
        v: gib_after(rest, " V size: "),
        size: gib_after(rest, " KV size: "),
        quote: line.quote(needle),
        at: line.at,
    }
}

impl Pools {
    /// `{label} KV Cache is allocated. …`
    pub fn allocated(&mut self, label: &str, rest: &str, line: &Line<'_>) {
        let part = part(label, rest, line, "KV Cache is allocated");
        if part.gib().is_some() {
            let pool = self.open();
            if pool.parts.len() < MOST {
                pool.parts.push(part);
            }
        }
    }

    /// `SWAKVPool mem usage: {x} GB, swa size: {n}, full size: {m}`
    pub fn swa_sum(&mut self, rest: &str, line: &Line<'_>) {
        let size = gib_after(rest, "mem usage: ");
        if size.is_some() {
            self.open().swa_sum = Some(Part {
                size,
                quote: line.quote("SWAKVPool"),
                at: line.at,
                ..Part::default()
            });
        }
    }

    /// `Post-capture KV sizing: [draft ]KV cache allocated. …`
    pub fn sized_late(&mut self, draft: bool, rest: &str, line: &Line<'_>) {
        let part = part("", rest, line, "Post-capture");
        if part.gib().is_some() {
            let place = if draft {
                &mut self.late_draft
            } else {
                &mut self.late
            };
            *place = Some(part);
        }
    }

    /// The next lines belong to another pool.
    pub fn close(&mut self) {
        if let Some(last) = self.pools.last_mut() {
            last.closed = true;
        }
    }

    fn open(&mut self) -> &mut Pool {
        if self.pools.last().is_none_or(|p| p.closed) && self.pools.len() < MOST {
            self.pools.push(Pool::default());
        }
        let last = self.pools.len().saturating_sub(1);
        // There is one: the list was empty above, or is not.
        &mut self.pools[last]
    }

    /// The model's pool and those of draft models.
    fn counted(&self) -> (Option<Counted>, Vec<Counted>) {
        let mut target = None;
        let mut drafts = Vec::new();
        for (i, pool) in self.pools.iter().enumerate() {
            let (own, rest) = pool.split();
            let rest = rest.iter().map(|p| counted(std::slice::from_ref(p), None));
            if i == 0 {
                target = Some(counted(&own, pool.swa_sum.as_ref()));
            } else {
                drafts.push(counted(&own, pool.swa_sum.as_ref()));
            }
            drafts.extend(rest);
        }
        if let Some(late) = &self.late {
            target = Some(counted(std::slice::from_ref(late), None));
        }
        if let Some(late) = &self.late_draft {
            drafts = vec![counted(std::slice::from_ref(late), None)];
        }
        (target, drafts)
    }
}

impl Pool {
    /// Its own parts, and those that are a draft model's: a draft's pool has as many tokens as one
    /// before it, further pools of the model have other lengths.
    fn split(&self) -> (Vec<Part>, Vec<Part>) {
        if self.swa_sum.is_some() {
            return (self.parts.clone(), Vec::new());
        }
        let mut own: Vec<Part> = Vec::new();
        let mut drafts = Vec::new();
        for part in &self.parts {
            let repeats = own
                .iter()
                .any(|p| p.tokens == part.tokens && p.label == part.label);
            let place = if repeats { &mut drafts } else { &mut own };
            place.push(part.clone());
        }
        (own, drafts)
    }
}

fn counted(parts: &[Part], sum: Option<&Part>) -> Counted {
    let all: Option<f64> = parts.iter().map(Part::gib).sum();
    let witnesses = sum.map_or_else(|| parts.to_vec(), |s| vec![s.clone()]);
    let hybrid = parts.len() > 1 || sum.is_some();
    Counted {
        gib: sum
            .and_then(Part::gib)
            .or(all.filter(|_| !parts.is_empty())),
        tokens: match parts {
            [only] if !hybrid => only.tokens,
            _ => None,
        },
        parts: parts.to_vec(),
        hybrid,
        quotes: witnesses.iter().map(|p| p.quote.clone()).collect(),
        at: witnesses.iter().filter_map(|p| p.at).max(),
    }
}

/// `swa size: {n}, full size: {m}`, `full_layer_tokens={m}, swa_layer_tokens={n}`: full, then swa.
/// The second number may end its line.
pub fn windows(rest: &str) -> Option<(u64, u64)> {
    let count = |needle: &str| whole_after(rest, needle);
    let full = count("full size: ").or_else(|| count("full_layer_tokens="));
    let swa = count("swa size: ").or_else(|| count("swa_layer_tokens="));
    full.zip(swa)
}

/// Writes the facts on the pools of all ranks.
pub fn conclude(
    ranks: &BTreeMap<RankId, Pools>,
    windows: Option<(u64, u64)>,
    shape: Shape,
    sheet: &mut Sheet,
) {
    let mut by_key: BTreeMap<FactKey, ByRank> = BTreeMap::new();
    let mut least: BTreeMap<FactKey, (u64, Fact)> = BTreeMap::new();
    let mut rows: Option<Fact> = None;
    for (rank, pools) in ranks {
        let (target, drafts) = pools.counted();
        let mut put = |key, value: f64, c: &Counted| {
            let more = Fact::new(FactValue::Float(value), c.quotes.clone(), c.at);
            super::graphs::add(by_key.entry(key).or_default(), rank, &more);
        };
        let mut fewest = |key, c: &Counted| {
            if let (Some(tokens), Some(part)) = (c.tokens, c.parts.first()) {
                if least.get(&key).is_none_or(|(n, _)| tokens < *n) {
                    if let Some(value) = FactValue::count(tokens) {
                        least.insert(key, (tokens, part.fact(value)));
                    }
                }
            }
        };
        for draft in &drafts {
            if let Some(gib) = draft.gib {
                put(key::draft_kv_cache_gib, gib, draft);
            }
            fewest(key::draft_kv_cache_tokens, draft);
        }
        let Some(target) = target else { continue };
        if let Some(gib) = target.gib {
            put(key::kv_cache_gib, gib, &target);
        }
        fewest(key::kv_cache_tokens, &target);
        if target.hybrid {
            rows.get_or_insert_with(|| table(&target, windows));
        } else if let [only] = target.parts.as_slice() {
            for (key, value) in [(key::kv_k_gib, only.k), (key::kv_v_gib, only.v)] {
                if let Some(value) = value {
                    put(key, value, &target);
                }
            }
        }
    }
    for (key, figures) in &by_key {
        shape.write_figures(sheet, *key, figures, false);
    }
    for (key, (_, fact)) in least {
        sheet.conclude(key, fact);
    }
    if let Some(fact) = rows.filter(|f| f.value != FactValue::Rows(Vec::new())) {
        sheet.conclude(key::kv_pools, fact);
    }
}

fn table(pool: &Counted, windows: Option<(u64, u64)>) -> Fact {
    let row = |p: &Part| {
        // The length identifies the part, not the position.
        let by_length = windows.and_then(|(full, swa)| match p.tokens? {
            t if t == full && t != swa => Some("full"),
            t if t == swa && t != full => Some("swa"),
            _ => None,
        });
        let label = Some(p.label.to_ascii_lowercase()).filter(|l| !l.is_empty());
        let name = label.or(by_length.map(str::to_owned));
        known_entries([
            ("tokens", p.tokens.and_then(FactValue::count)),
            ("k", p.k.map(FactValue::Float)),
            ("v", p.v.map(FactValue::Float)),
            ("size", p.size.map(FactValue::Float)),
            ("pool", name.map(FactValue::Text)),
        ])
    };
    let quotes = pool.parts.iter().map(|p| p.quote.clone()).collect();
    let rows = FactValue::Rows(pool.parts.iter().map(row).collect());
    Fact::new(rows, quotes, pool.at)
}
