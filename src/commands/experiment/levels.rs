//! From the flags of an experiment to its levels: a name and a load for each.

use crate::capture::ShortPrompts;
use crate::cli::{ExperimentCommand, ExperimentFlags};
use crate::error::Failure;
use crate::experiment::{ExperimentKind, RequestedLoad};
use crate::matrix::{BenchWord, CellLoad};

/// Default requests of a level, for each in flight,
const ROUNDS: u32 = 4;
/// but no fewer than these: percentiles of less say little.
const FEWEST: u32 = 16;
/// More levels than this are a slip of the finger.
const MOST: usize = 256;

/// The levels of an experiment.
pub struct ExperimentLevels<'a> {
    /// What is varied.
    pub kind: ExperimentKind,
    /// What all kinds take.
    pub flags: &'a ExperimentFlags,
    /// Each level's name and load, every one once.
    pub levels: Vec<(String, RequestedLoad)>,
}

impl<'a> ExperimentLevels<'a> {
    /// Of the command line.
    ///
    /// # Errors
    /// What makes no levels.
    pub fn of_command(command: &'a ExperimentCommand) -> Result<ExperimentLevels<'a>, Failure> {
        let (kind, flags, levels) = match command {
            ExperimentCommand::Concurrency(args) => {
                let level = |n: u32| {
                    (
                        n.to_string(),
                        level_request(&args.flags, n, args.prompt_toks),
                    )
                };
                let levels = each_once(&args.levels).map(level).collect();
                (ExperimentKind::Concurrency, &args.flags, levels)
            }
            ExperimentCommand::Seqlen(args) => {
                let level = |n: u32| {
                    (
                        n.to_string(),
                        level_request(&args.flags, args.concurrency, n),
                    )
                };
                let levels = each_once(&args.seqlens).map(level).collect();
                (ExperimentKind::Seqlen, &args.flags, levels)
            }
            ExperimentCommand::Mixed(args) => {
                if args.short >= args.long {
                    return Err(Failure::usage(format!(
                        "short prompts of {} tokens are not shorter than long ones of {}",
                        args.short, args.long
                    ))
                    .hint("give --short and --long"));
                }
                let of = |tokens| level_request(&args.flags, args.concurrency, tokens);
                let mixed = RequestedLoad {
                    short_prompts: Some(ShortPrompts {
                        input_len: args.short,
                        share: args.ratio,
                    }),
                    ..of(args.long)
                };
                let levels: Vec<(String, RequestedLoad)> = vec![
                    ("short".into(), of(args.short)),
                    ("mixed".into(), mixed),
                    ("long".into(), of(args.long)),
                ];
                (ExperimentKind::Mixed, &args.flags, levels)
            }
        };
        if levels.len() > MOST {
            return Err(Failure::usage(format!(
                "the experiment has {} levels, and at most {MOST} are allowed",
                levels.len()
            ))
            .hint("name fewer values"));
        }
        if let Some((name, asked)) = levels.iter().find(|(_, a)| a.requests < a.concurrency) {
            return Err(Failure::usage(format!(
                "level {name} keeps {} requests at once, and there are {} of them",
                asked.concurrency, asked.requests
            ))
            .hint("give a larger --num-prompts, or none: it then follows from the level"));
        }
        Ok(ExperimentLevels {
            kind,
            flags,
            levels,
        })
    }

    /// A level's load, as a cell has it.
    pub fn cell_load(
        &self,
        asked: &RequestedLoad,
        bench: BenchWord,
        seed: Option<u64>,
    ) -> CellLoad {
        CellLoad {
            bench,
            input_len: asked.prompt_tokens,
            output_len: asked.output_tokens,
            batch_size: Some(asked.concurrency),
            num_prompts: Some(asked.requests),
            num_iters_warmup: self.flags.num_iters_warmup,
            repeats: asked.repeats,
            seed,
            short_prompts: asked.short_prompts,
            ..CellLoad::default()
        }
    }
}

fn level_request(flags: &ExperimentFlags, concurrency: u32, prompt_tokens: u32) -> RequestedLoad {
    let enough = concurrency.saturating_mul(ROUNDS).max(FEWEST);
    RequestedLoad {
        concurrency,
        prompt_tokens,
        short_prompts: None,
        output_tokens: flags.gen_toks,
        requests: flags.num_prompts.unwrap_or(enough),
        repeats: flags.repeats,
    }
}

/// Each number once, the lowest first.
fn each_once(numbers: &[u32]) -> impl Iterator<Item = u32> {
    let sorted: std::collections::BTreeSet<u32> = numbers.iter().copied().collect();
    sorted.into_iter()
}
