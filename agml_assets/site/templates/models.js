// Models, each way of answering a row: their scores on the tasks and datasets that are shown, means over these, two plots.
const SIZES = [["0-50", 0, 50], ["50-100", 50, 100], ["100-400", 100, 400], ["400-1000", 400, 1000], ["1000-2000", 1000, 2000], ["2000-", 2000, Infinity]];
const SIZE_NAMES = {"0-50": "under 50 M", "50-100": "50 to 100 M", "100-400": "100 to 400 M", "400-1000": "400 M to 1 B", "1000-2000": "1 to 2 B", "2000-": "2 B and more"};
const IMAGENET = "imagenet1k";

// Score of each model by subject: `found[subject].get(model)`.
function readScores(scores) {
  return scores.map(list => new Map(list.map(one => [one[0], one])));
}

// The unweighted mean over subjects, of a model that has them all, as a score with what the report says of it, where
// the report has the mean over just these; and how many of them the model has.
function meanOver(model, subjects, scores, known) {
  let sum = 0, has = 0;
  for (const subject of subjects) {
    const one = scores[subject].get(model);
    if (one) { sum += one[1]; has += 1; }
  }
  const complete = has > 0 && has === subjects.length;
  return {has, of: subjects.length, score: complete ? known?.get(model) || [model, sum / has, 0, null] : null};
}

(() => {
  if (!byId("scores")) return;
  const {models, subjects, reasons, agreement} = DATA, n = models.id.length;
  const scores = readScores(DATA.scores);
  const kindAt = place => textAt(subjects.kind, place), isPublished = row => textAt(models.source, row) === "published";
  const isFrozen = row => textAt(models.how, row) === "frozen features";
  const all = subjects.key.map((_, place) => place);
  const MEANS = [["mean-task", "task", "Mean over tasks"], ["mean-dataset", "dataset", "Mean over datasets"]].filter(([, kind]) => all.some(place => kindAt(place) === kind));
  const setOf = places => [...places].sort((a, b) => a - b).join();
  const known = new Map(DATA.means.map(mean => [setOf(mean.subjects), new Map(mean.scores.map(one => [one[0], one]))]));
  const searchable = models.id.map((id, row) => [textAt(models.name, row), id, textAt(models.checkpoint, row), textAt(models.family, row)].join("\n").toLowerCase());
  // Thirty rows at first, fewer of very many columns: what is typed into the search has its answer at once.
  const rowsOf = columns => Math.max(10, Math.min(30, Math.floor(1500 / columns.length)));
  let times = 1;

  // --- What is shown.
  const FACTS = [
    {id: "family", name: "Family", key: alphabetical(models.family), cell: row => textAt(models.family, row) || "–"},
    {id: "parameters", name: "Parameters, M", number: true, down: true, key: row => models.parameters[row], cell: row => sizeText(models.parameters[row])},
    {id: "resolution", name: "Resolution, px", number: true, down: true, key: row => models.resolution[row], cell: row => models.resolution[row] === null ? "–" : `${models.resolution[row]}`},
    {id: "released", name: "Released", number: true, down: true, key: alphabetical(models.released), cell: row => monthText(textAt(models.released, row))},
  ];
  function sizeText(parameters) {
    if (parameters === null) return "–";
    return parameters < 9.5e6 ? fixed(parameters / 1e6, 1) : whole(parameters / 1e6);
  }
  function monthText(month) {
    return month ? new Date(`${month}-15T00:00:00Z`).toLocaleDateString("en", {month: "short", year: "numeric", timeZone: "UTC"}) : "–";
  }
  const columnId = place => `s:${subjects.key[place]}`;
  const hidden = () => new Set(state.getAll("hide"));
  function shownSubjects() {
    const away = hidden(), kingdom = chosen("kingdom", subjects.kingdom), modality = chosen("modality", subjects.modality);
    return all.filter(place => !away.has(columnId(place)) && (kingdom === null || subjects.kingdom.at[place] === kingdom)
      && (modality === null || subjects.modality.at[place] === modality));
  }
  function shownRows(places) {
    const family = chosen("family", models.family), source = chosen("source", models.source), how = chosen("how", models.how);
    const size = SIZES.find(([name]) => name === state.get("size"));
    const resolution = state.get("resolution");
    const matches = searcher(state.get("q"));
    const rows = [];
    for (let row = 0; row < n; row++) {
      const millions = models.parameters[row] === null ? null : models.parameters[row] / 1e6;
      if ((family === null || models.family.at[row] === family) && (source === null || models.source.at[row] === source) && (how === null || models.how.at[row] === how)
        && (!size || (millions !== null && millions >= size[1] && millions < size[2]))
        && (!resolution || `${models.resolution[row]}` === resolution) && matches(searchable[row])
        && places.some(place => scores[place].has(row))) rows.push(row);
    }
    return rows;
  }

  function columnsOf(places) {
    const away = hidden(), withEnds = state.get("intervals") === "with intervals";
    const prior = places.filter(place => kindAt(place) === "prior work");
    const means = MEANS.map(([id, kind, name]) => {
      const over = places.filter(place => kindAt(place) === kind), of = known.get(setOf(over));
      const cache = new Map();
      const mean = row => { if (!cache.has(row)) cache.set(row, meanOver(row, over, scores, of)); return cache.get(row); };
      return {id, name, kind, over, number: true, down: true, mean, known: Boolean(of),
        key: row => mean(row).score?.[1] ?? null, cell: row => meanCell(mean(row))};
    }).filter(column => column.over.length);
    const subject = place => ({id: columnId(place), name: textAt(subjects.name, place), number: true, down: true, place,
      key: row => scores[place].get(row)?.[1] ?? null, cell: row => scoreCell(scores[place].get(row), withEnds)});
    // Where few columns fit, the means come first.
    const facts = matchMedia("(max-width: 62rem)").matches ? [...means, ...FACTS, ...prior.map(subject)] : [...FACTS, ...prior.map(subject), ...means];
    const order = kind => places.filter(place => kindAt(place) === kind).map(subject);
    return {
      means, columns: [
        {id: "name", name: "Model", key: alphabetical(models.name), cell: nameCell}, ...facts,
        ...order("task"), ...order("dataset"),
      ].filter(column => !away.has(column.id)),
    };
  }
  function nameCell(row) {
    return [modelLink(models, row), make("span", {class: "tag"}, muted(`${isPublished(row) ? "published: " : ""}${textAt(models.checkpoint, row) || ""}`))];
  }
  function scoreCell(one, withEnds) {
    if (!one) return ["–"];
    const value = one[2] ? [make("b", {}, hundred(one[1])), spoken(` ${TIED}`)] : [hundred(one[1])];
    return withEnds ? [...value, make("br"), muted(hasEnds(one) ? endsText(one) : "no interval")] : value;
  }
  function meanCell({score, has, of}) {
    const coverage = muted(`${has} of ${of}`);
    if (!score) return ["– ", make("br"), coverage];
    const value = score[2] ? [make("b", {}, hundred(score[1])), spoken(` ${TIED}`)] : [hundred(score[1])];
    return [...value, hasEnds(score) ? ` ${endsText(score)}` : null, make("br"), coverage];
  }

  // --- The table.
  function sortOf(columns, means) {
    const [id, way] = (state.get("sort") || "").split(/\.(?=[ad]$)/);
    const column = columns.find(one => one.id === id) || columns.find(one => one === means[0]) || columns[0];
    return {column, descending: column.id === id ? way === "d" : Boolean(column.down)};
  }
  function sortRows(rows, {column, descending}, means) {
    const covered = row => means.reduce((sum, mean) => sum + mean.mean(row).has, 0);
    const keys = new Map(rows.map(row => [row, [column.key(row), covered(row)]]));
    return [...rows].sort((a, b) => {
      const [x, cx] = keys.get(a), [y, cy] = keys.get(b);
      if (x === null || y === null) return (x === null) - (y === null) || cy - cx || a - b;
      return (descending ? y - x : x - y) || a - b;
    });
  }
  function showTable(rows, columns, means) {
    const table = byId("scores"), sort = sortOf(columns, means);
    const focused = document.activeElement?.dataset?.column;
    table.tHead.replaceChildren(make("tr", {}, ...columns.map(column => {
      const button = make("button", {type: "button", "data-column": column.id}, column.name);
      button.addEventListener("click", () => {
        const same = sort.column === column;
        keep("sort", `${column.id}.${(same ? !sort.descending : column.down) ? "d" : "a"}`);
        times = 1;
        update();
      });
      return make("th", {scope: "col", class: column.number ? "number" : null,
        "aria-sort": sort.column !== column ? "none" : sort.descending ? "descending" : "ascending"}, button);
    })));
    const sorted = sortRows(rows, sort, means);
    const visible = times * rowsOf(columns);
    table.tBodies[0].replaceChildren(...sorted.slice(0, visible).map(row => make("tr", {}, ...columns.map((column, place) => {
      const content = [column.cell(row)].flat();
      if (place === 0) return make("th", {scope: "row"}, ...content);
      const text = typeof content[0] === "string" && !column.number ? content[0] : null;
      return make("td", {class: column.number ? "number" : "text", title: text}, ...content);
    }))));
    if (focused) [...table.tHead.querySelectorAll("button")].find(button => button.dataset.column === focused)?.focus({preventScroll: true});
    const left = sorted.length - visible;
    byId("scores-more").hidden = left <= 0;
    byId("scores-more").textContent = moreText(left, 2 * visible);
    byId("scores-none").hidden = rows.length > 0;
    byId("scores-box").hidden = !rows.length;
  }
  byId("scores-more").addEventListener("click", () => { times *= 3; update(); });

  // --- Which columns.
  const choices = [...FACTS, ...MEANS.map(([id, , name]) => ({id, name})), ...all.map(place => ({id: columnId(place), name: textAt(subjects.name, place)}))];
  const boxes = choices.map(({id, name}) => {
    const box = make("input", {type: "checkbox", value: id, autocomplete: "off"});
    box.addEventListener("change", () => hide(boxes.filter(one => !one.checked).map(one => one.value)));
    byId("columns").append(make("label", {class: "pick"}, box, make("span", {}, nameText(name))));
    return box;
  });
  function hide(ids) {
    state.delete("hide");
    ids.forEach(id => state.append("hide", id));
    writeSoon();
    update();
  }
  byId("columns-all").addEventListener("click", () => hide([]));
  byId("columns-none").addEventListener("click", () => hide(all.map(columnId)));

  // --- One column with its intervals.
  const oneTable = listing("one", [
    {name: "Model", lead: true, key: row => row.order, cell: row => [modelLink(models, row.row), isPublished(row.row) ? [" ", muted("published")] : []].flat()},
    {name: "Score × 100 and 95 % interval", number: true, down: true, key: row => row.one[1], cell: row => scoreWithEnds(row.one, row.one[3] === null ? withoutEnds(row.row) : reasons)},
    {name: "On a scale", css: "track", cell: trackCell},
  ], {step: 15, sort: "1d", empty: "No model that is shown has this score."});
  const withoutEnds = row => ({null: isPublished(row) ? "the published file's limits are of another kind" : "recomputed for the chosen columns"});
  function showOne(rows, means, places) {
    const choice = byId("on");
    const offered = [...means, ...places.map(place => ({id: columnId(place), name: textAt(subjects.name, place), place}))];
    const column = offered.find(one => one.id === state.get("on")) || offered[0];
    choice.replaceChildren(...offered.map(one => make("option", {value: one.id}, one.name)));
    byId("one-file").hidden = true;
    if (!column) return oneTable.show([]);
    choice.value = column.id;
    showFile("one-file", column.mean ? `*${column.id === "mean-task" ? "mean_over_tasks" : "mean_over_datasets"}` : subjects.key[column.place]);
    const found = rows.map(row => [row, column.mean ? column.mean(row).score : scores[column.place].get(row)]).filter(([, one]) => one);
    const [from, to] = scaleOf(found.map(([, one]) => one), 20);
    const order = alphabetical(models.name);
    oneTable.show(found.map(([row, one]) => ({row, one, from, to, order: order(row)})));
    byId("one-note").textContent = noteOn(column, found.length ? `Dots stand on a scale from ${hundred(from)} to ${hundred(to)}.` : "");
  }
  // Files lie beside the page and follow no filter.
  function showFile(id, of) {
    const file = DATA.plots[of];
    byId(id).hidden = !file;
    if (file) byId(id).replaceChildren(make("a", {href: file}, "Download as SVG"), ": all models evaluated here, whatever is filtered.");
  }
  showFile("imagenet-file", "*imagenet");
  function noteOn(column, scale) {
    if (column.mean) return `Mean over ${plural(column.over.length, column.kind)} of the models that have them all. ${scale}`;
    const {place} = column, examples = subjects.examples[place], groups = subjects.groups[place];
    const said = [textAt(subjects.metric, place) && wordsOf(textAt(subjects.metric, place)),
      examples === null ? null : `${plural(examples, "test example")}${groups === examples ? "" : ` in ${plural(groups, "independent group")}`}`,
      textAt(subjects.kingdom, place), textAt(subjects.modality, place)].filter(Boolean).join(", ");
    return `${said ? `${said[0].toUpperCase()}${said.slice(1)}. ` : ""}${scale}`;
  }
  byId("on").addEventListener("change", () => { keep("on", byId("on").value); update(); });

  // --- Plots.
  const imagenet = subjects.key.indexOf(IMAGENET);
  const plotColumns = (name, text) => [
    {name: "Model", lead: true, key: point => point.order, cell: point => [modelLink(models, point.row), point.published ? [" ", muted("published")] : []].flat()},
    {name, number: true, down: true, key: point => point.x, cell: point => text(point)},
    {name: "Mean × 100", number: true, down: true, key: point => point.y, cell: point => fixed(point.y, 1)},
  ];
  const imagenetTable = listing("imagenet-list", plotColumns("ImageNet-1K × 100", point => fixed(point.x, 1)), {step: 15, sort: "2d"});
  const sizeTable = listing("size-list", plotColumns("Parameters, M", point => sizeText(models.parameters[point.row])), {step: 15, sort: "2d"});
  const orderOf = alphabetical(models.name);
  // Lines through frozen features alone: other ways of answering follow other lines.
  function pointsOf(rows, mean, xOf) {
    return rows.filter(isFrozen).map(row => ({row, x: xOf(row), y: mean.mean(row).score?.[1] ?? null, published: isPublished(row), order: orderOf(row), name: textAt(models.name, row)}))
      .filter(point => point.x !== null && point.y !== null).map(point => ({...point, y: 100 * point.y}));
  }
  function fitText(points) {
    const kinds = [[false, "evaluated here", "solid line"], [true, "published", "dashed line"]];
    const said = kinds.map(([published, name, line]) => {
      const mine = points.filter(point => point.published === published), fit = bestFit(mine);
      if (!mine.length) return null;
      return fit ? `${plural(mine.length, "model")} ${name} (${published ? "rings" : "dots"}, ${line}): R² = ${fixed(fit.r2, 2)}`
        : `${plural(mine.length, "model")} ${name} (${published ? "rings" : "dots"}): no line, as that needs at least 3 that differ`;
    });
    return said.filter(Boolean).join("; ");
  }
  let redraw = () => {};
  function showPlots(rows, means) {
    const mean = means[0];
    const parts = [
      ["imagenet", "imagenet-part", "imagenet-said", imagenetTable, row => imagenet < 0 || !scores[imagenet].has(row) ? null : 100 * scores[imagenet].get(row)[1],
        "ImageNet-1K accuracy × 100", ticksBetween, tick => `${tick}`],
      ["sizes", "size-part", "size-said", sizeTable, row => models.parameters[row] === null ? null : Math.log10(models.parameters[row] / 1e6),
        "Parameters, log scale", powersBetween, tick => (tick >= 3 ? `${Number((10 ** (tick - 3)).toPrecision(2))} B` : `${Number((10 ** tick).toPrecision(2))} M`)],
    ];
    const drawings = [];
    for (const [id, part, said, table, xOf, xName, xTicks, xText] of parts) {
      const points = mean ? pointsOf(rows, mean, xOf) : [];
      byId(part).hidden = !points.length;
      if (!points.length) continue;
      const over = `mean over ${plural(mean.over.length, mean.kind)}`;
      byId(said).textContent = `${xName.replace(" × 100", "").replace(", log scale", ", as a logarithm,")} against the ${over}, with least-squares lines${rows.every(isFrozen) ? "" : "; frozen features alone"}. ${fitText(points)}.`;
      table.show(points);
      drawings.push(() => scatter(byId(id), points, {xName, yName: `M${over.slice(1)} × 100`, xTicks, xText, alternative: byId(said).textContent}));
    }
    redraw = () => drawings.forEach(draw => draw());
    redraw();
  }
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; redraw(); } });
  const ended = (value, sign) => `${fixed(value[0], sign)}${value.length > 1 ? ` [${fixed(value[1], sign)}, ${fixed(value[2], sign)}]` : ""}`;
  byId("agreement-part").hidden = !agreement.length;
  listing("agreement", [
    {name: "ImageNet accuracy against", lead: true, cell: row => row.of},
    {name: "Models", number: true, cell: row => whole(row.models)},
    ...[["R²", "r2"], ["Spearman", "spearman"], ["Kendall", "kendall"], ["Mis-ordered pairs", "misordered"]].map(([name, key]) => ({name, number: true,
      cell: row => row[key][0] === null ? "not computable" : [ended(row[key], 2), row[key].length > 1 ? "" : make("br"), row[key].length > 1 ? "" : muted("no interval")]})),
  ]).show(agreement);

  // --- All together.
  function update() {
    const places = shownSubjects(), rows = shownRows(places), {columns, means} = columnsOf(places);
    showTable(rows, columns, means);
    const away = hidden();
    boxes.forEach(box => { box.checked = !away.has(box.value); });
    byId("columns-count").textContent = `Columns (${choices.filter(one => !away.has(one.id)).length} of ${choices.length} chosen)`;
    const counts = means.map(mean => `${whole(rows.filter(row => mean.mean(row).score).length)} ${rows.filter(row => mean.mean(row).score).length === 1 ? "has" : "have"} a mean over ${mean.over.length === 1 ? `the one ${mean.kind}` : `all ${whole(mean.over.length)} ${mean.kind}s`} shown`);
    byId("said").textContent = `${plural(rows.length, "row")}${rows.length < n ? ` of ${whole(n)}` : ""}${counts.length ? `; ${counts.join(", ")}` : ""}.`;
    const recomputed = means.some(mean => !mean.known && rows.some(row => !isPublished(row)));
    byId("note").textContent = "Scores × 100, higher is better; – is not measured. Bold and underlined: may be as good as the best of all rows of its kind, filtered or not."
      + " A mean is unweighted, of models that have every column shown; below it, how many they have."
      + (recomputed ? " This mean is recomputed for the chosen columns; it has no interval and no ties." : "")
      + (rows.some(isPublished) ? " Published rows are scored by rules of their own: compare them among themselves; they have no interval here." : "");
    showOne(rows, means, places);
    showPlots(rows, means);
  }
  offer("family", models.family.texts, countOf(models.family));
  offer("source", models.source.texts, countOf(models.source));
  offer("how", models.how.texts, countOf(models.how));
  const sizeCounts = SIZES.map(([, from, to]) => models.parameters.filter(value => value !== null && value / 1e6 >= from && value / 1e6 < to).length);
  const sizeField = byId("size");
  sizeField.append(...SIZES.flatMap(([name], place) => sizeCounts[place] ? [make("option", {value: name}, `${SIZE_NAMES[name]} (${sizeCounts[place]})`)] : []));
  const resolutions = [...new Set(models.resolution.filter(value => value !== null))].sort((a, b) => a - b).map(String);
  offer("resolution", resolutions, resolutions.map(text => models.resolution.filter(value => `${value}` === text).length));
  offer("kingdom", subjects.kingdom.texts, countOf(subjects.kingdom));
  offer("modality", subjects.modality.texts, countOf(subjects.modality));
  byId("intervals").append(make("option", {value: "with intervals"}, "with intervals"));
  const change = () => { times = 1; update(); };
  bindFields(change);
  appliers.push(change);
  update();
})();
