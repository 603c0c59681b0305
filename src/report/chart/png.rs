//! A picture as PNG: the SVG of its own file, drawn with the letters of `font/` whatever the system
//! has. Drawing takes 43 crates, so that it is a cargo feature, `png`.

/// Why a picture could not be drawn.
#[derive(Debug, thiserror::Error)]
pub enum PngError {
    /// The SVG cannot be read.
    #[cfg(feature = "png")]
    #[error("the chart cannot be made into a PNG: its SVG cannot be read")]
    Svg(#[from] resvg::usvg::Error),
    /// It has no size.
    #[cfg(feature = "png")]
    #[error("the chart cannot be made into a PNG: its SVG has no size")]
    Size,
    /// It cannot be packed.
    #[cfg(feature = "png")]
    #[error("the chart cannot be made into a PNG: {0}")]
    Packing(String),
    /// Built without the feature `png`.
    #[cfg(not(feature = "png"))]
    #[error("this build of plimsoll has no PNG: take svg, or build it with `--features png`")]
    NotBuilt,
}

/// By this a file is known as ours when it is about to be written over.
pub const MARK: &[u8] = b"tEXtSoftware\0plimsoll";

/// Whether this build can draw one.
pub const CAN_DRAW: bool = cfg!(feature = "png");

#[cfg(feature = "png")]
pub use drawing::png;

/// Without the feature `png` there is no picture.
///
/// # Errors
/// Always.
#[cfg(not(feature = "png"))]
pub fn png(_svg: &str) -> Result<Vec<u8>, PngError> {
    Err(PngError::NotBuilt)
}

#[cfg(all(test, feature = "png"))]
pub use drawing::measured;

#[cfg(feature = "png")]
mod drawing {
    use super::PngError;
    use resvg::tiny_skia::{Pixmap, Transform};
    use resvg::usvg::{Options, Tree, fontdb};
    use std::sync::{Arc, OnceLock};

    /// Pixels for each unit of the view box.
    const SCALE: f32 = 2.0;

    /// Pixels of the largest picture; what is larger is drawn smaller.
    const MOST_PIXELS: f32 = 40e6;

    /// The letters; `font/README.md` names their source.
    static LETTERS: [&[u8]; 2] = [
        include_bytes!("font/NotoSans-Regular.ttf"),
        include_bytes!("font/NotoSans-Bold.ttf"),
    ];

    /// A picture of [`ChartStyle::Standalone`](crate::report::chart::svg::ChartStyle::Standalone) as PNG, two pixels a unit.
    ///
    /// # Errors
    /// Where `svg` cannot be read.
    pub fn png(svg: &str) -> Result<Vec<u8>, PngError> {
        let tree = Tree::from_str(&drawable(svg), &font_options())?;
        let (wide, high) = (tree.size().width(), tree.size().height());
        let scale = SCALE.min((MOST_PIXELS / (wide * high)).sqrt());
        let pixels = |units: f32| (units * scale).ceil() as u32;
        let mut sheet = Pixmap::new(pixels(wide), pixels(high)).ok_or(PngError::Size)?;
        let scaled = Transform::from_scale(scale, scale);
        resvg::render(&tree, scaled, &mut sheet.as_mut());
        packed(sheet).map_err(|e| PngError::Packing(e.to_string()))
    }

    /// The sheet with a word of who drew it: [`MARK`](super::MARK).
    fn packed(sheet: Pixmap) -> Result<Vec<u8>, png::EncodingError> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, sheet.width(), sheet.height());
        encoder.set_color(png::ColorType::Rgba);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.add_text_chunk("Software".into(), "plimsoll".into())?;
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&sheet.take_demultiplied())?;
        writer.finish()?;
        Ok(bytes)
    }

    fn font_options() -> Options<'static> {
        static FONTS: OnceLock<Arc<fontdb::Database>> = OnceLock::new();
        let fonts = FONTS.get_or_init(|| {
            let mut fonts = fontdb::Database::new();
            for letters in LETTERS {
                fonts.load_font_data(letters.to_vec());
            }
            fonts.set_sans_serif_family("Noto Sans");
            Arc::new(fonts)
        });
        Options {
            font_family: "Noto Sans".into(),
            fontdb: Arc::clone(fonts),
            ..Options::default()
        }
    }

    /// The same with a question mark for each letter that the font does not have: a gap would read as
    /// if nothing stood there. Marks of SVG itself are ASCII.
    fn drawable(svg: &str) -> String {
        svg.chars()
            .map(|c| match u32::from(c) {
                0x0a
                | 0x20..=0x7e
                | 0xa0..=0x17f
                | 0x391..=0x3a1
                | 0x3a3..=0x3c9
                | 0x410..=0x44f => c,
                0x2013 | 0x2014 | 0x2018..=0x201a | 0x201c..=0x201e | 0x2022 | 0x2026 => c,
                0x20ac | 0x2212 | 0x2248 | 0x2264 | 0x2265 => c,
                _ => '?',
            })
            .collect()
    }

    /// Width of the first text of a picture as it is drawn.
    #[cfg(test)]
    pub fn measured(svg: &str) -> Option<f64> {
        let tree = Tree::from_str(&drawable(svg), &font_options()).ok()?;
        match tree.root().children().first()? {
            resvg::usvg::Node::Text(text) => Some(f64::from(text.bounding_box().width())),
            _ => None,
        }
    }
}
