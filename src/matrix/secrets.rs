//! A server without its secrets, as it may be written down.

use super::cell::{Place, Server};
use crate::redact::Secrets;

impl Server {
    /// Without the secrets in its environment and arguments. Ids follow from the whole one.
    pub fn redacted(&self) -> Server {
        let mut server = self.clone();
        let env = match &self.place {
            Place::Image(preset) => Some(&preset.env),
            Place::Container(_) => None,
        };
        let pairs = env.into_iter().flatten();
        let pairs = pairs.map(|(name, value)| (name.as_str(), value.as_str()));
        let redactor = Secrets::gather(pairs, &self.engine_args).redactor();
        server.engine_args = redactor.argv(&server.engine_args);
        if let Place::Image(preset) = &mut server.place {
            for (name, value) in &mut preset.env {
                *value = redactor.setting(name, value);
            }
            preset.engine_args = redactor.argv(&preset.engine_args);
        }
        server
    }
}
