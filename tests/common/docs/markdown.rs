//! What the pages hold: blocks of commands, links, headings, and words between backticks.

use std::path::{Path, PathBuf};

/// A page of the documentation, with its path from the root of the project.
pub struct Page {
    pub path: PathBuf,
    pub text: String,
}

/// Lines of code, without their indent.
pub struct Block {
    /// Line of the page that the first of them stands in, from 1.
    pub line: usize,
    pub lines: Vec<String>,
}

/// The root of the project.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every page that a user reads.
pub fn pages() -> Vec<Page> {
    let mut paths: Vec<PathBuf> = [
        "README.md",
        "CONTRIBUTING.md",
        "configs/README.md",
        "configs/models/README.md",
        "containers/README.md",
        "containers/reference-engine/README.md",
        "containers/vllm-cpu/README.md",
        "results/README.md",
    ]
    .iter()
    .map(PathBuf::from)
    .collect();
    for folder in ["docs", "docs/dev", "docs/engines"] {
        for entry in std::fs::read_dir(root().join(folder)).expect("docs") {
            let path = PathBuf::from(folder).join(entry.expect("docs").file_name());
            if path.extension().is_some_and(|e| e == "md") {
                paths.push(path);
            }
        }
    }
    paths.sort();
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(root().join(&path));
        let text = text.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Page { path, text }
    };
    paths.into_iter().map(read).collect()
}

/// Languages whose blocks hold no commands.
const NO_SHELL: &[&str] = &["yaml", "json", "rust", "toml", "python", "ini"];

impl Page {
    /// The path as it is told.
    pub fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Blocks between fences, and those that are indented, that may hold commands.
    pub fn blocks(&self) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        let mut fence: Option<bool> = None;
        let mut open = false;
        let mut blank = true;
        for (at, line) in self.text.lines().enumerate() {
            if let Some(language) = line.trim_start().strip_prefix("```") {
                fence = match fence {
                    Some(_) => None,
                    None => {
                        let shell = !NO_SHELL.contains(&language.trim());
                        if shell {
                            blocks.push(Block {
                                line: at + 2,
                                lines: Vec::new(),
                            });
                        }
                        Some(shell)
                    }
                };
                open = false;
                blank = true;
                continue;
            }
            if let Some(shell) = fence {
                if shell {
                    let last = blocks.last_mut().expect("a block is open");
                    last.lines.push(line.to_owned());
                }
                continue;
            }
            match line.strip_prefix("    ") {
                Some(code) if open || blank => {
                    if !open {
                        blocks.push(Block {
                            line: at + 1,
                            lines: Vec::new(),
                        });
                        open = true;
                    }
                    let last = blocks.last_mut().expect("a block is open");
                    last.lines.push(code.to_owned());
                }
                _ if line.trim().is_empty() && open => {
                    let last = blocks.last_mut().expect("a block is open");
                    last.lines.push(String::new());
                }
                _ => open = false,
            }
            blank = line.trim().is_empty();
        }
        blocks
    }

    /// Lines of text, numbered from 1: blocks left out.
    pub fn prose(&self) -> impl Iterator<Item = (usize, &str)> {
        let mut fenced = false;
        self.text.lines().enumerate().filter_map(move |(at, line)| {
            if line.trim_start().starts_with("```") {
                fenced = !fenced;
                return None;
            }
            (!fenced && !line.starts_with("    ")).then_some((at + 1, line))
        })
    }

    /// Targets of links, with the lines they stand in.
    pub fn links(&self) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        for (at, line) in self.prose() {
            for (begin, _) in line.match_indices("](") {
                let rest = &line[begin + 2..];
                if let Some(end) = rest.find(')') {
                    found.push((at, rest[..end].to_owned()));
                }
            }
        }
        found
    }

    /// What stands between backticks, with the lines it stands in.
    pub fn spans(&self) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        for (at, line) in self.prose() {
            let parts: Vec<&str> = line.split('`').collect();
            let odd = parts.iter().skip(1).step_by(2);
            found.extend(odd.map(|s| (at, (*s).to_owned())));
        }
        found
    }

    /// Anchors of its headings, as the forges make them.
    pub fn anchors(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for (_, line) in self.prose() {
            let title = line.trim_start_matches('#');
            if title.len() == line.len() || !title.starts_with(' ') {
                continue;
            }
            let slug: String = title
                .trim()
                .to_lowercase()
                .chars()
                .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect();
            let same = all.iter().filter(|a| **a == slug).count();
            all.push(match same {
                0 => slug,
                n => format!("{slug}-{n}"),
            });
        }
        all
    }
}
