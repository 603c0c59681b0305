//! The KV pools. A manager announces the blocks of its windows, the size of a block, and finally
//! what it allocated. The PyTorch backend makes a small pool to profile with and then the final
//! one; a draft model has its own manager; every rank prints the same, without its number.

use super::whole;
use crate::engine::facts::{EngineStep, Fact, FactKey, FactValue, Severity, key, known_entries};
use crate::engine::log::Line;
use crate::engine::log::figures::{after, gib, number};
use crate::engine::log::sheet::Sheet;
use crate::units::GIB;
use std::collections::{BTreeMap, BTreeSet};

/// Pools and announcements kept.
const MOST: usize = 1024;

/// The blocks of one window.
struct Announced {
    rank: Option<u64>,
    window: Option<u64>,
    /// Whether windows after this one may follow: it is shorter than the longest sequence.
    short: bool,
    blocks: u64,
    quote: String,
}

/// What a manager allocated.
struct Pool {
    rank: Option<u64>,
    draft: bool,
    gib: Option<f64>,
    tokens: Option<u64>,
    blocks: Option<(u64, String)>,
    quote: Vec<String>,
    at: Option<i64>,
}

/// The pools of a start.
#[derive(Default)]
pub struct Pools {
    announced: Vec<Announced>,
    block_size: Option<u64>,
    /// Pools since the profile, or all without a profile.
    current: Vec<Pool>,
    /// Pools made for the profile.
    estimation: Vec<Pool>,
    estimating: bool,
    finished: bool,
    /// The lines that ended this profile, by rank, and the number of times each was printed.
    ended: BTreeMap<(Option<u64>, &'static str), u64>,
    /// Whether the next lines are the draft model's.
    draft: bool,
}

impl Pools {
    /// The line `end` ended the profile on a rank, one of `ranks`. Returns whether it is the first
    /// rank to print it. Pools up to then were for the profile. A rank that prints it later may
    /// follow other ranks' final pools.
    pub fn estimated(&mut self, end: &'static str, rank: Option<u64>, ranks: u64) -> bool {
        // Each rank prints each line once. Ranks without a number are distinguished by the line's
        // count.
        let most = rank.map_or(ranks.max(1), |_| 1);
        let times = self.ended.get(&(rank, end)).copied().unwrap_or(0);
        let first = self.ended.is_empty() || times >= most || self.ended.len() >= MOST;
        if first {
            self.ended.clear();
            self.estimation.append(&mut self.current);
            self.announced.clear();
            self.draft = false;
        } else {
            self.late(rank, ranks);
        }
        *self.ended.entry((rank, end)).or_default() += 1;
        self.estimation.truncate(MOST);
        (self.estimating, self.finished) = (false, true);
        first
    }

    /// Another rank's profile ended earlier: moves the pools that were for this rank's profile.
    fn late(&mut self, rank: Option<u64>, ranks: u64) {
        let known: BTreeSet<(Option<u64>, bool)> =
            self.estimation.iter().map(|e| (e.rank, e.draft)).collect();
        for pool in std::mem::take(&mut self.current) {
            let for_profile = match pool.rank {
                Some(_) => pool.rank == rank && !known.contains(&(rank, pool.draft)),
                // It is as large as another rank's, and not every rank's is known yet.
                None => {
                    let same = || self.estimation.iter().filter(|e| e.draft == pool.draft);
                    (same().count() as u64) < ranks
                        && pool.tokens.is_some()
                        && same().any(|e| e.tokens >= pool.tokens)
                }
            };
            if for_profile {
                self.estimation.push(pool)
            } else {
                self.current.push(pool)
            }
        }
    }

    /// The next lines are the draft model's.
    pub fn begin_draft(&mut self) {
        self.draft = true;
    }

    /// `{8194: (352, 0), 512: (40, 0)} for estimation dry run`
    pub fn sized(&mut self, line: &Line<'_>, rest: &str, sheet: &mut Sheet) {
        if rest.contains("for estimation dry run") {
            self.estimating = true;
            self.estimation.append(&mut self.current);
            if let (true, Some(blocks)) = (self.draft, primary_blocks(rest)) {
                sheet.count(key::draft_kv_blocks_estimation, blocks, line, "Primary/");
            }
        }
    }

    fn announce(
        &mut self,
        line: &Line<'_>,
        rank: Option<u64>,
        blocks: u64,
        [window, longest]: [Option<u64>; 2],
    ) {
        // New announcements replace unused ones.
        if self.announced.len() >= MOST {
            self.announced.clear();
        }
        self.announced.push(Announced {
            rank,
            window,
            short: window.zip(longest).is_some_and(|(w, l)| w < l),
            blocks,
            quote: line.quote("locks"),
        });
    }

    /// The blocks of one window.
    pub fn blocks_by_window(
        &mut self,
        line: &Line<'_>,
        rest: &str,
        rank: Option<u64>,
        sheet: &mut Sheet,
    ) {
        let part = |name: &str| after(rest, name).and_then(whole);
        if let Some(blocks) = part("primary blocks=") {
            let lengths = [part("[window size="), part("max sequence length=")];
            self.announce(line, rank, blocks, lengths);
        }
        if let Some(blocks) = part("secondary blocks=") {
            sheet.count(key::num_cpu_blocks, blocks, line, "secondary blocks=");
        }
        if let Some(size) = after(rest, "tokens per block=") {
            self.block_size(line, size, sheet);
        }
    }

    /// The blocks of a pool without windows.
    pub fn primary_pool(&mut self, line: &Line<'_>, rest: &str, rank: Option<u64>) {
        if let Some(blocks) = whole(rest) {
            self.announce(line, rank, blocks, [None, None]);
        }
    }

    /// Tokens in each block.
    pub fn block_size(&mut self, line: &Line<'_>, rest: &str, sheet: &mut Sheet) {
        if let Some(size) = whole(rest) {
            self.block_size = Some(size);
            sheet.count(key::block_size, size, line, "okens per block");
        }
    }

    /// `1.50 GiB for max tokens in paged KV cache (4096).`
    pub fn paged(&mut self, line: &Line<'_>, rest: &str, rank: Option<u64>, sheet: &mut Sheet) {
        let sign = " for max tokens in paged KV cache (";
        let amount = gib(rest).and_then(|(size, rest)| Some((size, rest.strip_prefix(sign)?)));
        if let Some((size, tokens)) = amount {
            let tokens = whole(tokens).filter(|_| tokens.contains(')'));
            let blocks = self.blocks_of(tokens, rank);
            self.add(rank, Some(size), tokens, blocks, line, sign);
            // The pool takes the rest of the device, last of all.
            if sheet.passed(EngineStep::Profiled) {
                sheet.step(EngineStep::KvCacheAllocated, line, sign);
                sheet.enough_memory(line, sign);
            }
        }
    }

    /// Until 0.9 bytes and tokens are on separate lines.
    pub fn bytes(&mut self, line: &Line<'_>, rest: &str, rank: Option<u64>) {
        if let Some((bytes, _)) = number(rest).filter(|(n, _)| n.whole && n.value >= 0.0) {
            let size = bytes.value / GIB;
            self.add(rank, Some(size), None, None, line, "Allocate ");
        }
    }

    /// The tokens of the pool.
    pub fn tokens(&mut self, line: &Line<'_>, rest: &str, rank: Option<u64>, sheet: &mut Sheet) {
        let Some(tokens) = whole(rest) else { return };
        match self.current.iter_mut().find(|p| p.tokens.is_none()) {
            Some(pool) => {
                pool.tokens = Some(tokens);
                pool.quote.push(line.quote("Using "));
            }
            None => self.add(rank, None, Some(tokens), None, line, "Using "),
        }
        sheet.step(EngineStep::KvCacheAllocated, line, "Using ");
        sheet.enough_memory(line, "Using ");
    }

    fn add(
        &mut self,
        rank: Option<u64>,
        gib: Option<f64>,
        tokens: Option<u64>,
        blocks: Option<(u64, String)>,
        line: &Line<'_>,
        needle: &str,
    ) {
        let pool = Pool {
            rank,
            draft: self.draft,
            gib,
            tokens,
            blocks,
            quote: vec![line.quote(needle)],
            at: line.at,
        };
        let pools = if self.estimating {
            &mut self.estimation
        } else {
            &mut self.current
        };
        if pools.len() >= MOST {
            pools.remove(0);
        }
        pools.push(pool);
    }

    /// The blocks that make `tokens`: of all windows announced, of one of each, or of one. They
    /// are announced no more.
    fn blocks_of(&mut self, tokens: Option<u64>, rank: Option<u64>) -> Option<(u64, String)> {
        let (tokens, size) = (tokens?, self.block_size?);
        let mut all: Vec<usize> = (0..self.announced.len())
            .filter(|i| self.announced[*i].rank == rank)
            .collect();
        // Ranks print through each other: one announcement of each window is a manager's.
        let mut windows = BTreeSet::new();
        let distinct: Vec<usize> = all
            .iter()
            .copied()
            .filter(|i| windows.insert(self.announced[*i].window))
            .collect();
        let makes = |of: &[usize]| {
            let blocks = of
                .iter()
                .map(|i| self.announced[*i].blocks)
                .fold(0, u64::saturating_add);
            (blocks.checked_mul(size) == Some(tokens)).then_some(blocks)
        };
        let fitting = makes(&all)
            .map(|blocks| (blocks, std::mem::take(&mut all)))
            .or_else(|| Some((makes(&distinct)?, distinct)))
            .or_else(|| all.iter().find_map(|i| Some((makes(&[*i])?, vec![*i]))));
        let (blocks, used) = fitting?;
        let quote = used.first().map(|i| self.announced[*i].quote.clone());
        let mut at = 0;
        self.announced.retain(|_| {
            at += 1;
            !used.contains(&(at - 1))
        });
        Some((blocks, quote.unwrap_or_default()))
    }

    /// Writes the facts.
    pub fn conclude(&self, ranks: u64, sheet: &mut Sheet) {
        let (target, draft) = self.chosen(ranks);
        write(
            &target,
            [key::kv_cache_gib, key::kv_cache_tokens, key::num_gpu_blocks],
            sheet,
        );
        if let Some(draft) = draft {
            let keys = [
                key::draft_kv_cache_gib,
                key::draft_kv_cache_tokens,
                key::draft_num_gpu_blocks,
            ];
            write(&[draft], keys, sheet);
        }
        if target.is_empty() && !self.estimating {
            self.announced_blocks(sheet);
        }
        self.doubt(&target, sheet);
        if let Some(pool) = self.estimation.iter().rev().find(|p| !p.draft) {
            let blocks = pool.blocks.as_ref();
            let blocks = blocks.and_then(|(blocks, _)| FactValue::count(*blocks));
            let record = known_entries([
                ("kv_cache_gib", pool.gib.map(FactValue::Float)),
                ("kv_cache_tokens", pool.tokens.and_then(FactValue::count)),
                ("num_gpu_blocks", blocks),
            ]);
            let fact = Fact::new(FactValue::Record(record), pool.quote.clone(), pool.at);
            sheet.conclude(key::estimation_pool, fact);
        }
    }

    /// The pools that stay, one for each rank that printed one, and the draft model's.
    fn chosen(&self, ranks: u64) -> (Vec<&Pool>, Option<&Pool>) {
        let (drafts, mut pools): (Vec<&Pool>, Vec<&Pool>) =
            self.current.iter().partition(|p| p.draft);
        let mut draft = drafts.last().copied();
        if pools.iter().all(|p| p.rank.is_some()) {
            let last: BTreeMap<Option<u64>, &Pool> = pools.iter().map(|p| (p.rank, *p)).collect();
            return (last.into_values().collect(), draft);
        }
        if ranks > 1 {
            let keep = pools.len().min(ranks as usize);
            return (pools.split_off(pools.len() - keep), draft);
        }
        // After the profile, a second manager with other bytes per token is not a retry.
        if let (true, [first, second]) = (self.finished, pools.as_slice()) {
            if per_token(first)
                .zip(per_token(second))
                .is_some_and(|(a, b)| b < a * 0.9)
            {
                draft = draft.or(Some(*second));
                return (vec![*first], draft);
            }
        }
        (pools.split_off(pools.len().saturating_sub(1)), draft)
    }

    /// The PyTorch backend's first pool may be the one to profile with: only the profile's end or
    /// a server that serves shows which it was.
    fn doubt(&self, target: &[&Pool], sheet: &mut Sheet) {
        // Of these lines the TensorRT backend, which makes one pool, prints none.
        let python = [
            key::backend,
            key::weights_gib,
            key::max_num_requests,
            key::cuda_graph_batch_sizes_configured,
        ];
        if self.finished || sheet.ready() || python.iter().all(|key| sheet.get(*key).is_none()) {
            return;
        }
        let announced = self.announced.last().map(|a| &a.quote);
        let shown = match target.first() {
            Some(pool) => pool.quote.first(),
            None => announced.filter(|_| sheet.get(key::num_gpu_blocks).is_some()),
        };
        if let Some(text) = shown {
            let line = Line {
                text,
                ..Line::default()
            };
            sheet.finding(
                "kv_cache_may_be_estimation",
                Severity::Warning,
                "the log ends before the memory profile does: the KV pool may be the small one that is made to profile with",
                &line,
                "",
            );
        }
    }

    /// Announced blocks, where a log ends before their allocation.
    fn announced_blocks(&self, sheet: &mut Sheet) {
        let Some(last) = self.announced.last().filter(|a| !a.short) else {
            return;
        };
        let mut windows = BTreeSet::new();
        let blocks = self
            .announced
            .iter()
            .rev()
            .filter(|a| a.rank == last.rank && windows.insert(a.window))
            .fold(0, |sum: u64, a| sum.saturating_add(a.blocks));
        if let Some(value) = FactValue::count(blocks).filter(|_| !self.draft) {
            let fact = Fact::new(value, vec![last.quote.clone()], None);
            sheet.conclude(key::num_gpu_blocks, fact);
        }
    }
}

fn per_token(pool: &Pool) -> Option<f64> {
    let tokens = pool.tokens.filter(|t| *t > 0)?;
    Some(pool.gib? / tokens as f64)
}

/// One figure as itself, one of each rank as a list.
fn write(pools: &[&Pool], [gib, tokens, blocks]: [FactKey; 3], sheet: &mut Sheet) {
    let at_ns = pools.first().and_then(|p| p.at);
    let mut put = |key: FactKey, of: &dyn Fn(&Pool) -> Option<Fact>| {
        let facts: Vec<Fact> = pools.iter().filter_map(|pool| of(pool)).collect();
        if let Some(fact) = Fact::of_ranks(&facts) {
            sheet.conclude(key, fact);
        }
    };
    put(gib, &|p| {
        let value = FactValue::Float(p.gib?);
        Some(Fact::new(value, p.quote.clone(), at_ns))
    });
    put(tokens, &|p| {
        let value = FactValue::count(p.tokens?)?;
        Some(Fact::new(value, p.quote.clone(), at_ns))
    });
    put(blocks, &|p| {
        let (blocks, quote) = p.blocks.as_ref()?;
        let value = FactValue::count(*blocks)?;
        Some(Fact::new(value, vec![quote.clone()], at_ns))
    });
}

/// `{8194: (352, 0), 512: (40, 0)} …` → 392.
fn primary_blocks(text: &str) -> Option<u64> {
    let (inside, _) = text.strip_prefix('{')?.split_once('}')?;
    let mut blocks: Option<u64> = None;
    for part in inside.split('(').skip(1) {
        blocks = Some(blocks.unwrap_or(0).saturating_add(whole(part)?));
    }
    blocks
}

#[cfg(test)]
#[path = "pools_tests.rs"]
mod tests;
