//! The replies of a server's endpoints, found by their paths.

use crate::capture::Probe;
use serde_json::Value;

/// A server's replies. Of several replies from one endpoint the last good one counts.
#[derive(Debug, Clone, Copy)]
pub struct Replies<'a>(pub &'a [Probe]);

impl<'a> Replies<'a> {
    /// The body of a good reply (status 200).
    pub fn body(self, path: &str) -> Option<&'a str> {
        let good = |p: &&Probe| p.path == path && p.status == Some(200);
        self.0.iter().rev().find(good).map(|p| p.body.as_str())
    }

    /// The same, where it is JSON.
    pub fn json(self, path: &str) -> Option<Value> {
        serde_json::from_str(self.body(path)?).ok()
    }
}

/// A text of an object, unless it is empty.
pub fn text(object: &Value, key: &str) -> Option<String> {
    let text = object.get(key)?.as_str()?;
    (!text.is_empty()).then(|| text.to_owned())
}

/// A good reply.
#[cfg(test)]
pub fn reply(path: &str, body: &str) -> Probe {
    Probe {
        path: path.to_owned(),
        status: Some(200),
        body: body.to_owned(),
        ..Probe::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_good_reply_counts() {
        let refused = Probe {
            status: Some(503),
            ..reply("/a", "{\"n\": 3}")
        };
        let probes = [
            reply("/a", "{\"n\": 1}"),
            reply("/a", "{\"n\": 2}"),
            refused,
            reply("/b", "<html>"),
        ];
        let replies = Replies(&probes);
        assert_eq!(replies.json("/a"), Some(serde_json::json!({"n": 2})));
        assert_eq!(
            (replies.body("/b"), replies.json("/b")),
            (Some("<html>"), None)
        );
        assert_eq!(replies.body("/c"), None);
    }

    #[test]
    fn an_empty_text_is_unknown() {
        let object = serde_json::json!({"a": "x", "b": "", "c": 1});
        let read = |key| text(&object, key);
        assert_eq!(read("a").as_deref(), Some("x"));
        assert_eq!((read("b"), read("c"), read("d")), (None, None, None));
    }
}
