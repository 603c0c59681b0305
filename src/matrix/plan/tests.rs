//! Tests of the plan: what comes first, what is left out, and who does what.

use super::super::samples::{cell, load, record, server, sweep};
use super::*;
use crate::capture::ShortPrompts;
use crate::matrix::{BenchWord, CellId};
use proptest::prelude::*;

fn options(known_oom: &OomMemory) -> PlanOptions<'_> {
    PlanOptions {
        fresh: false,
        shard: None,
        only: &[],
        known_oom,
        retry_oom: false,
    }
}

fn planned(cells: Vec<Cell>) -> SweepPlan {
    SweepPlan::for_sweep(&sweep(cells), &options(&OomMemory::default())).unwrap()
}

#[test]
fn groups_stand_as_in_the_file_and_small_cells_come_first() {
    let plan = planned(vec![
        cell("b", 512, 128, 8),
        cell("a", 128, 128, 1),
        cell("b", 128, 128, 8),
        cell("b", 128, 128, 1),
    ]);
    let models: Vec<&str> = plan
        .groups
        .iter()
        .map(|g| g.server.model.as_str())
        .collect();
    assert_eq!(models, ["b", "a"]);
    let words: Vec<String> = plan.groups[0]
        .cells
        .iter()
        .map(Cell::describe_load)
        .collect();
    assert_eq!(
        words,
        [
            "in 128 out 128 batch 1 bench serve",
            "in 128 out 128 batch 8 bench serve",
            "in 512 out 128 batch 8 bench serve"
        ]
    );
    assert_eq!(plan.engine_starts(), 2);
}

#[test]
fn a_process_for_each_cell_is_a_start_for_each() {
    let mut latency = load(128, 128, 1);
    latency.bench = BenchWord::Latency;
    let cells = vec![
        cell("a", 128, 128, 1),
        cell("a", 128, 128, 2),
        Cell::new(server("a"), latency),
    ];
    let mut plan = planned(cells);
    assert_eq!(plan.engine_starts(), 2, "one server, one process");
    plan.fresh = true;
    assert_eq!(plan.engine_starts(), 3);
}

#[test]
fn what_ran_out_of_memory_before_is_skipped_with_its_reason() {
    let (small, large) = (cell("a", 128, 128, 1), cell("a", 128, 128, 64));
    let larger = cell("a", 256, 128, 64);
    let sweep = sweep(vec![small.clone(), large.clone(), larger.clone()]);
    let mut ooms = OomMemory::default();
    ooms.add_record(record(&large));
    let plan = SweepPlan::for_sweep(&sweep, &options(&ooms)).unwrap();
    assert_eq!(plan.planned_cells().collect::<Vec<_>>(), [&small]);
    let why: Vec<&str> = plan.skipped.iter().map(|s| s.why.as_str()).collect();
    assert_eq!(
        why,
        [
            "it ran out of memory on 2026-11-20; --retry-oom tries it again",
            "`in 128 out 128 batch 64 bench serve`, which takes no more, ran out of memory on 2026-11-20; --retry-oom tries it again"
        ]
    );
    assert!(plan.skipped.iter().all(|s| s.cause == RowCause::KnownOom));
    let again = PlanOptions {
        retry_oom: true,
        ..options(&ooms)
    };
    assert_eq!(
        SweepPlan::for_sweep(&sweep, &again)
            .unwrap()
            .planned_cells()
            .count(),
        3
    );
}

#[test]
fn single_cells_are_asked_for_by_the_beginning_of_their_id() {
    let (a, b) = (cell("a", 128, 128, 1), cell("b", 128, 128, 1));
    let sweep = sweep(vec![a.clone(), b]);
    let ooms = OomMemory::default();
    let with = |words: &[&str]| {
        let only: Vec<String> = words.iter().map(|w| w.to_string()).collect();
        SweepPlan::for_sweep(
            &sweep,
            &PlanOptions {
                only: &only,
                ..options(&ooms)
            },
        )
    };
    let plan = with(&[&a.id.0[..6].to_uppercase()]).unwrap();
    assert_eq!(plan.planned_cells().collect::<Vec<_>>(), [&a]);
    for none in ["xyz", ""] {
        let e = with(&[&a.id.0, none]).unwrap_err();
        assert!(e.message.contains(&format!("`{none}`")), "{e}");
    }
}

#[test]
fn parts_are_read_as_people_write_them() {
    assert_eq!("2/4".parse(), Ok(Shard { index: 2, of: 4 }));
    for (text, word) in [
        ("2", "second of four"),
        ("a/4", "second of four"),
        ("-1/4", "second of four"),
        ("0/4", "does not exist"),
        ("5/4", "does not exist"),
        ("1/999999999", "more than"),
    ] {
        let e = text.parse::<Shard>().unwrap_err();
        assert!(e.contains(word) && e.contains(text), "{e}");
    }
}

prop_compose! {
    fn any_cell()(
        model in 0..6u8, load in any_load(),
    ) -> Cell {
        Cell::new(server(&format!("m{model}")), load)
    }
}

/// The short prompts of a mixture, perhaps: their length and their share, in quarters.
fn any_short() -> impl Strategy<Value = Option<(u32, u8)>> {
    prop::option::weighted(0.4, (1..4u32, 1..4u8))
}

/// Short prompts that are no longer than the long ones.
fn shorter(short: Option<(u32, u8)>, input: u32) -> Option<ShortPrompts> {
    short.map(|(len, quarters)| ShortPrompts {
        input_len: len.min(input),
        share: f64::from(quarters) / 4.0,
    })
}

prop_compose! {
    fn any_load()(
        input in 1..5u32, output in 1..5u32, batch in prop::option::of(1..5u32),
        rate in prop::option::of(1..3u8), bench in 0..3usize,
        num_prompts in prop::option::of(1..4u32), num_iters in prop::option::of(1..4u32),
        short in any_short(),
    ) -> CellLoad {
        CellLoad {
            short_prompts: shorter(short, input),
            bench: BenchWord::ALL[bench].1,
            batch_size: batch,
            request_rate: rate.map(f64::from),
            num_prompts,
            num_iters,
            ..load(input, output, 1)
        }
    }
}

/// A load, and two that are near it: any three are hardly ever comparable.
fn related_loads() -> impl Strategy<Value = [CellLoad; 3]> {
    let small = || prop::option::of(1..3u32);
    let one = (
        0..3usize,
        1..3u32,
        1..3u32,
        small(),
        small(),
        small(),
        any_short(),
    );
    let rate = prop::option::of(Just(2.0));
    (prop::array::uniform3(one), prop::bool::ANY, rate).prop_map(|(three, alike, rate)| {
        let bench = three[0].0;
        three.map(
            |(own, input, output, batch_size, num_prompts, num_iters, short)| CellLoad {
                short_prompts: shorter(short, input),
                bench: BenchWord::ALL[if alike { bench } else { own }].1,
                batch_size,
                request_rate: rate,
                num_prompts,
                num_iters,
                ..load(input, output, 1)
            },
        )
    })
}

#[test]
fn more_than_fits_implies_nothing_of_less() {
    let with = |bench, batch_size, num_prompts| CellLoad {
        bench,
        batch_size,
        num_prompts,
        ..load(128, 128, 1)
    };
    let (serve, all) = (BenchWord::Serve, BenchWord::Throughput);
    for (ran_out, other, covered) in [
        (with(serve, None, None), with(serve, Some(4), None), false),
        (with(serve, Some(4), None), with(serve, None, None), true),
        (
            with(all, None, Some(1000)),
            with(all, None, Some(10)),
            false,
        ),
        (with(all, None, Some(10)), with(all, None, Some(1000)), true),
        (with(all, None, Some(10)), with(all, None, None), false),
        (
            with(serve, Some(8), Some(100)),
            with(serve, Some(8), Some(2)),
            false,
        ),
    ] {
        assert_eq!(other.at_least(&ran_out), covered, "{ran_out:?} {other:?}");
    }
}

#[test]
fn cells_asked_for_by_id_stay_with_their_machine() {
    let mut cells: Vec<Cell> = (1..=6).map(|batch| cell("a", 128, 128, batch)).collect();
    cells.extend(["b", "c", "d"].map(|model| cell(model, 128, 128, 1)));
    let sweep = sweep(cells.clone());
    let ooms = OomMemory::default();
    let part = |index, only: &[String]| {
        let shard = Some(Shard { index, of: 2 });
        let options = PlanOptions {
            shard,
            only,
            ..options(&ooms)
        };
        SweepPlan::for_sweep(&sweep, &options).unwrap()
    };
    for wanted in &cells {
        let only = [wanted.id.0.clone()];
        for index in 1..=2 {
            let is_own = part(index, &[]).planned_cells().any(|c| c.id == wanted.id);
            let asked: Vec<CellId> = part(index, &only)
                .planned_cells()
                .map(|c| c.id.clone())
                .collect();
            assert_eq!(asked.contains(&wanted.id), is_own);
            assert_eq!(asked.len(), usize::from(is_own));
        }
    }
}

fn any_sweep() -> impl Strategy<Value = SweepDefinition> {
    prop::collection::vec(any_cell(), 1..60).prop_map(|mut cells| {
        let mut seen = std::collections::HashSet::new();
        cells.retain(|c| seen.insert(c.id.clone()));
        sweep(cells)
    })
}

fn ids<'a>(cells: impl Iterator<Item = &'a Cell>) -> Vec<&'a CellId> {
    let mut ids: Vec<&CellId> = cells.map(|c| &c.id).collect();
    ids.sort();
    ids
}

proptest! {
    #[test]
    fn at_least_as_much_is_an_order([a, b, c] in related_loads()) {
        prop_assert!(a.at_least(&a));
        prop_assert!(!(a.at_least(&b) && b.at_least(&c)) || a.at_least(&c));
    }

    #[test]
    fn nothing_comes_before_what_takes_no_more(sweep in any_sweep()) {
        let plan = SweepPlan::for_sweep(&sweep, &options(&OomMemory::default())).unwrap();
        prop_assert_eq!(ids(plan.planned_cells()), ids(sweep.cells.iter()));
        for group in &plan.groups {
            for (i, earlier) in group.cells.iter().enumerate() {
                for later in &group.cells[i + 1..] {
                    prop_assert!(
                        !earlier.load.at_least(&later.load) || later.load.at_least(&earlier.load),
                        "{} before {}", earlier.describe_load(), later.describe_load()
                    );
                }
            }
        }
    }

    #[test]
    fn the_parts_are_the_whole_and_no_group_is_torn(
        sweep in any_sweep(), of in 1..8u32, known in prop::collection::vec(any_cell(), 0..4)
    ) {
        // One machine remembers what the others do not.
        let mut ooms = OomMemory::default();
        known.iter().for_each(|c| ooms.add_record(record(c)));
        let none = OomMemory::default();
        let parts: Vec<SweepPlan> = (1..=of)
            .map(|index| {
                let known_oom = if index == 1 { &ooms } else { &none };
                let shard = Some(Shard { index, of });
                SweepPlan::for_sweep(&sweep, &PlanOptions { shard, ..options(known_oom) }).unwrap()
            })
            .collect();
        let all = parts.iter().flat_map(|p| p.planned_cells().chain(p.skipped.iter().map(|s| &s.cell)));
        prop_assert_eq!(ids(all), ids(sweep.cells.iter()));
        let groups: Vec<&GroupId> =
            parts.iter().flat_map(|p| p.groups.iter().map(|g| &g.id)).collect();
        let once: std::collections::HashSet<&&GroupId> = groups.iter().collect();
        prop_assert_eq!(once.len(), groups.len());
        // The lightest part could not have spared the smallest group of the heaviest one.
        let whole = SweepPlan::for_sweep(&sweep, &options(&none)).unwrap();
        let largest = whole.groups.iter().map(|g| g.cells.len()).max().unwrap_or(0);
        let size = |p: &SweepPlan| p.planned_cells().count() + p.skipped.len();
        let sizes: Vec<usize> = parts.iter().map(size).collect();
        let (most, least) = (sizes.iter().max().unwrap(), sizes.iter().min().unwrap());
        prop_assert!(most - least <= largest, "{sizes:?}");
    }
}

#[test]
fn what_surely_does_not_fit_is_skipped_and_nothing_else() {
    let cells = vec![
        cell("large", 128, 128, 1),
        cell("large", 128, 128, 8),
        cell("doubtful", 128, 128, 1),
        cell("small", 128, 128, 1),
        cell("nobody-knows", 128, 128, 1),
    ];
    let answers = [
        ("large", Answer::DoesNotFit),
        ("doubtful", Answer::MayNotFit),
        ("small", Answer::Fits),
    ];
    let verdicts: BTreeMap<GroupId, Verdict> = answers
        .iter()
        .map(|(model, answer)| {
            let verdict = Verdict {
                answer: *answer,
                why: "by the estimate".into(),
            };
            (cell(model, 1, 1, 1).group, verdict)
        })
        .collect();
    let mut plan = planned(cells.clone());
    plan.apply_verdicts(verdicts.clone(), |_| false);
    let models: Vec<&str> = plan
        .groups
        .iter()
        .map(|g| g.server.model.as_str())
        .collect();
    assert_eq!(models, ["doubtful", "small", "nobody-knows"]);
    assert_eq!(plan.skipped.len(), 2, "each cell has its row");
    for skip in &plan.skipped {
        assert_eq!(
            (skip.cell.server.model.as_str(), skip.cause),
            ("large", RowCause::DoesNotFit)
        );
        assert_eq!(skip.why, "it does not fit: by the estimate");
    }
    let mut all = planned(cells);
    all.apply_verdicts(verdicts, |_| true);
    assert_eq!((all.groups.len(), all.skipped.len()), (4, 0));
    assert_eq!(all.verdicts.len(), 3, "it is told all the same");
}
