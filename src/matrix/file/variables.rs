//! Variables in the file's texts: `${NAME}`, `${NAME:-default}`, and `$$` for a dollar sign.

use super::tree::{FileFault, YamlNode, YamlValue, quote_short};
use crate::redact::{Secrets, is_secret_name};

/// The most text that variables may make of a file.
const MAX_TEXT: usize = 16 << 20;

/// Keys with values that are shown without their secrets.
const KEPT_FROM_VIEW: [&str; 3] = ["env", "engine_args", "extra_engine_args"];

/// Where variables come from.
pub type Lookup<'v> = &'v dyn Fn(&str) -> Option<String>;

/// Puts variables into all texts of a tree; keys are left alone. What came from a variable with a
/// secret's name is marked, and remembered in `secrets`; only the environment and the engine's
/// arguments may contain it, as anything else is shown and kept with the results.
pub fn put_in(
    node: &mut YamlNode,
    var: Lookup<'_>,
    secrets: &mut Secrets,
) -> Result<(), FileFault> {
    VariableExpander {
        var,
        secrets,
        made: 0,
        key: String::new(),
        may_be_secret: false,
    }
    .put_in(node)
}

struct VariableExpander<'v, 's> {
    var: Lookup<'v>,
    secrets: &'s mut Secrets,
    made: usize,
    /// The key that the text belongs to.
    key: String,
    may_be_secret: bool,
}

impl VariableExpander<'_, '_> {
    fn put_in(&mut self, node: &mut YamlNode) -> Result<(), FileFault> {
        match &mut node.value {
            YamlValue::List(list) => list.iter_mut().try_for_each(|n| self.put_in(n)),
            YamlValue::Map(map) => map.iter_mut().try_for_each(|(key, n)| {
                let above = (
                    std::mem::replace(&mut self.key, key.name.clone()),
                    self.may_be_secret,
                );
                self.may_be_secret |= KEPT_FROM_VIEW.contains(&key.name.as_str());
                self.put_in(n)?;
                (self.key, self.may_be_secret) = above;
                Ok(())
            }),
            YamlValue::Text(text) if text.contains('$') => {
                let done = self.expand_text(text).map_err(|(message, hint)| {
                    FileFault::new(node.at, message).with_hint_if(hint)
                })?;
                self.made += done.text.len();
                if self.made > MAX_TEXT {
                    return Err(FileFault::new(
                        node.at,
                        "with its variables filled in, the file is too large",
                    ));
                }
                *text = done.text;
                node.from_variable = done.variable;
                node.secret = done.secret;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn expand_text(&mut self, text: &str) -> Result<ExpandedText, (String, Option<String>)> {
        let mut done = ExpandedText::default();
        let mut rest = text;
        while let Some(dollar) = rest.find('$') {
            done.text.push_str(&rest[..dollar]);
            rest = &rest[dollar + 1..];
            if let Some(after) = rest.strip_prefix('$') {
                done.text.push('$');
                rest = after;
            } else if let Some(inner) = rest.strip_prefix('{') {
                let end = inner.find('}').ok_or_else(|| {
                    let hint = "write a literal dollar sign as `$$`";
                    (
                        "`${` is not closed by `}`".to_owned(),
                        Some(hint.to_owned()),
                    )
                })?;
                let (value, secret) = self.variable_value(&inner[..end])?;
                done.text.push_str(&value);
                done.variable = true;
                done.secret |= secret;
                rest = &inner[end + 1..];
            } else {
                done.text.push('$');
            }
        }
        done.text.push_str(rest);
        Ok(done)
    }

    /// The value of the expression in the braces, and whether it is a secret.
    fn variable_value(&mut self, inner: &str) -> Result<(String, bool), (String, Option<String>)> {
        let end = inner
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(inner.len());
        let (name, rest) = inner.split_at(end);
        let default = rest.strip_prefix(":-");
        let named = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !named || !(rest.is_empty() || default.is_some()) {
            return Err((
                "a variable is written `${NAME}` or `${NAME:-default}`".into(),
                Some("write a literal dollar sign as `$$`".into()),
            ));
        }
        if default.is_some_and(|d| d.contains("${")) {
            let message = format!("the default of `{name}` holds another variable");
            return Err((message, None));
        }
        let set = (self.var)(name).filter(|v| default.is_none() || !v.is_empty());
        let secret = is_secret_name(name);
        if secret && !self.may_be_secret {
            return Err((
                format!(
                    "`{name}` is a secret by its name, but {} is printed and stored with the results",
                    quote_short(&self.key)
                ),
                Some(format!(
                    "a variable with the name of a secret may stand in {} only; rename it if it is not a secret",
                    KEPT_FROM_VIEW.map(|k| format!("`{k}`")).join(", ")
                )),
            ));
        }
        match (set, default) {
            (Some(value), _) => {
                if secret {
                    self.secrets.add_secret(name, value.clone());
                }
                Ok((value, secret))
            }
            (None, Some(default)) => Ok((default.to_owned(), secret)),
            (None, None) => Err((
                format!("the environment variable `{name}` is not set"),
                Some(format!("set it, or give a default: ${{{name}:-…}}")),
            )),
        }
    }
}

#[derive(Default)]
struct ExpandedText {
    text: String,
    variable: bool,
    secret: bool,
}
