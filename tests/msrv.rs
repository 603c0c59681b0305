//! The minimum Rust that Cargo.toml promises: what the newer compiler of this machine would let pass.

use std::path::{Path, PathBuf};

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if path.file_name().is_some_and(|n| n != "target") {
                rust_files(&path, found);
            }
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// The text with spaces in place of comments, strings and characters, so that what is left is code.
fn only_code(text: &str) -> Vec<u8> {
    let mut code = text.as_bytes().to_vec();
    let mut at = 0;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        let until = |end: &[u8], from: usize| {
            let found = rest[from..].windows(end.len()).position(|w| w == end);
            found.map_or(rest.len(), |i| from + i + end.len())
        };
        let hashes = rest.iter().skip(1).take_while(|b| **b == b'#').count();
        let in_word = at > 0 && (code[at - 1].is_ascii_alphanumeric() || code[at - 1] == b'_');
        let length = match rest {
            [b'/', b'/', ..] => until(b"\n", 0),
            [b'r', ..] if rest.get(hashes + 1) == Some(&b'"') && !in_word => {
                let end = [&b"\""[..], &b"#".repeat(hashes)].concat();
                until(&end, hashes + 2)
            }
            [b'"', ..] => {
                let mut end = 1;
                while end < rest.len() && rest[end] != b'"' {
                    end += if rest[end] == b'\\' { 2 } else { 1 };
                }
                end + 1
            }
            [b'\'', b'\\', ..] => until(b"'", 3),
            [b'\'', _, b'\'', ..] => 3,
            _ => {
                at += 1;
                continue;
            }
        };
        let end = (at + length).min(text.len());
        for byte in &mut code[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        // What stands before a closing bracket is a value still.
        code[at] = b'_';
        at = end;
    }
    code
}

/// Where conditions mix `let` with `&&`: byte offsets into the code.
fn let_chains(code: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    let word = |at: usize, word: &[u8]| {
        let part = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
        code[at..].starts_with(word)
            && !part(code.get(at + word.len()))
            && !part(at.checked_sub(1).and_then(|i| code.get(i)))
    };
    let past_space = |mut at: usize| {
        while code.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
        at
    };
    for start in 0..code.len() {
        if !matches!(code[start], b'&' | b'i' | b'w') {
            continue;
        }
        // `a && let b = c`, wherever the `a` is.
        if code[start..].starts_with(b"&&") && word(past_space(start + 2), b"let") {
            found.push(start);
        }
        // `if let a = b && c`.
        let keyword = ["if", "while"]
            .iter()
            .find(|k| word(start, k.as_bytes()))
            .map(|k| past_space(start + k.len()));
        let Some(from) = keyword.filter(|at| word(*at, b"let")) else {
            continue;
        };
        let mut depth = 0_i32;
        let mut pattern = true;
        let mut last = b'=';
        for (at, byte) in code.iter().enumerate().skip(from) {
            match byte {
                b'{' if !pattern && depth == 0 => break,
                b'(' | b'[' | b'{' => depth += 1,
                b')' | b']' | b'}' => depth -= 1,
                b'=' if depth == 0 && last != b'.' => pattern = false,
                b'&' if code[at..].starts_with(b"&&") && depth == 0 && last != b'=' => {
                    found.push(at);
                    break;
                }
                _ => {}
            }
            if !byte.is_ascii_whitespace() {
                last = *byte;
            }
        }
    }
    found
}

#[test]
fn no_condition_chains_lets() {
    // What the search finds, and what it must let pass.
    for (code, chains) in [
        ("if a && let Some(b) = c {}", true),
        ("if let Some(b) = c\n    // why\n    && b > 0\n{}", true),
        ("while let Point { x, .. } = p(&[1]) && x {}", true),
        ("if let Some(b) = c.filter(|b| b.d && b.e) {}", false),
        ("if let Some(b) = c { b && d; }", false),
        ("if let Some(b) = &&c {}", false),
        ("// if a && let b\nif let ' ' = c { \"x && let y\" }", false),
        (
            "if let Some(\"a && b\") = r#\"x\"\"#.d(b'\\'', '\"') { f && g }",
            false,
        ),
    ] {
        let found = let_chains(&only_code(code));
        assert_eq!(!found.is_empty(), chains, "{code}");
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    for folder in ["src", "tests", "benches", "examples", "fuzz", "containers"] {
        rust_files(&root.join(folder), &mut paths);
    }
    let mut found = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        for at in let_chains(&only_code(&text)) {
            let line = text[..at].lines().count();
            found.push(format!("{}:{line}", path.display()));
        }
    }
    assert!(
        found.is_empty(),
        "Rust 1.86, which Cargo.toml promises, has no `if let … && …`: nest the conditions, or use `let … else`, `filter` or `is_some_and`: {found:#?}"
    );
}
