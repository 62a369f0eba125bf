// One dataset: what it is, how good its data are, and a board for each task, way of training and configuration.
(() => {
  const all = DATA.catalogue, runs = DATA.runs;
  const places = new Map(all.name.map((name, row) => [name, row]));
  const runsOf = new Map();
  runs.dataset.at.forEach((set, run) => {
    if (!runsOf.has(set)) runsOf.set(set, []);
    runsOf.get(set).push(run);
  });
  const setOf = new Map(runs.dataset.texts.map((name, set) => [name, set]));

  // --- Notes are long: they are unpacked when the first is opened.
  let unpacked = null;
  async function notes() {
    const bytes = Uint8Array.from(atob(runs.notes), character => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  }
  function noteOf(place) {
    const text = make("p", {class: "written"}, "Unpacking");
    const details = make("details", {}, make("summary", {}, "Notes"), text);
    details.addEventListener("toggle", () => {
      if (!details.open) return;
      unpacked = unpacked || notes();
      unpacked.then(found => { text.textContent = found[place]; },
        () => { text.textContent = "This browser cannot unpack the notes; they are in run_records.json."; });
    });
    return details;
  }

  // --- One dataset.
  function showFacts(name, row) {
    byId("name").replaceChildren(nameText(name));
    document.title = `${name}: AgML benchmarks`;
    const crops = listAt(all.crops, row).map(wordsOf), parent = textAt(all.parent, row);
    const facts = [
      textAt(all.task, row) ? taskName(textAt(all.task, row)) : "task not stated",
      textAt(all.ag, row) && wordsOf(textAt(all.ag, row)),
      crops.length ? crops.join(", ") : "crops not stated",
      all.images[row] === null ? "number of images not stated" : plural(all.images[row], "image"),
      textAt(all.place, row), textAt(all.license, row) ? `licence ${textAt(all.license, row)}` : "licence not stated",
      parent && `part of ${parent}`, textAt(all.source, row) === "not in the catalogue" && "not in the catalogue",
    ];
    byId("facts").textContent = facts.filter(Boolean).join(" · ");
    const links = [["card", "Dataset card: what is wrong, what to fix", false], ["hub", "On Hugging Face", true], ["more", "Documentation", true]]
      .filter(([column]) => textAt(all[column], row))
      .map(([column, text, away]) => make("a", {href: textAt(all[column], row), rel: away ? "noreferrer" : null}, text));
    byId("links").replaceChildren(...links.flatMap((one, place) => place ? [" · ", one] : [one]));
    byId("links").hidden = !links.length;
  }
  function showQuality(row) {
    const published = all.published[row], calibrated = all.calibrated[row];
    if (!Array.isArray(published) && published === calibrated) {
      byId("quality").replaceChildren(make("p", {class: "absent"}, `Not computable: ${all.reasons[published]}`));
      return;
    }
    const noInterval = value => Array.isArray(value) && value.length === 1 ? " The report has no interval." : "";
    const score = (name, value, said) => make("p", {}, make("span", {class: "big"}, ...[Array.isArray(value) ? scoreText(all, value) : "not computable"].flat()),
      make("span", {}, ` ${name}. ${Array.isArray(value) ? said + noInterval(value) : all.reasons[value]}`));
    const missing = all.axes[row].filter(axis => axis === null).length;
    const axes = all.axis_names.map((name, place) => {
      const value = all.axes[row][place];
      const item = make("li", {}, make("div", {class: "line"}, make("span", {}, name[0].toUpperCase() + name.slice(1)),
        make("span", {class: "value"}, value === null ? "not computable" : fixed(value, 1))));
      if (value !== null) {
        const fill = make("span", {class: "fill"});
        fill.style.width = `${10 * value}%`;
        item.append(make("div", {class: "bar", role: "img", "aria-label": `${name}: ${fixed(value, 1)} of 10`}, fill));
      }
      return item;
    });
    byId("quality").replaceChildren(make("div", {class: "top"},
      make("div", {class: "score"},
        score("agml-2026", published, `Published formula, of 10${missing ? `; ${plural(missing, "axis", "axes")} not measured` : ""}.`),
        score("calibrated-1", calibrated, `Anchored at chance and at ideal, of 10${Array.isArray(calibrated) && calibrated[0] === null ? "; a range, as an axis is not measured" : ""}.`),
        make("p", {class: "how"}, `Measured ${textAt(all.date, row) || "on a day that is not stated"}.`)),
      make("div", {}, make("h3", {}, "Axes of agml-2026, 0 to 10"), make("ul", {class: "axes"}, ...axes))));
  }

  function showBoards(name) {
    const mine = runsOf.get(setOf.get(name)) || [];
    const groups = new Map();
    for (const run of mine) {
      const id = `${runs.task.at[run]} ${runs.how.at[run]} ${runs.config.at[run]}`;
      if (!groups.has(id)) groups.set(id, []);
      groups.get(id).push(run);
    }
    const boards = [...groups.values()].map((group, place) => boardOf(group, place));
    const refused = refusedOf(name);
    byId("boards").replaceChildren(...boards.map(board => board.element), ...refused,
      ...(boards.length || refused.length ? [] : [make("p", {class: "absent"}, "Not computable: no model was run on it.")]));
    boards.forEach(board => board.start());
  }
  // Whether runs saw the same images, as far as they say what they saw.
  function sameImages(group) {
    const splits = new Set(group.map(run => runs.split.at[run])), samples = new Set(group.map(run => runs.samples[run]));
    const unknown = splits.delete(-1) | samples.delete(null);
    if (splits.size > 1 || samples.size > 1) return "Not all were run on the same images: compare with care.";
    return unknown ? "Not all say split and number of images: whether they were run on the same is not known." : "All were run on the same split.";
  }
  function boardOf(group, place) {
    const [first] = group, id = `board-${place}`;
    const config = textAt(runs.config, first);
    const title = `${taskName(textAt(runs.task, first))}, ${textAt(runs.how, first)}${config === "raw" ? "" : `, ${config}`}`;
    const metrics = [...new Set(group.flatMap(run => runs.scores[run].map(score => score[0])))];
    const main = runs.scores[first][0][0];
    const scoreOf = (run, metric) => runs.scores[run].find(score => score[0] === metric);
    const columns = [
      {name: "Rank", number: true, key: run => scoreOf(run, main)?.[2] ?? null, cell: run => scoreOf(run, main) ? [`${scoreOf(run, main)[2]} `, muted(`of ${scoreOf(run, main)[3]}`)] : muted(`no ${runs.metrics[main]}`)},
      {name: "Model", lead: true, key: alphabetical(runs.model), cell: run => nameText(textAt(runs.model, run))},
      ...metrics.map(metric => ({name: runs.metrics[metric], number: true, down: true, key: run => scoreOf(run, metric)?.[1] ?? null,
        cell: run => scoreCell(run, scoreOf(run, metric), metric === main)})),
      {name: "Images", number: true, down: true, key: run => runs.samples[run], cell: run => runs.samples[run] === null ? "not stated" : whole(runs.samples[run])},
      {name: "Skipped", number: true, down: true, key: run => runs.skipped[run], cell: run => skippedCell(run)},
      {name: "Time, s/image", number: true, key: run => runs.seconds[run], cell: run => duration(runs.seconds[run])},
      {name: "How it was run", css: "wide", cell: run => howCell(run)},
    ];
    const table = make("table", {class: "listed", id, role: "table", "aria-label": title}, make("thead", {role: "rowgroup"}), make("tbody", {role: "rowgroup"}));
    const element = make("div", {class: "board"}, make("h3", {}, title[0].toUpperCase() + title.slice(1)),
      make("p", {class: "note"}, `${plural(group.length, "model")}, ranked by ${runs.metrics[main]}; (#) is the rank by each metric. ${group.length > 1 ? sameImages(group) : "A model alone has no rank to speak of."}`),
      make("div", {class: "listing"}, table, make("p", {class: "none", id: `${id}-none`, hidden: true}), make("p", {class: "more"}, make("button", {type: "button", id: `${id}-more`, hidden: true}))));
    return {element, start() { listing(id, columns, {sort: "0a"}).show(group); }};
  }
  function scoreCell(run, score, isMain) {
    if (!score) return muted("not reported");
    const [, value, rank, of, , low, high] = score;
    const interval = low !== undefined ? `[${fixed(low, 3)}, ${fixed(high, 3)}]` : isMain ? "no interval" : "";
    return [`${fixed(value, 3)} `, muted(of > 1 ? `(#${rank})` : ""), ...(interval ? [make("br"), low === undefined ? muted(interval) : interval] : [])];
  }
  function skippedCell(run) {
    if (runs.skipped[run] === null) return "not stated";
    const share = runs.samples[run] ? ` ${fixed(100 * runs.skipped[run] / runs.samples[run], 1)} %` : "";
    return [whole(runs.skipped[run]), muted(share)];
  }
  function howCell(run) {
    const [, , rank, of, tied] = runs.scores[run][0];
    const said = [
      textAt(runs.platform, run) || "platform not stated",
      textAt(runs.date, run) || "date not stated",
      textAt(runs.split, run) ? `split ${textAt(runs.split, run)}` : "split not stated",
      runs.optimized[run] ? "optimised" : null,
      runs.train_samples[run] === null ? null : `trained on ${plural(runs.train_samples[run], "image")}`,
      runs.train_seconds[run] === null ? null : `${duration(runs.train_seconds[run])} s of training an image`,
      runs.seed[run] === null ? null : `seed ${runs.seed[run]}`,
      tied ? `tied with ${plural(tied, "other")}` : null,
      of > 1 && (of > rank + tied || !tied) ? `better than ${whole(of - rank - tied)} of ${plural(of - 1, "other")}` : null,
      runs.of_runs[run] > 1 ? `best of ${runs.of_runs[run]} runs, the lowest ${runs.lowest[run] === null ? "not stated" : fixed(runs.lowest[run], 3)}` : null,
    ];
    const parts = [said.filter(Boolean).join(" · ")];
    if (textAt(runs.no_interval, run)) parts.push(make("div", {class: "how"}, `No interval: ${textAt(runs.no_interval, run)}`));
    if (textAt(runs.warnings, run)) parts.push(make("div", {class: "how"}, `Warning: ${textAt(runs.warnings, run)}.`));
    if (runs.note[run] >= 0) parts.push(noteOf(runs.note[run]));
    return parts;
  }
  function refusedOf(name) {
    const file = `${name}.json`, refused = DATA.refused;
    const mine = refused.file.at.map((_, row) => row).filter(row => textAt(refused.file, row) === file);
    if (!mine.length) return [];
    return [make("h3", {}, "Refused"), make("ul", {}, ...mine.map(row =>
      make("li", {}, `${refused.record[row] === null ? "The file" : `Record ${refused.record[row]}`}: ${textAt(refused.why, row)}`)))];
  }

  // --- Which dataset.
  const searchable = all.name.map((name, row) => [name, textAt(all.task, row), wordsOf(textAt(all.ag, row) || ""), listAt(all.crops, row).join(" ")].join("\n").toLowerCase());
  const table = listing("list", [
    {name: "Dataset", lead: true, css: "name", key: row => row, cell: row => datasetLink(all.name[row])},
    {name: "Task", key: alphabetical(all.ag), cell: row => textAt(all.ag, row) ? wordsOf(textAt(all.ag, row)) : taskName(textAt(all.task, row))},
    {name: "Runs", number: true, down: true, key: row => all.runs[row], cell: row => whole(all.runs[row])},
    {name: "agml-2026", number: true, down: true, key: row => scoreKey(all.published[row]), cell: row => scoreText(all, all.published[row], all.axes[row])},
  ], {sort: "2d"});
  function choose() {
    const matches = searcher(state.get("q"));
    const found = all.name.map((_, row) => row).filter(row => matches(searchable[row]));
    table.show(found);
    byId("said").textContent = `${plural(found.length, "dataset")}.`;
  }
  function update() {
    const name = state.get("dataset");
    const row = places.get(name);
    byId("one").hidden = row === undefined;
    byId("choose").hidden = row !== undefined;
    if (row === undefined) {
      byId("unknown").textContent = name ? `There is no dataset called ${name}.` : "Datasets with most runs come first.";
      choose();
      return;
    }
    showFacts(name, row);
    showQuality(row);
    showBoards(name);
  }
  bindFields(choose);
  appliers.push(update);
  update();
})();
