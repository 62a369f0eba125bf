"use strict";
// What the pages share: their data, state kept behind `#` in the address, tables that sort and grow.
// Texts from the data become text nodes and attributes, never markup.

const DATA = JSON.parse(document.getElementById("data").textContent);
const byId = id => document.getElementById(id);
const collator = new Intl.Collator("en", {numeric: true});

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter(child => child !== null && child !== undefined && child !== ""));
  return element;
}

// --- Columns. A column of texts has each text once, and the place of each row's text, or -1.
const textAt = (column, row) => column.at[row] < 0 ? null : column.texts[column.at[row]];
const listAt = (column, row) => column.at[row].map(place => column.texts[place]);
// Places of the texts in alphabetical order: sorting rows then compares numbers.
function ranksOf(texts) {
  const order = texts.map((_, place) => place).sort((a, b) => collator.compare(texts[a], texts[b]));
  const ranks = new Array(texts.length);
  order.forEach((place, rank) => { ranks[place] = rank; });
  return ranks;
}
function alphabetical(column) {
  const ranks = ranksOf(column.texts);
  return row => column.at[row] < 0 ? null : ranks[column.at[row]];
}

// --- Words and numbers.
const whole = value => Math.round(value).toLocaleString("en");
const fixed = (value, digits) => value.toFixed(digits);
const wordsOf = name => name.replace(/_/g, " ");
const plural = (n, one, many) => `${whole(n)} ${n === 1 ? one : many || `${one}s`}`;
function duration(seconds) {
  if (seconds === null) return "not stated";
  return seconds >= 100 ? whole(seconds) : seconds === 0 ? "0" : seconds.toPrecision(2);
}
function taskName(task) {
  if (!task) return "task not known";
  const short = {image_classification: "classification", object_detection: "detection",
    semantic_segmentation: "segmentation", "image-text-to-text": "vision and language"};
  return Object.hasOwn(short, task) ? short[task] : wordsOf(task);
}
// Wilson's 95 % interval of a share.
function wilson(successes, n) {
  const z = 1.959963984540054, p = successes / n;
  const middle = (p + z * z / (2 * n)) / (1 + z * z / n);
  const half = z / (1 + z * z / n) * Math.sqrt(p * (1 - p) / n + z * z / (4 * n * n));
  return [Math.max(0, middle - half), Math.min(1, middle + half)];
}
function muted(text) { return make("span", {class: "how"}, text); }
function link(text, page, parameters) {
  return make("a", {href: `${page}#${new URLSearchParams(parameters)}`}, text);
}
// Long names break behind their underscores and slashes.
function nameText(name) {
  return make("bdi", {}, ...name.split(/(?<=[_/])/).flatMap(part => [part, make("wbr")]));
}
function datasetLink(name) { return link(nameText(name), "dataset.html", {dataset: name}); }
function bar(share, low, high, text) {
  const percent = value => `${Math.round(value * 1000) / 10}%`;
  const range = make("span", {class: "range"});
  range.style.left = percent(low);
  range.style.width = percent(high - low);
  const fill = make("span", {class: "fill"});
  fill.style.width = percent(share);
  return make("div", {class: "bar", role: "img", "aria-label": text}, fill, range);
}

// --- State, kept in the address so that a view can be shared.
const state = new URLSearchParams(location.hash.slice(1));
const appliers = [];
let writing = 0;
function keep(key, value) {
  if (value) state.set(key, value); else state.delete(key);
  writeSoon();
}
function writeSoon() {
  // Browsers refuse addresses that change with every key.
  clearTimeout(writing);
  writing = setTimeout(writeNow, 250);
}
function writeNow() {
  clearTimeout(writing);
  const text = state.toString();
  if (location.hash.slice(1) !== text) history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
}
function replaceState(text) {
  for (const key of [...state.keys()]) state.delete(key);
  for (const [key, value] of new URLSearchParams(text)) state.append(key, value);
}
addEventListener("hashchange", () => {
  clearTimeout(writing);
  replaceState(location.hash.slice(1));
  appliers.forEach(apply => apply());
});
addEventListener("pagehide", writeNow);
byId("skip").addEventListener("click", event => { event.preventDefault(); byId("main").focus(); });

// --- Fields. `update` is called with every change; every field's value is in the state under its id.
function bindFields(update) {
  const fields = [...document.querySelectorAll("[data-state]")];
  const apply = () => fields.forEach(field => {
    const value = state.get(field.dataset.state) || "";
    field.value = value;
    if (field.value !== value) field.append(make("option", {value, selected: true}, `${value} (0)`));  // from an old address
  });
  fields.forEach(field => field.addEventListener(field.tagName === "SELECT" ? "change" : "input", () => {
    keep(field.dataset.state, field.value);
    update();
  }));
  appliers.push(apply);
  apply();
  for (const form of document.forms) form.addEventListener("submit", event => event.preventDefault());
  byId("reset")?.addEventListener("click", () => {
    replaceState("");
    writeNow();
    appliers.forEach(one => one());
  });
}
// Fills a choice with the texts that there are, each with the number of rows that have it.
function offer(id, texts, counts, name = text => text) {
  const select = byId(id);
  if (!select) return;
  const order = texts.map((_, place) => place).filter(place => counts[place] > 0);
  order.sort((a, b) => collator.compare(name(texts[a]), name(texts[b])));
  select.append(...order.map(place => make("option", {value: texts[place]}, `${name(texts[place])} (${whole(counts[place])})`)));
  select.closest(".field").hidden = order.length < 2 && !state.get(id);
}
function countOf(column) {
  const counts = new Array(column.texts.length).fill(0);
  for (const at of column.at) for (const place of Array.isArray(at) ? at : [at]) if (place >= 0) counts[place] += 1;
  return counts;
}
// The place of the chosen text in a column; null where nothing is chosen, -1 for a text that no row has.
function chosen(id, column) {
  const value = state.get(id);
  return value ? column.texts.indexOf(value) : null;
}
function searcher(text) {
  const words = (text || "").toLowerCase().split(/\s+/).filter(Boolean);
  return haystack => words.every(word => haystack.includes(word));
}

function moreText(left, next) {
  return left > next ? `Show ${whole(next)} more of ${whole(left)}` : `Show ${whole(left)} more`;
}

// --- Tables. Only the rows that are looked at are in the page; "Show more" adds to them.
// A column has a name, `number` where its cells are numbers, `key(row)`: what sorts it, a number or null, and
// `cell(row)`: a text, an element or a list of them. `down`: the first click sorts descending. `show(rows, columns)` can
// bring other columns.
function listing(id, columns, {step = 30, sort = "", empty = "Nothing matches. Reset the filters, or search for less."} = {}) {
  const table = byId(id), more = byId(`${id}-more`), none = byId(`${id}-none`);
  const key = `${id}.sort`;
  let rows = [], visible = step;
  let headings = [], lead = 0;
  function head() {
    headings = columns.map(heading);
    lead = Math.max(0, columns.findIndex(column => column.lead));
    table.tHead.replaceChildren(make("tr", {role: "row"}, ...headings));
  }
  const heading = (column, place) => {
    const button = make("button", {type: "button"}, column.name);
    button.addEventListener("click", () => {
      const first = column.down ? "d" : "a", other = column.down ? "a" : "d";
      const now = state.get(key) || sort;
      keep(key, `${place}${now === `${place}${first}` ? other : first}`);
      visible = step;
      render();
    });
    return make("th", {scope: "col", role: "columnheader", class: column.number ? "number" : null}, column.key ? button : column.name);
  };
  head();
  function sorted() {
    const wanted = state.get(key) || sort;
    const column = parseInt(wanted, 10), descending = wanted.endsWith("d");
    headings.forEach((heading, place) => {
      if (columns[place].key) heading.setAttribute("aria-sort", place !== column ? "none" : descending ? "descending" : "ascending");
    });
    if (!columns[column]?.key) return rows;
    const keys = new Map(rows.map(row => [row, columns[column].key(row)]));
    const sign = descending ? -1 : 1;
    return [...rows].sort((a, b) => {
      const x = keys.get(a), y = keys.get(b);
      if (x === null || y === null) return (x === null) - (y === null);  // what is not known comes last
      return sign * (x - y);
    });
  }
  const cellOf = (column, row, first) => {
    const content = column.cell(row);
    const inner = Array.isArray(content) ? content : [content];
    const attributes = {"data-label": column.name, class: [column.number ? "number" : "text", column.css].filter(Boolean).join(" ")};
    return first ? make("th", {...attributes, scope: "row", role: "rowheader"}, ...inner) : make("td", {...attributes, role: "cell"}, ...inner);
  };
  function render() {
    const all = sorted();
    const shown = all.slice(0, visible);
    table.tBodies[0].replaceChildren(...shown.map(row =>
      make("tr", {role: "row"}, ...columns.map((column, place) => cellOf(column, row, place === lead)))));
    const left = all.length - shown.length;
    more.hidden = left <= 0;
    more.textContent = moreText(left, 2 * visible);
    none.hidden = all.length > 0;
    none.textContent = empty;
    table.hidden = all.length === 0;
  }
  more.addEventListener("click", () => { visible += 2 * visible; render(); });
  return {
    show(next, shape = null) {
      if (shape) { columns = shape; head(); }
      rows = next;
      visible = step;
      render();
    },
    get length() { return rows.length; },
  };
}

// --- Scores of data quality: `[score]`, `[score, low, high]`, `[null, low, high]` for a range, or the place of a reason.
function scoreKey(score) {
  return Array.isArray(score) ? score[0] ?? score[1] : null;
}
function scoreText(all, score, axes) {
  if (!Array.isArray(score)) return muted("not measured");
  const [value, low, high] = score;
  if (value === null) return [`${fixed(low, 1)} to ${fixed(high, 1)}`];
  const missing = axes ? axes.filter(axis => axis === null).length : 0;
  const text = `${fixed(value, 1)}${low === undefined ? "" : ` [${fixed(low, 1)}, ${fixed(high, 1)}]`}`;
  return missing ? [text, make("br"), muted(`${axes.length - missing} of ${axes.length} axes`)] : text;
}

// --- Scores of models and submissions: `[model, score, tied, low, high]`, or with the place of a reason for `low`.
const hundred = value => fixed(100 * value, 1);
const hasEnds = one => one !== null && one.length > 4;
const endsText = one => `[${hundred(one[3])}, ${hundred(one[4])}]`;
const TIED = "may be as good as the best";
const trackText = row => `${hundred(row.one[1])}${hasEnds(row.one) ? ` ${endsText(row.one)}` : ""} on a scale from ${hundred(row.from)} to ${hundred(row.to)}`;
// A row is {one, from, to}.
const trackCell = row => track(row.one, row.from, row.to, trackText(row));
// Round ends of a scale that holds all scores and their intervals.
function scaleOf(scores, steps = 10) {
  const ends = scores.flatMap(one => hasEnds(one) ? [one[3], one[4]] : [one[1]]);
  return [Math.floor(steps * Math.min(...ends)) / steps, Math.ceil(steps * Math.max(...ends)) / steps];
}
function spoken(text) { return make("span", {class: "spoken"}, text); }
function modelLink(models, row) { return link(nameText(textAt(models.name, row)), "model.html", {model: modelId(models, row)}); }
// Own and published rows can have one name: an address says which.
function modelId(models, row) { return `${textAt(models.source, row) === "published" ? "published:" : ""}${models.id[row]}`; }
function subjectLink(subjects, place) {
  const name = textAt(subjects.name, place), dataset = textAt(subjects.dataset, place), home = textAt(subjects.home, place);
  if (dataset) return link(nameText(name), "dataset.html", {dataset});
  return home ? make("a", {href: home, rel: "noreferrer"}, nameText(name)) : nameText(name);
}
// A dot with its interval on a scale from `from` to `to`.
function track(one, from, to, text) {
  const position = value => 100 * Math.min(1, Math.max(0, (value - from) / (to - from || 1)));
  const dot = make("span", {class: "dot"});
  dot.style.left = `${position(one[1])}%`;
  const reach = hasEnds(one) ? make("span", {class: "reach"}) : null;
  if (reach) {
    reach.style.left = `${position(one[3])}%`;
    reach.style.width = `${position(one[4]) - position(one[3])}%`;
  }
  return make("div", {class: "scale", role: "img", "aria-label": text}, reach, dot);
}
const valueOf = one => one[2] ? [make("b", {}, hundred(one[1])), spoken(`, ${TIED}`)] : [hundred(one[1])];
function scoreWithEnds(one, reasons) {
  const value = valueOf(one);
  if (hasEnds(one)) return [...value, " ", endsText(one)];
  return [...value, make("br"), make("span", {class: "how reason"}, `no interval${reasons[one[3]] ? `: ${reasons[one[3]]}` : ""}`)];
}

// --- Submissions of embeddings.
function submissionLink(submissions, row) { return link(nameText(textAt(submissions.name, row)), "submission.html", {submission: submissions.key[row]}); }
const metricName = metric => metric.startsWith("r2") ? `R²${metric.slice(2)}` : wordsOf(metric).replace(/\bf1\b/, "F1");
function bytesText(bytes) { return bytes >= 100 ? whole(bytes) : `${Number(bytes.toPrecision(3))}`; }
function rankCell(rank, of, sharing) {
  return [`${whole(rank)} `, muted(`of ${whole(of)}`), ...(sharing ? [make("br"), muted(`shared with ${plural(sharing, "other")}`)] : [])];
}

// --- Charts.
// The least-squares line of y on x, and the share of the variance that it explains; null for fewer than 3 points or
// where one of them does not vary.
function bestFit(points) {
  const n = points.length;
  if (n < 3) return null;
  const average = pick => points.reduce((sum, point) => sum + pick(point), 0) / n;
  const mx = average(p => p.x), my = average(p => p.y);
  const xx = average(p => (p.x - mx) ** 2), yy = average(p => (p.y - my) ** 2), xy = average(p => (p.x - mx) * (p.y - my));
  if (xx < 1e-18 || yy < 1e-18) return null;
  return {n, slope: xy / xx, intercept: my - xy / xx * mx, r2: xy * xy / (xx * yy)};
}

// Round numbers between two ends, about five.
function ticksBetween(from, to) {
  const step = 10 ** Math.floor(Math.log10((to - from) / 4 || 1));
  const every = [1, 2, 5, 10].map(factor => factor * step).find(size => (to - from) / size <= 6);
  const ticks = [];
  for (let number = Math.ceil(from / every - 1e-9); number <= to / every + 1e-9; number++) ticks.push(Number((number * every).toPrecision(12)));
  return ticks;
}
// Logarithms of round numbers between two logarithms.
function powersBetween(from, to) {
  const factors = to - from > 1.5 ? [1] : [1, 2, 5];
  const ticks = [];
  for (let power = Math.floor(from); power <= Math.ceil(to); power++) {
    for (const factor of factors) ticks.push(Math.log10(factor) + power);
  }
  return ticks.filter(tick => tick >= from && tick <= to);
}

function drawn(tag, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}
// Alike names often differ at the end, so both ends are kept.
function shortName(name, most) {
  return name.length > most ? `${name.slice(0, Math.ceil(most / 2) - 1)}…${name.slice(-Math.floor(most / 2))}` : name;
}
// Points on two axes. `points`: {x, y, name, published, low, high}; own ones are filled, published ones are rings; the
// last two, where they are there, are the ends of an interval of y. `lines`: with least-squares lines; `same`: both axes
// are of one unit, with the line on which they are equal; `least`: room beside the points, at least; `names`: how many,
// each of so many `letters`.
function scatter(box, points, {xName, yName, xTicks, xText, yText = tick => `${tick}`, alternative, lines = true, same = false, least = 0, radius = 4.5, names = null, letters = 26}) {
  const width = Math.max(280, box.clientWidth || 640), height = same ? width : Math.round(Math.max(260, Math.min(420, 0.62 * width)));
  const range = (values, room = 0) => {
    const low = Math.min(...values), high = Math.max(...values);
    const pad = Math.max(0.06 * (high - low), room) || 0.05 * Math.abs(high) || 1;
    return [low - pad, high + pad];
  };
  const ends = [...points.map(p => p.y), ...points.flatMap(p => Number.isFinite(p.low) ? [p.low, p.high] : [])];
  const both = same ? range([...ends, ...points.map(p => p.x)]) : null;
  const [x0, x1] = both || range(points.map(p => p.x), least), [y0, y1] = both || range(ends);
  const yTicks = ticksBetween(y0, y1), right = 12, top = 24, bottom = 44;
  const left = Math.max(44, 14 + 7.2 * Math.max(...yTicks.map(tick => yText(tick).length)));
  const px = x => left + (x - x0) / (x1 - x0) * (width - left - right);
  const py = y => height - bottom - (y - y0) / (y1 - y0) * (height - top - bottom);
  const svg = drawn("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": alternative});
  svg.append(drawn("line", {class: "axis-line", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom}));
  svg.append(drawn("line", {class: "axis-line", x1: left, x2: left, y1: top, y2: height - bottom}));
  for (const tick of xTicks(x0, x1)) {
    svg.append(drawn("line", {class: "axis-line", x1: px(tick), x2: px(tick), y1: height - bottom, y2: height - bottom + 4}));
    svg.append(drawn("text", {class: "quiet", x: px(tick), y: height - bottom + 18, "text-anchor": "middle"}, xText(tick)));
  }
  for (const tick of yTicks) {
    svg.append(drawn("line", {class: "axis-line", x1: left - 4, x2: left, y1: py(tick), y2: py(tick)}));
    svg.append(drawn("text", {class: "quiet", x: left - 7, y: py(tick) + 4, "text-anchor": "end"}, yText(tick)));
  }
  svg.append(drawn("text", {x: width - right, y: height - 6, "text-anchor": "end"}, xName));
  svg.append(drawn("text", {x: 2, y: 14}, yName));
  if (same) svg.append(drawn("line", {class: "fit", x1: px(x0), y1: py(y0), x2: px(x1), y2: py(y1)}));
  for (const published of lines ? [true, false] : []) {
    const own = points.filter(p => p.published === published), fit = bestFit(own);
    if (!fit) continue;
    const ends = [Math.min(...own.map(p => p.x)), Math.max(...own.map(p => p.x))];
    // The line ends at the frame.
    const inside = ends.map(x => fit.slope ? Math.min(Math.max(x, Math.min((y0 - fit.intercept) / fit.slope, (y1 - fit.intercept) / fit.slope)), Math.max((y0 - fit.intercept) / fit.slope, (y1 - fit.intercept) / fit.slope)) : x);
    const [a, b] = inside.map(x => [px(x), py(fit.slope * x + fit.intercept)]);
    svg.append(drawn("line", {class: `fit${published ? " published" : ""}`, x1: a[0], y1: a[1], x2: b[0], y2: b[1]}));
  }
  for (const point of points) {
    if (Number.isFinite(point.low)) svg.append(drawn("line", {class: "whisker", x1: px(point.x), x2: px(point.x), y1: py(point.low), y2: py(point.high)}));
  }
  for (const point of points) {
    const circle = drawn("circle", {cx: px(point.x).toFixed(1), cy: py(point.y).toFixed(1), r: radius, class: point.published ? "published" : "own"});
    circle.append(drawn("title", {}, point.name));
    svg.append(circle);
  }
  // Names where there is room, best models first.
  if (names === 0) return box.replaceChildren(svg);
  const taken = points.map(p => [px(p.x) - 5, py(p.y) - 5, px(p.x) + 5, py(p.y) + 5]);
  const free = area => taken.every(other => area[2] < other[0] || area[0] > other[2] || area[3] < other[1] || area[1] > other[3]);
  let named = 0;
  for (const point of [...points].sort((a, b) => b.y - a.y)) {
    if (named >= (names || (width < 480 ? 4 : 10))) break;
    const text = shortName(point.name, letters), long = 7.2 * text.length;
    const x = px(point.x), y = py(point.y);
    const middle = [x - long / 2, "middle", x];
    for (const [from, anchor, at, down] of [[x + 8, "start", x + 8, 0], [x - 8 - long, "end", x - 8, 0], [...middle, -17], [...middle, 17]]) {
      const area = [from, y + down - 8, from + long, y + down + 7];
      if (from < left || from + long > width || area[1] < top || area[3] > height - bottom || !free(area)) continue;
      svg.append(drawn("text", {x: at.toFixed(1), y: (y + down + 4).toFixed(1), "text-anchor": anchor}, text));
      taken.push(area);
      named += 1;
      break;
    }
  }
  box.replaceChildren(svg);
}
