//! A group's engine as the estimator takes it: the command that a sweep would start it with.

use super::cell::{EnginePlace, ServerConfig};
use crate::capture::ContainerFacts;
use crate::engine::{EngineId, ServeJob};
use crate::estimate::{Deployment, Unknown, Version, case, settings::IllegalValue};

/// The deployment of this server's engine, without its GPU; and whether all its settings are computed with.
///
/// # Errors
/// No rules are known of the engine, or a setting is not to be read.
pub fn deployment(server: &ServerConfig, engine: EngineId) -> Result<(Deployment, bool), Unknown> {
    let job = ServeJob {
        model: &server.model,
        port: engine.default_port,
        settings: &server.settings,
        extra_engine_args: &server.engine_args,
    };
    let mut facts = ContainerFacts {
        argv: engine.serve_argv(&job),
        ..ContainerFacts::default()
    };
    facts.env.extend(engine.serve(&job).env);
    if let EnginePlace::Image(preset) = &server.place {
        facts.env.extend(preset.env.clone());
    }
    let values = (engine.settings)(&facts).values;
    let (mut deployment, draft) =
        Deployment::from_settings(engine, &values, &values, IllegalValue::IsRefused)?;
    if let EnginePlace::Image(preset) = &server.place {
        deployment.version = preset
            .image
            .as_deref()
            .and_then(|image| version(image, engine));
    }
    // Settings that the engine has no flag for count as the sweep file has them.
    let asked = &server.settings;
    deployment.tp = deployment
        .tp
        .max(asked.tensor_parallel_size.map_or(1, u64::from));
    deployment.max_model_len = deployment.max_model_len.or(asked.max_model_len);
    let shards = ["tensor_parallel_size", "num_shard"];
    let shards_set = !engine.takes_all_gpus || shards.iter().any(|n| values.contains_key(*n));
    let settled = shards_set && draft.is_none() && deployment.unmodelled.is_empty();
    Ok((deployment, settled))
}

/// The engine's version by an image's tag: `vllm/vllm-openai:v0.11.0`, from whatever registry.
fn version(image: &str, engine: EngineId) -> Option<Version> {
    let (name, tag) = image.split('@').next()?.rsplit_once(':')?;
    let released = |r: &str| name == r || name.ends_with(&format!("/{r}"));
    if !engine.release_images.iter().any(|r| released(r)) {
        return None;
    }
    // `latest`, `nightly` and `0.11` do not name one release.
    let parts = tag.trim_start_matches('v').split('.');
    let numbers = parts.take_while(|p| p.starts_with(|c: char| c.is_ascii_digit()));
    match (numbers.count(), case::version_of(tag, engine)) {
        (3.., (version, true)) => version,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    fn of(engine: &str, words: &[&str]) -> Result<(Deployment, bool), Unknown> {
        let mut server = (*samples::server("m")).clone();
        server.settings.tensor_parallel_size = Some(2);
        server.settings.max_model_len = Some(4096);
        server.settings.gpu_memory_utilization = Some(0.8);
        server.engine_args = words.iter().map(|w| (*w).to_owned()).collect();
        deployment(&server, EngineId::from_name(engine).unwrap())
    }

    #[test]
    fn a_group_is_deployed_as_its_settings_say() {
        for (name, kind) in [
            ("vllm", EngineId::Vllm),
            ("sglang", EngineId::Sglang),
            ("tgi", EngineId::Tgi),
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
        let read = |image| version(image, EngineId::Vllm).map(|v| (v.major, v.minor, v.patch));
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
        server.place = EnginePlace::Image(Box::new(crate::preset::Preset {
            image: Some("vllm/vllm-openai:v0.9.1".into()),
            ..Default::default()
        }));
        let deployed = deployment(&server, EngineId::Vllm).unwrap().0;
        assert_eq!(deployed.version, Some(Version::new(0, 9, 1)));
    }

    #[test]
    fn what_is_not_computed_with_leaves_it_open() {
        for words in [
            &["--config", "/etc/vllm.yaml"][..],
            &["--hf-overrides", "{\"num_hidden_layers\": 2}"],
            &["--max-model-len", "-1"],
        ] {
            assert!(!of("vllm", words).unwrap().1, "{words:?}");
        }
        let mut alone = (*samples::server("m")).clone();
        assert!(deployment(&alone, EngineId::Vllm).unwrap().1);
        alone.engine = Some("tgi".into());
        assert!(!deployment(&alone, EngineId::Tgi).unwrap().1);
        assert!(of("reference", &[]).is_err(), "it is simulated");
    }
}
