// The leaderboard: runs that pass the filters, and how often each model is the best among them.
(() => {
  const runs = DATA.runs;
  if (!byId("runs")) return;
  const n = runs.samples.length;
  const {datasets} = runs;
  const datasetOf = run => runs.dataset.at[run];
  const searchable = [];
  for (let run = 0; run < n; run++) {
    const set = datasetOf(run);
    searchable.push([textAt(runs.model, run), textAt(runs.dataset, run), textAt(runs.task, run), textAt(runs.how, run),
      textAt(runs.config, run), textAt(runs.platform, run), textAt(datasets.ag, set), wordsOf(textAt(datasets.ag, set) || ""),
      listAt(datasets.crops, set).join(" ")].join("\n").toLowerCase());
  }

  const intervals = runs.scores.some(scores => scores.some(score => score.length > 5));

  // The score of a run by the chosen metric: its place among the run's scores.
  let metric = null;
  const scoreOf = run => metric === null ? runs.scores[run][0] : runs.scores[run].find(score => score[0] === metric);

  function passing() {
    metric = chosen("metric", {texts: runs.metrics});
    const task = chosen("task", runs.task), how = chosen("how", runs.how), platform = chosen("platform", runs.platform);
    const crop = chosen("crop", datasets.crops), ag = chosen("ag", datasets.ag);
    const matches = searcher(state.get("q"));
    const found = [];
    for (let run = 0; run < n; run++) {
      const set = datasetOf(run);
      if ((task === null || runs.task.at[run] === task) && (how === null || runs.how.at[run] === how)
        && (platform === null || runs.platform.at[run] === platform) && (ag === null || datasets.ag.at[set] === ag)
        && (crop === null || datasets.crops.at[set].includes(crop)) && matches(searchable[run]) && scoreOf(run)) found.push(run);
    }
    return found;
  }

  const runTable = listing("runs", [
    {name: "Rank", number: true, key: run => scoreOf(run)[2], cell: run => [`${scoreOf(run)[2]}`, " ", muted(`of ${scoreOf(run)[3]}`)]},
    {name: "Model", lead: true, key: alphabetical(runs.model), cell: run => nameText(textAt(runs.model, run))},
    {name: "Dataset", css: "long", key: alphabetical(runs.dataset), cell: run => datasetLink(textAt(runs.dataset, run))},
    {name: "Task", key: alphabetical(runs.task), cell: run => setting(run)},
    {name: "Score", number: true, down: true, key: run => scoreOf(run)[1], cell: run => scoreCell(run)},
    {name: "Images", number: true, down: true, key: run => runs.samples[run], cell: run => runs.samples[run] === null ? "not stated" : whole(runs.samples[run])},
    {name: "Skipped", number: true, down: true, key: run => skipRate(run), cell: run => skippedCell(run)},
    {name: "Time, s/image", number: true, key: run => runs.seconds[run], cell: run => duration(runs.seconds[run])},
    {name: "Platform", key: alphabetical(runs.platform), cell: run => textAt(runs.platform, run) || "not stated"},
  ]);
  function setting(run) {
    const config = textAt(runs.config, run);
    return [taskName(textAt(runs.task, run)), make("br"), muted(textAt(runs.how, run) + (config === "raw" ? "" : `, ${config}`))];
  }
  function scoreCell(run) {
    const [label, score, , , , low, high] = scoreOf(run);
    const text = [`${fixed(score, 3)} `, muted(runs.metrics[label])];
    if (!intervals) return text;  // which is said above the table
    const none = textAt(runs.no_interval, run) ? "interval not computable" : "no interval";
    return [...text, make("br"), low === undefined ? muted(none) : `[${fixed(low, 3)}, ${fixed(high, 3)}]`];
  }
  function skipRate(run) {
    return runs.skipped[run] === null || !runs.samples[run] ? null : runs.skipped[run] / runs.samples[run];
  }
  function skippedCell(run) {
    const rate = skipRate(run);
    if (rate === null) return "not stated";
    return [whole(runs.skipped[run]), " ", muted(`${fixed(100 * rate, rate > 0 && rate < 0.001 ? 2 : 1)} %`)];
  }

  // One row for each model, task and way of training.
  function summarise(found) {
    const rows = new Map();
    for (const run of found) {
      const id = `${runs.model.at[run]} ${runs.task.at[run]} ${runs.how.at[run]}`;
      let row = rows.get(id);
      if (!row) rows.set(id, row = {run, sets: new Set(), met: 0, best: 0, alone: 0, seconds: [], pairs: new Map()});
      const [, , rank, of, tied] = scoreOf(run);
      row.sets.add(datasetOf(run));
      if (of > 1) { row.met += 1; row.best += rank === 1; row.alone += rank === 1 && tied === 0; }
      if (runs.seconds[run] !== null) row.seconds.push(runs.seconds[run]);
      const task = textAt(datasets.task, datasetOf(run)) || "";
      row.pairs.set(task, (row.pairs.get(task) || 0) + 1);
    }
    for (const row of rows.values()) {
      row.interval = row.met ? wilson(row.best, row.met) : null;
      row.seconds.sort((a, b) => a - b);
      const half = row.seconds.length >> 1;
      row.time = !row.seconds.length ? null : row.seconds.length % 2 ? row.seconds[half] : (row.seconds[half - 1] + row.seconds[half]) / 2;
    }
    return [...rows.values()];
  }
  const modelKey = alphabetical(runs.model), taskKey = alphabetical(runs.task), howKey = alphabetical(runs.how);
  const modelTable = listing("models", [
    {name: "Model", lead: true, key: row => modelKey(row.run), cell: row => nameText(textAt(runs.model, row.run))},
    {name: "Task", key: row => taskKey(row.run), cell: row => taskName(textAt(runs.task, row.run))},
    {name: "Training", key: row => howKey(row.run), cell: row => textAt(runs.how, row.run)},
    {name: "Datasets", number: true, down: true, key: row => row.sets.size, cell: row => whole(row.sets.size)},
    {name: "Best or tied, share of n", number: true, css: "share", down: true, key: row => row.interval && row.interval[0], cell: row => bestCell(row)},
    {name: "Median time, s/image", number: true, key: row => row.time, cell: row => duration(row.time)},
  ], {step: 10, sort: "4d"});
  function bestCell(row) {
    if (!row.met) return muted("not computable: no other model was run on these");
    const share = row.best / row.met, [low, high] = row.interval;
    const text = `${fixed(share, 2)} [${fixed(low, 2)}, ${fixed(high, 2)}]`;
    const alone = row.alone < row.best ? `, ${row.alone ? whole(row.alone) : "none"} alone` : "";
    return [`${text} `, muted(`${whole(row.best)} of ${whole(row.met)}${alone}`),
      bar(share, low, high, `${alone ? "best or tied" : "best"} on ${row.best} of ${row.met}${alone}`)];
  }

  function update() {
    const found = passing();
    const rows = summarise(found);
    modelTable.show(rows);
    runTable.show(found);
    const sets = new Set(found.map(datasetOf)), models = new Set(found.map(run => runs.model.at[run]));
    byId("said").textContent = `${plural(found.length, "run")} of ${plural(models.size, "model")} on ${plural(sets.size, "dataset")}${found.length < n ? `, of ${plural(n, "run")} in all` : ""}.`;
    // The models with most datasets, of the task that most of these are of.
    const ranked = [...rows].sort((a, b) => b.sets.size - a.sets.size);
    const pairs = new URLSearchParams();
    const main = ranked[0] && mostFrequent(ranked[0].pairs);
    for (const row of ranked) {
      if (mostFrequent(row.pairs) === main) {
        const id = `${textAt(runs.model, row.run)}|||${main}`;
        const chosenOnes = pairs.getAll("pair");
        if (!chosenOnes.includes(id) && chosenOnes.length < 4) pairs.append("pair", id);
      }
    }
    for (const name of ["crop", "ag", "how", "platform"]) if (state.get(name)) pairs.set(name, state.get(name));
    byId("compare").href = `compare.html#${pairs}`;
  }
  const mostFrequent = counts => [...counts].reduce((a, b) => b[1] > a[1] ? b : a)[0];

  const ofRuns = column => ({texts: column.texts, at: runs.dataset.at.map(set => column.at[set])});
  offer("task", runs.task.texts, countOf(runs.task), taskName);
  offer("how", runs.how.texts, countOf(runs.how));
  offer("platform", runs.platform.texts, countOf(runs.platform));
  offer("crop", datasets.crops.texts, countOf(ofRuns(datasets.crops)));
  offer("ag", datasets.ag.texts, countOf(ofRuns(datasets.ag)), wordsOf);
  offer("metric", runs.metrics, runs.metrics.map((_, place) => runs.scores.filter(scores => scores.some(score => score[0] === place)).length));
  bindFields(update);
  appliers.push(update);
  update();
})();
