// What is left out or doubtful: four tables, one search.
(() => {
  const titles = {file: "File", record: "Record", model: "Model", kind: "Warning", why: "Why", name: "What"};
  const tables = [];
  for (const [id, columns] of Object.entries(DATA)) {
    if (!byId(id)) continue;
    const names = Object.keys(columns), n = columns.why.at.length;
    const cell = name => row => name === "record"
      ? columns.record[row] === null ? "whole file" : whole(columns.record[row])
      : make("bdi", {}, name === "kind" ? wordsOf(textAt(columns.kind, row)) : textAt(columns[name], row) ?? "not stated");
    const key = name => name === "record" ? row => columns.record[row] : alphabetical(columns[name]);
    const shape = names.map((name, place) => ({name: titles[name], number: name === "record", lead: place === 0, css: name === "why" ? "wide" : null, key: key(name), cell: cell(name)}));
    const searchable = Array.from({length: n}, (_, row) => names.filter(name => name !== "record").map(name => textAt(columns[name], row)).join("\n").toLowerCase());
    tables.push({n, searchable, view: listing(id, shape, {empty: "Nothing here matches the search."})});
  }
  function update() {
    const matches = searcher(state.get("q"));
    let found = 0;
    for (const {n, searchable, view} of tables) {
      const rows = Array.from({length: n}, (_, row) => row).filter(row => matches(searchable[row]));
      found += rows.length;
      view.show(rows);
    }
    if (byId("said")) byId("said").textContent = `${plural(found, "entry", "entries")}.`;
  }
  bindFields(update);
  appliers.push(update);
  update();
})();
