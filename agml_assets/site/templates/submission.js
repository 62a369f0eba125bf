// One submission of embeddings: what it scores on every task, what is predicted and what is true, what was left out.
(() => {
  const {submissions, tasks, left_out: leftOut, reasons, shades} = DATA;
  const rowOf = new Map(submissions.key.map((key, row) => [key, row]));
  const short = new Intl.NumberFormat("en", {maximumSignificantDigits: 4}), compact = new Intl.NumberFormat("en", {maximumSignificantDigits: 3, notation: "compact"});
  const valueText = value => value !== 0 && Math.abs(value) < 1e-3 ? value.toExponential(1) : Math.abs(value) >= 1e5 ? compact.format(value) : short.format(value);
  const endsOf = ends => `${hundred(ends[0])}${ends.length > 1 ? ` [${hundred(ends[1])}, ${hundred(ends[2])}]` : ""}`;

  // --- Scores.
  const taskTable = listing("tasks", [
    {name: "Task", lead: true, css: "name", cell: row => [make("bdi", {}, wordsOf(row.task)), make("br"), muted(metricName(row.metric))]},
    {name: "Score × 100 and 95 % interval", number: true, cell: row => scoreWithEnds(row.one, reasons)},
    {name: "On a scale", css: "track", cell: trackCell},
    {name: "Floor × 100", number: true, cell: row => row.floor ? endsOf(row.floor) : "not computable"},
    {name: "Kept × 100", number: true, cell: row => hundred(row.kept)},
    {name: "Rank", number: true, cell: row => row.rank === null ? "not ranked" : whole(row.rank)},
    {name: "Samples", number: true, cell: row => [whole(row.n), ...(row.units === row.n ? [] : [make("br"), muted(`${plural(row.units, "group")}`)])]},
    {name: "By other scores, × 100", css: "wide", cell: row => row.others.length ? row.others.map(([name, ...ends]) => `${metricName(name)} ${endsOf(ends)}`).join(" · ") : "none"},
  ]);

  // --- Figures. `redraw` draws them for the width that there is.
  const pointTable = listing("points", [
    {name: "True", number: true, lead: true, key: row => row.x, cell: row => valueText(row.x)},
    {name: "Predicted", number: true, key: row => row.y, cell: row => valueText(row.y)},
    {name: "Output", cell: row => row.output},
  ]);
  const confusedTable = listing("confused", [
    {name: "True class", lead: true, css: "name", cell: row => make("bdi", {}, row[0])},
    {name: "Predicted", css: "name", cell: row => make("bdi", {}, row[1])},
    {name: "Samples", number: true, down: true, key: row => row[2], cell: row => whole(row[2])},
    {name: "Share of the true class", number: true, down: true, key: row => row[2] / row[3], cell: row => [`${fixed(100 * row[2] / row[3], 1)} % `, muted(`of ${whole(row[3])}`)]},
  ]);
  let redraw = () => {};
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; redraw(); } });
  const SHOWN = {parity: showParity, matrix: showMatrix, confused: showConfused};

  function showFigure(row) {
    const own = tasks[row], field = byId("task");
    byId("figure-part").hidden = !own.length;
    redraw = () => {};
    if (!own.length) return;
    const task = own.find(one => one.task === state.get("task")) || own[0];
    field.replaceChildren(...own.map(one => make("option", {value: one.task}, wordsOf(one.task))));
    field.value = task.task;
    field.closest(".field").hidden = own.length < 2;
    byId("points-part").hidden = task.figure.kind !== "parity";
    byId("confused-part").hidden = task.figure.kind !== "confused";
    byId("figure-file").hidden = !task.file;
    if (task.file) byId("figure-file").replaceChildren(make("a", {href: task.file}, "Download as SVG"), ".");
    SHOWN[task.figure.kind](task, task.figure);
  }
  function showParity(task, figure) {
    const drawn = figure.points[0].length, name = place => figure.outputs.length ? `output ${figure.outputs[place]}` : wordsOf(task.task);
    byId("figure-said").textContent = `Predictions out of fold, in the first repeat of the folds, of ${drawn < figure.n ? `${whole(drawn)} of ${plural(figure.n, "sample")}, evenly spaced in the order of ids` : plural(figure.n, "sample")}. `
      + `On the line they are equal to what is true.${figure.more ? ` ${plural(figure.more, "further output is", "further outputs are")} not drawn.` : ""}`;
    const points = figure.points.map((list, place) => list.map(([x, y]) => ({x, y, published: false, name: `${valueText(x)}, predicted ${valueText(y)}`, output: name(place)})));
    const boxes = points.map(() => make("div", {class: "drawing square"}));
    byId("figures").replaceChildren(...boxes);
    redraw = () => points.forEach((list, place) => scatter(boxes[place], list, {xName: `True ${name(place)}`, yName: `Predicted ${name(place)}`, xTicks: ticksBetween, xText: valueText, yText: valueText,
      alternative: `${name(place)}: predictions against true values of ${plural(list.length, "sample")}, true ${rangeOf(list.map(p => p.x))}, predicted ${rangeOf(list.map(p => p.y))}; ${metricName(task.metric)} × 100 over all: ${hundred(task.score[1])}.`,
      lines: false, same: true, radius: 2.5, names: 0}));
    redraw();
    pointTable.show(points.flat());
  }
  const rangeOf = values => `${valueText(Math.min(...values))} to ${valueText(Math.max(...values))}`;
  function showMatrix(task, figure) {
    const {classes, counts} = figure, isShort = classes.every(name => name.length <= 5);
    const totals = counts.map(list => list.reduce((sum, count) => sum + count, 0));
    const right = counts.reduce((sum, list, place) => sum + list[place], 0);
    byId("figure-said").textContent = `${whole(right)} of ${plural(figure.n, "sample")} are named right (${fixed(100 * right / figure.n, 1)} %), out of fold, in the first repeat of the folds. `
      + `${worst(classes, counts, totals)} Rows: true class; columns: predicted class${isShort ? "" : ", by the number of its row"}; counts, and shares of the row.`;
    const column = place => isShort ? [make("bdi", {}, classes[place])] : [whole(place + 1), spoken(` ${classes[place]}`)];
    const table = make("table", {class: "matrix", "aria-label": `Confusion matrix of ${wordsOf(task.task)}`},
      make("thead", {}, make("tr", {}, make("th", {scope: "col"}, "True \\ predicted"), ...classes.map((_, place) => make("th", {scope: "col", class: "number", title: classes[place]}, ...column(place))))),
      make("tbody", {}, ...counts.map((list, place) => make("tr", {}, make("th", {scope: "row"}, isShort ? "" : `${place + 1}. `, nameText(classes[place])),
        ...list.map((count, other) => matrixCell(count, count / (totals[place] || 1), `${classes[place]}, predicted ${classes[other]}`))))));
    byId("figures").replaceChildren(make("div", {class: "scroll flat", tabindex: "0", role: "region", "aria-label": "Confusion matrix, sideways"}, table));
  }
  function worst(classes, counts, totals) {
    const pairs = counts.flatMap((list, place) => list.map((count, other) => ({count, place, other}))).filter(one => one.place !== one.other && one.count);
    if (!pairs.length) return "No class is taken for another.";
    const most = pairs.reduce((best, one) => one.count > best.count ? one : best);
    return `Most often ${classes[most.place]} is taken for ${classes[most.other]}: ${whole(most.count)} of ${whole(totals[most.place])}.`;
  }
  function matrixCell(count, share, title) {
    const cell = make("td", {class: "number", title}, ...(count ? [whole(count), make("br"), make("span", {}, share < 0.01 ? "< 1 %" : `${fixed(100 * share, 0)} %`)] : [make("span", {class: "how"}, "0")]));
    if (count) [cell.style.background, cell.style.color] = shades[Math.round(share * (shades.length - 1))];
    return cell;
  }
  function showConfused(task, figure) {
    byId("figures").replaceChildren();
    const right = figure.n - figure.wrong;
    byId("figure-said").textContent = `${whole(right)} of ${plural(figure.n, "sample")} are named right (${fixed(100 * right / figure.n, 1)} %), out of fold, in the first repeat of the folds. `
      + `A matrix of ${whole(figure.classes)} classes would not fit: these are ${figure.pairs.length < figure.pairs_in_all ? `the ${whole(figure.pairs.length)} most frequent of ${whole(figure.pairs_in_all)}` : "all"} pairs of a class and what it is taken for.`;
    confusedTable.show(figure.pairs);
  }

  // --- What was left out.
  const leftTable = listing("left", [
    {name: "Task", lead: true, css: "name", cell: row => row.task === null ? "all" : make("bdi", {}, wordsOf(row.task))},
    {name: "What", css: "wide", cell: row => make("bdi", {}, row.what)},
  ], {step: 60});
  function showLeftOut(row) {
    const found = [
      ...leftOut[row].map(([task, why]) => ({task, what: `Not scored: ${why}`})),
      ...tasks[row].flatMap(one => [...one.exclusions, ...one.notes].map(what => ({task: one.task, what}))),
      ...listAt(submissions.notes, row).map(what => ({task: null, what})),
    ];
    byId("left-nothing").hidden = found.length > 0;
    byId("left-box").hidden = !found.length;
    leftTable.show(found);
  }

  function show(row) {
    const name = textAt(submissions.name, row), key = submissions.key[row];
    byId("name").replaceChildren(nameText(name));
    document.title = `${name}: AgML benchmarks`;
    const {bytes, uncompressed, dimensions, embeddings} = submissions;
    byId("facts").textContent = [key, `phase ${textAt(submissions.phase, row)}`,
      bytes[row] === null ? "size not stored" : `${bytesText(bytes[row])} bytes per embedding${uncompressed[row] > bytes[row] ? ` of ${bytesText(uncompressed[row])} uncompressed` : ""}`,
      dimensions[row] === null ? null : plural(dimensions[row], "dimension"), embeddings[row] === null ? null : plural(embeddings[row], "embedding")].filter(Boolean).join(" · ");
    const mean = submissions.mean[row];
    byId("lead").textContent = mean ? `Keeps ${hundred(mean[1])}${hasEnds(mean) ? ` ${endsText(mean)}` : ""} of 100, in the mean over ${plural(tasks[row].length, "task")}. Rank ${whole(submissions.rank[row])} of ${whole(submissions.of[row])}${submissions.sharing[row] ? `, shared with ${plural(submissions.sharing[row], "other")}` : ""}.`
      : "It has no mean and no rank, as it lacks a task that others of its phase have.";
    const own = tasks[row].map(task => ({...task, one: task.score}));
    if (own.length) { const [from, to] = scaleOf(own.map(({one}) => one)); own.forEach(one => { Object.assign(one, {from, to}); }); }
    byId("tasks-note").textContent = own.length ? `Out of fold. Floor: the score with labels dealt anew; a score near it says nothing. Kept: the score between what the labels alone allow (0) and everything (100). Bold: ${TIED} of the phase.`
      : "Its scores are no longer stored: evaluate it again.";
    byId("tasks-box").hidden = !own.length;
    taskTable.show(own);
    showFigure(row);
    showLeftOut(row);
  }
  byId("task").addEventListener("change", () => { keep("task", byId("task").value); update(); });

  // --- Which submission.
  const searchable = submissions.key.map((key, row) => [key, textAt(submissions.name, row), textAt(submissions.phase, row)].join("\n").toLowerCase());
  const table = listing("list", [
    {name: "Submission", lead: true, css: "name", key: alphabetical(submissions.name), cell: row => [submissionLink(submissions, row), make("br"), muted(submissions.key[row])]},
    {name: "Phase", key: alphabetical(submissions.phase), cell: row => wordsOf(textAt(submissions.phase, row))},
    {name: "Bytes per embedding", number: true, key: row => submissions.bytes[row], cell: row => submissions.bytes[row] === null ? "not stored" : bytesText(submissions.bytes[row])},
    {name: "Rank", number: true, key: row => submissions.rank[row], cell: row => submissions.rank[row] === null ? "not ranked" : rankCell(submissions.rank[row], submissions.of[row], submissions.sharing[row])},
  ], {sort: "1a", empty: "There is no submission here."});
  function choose() {
    const matches = searcher(state.get("q"));
    const found = submissions.key.map((_, row) => row).filter(row => matches(searchable[row]));
    table.show(found);
    byId("said").textContent = `${plural(found.length, "submission")}.`;
  }
  function update() {
    const key = state.get("submission"), row = rowOf.get(key);
    byId("one").hidden = row === undefined;
    byId("choose").hidden = row !== undefined;
    if (row !== undefined) return show(row);
    byId("unknown").textContent = key ? `There is no submission called ${key}.` : "Those of a phase are compared with each other.";
    choose();
  }
  bindFields(choose);
  appliers.push(update);
  update();
})();
