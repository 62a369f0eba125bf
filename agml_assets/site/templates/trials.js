// The trials of one agent on one task: what came of each, and step by step what it thought, did and was told.
(() => {
  const {trials} = DATA;
  const score = value => value === null ? "none" : Number(value.toPrecision(4)).toLocaleString("en", {maximumSignificantDigits: 4});
  const signed = value => `${value > 0 ? "+" : ""}${Math.abs(value) >= 10 ? whole(100 * value) : hundred(value)} %`;
  const minutes = seconds => seconds >= 60 ? `${fixed(seconds / 60, 1)} min` : `${fixed(seconds, seconds >= 10 ? 0 : 1)} s`;
  const metric = metricName(DATA.metric), STEP = 20;

  byId("name").replaceChildren(nameText(`${DATA.agent_name} on ${DATA.task_name}`));
  document.title = `${DATA.agent_name}, ${DATA.task_name}: AgML benchmarks`;
  byId("facts").textContent = [DATA.agent, DATA.task, DATA.model || wordsOf(DATA.kind), `${metric}, ${DATA.direction} is better`,
    DATA.baseline === null ? "starter code: no score" : `starter code ${score(DATA.baseline)} (${DATA.measured ? `measured, ${plural(DATA.measured, "trial")}` : "as stated"})`,
    DATA.reference === null ? "no reference score" : `reference ${score(DATA.reference)}`].join(" · ");
  const successes = trials.filter(one => one.success).length, scored = trials.filter(one => one.raw !== null).length;
  const [low, high] = wilson(successes, trials.length);
  byId("lead").textContent = DATA.success_by === null ? `${plural(trials.length, "trial")}, ${whole(scored)} with a score. Nothing decides success: ${DATA.undecidable}.`
    : `${whole(successes)} of ${plural(trials.length, "trial")} successful: ${fixed(100 * successes / trials.length, 0)} % [${fixed(100 * low, 0)}, ${fixed(100 * high, 0)}]. ${whole(scored)} with a score.`;
  const warnings = [...DATA.warnings, ...(DATA.note ? [DATA.note] : [])];
  byId("warnings").hidden = !warnings.length;
  byId("warnings").append(...warnings.map(text => make("li", {}, make("bdi", {}, text))));
  byId("problem").textContent = DATA.problem || "Not stored.";

  // --- All trials.
  const table = listing("trials", [
    {name: "Trial", lead: true, key: row => trials[row].seed, cell: row => make("a", {href: `#seed=${trials[row].seed}`}, `Seed ${trials[row].seed}`)},
    {name: "Ended", css: "wide", cell: row => [trials[row].ending, ...because(trials[row])]},
    {name: `Score, ${metric}`, number: true, key: row => trials[row].raw, cell: row => trials[row].raw === null ? muted("none") : score(trials[row].raw)},
    {name: "Improvement", number: true, key: row => trials[row].improvement, cell: row => trials[row].improvement === null ? muted("not computable") : signed(trials[row].improvement)},
    {name: "Normalised × 100", number: true, key: row => trials[row].normalised, cell: row => trials[row].normalised === null ? muted("not computable") : hundred(trials[row].normalised)},
    {name: "Successful", cell: row => successText(trials[row])},
    {name: "Best at any step", number: true, cell: row => bestText(trials[row].best)},
    {name: "Steps", number: true, key: row => trials[row].steps, cell: row => whole(trials[row].steps)},
    {name: "Tokens", number: true, key: row => trials[row].tokens, cell: row => whole(trials[row].tokens)},
    {name: "Minutes", number: true, key: row => trials[row].seconds, cell: row => fixed(trials[row].seconds / 60, 1)},
    {name: "Errors", css: "wide", cell: row => trials[row].errors.length ? trials[row].errors.map(errorText).join("; ") : muted("none")},
  ], {sort: "0a"});
  table.show(trials.map((_, row) => row));
  function because(one) { return one.raw === null && one.reason ? [make("br"), make("bdi", {class: "how"}, one.reason)] : []; }
  function successText(one) {
    if (one.success === null) return muted("not decided");
    return one.success ? "yes" : one.score_above ? ["no", make("br"), muted("its score is, but it did not finish")] : "no";
  }
  function bestText([value, step]) { return value === null ? muted("none") : [score(value), make("br"), muted(step === null ? "at the end" : `step ${step + 1}`)]; }
  function errorText([words, ended, steps]) { return `${words}${ended ? ", which ended it" : ""}${steps ? `, in ${plural(steps, "observation")}` : ""}`; }

  // --- One trial.
  let chosenTrial = null, visible = STEP, redraw = () => {};
  const scoreTable = listing("score-list", [
    {name: "After step", number: true, lead: true, key: one => one[0], cell: one => whole(one[0] + 1)},
    {name: `Score, ${metric}`, number: true, key: one => one[1], cell: one => score(one[1])},
  ]);
  byId("seed").append(...trials.map(one => make("option", {value: String(one.seed)}, `Seed ${one.seed}`)));
  byId("seed").closest(".field").hidden = trials.length < 2;
  byId("seed").addEventListener("change", () => { keep("seed", byId("seed").value); update(); });
  function showTrial(one) {
    byId("seed").value = String(one.seed);
    byId("one-said").textContent = [`Seed ${one.seed} ${one.ending === "submitted" ? "submitted" : one.ending} after ${plural(one.steps, "step")} and ${minutes(one.seconds)}`,
      one.raw === null ? `without a score${one.reason ? `: ${one.reason}` : ""}` : `with ${score(one.raw)}`,
      one.started ? `started ${one.started}` : null, one.models.length ? `tokens: ${one.models.map(([model, count]) => `${model} ${whole(count)}`).join(", ")}` : null].filter(Boolean).join("; ") + ".";
    byId("error-part").hidden = !one.error;
    byId("error").textContent = one.error;
    byId("scores-part").hidden = byId("score-numbers").hidden = !one.scores.length;
    byId("scores-said").textContent = one.scores.length ? `Score of the submission as it stood after ${one.scores.length === 1 ? "a step" : `each of ${plural(one.scores.length, "step")}`}, ${DATA.direction} is better. Seen by nobody during the trial.` : "";
    scoreTable.show(one.scores);
    redraw = () => { if (one.scores.length) drawScores(byId("scores"), one); };
    redraw();
    showSteps(one);
  }
  function showSteps(one) {
    const shownSteps = one.trace.slice(0, visible), left = one.trace.length - shownSteps.length;
    byId("steps").replaceChildren(...shownSteps.flatMap((step, at) => [...gap(one, at), stepItem(step)]));
    byId("steps-more").hidden = left <= 0;
    byId("steps-more").textContent = moreText(left, 2 * visible);
  }
  function gap(one, at) {
    return at && one.trace[at].step > one.trace[at - 1].step + 1 ? [make("li", {class: "how"}, `${plural(one.trace_left_out, "step is", "steps are")} left out here.`)] : [];
  }
  function stepItem(step) {
    const facts = [minutes(step.seconds), step.score === null ? null : `score ${score(step.score)}`, plural(step.files, "file")].filter(Boolean).join(" · ");
    const item = make("li", {}, make("h3", {}, `${step.step + 1}. `, make("bdi", {}, wordsOf(step.action)), " ", muted(facts)));
    if (step.thought) item.append(make("p", {class: "written"}, step.thought));
    for (const [name, text] of [["Did", step.arguments], ["Was told", step.observation]]) {
      if (text) item.append(make("div", {class: "pre"}, make("p", {class: "caption"}, name), make("pre", {tabindex: "0", "aria-label": `${name}, step ${step.step + 1}`, role: "region"}, text)));
    }
    return item;
  }
  byId("steps-more").addEventListener("click", () => { visible += 2 * visible; showSteps(chosenTrial); });
  function drawScores(box, one) {
    const width = Math.max(280, box.clientWidth || 640), height = 260, top = 24, bottom = 44;
    const marks = [["starter", DATA.baseline], ["reference", DATA.reference]].filter(([, value]) => value !== null);
    const values = [...one.scores.map(([, value]) => value), ...marks.map(([, value]) => value)];
    const low = Math.min(...values), high = Math.max(...values), room = 0.08 * (high - low) || 0.05 * Math.abs(high) || 1;
    const [y0, y1] = [low - room, high + room], last = Math.max(1, one.steps - 1), ticks = ticksBetween(y0, y1);
    const left = Math.max(44, 14 + 7.2 * Math.max(...ticks.map(tick => score(tick).length))), right = 76;
    const px = step => left + step / last * (width - left - right), py = value => height - bottom - (value - y0) / (y1 - y0) * (height - top - bottom);
    const svg = drawn("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${byId("scores-said").textContent} From ${score(one.scores[0][1])} to ${score(one.scores[one.scores.length - 1][1])}.`});
    svg.append(drawn("line", {class: "axis-line", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom}), drawn("line", {class: "axis-line", x1: left, x2: left, y1: top, y2: height - bottom}));
    for (const tick of ticks) svg.append(drawn("text", {class: "quiet", x: left - 7, y: py(tick) + 4, "text-anchor": "end"}, score(tick)));
    for (const step of [0, last]) svg.append(drawn("text", {class: "quiet", x: px(step), y: height - bottom + 18, "text-anchor": "middle"}, whole(step + 1)));
    svg.append(drawn("text", {x: width - right, y: height - 6, "text-anchor": "end"}, "Step"), drawn("text", {x: 2, y: 14}, metric));
    for (const [name, value] of marks) {
      svg.append(drawn("line", {class: "fit published", x1: left, x2: width - right, y1: py(value), y2: py(value)}));
      svg.append(drawn("text", {class: "quiet", x: width - right + 6, y: py(value) + 4}, name));
    }
    svg.append(drawn("path", {class: "course", d: one.scores.map(([step, value], at) => `${at ? "L" : "M"}${px(step).toFixed(1)} ${py(value).toFixed(1)}`).join("")}));
    for (const [step, value] of one.scores) {
      const dot = drawn("circle", {cx: px(step).toFixed(1), cy: py(value).toFixed(1), r: 4, class: "own"});
      dot.append(drawn("title", {}, `step ${step + 1}: ${score(value)}`));
      svg.append(dot);
    }
    box.replaceChildren(svg);
  }
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; redraw(); } });
  function update() {
    const next = trials.find(one => String(one.seed) === state.get("seed")) || trials[0];
    if (next !== chosenTrial) visible = STEP;
    chosenTrial = next;
    showTrial(next);
  }
  for (const form of document.forms) form.addEventListener("submit", event => event.preventDefault());
  appliers.push(update);
  update();
})();
