//! The plan of a sweep: cells in groups, each group one start of the engine.

use super::cell::{Cell, CellId, CellLoad, GroupId, ServerConfig};
use super::oom::OomMemory;
use super::row::RowCause;
use crate::error::Failure;
use crate::estimate::question::{Answer, Verdict};
use crate::units::Bytes;
use serde::{Deserialize, Serialize};
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// A sweep as its file (or the flags in its place) means it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SweepDefinition {
    /// Its name: of the folder below the results directory.
    pub name: String,
    /// Every cell once, in the order of the file.
    pub cells: Vec<Cell>,
    /// Longest time for one cell, where the file sets it.
    pub timeout: Option<Duration>,
    /// Longest time for an engine to serve, where the file sets it.
    pub health_timeout: Option<Duration>,
}

/// Cells that are measured on one start of the engine.
#[derive(Debug, Clone, PartialEq)]
pub struct CellGroup {
    /// Follows from the server configuration.
    pub id: GroupId,
    /// The configuration.
    pub server: Arc<ServerConfig>,
    /// In the order in which they run: what takes less memory comes first, so that a lack of memory
    /// is found where it begins.
    pub cells: Vec<Cell>,
}

/// A cell that will not be run, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct SkippedCell {
    /// The cell.
    pub cell: Cell,
    /// Why.
    pub cause: RowCause,
    /// The same in a sentence.
    pub why: String,
    /// The container's limit by which memory ran out, bytes.
    pub limit_bytes: Option<u64>,
}

/// What will be run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SweepPlan {
    /// Name of the sweep.
    pub name: String,
    /// One process for each cell, instead of one engine for a group.
    pub fresh: bool,
    /// The part of the sweep that this is, where several machines share it.
    pub shard: Option<Shard>,
    /// In the order of the file.
    pub groups: Vec<CellGroup>,
    /// Not run.
    pub skipped: Vec<SkippedCell>,
    /// Whether the engine of a group fits on the GPUs that are here, where that was asked.
    pub verdicts: BTreeMap<GroupId, Verdict>,
}

/// What is asked of a plan beyond its sweep.
#[derive(Debug, Clone, Copy)]
pub struct PlanOptions<'a> {
    /// One process for each cell, instead of one engine for a group.
    pub fresh: bool,
    /// Only this part of the groups.
    pub shard: Option<Shard>,
    /// Only cells with ids that begin like this; empty: all.
    pub only: &'a [String],
    /// What ran out of memory in earlier runs.
    pub known_oom: &'a OomMemory,
    /// Run these again, and what takes more.
    pub retry_oom: bool,
}

impl SweepPlan {
    /// The plan of a sweep. A beginning of an id that matches no cell is refused.
    pub fn for_sweep(sweep: &SweepDefinition, options: &PlanOptions) -> Result<SweepPlan, Failure> {
        let only = checked_beginnings(&sweep.cells, options.only)?;
        let mut groups = grouped(&sweep.cells);
        // What is remembered of earlier runs, and what is asked for by its id, may differ from
        // machine to machine; the parts must not. So the groups are dealt out with all their cells.
        if let Some(shard) = options.shard {
            groups = shard.groups_of_part(groups);
        }
        for group in &mut groups {
            let wanted = |cell: &Cell| only.iter().any(|word| id_begins_with(cell, word));
            group.cells.retain(|cell| only.is_empty() || wanted(cell));
        }
        let mut skipped = Vec::new();
        for group in &mut groups {
            group.cells.sort_by(smaller_first);
            let (server, cells) = (&group.server, std::mem::take(&mut group.cells));
            let refused = |cell: &Cell| {
                server.refused_length(cell.load.input_len.into(), cell.load.output_len.into())
            };
            for cell in cells {
                match refused(&cell) {
                    None => group.cells.push(cell),
                    Some(why) => skipped.push(SkippedCell {
                        cell,
                        cause: RowCause::Refused,
                        why,
                        limit_bytes: None,
                    }),
                }
            }
            if options.retry_oom {
                continue;
            }
            let (run, known): (Vec<Cell>, Vec<Cell>) = std::mem::take(&mut group.cells)
                .into_iter()
                .partition(|cell| options.known_oom.record_covering(cell).is_none());
            group.cells = run;
            skipped.extend(known.into_iter().map(|cell| known_oom(cell, options)));
        }
        groups.retain(|group| !group.cells.is_empty());
        Ok(SweepPlan {
            name: sweep.name.clone(),
            fresh: options.fresh,
            shard: options.shard,
            groups,
            skipped,
            verdicts: BTreeMap::new(),
        })
    }

    /// Takes in whether groups fit. The cells of those that surely do not are skipped; unless
    /// `keep` names their group.
    pub fn apply_verdicts(
        &mut self,
        verdicts: BTreeMap<GroupId, Verdict>,
        keep: impl Fn(&GroupId) -> bool,
    ) {
        let refused = |group: &CellGroup| {
            let verdict = verdicts.get(&group.id)?;
            (verdict.answer == Answer::DoesNotFit && !keep(&group.id)).then(|| verdict.why.clone())
        };
        for group in &mut self.groups {
            let Some(why) = refused(group) else {
                continue;
            };
            let cells = std::mem::take(&mut group.cells).into_iter();
            self.skipped.extend(cells.map(|cell| SkippedCell {
                cell,
                cause: RowCause::DoesNotFit,
                why: format!("it does not fit: {why}"),
                limit_bytes: None,
            }));
        }
        self.groups.retain(|group| !group.cells.is_empty());
        self.verdicts = verdicts;
    }

    /// Every cell that will be run, in the order of the run.
    pub fn planned_cells(&self) -> impl Iterator<Item = &Cell> {
        self.groups.iter().flat_map(|group| &group.cells)
    }

    /// How often an engine is loaded.
    pub fn engine_starts(&self) -> usize {
        self.groups
            .iter()
            .map(|group| group.engine_starts(self.fresh))
            .sum()
    }
}

impl CellGroup {
    /// How often its engine is loaded: once for all cells that use a server, once for each that
    /// has a process of its own.
    pub fn engine_starts(&self, fresh: bool) -> usize {
        let alone = |cell: &&Cell| fresh || cell.load.bench.in_process();
        let processes = self.cells.iter().filter(alone).count();
        processes + usize::from(processes < self.cells.len())
    }
}

/// Beginnings of ids, in small letters. A word that no cell's id begins with is refused.
fn checked_beginnings(cells: &[Cell], words: &[String]) -> Result<Vec<String>, Failure> {
    let words: Vec<String> = words.iter().map(|w| w.to_ascii_lowercase()).collect();
    for word in &words {
        if !cells.iter().any(|cell| id_begins_with(cell, word)) {
            return Err(Failure::usage(format!(
                "no cell of this sweep has an id that begins with `{word}`"
            ))
            .hint("`--dry-run --json` lists every cell with its id"));
        }
    }
    Ok(words)
}

fn id_begins_with(cell: &Cell, word: &str) -> bool {
    !word.is_empty() && cell.id.0.starts_with(word)
}

/// Cells by their groups; both in the order in which they come.
fn grouped(cells: &[Cell]) -> Vec<CellGroup> {
    let mut groups: Vec<CellGroup> = Vec::new();
    let mut at: HashMap<&GroupId, usize> = HashMap::new();
    for cell in cells {
        let i = *at.entry(&cell.group).or_insert(groups.len());
        if i == groups.len() {
            groups.push(CellGroup {
                id: cell.group.clone(),
                server: cell.server.clone(),
                cells: Vec::new(),
            });
        }
        groups[i].cells.push(cell.clone());
    }
    groups
}

/// Whatever [`Load::at_least`] another comes after it.
fn smaller_first(a: &Cell, b: &Cell) -> Ordering {
    let size = |load: &CellLoad| {
        let batch = load.at_once();
        let (longest, output) = (f64::from(load.input_len), u64::from(load.output_len));
        // A mixture is between its short prompts and its long ones.
        let input = load.short_prompts.map_or(longest, |short| {
            longest - short.share * (longest - f64::from(short.input_len))
        });
        let whole = input.ceil() as u64;
        let tokens = batch.saturating_mul(whole + output);
        let requests = (load.num_prompts, load.num_iters);
        ((tokens, batch, whole, output), input, requests)
    };
    let (a, b) = (&a.load, &b.load);
    let rate = |load: &CellLoad| load.request_rate.unwrap_or(f64::NEG_INFINITY);
    (a.bench as u8)
        .cmp(&(b.bench as u8))
        .then_with(|| rate(a).total_cmp(&rate(b)))
        .then_with(|| {
            let ((a, exact, requests), (b, other, others)) = (size(a), size(b));
            (a.cmp(&b))
                .then(exact.total_cmp(&other))
                .then(requests.cmp(&others))
        })
}

fn known_oom(cell: Cell, options: &PlanOptions) -> SkippedCell {
    let known = options.known_oom.record_covering(&cell);
    let limit_bytes = known.and_then(|known| known.limit_bytes);
    let why = known.map_or(String::new(), |known| {
        let which = if known.cell == cell.id {
            "it".to_owned()
        } else {
            format!("`{}`, which takes no more,", known.load.describe_load())
        };
        let limit = limit_bytes.map_or(String::new(), |limit| {
            format!(" at a limit of {}", Bytes(limit))
        });
        let day = day(&known.when);
        format!("{which} ran out of memory on {day}{limit}; --retry-oom tries it again")
    });
    SkippedCell {
        cell,
        cause: RowCause::KnownOom,
        why,
        limit_bytes,
    }
}

/// The day of an RFC 3339 moment.
fn day(when: &str) -> &str {
    when.get(..10).unwrap_or(when)
}

/// One part of a sweep that several machines share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Shard {
    /// From 1.
    pub index: u32,
    /// In all.
    pub of: u32,
}

impl Shard {
    /// The groups of this part. Every machine deals them out alike, without a word to the others:
    /// the largest first, each to the part that has the fewest cells so far.
    fn groups_of_part(self, groups: Vec<CellGroup>) -> Vec<CellGroup> {
        let mut order: Vec<&CellGroup> = groups.iter().collect();
        order.sort_by_key(|group| (Reverse(group.cells.len()), &group.id));
        let mut loads = vec![0usize; self.of as usize];
        let mut own: HashSet<GroupId> = HashSet::new();
        for group in order {
            let least = (0..loads.len()).min_by_key(|i| loads[*i]).unwrap_or(0);
            if let Some(load) = loads.get_mut(least) {
                *load += group.cells.len();
            }
            if least + 1 == self.index as usize {
                own.insert(group.id.clone());
            }
        }
        groups
            .into_iter()
            .filter(|group| own.contains(&group.id))
            .collect()
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

impl From<Shard> for String {
    fn from(shard: Shard) -> String {
        shard.to_string()
    }
}

impl TryFrom<String> for Shard {
    type Error = String;

    fn try_from(text: String) -> Result<Shard, String> {
        text.parse()
    }
}

/// Parts are numbers that a person gives to machines; more than this is a slip of the finger.
const MAX_SHARDS: u32 = 100_000;

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let number = |part: &str| part.trim().parse::<u32>().ok();
        let (index, of) = text
            .split_once('/')
            .and_then(|(index, of)| Some((number(index)?, number(of)?)))
            .ok_or_else(|| {
                format!("`{text}` is no part of a sweep: write 2/4 for the second of four")
            })?;
        if index == 0 || index > of {
            return Err(format!(
                "part `{text}` does not exist: four parts are 1/4 to 4/4"
            ));
        }
        if of > MAX_SHARDS {
            return Err(format!(
                "`{text}` divides the sweep into more than {MAX_SHARDS} parts, the most: use fewer"
            ));
        }
        Ok(Shard { index, of })
    }
}

#[derive(Serialize)]
struct Resolved<'a> {
    name: &'a str,
    groups: Vec<ResolvedGroup<'a>>,
}

#[derive(Serialize)]
struct ResolvedGroup<'a> {
    id: &'a GroupId,
    #[serde(flatten)]
    server: &'a ServerConfig,
    cells: Vec<ResolvedCell<'a>>,
}

#[derive(Serialize)]
struct ResolvedCell<'a> {
    id: &'a CellId,
    #[serde(flatten)]
    load: &'a CellLoad,
}

/// The cells of a sweep as YAML, grouped as they share an engine. To be given cells without
/// secrets.
pub fn resolved_yaml(name: &str, cells: &[Cell]) -> Result<String, serde_yaml::Error> {
    let mut groups: Vec<ResolvedGroup<'_>> = Vec::new();
    for cell in cells {
        let resolved = ResolvedCell {
            id: &cell.id,
            load: &cell.load,
        };
        // Cells of a group stand together.
        match groups.last_mut().filter(|g| *g.id == cell.group) {
            Some(group) => group.cells.push(resolved),
            None => groups.push(ResolvedGroup {
                id: &cell.group,
                server: &cell.server,
                cells: vec![resolved],
            }),
        }
    }
    let yaml = serde_yaml::to_string(&Resolved { name, groups })?;
    Ok(format!(
        "# What `plimsoll sweep` ran, with every variable and default filled in. Not a sweep file.\n{yaml}"
    ))
}

#[cfg(test)]
mod tests;
