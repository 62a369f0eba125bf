// One model: its means, its scores on every task and dataset with intervals, and how it was run.
(() => {
  const {models, subjects, scores, means, reasons, runs} = DATA;
  const published = row => textAt(models.source, row) === "published";
  const rowOf = new Map(models.id.map((_, row) => [modelId(models, row), row]));
  const best = scores.map(list => [false, true].map(kind => list.filter(one => published(one[0]) === kind)));

  function facts(row) {
    const parameters = models.parameters[row];
    const said = [textAt(models.family, row), textAt(models.checkpoint, row),
      parameters === null ? "number of parameters not stated" : `${parameters < 9.5e6 ? fixed(parameters / 1e6, 1) : whole(parameters / 1e6)} M parameters`,
      models.resolution[row] === null ? "resolution not stated" : `${models.resolution[row]} px`,
      textAt(models.released, row) ? `released ${textAt(models.released, row)}` : "release date not stated",
      published(row) ? "published results" : "evaluated here", published(row) ? null : textAt(models.how, row)];
    return said.filter(Boolean).join(" · ");
  }
  // Its other rows: published, or of another way of answering.
  function sameModel(row) {
    const own = textAt(models.own, row);
    return own === null ? [] : models.id.map((_, other) => other).filter(other => other !== row && textAt(models.own, other) === own);
  }

  // --- Tables. A row of the first two is {of, one, ...}; scales are those of the rows that are shown.
  const standing = row => [`${row.place} `, muted(`of ${row.n}`), ...(row.one[2] ? [make("br"), muted(TIED)] : [])];
  const meanTable = listing("means", [
    {name: "Mean over", lead: true, cell: row => [row.of, " ", muted(`${row.count} of ${row.count}`)]},
    {name: "Score × 100 and 95 % interval", number: true, cell: row => scoreWithEnds(row.one, reasons)},
    {name: "On a scale", css: "track", cell: trackCell},
    {name: "Place", number: true, cell: standing},
  ]);
  const scoreTable = listing("scores", [
    {name: "Task or dataset", lead: true, css: "name", key: row => row.subject, cell: row => subjectCell(row.subject)},
    {name: "Metric", key: row => subjects.metric.at[row.subject], cell: row => textAt(subjects.metric, row.subject) ? wordsOf(textAt(subjects.metric, row.subject)) : "not stated"},
    {name: "Score × 100 and 95 % interval", number: true, down: true, key: row => row.one[1], cell: row => scoreWithEnds(row.one, reasons)},
    {name: "On a scale", css: "track", cell: trackCell},
    {name: "Place", number: true, key: row => row.place, cell: standing},
    {name: "By other metrics", css: "wide", cell: row => otherMetrics(row.run)},
  ], {step: 40, sort: "0a"});
  const runTable = listing("runs", [
    {name: "Task or dataset", lead: true, css: "name", key: row => row.subject, cell: row => nameText(textAt(subjects.name, row.subject))},
    {name: "Training examples", number: true, down: true, key: row => runs.train[row.run], cell: row => runs.train[row.run] === null ? "not stated" : whole(runs.train[row.run])},
    {name: "Test examples", number: true, down: true, key: row => subjects.examples[row.subject], cell: row => subjects.examples[row.subject] === null ? "not stated" : whole(subjects.examples[row.subject])},
    {name: "Classes", number: true, down: true, key: row => runs.classes[row.run], cell: row => runs.classes[row.run] === null ? "not stated" : whole(runs.classes[row.run])},
    {name: "Time, s/image", number: true, key: row => runs.seconds[row.run], cell: row => runs.seconds[row.run] === null ? "not measured" : duration(runs.seconds[row.run])},
    {name: "Probe fitted in, s", number: true, key: row => runs.fit[row.run], cell: row => duration(runs.fit[row.run])},
    {name: "How it was run", css: "wide", cell: row => howCell(row.run)},
  ], {step: 20, sort: "0a"});
  function subjectCell(place) {
    const card = textAt(subjects.card, place);
    const said = [textAt(subjects.kind, place), textAt(subjects.kingdom, place), textAt(subjects.modality, place)].filter(Boolean).join(", ");
    return [subjectLink(subjects, place), make("br"), muted(said),
      ...(card ? [" · ", make("a", {href: card, "aria-label": `Card of ${textAt(subjects.name, place)}`}, "card")] : [])];
  }
  function otherMetrics(run) {
    if (run < 0 || !runs.others[run].length) return muted("not stated");
    return runs.others[run].map(([name, value, low, high]) => `${runs.metrics[name]} ${hundred(value)}${low === undefined ? "" : ` [${hundred(low)}, ${hundred(high)}]`}`).join(" · ");
  }
  function howCell(run) {
    const said = [textAt(runs.split, run) && `${wordsOf(textAt(runs.split, run))} split`, textAt(runs.probe, run), textAt(runs.device, run), textAt(runs.date, run)];
    const notes = textAt(runs.notes, run);
    return [said.filter(Boolean).join(" · ") || "not stored", ...(notes ? [make("details", {}, make("summary", {}, "Notes"), make("p", {class: "written"}, notes))] : [])];
  }
  const placeIn = (list, score) => 1 + list.filter(one => one[1] > score).length;

  function show(row) {
    const name = textAt(models.name, row);
    byId("name").replaceChildren(nameText(name));
    document.title = `${name}: AgML benchmarks`;
    byId("facts").textContent = facts(row);
    const same = sameModel(row);
    byId("others").hidden = !same.length;
    byId("others").replaceChildren(...(same.length ? ["The same model, ", ...same.flatMap((other, place) =>
      [place ? ", " : "", link(published(other) ? "as published" : textAt(models.how, other), "model.html", {model: modelId(models, other)})]), "."] : []));
    const found = scores.flatMap((list, subject) => list.flatMap((one, place) => one[0] === row
      ? [{subject, one, run: runs.places[subject][place], place: placeIn(best[subject][Number(published(row))], one[1]), n: best[subject][Number(published(row))].length}] : []));
    const over = means.flatMap(mean => mean.scores.filter(one => one[0] === row).map(one => ({of: mean.of, count: mean.subjects.length, one,
      place: placeIn(mean.scores, one[1]), n: mean.scores.length}))).filter(() => !published(row));
    for (const rows of [found, over]) if (rows.length) { const [from, to] = scaleOf(rows.map(({one}) => one)); rows.forEach(one => { Object.assign(one, {from, to}); }); }
    scoreTable.show(found);
    meanTable.show(over);
    byId("means-part").hidden = published(row);
    byId("means-box").hidden = !over.length;
    byId("means-note").textContent = over.length ? "Unweighted, of models that have every task; places are among these." : "Not computable: it lacks a task of every mean that the report has.";
    byId("scores-note").textContent = published(row)
      ? "As published, by rules of their own; places are among published rows. The published limits are of another kind and not shown."
      : `Bold: ${TIED}. Places are among the models evaluated here${found.length ? `; dots stand on a scale from ${hundred(found[0].from)} to ${hundred(found[0].to)}` : ""}.`;
    const run = found.filter(one => one.run >= 0);
    byId("runs-part").hidden = !run.length;
    runTable.show(run);
  }

  // --- Which model.
  const searchable = models.id.map((id, row) => [textAt(models.name, row), id, textAt(models.family, row)].join("\n").toLowerCase());
  const counts = models.id.map(() => 0);
  scores.forEach(list => list.forEach(one => { counts[one[0]] += 1; }));
  const table = listing("list", [
    {name: "Model", lead: true, css: "name", key: alphabetical(models.name), cell: row => [modelLink(models, row), published(row) ? [" ", muted("published")] : []].flat()},
    {name: "Family", key: alphabetical(models.family), cell: row => textAt(models.family, row) || "not stated"},
    {name: "Tasks and datasets", number: true, down: true, key: row => counts[row], cell: row => whole(counts[row])},
  ], {sort: "2d"});
  function choose() {
    const matches = searcher(state.get("q"));
    const found = models.id.map((_, row) => row).filter(row => matches(searchable[row]));
    table.show(found);
    byId("said").textContent = `${plural(found.length, "model")}.`;
  }
  function update() {
    const name = state.get("model"), row = rowOf.get(name);
    byId("one").hidden = row === undefined;
    byId("choose").hidden = row !== undefined;
    if (row !== undefined) return show(row);
    byId("unknown").textContent = name ? `There is no model called ${name}.` : "Models with most tasks and datasets come first.";
    choose();
  }
  bindFields(choose);
  appliers.push(update);
  update();
})();
