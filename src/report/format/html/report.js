/* The page: colours, tables that sort, the drawer with a figure's source, and what is said where a mark is pointed at.
   Without it the page says the same: figures link to their sources, charts are drawings with tables under them. */
(() => {
  const all = (what, within) => [...(within || document).querySelectorAll(what)];

  const tip = (() => {
    const box = document.querySelector(".tip");
    const place = (px, top, middle) => {
      box.hidden = false;
      const { width, height } = box.getBoundingClientRect();
      const wide = document.documentElement.clientWidth, high = window.innerHeight;
      const beside = px + 14 + width <= wide - 4 ? px + 14 : px - 14 - width;
      const left = Math.max(4, Math.min(beside, wide - width - 4));
      const above = Math.max(4, Math.min(middle - height / 2, high - height - 4));
      box.style.transform = `translate(${Math.round(left)}px, ${Math.round(above)}px)`;
    };
    return {
      rows(rows, px, top, middle) {
        box.replaceChildren(...rows.map(([label, words, kind]) => {
          const row = told("div", undefined, kind || (words ? "" : "alone"));
          row.append(told("span", label));
          if (words) row.append(told("span", words));
          return row;
        }));
        place(px, top, middle);
      },
      hide() { box.hidden = true; },
    };
  })();
  addEventListener("scroll", () => tip.hide(), { passive: true, capture: true });
  addEventListener("keydown", event => { if (event.key === "Escape") tip.hide(); });

  /* Light or dark: as the reader's system says, until the button says otherwise. */
  const theme = document.querySelector(".theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (document.documentElement.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  const recolour = () => {
    theme.textContent = dark() ? "Light" : "Dark";
    theme.title = dark() ? "Show on light ground" : "Show on dark ground";
    document.dispatchEvent(new Event("recoloured"));
  };
  /* A page from the disk may have no storage. */
  const kept = (word) => {
    try {
      return word ? localStorage.setItem("plimsoll-theme", word) : localStorage.getItem("plimsoll-theme");
    } catch { return null; }
  };
  const before = kept();
  if (before === "dark" || before === "light") document.documentElement.dataset.theme = before;
  theme.hidden = false;
  theme.addEventListener("click", () => {
    document.documentElement.dataset.theme = dark() ? "light" : "dark";
    kept(document.documentElement.dataset.theme);
    recolour();
  });
  system.addEventListener("change", recolour);

  /* Tables sort by a click on a head; what is not known stays last. */
  const order = new Intl.Collator("en", { numeric: true });
  const key = (row, n) => {
    const cell = row.cells[n];
    if (!cell || cell.querySelector(".missing") || !cell.textContent.trim()) return null;
    return cell.dataset.number === undefined ? cell.textContent.trim() : Number(cell.dataset.number);
  };
  const compare = (a, b) => {
    const words = [typeof a, typeof b].filter(t => t === "string").length;
    if (words === 2) return order.compare(a, b);
    return words ? (typeof a === "string" ? 1 : -1) : a - b;
  };
  for (const table of all("table")) {
    const body = table.tBodies[0];
    if (!body || body.rows.length < 2) continue;
    all("thead th", table).forEach((head, n) => {
      if (!head.textContent.trim()) return;
      const button = told("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        all("[aria-sort]", table).forEach(h => h.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const rows = [...body.rows].map(row => [key(row, n), row]);
        rows.sort(([a], [b]) => a === null || b === null ? (a === null) - (b === null) : (down ? -1 : 1) * compare(a, b));
        body.append(...rows.map(r => r[1]));
      });
    });
  }

  /* A figure's source, beside it. */
  const drawer = document.getElementById("report-drawer");
  let from = null;
  const open = (source, opener) => {
    const entry = document.getElementById("source-" + source);
    if (!entry) return;
    const copy = entry.cloneNode(true);
    copy.removeAttribute("id");
    copy.querySelector("h3").id = "report-drawer-title";
    const close = told("button", "Close", "close");
    close.type = "button";
    close.addEventListener("click", () => drawer.close());
    drawer.replaceChildren(close, copy);
    from = opener;
    tip.hide();
    drawer.showModal();
    drawer.scrollTop = 0;
  };
  drawer.addEventListener("close", () => {
    if (from) from.focus();
    from = null;
    drawer.replaceChildren();
  });
  drawer.addEventListener("click", event => { if (event.target === drawer) drawer.close(); });
  const opens = (element, source) => {
    element.setAttribute("role", "button");
    element.setAttribute("aria-haspopup", "dialog");
    element.addEventListener("click", event => {
      event.preventDefault();
      open(source, element);
    });
    element.addEventListener("keydown", event => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      open(source, element);
    });
  };
  all("a.sourced").forEach(a => opens(a, a.getAttribute("href").slice("#source-".length)));

  /* Marks of drawings: what they are is said where they are pointed at, and those with a source open it. */
  for (const mark of all(".picture .mark")) {
    const { label, value, more, source } = mark.dataset;
    const words = [label, value, more].filter(Boolean).join(", ");
    mark.querySelector("title")?.remove();
    mark.setAttribute("aria-label", words);
    if (source === undefined) {
      mark.setAttribute("role", "img");
    } else {
      mark.setAttribute("tabindex", "0");
      opens(mark, source);
    }
    const tell = () => {
      const box = mark.getBoundingClientRect();
      tip.rows([[label, value], ...(more ? [[more, ""]] : [])], box.right, box.top, box.top + box.height / 2);
    };
    mark.addEventListener("pointerenter", tell);
    mark.addEventListener("focus", tell);
    mark.addEventListener("pointerleave", () => tip.hide());
    mark.addEventListener("blur", () => tip.hide());
  }
  /* A drawing is one picture to a screen reader unless something in it can be opened. */
  for (const drawing of all(".picture svg")) {
    if (drawing.querySelector("[role=button]")) drawing.setAttribute("role", "group");
  }

  all("figure.timeline").forEach(figure => look(figure, tip));

  /* Which chapter is being read. */
  const links = all("nav a"), seen = new Set();
  const sections = links.map(a => document.getElementById(decodeURIComponent(a.getAttribute("href").slice(1))));
  const watch = new IntersectionObserver(entries => {
    for (const entry of entries) seen[entry.isIntersecting ? "add" : "delete"](entry.target);
    const first = sections.findIndex(s => seen.has(s));
    links.forEach((a, n) => n === first ? a.setAttribute("aria-current", "true") : a.removeAttribute("aria-current"));
  }, { rootMargin: "-10% 0px -60% 0px" });
  sections.forEach(s => s && watch.observe(s));

  /* On paper everything is open. */
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = all("details:not([open])");
    folded.forEach(d => { d.open = true; });
  });
  addEventListener("afterprint", () => folded.forEach(d => { d.open = false; }));
  /* A link to a source opens the list that it stands in. */
  const unfold = () => {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const list = target && target.closest("details");
    if (list) list.open = true;
  };
  addEventListener("hashchange", unfold);
  unfold();
  recolour();
})();
