//! Files of Compose: the services in it that start something.

use super::docker::lists_word;
use super::{Launch, LaunchEntrypoint};
use crate::engine::command::split_words;
use crate::preset::GpuRequest;
use serde_yaml::{Mapping, Value};
use std::collections::BTreeMap;
use std::path::Path;

/// Services that extend each other, up to this many.
const DEPTH: usize = 16;

/// Keys of a service that are read, or that a container of `plimsoll run` has its own of.
const KEYS: &str = "image entrypoint command environment env_file shm_size ipc runtime volumes ports devices deploy gpus \
    depends_on mem_limit cap_add security_opt ulimits extends provider build container_name restart healthcheck labels \
    annotations profiles pull_policy stop_grace_period stop_signal expose tty stdin_open init logging";

/// A YAML document of a person, its anchors and merges resolved.
///
/// # Errors
/// It is not YAML.
pub fn parse_yaml(text: &str) -> Result<Vec<Value>, String> {
    use serde::Deserialize;
    if crate::preset::directive_line(text).is_some() {
        return Err("a YAML directive (`%…`) is not supported in it".into());
    }
    let mut all = Vec::new();
    for document in serde_yaml::Deserializer::from_str(text) {
        let mut value = Value::deserialize(document).map_err(|e| e.to_string())?;
        value.apply_merge().map_err(|e| e.to_string())?;
        all.push(value);
    }
    Ok(all)
}

/// The services of a file in `folder`, an absolute path, the files that they name read by `open`; `env` are the variables
/// of the shell, which win over those of the file `.env`.
///
/// # Errors
/// It is not YAML, or has no services.
pub fn read_services(
    text: &str,
    env: &BTreeMap<String, String>,
    folder: &Path,
    open: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<Launch>, String> {
    let mut known: BTreeMap<String, String> =
        open(".env").map_or_else(BTreeMap::new, |text| read_variables(&text).collect());
    known.extend(env.clone());
    let env = &known;
    let document = parse_yaml(text)?.into_iter().next().unwrap_or_default();
    let services = document.get("services").and_then(Value::as_mapping);
    let services = services.ok_or("it has no `services`")?;
    let mut all = Vec::new();
    for (name, service) in services {
        let service = extended(service, services, open, 0);
        let mut launch = read_named(name, env, |reader| reader.service(&service, open));
        let mounts = launch.mounts.iter();
        let mounts = mounts.map(|m| placed_mount(m, &document, folder, env));
        launch.mounts = mounts.collect();
        all.push(launch);
    }
    // Docker Model Runner's, of the file and as a provider.
    let providers = services.iter().filter_map(|(name, service)| {
        let provider = service.get("provider")?;
        let model = provider.get("type").and_then(Value::as_str) == Some("model");
        Some((name, provider.get("options").filter(|_| model)?))
    });
    let models = document.get("models").and_then(Value::as_mapping);
    for (name, model) in models.into_iter().flatten().chain(providers) {
        let launch = read_named(name, env, |reader| reader.model(model));
        all.retain(|l: &Launch| l.service != launch.service);
        all.push(launch);
    }
    depend_through(&mut all);
    Ok(all)
}

/// Also what is needed through other services: these may start no engine.
fn depend_through(all: &mut [Launch]) {
    let direct: BTreeMap<String, Vec<String>> = (all.iter())
        .filter_map(|launch| Some((launch.service.clone()?, launch.after.clone())))
        .collect();
    for launch in all {
        let mut at = 0;
        while let Some(name) = launch.after.get(at) {
            let further = direct.get(name).into_iter().flatten();
            let new: Vec<String> = further
                .filter(|n| !launch.after.contains(n) && launch.service.as_ref() != Some(n))
                .cloned()
                .collect();
            launch.after.extend(new);
            at += 1;
        }
    }
}

/// The variables of a file of them.
pub(super) fn read_variables(text: &str) -> impl Iterator<Item = (String, String)> {
    text.lines().filter_map(|line| {
        let line = line.trim();
        let (name, value) = line
            .strip_prefix("export ")
            .unwrap_or(line)
            .split_once('=')?;
        let value = value.trim();
        let quoted = ['"', '\'']
            .into_iter()
            .find_map(|q| value.strip_prefix(q)?.split(q).next());
        let value = quoted.unwrap_or_else(|| value.split(" #").next().unwrap_or_default().trim());
        (!line.starts_with('#')).then(|| (name.trim().to_owned(), value.to_owned()))
    })
}

/// A mount as Docker takes it: Compose's paths begin at its file, and its volumes have the project's name before theirs.
fn placed_mount(
    mount: &str,
    document: &Value,
    folder: &Path,
    env: &BTreeMap<String, String>,
) -> String {
    let Some((source, rest)) = mount.split_once(':') else {
        return mount.to_owned();
    };
    let volume = || {
        let volume = document.get("volumes")?.get(source)?;
        if let Some(name) = volume.get("name").and_then(scalar) {
            return Some(name);
        }
        let external = volume.get("external").and_then(Value::as_bool) == Some(true);
        let named = document.get("name").and_then(scalar);
        let project = named.or_else(|| env.get("COMPOSE_PROJECT_NAME").cloned());
        let project = project.or_else(|| Some(folder.file_name()?.to_str()?.to_lowercase()))?;
        let legal = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let project: String = project.chars().filter(legal).collect();
        (!external).then(|| format!("{project}_{source}"))
    };
    let placed = match source.strip_prefix('~') {
        Some(below) => env.get("HOME").map(|home| format!("{home}{below}")),
        None if source.starts_with('.') => {
            let path = folder.join(source.trim_start_matches("./"));
            Some(path.display().to_string())
        }
        None => volume(),
    };
    format!("{}:{rest}", placed.as_deref().unwrap_or(source))
}

/// The service with what it extends below it.
fn extended(
    service: &Value,
    siblings: &Mapping,
    open: &dyn Fn(&str) -> Option<String>,
    depth: usize,
) -> Value {
    let base = service.get("extends").filter(|_| depth < DEPTH);
    let Some(base) = base else {
        return service.clone();
    };
    let name = base.as_str().or_else(|| base.get("service")?.as_str());
    let file = base.get("file").and_then(Value::as_str);
    let other = file.and_then(open).and_then(|text| parse_yaml(&text).ok());
    let other = other.and_then(|all| all.into_iter().next());
    let siblings = match (&other, file) {
        (Some(document), _) => document.get("services").and_then(Value::as_mapping),
        (None, Some(_)) => None,
        (None, None) => Some(siblings),
    };
    let found = siblings.and_then(|s| Some((s, s.get(name?)?)));
    match found {
        Some((siblings, base)) => merged(&extended(base, siblings, open, depth + 1), service),
        None => service.clone(),
    }
}

fn merged(base: &Value, over: &Value) -> Value {
    match (base, over) {
        (Value::Mapping(base), Value::Mapping(over)) => {
            let mut all = base.clone();
            for (key, value) in over {
                let replaces = matches!(key.as_str(), Some("command" | "entrypoint"));
                let value = match base.get(key) {
                    Some(own) if !replaces => merged(own, value),
                    _ => value.clone(),
                };
                all.insert(key.clone(), value);
            }
            Value::Mapping(all)
        }
        (Value::Sequence(base), Value::Sequence(over)) => {
            Value::Sequence(base.iter().chain(over).cloned().collect())
        }
        _ => over.clone(),
    }
}

/// A scalar as text.
pub(super) fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(n) => Some(n.to_string()),
        Value::Bool(b) => Some(b.to_string()),
        Value::Tagged(tagged) => scalar(&tagged.value),
        _ => None,
    }
}

/// The service or model of a name, as `read` takes it.
fn read_named(
    name: &Value,
    env: &BTreeMap<String, String>,
    read: impl FnOnce(&mut Reader<'_>),
) -> Launch {
    let mut launch = Launch {
        service: name.as_str().map(str::to_owned),
        ..Launch::default()
    };
    read(&mut Reader {
        env,
        launch: &mut launch,
    });
    launch
}

struct Reader<'a> {
    env: &'a BTreeMap<String, String>,
    launch: &'a mut Launch,
}

impl Reader<'_> {
    /// A scalar with its variables put in.
    fn text(&mut self, value: &Value, place: &str) -> Option<String> {
        let text = scalar(value)?;
        let mut unset = Vec::new();
        let text = interpolated(&text, self.env, &mut unset, 0);
        for name in unset {
            self.launch
                .unresolved
                .push(format!("${{{name}}} ({place})"));
        }
        Some(text)
    }

    fn texts(&mut self, value: Option<&Value>, place: &str) -> Vec<String> {
        let list = value.and_then(Value::as_sequence).into_iter().flatten();
        list.filter_map(|v| self.text(v, place)).collect()
    }

    /// A command: a string is split as a shell splits.
    fn words(&mut self, value: &Value, place: &str) -> Option<Vec<String>> {
        match value {
            Value::Null => None,
            Value::Sequence(_) => Some(self.texts(Some(value), place)),
            _ => Some(split_words(&self.text(value, place)?)),
        }
    }

    fn service(&mut self, service: &Value, open: &dyn Fn(&str) -> Option<String>) {
        let get = |key: &str| service.get(key);
        let keys = service.as_mapping().into_iter().flatten();
        let keys = keys.filter_map(|(key, _)| key.as_str());
        let other = keys.filter(|k| !k.starts_with("x-") && !lists_word(KEYS, k));
        self.launch.left_out = other.map(str::to_owned).collect();
        self.launch.after = match get("depends_on") {
            Some(Value::Mapping(map)) => map.keys().filter_map(scalar).collect(),
            list => self.texts(list, "depends_on"),
        };
        if let Some(image) = get("image") {
            self.launch.image = self.text(image, "the image");
        }
        let entrypoint = get("entrypoint").and_then(|e| self.words(e, "the entrypoint"));
        self.launch.entrypoint = entrypoint.map(LaunchEntrypoint::Words);
        self.launch.argv = get("command")
            .and_then(|c| self.words(c, "the command"))
            .unwrap_or_default();
        for file in get("env_file").into_iter().flat_map(|f| match f {
            Value::Sequence(files) => files.clone(),
            one => vec![one.clone()],
        }) {
            let path = file.get("path").unwrap_or(&file);
            let Some(path) = self.text(path, "env_file") else {
                continue;
            };
            match open(&path) {
                Some(text) => read_variables(&text).for_each(|(n, v)| self.launch.set_env(&n, &v)),
                None => self.launch.unresolved.push(format!("env_file {path}")),
            }
        }
        // They win over those of the files.
        self.environment(get("environment"));
        if let Some(size) = get("shm_size").and_then(|s| self.text(s, "shm_size")) {
            self.launch.set_shm(&size);
        }
        self.launch.ipc = get("ipc").and_then(|v| self.text(v, "ipc"));
        self.launch.runtime = get("runtime").and_then(|v| self.text(v, "runtime"));
        for mount in get("volumes")
            .and_then(Value::as_sequence)
            .into_iter()
            .flatten()
        {
            let short = self.text(mount, "only in a mount");
            let long = || {
                let part = |key| mount.get(key).and_then(scalar);
                Some(format!("{}:{}", part("source")?, part("target")?))
            };
            self.launch.mounts.extend(short.or_else(long));
        }
        self.launch.ports = self.texts(get("ports"), "only in a port");
        for device in self.texts(get("devices"), "a device") {
            self.launch.add_device(&device);
        }
        self.launch.cap_add = self.texts(get("cap_add"), "cap_add");
        self.launch.security_opt = self.texts(get("security_opt"), "security_opt");
        let ulimits = get("ulimits").and_then(Value::as_mapping);
        for (name, limit) in ulimits.into_iter().flatten() {
            let limit = limit.get("soft").unwrap_or(limit);
            if let (Some(name), Some(limit)) = (scalar(name), limit.as_i64()) {
                self.launch.ulimits.insert(name, limit);
            }
        }
        let resources = get("deploy").and_then(|d| d.get("resources"));
        let limit = resources.and_then(|r| r.get("limits")?.get("memory"));
        let limit = get("mem_limit").or(limit);
        self.launch.memory = limit.and_then(|l| self.text(l, "the memory limit"));
        let deploy = resources.and_then(|r| r.get("reservations")?.get("devices"));
        // `gpus` adds the capability itself.
        for (requests, capable) in [(deploy, false), (get("gpus"), true)] {
            requests.into_iter().for_each(|r| self.gpus(r, capable));
        }
    }

    /// A model of Docker Model Runner, as its command line would start it.
    fn model(&mut self, model: &Value) {
        let mut argv = ["docker", "model", "configure"].map(str::to_owned).to_vec();
        let mut text = |key: &str| model.get(key).and_then(|v| self.text(v, "the model"));
        if let Some(size) = text("context_size") {
            argv.extend(["--context-size".to_owned(), size]);
        }
        argv.extend(text("model"));
        argv.push("--".into());
        argv.extend(self.texts(model.get("runtime_flags"), "the model"));
        self.launch.argv = argv;
    }

    fn environment(&mut self, environment: Option<&Value>) {
        match environment {
            Some(Value::Mapping(map)) => {
                for (name, value) in map {
                    let name = scalar(name).unwrap_or_default();
                    match value {
                        Value::Null => self.passed(&name),
                        value => self.set(&name, value),
                    }
                }
            }
            Some(Value::Sequence(list)) => {
                for entry in list.iter().filter_map(scalar) {
                    match entry.split_once('=') {
                        Some((name, value)) => self.set(name, &Value::String(value.to_owned())),
                        None => self.passed(&entry),
                    }
                }
            }
            _ => {}
        }
    }

    fn set(&mut self, name: &str, value: &Value) {
        let mut unset = Vec::new();
        let text = scalar(value).unwrap_or_default();
        let text = interpolated(&text, self.env, &mut unset, 0);
        if unset.is_empty() || crate::engine::settings::looks_secret(name) {
            self.launch.set_env(name, &text);
        } else {
            let unset = unset
                .iter()
                .map(|u| format!("${{{u}}} (the variable {name})"));
            self.launch.unresolved.extend(unset);
        }
    }

    /// A variable without a value: the environment's, and none where that has none.
    fn passed(&mut self, name: &str) {
        match self.env.get(name) {
            Some(value) => self.launch.set_env(name, value),
            None if crate::engine::settings::looks_secret(name) => self.launch.add_secret(name),
            None => {}
        }
    }

    fn gpus(&mut self, requests: &Value, capable: bool) {
        if let Some(text) = self.text(requests, "the GPUs") {
            self.launch.set_gpus(&text);
            return;
        }
        for request in requests.as_sequence().into_iter().flatten() {
            let driver = request.get("driver").and_then(scalar).unwrap_or_default();
            let capabilities = self.texts(request.get("capabilities"), "the GPUs");
            let gpu = capabilities.iter().any(|c| c == "gpu" || c == "compute");
            if !(capable || gpu || matches!(driver.as_str(), "nvidia" | "cdi" | "amd")) {
                continue;
            }
            let ids = self.texts(request.get("device_ids"), "the GPUs");
            let ids: Vec<String> = ids
                .iter()
                .flat_map(|i| i.split(','))
                .map(|i| i.rsplit('=').next().unwrap_or(i).trim().to_owned())
                .collect();
            let count = request.get("count").and_then(|c| self.text(c, "the GPUs"));
            self.launch.gpus = Some(match (count.as_deref(), ids.is_empty()) {
                (_, false) if ids == ["all"] => GpuRequest::All,
                (_, false) => GpuRequest::Ids(ids),
                (Some(n), true) => n.parse().map_or(GpuRequest::All, GpuRequest::Count),
                (None, true) => GpuRequest::All,
            });
        }
    }
}

/// A text with Compose's variables put in: `${A}`, `${A:-d}`, `${A-d}`, `${A:+x}`, `$A`, `$$`; the names of those
/// without a value go into `unset`.
pub fn interpolated(
    text: &str,
    env: &BTreeMap<String, String>,
    unset: &mut Vec<String>,
    depth: usize,
) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        shown.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            shown.push('$');
            rest = after;
        } else if let Some(inner) = rest.strip_prefix('{') {
            let mut open = 1;
            let end = inner.char_indices().find(|(_, c)| {
                open += i32::from(*c == '{') - i32::from(*c == '}');
                open == 0
            });
            let Some((end, _)) = end else {
                shown.push('$');
                continue;
            };
            let body = &inner[..end];
            rest = &inner[end + 1..];
            let name_end = body
                .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
                .unwrap_or(body.len());
            let (name, operation) = body.split_at(name_end);
            let (colon, operation) = match operation.strip_prefix(':') {
                Some(operation) => (true, operation),
                None => (false, operation),
            };
            let value = env.get(name).filter(|v| !(colon && v.is_empty()));
            match (operation.chars().next(), value) {
                (Some('+'), Some(_)) | (Some('-'), None) if depth < DEPTH => {
                    shown += &interpolated(&operation[1..], env, unset, depth + 1);
                }
                (Some('+'), _) => {}
                (_, Some(value)) => shown += value,
                (_, None) => unset.push(name.to_owned()),
            }
        } else {
            let end = rest
                .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
                .unwrap_or(rest.len());
            let (name, after) = rest.split_at(end);
            rest = after;
            match env.get(name) {
                _ if name.is_empty() => shown.push('$'),
                Some(value) => shown += value,
                None => unset.push(name.to_owned()),
            }
        }
    }
    shown + rest
}
