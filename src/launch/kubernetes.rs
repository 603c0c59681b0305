//! Manifests of Kubernetes: the containers of the pods in them.

use super::compose::{parse_yaml, scalar};
use super::{Launch, LaunchEntrypoint};
use crate::engine::settings::looks_secret;
use crate::preset::GpuRequest;
use crate::units::Bytes;
use serde_yaml::Value;

/// The deepest place of a pod within an object.
const DEPTH: usize = 16;

/// The containers of a manifest.
///
/// # Errors
/// It is not YAML, or has no container.
pub fn read_manifest(text: &str) -> Result<Vec<Launch>, String> {
    let mut all = Vec::new();
    for object in parse_yaml(text)? {
        find_pods(&object, 0, &mut all);
    }
    if all.is_empty() {
        return Err("it has no pod with a container".into());
    }
    Ok(all)
}

/// Each kind of object has its pods elsewhere: a pod is what has `containers`.
fn find_pods(value: &Value, depth: usize, all: &mut Vec<Launch>) {
    let below: Vec<&Value> = match value {
        _ if depth > DEPTH => return,
        Value::Mapping(map) => map.values().collect(),
        Value::Sequence(list) => list.iter().collect(),
        _ => return,
    };
    let containers = value.get("containers").and_then(Value::as_sequence);
    // KServe's model is a container whose image its runtime has.
    let containers = containers.into_iter().flatten().chain(
        value
            .get("model")
            .filter(|m| m.get("modelFormat").is_some()),
    );
    all.extend(containers.map(|c| read_container(c, value)));
    let specs = value.get("modelSpec").and_then(Value::as_sequence);
    all.extend(specs.into_iter().flatten().map(read_model_spec));
    for inner in below {
        find_pods(inner, depth + 1, all);
    }
}

/// A model of vLLM's own Helm chart (production-stack, values of `servingEngineSpec`).
fn read_model_spec(spec: &Value) -> Launch {
    let text = |key: &str| spec.get(key).and_then(scalar);
    let image = text("repository");
    let mut launch = Launch {
        service: text("name"),
        image: image.map(|i| text("tag").map_or(i.clone(), |tag| format!("{i}:{tag}"))),
        gpus: text("requestGPU").and_then(|n| Some(GpuRequest::Count(n.parse().ok()?))),
        shm_bytes: text("shmSize").and_then(|s| Some(Bytes::parse_quantity(&s).ok()?.0)),
        ..Launch::default()
    };
    launch.argv.extend(text("modelURL"));
    if spec.get("hf_token").is_some() {
        launch.add_secret("HF_TOKEN");
    }
    read_variables(spec, &mut launch);
    let is_on = |value: Option<&Value>| value.and_then(Value::as_bool) == Some(true);
    if is_on(spec.get("enableLoRA")) {
        launch.argv.push("--enable-lora".into());
    }
    if is_on(spec.get("lmcacheConfig").and_then(|c| c.get("enabled"))) {
        let connector = r#"--kv-transfer-config={"kv_connector":"LMCacheConnectorV1"}"#;
        launch.argv.push(connector.into());
    }
    let settings = spec.get("vllmConfig").and_then(Value::as_mapping);
    for (key, value) in settings.into_iter().flatten() {
        let key = key.as_str().unwrap_or_default();
        let words = value.as_sequence().into_iter().flatten().filter_map(scalar);
        match (key, value) {
            ("extraArgs", _) => launch.argv.extend(words),
            // The chart's own name of V1.
            ("v1", _) => {}
            (_, Value::Bool(on)) => {
                let no = if *on { "" } else { "no-" };
                launch.argv.push(format!("--{no}{}", flag_of_key(key)));
            }
            _ => {
                let value = scalar(value);
                launch
                    .argv
                    .extend(value.map(|v| format!("--{}={v}", flag_of_key(key))));
            }
        }
    }
    launch
}

/// `tensorParallelSize` → `tensor-parallel-size`.
fn flag_of_key(key: &str) -> String {
    if key == "enableLoRA" {
        return "enable-lora".into();
    }
    let mut flag = String::new();
    for c in key.chars() {
        if c.is_ascii_uppercase() {
            flag.push('-');
        }
        flag.push(c.to_ascii_lowercase());
    }
    flag
}

/// The variables of a container.
fn read_variables(container: &Value, launch: &mut Launch) {
    let variables = container.get("env").and_then(Value::as_sequence);
    for variable in variables.into_iter().flatten() {
        let name = variable.get("name").and_then(scalar).unwrap_or_default();
        match (
            variable.get("value").and_then(scalar),
            variable.get("valueFrom"),
        ) {
            (Some(value), _) => launch.set_env(&name, &value),
            (None, Some(from)) if from.get("secretKeyRef").is_some() => launch.add_secret(&name),
            (None, Some(_)) => launch.unresolved.push(format!("{name} (valueFrom)")),
            (None, None) if looks_secret(&name) => launch.add_secret(&name),
            (None, None) => launch.set_env(&name, ""),
        }
    }
}

fn read_container(container: &Value, pod: &Value) -> Launch {
    let text = |key: &str| container.get(key).and_then(scalar);
    let list = |value: Option<&Value>| -> Vec<Value> {
        value
            .and_then(Value::as_sequence)
            .cloned()
            .unwrap_or_default()
    };
    let mut launch = Launch {
        service: text("name"),
        image: text("image"),
        ..Launch::default()
    };
    read_variables(container, &mut launch);
    for from in list(container.get("envFrom")) {
        for kind in ["configMapRef", "secretRef"] {
            let name = from.get(kind).and_then(|r| r.get("name")).and_then(scalar);
            launch
                .unresolved
                .extend(name.map(|n| format!("envFrom {n}")));
        }
    }
    // `$(NAME)` in words is a variable of the container.
    let words = |launch: &mut Launch, key: &str| {
        let value = container.get(key)?.as_sequence()?;
        let words = value.iter().filter_map(scalar);
        let words: Vec<String> = words
            .map(|word| {
                let put = |word: String, (name, value): (&String, &String)| {
                    word.replace(&format!("$({name})"), value)
                };
                launch.env.iter().fold(word, put)
            })
            .collect();
        Some(words)
    };
    launch.entrypoint = words(&mut launch, "command").map(LaunchEntrypoint::Words);
    launch.argv = words(&mut launch, "args").unwrap_or_default();
    let resources = container.get("resources");
    let limits = ["limits", "requests"]
        .into_iter()
        .filter_map(|k| resources?.get(k));
    for (kind, count) in limits.filter_map(Value::as_mapping).flatten() {
        let gpu = kind
            .as_str()
            .is_some_and(|k| k.contains(".com/gpu") || k.contains(".com/mig-"));
        let count = scalar(count).and_then(|c| c.parse().ok());
        if let (true, None, Some(count)) = (gpu, &launch.gpus, count) {
            launch.gpus = Some(GpuRequest::Count(count));
        }
    }
    let is_true = |key: &str| pod.get(key).and_then(Value::as_bool) == Some(true);
    launch.ipc = is_true("hostIPC").then(|| "host".to_owned());
    let volumes = list(pod.get("volumes"));
    for mount in list(container.get("volumeMounts")) {
        let path = mount.get("mountPath").and_then(scalar).unwrap_or_default();
        let volume = volumes.iter().find(|v| v.get("name") == mount.get("name"));
        if path == "/dev/shm" {
            let memory = volume.and_then(|v| v.get("emptyDir"));
            let size = memory.and_then(|m| m.get("sizeLimit")).and_then(scalar);
            launch.shm_bytes = size
                .and_then(|s| Bytes::parse_quantity(&s).ok())
                .map(|b| b.0);
        } else if let Some(host) = volume
            .and_then(|v| v.get("hostPath")?.get("path"))
            .and_then(scalar)
        {
            launch.mounts.push(format!("{host}:{path}"));
        }
    }
    for port in list(container.get("ports")) {
        launch
            .ports
            .extend(port.get("containerPort").and_then(scalar));
    }
    launch
}
