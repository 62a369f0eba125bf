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
// `cell(row)`: a text, an element or a list of them. `down`: the first click sorts descending.
function listing(id, columns, {step = 30, sort = "", empty = "Nothing matches. Reset the filters, or search for less."} = {}) {
  const table = byId(id), more = byId(`${id}-more`), none = byId(`${id}-none`);
  const key = `${id}.sort`;
  let rows = [], visible = step;
  const headings = columns.map((column, place) => {
    const button = make("button", {type: "button"}, column.name);
    button.addEventListener("click", () => {
      const first = column.down ? "d" : "a", other = column.down ? "a" : "d";
      const now = state.get(key) || sort;
      keep(key, `${place}${now === `${place}${first}` ? other : first}`);
      visible = step;
      render();
    });
    return make("th", {scope: "col", role: "columnheader", class: column.number ? "number" : null}, column.key ? button : column.name);
  });
  table.tHead.append(make("tr", {role: "row"}, ...headings));
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
  const lead = Math.max(0, columns.findIndex(column => column.lead));
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
  return {show(next) { rows = next; visible = step; render(); }, get length() { return rows.length; }};
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

// --- Models on frozen features. A score is `[model, score, tied, low, high]`, or has the place of a reason for `low`.
const hundred = value => fixed(100 * value, 1);
const hasEnds = one => one !== null && one.length > 4;
const endsText = one => `[${hundred(one[3])}, ${hundred(one[4])}]`;
const TIED = "may be as good as the best";
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
function scoreWithEnds(one, reasons) {
  const value = one[2] ? [make("b", {}, hundred(one[1])), spoken(`, ${TIED}`)] : [hundred(one[1])];
  if (hasEnds(one)) return [...value, " ", endsText(one)];
  return [...value, make("br"), make("span", {class: "how reason"}, `no interval${reasons[one[3]] ? `: ${reasons[one[3]]}` : ""}`)];
}
