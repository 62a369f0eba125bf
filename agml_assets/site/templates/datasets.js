// The catalogue: datasets that pass the filters, with their scores, runs and cards.
(() => {
  const all = DATA.catalogue, n = all.name.length;
  const searchable = all.name.map((name, row) => [name, textAt(all.task, row), textAt(all.ag, row), wordsOf(textAt(all.ag, row) || ""),
    textAt(all.place, row), textAt(all.license, row), listAt(all.crops, row).join(" ")].join("\n").toLowerCase());
  const isPart = row => all.parent.at[row] >= 0;
  const measured = row => Array.isArray(all.published[row]);
  const kinds = {quality: measured, runs: row => all.runs[row] > 0, card: row => all.card.at[row] >= 0};

  const table = listing("list", [
    {name: "Dataset", lead: true, css: "name", key: row => row, cell: row => datasetLink(all.name[row])},
    {name: "Task", key: alphabetical(all.ag), cell: row => textAt(all.ag, row) ? wordsOf(textAt(all.ag, row)) : taskName(textAt(all.task, row))},
    {name: "Crops", css: "crops", cell: row => crops(row)},
    {name: "Images", number: true, down: true, key: row => all.images[row], cell: row => all.images[row] === null ? "not stated" : whole(all.images[row])},
    {name: "agml-2026", number: true, down: true, key: row => scoreKey(all.published[row]), cell: row => scoreText(all, all.published[row], all.axes[row])},
    {name: "calibrated-1", number: true, down: true, key: row => scoreKey(all.calibrated[row]), cell: row => scoreText(all, all.calibrated[row])},
    {name: "Runs", number: true, down: true, key: row => all.runs[row], cell: row => whole(all.runs[row])},
    {name: "Card", cell: row => all.card.at[row] < 0 ? muted("none yet") : make("a", {href: textAt(all.card, row), "aria-label": `Card of ${all.name[row]}`}, "open")},
  ], {sort: "0a"});
  function crops(row) {
    const names = listAt(all.crops, row).map(wordsOf);
    if (!names.length) return muted("not stated");
    return names.length <= 4 ? names.join(", ") : [`${names.slice(0, 3).join(", ")} `, muted(`and ${names.length - 3} more`)];
  }

  function update() {
    const task = chosen("task", all.task), crop = chosen("crop", all.crops), ag = chosen("ag", all.ag);
    const only = Object.hasOwn(kinds, state.get("only") || "") ? kinds[state.get("only")] : () => true;
    const matches = searcher(state.get("q"));
    const found = [], parts = [];
    for (let row = 0; row < n; row++) {
      if ((task === null || all.task.at[row] === task) && (ag === null || all.ag.at[row] === ag)
        && (crop === null || all.crops.at[row].includes(crop)) && only(row) && matches(searchable[row])) (isPart(row) ? parts : found).push(row);
    }
    const withParts = state.get("parts") === "yes";
    table.show(withParts ? [...found, ...parts].sort((a, b) => a - b) : found);
    byId("parts-text").textContent = `Show the ${plural(parts.length, "part")} of collections, too`;
    byId("parts-label").hidden = !withParts && !parts.length;
    byId("said").textContent = `${plural(found.length, "dataset")}${parts.length ? withParts ? ` and ${plural(parts.length, "part")} of collections` : `; ${plural(parts.length, "part")} of collections not shown` : ""}.`;
  }
  const top = row => !isPart(row);
  const counted = column => countOf({texts: column.texts, at: column.at.filter((_, row) => top(row))});
  offer("task", all.task.texts, counted(all.task), taskName);
  offer("crop", all.crops.texts, counted(all.crops));
  offer("ag", all.ag.texts, counted(all.ag), wordsOf);
  const rows = all.name.map((_, row) => row);
  const names = {quality: "with a quality score", runs: "with model runs", card: "with a card"};
  offer("only", Object.keys(names), Object.values(kinds).map(kind => rows.filter(kind).length), kind => names[kind]);
  byId("only").closest(".field").hidden = false;
  const box = byId("parts");
  const applyBox = () => { box.checked = state.get("parts") === "yes"; };
  box.addEventListener("change", () => { keep("parts", box.checked ? "yes" : ""); update(); });
  appliers.push(applyBox);
  applyBox();
  bindFields(update);
  appliers.push(update);
  update();
})();
