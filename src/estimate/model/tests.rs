//! Models against what is published of them.

use super::*;
use std::collections::BTreeMap;

/// The study's configurations, where the folder is there.
fn study() -> Option<(std::path::PathBuf, BTreeMap<String, Value>)> {
    let Some(folder) = std::env::var_os("PLIMSOLL_ESTIMATE").map(std::path::PathBuf::from) else {
        eprintln!("skipped: PLIMSOLL_ESTIMATE is not set");
        return None;
    };
    let mut models = BTreeMap::new();
    for entry in std::fs::read_dir(folder.join("models")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let text = text.replace("Infinity", "null");
        let value: Value = serde_json::from_str(&text).unwrap();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        models.insert(name, value["config"].clone());
    }
    Some((folder, models))
}

#[test]
fn parameters_are_as_published() {
    let Some((folder, models)) = study() else {
        return;
    };
    let published = std::fs::read_to_string(folder.join("models_check.tsv")).unwrap();
    for line in published.lines().skip(1) {
        let mut cells = line.split('\t');
        let name = cells.next().unwrap();
        let formula: f64 = cells.next().unwrap().parse().unwrap();
        let published: Option<f64> = cells.next().and_then(|c| c.parse().ok());
        match from_config(name, &models[name], "study") {
            Err(e) => eprintln!("{name}: {e}"),
            Ok(model) => {
                let b = model.parameters() as f64 / 1e9;
                let off = published.map_or(f64::NAN, |p| (b / p - 1.0) * 100.0);
                let study = (b / formula - 1.0) * 100.0;
                if off.abs() > 0.15 || study.abs() > 0.005 {
                    eprintln!(
                        "{name}: {b:.4} published {published:?} {off:.3} % study {formula} {study:.3} % {:?}",
                        model.warnings
                    );
                }
            }
        }
    }
}
