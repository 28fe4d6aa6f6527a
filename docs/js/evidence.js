// Filters for the table of all claims on the evidence page: a text, and a list of values for some columns.
(() => {
  const table = [...document.querySelectorAll("table")].find((one) =>
    [...one.querySelectorAll("thead th")].some((head) => head.textContent.trim() === "family"));
  if (!table) return;
  const heads = [...table.querySelectorAll("thead th")].map((head) => head.textContent.trim());
  const rows = [...table.querySelectorAll("tbody tr")];
  const text = (row, column) => row.cells[heads.indexOf(column)].textContent.trim();
  const verdict = (value) => value.split(",")[0];
  const bar = document.createElement("p");
  const search = Object.assign(document.createElement("input"), { type: "search", placeholder: "filter claims" });
  search.setAttribute("aria-label", "Filter claims by text");
  const lists = ["paper", "family", "verdict"].map((column) => {
    const list = document.createElement("select");
    list.setAttribute("aria-label", column);
    const values = [...new Set(rows.map((row) => verdict(text(row, column))))].sort();
    for (const value of ["", ...values]) list.add(new Option(value || `every ${column}`, value));
    return [column, list];
  });
  const count = document.createElement("span");
  const show = () => {
    let shown = 0;
    for (const row of rows) {
      const kept = row.textContent.toLowerCase().includes(search.value.toLowerCase()) &&
        lists.every(([column, list]) => !list.value || verdict(text(row, column)) === list.value);
      row.hidden = !kept;
      shown += kept;
    }
    count.textContent = ` ${shown} of ${rows.length} claims`;
  };
  bar.className = "claim-filters";
  bar.append(search, ...lists.map(([, list]) => list), count);
  bar.addEventListener("input", show);
  (table.closest(".md-typeset__scrollwrap") || table).before(bar);
  show();
})();
