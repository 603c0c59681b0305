//! Files of Compose: the services in it that start something.

use super::{Launch, LaunchEntrypoint};
use crate::engine::command::split_words;
use crate::preset::GpuRequest;
use serde_yaml::{Mapping, Value};
use std::collections::BTreeMap;

/// Services that extend each other, up to this many.
const DEPTH: usize = 16;

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

/// The services of a file, those of other files that they extend read by `open`; `env` are the variables that are set.
///
/// # Errors
/// It is not YAML, or has no services.
pub fn read_services(
    text: &str,
    env: &BTreeMap<String, String>,
    open: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<Launch>, String> {
    let document = parse_yaml(text)?.into_iter().next().unwrap_or_default();
    let services = document.get("services").and_then(Value::as_mapping);
    let services = services.ok_or("it has no `services`")?;
    let mut all = Vec::new();
    for (name, service) in services {
        let service = extended(service, services, open, 0);
        let launch = read_named(name, env, |reader| reader.service(&service));
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
    Ok(all)
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

    fn service(&mut self, service: &Value) {
        let get = |key: &str| service.get(key);
        if let Some(image) = get("image") {
            self.launch.image = self.text(image, "the image");
        }
        let entrypoint = get("entrypoint").and_then(|e| self.words(e, "the entrypoint"));
        self.launch.entrypoint = entrypoint.map(LaunchEntrypoint::Words);
        self.launch.argv = get("command")
            .and_then(|c| self.words(c, "the command"))
            .unwrap_or_default();
        self.environment(get("environment"));
        for file in get("env_file").into_iter().flat_map(|f| match f {
            Value::Sequence(files) => files.clone(),
            one => vec![one.clone()],
        }) {
            let path = file.get("path").unwrap_or(&file);
            if let Some(path) = scalar(path) {
                self.launch.unresolved.push(format!("env_file {path}"));
            }
        }
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
        let deploy =
            get("deploy").and_then(|d| d.get("resources")?.get("reservations")?.get("devices"));
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
