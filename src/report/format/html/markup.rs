//! Builds HTML. Markup comes from literals of this program alone and a report's text is always escaped: the types see to
//! that. A template engine would save little, does not notice a missing escape, and finds its mistakes only when it runs.

use super::super::words;
use crate::report::chart::escape_text;

/// HTML under construction.
#[derive(Debug, Default)]
pub struct Markup(String);

impl Markup {
    /// Markup of this program.
    pub fn write_raw(&mut self, markup: &'static str) -> &mut Markup {
        self.0.push_str(markup);
        self
    }

    /// A text of one line.
    pub fn write_text(&mut self, text: &str) -> &mut Markup {
        self.0.push_str(&escape_text(&words::one_line(text)));
        self
    }

    /// A text of one line between what opens and closes its element.
    pub fn write_element(
        &mut self,
        open: &'static str,
        text: &str,
        close: &'static str,
    ) -> &mut Markup {
        self.write_raw(open).write_text(text).write_raw(close)
    }

    /// A text of many lines.
    pub fn write_listing(&mut self, text: &str) -> &mut Markup {
        self.0.push_str(&escape_text(&words::clean_listing(text)));
        self
    }

    /// An attribute of the element with the open tag: ` name="value"`.
    pub fn write_attribute(&mut self, name: &'static str, value: &str) -> &mut Markup {
        self.write_raw(" ")
            .write_raw(name)
            .write_raw("=\"")
            .write_text(value)
            .write_raw("\"")
    }

    /// A number as it is.
    pub fn write_number(&mut self, number: impl Into<f64>) -> &mut Markup {
        self.0.push_str(&number.into().to_string());
        self
    }

    /// A drawing of `report/chart`, which has escaped its own texts.
    pub fn write_drawing(&mut self, svg: &str) -> &mut Markup {
        self.0.push_str(svg);
        self
    }

    /// Data for the script: JSON in which nothing can end the element around it.
    pub fn write_data(&mut self, data: &serde_json::Value) -> &mut Markup {
        let json = data.to_string();
        for c in json.chars() {
            match c {
                '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                    self.0.push_str(&format!("\\u{:04x}", c as u32));
                }
                c => self.0.push(c),
            }
        }
        self
    }

    /// All of it.
    pub fn into_text(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_data_stay_in_their_element() {
        let mut html = Markup::default();
        html.write_raw("<p")
            .write_attribute("title", "\"><b>")
            .write_raw(">")
            .write_text("<i>&'");
        html.write_raw("</p>")
            .write_data(&serde_json::json!(["</script><!--"]));
        assert_eq!(
            html.into_text(),
            "<p title=\"&quot;&gt;&lt;b&gt;\">&lt;i&gt;&amp;&#39;</p>\
             [\"\\u003c/script\\u003e\\u003c!--\"]"
        );
    }
}
