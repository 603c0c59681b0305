//! What process 1 really runs: the simple commands inside `sh -c '…'`, an init or a wrapper.

use super::argv::basename;
use std::collections::BTreeMap;

/// Nesting depth up to which shells inside shells are parsed.
const DEPTH: usize = 4;
/// A script with more commands than this is not a start command.
const MAX_COMMANDS: usize = 256;

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
    unfold(
        Command {
            env: BTreeMap::new(),
            argv: argv.to_vec(),
        },
        env,
        0,
        &mut found,
    );
    found
}

fn unfold(
    command: Command,
    env: &BTreeMap<String, String>,
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
            let mut shell = Shell {
                env: scope,
                arguments,
                assigned: BTreeMap::new(),
            };
            for inner in shell.run(script) {
                unfold(inner, env, depth + 1, found);
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

/// The script of `… sh -c SCRIPT [NAME [ARGUMENTS]]` and its arguments.
fn script(argv: &[String]) -> Option<(&str, Vec<String>)> {
    let shell = argv
        .iter()
        .position(|w| matches!(basename(w), "sh" | "bash" | "dash" | "ash" | "zsh"))?;
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

/// As much of a shell as start commands use: quotes, separators, assignments, `$NAME`.
struct Shell {
    env: BTreeMap<String, String>,
    arguments: Vec<String>,
    assigned: BTreeMap<String, String>,
}

impl Shell {
    fn run(&mut self, script: &str) -> Vec<Command> {
        let mut commands = Vec::new();
        for words in split_commands(script) {
            if commands.len() >= MAX_COMMANDS {
                break;
            }
            let mut argv: Vec<String> = Vec::new();
            let mut own = BTreeMap::new();
            let mut exported = false;
            let mut skip = false;
            for word in &words {
                if std::mem::take(&mut skip) {
                    continue;
                }
                if let Some(target_follows) = redirection(word) {
                    skip = target_follows;
                    continue;
                }
                let expanded = self.expand(word);
                match expanded.first().and_then(|w| assignment(w)) {
                    Some((name, value)) if argv.is_empty() => {
                        own.insert(name.to_owned(), value.to_owned());
                    }
                    _ => match expanded.first().map(String::as_str) {
                        Some(word @ ("export" | "env")) if argv.is_empty() => {
                            exported |= word == "export"
                        }
                        _ => argv.extend(expanded),
                    },
                }
            }
            if argv.is_empty() || exported {
                self.env.extend(own.clone());
                self.assigned.extend(own);
            } else {
                let mut env = self.assigned.clone();
                env.extend(own);
                commands.push(Command { env, argv });
            }
        }
        commands
    }

    /// Expands one raw word: to none or several words where a bare `$NAME` is split.
    fn expand(&self, raw: &str) -> Vec<String> {
        if matches!(raw, "$@" | "\"$@\"" | "$*" | "\"${@}\"" | "${@}") {
            return self.arguments.clone();
        }
        let mut words = vec![String::new()];
        let mut kept = false;
        let mut quote = None;
        let mut chars = raw.chars().peekable();
        while let Some(c) = chars.next() {
            let last = words.len() - 1;
            match (c, quote) {
                ('\'' | '"', None) => (quote, kept) = (Some(c), true),
                (_, Some(q)) if q == c => quote = None,
                ('\\', None | Some('"')) => {
                    if let Some(next) = chars.next() {
                        if next != '\n' {
                            words[last].push(next);
                        }
                    }
                }
                ('$', None | Some('"')) => {
                    let value = self.variable(&mut chars);
                    if quote.is_some() {
                        words[last].push_str(&value);
                    } else {
                        let mut parts = value.split_whitespace();
                        words[last].push_str(parts.next().unwrap_or_default());
                        words.extend(parts.map(str::to_owned));
                    }
                }
                _ => words[last].push(c),
            }
        }
        words.retain(|w| kept || !w.is_empty());
        words
    }

    /// The value of what follows a `$`; an unknown one is empty, as in a shell.
    fn variable(&self, chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> String {
        let mut name = String::new();
        if chars.next_if_eq(&'{').is_some() {
            let mut inner = String::new();
            for c in chars.by_ref().take_while(|c| *c != '}') {
                inner.push(c);
            }
            let end = inner
                .find(|c: char| !(c.is_alphanumeric() || c == '_'))
                .unwrap_or(inner.len());
            let default = inner[end..]
                .trim_start_matches(':')
                .strip_prefix('-')
                .map(str::to_owned);
            inner.truncate(end);
            return self
                .lookup(&inner)
                .filter(|v| !v.is_empty())
                .or(default)
                .unwrap_or_default();
        }
        while let Some(c) = chars.next_if(|c| c.is_alphanumeric() || *c == '_') {
            name.push(c);
        }
        if name.is_empty() {
            "$".to_owned()
        } else {
            self.lookup(&name).unwrap_or_default()
        }
    }

    fn lookup(&self, name: &str) -> Option<String> {
        match name.parse::<usize>() {
            Ok(n) => self.arguments.get(n.checked_sub(1)?).cloned(),
            Err(_) => self.env.get(name).cloned(),
        }
    }
}

/// `NAME=value` → both.
fn assignment(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let valid = !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    valid.then_some((name, value))
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

/// Raw words (quotes still in them) of each simple command of a script.
fn split_commands(script: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word = String::new();
    let mut quote = None;
    let mut nested = 0_u32;
    let mut chars = script.chars().peekable();
    while let Some(c) = chars.next() {
        if let Some(q) = quote {
            word.push(c);
            if c == '\\' && q == '"' {
                word.extend(chars.next());
            } else if c == q {
                quote = None;
            }
            continue;
        }
        match c {
            '\\' if chars.next_if_eq(&'\n').is_some() => {}
            '\\' => {
                word.push(c);
                word.extend(chars.next());
            }
            '\'' | '"' | '`' => {
                quote = Some(c);
                word.push(c);
            }
            // `$(…)` stays one word: its text is unknown anyway.
            '(' if nested > 0 || word.ends_with('$') => {
                nested += 1;
                word.push(c);
            }
            ')' if nested > 0 => {
                nested -= 1;
                word.push(c);
            }
            _ if nested > 0 => word.push(c),
            '#' if word.is_empty() => while chars.next_if(|c| *c != '\n').is_some() {},
            // `2>&1`, `&>file`: no separator.
            '&' if word.ends_with('>') || chars.peek() == Some(&'>') => word.push(c),
            ';' | '&' | '|' | '\n' | '(' | ')' => {
                end_word(&mut commands, &mut word);
                commands.push(Vec::new());
            }
            c if c.is_whitespace() => end_word(&mut commands, &mut word),
            _ => word.push(c),
        }
    }
    end_word(&mut commands, &mut word);
    commands.retain(|c| !c.is_empty());
    commands
}

fn end_word(commands: &mut [Vec<String>], word: &mut String) {
    if !word.is_empty() {
        if let Some(last) = commands.last_mut() {
            last.push(std::mem::take(word));
        }
    }
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
