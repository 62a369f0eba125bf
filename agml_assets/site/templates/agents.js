// Agents on tasks: who succeeds how often, on what, at what price, and what of the order is sure.
(() => {
  const {tasks, agents, cells, pairs, plots, thresholds} = DATA;
  if (byId("left")) {
    const {what, why} = DATA.left_out;
    listing("left", [
      {name: "Task and agent", lead: true, css: "name", key: alphabetical(what), cell: row => nameText(textAt(what, row))},
      {name: "Why", css: "wide", key: alphabetical(why), cell: row => make("bdi", {}, textAt(why, row))},
    ], {step: 10, sort: "0a"}).show(what.at.map((_, row) => row));
  }
  if (!byId("standings")) return;
  const nA = agents.key.length, nT = tasks.key.length;
  const agentRows = agents.key.map((_, row) => row), taskRows = tasks.key.map((_, row) => row);
  const agentName = row => textAt(agents.name, row), taskLabel = row => textAt(tasks.name, row);
  const agentCell = row => [make("b", {}, nameText(agentName(row))), make("br"), muted([agents.key[row], textAt(agents.model, row) || wordsOf(textAt(agents.kind, row))].filter((text, at) => at || text !== agentName(row)).join(" · "))];
  const percent = value => fixed(100 * value, 0);
  const rateText = ([k, n, low, high]) => `${percent(k / n)} % [${percent(low)}, ${percent(high)}]`;
  const signed = value => `${value > 0 ? "+" : ""}${Math.abs(value) >= 10 ? whole(100 * value) : hundred(value)}`;
  const plusMinus = ([mean, error]) => `${signed(mean)} %${error === null ? "" : ` ± ${Math.abs(error) >= 10 ? whole(100 * error) : hundred(error)}`}`;
  const lost = (one, row) => [["failed", "failed"], ["timed_out", "out of time"], ["no_submission", "without a submission"], ["invalid", "with an invalid one"]]
    .map(([name, words]) => [row === undefined ? one[name] : one[name][row], words]).filter(([count]) => count).map(([count, words]) => `${whole(count)} ${words}`);
  const lines = found => found.filter(Boolean).flatMap(text => [make("br"), muted(text)]);

  // --- The agents.
  const ranked = agentRows.filter(row => agents.success[row]);
  const [from, to] = ranked.length ? scaleOf(ranked.map(row => agents.success[row])) : [0, 1];
  const othersKnown = agents.others.some(Boolean), unknown = [...new Set(ranked.map(row => textAt(agents.others_why, row)).filter(Boolean))];
  const meanTasks = tasks.in_mean.filter(Boolean).length;
  listing("standings", [
    {name: "Agent", lead: true, css: "name", key: alphabetical(agents.name), cell: agentCell},
    {name: "Rank", number: true, key: row => agents.rank[row] === null ? null : agents.rank[row] + row / (nA + 1), cell: row => agents.rank[row] === null ? muted("not ranked") : rankCell(agents.rank[row], ranked.length, agents.sharing[row])},
    {name: "Successful, % and 95 % interval", number: true, down: true, key: row => agents.success[row]?.[1] ?? null,
      cell: row => agents.success[row] ? [...scoreWithEnds(agents.success[row], []), make("br"), muted(`${whole(agents.successes[row][0])} of ${plural(agents.successes[row][1], "trial")}`)] : lacking(row)},
    {name: "On a scale", css: "track", cell: row => agents.success[row] ? trackCell({one: agents.success[row], from, to}) : muted("none")},
    ...(othersKnown ? [{name: "On other such tasks, 95 %", number: true, cell: row => agents.others[row] ? `[${agents.others[row].map(hundred).join(", ")}]` : muted("not known")}] : []),
    {name: "Normalised × 100 ± standard error", number: true, down: true, key: row => agents.normalised[row]?.[0] ?? null, cell: row => normalisedCell(agents.normalised[row])},
    {name: "Trials", number: true, key: row => agents.n[row], cell: row => [whole(agents.n[row]), ...lines(lost(agents, row))]},
    {name: "Tokens a trial", number: true, key: row => agents.tokens[row]?.[0] ?? null, cell: row => agents.tokens[row] ? whole(agents.tokens[row][0]) : muted("not known")},
    {name: "Minutes a trial", number: true, key: row => agents.minutes[row]?.[0] ?? null, cell: row => agents.minutes[row] ? shortNumber(agents.minutes[row][0]) : muted("not known")},
  ], {sort: "1a"}).show(agentRows);
  function lacking(row) {
    const lacks = listAt(agents.lacks, row);
    return muted(lacks.length ? `no mean: lacks ${lacks.map(wordsOf).join(", ")}` : "no mean: no task decides success");
  }
  function normalisedCell(one) {
    return one ? [`${hundred(one[0])}${one[1] === null ? "" : ` ± ${hundred(one[1])}`}`, make("br"), muted(`over ${plural(one[2], "task")}`)] : muted("not computable");
  }
  function shortNumber(value) { return value >= 100 ? whole(value) : value >= 10 ? fixed(value, 1) : fixed(value, 2); }

  // --- Tasks by agents.
  listing("matrix", [
    {name: "Task", lead: true, css: "name", key: alphabetical(tasks.name), cell: row => [make("b", {}, nameText(taskLabel(row))), ...warned(row)]},
    ...agentRows.map(agent => ({name: agentName(agent), number: true, down: true, key: row => cells[row][agent]?.success ? cells[row][agent].success[0] / cells[row][agent].success[1] : null, cell: row => matrixCell(row, agent)})),
  ]).show(taskRows);
  function warned(row) {
    const n = listAt(tasks.warnings, row).length;
    return n ? [make("br"), muted(`${plural(n, "warning")}, below`)] : [];
  }
  function matrixCell(row, agent) {
    const cell = cells[row][agent];
    if (!cell) return muted("not run");
    const head = cell.success ? `${whole(cell.success[0])} of ${whole(cell.success[1])}` : `${plural(cell.n, "trial")}`;
    const spokenOf = spoken(` by ${agentName(agent)} on ${taskLabel(row)}`);
    const parts = [cell.file ? make("a", {href: cell.file}, head, spokenOf) : head];
    parts.push(make("br"), cell.success ? muted(rateText(cell.success)) : muted("success not decided"));
    parts.push(make("br"), cell.improvement ? plusMinus(cell.improvement) : cell.normalised ? `normalised ${hundred(cell.normalised[0])}` : muted("no improvement known"));
    return [...parts, ...lines([...lost(cell), cell.above_but_unfinished ? `${whole(cell.above_but_unfinished)} above 10 % but unfinished` : "", cell.all_alike ? "all alike" : ""])];
  }

  // --- Bars.
  const SHOWN = [
    ...thresholds.map((threshold, at) => ({name: `More than ${percent(threshold)} % better at the end`, unit: "% of trials", plot: `final_improve_${percent(threshold)}`, rate: cell => cell.at?.[at]})),
    ...thresholds.map((threshold, at) => ({name: `More than ${percent(threshold)} % better at any step`, unit: "% of trials", plot: `improve_${percent(threshold)}`, rate: cell => cell.best_at?.[at]})),
    {name: "Mean improvement on the starter code", unit: "%", plot: "final_improve", mean: cell => cell.improvement, times: 100},
    {name: "Mean normalised score", unit: "× 100", mean: cell => cell.normalised, times: 100},
    {name: "Tokens a trial", unit: "tokens", plot: "total_tokens", mean: cell => cell.tokens, times: 1},
    {name: "Minutes a trial", unit: "minutes", plot: "total_time", mean: cell => cell.minutes, times: 1},
  ];
  const usual = thresholds.indexOf(DATA.threshold);
  const numberText = value => Math.abs(value) >= 1000 ? whole(value) : Math.abs(value) >= 100 ? fixed(value, 0) : fixed(value, 1);
  function barOf(measure, cell) {
    if (!cell) return null;
    if (measure.rate) {
      const rate = measure.rate(cell);
      return rate ? {value: 100 * rate[0] / rate[1], low: 100 * rate[2], high: 100 * rate[3], text: `${whole(rate[0])} of ${whole(rate[1])}`} : null;
    }
    const mean = measure.mean(cell);
    if (!mean) return null;
    const [value, error] = [measure.times * mean[0], mean[1] === null ? null : measure.times * mean[1]];
    return {value, low: error === null ? null : value - error, high: error === null ? null : value + error, text: `n = ${whole(mean[2])}`};
  }
  const barTable = listing("bar-list", [
    {name: "Task", lead: true, css: "name", key: one => one.task, cell: one => nameText(taskLabel(one.task))},
    {name: "Agent", css: "name", key: one => one.agent, cell: one => nameText(agentName(one.agent))},
    {name: "Value", number: true, down: true, key: one => one.bar ? one.bar.value : null, cell: one => one.bar ? numberText(one.bar.value) : muted("not computable")},
    {name: "Interval or error", number: true, cell: one => one.bar && one.bar.low !== null ? `[${numberText(one.bar.low)}, ${numberText(one.bar.high)}]` : muted("none")},
    {name: "Trials", number: true, cell: one => one.bar ? one.bar.text : muted("none")},
  ]);
  let redraw = () => {};
  function showBars() {
    const at = SHOWN.findIndex((_, place) => String(place) === state.get("show")), measure = SHOWN[at < 0 ? Math.max(0, usual) : at];
    const only = tasks.key.indexOf(state.get("on"));
    byId("show").value = String(SHOWN.indexOf(measure));
    byId("on").value = only < 0 ? "" : tasks.key[only];
    const rows = (only < 0 ? taskRows : [only]).flatMap(task => agentRows.filter(agent => cells[task][agent]).map(agent => ({task, agent, bar: barOf(measure, cells[task][agent])})));
    byId("bars-said").textContent = `${measure.name}, ${measure.unit}; lines: ${measure.rate ? "95 % intervals" : "standard errors"}. ${plural(rows.length, "agent on a task", "agents on tasks")}.`;
    byId("bars-file").hidden = !plots[measure.plot];
    if (plots[measure.plot]) byId("bars-file").replaceChildren(make("a", {href: plots[measure.plot]}, "Download as SVG"), ": all tasks and agents.");
    barTable.show(rows);
    redraw = () => drawBars(byId("bars"), rows, `${byId("bars-said").textContent} ${measure.name}.`);
    redraw();
  }
  function drawBars(box, rows, alternative) {
    const width = Math.max(280, box.clientWidth || 640), narrow = width < 480, left = narrow ? 110 : 210, right = 84, step = 22, title = 26;
    const found = rows.flatMap(({bar}) => bar ? [bar.value, bar.low ?? bar.value, bar.high ?? bar.value] : []);
    const low = Math.min(0, ...found), high = Math.max(0, ...found) || 1, letters = narrow ? 14 : 28;
    const px = value => left + (value - low) / (high - low) * (width - left - right);
    const shapes = [];
    let y = 4, task = -1;
    for (const row of rows) {
      if (row.task !== task) {
        task = row.task;
        shapes.push(drawn("text", {x: 2, y: y + 16, "font-weight": "600"}, shortName(taskLabel(task), narrow ? 34 : 70)));
        y += title;
      }
      shapes.push(drawn("text", {x: left - 8, y: y + 14, "text-anchor": "end", class: "quiet"}, shortName(agentName(row.agent), letters)));
      if (row.bar) {
        const {value, low: from, high: to} = row.bar, a = Math.min(px(0), px(value)), b = Math.max(px(0), px(value));
        const rect = drawn("rect", {x: a.toFixed(1), y: y + 2, width: Math.max(1, b - a).toFixed(1), height: step - 8, class: "bar-fill"});
        rect.append(drawn("title", {}, `${agentName(row.agent)} on ${taskLabel(task)}: ${numberText(value)}`));
        shapes.push(rect);
        if (from !== null) shapes.push(drawn("line", {x1: px(from).toFixed(1), x2: px(to).toFixed(1), y1: y + step / 2 - 2, y2: y + step / 2 - 2, class: "bar-reach"}));
        shapes.push(drawn("text", {x: width - right + 8, y: y + 14}, numberText(value)));
      } else shapes.push(drawn("text", {x: left + 4, y: y + 14, class: "quiet"}, "not computable"));
      y += step;
    }
    const svg = drawn("svg", {viewBox: `0 0 ${width} ${y + 8}`, role: "img", "aria-label": alternative});
    svg.append(drawn("line", {class: "axis-line", x1: px(0), x2: px(0), y1: 0, y2: y + 2}), ...shapes);
    box.replaceChildren(svg);
  }
  byId("show").append(...SHOWN.map(({name}, at) => make("option", {value: String(at)}, name)));
  byId("on").append(make("option", {value: ""}, "All tasks"), ...taskRows.map(row => make("option", {value: tasks.key[row]}, taskLabel(row))));
  byId("on").closest(".field").hidden = nT < 2;

  // --- Tokens.
  const spent = ranked.filter(row => agents.tokens[row]);
  byId("cost-part").hidden = spent.length < 2;
  const points = spent.map(row => ({x: agents.tokens[row][0], y: 100 * agents.success[row][1], low: 100 * agents.success[row][3], high: 100 * agents.success[row][4], published: false, name: agentName(row)}));
  byId("cost-said").textContent = `Successful trials in the mean over tasks, with 95 % intervals, against the tokens that a trial took, of ${plural(points.length, "agent")}. Higher and further left is better.`;
  if (plots.tradeoff) byId("cost-file").replaceChildren(make("a", {href: plots.tradeoff}, "Download as SVG"));
  byId("cost-file").hidden = !plots.tradeoff;
  const redrawCosts = () => { if (spent.length > 1) scatter(byId("costs"), points, {xName: "Tokens a trial", yName: "Successful, %", xTicks: ticksBetween, xText: whole, alternative: byId("cost-said").textContent, lines: false, names: innerWidth < 480 ? 6 : 30, letters: innerWidth < 480 ? 24 : 40}); };
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; redraw(); redrawCosts(); } });

  // --- Pairs.
  const told = row => row.p <= 0.05 && row.difference !== 0;
  const pairTable = listing("pairs", [
    {name: "Other agent", lead: true, css: "name", key: row => alphabetical(agents.name)(row.other), cell: row => agentCell(row.other)},
    {name: "More often than it, points", number: true, down: true, key: row => row.difference, cell: row => `${row.difference > 0 ? "+" : ""}${hundred(row.difference)}`},
    {name: "p, corrected", number: true, key: row => row.p, cell: row => row.p < 0.001 ? "< 0.001" : fixed(row.p, 3)},
    {name: "More than chance", key: row => row.p, cell: row => told(row) ? (row.difference > 0 ? "succeeds more often" : "succeeds less often") : "cannot be told apart"},
  ], {step: 15, sort: "1d"});
  byId("pairs-part").hidden = !pairs.length;
  byId("of").append(...ranked.map(row => make("option", {value: agents.key[row]}, agentName(row))));
  function showPairs() {
    if (!pairs.length) return;
    const chosenRow = ranked.find(row => agents.key[row] === state.get("of")) ?? ranked[0];
    byId("of").value = agents.key[chosenRow];
    const rows = pairs.filter(([first, second]) => first === chosenRow || second === chosenRow)
      .map(([first, second, difference, p]) => ({other: first === chosenRow ? second : first, difference: first === chosenRow ? difference : -difference, p}));
    const alike = rows.filter(row => !told(row)).length;
    byId("pairs-said").textContent = `${agentName(chosenRow)} ${alike ? `cannot be told apart from ${alike === rows.length ? (alike === 1 ? "the other" : `any of the ${whole(alike)} others`) : `${whole(alike)} of the ${whole(rows.length)} others`}` : `is told apart from ${rows.length === 1 ? "the other" : `all ${whole(rows.length)} others`}`}. `
      + `An exact test over ${plural(meanTasks, "task")}, p corrected by Holm over all ${plural(pairs.length, "pair")}, 5 %. That no difference is shown is no proof of none: a few trials show only large ones.`;
    pairTable.show(rows);
  }

  // --- What scores are held against.
  const score = value => value === null ? "none" : Number(value.toPrecision(4)).toLocaleString("en", {maximumSignificantDigits: 4});
  listing("tasks", [
    {name: "Task", lead: true, css: "name", key: alphabetical(tasks.name), cell: row => [make("b", {}, nameText(taskLabel(row))), make("br"), muted(tasks.key[row])]},
    {name: "Metric", cell: row => [metricName(textAt(tasks.metric, row)), make("br"), muted(`${textAt(tasks.direction, row)} is better`)]},
    {name: "Starter code", number: true, cell: row => [score(tasks.baseline[row]), make("br"), muted(baselineSource(row))]},
    {name: "Reference", number: true, cell: row => score(tasks.reference[row])},
    {name: "In the mean", css: "wide", cell: row => tasks.in_mean[row] ? "yes" : make("bdi", {}, `no: ${textAt(tasks.why_not_in_mean, row)}`)},
    {name: "Warnings and notes", css: "wide", cell: row => notesOf(row)},
  ]).show(taskRows);
  function baselineSource(row) {
    if (tasks.baseline[row] === null) return "not measured";
    if (textAt(tasks.baseline_source, row) === "guess") return "a guess's, see notes";
    if (!tasks.measured[row]) return "as stated, not measured";
    return `measured, ${plural(tasks.measured[row], "trial")}${tasks.spread[row] === null ? "" : `, SD ${score(tasks.spread[row])}`}`;
  }
  function notesOf(row) {
    const notes = [...listAt(tasks.warnings, row), textAt(tasks.baseline_note, row), textAt(tasks.success_by, row) === "normalised" ? "Success is by the normalised score, as the starter code scores about 0." : null,
      listAt(tasks.missing, row).length ? `Not run: ${listAt(tasks.missing, row).join(", ")}.` : null].filter(Boolean);
    return notes.length ? notes.flatMap((note, at) => [...(at ? [make("br")] : []), make("bdi", {}, note)]) : muted("none");
  }

  byId("said").textContent = `${plural(nA, "agent")} on ${plural(nT, "task")}.`;
  byId("note").textContent = meanTasks ? `The mean is unweighted over ${plural(meanTasks, "task")}; its interval is for these tasks and other trials. Rank: 1 plus the number of agents that succeed more often by more than chance. Bold and underlined: ${TIED}.${unknown.length ? ` How agents would do on other tasks is not known${othersKnown ? " of all" : ""}: ${unknown.join("; ")}.` : ""}` : "No task decides success, so there is no mean and no rank.";
  for (const id of ["show", "on", "of"]) byId(id).addEventListener("change", () => { keep(id, byId(id).value); update(); });
  for (const form of document.forms) form.addEventListener("submit", event => event.preventDefault());
  function update() { showBars(); showPairs(); }
  appliers.push(update);
  update();
  redrawCosts();
})();
