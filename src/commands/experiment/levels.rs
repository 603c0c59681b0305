//! From the flags of an experiment to its levels: a name and a load for each.

use crate::capture::ShortPrompts;
use crate::cli::{ExperimentCommand, ExperimentFlags};
use crate::error::Failure;
use crate::experiment::{Asked, Kind};
use crate::matrix::{BenchWord, Load};

/// Default requests of a level, for each in flight,
const ROUNDS: u32 = 4;
/// but no fewer than these: percentiles of less say little.
const FEWEST: u32 = 16;
/// More levels than this are a slip of the finger.
const MOST: usize = 256;

/// The levels of an experiment.
pub struct Levels<'a> {
    /// What is varied.
    pub kind: Kind,
    /// What all kinds take.
    pub flags: &'a ExperimentFlags,
    /// Each level's name and load, every one once.
    pub levels: Vec<(String, Asked)>,
}

impl<'a> Levels<'a> {
    /// Of the command line.
    ///
    /// # Errors
    /// What makes no levels.
    pub fn of(command: &'a ExperimentCommand) -> Result<Levels<'a>, Failure> {
        let (kind, flags, levels) = match command {
            ExperimentCommand::Concurrency(args) => {
                let level = |n: u32| (n.to_string(), asked(&args.flags, n, args.prompt_toks));
                let levels = once(&args.levels).map(level).collect();
                (Kind::Concurrency, &args.flags, levels)
            }
            ExperimentCommand::Seqlen(args) => {
                let level = |n: u32| (n.to_string(), asked(&args.flags, args.concurrency, n));
                let levels = once(&args.seqlens).map(level).collect();
                (Kind::Seqlen, &args.flags, levels)
            }
            ExperimentCommand::Mixed(args) => {
                if args.short >= args.long {
                    return Err(Failure::usage(format!(
                        "short prompts of {} tokens are not shorter than long ones of {}",
                        args.short, args.long
                    ))
                    .hint("give --short and --long"));
                }
                let of = |tokens| asked(&args.flags, args.concurrency, tokens);
                let mixed = Asked {
                    short_prompts: Some(ShortPrompts {
                        input_len: args.short,
                        share: args.ratio,
                    }),
                    ..of(args.long)
                };
                let levels: Vec<(String, Asked)> = vec![
                    ("short".into(), of(args.short)),
                    ("mixed".into(), mixed),
                    ("long".into(), of(args.long)),
                ];
                (Kind::Mixed, &args.flags, levels)
            }
        };
        if levels.len() > MOST {
            return Err(Failure::usage(format!(
                "{} levels are more than an experiment may have, {MOST}",
                levels.len()
            )));
        }
        if let Some((name, asked)) = levels.iter().find(|(_, a)| a.requests < a.concurrency) {
            return Err(Failure::usage(format!(
                "level {name} keeps {} requests at once, and there are {} of them",
                asked.concurrency, asked.requests
            ))
            .hint("a larger --num-prompts, or none: it follows from the level"));
        }
        Ok(Levels {
            kind,
            flags,
            levels,
        })
    }

    /// A level's load, as a cell has it.
    pub fn load(&self, asked: &Asked, bench: BenchWord, seed: Option<u64>) -> Load {
        Load {
            bench,
            input_len: asked.prompt_tokens,
            output_len: asked.output_tokens,
            batch_size: Some(asked.concurrency),
            request_rate: None,
            num_prompts: Some(asked.requests),
            num_iters: None,
            num_iters_warmup: self.flags.num_iters_warmup,
            repeats: asked.repeats,
            seed,
            short_prompts: asked.short_prompts,
        }
    }
}

fn asked(flags: &ExperimentFlags, concurrency: u32, prompt_tokens: u32) -> Asked {
    let enough = concurrency.saturating_mul(ROUNDS).max(FEWEST);
    Asked {
        concurrency,
        prompt_tokens,
        short_prompts: None,
        output_tokens: flags.gen_toks,
        requests: flags.num_prompts.unwrap_or(enough),
        repeats: flags.repeats,
    }
}

/// Each number once, the lowest first.
fn once(numbers: &[u32]) -> impl Iterator<Item = u32> {
    let sorted: std::collections::BTreeSet<u32> = numbers.iter().copied().collect();
    sorted.into_iter()
}
