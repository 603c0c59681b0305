//! What holds for every sweep file.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Axes of numbers that any cell may have, by key.
const AXES: [&str; 5] = [
    "tensor_parallel_size",
    "max_model_len",
    "input_lengths",
    "output_lengths",
    "batch_sizes",
];

/// A list for some of the axes.
fn lists() -> impl Strategy<Value = BTreeMap<&'static str, Vec<u32>>> {
    let list = prop::collection::btree_set(1u32..2000, 1..5);
    let some = prop::sample::subsequence(AXES.to_vec(), 0..=AXES.len());
    some.prop_flat_map(move |keys| {
        let n = keys.len();
        (Just(keys), prop::collection::vec(list.clone(), n))
    })
    .prop_map(|(keys, lists)| {
        let lists = lists.into_iter().map(|l| l.into_iter().collect());
        keys.into_iter().zip(lists).collect()
    })
}

fn entry_of(model: &str, lists: &BTreeMap<&str, Vec<u32>>, reversed: bool) -> String {
    let mut lines = vec![format!("model_id: {model}"), "container_name: c".into()];
    for (key, list) in lists {
        let mut list = list.clone();
        if reversed {
            list.reverse();
        }
        lines.push(format!("{key}: {list:?}"));
    }
    if reversed {
        lines.reverse();
    }
    format!("  - {}\n", lines.join("\n    "))
}

fn ids(cells: &[Cell]) -> BTreeSet<String> {
    cells.iter().map(|c| c.id.to_string()).collect()
}

/// The value that a cell has on an axis.
fn value(cell: &Cell, key: &str) -> Option<u32> {
    let settings = &cell.server.settings;
    match key {
        "tensor_parallel_size" => settings.tensor_parallel_size,
        "max_model_len" => settings.max_model_len.and_then(|n| u32::try_from(n).ok()),
        "input_lengths" => Some(cell.load.input_len),
        "output_lengths" => Some(cell.load.output_len),
        _ => cell.load.batch_size,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn cells_are_the_product_and_no_two_are_one(a in lists(), b in lists()) {
        let product = |l: &BTreeMap<_, Vec<u32>>| l.values().map(Vec::len).product::<usize>();
        let text = format!("models:\n{}{}", entry_of("a", &a, false), entry_of("b", &b, false));
        let found = cells(&text);
        prop_assert_eq!(found.len(), product(&a) + product(&b));
        prop_assert_eq!(ids(&found).len(), found.len());
        // The same again is the same, to the byte.
        prop_assert_eq!(&found, &cells(&text));
        // Each combination of values is there.
        let combinations: HashSet<Vec<Option<u32>>> = found
            .iter()
            .filter(|c| c.server.model == "a")
            .map(|c| AXES.iter().map(|key| value(c, key)).collect())
            .collect();
        prop_assert_eq!(combinations.len(), product(&a));
        // A group is never left and met again.
        let mut groups: Vec<_> = found.iter().map(|c| &c.group).collect();
        let distinct: HashSet<_> = groups.iter().copied().collect();
        groups.dedup();
        prop_assert_eq!(groups.len(), distinct.len());
    }

    #[test]
    fn ids_follow_from_the_cell_and_not_from_where_it_stands(a in lists(), b in lists()) {
        let forth = format!("models:\n{}{}", entry_of("a", &a, false), entry_of("b", &b, false));
        let back = format!("models:\n{}{}", entry_of("b", &b, true), entry_of("a", &a, true));
        prop_assert_eq!(ids(&cells(&forth)), ids(&cells(&back)));
    }

    #[test]
    fn exclude_takes_out_exactly_what_matches(
        lists in lists().prop_filter("an axis", |l| !l.is_empty()),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 2),
    ) {
        let all = cells(&format!("models:\n{}", entry_of("a", &lists, false)));
        let keys: Vec<&str> = lists.keys().copied().collect();
        let (one, two) = (keys[picks[0].index(keys.len())], keys[picks[1].index(keys.len())]);
        let chosen = &all[picks[0].index(all.len())];
        let wanted: BTreeMap<&str, u32> = [one, two]
            .into_iter()
            .filter_map(|key| value(chosen, key).map(|v| (key, v)))
            .collect();
        let pattern: Vec<String> = wanted.iter().map(|(k, v)| format!("{k}: {v}")).collect();
        // A cell that stays, so that one is left.
        let text = format!(
            "models:\n{}    exclude: [{{{}}}]\n  - {{model_id: z, container_name: c}}\n",
            entry_of("a", &lists, false),
            pattern.join(", ")
        );
        let kept = ids(&cells(&text));
        for cell in &all {
            let matches = wanted.iter().all(|(key, v)| value(cell, key) == Some(*v));
            prop_assert_eq!(kept.contains(&cell.id.0), !matches);
        }
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "([a-z_]{1,6}|[-:,\\[\\]{}&*!|>'\"%@`#$?<]|[ \n\t0-9.é\\\\]|models:\n  - |batch_sizes: |\\$\\{A:-|<<: ){0,60}") {
        let _ = read(&text);
    }
}

#[test]
fn a_token_that_is_renewed_changes_no_id() {
    let id = |name: &str, token: &str| {
        let var = |_: &str| Some(token.to_owned());
        let text = image(&format!("env: {{{name}: '${{{name}}}'}}"));
        read_with(&text, &var).unwrap().cells[0].id.clone()
    };
    assert_eq!(id("HF_TOKEN", "old"), id("HF_TOKEN", "new"));
    assert_ne!(id("VLLM_USE_V1", "0"), id("VLLM_USE_V1", "1"));
}

#[test]
fn ten_thousand_cells_are_no_trouble() {
    let numbers = |n: u32| (1..=n).collect::<Vec<u32>>();
    let text = entry(&format!(
        "tensor_parallel_size: [1, 2]\ninput_lengths: {:?}\noutput_lengths: {:?}\nbatch_sizes: {:?}",
        numbers(20),
        numbers(25),
        numbers(10)
    ));
    let found = cells(&text);
    assert_eq!(found.len(), 10_000);
    assert_eq!(ids(&found).len(), 10_000);
    assert_eq!(found[4_999].server.settings.tensor_parallel_size, Some(1));
}
