//! What a launch starts: the engine, its settings by their common names, and what the container gives it.

use super::recipe::{RECIPES, Recipe, RecipeImage, find_image, recipe_of, version_of_image};
use super::{Launch, LaunchEntrypoint};
use crate::capture::ContainerFacts;
use crate::engine::argv::{Flags, Grammar, basename};
use crate::engine::command::{commands, is_unresolved, unresolved};
use crate::engine::settings::looks_secret;
use crate::engine::{self, EngineId, ServerSettings};
use crate::estimate::{Version, unmodelled};
use crate::preset::GpuRequest;
use crate::redact::Redactor;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// What a launch starts.
#[derive(Debug, Clone)]
pub struct ServerLaunch {
    /// The engine's name.
    pub engine: String,
    /// The engine that defines the flags; `None` if none reads it.
    pub reader: Option<EngineId>,
    /// What is not known of an engine without rules.
    pub missing: Option<String>,
    /// The release, where the image's tag is one.
    pub version: Option<String>,
    /// Entrypoint and words; `None` where the image's entrypoint is not known.
    pub serve_argv: Option<Vec<String>>,
    /// Its settings.
    pub settings: ServerSettings,
    /// Speculative decoding.
    pub speculative: Option<Value>,
    /// Sentences.
    pub warnings: Vec<String>,
}

impl ServerLaunch {
    /// Why its memory cannot be estimated; `None` for an engine with rules.
    pub fn why_not_estimated(&self) -> Option<String> {
        let missing = self.missing.as_ref()?;
        Some(format!(
            "the memory of {} cannot be estimated: plimsoll does not know {missing}",
            self.engine
        ))
    }
}

impl Launch {
    /// What it starts; `None` where nothing of it is known as an engine.
    pub fn server(&self) -> Option<ServerLaunch> {
        let image = self.image.as_deref().unwrap_or_default();
        let known = find_image(image);
        let version = version_of_image(image);
        let mut warnings = Vec::new();
        let serve_argv = self.command(known, version.as_deref(), &mut warnings);
        let argv = serve_argv.clone().unwrap_or_else(|| self.argv.clone());
        let (argv, loaded) = as_served(argv);
        let facts = ContainerFacts {
            image: image.to_owned(),
            argv: argv.clone(),
            env: self.env.clone(),
            ..ContainerFacts::default()
        };
        let own = RECIPES.engines.iter().find(|r| runs(r, &argv, &self.env));
        let recipe = own.or(known.map(|(r, _)| r));
        let (engine, reader, mut settings) = match recipe.filter(|r| r.missing.is_some()) {
            Some(recipe) => {
                let reader = recipe
                    .reads_as
                    .as_deref()
                    .and_then(|e| EngineId::from_name(e).ok());
                (
                    recipe.engine.clone(),
                    reader,
                    read_as(recipe, reader, &facts),
                )
            }
            None => {
                let (engine, _) = engine::recognise(&facts)?;
                (
                    engine.name.replace('_', "-"),
                    Some(engine),
                    (engine.settings)(&facts),
                )
            }
        };
        settings.model = settings.model.or(loaded);
        if let Some(recipe) = recipe.filter(|r| r.model_of_image) {
            let (repository, _) = super::recipe::split_image(image);
            let name = recipe.images.iter().flat_map(|i| &i.names);
            let name = name
                .filter_map(|n| repository.split_once(n.as_str()))
                .next();
            settings.model = settings.model.or(name.map(|(_, model)| model.to_owned()));
        }
        // Releases whose entrypoint is the module take the model by its flag alone.
        let bare = self.argv.first().filter(|w| !w.starts_with('-'));
        let module = known.is_some_and(|(_, image)| image.before.is_some());
        if let (None, Some(word), true) =
            (&settings.model, bare, module && self.entrypoint.is_none())
        {
            if serve_argv.as_ref().is_some_and(|argv| argv.contains(word)) {
                settings.model = Some(word.clone());
                warnings.push(format!(
                    "this release may serve its default model: name yours by `--model {word}`"
                ));
            }
        }
        if settings.model.as_deref().is_some_and(is_unresolved) {
            settings.model = None;
        }
        let speculative = speculation(&settings.values, &self.argv);
        Some(ServerLaunch {
            engine,
            reader,
            missing: recipe.and_then(|r| r.missing.clone()),
            version,
            serve_argv,
            settings,
            speculative,
            warnings,
        })
    }

    /// What runs: the entrypoint and the words.
    fn command(
        &self,
        known: Option<(&Recipe, &RecipeImage)>,
        version: Option<&str>,
        warnings: &mut Vec<String>,
    ) -> Option<Vec<String>> {
        let with = |entrypoint: Vec<String>| [entrypoint, self.argv.clone()].concat();
        if let Some(entrypoint) = &self.entrypoint {
            return Some(with(entrypoint.words()));
        }
        if self.image.is_none() {
            return Some(self.argv.clone());
        }
        let (_, image) = known?;
        let entrypoint = image.entrypoint_of(version);
        let first = self.argv.first().map(|w| basename(w));
        let program = entrypoint.first().map(|w| basename(w));
        let again = first.is_some()
            && !self.argv[0].starts_with('-')
            && program.is_some()
            && (first == program
                || first.is_some_and(|w| w.starts_with("python") || matches!(w, "bash" | "sh"))
                || first == Some("serve") && program == Some("vllm"));
        if again && program != Some("ollama") {
            warnings.push(format!(
                "it will not start: the image's entrypoint is `{}` already, so the words begin after it",
                entrypoint.join(" ")
            ));
            let skip = usize::from(first == Some("serve"));
            return Some(if skip == 1 {
                [entrypoint.to_vec(), self.argv[1..].to_vec()].concat()
            } else {
                self.argv.clone()
            });
        }
        if image.words && self.argv.first().is_some_and(|w| w.starts_with('-')) {
            warnings.push("it will not start: the image has no server as its entrypoint, so the words must begin with one".into());
        }
        if self.argv.is_empty() {
            return Some([entrypoint.to_vec(), image.cmd.clone()].concat());
        }
        Some(with(entrypoint.to_vec()))
    }

    /// The document of `--show-settings`; `None` where nothing of it is known as an engine.
    pub fn shown(&self) -> Option<Value> {
        let server = self.server()?;
        let mut launch = self.clone();
        let argv: Vec<String> = hide_secrets(&self.argv, &mut launch);
        let serve_argv = server
            .serve_argv
            .as_ref()
            .map(|a| hide_secrets(a, &mut launch));
        for word in &self.argv {
            for open in unresolved(word) {
                if self.argv.iter().any(|w| w == word)
                    && !launch.secrets.iter().any(|s| open.contains(s.as_str()))
                {
                    launch.unresolved.push(format!("{open} (in the command)"));
                }
            }
        }
        // A script's own variables are the container's, and known there.
        if self
            .argv
            .iter()
            .chain(self.entrypoint_words().iter())
            .any(|w| w.contains('\n'))
            || is_script(&server.serve_argv)
        {
            launch
                .unresolved
                .retain(|u| !u.ends_with("(in the command)"));
        }
        let entrypoint = match &self.entrypoint {
            Some(LaunchEntrypoint::Word(word)) => json!(word),
            Some(LaunchEntrypoint::Words(words)) => json!(words),
            None => Value::Null,
        };
        let visible: BTreeMap<&String, &String> = (self.env.iter())
            .filter(|(name, _)| RECIPES.visible_env.contains(name))
            .collect();
        let recipe = recipe_of(&server.engine);
        let memory_env: BTreeMap<&String, &String> = (self.env.iter())
            .filter(|(name, _)| {
                RECIPES.torch_env.contains(name)
                    || recipe.is_some_and(|r| r.memory_env.contains(name))
            })
            .collect();
        let settings = shown_settings(&server);
        let mut gpus = Map::new();
        gpus.insert("request".into(), self.request());
        gpus.insert("needed".into(), json!(self.needed(&server, &settings)));
        if !visible.is_empty() {
            gpus.insert("visible".into(), json!(visible));
        }
        let mut warnings = server.warnings.clone();
        warnings.extend(launch.warnings.clone());
        if self.shm_bytes.is_some() && self.ipc.as_deref() == Some("host") {
            warnings
                .push("the size of /dev/shm has no effect beside the host's IPC namespace".into());
        }
        warnings.extend(server.why_not_estimated());
        let version = server.version.as_deref().and_then(Version::leading);
        if let Some(reader) = server.reader.filter(|_| server.missing.is_none()) {
            let values = &server.settings.values;
            warnings.extend(unmodelled::foreign_flags(reader, version, values, false));
        }
        let engine = server
            .reader
            .map(|r| unmodelled::unknown_flags(r, &server.settings.values));
        launch.unknown_flags.extend(engine.unwrap_or_default());
        Some(json!({
            "engine": server.engine,
            "version": server.version,
            "image": self.image,
            "argv": argv,
            "serve_argv": serve_argv,
            "entrypoint": entrypoint,
            "model": server.settings.model,
            "settings": settings,
            "speculative": server.speculative,
            "gpus": gpus,
            "shm": {"size_bytes": self.shm_bytes, "ipc": self.ipc},
            "memory_env": memory_env,
            "secrets": launch.secrets,
            "unresolved": launch.unresolved,
            "unknown_flags": launch.unknown_flags,
            "warnings": warnings,
            "service": self.service,
        }))
    }

    fn entrypoint_words(&self) -> Vec<String> {
        self.entrypoint
            .as_ref()
            .map(LaunchEntrypoint::words)
            .unwrap_or_default()
    }

    fn request(&self) -> Value {
        match &self.gpus {
            Some(GpuRequest::All) => json!("all"),
            Some(GpuRequest::Count(n)) => json!({"count": n}),
            Some(GpuRequest::Ids(ids)) => json!({"ids": ids}),
            Some(GpuRequest::None) | None if self.amd => json!("amd-devices"),
            Some(GpuRequest::None) | None => Value::Null,
        }
    }

    /// GPUs that the parallel sizes take; an engine that places layers itself takes what it gets.
    fn needed(&self, server: &ServerLaunch, settings: &Map<String, Value>) -> Option<u64> {
        let cpu = self.image.as_deref().is_some_and(|i| i.contains("cpu"));
        if cpu && self.gpus.is_none() {
            return Some(0);
        }
        if server.settings.model.is_none()
            && matches!(server.engine.as_str(), "ollama" | "docker-model-runner")
        {
            return None;
        }
        let of = |name: &str| settings.get(name).and_then(Value::as_u64).unwrap_or(1);
        let dp = if settings.contains_key("enable_dp_attention") {
            1
        } else {
            of("data_parallel_size")
        };
        let sizes = [
            "tensor_parallel_size",
            "pipeline_parallel_size",
            "prefill_context_parallel_size",
            "context_parallel_size",
        ];
        Some(sizes.iter().map(|s| of(s)).product::<u64>() * dp)
    }
}

fn is_script(argv: &Option<Vec<String>>) -> bool {
    let argv = argv.as_deref().unwrap_or_default();
    commands(argv, &BTreeMap::new())
        .first()
        .is_some_and(|c| c.argv != argv)
}

/// The words of a program that loads a model for one user as those of the server that loads it in the same way, and the
/// model that they name.
fn as_served(argv: Vec<String>) -> (Vec<String>, Option<String>) {
    let all = RECIPES.engines.iter().flat_map(|r| &r.like_server);
    let is = |words: &[String]| {
        let own = argv.iter().map(|w| basename(w)).take(words.len());
        own.eq(words.iter().map(String::as_str))
    };
    let Some(like) = all.into_iter().find(|like| is(&like.words)) else {
        return (argv, None);
    };
    let rest = argv[like.words.len()..].to_vec();
    let first = rest.iter().find(|w| !w.starts_with('-')).cloned();
    let model = first.filter(|_| like.names_model);
    let rest = if like.names_model { Vec::new() } else { rest };
    ([like.server.clone(), rest].concat(), model)
}

/// Whether these words, or words in their script, begin with the program of an engine that none of ours reads.
fn runs(recipe: &Recipe, argv: &[String], env: &BTreeMap<String, String>) -> bool {
    let Some(first) = recipe.program.first() else {
        return false;
    };
    commands(argv, env).iter().any(|command| {
        let mut windows = command.argv.windows(recipe.program.len());
        windows.any(|w| basename(&w[0]) == first && w[1..] == recipe.program[1..])
    })
}

/// Settings of an engine that is read as another, or by the recipe's own names.
fn read_as(recipe: &Recipe, reader: Option<EngineId>, facts: &ContainerFacts) -> ServerSettings {
    let all = commands(&facts.argv, &facts.env);
    let begins = |argv: &[String]| {
        let n = recipe.program.len();
        let at = argv.windows(n.max(1)).position(|w| {
            n > 0 && basename(&w[0]) == recipe.program[0] && w[1..] == recipe.program[1..]
        })?;
        Some(at + n)
    };
    let found = all.iter().find_map(|c| Some((c, begins(&c.argv)?)));
    if let Some(reader) = reader {
        let mut facts = facts.clone();
        // Its own program is in the place of the engine's.
        if let Some((command, at)) = found.filter(|_| !recipe.program[0].starts_with('-')) {
            facts.argv = [reader.server_program(), command.argv[at..].to_vec()].concat();
        }
        return (reader.settings)(&facts);
    }
    let mut settings = ServerSettings::default();
    let words = match found {
        Some((command, at)) => &command.argv[at..],
        None => &facts.argv,
    };
    // What follows `--` are the flags of the engine within.
    let words: Vec<String> = words.iter().filter(|w| *w != "--").cloned().collect();
    let switches = "switch\n  trust_remote_code enable_prefix_caching eager_mode disable_metrics dry_run\nalias\n  tp tp\n";
    let flags = Flags::read(&words, &Grammar::from_table(switches));
    let verbs = ["run", "configure", "serve", "start-runner", "pull"];
    let positional = flags
        .positionals
        .iter()
        .find(|w| !verbs.contains(&w.as_str()) && !w.contains(' '));
    let model = flags
        .value("model")
        .or(flags.value("model_path"))
        .map(str::to_owned);
    settings.model = model.or(positional.cloned().filter(|_| !recipe.model_of_image));
    for (name, value) in flags.texts(&["api_key", "api_keys"]) {
        settings.values.insert(name, value);
    }
    let own = facts
        .env
        .iter()
        .filter(|(name, _)| recipe.settings.contains_key(*name));
    settings
        .values
        .extend(own.map(|(n, v)| (n.clone(), v.clone())));
    settings
}

/// The settings that move memory or place the model, by their common names.
fn shown_settings(server: &ServerLaunch) -> Map<String, Value> {
    let recipe = recipe_of(&server.engine);
    let mut all = Map::new();
    for (name, value) in &server.settings.values {
        if is_unresolved(value) || is_speculation(name) {
            continue;
        }
        let common = server.reader.and_then(|r| unmodelled::shown_name(r, name));
        let shown = common.or_else(|| recipe.and_then(|r| r.settings.get(name).cloned()));
        if let Some(shown) = shown {
            all.insert(shown, typed(value));
        }
    }
    all
}

/// A text as the number, switch or object that it is.
fn typed(text: &str) -> Value {
    let trimmed = text.trim();
    let number = trimmed.parse::<i64>().map(Value::from);
    if let Ok(number) = number {
        return number;
    }
    match trimmed {
        "true" | "True" => return json!(true),
        "false" | "False" => return json!(false),
        _ => {}
    }
    let plain = trimmed.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    if let Some(number) = trimmed
        .parse::<f64>()
        .ok()
        .filter(|n| plain && n.is_finite())
    {
        return json!(number);
    }
    if trimmed.starts_with(['{', '[']) {
        if let Ok(value) = serde_json::from_str(trimmed) {
            return value;
        }
    }
    let words: Option<Vec<i64>> = trimmed.split(' ').map(|w| w.parse().ok()).collect();
    match words {
        Some(words) if words.len() > 1 => json!(words),
        _ => json!(text),
    }
}

fn is_speculation(name: &str) -> bool {
    let mut flags = RECIPES.speculation.iter().flat_map(|(_, flags)| flags);
    name.starts_with("speculative_") || flags.any(|flag| flag == name)
}

/// Speculative decoding, `only_by_running_the_script` where the line's own words do not ask for it.
fn speculation(values: &BTreeMap<String, String>, words: &[String]) -> Option<Value> {
    let config = values.get("speculative_config").map(|text| typed(text));
    let mut all = match config {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    };
    for (common, flags) in &RECIPES.speculation {
        let mut given = flags.iter().filter_map(|flag| values.get(flag));
        if let Some(value) = given.find(|v| !is_unresolved(v)) {
            all.entry(common).or_insert_with(|| typed(value));
        }
    }
    for (name, value) in values {
        if let Some(key) = name.strip_prefix("speculative_config.") {
            all.entry(key).or_insert_with(|| typed(value));
        }
    }
    if all.is_empty() {
        return None;
    }
    let named = |w: &String| w.contains("spec") || w.contains("draft") || w == "-md" || w == "-sc";
    if !words.is_empty() && !words.iter().any(named) {
        all.insert("only_by_running_the_script".into(), json!(true));
    }
    Some(Value::Object(all))
}

/// The words without the values of secrets, whose names are kept.
fn hide_secrets(words: &[String], launch: &mut Launch) -> Vec<String> {
    let mut hidden = Vec::new();
    let mut next_is_secret = false;
    let redactor = Redactor::new([]);
    for word in words {
        if std::mem::take(&mut next_is_secret) {
            let open = is_unresolved(word);
            hidden.push(if open {
                word.clone()
            } else {
                "[redacted]".to_owned()
            });
            continue;
        }
        let (flag, value) = word
            .split_once('=')
            .map_or((word.as_str(), None), |(f, v)| (f, Some(v)));
        let name = flag
            .trim_start_matches('-')
            .replace('-', "_")
            .to_ascii_uppercase();
        if flag.starts_with("--") && looks_secret(&name) {
            launch.add_secret(flag);
            next_is_secret = value.is_none();
            hidden.push(value.map_or_else(|| word.clone(), |_| format!("{flag}=[redacted]")));
            continue;
        }
        hidden.push(redactor.redact_text(word).into_owned());
    }
    hidden
}
