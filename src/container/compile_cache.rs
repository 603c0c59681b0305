//! Docker volumes in which engines keep what they compile, from one start to the next.

use super::{CREATED_LABEL, Runtime, daemon_failure};
use crate::error::Failure;
use bollard::models::VolumeCreateRequest;
use bollard::query_parameters::{
    ListContainersOptionsBuilder, ListVolumesOptionsBuilder, RemoveVolumeOptions,
};
use serde::Serialize;
use std::collections::HashMap;

/// Label of these volumes: the id of the image that they are of.
pub const CACHE_LABEL: &str = "plimsoll.compile-cache";

/// Where a container has the volume.
pub const CACHE_FOLDER: &str = "/plimsoll/compile-cache";

/// Digits of an image's id in a volume's name, as Docker shortens ids.
const SHORT_ID: usize = 12;

/// A volume of this kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CompileCache {
    /// Name.
    pub name: String,
    /// Id of the image.
    pub image: String,
    /// Names of the containers that have it, running or not.
    pub used_by: Vec<String>,
}

impl Runtime {
    /// The volume of an image, created where there is none. `None`: the image does not run as root, to whom a new
    /// volume belongs, or a volume of this name is another's.
    pub async fn open_compile_cache(&self, image: &str) -> Result<Option<String>, Failure> {
        let failed = |e| daemon_failure(format!("cannot make a volume for image `{image}`"), e);
        let found = self
            .ask_again(|docker| docker.inspect_image(image))
            .await
            .map_err(failed)?;
        let user = found.config.and_then(|c| c.user).unwrap_or_default();
        if !matches!(user.split(':').next(), Some("" | "0" | "root")) {
            return Ok(None);
        }
        let id = found.id.unwrap_or_default();
        let digits = id.trim_start_matches("sha256:");
        let short = digits.get(..SHORT_ID).unwrap_or(digits);
        let request = VolumeCreateRequest {
            name: Some(format!("plimsoll-compile-cache-{short}")),
            labels: Some(HashMap::from([
                (CACHE_LABEL.to_owned(), id.clone()),
                (CREATED_LABEL.to_owned(), jiff::Timestamp::now().to_string()),
            ])),
            ..VolumeCreateRequest::default()
        };
        // Docker gives an existing volume of this name as it is.
        let volume = self
            .ask_again(|docker| docker.create_volume(request.clone()))
            .await
            .map_err(failed)?;
        let is_ours = volume.labels.get(CACHE_LABEL) == Some(&id);
        Ok(is_ours.then_some(volume.name))
    }

    /// The volumes of this kind, by name.
    pub async fn list_compile_caches(&self) -> Result<Vec<CompileCache>, Failure> {
        let failed = |e| daemon_failure("cannot list volumes", e);
        let filters = HashMap::from([("label", vec![CACHE_LABEL])]);
        let options = ListVolumesOptionsBuilder::default()
            .filters(&filters)
            .build();
        let listed = self
            .ask_again(|docker| docker.list_volumes(Some(options.clone())))
            .await
            .map_err(failed)?;
        let mut caches = Vec::new();
        for volume in listed.volumes.unwrap_or_default() {
            let Some(image) = volume.labels.get(CACHE_LABEL).cloned() else {
                continue;
            };
            let filters = HashMap::from([("volume", vec![volume.name.as_str()])]);
            let options = ListContainersOptionsBuilder::default()
                .all(true)
                .filters(&filters)
                .build();
            let containers = self
                .ask_again(|docker| docker.list_containers(Some(options.clone())))
                .await
                .map_err(failed)?;
            let first_name = |names: Option<Vec<String>>| names?.into_iter().next();
            let names = containers.into_iter().filter_map(|c| first_name(c.names));
            caches.push(CompileCache {
                used_by: names
                    .map(|n| n.trim_start_matches('/').to_owned())
                    .collect(),
                image,
                name: volume.name,
            });
        }
        caches.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(caches)
    }

    /// Removes a volume; the daemon refuses where a container has it.
    pub async fn remove_compile_cache(&self, cache: &CompileCache) -> Result<(), Failure> {
        let name = &cache.name;
        self.daemon()
            .map_err(|e| daemon_failure(format!("cannot remove volume `{name}`"), e))?
            .remove_volume(name, None::<RemoveVolumeOptions>)
            .await
            .map_err(|e| daemon_failure(format!("cannot remove volume `{name}`"), e))
    }
}
