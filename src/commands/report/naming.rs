//! Names that distinguish runs: the shortest part of each path that does.

use std::collections::HashMap;
use std::path::Path;

/// For each file the shortest end of its path that no other has, without the ending `.json`.
pub(super) fn names(files: &[&Path]) -> Vec<String> {
    let parts: Vec<Vec<String>> = files
        .iter()
        .map(|file| {
            let file = file.with_extension("");
            let parts = file.components();
            parts
                .map(|c| c.as_os_str().to_string_lossy().into_owned())
                .collect()
        })
        .collect();
    let end = |parts: &[String], n: usize| {
        let from = parts.len().saturating_sub(n);
        parts.get(from..).unwrap_or_default().join("/")
    };
    let longest = parts.iter().map(Vec::len).max().unwrap_or(0);
    let mut names: Vec<Option<String>> = vec![None; files.len()];
    for n in 1..=longest.max(1) {
        let mut seen: HashMap<String, usize> = HashMap::new();
        for p in &parts {
            *seen.entry(end(p, n)).or_default() += 1;
        }
        for (name, p) in names.iter_mut().zip(&parts) {
            let short = end(p, n);
            if name.is_none() && (seen.get(&short) == Some(&1) || n == longest) {
                *name = Some(short);
            }
        }
    }
    names.into_iter().map(Option::unwrap_or_default).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_as_long_as_it_must_be() {
        let files = ["r/x/a.json", "r/y/a.json", "r/y/b.json", "r/b.capture"];
        let files: Vec<&Path> = files.iter().map(Path::new).collect();
        assert_eq!(names(&files), ["x/a", "y/a", "y/b", "r/b"]);
        assert_eq!(names(&[Path::new("/deep/in/one.json")]), ["one"]);
        assert!(names(&[]).is_empty());
    }
}
