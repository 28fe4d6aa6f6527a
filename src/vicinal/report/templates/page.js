for (const box of document.querySelectorAll(".threshold")) {
  const steps = JSON.parse(box.dataset.steps), input = box.querySelector("input"), out = box.querySelector("output");
  const show = () => { out.textContent = steps[input.value]; input.setAttribute("aria-valuetext", steps[input.value]); };
  input.addEventListener("input", show);
  show();
  box.hidden = false;
}
const percent = x => (100 * x).toFixed(1) + "\u00a0%";
for (const box of document.querySelectorAll(".cut")) {
  const cuts = JSON.parse(box.dataset.cuts), slider = box.querySelector("[type=range]"), put = (name, text) => { box.querySelector(name).textContent = text; };
  const prices = [".fp", ".fn"].map(name => box.querySelector("input" + name));
  const costs = i => {
    const [fp, fn] = prices.map(input => Math.max(Number(input.value) || 0, 0));
    const ends = [0, 1].map(k => fp * cuts.fp_rate[i][k] + fn * cuts.fn_rate[i][k]);
    return [(fp * cuts.fp[i] + fn * (cuts.positives - cuts.tp[i])) / cuts.n, ...ends];
  };
  const span = (value, [low, high], text) => text(value) + " (" + text(low).replace("\u00a0%", "") + "–" + text(high) + ")";
  const show = () => {
    const i = Number(slider.value), tp = cuts.tp[i], fp = cuts.fp[i], base = cuts.positives / cuts.n, named = tp + fp;
    const [cost, low, high] = costs(i), plain = x => x.toPrecision(3), at = Math.round(10000 * cuts.at[i]) / 100 + "\u00a0%";
    put(".at", at); put(".tp", tp); put(".fp-n", fp); put(".fn-n", cuts.positives - tp); put(".tn", cuts.n - cuts.positives - fp);
    put(".precision", named ? span(tp / named, cuts.precision[i], percent) : "–");
    put(".recall", span(tp / cuts.positives, cuts.recall[i], percent));
    put(".lift", named ? span(tp / named / base, cuts.precision[i].map(x => x / base), plain) : "–");
    put(".cost", span(cost, [low, high], plain));
    slider.setAttribute("aria-valuetext", at);
  };
  const cheapest = () => {
    const all = cuts.at.map((_, i) => costs(i)[0]), i = all.indexOf(Math.min(...all));
    slider.value = i;
    const [fp, fn] = prices.map(input => Math.max(Number(input.value) || 0, 0));
    const ideal = fp + fn ? " If the probabilities are right, the best threshold for these costs is " + percent(fp / (fp + fn)) + "." : "";
    put("output", "The lowest cost on these samples is at " + Math.round(10000 * cuts.at[i]) / 100 + "\u00a0%; on new samples it is a little higher." + ideal);
    show();
  };
  slider.max = cuts.at.length - 1;
  slider.addEventListener("input", () => { put("output", ""); show(); });
  prices.forEach(input => input.addEventListener("input", cheapest));
  box.querySelector("button").addEventListener("click", cheapest);
  cheapest();
  box.hidden = false;
}
const number = text => { const found = text.replace(/[\u00a0,]/g, "").replace("−", "-").match(/-?\d+(\.\d+)?/); return found ? Number(found[0]) : null; };
const first = cell => (cell.firstChild && cell.firstChild.nodeType === 3 ? cell.firstChild.data : cell.textContent).trim();
for (const table of document.querySelectorAll("main table:not(.confusion):not(.counts)")) {
  const head = table.tHead && table.tHead.rows[0], body = table.tBodies[0];
  if (!head || body.rows.length < 3) continue;
  [...head.cells].forEach((cell, column) => {
    const button = document.createElement("button");
    button.type = "button"; button.className = "sort";
    button.append(...cell.childNodes);
    if (!button.textContent.trim()) button.textContent = "name";
    cell.append(button);
    button.addEventListener("click", () => {
      const up = cell.getAttribute("aria-sort") !== "ascending", rows = [...body.rows];
      for (const other of head.cells) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", up ? "ascending" : "descending");
      rows.sort((a, b) => {
        const [x, y] = [first(a.cells[column]), first(b.cells[column])], [m, n] = [number(x), number(y)];
        return (up ? 1 : -1) * (column && m !== null && n !== null ? m - n : x.localeCompare(y));
      });
      body.append(...rows);
    });
  });
  const save = document.createElement("button");
  save.type = "button"; save.className = "csv"; save.textContent = "CSV";
  save.addEventListener("click", () => {
    const quoted = text => '"' + text.replace(/\s+/g, " ").trim().replace(/"/g, '""') + '"';
    const small = cell => { const found = cell.querySelector(".ci"); return found ? found.textContent : ""; };
    const withInterval = [...head.cells].map((_, column) => [...body.rows].some(row => small(row.cells[column])));
    // textContent holds what is folded, too; the interval has a column of its own.
    const cells = (cell, column) => {
      const copy = cell.cloneNode(true);
      for (const one of copy.querySelectorAll(".ci")) one.remove();
      for (const one of copy.querySelectorAll("dd, dt, blockquote, summary, .about, .better, .worse, .not-significant")) one.after(" ");
      const text = [copy.textContent];
      return withInterval[column] ? [...text, cell.closest("thead") ? copy.textContent + ", interval" : small(cell)] : text;
    };
    const lines = [...table.rows].map(row => [...row.cells].flatMap(cells).map(quoted).join(","));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(["\ufeff" + lines.join("\r\n")], {type: "text/csv"}));
    link.download = (table.closest("section") || document.body).id + ".csv";
    link.click();
  });
  table.closest(".scroll").after(save);
}
for (const box of document.querySelectorAll(".filter")) {
  const input = box.querySelector("input, select"), rows = () => box.parentElement.querySelectorAll("[data-key]");
  const plain = text => input.tagName === "SELECT" ? text : text.toLowerCase();
  input.addEventListener("input", () => { for (const row of rows()) row.hidden = !plain(row.dataset.key).includes(plain(input.value)); });
  box.hidden = false;
}
