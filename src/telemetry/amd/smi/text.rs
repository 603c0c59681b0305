//! The forms that AMD's tools write for people and for spreadsheets, brought into the shape of
//! the JSON ones: comma-separated rows, tables, and indented `KEY: value` trees.

use super::documents::without_colours;
use serde_json::{Map, Value};

/// The rows of every form found in the text. Each list is one table, as a list of objects.
pub fn tables(text: &str) -> Vec<Value> {
    let text = without_colours(text);
    let mut found = rows_with_commas(&text);
    if found.is_empty() {
        found = rows_with_columns(&text);
    }
    if found.is_empty() {
        found.extend(tree(&text));
    }
    found
}

/// Comma-separated rows. A watching tool repeats the header, and a new one begins a new table.
fn rows_with_commas(text: &str) -> Vec<Value> {
    let mut found: Vec<Value> = Vec::new();
    let mut header: Vec<String> = Vec::new();
    let mut rows: Vec<Value> = Vec::new();
    for line in text.lines().map(str::trim) {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let is_header = cells.len() > 1
            && cells
                .iter()
                .take(2)
                .any(|c| ["gpu", "device"].contains(&c.to_lowercase().as_str()));
        if is_header {
            if !rows.is_empty() {
                found.push(Value::Array(std::mem::take(&mut rows)));
            }
            header = cells.iter().map(|c| (*c).to_owned()).collect();
        } else if cells.len() == header.len() && !header.is_empty() {
            let row = header.iter().zip(cells);
            rows.push(Value::Object(
                row.map(|(key, cell)| (key.clone(), Value::from(cell)))
                    .collect(),
            ));
        }
    }
    if !rows.is_empty() {
        found.push(Value::Array(rows));
    }
    found
}

/// Tables whose cells are set right-aligned below headings of one word each, at least two blanks
/// apart: a cell belongs to the heading that ends where it ends.
fn rows_with_columns(text: &str) -> Vec<Value> {
    let mut found: Vec<Value> = Vec::new();
    let mut header: Vec<(String, usize)> = Vec::new();
    let mut rows: Vec<Value> = Vec::new();
    for line in text.lines() {
        let cells = cells(line);
        let is_header = cells.len() > 2
            && cells.iter().take(2).any(|(c, _)| c == "GPU")
            && !cells.iter().any(|(c, _)| c.contains(' '));
        if is_header {
            if !rows.is_empty() {
                found.push(Value::Array(std::mem::take(&mut rows)));
            }
            header = cells;
            continue;
        }
        let row: Map<String, Value> = cells
            .iter()
            .filter_map(|(cell, end)| {
                let (key, _) = header.iter().find(|(_, e)| e == end)?;
                Some((key.to_lowercase(), Value::from(cell.as_str())))
            })
            .collect();
        if row.contains_key("gpu") && row.len() == header.len() {
            rows.push(Value::Object(row));
        } else if !line.trim().is_empty() {
            header = Vec::new();
        }
    }
    if !rows.is_empty() {
        found.push(Value::Array(rows));
    }
    found
}

/// The cells of a line, with the column (in characters) at which each ends.
fn cells(line: &str) -> Vec<(String, usize)> {
    let mut found: Vec<(String, usize)> = Vec::new();
    let mut cell = String::new();
    let mut end = 0;
    for (column, c) in line.chars().enumerate() {
        if c.is_whitespace() {
            if column > end && !cell.is_empty() {
                found.push((std::mem::take(&mut cell), end));
            }
            continue;
        }
        // A single blank within a cell, as in `171 W`.
        if !cell.is_empty() && column > end {
            cell.push(' ');
        }
        cell.push(c);
        end = column + 1;
    }
    if !cell.is_empty() {
        found.push((cell, end));
    }
    found
}

/// Lines `KEY: value` and `KEY:` with deeper lines below, from the first `GPU: n` on.
fn tree(text: &str) -> Option<Value> {
    let lines: Vec<(usize, &str, &str)> = text
        .lines()
        .skip_while(|l| !l.starts_with("GPU:"))
        .filter_map(|line| {
            let (key, value) = line.split_once(':')?;
            let depth = line.len() - line.trim_start().len();
            Some((depth, key.trim(), value.trim()))
        })
        .collect();
    let mut gpus = Vec::new();
    for (at, (depth, key, value)) in lines.iter().enumerate() {
        if *depth == 0 && *key == "GPU" {
            let below = &lines[at + 1..];
            let length = below.iter().take_while(|l| l.0 > 0).count();
            let mut gpu = branch(&below[..length], 0);
            gpu.insert("gpu".into(), Value::from(*value));
            gpus.push(Value::Object(gpu));
        }
    }
    (!gpus.is_empty()).then(|| Value::Array(gpus))
}

fn branch(lines: &[(usize, &str, &str)], nesting: usize) -> Map<String, Value> {
    let mut map = Map::new();
    let mut at = 0;
    while let Some((depth, key, value)) = lines.get(at) {
        at += 1;
        let length = lines[at..].iter().take_while(|l| l.0 > *depth).count();
        let below = &lines[at..at + length];
        at += length;
        let value = if value.is_empty() && nesting < 50 {
            Value::Object(branch(below, nesting + 1))
        } else {
            Value::from(*value)
        };
        // A key that is there again begins a list, as for several processes.
        match map.get_mut(&key.to_lowercase()) {
            Some(Value::Array(list)) => list.push(value),
            Some(first) => *first = Value::Array(vec![first.take(), value]),
            None => {
                map.insert(key.to_lowercase(), value);
            }
        }
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn rows_with_commas_are_read_and_a_header_again_begins_anew() {
        let text = "gpu,vram_used\n0,12\n1,N/A\ngpu,vram_used\n0,13\n";
        assert_eq!(
            tables(text),
            [
                json!([{"gpu": "0", "vram_used": "12"}, {"gpu": "1", "vram_used": "N/A"}]),
                json!([{"gpu": "0", "vram_used": "13"}])
            ]
        );
    }

    #[test]
    fn columns_are_told_by_where_they_end() {
        let text = "$ amd-smi monitor\nGPU  POWER   PCIE_BW\n  0    9 W  N/A Mb/s\n 11  120 W       N/A\n\nPROCESS INFO:\nGPU   NAME  PID\n  0  a b c   12\n";
        assert_eq!(
            tables(text),
            [
                json!([
                    {"gpu": "0", "power": "9 W", "pcie_bw": "N/A Mb/s"},
                    {"gpu": "11", "power": "120 W", "pcie_bw": "N/A"}
                ]),
                json!([{"gpu": "0", "name": "a b c", "pid": "12"}])
            ]
        );
    }

    #[test]
    fn trees_nest_and_repeat() {
        let text = "$ amd-smi process\nGPU: 0\n    PROCESS_INFO:\n        PID: 1\n        MEMORY_USAGE:\n            VRAM_MEM: 10.1 GB\n    PROCESS_INFO:\n        PID: 2\nGPU: 1\n    BDF: 0000:05:00.0\n";
        assert_eq!(
            tables(text),
            [json!([
                {"process_info": [{"pid": "1", "memory_usage": {"vram_mem": "10.1 GB"}}, {"pid": "2"}], "gpu": "0"},
                {"bdf": "0000:05:00.0", "gpu": "1"}
            ])]
        );
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(text in "(\\PC|[,:\\n ]|GPU: 0\n| GPU  NAME  PID\n|gpu,a\n)*") {
            let _ = tables(&text);
        }
    }
}
