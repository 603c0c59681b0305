//! What process 1 really runs: the simple commands inside `sh -c '…'`, an init or a wrapper. A script is read as a
//! shell would run it, as far as start commands go; nothing is run.

use super::argv::basename;
use std::cell::Cell;
use std::collections::BTreeMap;

/// Nesting depth up to which shells inside shells are parsed.
const DEPTH: usize = 4;
/// A script with more commands than this is not a start command.
const MAX_COMMANDS: usize = 256;
/// Rounds of a loop, and commands inside commands, up to which a script is followed.
const MAX_ROUNDS: usize = 64;
/// Simple commands that a script may come to in all, those of its loops counted each time.
const MAX_STEPS: usize = 4096;
/// Bytes that expansions may give in all: a script that doubles a variable has no end.
const MAX_EXPANDED: usize = 4 << 20;

/// One command with the environment that was set for it in front.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Command {
    /// Assignments beyond the container's environment.
    pub env: BTreeMap<String, String>,
    /// Program and arguments, wrappers (`tini --`, `exec`, `numactl …`) still in front.
    pub argv: Vec<String>,
}

/// The commands that process 1 runs: its own argv, or those of its shell script.
pub fn commands(argv: &[String], env: &BTreeMap<String, String>) -> Vec<Command> {
    let mut found = Vec::new();
    let command = Command {
        env: BTreeMap::new(),
        argv: argv.to_vec(),
    };
    unfold(command, env, false, 0, &mut found);
    found
}

/// The commands of a script of the host, whose variables are not known: what it does not set itself stays as it is
/// written (`$HOME`).
pub fn script_commands(script: &str) -> Vec<Command> {
    let mut found = Vec::new();
    let env = BTreeMap::new();
    for command in Shell::new(env.clone(), Vec::new(), true).run_script(script) {
        unfold(command, &env, true, 0, &mut found);
    }
    found
}

/// A text split into words as a shell splits it, its expansions left as they are.
pub fn split_words(text: &str) -> Vec<String> {
    let shell = Shell::new(BTreeMap::new(), Vec::new(), true);
    let words = tokens(text).into_iter().map(|token| match token {
        Token::Word(word) => shell.expand(&word),
        Token::Operator(";") => Vec::new(),
        Token::Operator(operator) => vec![operator.to_owned()],
    });
    words.flatten().collect()
}

/// Whether a word holds an expansion that was not known: `$HOME/x`, `$(pwd)`.
pub fn is_unresolved(word: &str) -> bool {
    unresolved(word).next().is_some()
}

/// The expansions in a word that were not known, as they are written: `${A:?}`, `$(pwd)`.
pub fn unresolved(word: &str) -> impl Iterator<Item = String> {
    let chars: Vec<char> = word.chars().collect();
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < chars.len() {
            let end = match chars[at] {
                '$' => expansion_end(&chars, at),
                '`' => closing_quote(&chars, at),
                _ => at + 1,
            };
            let found: String = chars[at..end].iter().collect();
            at = end;
            if found.len() > 1 && found != "$$" {
                return Some(found);
            }
        }
        None
    })
}

fn unfold(
    command: Command,
    env: &BTreeMap<String, String>,
    keeps_unset: bool,
    depth: usize,
    found: &mut Vec<Command>,
) {
    if found.len() >= MAX_COMMANDS {
        return;
    }
    match script(&command.argv) {
        Some((script, arguments)) if depth < DEPTH => {
            let mut scope = env.clone();
            scope.extend(command.env);
            let shell = Shell::new(scope, arguments, keeps_unset);
            for inner in shell.run_script(script) {
                unfold(inner, env, keeps_unset, depth + 1, found);
            }
        }
        _ => found.push(without_env(command)),
    }
}
/// `env A=1 program …` → `program …` with `A` set for it.
fn without_env(mut command: Command) -> Command {
    if command.argv.first().is_some_and(|w| basename(w) == "env") {
        let set = command.argv[1..]
            .iter()
            .take_while(|w| assignment(w).is_some())
            .count();
        let words = command.argv.split_off(1 + set);
        let assigned = command.argv[1..].iter().filter_map(|w| assignment(w));
        command
            .env
            .extend(assigned.map(|(name, value)| (name.to_owned(), value.to_owned())));
        command.argv = words;
    }
    command
}

/// Whether a word is a program that starts containers.
pub fn is_container_client(word: &str) -> bool {
    matches!(
        basename(word),
        "docker" | "podman" | "nerdctl" | "nvidia-docker"
    )
}

/// The script of `… sh -c SCRIPT [NAME [ARGUMENTS]]` and its arguments.
fn script(argv: &[String]) -> Option<(&str, Vec<String>)> {
    let shell = argv
        .iter()
        .position(|w| matches!(basename(w), "sh" | "bash" | "dash" | "ash" | "zsh"))?;
    // The words of a container are its own, not this host's.
    if argv[..shell].iter().any(|w| is_container_client(w)) {
        return None;
    }
    let mut words = argv[shell + 1..].iter();
    while let Some(word) = words.next() {
        if word.starts_with('-') && !word.starts_with("--") && word.contains('c') {
            let script = words.next()?;
            return Some((script, words.skip(1).cloned().collect()));
        }
        if word.starts_with('-') && word.ends_with(['o', 'O']) {
            // `-o pipefail`, `-euxo pipefail`.
            words.next();
        } else if !word.starts_with('-') {
            return None;
        }
    }
    None
}

/// A word as it is written, quotes and expansions still in it, or an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    Operator(&'static str),
}

/// A command of a script.
#[derive(Debug)]
enum Node {
    Simple(Vec<String>),
    Group(Vec<Item>),
    /// Conditions with what follows each; the last may be without.
    If(Vec<(Vec<Item>, Vec<Item>)>),
    Case(String, Vec<(Vec<String>, Vec<Item>)>),
    For(String, Option<Vec<String>>, Vec<Item>),
    While(Vec<Item>, Vec<Item>),
}

/// A command with the operator before it: `&&`, `||`, or another.
#[derive(Debug)]
struct Item {
    operator: &'static str,
    negated: bool,
    node: Node,
}

/// As much of a shell as start commands use.
#[derive(Default)]
struct Shell {
    env: BTreeMap<String, String>,
    arrays: BTreeMap<String, Vec<String>>,
    arguments: Vec<String>,
    assigned: BTreeMap<String, String>,
    /// An expansion that is not known stays as it is written, where else it is empty.
    keeps_unset: bool,
    found: Vec<Command>,
    steps: usize,
    /// Bytes that expansions gave.
    expanded: Cell<usize>,
    ended: bool,
}

/// What an expansion gives.
enum Expanded {
    /// A text, which is split into words outside of quotes.
    Text(String),
    /// Words.
    Words(Vec<String>),
    /// What is not known, as it is written.
    Raw(String),
}

impl Shell {
    fn new(env: BTreeMap<String, String>, arguments: Vec<String>, keeps_unset: bool) -> Shell {
        Shell {
            env,
            arguments,
            keeps_unset,
            ..Shell::default()
        }
    }

    fn run_script(mut self, script: &str) -> Vec<Command> {
        let mut parser = Parser {
            tokens: tokens(script),
            at: 0,
            depth: 0,
        };
        while parser.at < parser.tokens.len() {
            let items = parser.list(&[]);
            self.run(&items, true);
            // A word that closes nothing.
            parser.at += 1;
        }
        self.found
    }

    /// Runs a list; whether its last command succeeded, if known. `certain`: a shell would come here.
    fn run(&mut self, items: &[Item], certain: bool) -> Option<bool> {
        let mut last = Some(true);
        for item in items {
            let skipped = match (item.operator, last) {
                ("&&", Some(ok)) => !ok,
                ("||", Some(ok)) => ok,
                _ => false,
            };
            if skipped {
                continue;
            }
            if self.ended || self.steps > MAX_STEPS || self.is_too_long() {
                break;
            }
            let open = matches!(item.operator, "&&" | "||") && last.is_none();
            let ended = self.run_node(&item.node, certain && !open);
            last = ended.map(|ok| ok != item.negated);
        }
        last
    }

    fn run_node(&mut self, node: &Node, certain: bool) -> Option<bool> {
        match node {
            Node::Simple(words) => self.run_simple(words, certain),
            Node::Group(items) => self.run(items, certain),
            Node::If(branches) => {
                for (condition, body) in branches {
                    match self.run(condition, certain) {
                        Some(false) => {}
                        Some(true) => return self.run(body, certain),
                        None => {
                            self.run(body, false);
                        }
                    }
                }
                None
            }
            Node::Case(word, branches) => {
                let word = self.expand(word).join(" ");
                let open = self.keeps_unset && is_unresolved(&word);
                for (patterns, body) in branches {
                    let patterns = patterns.iter().flat_map(|p| self.expand(p));
                    if open {
                        self.run(body, false);
                    } else if patterns.into_iter().any(|p| matches_glob(&p, &word)) {
                        return self.run(body, certain);
                    }
                }
                None
            }
            Node::For(name, words, body) => {
                let words = match words {
                    Some(words) => words.iter().flat_map(|w| self.expand(w)).collect(),
                    None => self.arguments.clone(),
                };
                for word in words.into_iter().take(MAX_ROUNDS) {
                    self.assign(name, word);
                    self.run(body, certain);
                }
                None
            }
            Node::While(condition, body) => {
                for _ in 0..MAX_ROUNDS {
                    match self.run(condition, certain) {
                        Some(true) => {
                            self.run(body, certain);
                        }
                        Some(false) => break,
                        None => {
                            self.run(body, false);
                            break;
                        }
                    }
                }
                None
            }
        }
    }

    fn run_simple(&mut self, words: &[String], certain: bool) -> Option<bool> {
        self.steps += 1;
        if self.found.len() >= MAX_COMMANDS {
            return None;
        }
        let mut argv: Vec<String> = Vec::new();
        let mut own = BTreeMap::new();
        let mut exported = false;
        let mut skip = false;
        for word in words {
            if std::mem::take(&mut skip) {
                continue;
            }
            if let Some(target_follows) = redirection(word) {
                skip = target_follows;
                continue;
            }
            if argv.is_empty() && self.assign_array(word) {
                continue;
            }
            let expanded = self.expand(word);
            match expanded.first().and_then(|w| assignment(w)) {
                Some((name, value)) if argv.is_empty() => {
                    own.insert(name.to_owned(), value.to_owned());
                }
                _ => match expanded.first().map(String::as_str) {
                    Some("env") if argv.is_empty() => {}
                    Some("export" | "declare" | "local" | "readonly" | "typeset")
                        if argv.is_empty() =>
                    {
                        exported = true;
                    }
                    _ => argv.extend(expanded),
                },
            }
        }
        if argv.is_empty() || exported {
            for (name, value) in own {
                self.assign(&name, value);
            }
            return Some(true);
        }
        match argv[0].as_str() {
            "[" | "[[" | "test" => return self.test(&argv),
            ":" | "true" => return Some(true),
            "false" => return Some(false),
            "exit" | "return" => {
                self.ended |= certain;
                return None;
            }
            "set" if argv.get(1).is_some_and(|w| w == "--") => {
                self.arguments = argv.split_off(2);
                return Some(true);
            }
            "shift" => {
                let count = argv.get(1).and_then(|n| n.parse().ok()).unwrap_or(1);
                self.arguments.drain(..count.min(self.arguments.len()));
                return Some(true);
            }
            _ => {}
        }
        let mut env = self.assigned.clone();
        env.extend(own);
        self.found.push(Command { env, argv });
        None
    }

    /// Sets a variable. A value that is not known leaves the variable so.
    fn assign(&mut self, name: &str, value: String) {
        let (name, value) = match name.strip_suffix('+') {
            Some(name) => (name, self.lookup(name).unwrap_or_default() + &value),
            None => (name, value),
        };
        if self.keeps_unset && is_unresolved(&value) {
            self.env.remove(name);
            self.assigned.remove(name);
            return;
        }
        self.env.insert(name.to_owned(), value.clone());
        self.assigned.insert(name.to_owned(), value);
    }

    /// `NAME=(…)`, `NAME+=(…)`.
    fn assign_array(&mut self, word: &str) -> bool {
        let Some((name, list)) = word.split_once("=(") else {
            return false;
        };
        let (name, appends) = match name.strip_suffix('+') {
            Some(name) => (name, true),
            None => (name, false),
        };
        let Some(list) = list.strip_suffix(')').filter(|_| is_name(name)) else {
            return false;
        };
        let words = tokens(list).into_iter().filter_map(|token| match token {
            Token::Word(word) => Some(word),
            Token::Operator(_) => None,
        });
        let words: Vec<String> = words.flat_map(|w| self.expand(&w)).collect();
        let array = self.arrays.entry(name.to_owned()).or_default();
        if !appends {
            array.clear();
        }
        array.extend(words);
        true
    }

    /// `[ … ]`, if its result is known.
    fn test(&self, argv: &[String]) -> Option<bool> {
        let words = match argv.split_first()? {
            (first, rest) if first == "test" => rest,
            (_, rest) => rest.split_last()?.1,
        };
        if self.keeps_unset && words.iter().any(|w| is_unresolved(w)) {
            return None;
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        for (operators, any) in [(["||", "-o"], true), (["&&", "-a"], false)] {
            if let Some(at) = words.iter().position(|w| operators.contains(w)) {
                let (left, right) = (simple_test(&words[..at]), simple_test(&words[at + 1..]));
                return match (left, right) {
                    (Some(ok), _) | (_, Some(ok)) if ok == any => Some(any),
                    (Some(_), Some(_)) => Some(!any),
                    _ => None,
                };
            }
        }
        simple_test(&words)
    }

    fn is_too_long(&self) -> bool {
        self.expanded.get() > MAX_EXPANDED
    }

    /// Expands one raw word: to none or several words where a bare `$NAME` is split.
    fn expand(&self, raw: &str) -> Vec<String> {
        self.expand_within(raw, 0)
    }

    fn expand_within(&self, raw: &str, depth: usize) -> Vec<String> {
        let chars: Vec<char> = raw.chars().collect();
        let mut words = vec![String::new()];
        let mut kept = false;
        let mut quote = None;
        let mut at = 0;
        while at < chars.len() {
            let c = chars[at];
            let last = words.len() - 1;
            at += 1;
            match (c, quote) {
                ('\'' | '"', None) => (quote, kept) = (Some(c), true),
                (_, Some(q)) if q == c => quote = None,
                ('\\', None | Some('"')) => {
                    if let Some(next) = chars.get(at) {
                        // Within double quotes a backslash is one, except before these.
                        if quote.is_some() && !"\"\\$`\n".contains(*next) {
                            words[last].push('\\');
                        }
                        if *next != '\n' {
                            words[last].push(*next);
                        }
                        at += 1;
                    }
                }
                ('$', None | Some('"')) => {
                    let end = expansion_end(&chars, at - 1);
                    let text: String = chars[at - 1..end].iter().collect();
                    at = end;
                    if self.is_too_long() {
                        break;
                    }
                    let expanded = self.parameter(&text, depth);
                    let length = match &expanded {
                        Expanded::Text(value) | Expanded::Raw(value) => value.len(),
                        Expanded::Words(values) => values.iter().map(|v| v.len() + 1).sum(),
                    };
                    self.expanded.set(self.expanded.get() + length);
                    match expanded {
                        Expanded::Text(value) if quote.is_some() => words[last].push_str(&value),
                        Expanded::Raw(value) => words[last].push_str(&value),
                        Expanded::Text(value) => {
                            let mut parts = value.split_whitespace();
                            words[last].push_str(parts.next().unwrap_or_default());
                            words.extend(parts.map(str::to_owned));
                        }
                        Expanded::Words(values) => {
                            // `"$@"` without arguments expands to nothing.
                            if values.is_empty() && chars.len() == text.chars().count() + 2 {
                                kept = false;
                            }
                            let mut parts = values.into_iter();
                            words[last].push_str(&parts.next().unwrap_or_default());
                            words.extend(parts);
                        }
                    }
                }
                ('`', None | Some('"')) => {
                    let end = closing_quote(&chars, at - 1);
                    words[last].extend(&chars[at - 1..end]);
                    at = end;
                }
                _ => words[last].push(c),
            }
        }
        words.retain(|w| kept || !w.is_empty());
        words
    }

    /// The value of an expansion; an unknown one is empty, as in a shell, or stays.
    fn parameter(&self, text: &str, depth: usize) -> Expanded {
        let unset = || {
            if self.keeps_unset {
                Expanded::Raw(text.to_owned())
            } else {
                Expanded::Text(String::new())
            }
        };
        let Some(inner) = text.strip_prefix("${").and_then(|t| t.strip_suffix('}')) else {
            return match text {
                "$" => Expanded::Text("$".to_owned()),
                "$@" | "$*" if !self.keeps_unset || !self.arguments.is_empty() => {
                    Expanded::Words(self.arguments.clone())
                }
                "$#" => Expanded::Text(self.arguments.len().to_string()),
                _ if text.starts_with("$(") => Expanded::Raw(text.to_owned()),
                _ => self.lookup(&text[1..]).map_or_else(unset, Expanded::Text),
            };
        };
        if let Some(array) = inner.strip_prefix('#') {
            let name = array.trim_end_matches("[@]");
            let length = match self.arrays.get(name) {
                Some(array) => array.len(),
                None => self.lookup(name).map_or(0, |v| v.len()),
            };
            return Expanded::Text(length.to_string());
        }
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = match inner.chars().next() {
            Some('@' | '*') => 1,
            _ => inner.find(|c| !word(c)).unwrap_or(inner.len()),
        };
        let (name, rest) = inner.split_at(end);
        let (index, operation) = match rest.strip_prefix('[').and_then(|r| r.split_once(']')) {
            Some((index, rest)) => (Some(index), rest),
            None => (None, rest),
        };
        let value = match (self.arrays.get(name), index) {
            _ if name == "@" || name == "*" => Some(Expanded::Words(self.arguments.clone())),
            (Some(array), Some("@" | "*")) => Some(Expanded::Words(array.clone())),
            (Some(array), index) => {
                let index = index.map_or(Ok(0), str::parse::<usize>);
                let item = index.ok().and_then(|i| array.get(i)).cloned();
                item.map(Expanded::Text)
            }
            (None, _) => self.lookup(name).map(Expanded::Text),
        };
        let is_empty = match &value {
            Some(Expanded::Text(text)) => text.is_empty(),
            Some(Expanded::Words(words)) => words.is_empty(),
            _ => true,
        };
        let (colon, operation) = match operation.strip_prefix(':') {
            Some(rest) => (true, rest),
            None => (false, operation),
        };
        let is_set = value.is_some() && !(is_empty && (colon || index.is_some()));
        let other = |word: &str| {
            if depth > MAX_ROUNDS {
                return Expanded::Raw(text.to_owned());
            }
            let words = self.expand_within(word, depth + 1);
            if index.is_some() {
                Expanded::Words(words)
            } else {
                Expanded::Text(words.join(" "))
            }
        };
        match operation.chars().next() {
            Some('-' | '=') if !is_set => other(&operation[1..]),
            Some('+') if is_set => other(&operation[1..]),
            Some('+') => Expanded::Words(Vec::new()),
            _ if index.is_some() => value.unwrap_or(Expanded::Words(Vec::new())),
            _ => value.unwrap_or_else(unset),
        }
    }

    fn lookup(&self, name: &str) -> Option<String> {
        match name.parse::<usize>() {
            Ok(n) => self.arguments.get(n.checked_sub(1)?).cloned(),
            Err(_) => self.env.get(name).cloned(),
        }
    }
}

/// One comparison.
fn simple_test(words: &[&str]) -> Option<bool> {
    match words {
        [] => Some(false),
        ["!", rest @ ..] => simple_test(rest).map(|ok| !ok),
        [text] | ["-n", text] => Some(!text.is_empty()),
        ["-z", text] => Some(text.is_empty()),
        [left, "=" | "==", right] => Some(matches_glob(right, left)),
        [left, "!=", right] => Some(!matches_glob(right, left)),
        [left, operator, right] => {
            let (left, right) = (left.parse::<i64>().ok()?, right.parse::<i64>().ok()?);
            match *operator {
                "-eq" => Some(left == right),
                "-ne" => Some(left != right),
                "-gt" => Some(left > right),
                "-ge" => Some(left >= right),
                "-lt" => Some(left < right),
                "-le" => Some(left <= right),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Whether a text is what a shell's pattern describes: `*`, `?`, `[a-z]`, `[!0-9]`.
fn matches_glob(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    // Where to go on after a star that took too little.
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) => {
                let (fits, next) = match c {
                    '?' => (true, p + 1),
                    '[' => in_class(&pattern, p, text[t]),
                    c => (*c == text[t], p + 1),
                };
                match star {
                    _ if fits => (p, t) = (next, t + 1),
                    Some((at, from)) => {
                        star = Some((at, from + 1));
                        (p, t) = (at + 1, from + 1);
                    }
                    None => return false,
                }
            }
            None => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    (p, t) = (at + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// Whether a character is in the class that begins here, and where the class ends.
fn in_class(pattern: &[char], at: usize, c: char) -> (bool, usize) {
    let Some(length) = pattern[at + 1..].iter().skip(1).position(|c| *c == ']') else {
        return (c == '[', at + 1);
    };
    let class = &pattern[at + 1..at + 2 + length];
    let (negated, class) = match class {
        ['!' | '^', class @ ..] => (true, class),
        class => (false, class),
    };
    let ranges = class
        .windows(3)
        .any(|w| w[1] == '-' && (w[0]..=w[2]).contains(&c));
    ((ranges || class.contains(&c)) != negated, at + 3 + length)
}

/// `NAME=value` → both.
pub fn assignment(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    is_name(name.strip_suffix('+').unwrap_or(name)).then_some((name, value))
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Whether the word redirects, and then whether its target is the next word.
fn redirection(word: &str) -> Option<bool> {
    let rest = word.trim_start_matches(|c: char| c.is_ascii_digit());
    let rest = rest.strip_prefix('&').unwrap_or(rest);
    let target = rest
        .strip_prefix(['<', '>'])?
        .trim_start_matches(['<', '>', '|']);
    Some(target.is_empty())
}

/// Reads tokens into commands.
struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
}

impl Parser {
    fn word(&self) -> Option<&str> {
        match self.tokens.get(self.at) {
            Some(Token::Word(word)) => Some(word),
            _ => None,
        }
    }

    fn operator(&self) -> Option<&'static str> {
        match self.tokens.get(self.at) {
            Some(Token::Operator(operator)) => Some(operator),
            _ => None,
        }
    }

    /// Commands up to a word or an operator that ends the list.
    fn list(&mut self, ends: &[&str]) -> Vec<Item> {
        let mut items = Vec::new();
        let mut operator = ";";
        self.depth += 1;
        while self.depth < MAX_ROUNDS && self.at < self.tokens.len() {
            if let Some(found) = self.operator() {
                if ends.contains(&found) || matches!(found, ")" | ";;") {
                    break;
                }
                if found != "(" {
                    operator = found;
                    self.at += 1;
                    continue;
                }
            }
            if self.word().is_some_and(|w| ends.contains(&w)) {
                break;
            }
            let negated = self.word() == Some("!");
            self.at += usize::from(negated);
            if let Some(node) = self.command() {
                items.push(Item {
                    operator,
                    negated,
                    node,
                });
            }
            operator = ";";
        }
        self.depth -= 1;
        items
    }

    fn command(&mut self) -> Option<Node> {
        if self.operator() == Some("(") {
            self.at += 1;
            let items = self.list(&[")"]);
            self.at += 1;
            return Some(Node::Group(items));
        }
        let word = self.word()?.to_owned();
        self.at += 1;
        match word.as_str() {
            "{" => {
                let items = self.list(&["}"]);
                self.at += 1;
                Some(Node::Group(items))
            }
            "if" => {
                let mut branches = Vec::new();
                loop {
                    let condition = self.list(&["then", "fi"]);
                    self.at += 1;
                    branches.push((condition, self.list(&["elif", "else", "fi"])));
                    let next = self.word().map(str::to_owned);
                    self.at += 1;
                    match next.as_deref() {
                        Some("elif") => {}
                        Some("else") => {
                            branches.push((Vec::new(), self.list(&["fi"])));
                            self.at += 1;
                            break;
                        }
                        _ => break,
                    }
                }
                Some(Node::If(branches))
            }
            "case" => self.case(),
            "for" | "select" => {
                let name = self.word().unwrap_or_default().to_owned();
                self.at += 1;
                let mut words = None;
                if self.word() == Some("in") {
                    self.at += 1;
                    words = Some(self.words());
                }
                self.list(&["do"]);
                self.at += 1;
                let body = self.list(&["done"]);
                self.at += 1;
                Some(Node::For(name, words, body))
            }
            "while" | "until" => {
                let condition = self.list(&["do"]);
                self.at += 1;
                let body = self.list(&["done"]);
                self.at += 1;
                Some(Node::While(condition, body))
            }
            "function" => {
                self.at += 1;
                None
            }
            _ => {
                // The body of a function is read where it is written.
                let next = self.tokens.get(self.at + 1);
                if self.operator() == Some("(") && next == Some(&Token::Operator(")")) {
                    self.at += 2;
                    return None;
                }
                let mut words = vec![word];
                words.extend(self.words());
                Some(Node::Simple(words))
            }
        }
    }

    fn words(&mut self) -> Vec<String> {
        let mut words = Vec::new();
        while let Some(word) = self.word() {
            words.push(word.to_owned());
            self.at += 1;
        }
        words
    }

    fn case(&mut self) -> Option<Node> {
        let word = self.word()?.to_owned();
        self.at += 2;
        let mut branches = Vec::new();
        while self.at < self.tokens.len() {
            let mut patterns = Vec::new();
            while let Some(token) = self.tokens.get(self.at) {
                match token {
                    Token::Operator(")") => break,
                    Token::Word(pattern) if pattern == "esac" => break,
                    Token::Word(pattern) => patterns.push(pattern.clone()),
                    Token::Operator(_) => {}
                }
                self.at += 1;
            }
            let ends = self.word() == Some("esac");
            self.at += 1;
            if ends {
                break;
            }
            branches.push((patterns, self.list(&["esac"])));
        }
        Some(Node::Case(word, branches))
    }
}

/// Where the expansion that begins here with `$` ends.
fn expansion_end(chars: &[char], at: usize) -> usize {
    let name = |c: &&char| c.is_ascii_alphanumeric() || **c == '_';
    match chars.get(at + 1) {
        Some('(') => closing(chars, at + 1, '(', ')'),
        Some('{') => closing(chars, at + 1, '{', '}'),
        Some('@' | '*' | '#' | '?' | '$' | '!') => at + 2,
        Some(c) if c.is_ascii_digit() => at + 2,
        _ => at + 1 + chars[at + 1..].iter().take_while(name).count(),
    }
}

/// Where the bracket that opens here is closed; the end where it is not.
fn closing(chars: &[char], at: usize, open: char, close: char) -> usize {
    let mut depth = 0_usize;
    let mut at = at;
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 1,
            '\'' | '`' => at = closing_quote(chars, at) - 1,
            c if c == open => depth += 1,
            c if c == close => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
        at += 1;
    }
    chars.len()
}

/// Where the quote that opens here is closed.
fn closing_quote(chars: &[char], at: usize) -> usize {
    let quote = chars[at];
    let mut next = at + 1;
    while next < chars.len() {
        match chars[next] {
            '\\' if quote != '\'' => next += 1,
            '$' if quote == '"' => next = expansion_end(chars, next) - 1,
            c if c == quote => return next + 1,
            _ => {}
        }
        next += 1;
    }
    chars.len()
}

/// Operators, the longer ones first.
const OPERATORS: &[&str] = &["&&", "||", ";;", "|&", ";", "&", "|", "(", ")"];

/// The raw words and operators of a script, without its comments and the texts of its here-documents.
fn tokens(script: &str) -> Vec<Token> {
    let chars: Vec<char> = script.chars().collect();
    let mut found = Vec::new();
    let mut word = String::new();
    let mut heredocs: Vec<String> = Vec::new();
    // Between `[[` and `]]` operators are words.
    let mut in_test = false;
    let mut at = 0;
    let end_word = |word: &mut String, found: &mut Vec<Token>, in_test: &mut bool| {
        if !word.is_empty() {
            *in_test = match word.as_str() {
                "[[" => true,
                "]]" => false,
                _ => *in_test,
            };
            found.push(Token::Word(std::mem::take(word)));
        }
    };
    while at < chars.len() {
        let c = chars[at];
        match c {
            '\\' => {
                // A line that goes on, also where it ends as on Windows.
                let rest = &chars[at + 1..];
                match rest {
                    ['\n', ..] => at += 1,
                    ['\r', '\n', ..] => at += 2,
                    [next, ..] => {
                        word.push(c);
                        word.push(*next);
                        at += 1;
                    }
                    [] => {}
                }
            }
            '\'' | '"' | '`' | '$' => {
                let end = match c {
                    '$' => expansion_end(&chars, at),
                    _ => closing_quote(&chars, at),
                };
                word.extend(&chars[at..end]);
                at = end - 1;
            }
            '(' if word.ends_with('=') && assignment(&word).is_some() => {
                let end = closing(&chars, at, '(', ')');
                word.extend(&chars[at..end]);
                at = end - 1;
            }
            '#' if word.is_empty() => {
                while chars.get(at + 1).is_some_and(|c| *c != '\n') {
                    at += 1;
                }
            }
            '<' if chars[at..].starts_with(&['<', '<']) && chars.get(at + 2) != Some(&'<') => {
                end_word(&mut word, &mut found, &mut in_test);
                at += 2;
                let skips = |c: &&char| matches!(c, '-' | ' ' | '\'' | '"' | '\\');
                at += chars[at..].iter().take_while(skips).count();
                let name = |c: &&char| c.is_alphanumeric() || **c == '_';
                let mark: String = chars[at..].iter().take_while(name).collect();
                at += mark.chars().count();
                at += chars[at..]
                    .iter()
                    .take_while(|c| matches!(c, '\'' | '"'))
                    .count();
                if !mark.is_empty() {
                    heredocs.push(mark);
                }
                continue;
            }
            '\n' => {
                end_word(&mut word, &mut found, &mut in_test);
                found.push(Token::Operator(";"));
                for mark in std::mem::take(&mut heredocs) {
                    while at < chars.len() {
                        let line = chars[at + 1..].iter().take_while(|c| **c != '\n');
                        let line: String = line.collect();
                        at = (at + 1 + line.chars().count()).min(chars.len());
                        if line.trim() == mark {
                            break;
                        }
                    }
                }
            }
            c if c.is_whitespace() => end_word(&mut word, &mut found, &mut in_test),
            // `2>&1`, `&>file`: no separator.
            '&' if word.ends_with('>') || chars.get(at + 1) == Some(&'>') => word.push(c),
            _ => {
                let here = |o: &&&str| chars[at..].starts_with(&o.chars().collect::<Vec<_>>());
                match OPERATORS.iter().find(here) {
                    Some(operator) if in_test && word != "]]" => word.push_str(operator),
                    Some(operator) => {
                        end_word(&mut word, &mut found, &mut in_test);
                        found.push(Token::Operator(operator));
                        at += operator.len() - 1;
                    }
                    None => word.push(c),
                }
            }
        }
        at += 1;
    }
    end_word(&mut word, &mut found, &mut in_test);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(argv: &[&str]) -> Vec<Vec<String>> {
        let env = BTreeMap::from([
            ("MODEL".to_owned(), "org/m".to_owned()),
            ("ARGS".to_owned(), "--a 1 --b".to_owned()),
        ]);
        let argv: Vec<String> = argv.iter().map(|w| (*w).to_owned()).collect();
        commands(&argv, &env).into_iter().map(|c| c.argv).collect()
    }

    #[test]
    fn a_script_that_doubles_a_variable_ends() {
        // Without a bound this takes all memory of the host.
        let script =
            "x=aaaaaaaa; while true; do x=$x$x$x$x; set -- \"$@\" \"$@\" $x; done; vllm serve m";
        let words = ["sh", "-c", script].map(str::to_owned);
        let longest = commands(&words, &BTreeMap::new());
        let length = |c: &Command| c.argv.iter().map(String::len).sum::<usize>();
        assert!(longest.iter().all(|c| length(c) < 4 * MAX_EXPANDED));
    }

    #[test]
    fn plain_commands_stay_as_they_are() {
        assert_eq!(run(&["vllm", "serve", "m"]), [["vllm", "serve", "m"]]);
        assert_eq!(run(&["/bin/bash"]), [["/bin/bash"]]);
        assert_eq!(
            run(&["bash", "/start.sh", "-c"]),
            [["bash", "/start.sh", "-c"]]
        );
        assert!(run(&["sh", "-c"]).len() == 1);
    }

    #[test]
    fn scripts_are_split() {
        assert_eq!(
            run(&[
                "tini",
                "--",
                "/bin/bash",
                "-lc",
                "cd /x && exec vllm serve \"$MODEL\" $ARGS \\\n --c='d e' 2>&1 | tee log # end"
            ]),
            [
                vec!["cd", "/x"],
                vec![
                    "exec", "vllm", "serve", "org/m", "--a", "1", "--b", "--c=d e"
                ],
                vec!["tee", "log"]
            ]
        );
        assert_eq!(
            run(&["sh", "-euxo", "pipefail", "-c", "a;b"]),
            [["a"], ["b"]]
        );
        assert_eq!(
            run(&["sh", "-c", "run \"$@\" $1", "name", "x y", "z"]),
            [["run", "x y", "z", "x", "y"]]
        );
        assert_eq!(
            run(&["sh", "-c", "a ${NO:-dflt} ${MODEL:-no} $NO \"$NO\""]),
            [["a", "dflt", "org/m", ""]]
        );
        assert_eq!(run(&["sh", "-c", "bash -c 'inner x'"]), [["inner", "x"]]);
        assert_eq!(
            run(&["sh", "-c", "a $(cat /x; y) b > /dev/null &"]),
            [["a", "$(cat /x; y)", "b"]]
        );
    }

    #[test]
    fn assignments_become_environment() {
        let argv: Vec<String> = ["sh", "-c", "export A=1; B=2 env C=3 run x=y"]
            .map(str::to_owned)
            .to_vec();
        let found = commands(&argv, &BTreeMap::new());
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].argv, ["run", "x=y"]);
        assert_eq!(found[0].env.keys().collect::<Vec<_>>(), ["A", "B", "C"]);
        let argv = ["/usr/bin/env", "A=1", "run", "B=2"].map(str::to_owned);
        let found = commands(&argv, &BTreeMap::new());
        assert_eq!(
            (found[0].argv.join(" "), found[0].env.len()),
            ("run B=2".to_owned(), 1)
        );
        assert_eq!(run(&["env"]), [[""; 0]]);
    }

    proptest! {
        #[test]
        fn never_panics(script in "\\PC{0,60}|[a-z$\"'{}()\\\\;&|> \n#`=:-]{0,60}") {
            run(&["sh", "-c", &script]);
        }
    }
}
