// Compressed embeddings of a phase: what each keeps, against its bytes, and what of the order is sure.
(() => {
  const {phases, reasons} = DATA;
  if (byId("left")) {
    const {submission, why} = DATA.left_out;
    listing("left", [
      {name: "Submission", lead: true, css: "name", key: alphabetical(submission), cell: row => nameText(textAt(submission, row))},
      {name: "Why", css: "wide", key: alphabetical(why), cell: row => make("bdi", {}, textAt(why, row))},
    ], {step: 10, sort: "0a"}).show(submission.at.map((_, row) => row));
  }
  if (!byId("standings")) return;
  const phase = () => phases.find(one => one.phase === state.get("phase")) || phases[0];
  const submissionCell = (board, row) => [submissionLink(board.submissions, row), make("br"), muted(board.submissions.key[row])];
  const taskName = name => make("bdi", {}, wordsOf(name));

  // --- The submissions.
  const standings = listing("standings", [], {sort: "1a"});
  function standingColumns(board) {
    const {submissions, tasks, scores, floors} = board, {key} = submissions;
    const sharing = rank => submissions.rank.filter(other => other === rank).length - 1;
    return [
      {name: "Submission", lead: true, css: "name", key: alphabetical(submissions.name), cell: row => submissionCell(board, row)},
      // Of those that share a rank, the one that keeps more comes first.
      {name: "Rank", number: true, key: row => submissions.rank[row] + row / (key.length + 1), cell: row => rankCell(submissions.rank[row], key.length, sharing(submissions.rank[row]))},
      {name: "Mean kept × 100 and 95 % interval", number: true, down: true, key: row => board.means[row][1], cell: row => scoreWithEnds(board.means[row], reasons)},
      {name: "On a scale", css: "track", cell: row => trackCell({one: board.means[row], from: board.scale[0], to: board.scale[1]})},
      {name: "Bytes per embedding", number: true, key: row => submissions.bytes[row], cell: row => [bytesText(submissions.bytes[row]), ...smaller(submissions, row)]},
      {name: "Dimensions", number: true, key: row => submissions.dimensions[row], cell: row => whole(submissions.dimensions[row])},
      ...tasks.name.map((name, task) => ({name: `${wordsOf(name)}, ${metricName(textAt(tasks.metric, task))} × 100`, number: true, down: true, key: row => scores[task][row]?.[1] ?? null,
        cell: row => taskCell(scores[task][row], floors[task][row])})),
    ];
  }
  function smaller(submissions, row) {
    const times = submissions.uncompressed[row] / submissions.bytes[row];
    return Number.isFinite(times) && times > 1 ? [make("br"), muted(`${times < 10 ? Number(fixed(times, 1)) : whole(times)} times smaller`)] : [];
  }
  // The floor stands beside a score that is not clearly above it.
  function taskCell(one, floor) {
    if (!one) return muted("not scored");
    const near = floor !== null && (!hasEnds(one) || one[3] <= floor);
    const ends = hasEnds(one) ? [...valueOf(one), make("br"), muted(endsText(one))] : scoreWithEnds(one, reasons);
    return [...ends, ...(near ? [make("br"), muted(`floor ${hundred(floor)}`)] : [])];
  }

  // --- The tasks.
  const taskTable = listing("tasks", []);
  const taskColumns = ({tasks}) => [
    {name: "Task", lead: true, cell: row => taskName(tasks.name[row])},
    {name: "Predicted", cell: row => textAt(tasks.kind, row) === "regression" ? "numbers" : "classes"},
    {name: "Metric", cell: row => metricName(textAt(tasks.metric, row))},
    {name: "Samples", number: true, cell: row => whole(tasks.n[row])},
    {name: "Independent", number: true, cell: row => whole(tasks.units[row])},
    {name: "Reference × 100", number: true, cell: row => hundred(tasks.reference[row])},
    {name: "Weight in the mean", number: true, cell: row => tasks.weight[row] === null ? "none" : `${fixed(100 * tasks.weight[row], 1)} %`},
    {name: "Not scored on it", css: "wide", cell: row => listAt(tasks.missing, row).join(", ") || "none"},
  ];

  // --- Scores against bytes.
  const sizeTable = listing("size-list", [], {sort: "2d"});
  let redraw = () => {};
  function showSizes(board) {
    const {submissions, tasks} = board, field = byId("on");
    const offered = [["", "Mean kept"], ...tasks.name.map(name => [name, wordsOf(name)])];
    const task = tasks.name.indexOf(state.get("on"));
    field.replaceChildren(...offered.map(([value, name]) => make("option", {value}, name)));
    field.value = task < 0 ? "" : tasks.name[task];
    const name = task < 0 ? "Mean kept" : `${metricName(textAt(tasks.metric, task))} on ${wordsOf(tasks.name[task])}`;
    const all = (task < 0 ? board.means : board.scores[task]).filter(Boolean);
    const start = sharedStart(all.map(one => textAt(submissions.name, one[0])));
    const points = all.filter(one => submissions.bytes[one[0]] > 0).map(one => ({row: one[0], one, x: Math.log10(submissions.bytes[one[0]]), y: 100 * one[1], published: false,
      low: hasEnds(one) ? 100 * one[3] : null, high: hasEnds(one) ? 100 * one[4] : null, name: textAt(submissions.name, one[0]).slice(start)}));
    byId("size-said").textContent = `${name} × 100 of ${plural(points.length, "submission")} against the bytes of one embedding, as a logarithm, with 95 % intervals. Higher and further left is better.`;
    sizeTable.show(all, [
      {name: "Submission", lead: true, css: "name", key: one => alphabetical(submissions.name)(one[0]), cell: one => submissionCell(board, one[0])},
      {name: "Bytes per embedding", number: true, key: one => submissions.bytes[one[0]], cell: one => bytesText(submissions.bytes[one[0]])},
      {name: `${name} × 100 and 95 % interval`, number: true, down: true, key: one => one[1], cell: one => scoreWithEnds(one, reasons)},
    ]);
    byId("size-file").hidden = !board.plot;
    if (board.plot) byId("size-file").replaceChildren(make("a", {href: board.plot}, "Download as SVG"), ": the mean kept, of all submissions of the phase.");
    redraw = () => scatter(byId("sizes"), points, {xName: "Bytes per embedding, log scale", yName: `${name} × 100`, xTicks: powersBetween, xText: tick => bytesText(10 ** tick),
      alternative: byId("size-said").textContent, lines: false, least: 0.35, names: innerWidth < 480 ? 6 : 40, letters: innerWidth < 480 ? 24 : 40});
    redraw();
  }
  // Names of a phase often begin alike; beside dots only what tells them apart is written.
  function sharedStart(names) {
    if (names.length < 2) return 0;
    let length = 0;
    while (names.every(name => length < name.length && name[length] === names[0][length])) length += 1;
    return names[0].slice(0, length).lastIndexOf(" ") + 1;
  }
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; redraw(); } });

  // --- Pairs.
  const ALPHA = 0.05;
  const pairTable = listing("pairs", [], {step: 15, sort: "1d"});
  function showPairs(board) {
    const {submissions, pairs} = board, {key} = submissions, field = byId("of");
    byId("pairs-part").hidden = key.length < 2;
    if (key.length < 2) return;
    field.replaceChildren(...key.map((value, row) => make("option", {value}, `${textAt(submissions.name, row)}${textAt(submissions.name, row) === value ? "" : ` (${value})`}`)));
    const chosenRow = Math.max(0, key.indexOf(state.get("of")));
    field.value = key[chosenRow];
    const rows = pairs.filter(([first, second]) => first === chosenRow || second === chosenRow)
      .map(([first, second, difference, p]) => ({other: first === chosenRow ? second : first, difference: first === chosenRow ? difference : -difference, p}));
    const alike = rows.filter(row => !told(row));
    const names = alike.slice(0, 6).map(row => textAt(submissions.name, row.other)), more = alike.length - names.length;
    byId("pairs-said").textContent = `${textAt(submissions.name, chosenRow)} ${alike.length ? `cannot be told apart from ${alike.length === rows.length ? `any of the ${plural(rows.length, "other")}` : `${alike.length} of the ${plural(rows.length, "other")}: ${names.join("; ")}${more ? `; and ${more} more` : ""}`}`
      : `is told apart from ${rows.length === 1 ? "the other" : `all ${rows.length} others`}`}. Same samples and folds, mean kept over all tasks, p corrected by Holm over all ${plural(pairs.length, "pair")} of the phase, 5 %. That no difference is shown is no proof of none.`;
    pairTable.show(rows, [
      {name: "Other submission", lead: true, css: "name", key: row => alphabetical(submissions.name)(row.other), cell: row => submissionCell(board, row.other)},
      {name: "Keeps more than it, × 100", number: true, down: true, key: row => row.difference, cell: row => `${row.difference > 0 ? "+" : ""}${hundred(row.difference)}`},
      {name: "p, corrected", number: true, key: row => row.p, cell: row => row.p < 0.001 ? "< 0.001" : fixed(row.p, 3)},
      {name: "More than chance", key: row => row.p, cell: row => told(row) ? (row.difference > 0 ? "keeps more" : "keeps less") : "cannot be told apart"},
    ]);
  }
  const told = row => row.p <= ALPHA && row.difference !== 0;

  // --- Other choices.
  const otherTable = listing("other", []);
  function showOther(board) {
    byId("other-part").hidden = !board.sensitivity.length;
    const moved = board.sensitivity.filter(one => !one.same).length, n = board.sensitivity.length;
    byId("other-said").textContent = `${moved ? `Under ${moved} of ${plural(n, "other choice")} another submission is best` : `The best is the same under ${n === 1 ? "the other choice" : `all ${n} other choices`}`}. Kendall's tau is 1 where the order stays as it is, 0 where nothing of it is left, -1 where it is reversed.`;
    otherTable.show(board.sensitivity, [
      {name: "Choice", lead: true, css: "name", cell: one => make("bdi", {}, wordsOf(one.choice))},
      {name: "Kendall's tau", number: true, key: one => one.tau, cell: one => one.tau === null ? "not computable: all alike" : fixed(one.tau, 2)},
      {name: "Best", css: "wide", cell: one => [one.same ? "the same" : "another", ": ", submissionLink(board.submissions, one.best)]},
    ]);
  }

  // --- All together.
  function update() {
    const board = phase(), {submissions, tasks} = board, n = submissions.key.length;
    byId("phase").value = board.phase;
    if (n) board.scale = scaleOf(board.means);
    const incomplete = board.incomplete.submission.at.map((_, row) => `${textAt(board.incomplete.submission, row)} lacks ${listAt(board.incomplete.tasks, row).map(wordsOf).join(", ")}`);
    byId("said").textContent = `${plural(n, "submission")} on ${plural(tasks.name.length, "task")}${incomplete.length ? `; ${plural(incomplete.length, "submission")} without a mean` : ""}.`;
    byId("note").replaceChildren(`Kept: the score between what the labels alone allow (0) and everything (100); the mean is ${new Set(tasks.weight).size > 1 ? "weighted" : "unweighted"} over ${plural(tasks.name.length, "task")}. `
      + `Rank: 1 plus the number of submissions that are better by more than chance. Bold and underlined: ${TIED}. `
      + "A floor, the score with labels dealt anew, stands beside scores that are not clearly above it."
      + (incomplete.length ? ` A mean over other tasks is another figure: ${incomplete.join("; ")}.` : ""));
    standings.show(submissions.key.map((_, row) => row), standingColumns(board));
    taskTable.show(tasks.name.map((_, row) => row), taskColumns(board));
    showSizes(board);
    showPairs(board);
    showOther(board);
  }
  byId("phase").append(...phases.map(one => make("option", {value: one.phase}, `${wordsOf(one.phase)} (${one.submissions.key.length})`)));
  byId("phase").closest("form").hidden = phases.length < 2;
  byId("phase").addEventListener("change", () => {
    ["on", "of", "standings.sort"].forEach(key => keep(key, ""));  // what they name is of the phase before
    keep("phase", byId("phase").value);
    update();
  });
  for (const id of ["on", "of"]) byId(id).addEventListener("change", () => { keep(id, byId(id).value); update(); });
  for (const form of document.forms) form.addEventListener("submit", event => event.preventDefault());
  appliers.push(update);
  update();
})();
