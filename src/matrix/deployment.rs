//! A group's engine as the estimator takes it: the command that a sweep would start it with.

use super::cell::{Place, Server};
use crate::capture::ContainerFacts;
use crate::engine::{Engine, ServeJob};
use crate::estimate::{Deployment, EngineKind, Unknown, Version, case, settings};

/// How the engine of this server is deployed, without its GPU; and whether all that it is told is
/// computed with.
///
/// # Errors
/// No rules are known of the engine, or a setting is not to be read.
pub fn deployment(server: &Server, engine: &dyn Engine) -> Result<(Deployment, bool), Unknown> {
    let name = engine.name();
    let kind = settings::engine(name)
        .ok_or_else(|| Unknown::new(format!("no rules are known of the engine `{name}`")))?;
    let job = ServeJob {
        model: &server.model,
        port: engine.default_port(),
        settings: &server.settings,
        extra_engine_args: &server.engine_args,
    };
    let mut facts = ContainerFacts {
        argv: engine.serve_argv(&job),
        ..ContainerFacts::default()
    };
    facts.env.extend(engine.serve(&job).env);
    if let Place::Image(preset) = &server.place {
        facts.env.extend(preset.env.clone());
    }
    let told = engine.settings(&facts);
    let mut deployment = Deployment::of(kind);
    if let Place::Image(preset) = &server.place {
        deployment.version = preset
            .image
            .as_deref()
            .and_then(|image| version(image, kind));
    }
    settings::apply(&mut deployment, &told.values)?;
    // A flag that the engine's own reading leaves out was asked for here in the field's words.
    let asked = &server.settings;
    deployment.tp = deployment
        .tp
        .max(asked.tensor_parallel_size.map_or(1, u64::from));
    deployment.max_model_len = deployment.max_model_len.or(asked.max_model_len);
    // TGI takes every GPU that it sees where it is not told how many.
    let shards = ["tensor_parallel_size", "num_shard"];
    let told_shards =
        kind != EngineKind::Tgi || shards.iter().any(|n| told.values.contains_key(*n));
    let settled = told_shards && deployment.unmodelled.is_empty();
    Ok((deployment, settled))
}

/// Images whose tags are their engine's versions; others' tags are their maker's own.
const RELEASES: [&str; 5] = [
    "vllm/vllm-openai",
    "vllm/vllm-openai-rocm",
    "lmsysorg/sglang",
    "huggingface/text-generation-inference",
    "nvidia/tensorrt-llm/release",
];

/// The engine's version by an image's tag: `vllm/vllm-openai:v0.11.0`, from whatever registry.
fn version(image: &str, kind: EngineKind) -> Option<Version> {
    let (name, tag) = image.split('@').next()?.rsplit_once(':')?;
    let released = |r: &str| name == r || name.ends_with(&format!("/{r}"));
    if !RELEASES.iter().any(|r| released(r)) {
        return None;
    }
    // `latest`, `nightly` and `0.11` tell too little.
    let parts = tag.trim_start_matches('v').split('.');
    let numbers = parts.take_while(|p| p.starts_with(|c: char| c.is_ascii_digit()));
    match (numbers.count(), case::version_of(tag, kind)) {
        (3.., (version, true)) => version,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;
    use crate::engine::by_name;

    fn of(engine: &str, words: &[&str]) -> Result<(Deployment, bool), Unknown> {
        let mut server = (*samples::server("m")).clone();
        server.settings.tensor_parallel_size = Some(2);
        server.settings.max_model_len = Some(4096);
        server.settings.gpu_memory_utilization = Some(0.8);
        server.engine_args = words.iter().map(|w| (*w).to_owned()).collect();
        deployment(&server, by_name(engine).unwrap())
    }

    #[test]
    fn a_group_is_deployed_as_its_settings_say() {
        for (name, kind) in [
            ("vllm", EngineKind::Vllm),
            ("sglang", EngineKind::Sglang),
            ("tgi", EngineKind::Tgi),
        ] {
            let (d, settled) = of(name, &[]).unwrap();
            assert_eq!(
                (d.engine, d.tp, d.max_model_len, d.memory_fraction, settled),
                (kind, 2, Some(4096), Some(0.8), true),
                "{name}"
            );
        }
        let (d, settled) = of(
            "vllm",
            &["--kv-cache-dtype", "fp8", "--pipeline-parallel-size=2"],
        )
        .unwrap();
        assert_eq!(
            (d.kv_dtype.as_deref(), d.pp, settled),
            (Some("fp8"), 2, true)
        );
    }

    #[test]
    fn a_released_images_tag_is_its_engines_version() {
        let read = |image| version(image, EngineKind::Vllm).map(|v| (v.major, v.minor, v.patch));
        assert_eq!(read("vllm/vllm-openai:v0.11.0"), Some((0, 11, 0)));
        assert_eq!(
            read("mirror.test:5000/vllm/vllm-openai:v0.8.5.post1@sha256:aa"),
            Some((0, 8, 5))
        );
        for none in [
            "vllm/vllm-openai",
            "vllm/vllm-openai:latest",
            "vllm/vllm-openai:nightly-0a1b.2c",
            "acme/vllm-openai:v1.2.3",
            "nvidia/vllm:25.09-py3",
            "localhost:5000/vllm",
        ] {
            assert_eq!(read(none), None, "{none}");
        }
        let mut server = (*samples::server("m")).clone();
        server.place = Place::Image(Box::new(crate::preset::Preset {
            image: Some("vllm/vllm-openai:v0.9.1".into()),
            ..Default::default()
        }));
        let told = deployment(&server, by_name("vllm").unwrap()).unwrap().0;
        assert_eq!(told.version, Some(Version::new(0, 9, 1)));
    }

    #[test]
    fn what_is_not_computed_with_leaves_it_open() {
        for words in [
            &["--cpu-offload-gb", "40"][..],
            &["--config", "/etc/vllm.yaml"],
            &["--hf-overrides", "{\"num_hidden_layers\": 2}"],
            &["--max-model-len", "-1"],
        ] {
            assert!(!of("vllm", words).unwrap().1, "{words:?}");
        }
        let mut alone = (*samples::server("m")).clone();
        assert!(deployment(&alone, by_name("vllm").unwrap()).unwrap().1);
        alone.engine = Some("tgi".into());
        assert!(!deployment(&alone, by_name("tgi").unwrap()).unwrap().1);
        assert!(of("reference", &[]).is_err(), "it only pretends");
    }
}
