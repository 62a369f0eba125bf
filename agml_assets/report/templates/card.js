"use strict";
// What is usable by hand in the card: state in the address, tables, scatter plots, the copy button.
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const variable = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // --- State, kept behind `#` so that a view can be shared: `#section&key=value`.
  const state = new Map();
  let anchor = "";
  const decode = text => { try { return decodeURIComponent(text); } catch { return text; } };
  function readAddress() {
    anchor = "";
    state.clear();
    for (const part of location.hash.slice(1).split("&")) {
      const at = part.indexOf("=");
      if (at < 0) anchor = decode(part);
      else state.set(decode(part.slice(0, at)), decode(part.slice(at + 1)));
    }
  }
  function writeAddress() {
    const parts = [...state].map(([key, value]) => `${encodeURIComponent(key)}=${encodeURIComponent(value)}`);
    try { history.replaceState(null, "", `#${[encodeURIComponent(anchor), ...parts].join("&")}`); } catch { /* not everywhere */ }
  }
  function keep(key, value) {
    if (value) state.set(key, value); else state.delete(key);
    writeAddress();
  }
  const appliers = [];
  addEventListener("hashchange", () => {
    const before = new Map(state);
    readAddress();
    if (location.hash.includes("=")) appliers.forEach(apply => apply());
    else { before.forEach((value, key) => state.set(key, value)); writeAddress(); }
    showAnchor();
  });
  function showAnchor() {
    const target = anchor && document.getElementById(anchor);
    if (target) target.scrollIntoView();
  }

  // --- Tables: headings sort, a field filters.
  function numberIn(text) {
    const found = text.replace(/,(?=\d{3})/g, "").match(/-?\d+(\.\d+)?(e[+-]?\d+)?/i);
    return found ? Number(found[0]) : null;
  }
  for (const table of document.querySelectorAll("table[data-sortable]")) {
    const body = table.tBodies[0];
    const original = [...body.rows];
    const headings = [...table.tHead.rows[0].cells];
    const field = document.querySelector(`input[data-for="${table.id}"]`);
    const apply = () => {
      const wanted = state.get(`${table.id}.sort`) || "";
      const column = parseInt(wanted, 10);
      headings.forEach((heading, i) => heading.setAttribute("aria-sort",
        i !== column ? "none" : wanted.endsWith("d") ? "descending" : "ascending"));
      const rows = [...original];
      if (column >= 0 && column < headings.length) {
        const numeric = headings[column].classList.contains("number");
        const sign = wanted.endsWith("d") ? -1 : 1;
        const value = row => { const text = row.cells[column].textContent; return numeric ? numberIn(text) : text; };
        rows.sort((one, other) => {
          const a = value(one), b = value(other);
          if (a === null || b === null) return (a === null) - (b === null);  // what is not computable comes last
          return sign * (numeric ? a - b : a.localeCompare(b, "en", {numeric: true}));
        });
      }
      body.append(...rows);
      const text = (state.get(`${table.id}.find`) || "");
      if (field) field.value = text;
      for (const row of original) row.hidden = !row.textContent.toLowerCase().includes(text.toLowerCase());
    };
    headings.forEach((heading, i) => heading.querySelector("button")?.addEventListener("click", () => {
      keep(`${table.id}.sort`, `${i}${state.get(`${table.id}.sort`) === `${i}a` ? "d" : "a"}`);
      apply();
    }));
    field?.addEventListener("input", () => { keep(`${table.id}.find`, field.value); apply(); });
    appliers.push(apply);
  }

  // --- Scatter plots. Okabe and Ito's colours; the outline carries the pale ones on a white page.
  const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#f0e442"];
  const LAST = {light: "#000000", dark: "#ffffff"};
  const MARKERS = ["circle", "triangle", "square", "diamond", "inverted_triangle", "hex"];
  const SHAPES = {
    circle: '<circle cx="8" cy="8" r="6"/>', triangle: '<path d="M8 1 15 14H1z"/>',
    square: '<path d="M2 2h12v12H2z"/>', diamond: '<path d="M8 0 15 8 8 16 1 8z"/>',
    inverted_triangle: '<path d="M8 15 1 2h14z"/>', hex: '<path d="M4 1h8l4 7-4 7H4L0 8z"/>',
  };
  const colourOf = i => i < COLOURS.length ? COLOURS[i] : LAST[dark.matches ? "dark" : "light"];
  const median = values => [...values].sort((a, b) => a - b)[values.length >> 1];

  function drawScatter(name) {
    const data = JSON.parse(document.getElementById(`${name}-data`).textContent);
    const box = document.getElementById(`${name}-chart`);
    const said = document.getElementById(`${name}-said`), tip = document.getElementById(`${name}-tip`);
    const select = document.getElementById(`${name}-class`);
    const flagged = document.getElementById(`${name}-flagged`);
    const checks = [...document.querySelectorAll(`input[name="${name}-group"]`)];
    const n = data.x.length;
    const byLabel = data.colour === "label";
    const coloured = !byLabel || data.labels.length <= COLOURS.length + 1;
    const extent = values => {
      const [low, high] = values.reduce(([l, h], v) => [Math.min(l, v), Math.max(h, v)], [Infinity, -Infinity]);
      const pad = (high - low) * 0.05 || 0.5;
      return [low - pad, high + pad];
    };
    const full = {x: extent(data.x), y: extent(data.y)};
    const xRange = new Bokeh.Range1d({start: full.x[0], end: full.x[1]});
    const yRange = new Bokeh.Range1d({start: full.y[0], end: full.y[1]});
    const figure = Bokeh.Plotting.figure({
      x_range: xRange, y_range: yRange, tools: [], toolbar_location: null, sizing_mode: "stretch_both",
      background_fill_alpha: 0, border_fill_alpha: 0, outline_line_color: null, min_border: 8,
    });
    // A finger scrolls the page; a mouse drags the plot. The wheel zooms with Ctrl only, for the same reason.
    if (matchMedia("(pointer: fine)").matches) figure.add_tools(new Bokeh.PanTool());
    figure.add_tools(new Bokeh.WheelZoomTool({modifiers: {ctrl: true}}));
    figure.xgrid.visible = figure.ygrid.visible = false;
    // The names of the axes stand in the page: the library draws its own a second time in the corner.
    for (const axis of [figure.xaxis, figure.yaxis]) {
      axis.visible = data.axes;
      axis.minor_tick_line_color = null;
    }
    const columns = () => ({x: [], y: [], colour: [], marker: []});
    const back = new Bokeh.ColumnDataSource({data: columns()});
    const front = new Bokeh.ColumnDataSource({data: columns()});
    const ring = new Bokeh.ColumnDataSource({data: {x: [], y: []}});
    const names = new Bokeh.ColumnDataSource({data: {x: [], y: [], text: []}});
    const size = n > 2000 ? 6 : 8;
    const shared = {x: {field: "x"}, y: {field: "y"}, marker: {field: "marker"}, size};
    const behind = figure.scatter({...shared, source: back, fill_alpha: 0.25, line_color: null});
    const ahead = figure.scatter({...shared, source: front, fill_color: {field: "colour"}, fill_alpha: 0.85, line_width: 0.5});
    const circled = figure.scatter({x: {field: "x"}, y: {field: "y"}, source: ring, size: size + 10, fill_color: null, line_width: 3});
    const written = figure.text({x: {field: "x"}, y: {field: "y"}, text: {field: "text"}, source: names,
      text_align: "center", text_baseline: "middle", text_font_size: "13px", text_font: "system-ui, sans-serif",
      text_font_style: "bold", background_fill_alpha: 0.8, padding: 3});

    const words = i => `Row ${data.index[i]}: ${data.labels[data.label[i]]}, ${data.groups[data.group[i]]}.`;
    let shown = [], current = -1;
    function fill(source, rows) {
      const fresh = columns();
      for (const i of rows) {
        fresh.x.push(data.x[i]); fresh.y.push(data.y[i]);
        fresh.marker.push(MARKERS[data.group[i] % MARKERS.length]);
        fresh.colour.push(!coloured ? variable("--accent") : colourOf(byLabel ? data.label[i] : data.group[i]));
      }
      source.data = fresh;
    }
    function writeNames() {
      const found = [];
      if (byLabel && coloured && select.value === "") {
        data.labels.forEach((text, code) => {
          const rows = shown.filter(i => data.label[i] === code);
          if (rows.length) found.push({x: median(rows.map(i => data.x[i])), y: median(rows.map(i => data.y[i])),
            text: text.length > 24 ? `${text.slice(0, 23)}…` : text});
        });
        found.sort((a, b) => a.y - b.y);
        const step = (yRange.end - yRange.start) * 0.065;
        for (let i = 1; i < found.length; i++) found[i].y = Math.max(found[i].y, found[i - 1].y + step);
      }
      names.data = {x: found.map(f => f.x), y: found.map(f => f.y), text: found.map(f => f.text)};
    }
    function describe(i) {
      current = i;
      ring.data = i < 0 ? {x: [], y: []} : {x: [data.x[i]], y: [data.y[i]]};
      said.textContent = i < 0 ? `${shown.length.toLocaleString("en")} of ${n.toLocaleString("en")} points shown.`
        : words(i);
    }
    function paint() {
      const text = variable("--text"), muted = variable("--muted");
      for (const axis of [figure.xaxis, figure.yaxis]) {
        axis.major_label_text_color = muted;
        axis.axis_line_color = axis.major_tick_line_color = variable("--rule");
      }
      behind.glyph.fill_color = {value: variable("--point")};
      ahead.glyph.line_color = {value: variable("--outline")};
      circled.glyph.line_color = {value: text};
      written.glyph.text_color = {value: text};
      written.glyph.background_fill_color = {value: variable("--page")};
      const chosen = select.value === "" ? -1 : Number(select.value);
      const groups = new Set(checks.filter(check => check.checked).map(check => Number(check.value)));
      const only = flagged ? Number(flagged.value) : 0;
      const rows = [...Array(n).keys()].filter(i =>
        (!checks.length || groups.has(data.group[i])) && (!only || (data.flag[i] & only)));
      shown = rows.filter(i => chosen < 0 || data.label[i] === chosen);
      fill(front, shown);
      fill(back, rows.filter(i => chosen >= 0 && data.label[i] !== chosen));
      writeNames();
      describe(shown.includes(current) ? current : -1);
      drawLegend();
    }
    function drawLegend() {
      const legend = document.getElementById(`${name}-legend`);
      const entry = (text, marker, colour) => {
        const item = document.createElement("li");
        item.innerHTML = `<svg viewBox="0 0 16 16" aria-hidden="true" fill="${colour}" stroke="currentColor">${SHAPES[marker]}</svg> `;
        const words = document.createElement("span");
        words.className = "name";
        words.textContent = text;
        item.append(words);
        return item;
      };
      const grey = variable("--point");
      const entries = data.groups.map((text, i) => entry(text, MARKERS[i % MARKERS.length], byLabel ? "none" : colourOf(i)));
      if (byLabel && coloured) entries.push(...data.labels.map((text, i) => entry(text, "circle", colourOf(i))));
      if (byLabel && !coloured) entries.push(entry(select.value === "" ? "any class" : data.labels[Number(select.value)], "circle", variable("--accent")));
      if (select.value !== "") entries.push(entry("other classes", "circle", grey));
      legend.replaceChildren(...entries);
    }
    function zoom(factor) {
      for (const range of [xRange, yRange]) {
        const middle = (range.start + range.end) / 2, half = (range.end - range.start) / 2 * factor;
        range.setv({start: middle - half, end: middle + half});
      }
    }
    function reset() {
      xRange.setv({start: full.x[0], end: full.x[1]});
      yRange.setv({start: full.y[0], end: full.y[1]});
    }
    function step(dx, dy) {
      if (!shown.length) return;
      if (current < 0) { describe(shown[0]); return; }
      const width = full.x[1] - full.x[0], height = full.y[1] - full.y[0];
      let best = -1, least = Infinity;
      for (const i of shown) {
        const x = (data.x[i] - data.x[current]) / width, y = (data.y[i] - data.y[current]) / height;
        const along = x * dx + y * dy, across = Math.abs(x * dy) + Math.abs(y * dx);
        if (along <= 0 || across > along) continue;
        const far = along + 2 * across;
        if (far < least) { least = far; best = i; }
      }
      if (best >= 0) describe(best);
    }
    // The library's own tooltips neither wrap long names nor follow the theme.
    function point(frame, event) {
      const area = box.getBoundingClientRect();
      const [x, y] = [event.clientX - area.x - box.clientLeft, event.clientY - area.y - box.clientTop];
      let nearest = -1, least = 12 ** 2;
      for (const i of shown) {
        const far = (frame.x_scale.compute(data.x[i]) - x) ** 2 + (frame.y_scale.compute(data.y[i]) - y) ** 2;
        if (far < least) { least = far; nearest = i; }
      }
      tip.hidden = nearest < 0;
      if (nearest < 0) return;
      if (nearest !== current) describe(nearest);
      tip.textContent = words(nearest);
      tip.style.left = `${Math.max(0, Math.min(x + 12, area.width - tip.offsetWidth - 4))}px`;
      tip.style.top = `${y + 16}px`;
    }
    const actions = {
      ArrowLeft: () => step(-1, 0), ArrowRight: () => step(1, 0), ArrowUp: () => step(0, 1), ArrowDown: () => step(0, -1),
      "+": () => zoom(0.7), "=": () => zoom(0.7), "-": () => zoom(1 / 0.7), 0: reset, Escape: () => describe(-1),
    };
    box.addEventListener("keydown", event => {
      const act = actions[event.key];
      if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      act();
    });
    document.getElementById(`${name}-in`).addEventListener("click", () => zoom(0.7));
    document.getElementById(`${name}-out`).addEventListener("click", () => zoom(1 / 0.7));
    document.getElementById(`${name}-reset`).addEventListener("click", reset);
    select.addEventListener("change", () => { keep(`${name}.class`, data.labels[Number(select.value)] && select.value !== "" ? data.labels[Number(select.value)] : ""); paint(); });
    flagged?.addEventListener("change", () => { keep(`${name}.only`, flagged.value === "0" ? "" : flagged.value); paint(); });
    for (const check of checks) check.addEventListener("change", () => {
      const off = checks.filter(c => !c.checked).map(c => data.groups[Number(c.value)]);
      keep(`${name}.without`, off.join(","));
      paint();
    });
    const apply = () => {
      const code = data.labels.indexOf(state.get(`${name}.class`));
      select.value = code < 0 ? "" : String(code);
      if (flagged) flagged.value = [...flagged.options].some(o => o.value === state.get(`${name}.only`)) ? state.get(`${name}.only`) : "0";
      const off = (state.get(`${name}.without`) || "").split(",");
      for (const check of checks) check.checked = !off.includes(data.groups[Number(check.value)]);
      paint();
    };
    appliers.push(apply);
    dark.addEventListener("change", paint);
    Bokeh.Plotting.show(figure, box).then(view => {
      for (const kind of ["pointermove", "pointerdown"]) box.addEventListener(kind, event => point(view.frame, event));
      box.addEventListener("pointerleave", () => { tip.hidden = true; });
      box.dataset.drawn = "yes";
    });
  }

  Bokeh.set_log_level("warn");
  readAddress();
  for (const box of document.querySelectorAll("[data-scatter]")) drawScatter(box.dataset.scatter);
  appliers.forEach(apply => apply());
  showAnchor();

  // --- Provenance: into the clipboard, or selected where a page may not write to it.
  document.getElementById("copy")?.addEventListener("click", async event => {
    const text = document.getElementById("provenance-json");
    let words = "Copied";
    try { await navigator.clipboard.writeText(text.textContent); } catch {
      getSelection().selectAllChildren(text);
      words = "Selected: press Ctrl+C";
    }
    event.target.textContent = words;
  });
})();
