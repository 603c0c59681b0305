//! `top` on a terminal: GPUs as bars of what holds their memory, the containers below, one of them in
//! detail. Drawn from scans and what `watch` remembers; keys change what is shown.

use super::ledger::{ContainerRecord, HOST_DEVICE, WatchLedger, devices_of, memory_in_use};
use super::{ContainerScan, GpuLook, MemoryScan, UNKNOWN, or_unknown};
use crate::breakdown::Component;
use crate::headroom::Headroom;
use crate::profile::stats::saturating_sum;
use crate::report::chart::palette::component_colour;
use crate::units::Bytes;
use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState, Wrap};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Readings of each container that are kept: ten minutes at one a second.
const MOST_READINGS: usize = 600;
/// Cells of a container's history.
const HISTORY_CELLS: usize = 16;
/// Lines of the details, their heading included.
const DETAIL_LINES: u16 = 9;
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
/// The columns beside a container's name: head, width in cells, and a rank. Those of the highest rank make room for the name
/// at first, those of none never.
const COLUMNS: [(&str, u16, u8); 9] = [
    ("ENGINE", 10, 1),
    ("STATE", 7, 0),
    ("ON GPUS", 10, 0),
    ("HOST MEM", 10, 2),
    ("HEADROOM", 10, 0),
    ("KV %", 4, 3),
    ("RUN", 4, 4),
    ("WAIT", 4, 5),
    ("LAST MINUTES", HISTORY_CELLS as u16, 6),
];
/// Cells that a name gets at least, and at most at the cost of columns.
const NAME_CELLS: (usize, usize) = (13, 36);
const KEYS: &str = "q quit  ↑↓ select  enter details  s sort  / filter  p pause";

/// Order of the containers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum SortOrder {
    /// Most memory first.
    #[default]
    Memory,
    /// Least headroom first.
    Headroom,
    /// Fullest KV pool first.
    KvPool,
    /// By name.
    Name,
}

impl SortOrder {
    /// Its word, and the order that comes after it.
    fn label_and_next(self) -> (&'static str, SortOrder) {
        match self {
            SortOrder::Memory => ("memory", SortOrder::Headroom),
            SortOrder::Headroom => ("headroom", SortOrder::KvPool),
            SortOrder::KvPool => ("KV pool", SortOrder::Name),
            SortOrder::Name => ("name", SortOrder::Memory),
        }
    }
}

/// What is shown, and how.
#[derive(Debug, Default)]
pub struct TopScreen {
    scan: MemoryScan,
    ledger: WatchLedger,
    history: BTreeMap<String, VecDeque<u64>>,
    order: SortOrder,
    filter: String,
    /// Whether keys go into the filter.
    filtering: bool,
    /// The selected container's id.
    selected: Option<String>,
    details: bool,
    paused: bool,
    /// Whether colours may be used; else letters mark the parts of a bar.
    color: bool,
}

impl TopScreen {
    /// An empty screen.
    pub fn with_color(color: bool) -> TopScreen {
        TopScreen {
            color,
            ..TopScreen::default()
        }
    }

    /// Takes a scan, and what `watch` remembers where it runs on this host.
    pub fn take_scan(&mut self, scan: MemoryScan, ledger: WatchLedger) {
        for container in &scan.containers {
            let readings = self.history.entry(container.id.clone()).or_default();
            readings.push_back(memory_in_use(&scan, container));
            if readings.len() > MOST_READINGS {
                readings.pop_front();
            }
        }
        self.history
            .retain(|id, _| scan.containers.iter().any(|c| c.id == *id));
        if !self.paused {
            (self.scan, self.ledger) = (scan, ledger);
        }
    }

    /// Does what a key asks for. False where it ends the program.
    pub fn press_key(&mut self, key: KeyCode) -> bool {
        if self.filtering {
            match key {
                KeyCode::Char(c) => self.filter.push(c),
                KeyCode::Backspace => drop(self.filter.pop()),
                KeyCode::Esc => {
                    self.filter.clear();
                    self.filtering = false;
                }
                KeyCode::Enter => self.filtering = false,
                _ => {}
            }
            return true;
        }
        match key {
            KeyCode::Char('q') => return false,
            KeyCode::Char('s') => self.order = self.order.label_and_next().1,
            KeyCode::Char('p') => self.paused = !self.paused,
            KeyCode::Char('/') => self.filtering = true,
            KeyCode::Char('k') | KeyCode::Up => self.select(-1),
            KeyCode::Char('j') | KeyCode::Down => self.select(1),
            KeyCode::Enter => self.details = !self.details,
            KeyCode::Esc if self.details => self.details = false,
            KeyCode::Esc => self.filter.clear(),
            _ => {}
        }
        true
    }

    fn select(&mut self, by: isize) {
        let shown = self.shown();
        let last = shown.len().saturating_sub(1);
        let now = shown.iter().position(|c| self.is_selected(c));
        let next = now.map_or(0, |at| at.saturating_add_signed(by).min(last));
        self.selected = shown.get(next).map(|c| c.id.clone());
    }

    fn is_selected(&self, container: &ContainerScan) -> bool {
        self.selected.as_ref() == Some(&container.id)
    }

    /// The containers that are shown, in order.
    fn shown(&self) -> Vec<&ContainerScan> {
        let scan = &self.scan;
        let fits = |c: &&ContainerScan| {
            let engine = c.engine.as_deref().unwrap_or_default();
            c.name.contains(&self.filter) || engine.contains(&self.filter)
        };
        let mut shown: Vec<&ContainerScan> = scan.containers.iter().filter(fits).collect();
        shown.sort_by(|a, b| a.name.cmp(&b.name));
        match self.order {
            SortOrder::Name => {}
            SortOrder::Memory => shown.sort_by_key(|c| Reverse(memory_in_use(scan, c))),
            SortOrder::Headroom => {
                let share = |c: &ContainerScan| least_headroom(scan, c).map_or(1.0, free_share);
                shown.sort_by(|a, b| share(a).total_cmp(&share(b)));
            }
            SortOrder::KvPool => {
                let full = |c: &ContainerScan| c.kv_usage.unwrap_or(0.0);
                shown.sort_by(|a, b| full(b).total_cmp(&full(a)));
            }
        }
        shown
    }

    /// Draws everything, whatever the size.
    pub fn draw(&self, frame: &mut Frame<'_>) {
        let gpus = self.scan.gpus.len() as u16;
        let details = if self.details { DETAIL_LINES } else { 0 };
        let notes = if self.scan.notes.is_empty() { 0 } else { 2 };
        let [title, bars, legend, table, detail, note, keys] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Max(gpus),
            Constraint::Length(u16::from(gpus > 0)),
            Constraint::Min(3),
            Constraint::Max(details),
            Constraint::Max(notes),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(Paragraph::new(self.title()), title);
        let lines = (self.scan.gpus.iter()).map(|gpu| self.gpu_line(gpu, bars.width));
        let lines: Vec<Line> = lines.collect();
        frame.render_widget(Paragraph::new(lines), bars);
        frame.render_widget(Paragraph::new(self.legend()), legend);
        self.draw_table(frame, table);
        if self.details {
            let lines = Paragraph::new(self.detail_lines());
            frame.render_widget(lines.wrap(Wrap { trim: false }), detail);
        }
        if let Some(first) = self.scan.notes.first() {
            let text = Paragraph::new(format!("note: {first}"));
            frame.render_widget(text.wrap(Wrap { trim: true }), note);
        }
        let last = if self.filtering {
            format!("filter: {}▏  enter keeps it, esc clears it", self.filter)
        } else {
            format!("{KEYS}  by {}", self.order.label_and_next().0)
        };
        frame.render_widget(Paragraph::new(Line::styled(last, DIM)), keys);
    }

    /// The device or limit with the least headroom, by its share.
    fn verdict(&self) -> Option<(Headroom, String)> {
        let scan = &self.scan;
        let gpus = scan.gpus.iter().filter_map(|gpu| {
            let name = format!("GPU {}", gpu.index);
            Some((name, gpu.free_bytes()?, gpu.total_bytes?))
        });
        let host = scan.host.iter();
        let host = host.map(|h| ("host".to_owned(), h.available_bytes, h.total_bytes));
        let limits = (scan.containers.iter())
            .filter_map(|c| Some((c.name.clone(), c.headroom_bytes()?, c.host_limit_bytes?)));
        let (name, free, total) = gpus
            .chain(host)
            .chain(limits)
            .min_by(|a, b| free_share((a.1, a.2)).total_cmp(&free_share((b.1, b.2))))?;
        let level = Headroom::of_share(free, total)?;
        Some((level, format!("{level}: {name} has {} free", Bytes(free))))
    }

    fn title(&self) -> Line<'static> {
        let mut spans = vec![Span::styled("plimsoll top", BOLD)];
        if self.scan.backend.as_ref().is_some_and(|b| b.simulated) {
            let critical = self.level_style(Some(Headroom::Critical));
            spans.push(Span::styled("  SIMULATED GPUs", critical));
        }
        if let Some((level, text)) = self.verdict() {
            let style = self.level_style(Some(level));
            spans.push(Span::styled(format!("  {text}"), style));
        }
        if let Some(host) = &self.scan.host {
            let used = Bytes(host.total_bytes.saturating_sub(host.available_bytes));
            let total = Bytes(host.total_bytes);
            spans.push(Span::raw(format!("  host {used} of {total}")));
        }
        if !self.filter.is_empty() {
            spans.push(Span::raw(format!("  with `{}`", self.filter)));
        }
        if self.paused {
            spans.push(Span::styled("  PAUSED", BOLD));
        }
        Line::from(spans)
    }

    fn gpu_line(&self, gpu: &GpuLook, width: u16) -> Line<'static> {
        let free = gpu.free_bytes().zip(gpu.total_bytes);
        let level = free.and_then(|(free, total)| Headroom::of_share(free, total));
        let percent = gpu.used_bytes.zip(gpu.total_bytes);
        let percent = percent.map(|(used, total)| used as f64 * 100.0 / total.max(1) as f64);
        let head = format!("{:>2} {:<14.14} ", gpu.index, short_name(&gpu.name));
        let tail = format!(
            " {:>9} {:>4} {:>5} {:>4} {:>5}",
            or_unknown(gpu.used_bytes, |b| Bytes(b).to_string()),
            or_unknown(percent, |p| format!("{p:.0} %")),
            or_unknown(gpu.utilization_pct, |p| format!("{p} % ")),
            or_unknown(gpu.temperature_c, |c| format!("{c}C")),
            or_unknown(gpu.power_w, |w| format!("{w:.0} W")),
        );
        let cells = usize::from(width).saturating_sub(head.chars().count() + tail.chars().count());
        let mut spans = vec![Span::raw(head)];
        spans.extend(self.bar(gpu, cells));
        spans.push(Span::styled(tail, self.level_style(level)));
        Line::from(spans)
    }

    /// What holds a GPU's memory: the parts of each container where they are known, then others.
    fn segments(&self, gpu: &GpuLook) -> Vec<(Component, u64)> {
        let mut segments = Vec::new();
        for tenant in &gpu.tenants {
            let id = tenant.container_id.as_ref();
            let mut records = self.ledger.containers.values();
            let record = records.find(|r| Some(&r.id) == id);
            let parts = record.iter().flat_map(|r| &r.life.parts);
            let mut left = tenant.used_bytes;
            for part in parts.filter(|p| p.device == gpu.uuid) {
                // Of a profile's parts, those of others are drawn as such.
                let own = !matches!(
                    part.component,
                    Component::Baseline | Component::DriverReserved
                );
                let bytes = u64::try_from(part.bytes).unwrap_or(0).min(left);
                if own && bytes > 0 && part.component != Component::Unexplained {
                    left -= bytes;
                    segments.push((part.component, bytes));
                }
            }
            let of = self.scan.containers.iter().find(|c| Some(&c.id) == id);
            let pool = (of.and_then(|c| c.kv_pool_bytes)).filter(|_| left == tenant.used_bytes);
            let pool = pool.unwrap_or(0).min(left);
            let rest = id.map_or(Component::Baseline, |_| Component::Runtime);
            segments.extend([(Component::KvCache, pool), (rest, left - pool)]);
        }
        // Where the driver lists no processes, the holders are unknown.
        let held = saturating_sum(gpu.tenants.iter().map(|t| t.used_bytes));
        let unknown = gpu.used_bytes.unwrap_or(0).saturating_sub(held);
        let unattributed = gpu.unattributed_bytes.unwrap_or(unknown);
        let reserved = gpu.reserved_bytes.unwrap_or(0);
        segments.extend([
            (Component::Unexplained, unattributed),
            (Component::DriverReserved, reserved),
        ]);
        segments.retain(|(_, bytes)| *bytes > 0);
        segments
    }

    fn bar(&self, gpu: &GpuLook, cells: usize) -> Vec<Span<'static>> {
        let Some(total) = gpu.total_bytes.filter(|t| *t > 0) else {
            return vec![Span::raw(" ".repeat(cells))];
        };
        let cell_of =
            |bytes: u64| (bytes.min(total) as f64 / total as f64 * cells as f64).round() as usize;
        let (mut spans, mut at, mut sum) = (Vec::new(), 0, 0_u64);
        for (component, bytes) in self.segments(gpu) {
            sum = sum.saturating_add(bytes);
            let end = cell_of(sum);
            spans.push(self.piece(component, end.saturating_sub(at)));
            at = end.max(at);
        }
        spans.push(Span::styled("·".repeat(cells.saturating_sub(at)), DIM));
        spans
    }

    fn piece(&self, component: Component, cells: usize) -> Span<'static> {
        if !self.color {
            return Span::raw(part_letter(component).repeat(cells));
        }
        let (r, g, b) = component_colour(component, true);
        let glyph = match component {
            Component::Unexplained => "▒",
            _ => "█",
        };
        Span::styled(glyph.repeat(cells), Style::new().fg(Color::Rgb(r, g, b)))
    }

    fn legend(&self) -> Line<'static> {
        let segments = (self.scan.gpus.iter()).flat_map(|gpu| self.segments(gpu));
        let named: BTreeSet<Component> = segments.map(|(component, _)| component).collect();
        let mut spans = vec![Span::raw("   ")];
        for component in named {
            spans.push(self.piece(component, 1));
            spans.push(Span::raw(format!(" {}  ", part_label(component))));
        }
        Line::from(spans)
    }

    fn draw_table(&self, frame: &mut Frame<'_>, area: Rect) {
        let shown = self.shown();
        if shown.is_empty() {
            let text = if self.filter.is_empty() {
                "no container with a known engine"
            } else {
                "no container has this in its name or engine: esc clears the filter"
            };
            frame.render_widget(Paragraph::new(text), area);
            return;
        }
        let names = shown.iter().map(|c| c.name.chars().count());
        let columns = columns_beside(names.max().unwrap_or(0), area.width);
        let rows = shown.iter().map(|c| self.container_row(c, &columns));
        let beside = columns.iter();
        let beside = beside.map(|n| (COLUMNS[*n].0, Constraint::Length(COLUMNS[*n].1)));
        let (heads, widths): (Vec<_>, Vec<_>) = [("CONTAINER", Constraint::Fill(1))]
            .into_iter()
            .chain(beside)
            .unzip();
        let table = Table::new(rows, widths)
            .header(Row::new(heads).style(BOLD))
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        let at = shown.iter().position(|c| self.is_selected(c));
        let mut state = TableState::new().with_selected(at);
        frame.render_stateful_widget(table, area, &mut state);
    }

    fn container_row(&self, container: &ContainerScan, columns: &[usize]) -> Row<'static> {
        let scan = &self.scan;
        let bytes = |count: Option<u64>| or_unknown(count, |b| Bytes(b).to_string());
        let count = |n: Option<u64>| or_unknown(n, |n| n.to_string());
        let devices = devices_of(scan, container);
        let on_gpus = devices.iter().filter(|(d, _)| d != HOST_DEVICE);
        let on_gpus = on_gpus.map(|(_, b)| *b).reduce(|a, b| a + b);
        let state = match (&container.engine, container.serving) {
            (None, _) => UNKNOWN,
            (Some(_), true) => "serving",
            (Some(_), false) => "silent",
        };
        let free = least_headroom(scan, container);
        let level = free.and_then(|(free, total)| Headroom::of_share(free, total));
        let headroom = bytes(free.map(|(free, _)| free));
        let readings = self.history.get(&container.id);
        let cells = [
            Cell::from(container.engine_words()),
            Cell::from(state),
            Cell::from(bytes(on_gpus)),
            Cell::from(bytes(container.host_bytes)),
            Cell::from(Span::styled(headroom, self.level_style(level))),
            Cell::from(container.kv_percent()),
            Cell::from(count(container.requests_running)),
            Cell::from(count(container.requests_waiting)),
            Cell::from(readings.map_or(String::new(), |r| history_line(r, HISTORY_CELLS))),
        ];
        let name = Cell::from(container.name.clone());
        Row::new(
            [name]
                .into_iter()
                .chain(columns.iter().map(|n| cells[*n].clone())),
        )
    }

    /// The selected container: its parts, limits, growth and last death, with their sources.
    fn detail_lines(&self) -> Vec<Line<'static>> {
        let shown = self.shown();
        let selected = shown.iter().find(|c| self.is_selected(c));
        let Some(container) = selected.or(shown.first()) else {
            return Vec::new();
        };
        let head = format!("── {} ({:.12})", container.name, container.id);
        let mut lines = vec![Line::styled(head, BOLD)];
        let record = self.ledger.containers.get(&container.name);
        match record.filter(|r| r.id == container.id) {
            Some(record) => self.record_lines(record, &mut lines),
            None => lines.push(Line::raw(
                "parts, growth and deaths: unknown; `plimsoll watch` reads them while it runs",
            )),
        }
        let text = |name: &str, bytes: Option<u64>| Some(format!("{name} {}", Bytes(bytes?)));
        let kinds = container.host.unwrap_or_default();
        let host = [
            text("limit", container.host_limit_bytes),
            text("anonymous", kinds.anon_bytes),
            text("shared", kinds.shmem_bytes),
            text("page cache", kinds.file_bytes),
            text("swap", kinds.swap_bytes),
            text("highest by the kernel", container.host_peak_bytes),
        ];
        let host: Vec<String> = host.into_iter().flatten().collect();
        let host = format!("host memory (cgroup): {}", host.join(", "));
        lines.push(Line::raw(host));
        if let Some(pool) = container.kv_pool_bytes.map(Bytes) {
            let used = or_unknown(container.kv_used_bytes, |b| Bytes(b).to_string());
            let text = format!("KV pool (the engine's endpoints): {used} of {pool} in use");
            lines.push(Line::raw(text));
        }
        lines
    }

    fn record_lines(&self, record: &ContainerRecord, lines: &mut Vec<Line<'static>>) {
        let life = &record.life;
        let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
        let (model, version) = (known(&life.model), known(&life.engine_version));
        lines.push(Line::raw(format!("model {model}, version {version}")));
        if let Some(why) = &life.unread {
            lines.push(Line::raw(format!("its parts are unknown: {why}")));
        }
        let mut by_device: BTreeMap<&str, Vec<Span<'static>>> = BTreeMap::new();
        for part in &life.parts {
            let spans = by_device.entry(&part.device).or_default();
            spans.push(self.piece(part.component, 1));
            let bytes = Bytes(part.bytes.unsigned_abs());
            let sign = if part.bytes < 0 { "-" } else { "" };
            let label = part.component.display_label();
            spans.push(Span::raw(format!(" {label} {sign}{bytes}  ")));
        }
        for (device, mut spans) in by_device {
            let gpu = self.scan.gpus.iter().find(|gpu| gpu.uuid == device);
            let name = gpu.map_or("host".to_owned(), |gpu| format!("GPU {}", gpu.index));
            spans.insert(0, Span::raw(format!("{name} by its profile: ")));
            lines.push(Line::from(spans));
        }
        for (device, rate) in life.growth_per_s.iter().filter(|(_, rate)| **rate > 0.0) {
            let place = match device.as_str() {
                HOST_DEVICE => "host memory",
                device => device,
            };
            let hourly = Bytes((rate * 3600.0) as u64);
            let text = format!("{place} grows by {hourly} an hour");
            lines.push(Line::styled(text, self.level_style(Some(Headroom::Tight))));
        }
        if let Some(death) = &record.last_death {
            let why = known(&death.means.clone().or(death.cause.clone()));
            let all: u64 = record.deaths.values().sum();
            let text = format!("deaths {all}, the last: {why}");
            let critical = self.level_style(Some(Headroom::Critical));
            lines.push(Line::styled(text, critical));
        }
    }

    fn level_style(&self, level: Option<Headroom>) -> Style {
        match level.filter(|_| self.color) {
            Some(Headroom::Safe) => Style::new().fg(Color::Green),
            Some(Headroom::Tight) => Style::new().fg(Color::Yellow),
            Some(Headroom::Critical) => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
            None => Style::new(),
        }
    }
}

/// The least free memory of what a container is on, by its share: free and total bytes.
fn least_headroom(scan: &MemoryScan, container: &ContainerScan) -> Option<(u64, u64)> {
    let own = |gpu: &&GpuLook| {
        let mut tenants = gpu.tenants.iter();
        tenants.any(|t| t.container_id.as_ref() == Some(&container.id))
    };
    let gpus = scan.gpus.iter().filter(own);
    let gpus = gpus.filter_map(|gpu| gpu.free_bytes().zip(gpu.total_bytes));
    let limit = container.headroom_bytes().zip(container.host_limit_bytes);
    gpus.chain(limit)
        .min_by(|a, b| free_share(*a).total_cmp(&free_share(*b)))
}

fn free_share((free, total): (u64, u64)) -> f64 {
    free as f64 / total.max(1) as f64
}

/// `NVIDIA GeForce RTX 4090` as `RTX 4090`.
fn short_name(name: &str) -> String {
    let makers = ["NVIDIA ", "GeForce ", "AMD ", "Instinct "];
    let without = |name: String, maker: &&str| name.replacen(maker, "", 1);
    makers.iter().fold(name.to_owned(), without)
}

/// A part as `top` names it: a GPU's bar also has what is in no profile.
fn part_label(component: Component) -> &'static str {
    match component {
        Component::Runtime => "engine, other",
        Component::Baseline => "host processes",
        Component::Unexplained => "no process",
        part => part.display_label(),
    }
}

/// A letter for each part, where there are no colours.
fn part_letter(component: Component) -> &'static str {
    match component {
        Component::ModelWeights => "W",
        Component::KvCache => "K",
        Component::Activations => "A",
        Component::CudaGraphs => "G",
        Component::NonTorch => "N",
        Component::Runtime => "E",
        Component::Baseline => "o",
        Component::DriverReserved => "d",
        Component::WarmupGrowth => "g",
        Component::PageCache => "c",
        Component::BenchClient => "b",
        Component::Swap => "s",
        Component::Unexplained => "?",
    }
}

/// The last readings as a line of blocks from the lowest to the highest of them.
fn history_line(readings: &VecDeque<u64>, cells: usize) -> String {
    let each = readings.len().div_ceil(cells).max(1);
    let all: Vec<u64> = readings.iter().copied().collect();
    let peaks = all.chunks(each).filter_map(|c| c.iter().max());
    let low = peaks.clone().min().copied().unwrap_or(0);
    let high = peaks.clone().max().copied().unwrap_or(0);
    let blocks = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let place = |bytes: &u64| match (high - low) as f64 {
        // Less than 1 % of it does not matter.
        range if range < high as f64 * 0.01 => 0,
        range => ((bytes - low) as f64 / range * 7.0).round() as usize,
    };
    peaks.filter_map(|bytes| blocks.get(place(bytes))).collect()
}

/// The columns, as places in `COLUMNS`, that have room beside a container name of `longest` characters.
fn columns_beside(longest: usize, width: u16) -> Vec<usize> {
    let name = longest.clamp(NAME_CELLS.0, NAME_CELLS.1);
    let mut columns: Vec<usize> = (0..COLUMNS.len()).collect();
    for dropped in (1..=COLUMNS.len() as u8).rev() {
        // One cell stands between two columns.
        let taken = columns.iter().map(|n| usize::from(COLUMNS[*n].1) + 1);
        if taken.sum::<usize>() + name <= usize::from(width) {
            break;
        }
        columns.retain(|n| COLUMNS[*n].2 != dropped);
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::super::TenantLook;
    use super::super::ledger::{DeathRecord, DevicePart};
    use super::*;
    use crate::capture::{HostSplit, HostState};
    use proptest::prelude::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    const GIB: u64 = 1 << 30;

    fn container(id: &str, engine: &str, gib: u64) -> ContainerScan {
        ContainerScan {
            id: id.repeat(16),
            name: format!("{engine}-{id}"),
            engine: Some(engine.to_owned()),
            serving: true,
            host_bytes: Some(gib * GIB),
            host: Some(HostSplit::default()),
            host_limit_bytes: Some(16 * GIB),
            kv_pool_bytes: Some(30 * GIB),
            kv_used_bytes: Some(15 * GIB),
            kv_usage: Some(0.5),
            requests_running: Some(3),
            requests_waiting: Some(0),
            ..ContainerScan::default()
        }
    }

    fn scan() -> MemoryScan {
        let tenant = |id: Option<&str>, gib: u64| TenantLook {
            container_id: id.map(|id| id.repeat(16)),
            container_name: None,
            used_bytes: gib * GIB,
        };
        let gpu = |index: u32, tenants: Vec<TenantLook>| GpuLook {
            index,
            uuid: format!("GPU-{index}"),
            name: "NVIDIA H100 80GB HBM3".into(),
            total_bytes: Some(80 * GIB),
            used_bytes: Some(tenants.iter().map(|t| t.used_bytes).sum::<u64>() + GIB),
            tenants,
            unattributed_bytes: Some(GIB),
            power_w: Some(690.4),
            utilization_pct: Some(97),
            temperature_c: Some(66),
            ..GpuLook::default()
        };
        MemoryScan {
            gpus: vec![
                gpu(0, vec![tenant(Some("a"), 60), tenant(None, 4)]),
                gpu(1, vec![tenant(Some("b"), 77)]),
            ],
            host: Some(HostState {
                total_bytes: 100 * GIB,
                available_bytes: 40 * GIB,
                ..HostState::default()
            }),
            containers: vec![
                container("a", "vllm", 4),
                container("b", "sglang", 8),
                container("c", "ollama", 15),
            ],
            ..MemoryScan::default()
        }
    }

    fn ledger() -> WatchLedger {
        let part = |component, gib: i64| DevicePart {
            device: "GPU-0".into(),
            component,
            bytes: gib << 30,
        };
        let record = ContainerRecord {
            id: "a".repeat(16),
            deaths: [("gpu_oom_at_load".to_owned(), 2)].into(),
            last_death: Some(DeathRecord {
                means: Some("a request ran out of GPU memory".into()),
                ..DeathRecord::default()
            }),
            life: super::super::ledger::ContainerLife {
                model: Some("Qwen/Qwen3-8B".into()),
                parts: vec![
                    part(Component::ModelWeights, 15),
                    part(Component::KvCache, 40),
                    part(Component::Activations, 3),
                ],
                growth_per_s: [(HOST_DEVICE.to_owned(), 10_000.0)].into(),
                ..Default::default()
            },
            ..ContainerRecord::default()
        };
        WatchLedger {
            containers: [("vllm-a".to_owned(), record)].into(),
            ..WatchLedger::default()
        }
    }

    fn page(screen: &TopScreen, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        terminal.backend().to_string()
    }

    fn screen() -> TopScreen {
        let mut screen = TopScreen::default();
        screen.take_scan(scan(), ledger());
        screen
    }

    #[test]
    fn a_small_terminal_has_bars_containers_and_details() {
        let mut screen = screen();
        screen.press_key(KeyCode::Down);
        screen.press_key(KeyCode::Char('s'));
        screen.press_key(KeyCode::Char('s'));
        screen.press_key(KeyCode::Char('s'));
        while screen.selected != Some("a".repeat(16)) {
            screen.press_key(KeyCode::Down);
        }
        screen.press_key(KeyCode::Enter);
        insta::assert_snapshot!(page(&screen, 80, 24));
    }

    #[test]
    fn a_wide_terminal_has_the_last_minutes() {
        let mut screen = screen();
        for gib in [4, 5, 6, 9] {
            let mut next = scan();
            next.containers[0].host_bytes = Some(gib * GIB);
            screen.take_scan(next, ledger());
        }
        insta::assert_snapshot!(page(&screen, 120, 14));
    }

    #[test]
    fn names_have_their_room_before_figures_of_requests() {
        let heads = |longest, width| -> Vec<&str> {
            columns_beside(longest, width)
                .iter()
                .map(|n| COLUMNS[*n].0)
                .collect()
        };
        assert_eq!(heads(10, 120).last(), Some(&"LAST MINUTES"));
        assert_eq!(heads(10, 80).last(), Some(&"WAIT"));
        assert_eq!(heads(20, 80).last(), Some(&"KV %"));
        assert_eq!(heads(36, 60), ["STATE", "ON GPUS", "HEADROOM"]);
    }

    #[test]
    fn keys_sort_filter_and_pause() {
        let mut screen = screen();
        let first = |screen: &TopScreen| screen.shown()[0].name.clone();
        assert_eq!(first(&screen), "sglang-b", "by memory");
        screen.press_key(KeyCode::Char('s'));
        assert_eq!(first(&screen), "sglang-b", "GPU 1 has 2 of 80 GiB free");
        for key in "/oll".chars() {
            screen.press_key(KeyCode::Char(key));
        }
        assert_eq!(screen.shown().len(), 1);
        assert!(
            screen.press_key(KeyCode::Char('q')),
            "a letter of the filter"
        );
        screen.press_key(KeyCode::Backspace);
        screen.press_key(KeyCode::Enter);
        assert_eq!(first(&screen), "ollama-c");
        screen.press_key(KeyCode::Char('p'));
        screen.take_scan(MemoryScan::default(), WatchLedger::default());
        assert_eq!(first(&screen), "ollama-c");
        screen.press_key(KeyCode::Esc);
        assert_eq!(screen.shown().len(), 3);
        assert!(!screen.press_key(KeyCode::Char('q')));
    }

    proptest! {
        #[test]
        fn any_size_and_any_keys_are_drawn(width in 1_u16..220, height in 1_u16..70, keys in "[skjp/qab]{0,12}") {
            let mut screen = screen();
            for key in keys.chars() {
                screen.press_key(KeyCode::Char(key));
            }
            screen.press_key(KeyCode::Enter);
            page(&screen, width, height);
        }
    }
}
