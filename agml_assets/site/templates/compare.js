// Selected models over the datasets that all of them share: what `comparison.py` and `ranking.py` of the leaderboard
// compute, for any selection.
const FAMILIES = ["f1", "map", "precision", "recall"];
const FAMILY_NAMES = {f1: "F1", map: "mAP", precision: "Precision", recall: "Recall"};

// Records as objects: filters and comparisons read like the rules that they follow.
function readRecords(data) {
  return data.how.at.map((_, row) => {
    const dataset = textAt(data.dataset, row), task = textAt(data.task, row), model = textAt(data.model, row);
    return {
      model, dataset, task, id: `${model}|||${task || ""}`,
      crops: listAt(data.crops, row), variant: textAt(data.how, row), optimized: data.optimized[row] === 1,
      platform: textAt(data.platform, row), ag: textAt(data.ag, data.dataset.at[row]),
      scores: Object.fromEntries(FAMILIES.map((family, place) => [family, data.scores[place][row]])),
    };
  });
}

// Every filter that is set must hold, and holds where one of its values does; null sets none.
function admits(record, filters) {
  return (!filters.crops?.length || record.crops.some(crop => filters.crops.includes(crop)))
    && (!filters.tasks?.length || filters.tasks.includes(record.task))
    && (!filters.ags?.length || filters.ags.includes(record.ag))
    && (!filters.platforms?.length || filters.platforms.includes(record.platform))
    && (filters.tuned === undefined || filters.tuned === null || filters.tuned === (record.variant === "fine-tuned"))
    && (filters.optimized === undefined || filters.optimized === null || filters.optimized === record.optimized);
}

// What can be selected: most datasets first, then by model and task.
function modelOptions(records, filters = {}) {
  const options = new Map();
  for (const record of records) {
    if (!admits(record, filters)) continue;
    let option = options.get(record.id);
    if (!option) options.set(record.id, option = {id: record.id, model: record.model, task: record.task, names: new Set()});
    option.names.add(record.dataset);
  }
  const found = [...options.values()].map(({names, ...option}) => ({...option, datasets: names.size}));
  return found.sort((a, b) => b.datasets - a.datasets || a.model.localeCompare(b.model, "en") || (a.task || "").localeCompare(b.task || "", "en"));
}

// The selected pairs of model and task by average rank over the datasets that all of them have a score on. Equal
// scores share the better rank; equal averages stay in the order of selection. Zero-shot and fine-tuned are pooled.
function compareModels(records, selected, family, filters = {}) {
  const none = {datasets: [], models: []};
  if (selected.length < 2) return none;
  const best = new Map(selected.map(id => [id, new Map()])), first = new Map();
  for (const record of records) {
    if (!best.has(record.id) || !admits(record, filters)) continue;
    if (!first.has(record.id)) first.set(record.id, record);
    const score = record.scores[family], scores = best.get(record.id);
    if (score !== null && !(scores.get(record.dataset) >= score)) scores.set(record.dataset, score);
  }
  const all = [...best.values()];
  const datasets = [...all[0].keys()].filter(name => all.every(scores => scores.has(name))).sort();
  if (!datasets.length) return none;
  const models = selected.map(id => {
    const ranks = datasets.map(dataset => {
      const score = best.get(id).get(dataset);
      return {dataset, score, rank: 1 + all.filter(scores => scores.get(dataset) > score).length};
    });
    const {model, task} = first.get(id);
    return {id, model, task, average: ranks.reduce((sum, one) => sum + one.rank, 0) / datasets.length, ranks};
  });
  return {datasets, models: models.sort((a, b) => a.average - b.average)};
}

// Average ranks of a comparison with equal scores sharing the mean of their ranks, and Nemenyi's critical
// difference: average ranks that are further apart differ at the level of 5 % (Demšar 2006).
function criticalDifference(compared, data) {
  const {models, datasets} = compared;
  const average = models.map(model => datasets.reduce((sum, _, place) => {
    const equal = models.filter(other => other.ranks[place].score === model.ranks[place].score).length;
    return sum + model.ranks[place].rank + (equal - 1) / 2;
  }, 0) / datasets.length);
  const one = data.critical[models.length - 2];
  return {average, difference: one === undefined ? null : one / Math.sqrt(datasets.length)};
}

// Two compared models: how often which is better, and the mean difference with the 95 % interval of Student's t.
function comparePair(one, other, data) {
  // To nine decimals: what only floating point separates is equal.
  const differences = one.ranks.map((rank, place) => Math.round(1e9 * (rank.score - other.ranks[place].score)) / 1e9);
  const n = differences.length, mean = differences.reduce((a, b) => a + b, 0) / n;
  const pair = {first: one, second: other, n, mean, low: null, high: null,
    wins: differences.filter(d => d > 0).length, losses: differences.filter(d => d < 0).length};
  const t = data.t[n - data.fewest];
  if (t !== undefined) {
    const deviation = Math.sqrt(differences.reduce((sum, d) => sum + (d - mean) ** 2, 0) / (n - 1));
    pair.low = mean - t * deviation / Math.sqrt(n);
    pair.high = mean + t * deviation / Math.sqrt(n);
  }
  return pair;
}

(() => {
  if (!byId("picker")) return;
  const records = readRecords(DATA);
  const STEP = 15;
  let options = [], selected = [], offered = STEP, matrixRows = STEP;

  function filters() {
    const one = id => state.get(id) ? [state.get(id)] : null;
    const flag = (id, yes) => state.get(id) ? state.get(id) === yes : null;
    return {tasks: one("task"), crops: one("crop"), ags: one("ag"), platforms: one("platform"),
      tuned: flag("how", "fine-tuned"), optimized: flag("optimized", "yes")};
  }
  const nameOf = pair => [nameText(pair.model), ` · ${taskName(pair.task)}`];
  // Among results, which are nearly always of one task.
  let oneTask = true;
  const shortName = pair => oneTask ? [nameText(pair.model)] : nameOf(pair);
  // Without a choice in the address: the two models of one task that were run on most datasets.
  function selection() {
    if (state.has("pair")) return [...new Set(state.getAll("pair"))].filter(Boolean);
    const task = options[0]?.task;
    return options.filter(option => option.task === task).slice(0, 2).map(option => option.id);
  }
  function select(ids) {
    state.delete("pair");
    (ids.length ? ids : [""]).forEach(id => state.append("pair", id));
    writeSoon();
    matrixRows = STEP;
    update();
  }

  function showPicker() {
    const matches = searcher(byId("find").value);
    const found = options.filter(option => matches(`${option.model} ${taskName(option.task)}`.toLowerCase()));
    const shown = found.slice(0, offered);
    const active = document.activeElement?.value;
    byId("picker").replaceChildren(...shown.map(option => {
      const box = make("input", {type: "checkbox", value: option.id, autocomplete: "off"});
      box.checked = selected.includes(option.id);
      box.addEventListener("change", () => select(box.checked ? [...selected, option.id] : selected.filter(id => id !== option.id)));
      return make("label", {class: "pick"}, box, make("span", {}, ...nameOf(option), " ", muted(plural(option.datasets, "dataset"))));
    }));
    const again = [...byId("picker").querySelectorAll("input")].find(box => box.value === active);
    if (again) again.focus({preventScroll: true});
    const left = found.length - shown.length;
    byId("picker-more").hidden = left <= 0;
    byId("picker-more").textContent = moreText(left, STEP);
    if (!found.length) byId("picker").append(make("p", {class: "none"}, "No model matches."));
  }
  function showChosen() {
    const known = new Map(records.map(record => [record.id, record]));
    const tags = selected.map(id => {
      const pair = known.get(id) || {model: id.split("|||")[0], task: id.split("|||")[1]};
      const button = make("button", {type: "button", "aria-label": `Remove ${pair.model}`}, ...nameOf(pair), " ×");
      button.addEventListener("click", () => { select(selected.filter(one => one !== id)); byId("find").focus(); });
      return button;
    });
    byId("chosen").replaceChildren(...(tags.length ? ["Compared: ", ...tags] : ["None is chosen."]));
  }

  function showRanks(family, results) {
    const compared = results[family];
    const {average, difference} = criticalDifference(compared, DATA);
    const k = compared.models.length, n = compared.datasets.length;
    const position = rank => 100 * (rank - 1) / (k - 1);
    const others = FAMILIES.filter(name => name !== family && results[name].models.length);
    const rows = compared.models.map((model, place) => {
      const dot = make("span", {class: "dot"}), reach = make("span", {class: "reach"});
      dot.style.left = `${position(average[place])}%`;
      if (difference !== null) {
        const low = Math.max(1, average[place] - difference / 2), high = Math.min(k, average[place] + difference / 2);
        reach.style.left = `${position(low)}%`;
        reach.style.width = `${position(high) - position(low)}%`;
      }
      const rank = model.average, shared = compared.models.filter(other => other.average < rank).length + 1;
      const elsewhere = others.map(name => {
        const same = results[name].models.find(one => one.id === model.id);
        return `${FAMILY_NAMES[name]} ${rankText(same.average)}${results[name].datasets.length === n ? "" : ` (n = ${results[name].datasets.length})`}`;
      });
      return make("tr", {role: "row"},
        make("td", {role: "cell", class: "number", "data-label": "Place"}, `${shared}`),
        make("th", {role: "rowheader", scope: "row", class: "text", "data-label": "Model"}, ...shortName(model)),
        make("td", {role: "cell", class: "number", "data-label": `Average rank, ${FAMILY_NAMES[family]}`}, make("b", {}, rankText(rank))),
        make("td", {role: "cell", class: "track", "data-label": `1 (best) to ${k}`},
          make("div", {class: "scale", role: "img", "aria-label": `average rank ${rankText(rank)} on a scale from 1 to ${k}`}, reach, dot)),
        make("td", {role: "cell", class: "text", "data-label": "By other metrics"}, elsewhere.join(" · ") || muted("not measured on shared datasets")));
    });
    const heading = (text, css) => make("th", {role: "columnheader", scope: "col", class: css}, text);
    const scale = make("span", {class: "ends"}, make("span", {}, "1, best"), make("span", {}, `${k}`));
    byId("ranks").replaceChildren(make("table", {class: "listed", role: "table", "aria-label": "Average ranks"},
      make("thead", {role: "rowgroup"}, make("tr", {role: "row"}, heading("Place", "number"), heading("Model"),
        heading(`Average rank, ${FAMILY_NAMES[family]}`, "number"), make("th", {role: "columnheader", scope: "col", class: "track"}, scale),
        heading("By other metrics"))),
      make("tbody", {role: "rowgroup"}, ...rows)));
    const unequal = compared.models.some((model, place) => model.average !== average[place]);
    byId("critical").textContent = difference === null
      ? `Not computable: the critical difference of more than ${DATA.critical.length + 1} models.`
      : `Two models whose bars overlap are not distinguished: their average ranks differ by less than ${fixed(difference, 2)}, the critical difference of ${k} models on ${plural(n, "dataset")} (Nemenyi, 5 %).`
        + (unequal ? " Dots stand at ranks in which equal scores share the mean of their ranks; in the table they share the better one." : "");
  }
  const rankText = rank => fixed(rank, 2);

  const pairTable = listing("pairs", [
    {name: "Model", lead: true, cell: pair => shortName(pair.first)},
    {name: "Against", cell: pair => shortName(pair.second)},
    {name: "Better on", number: true, down: true, key: pair => pair.wins, cell: pair => [`${whole(pair.wins)} `, muted(`of ${whole(pair.n)}`)]},
    {name: "Worse on", number: true, down: true, key: pair => pair.losses, cell: pair => [`${whole(pair.losses)} `, muted(`of ${whole(pair.n)}`)]},
    {name: "Mean difference", number: true, down: true, key: pair => pair.mean, cell: pair => differenceCell(pair)},
    {name: "In words", css: "wide", cell: pair => verdict(pair)},
  ], {step: 15});
  const signed = value => (value < 0 ? "−" : "+") + fixed(Math.abs(value), 3);
  function differenceCell(pair) {
    if (pair.low === null) return signed(pair.mean);
    return `${signed(pair.mean)} [${signed(pair.low)}, ${signed(pair.high)}]`;
  }
  function verdict(pair) {
    if (pair.low === null) return `Interval not computable: fewer than ${DATA.fewest} datasets.`;
    if (pair.low > 0) return "Better on average, by more than noise.";
    if (pair.high < 0) return "Worse on average, by more than noise.";
    return "May be noise: the interval holds 0.";
  }

  // Three decimals, or as many more as tell scores apart that have different ranks.
  function digitsFor(scores) {
    const different = new Set(scores).size;
    return [3, 4, 5].find(digits => new Set(scores.map(score => fixed(score, digits))).size === different) || 6;
  }
  function showMatrix(compared) {
    const columns = [...compared.models].sort((a, b) => a.model.localeCompare(b.model, "en"));
    const table = byId("matrix");
    table.tHead.replaceChildren(make("tr", {}, make("th", {scope: "col"}, "Dataset"),
      ...columns.map(model => make("th", {scope: "col", class: "number"}, ...shortName(model)))));
    const order = compared.datasets.map((_, place) => place).sort((a, b) => collator.compare(compared.datasets[a], compared.datasets[b]));
    table.tBodies[0].replaceChildren(...order.slice(0, matrixRows).map(place =>
      make("tr", {}, make("th", {scope: "row"}, datasetLink(compared.datasets[place])), ...columns.map(model => {
        const {score, rank} = model.ranks[place];
        const text = fixed(score, digitsFor(columns.map(one => one.ranks[place].score)));
        return make("td", {class: "number"}, rank === 1 ? make("b", {}, text) : text, " ", muted(`(#${rank})`));
      }))));
    const left = compared.datasets.length - matrixRows;
    byId("matrix-more").hidden = left <= 0;
    byId("matrix-more").textContent = moreText(left, 2 * matrixRows);
  }

  let results = {};
  function update() {
    const now = filters();
    options = modelOptions(records, now);
    selected = selection();
    oneTask = new Set(selected.map(id => id.split("|||").at(-1))).size < 2;
    results = Object.fromEntries(FAMILIES.map(family => [family, compareModels(records, selected, family, now)]));
    const measured = FAMILIES.filter(family => results[family].models.length);
    const wanted = state.get("metric");
    const family = measured.includes(wanted) ? wanted : measured[0];
    const metric = byId("metric");
    metric.replaceChildren(...measured.map(name => make("option", {value: name}, FAMILY_NAMES[name])));
    metric.closest(".field").hidden = measured.length < 2;
    if (family) metric.value = family;
    showPicker();
    showChosen();
    const compared = results[family];
    for (const id of ["ranks", "critical", "pairs-section", "matrix-section"]) byId(id).hidden = !compared;
    byId("said").textContent = said(compared);
    if (!compared) return;
    showRanks(family, results);
    const pairs = [];
    compared.models.forEach((one, place) => compared.models.slice(place + 1).forEach(other => pairs.push(comparePair(one, other, DATA))));
    byId("pairs-note").textContent = `Difference of ${FAMILY_NAMES[family]} on the same ${plural(compared.datasets.length, "dataset")}, every dataset counting alike; 95 % interval of Student's t over the datasets, not corrected for the number of pairs.`;
    pairTable.show(pairs);
    showMatrix(compared);
  }
  function said(compared) {
    if (selected.length < 2) return "Choose at least two models.";
    if (!compared) {
      const tasks = new Set(selected.map(id => id.split("|||")[1]));
      return `Not computable: these ${selected.length} share no dataset${tasks.size > 1 ? ", as they are of different tasks" : " that passes the filters"}. Remove one.`;
    }
    const counts = options.filter(option => selected.includes(option.id)).map(option => option.datasets);
    const [fewest, most] = [Math.min(...counts), Math.max(...counts)];
    return `On the ${plural(compared.datasets.length, "dataset")} that ${selected.length === 2 ? "both" : `all ${selected.length}`} were run on, listed below; each was run on ${fewest === most ? whole(most) : `${whole(fewest)} to ${whole(most)}`}.`;
  }

  const ag = {texts: DATA.ag.texts, at: DATA.dataset.at.map(set => DATA.ag.at[set])};
  offer("task", DATA.task.texts, countOf(DATA.task), taskName);
  offer("crop", DATA.crops.texts, countOf(DATA.crops));
  offer("ag", ag.texts, countOf(ag), wordsOf);
  offer("how", DATA.how.texts, countOf(DATA.how));
  offer("platform", DATA.platform.texts, countOf(DATA.platform));
  const optimized = DATA.optimized.filter(Boolean).length;
  offer("optimized", ["yes", "no"], [optimized, DATA.optimized.length - optimized], text => text === "yes" ? "optimised" : "not optimised");
  byId("metric").addEventListener("change", () => { keep("metric", byId("metric").value); update(); });
  byId("find").addEventListener("input", () => { offered = STEP; showPicker(); });
  byId("picker-more").addEventListener("click", () => { offered += STEP; showPicker(); });
  byId("matrix-more").addEventListener("click", () => { matrixRows += 2 * matrixRows; update(); });
  bindFields(update);
  appliers.push(update);
  update();
})();
