"use strict";
(async () => {
  const { byId, holds, listing, make, unpack } = page;
  sortTables();
  let data;
  try {
    data = await unpack(byId("data").textContent);
  } catch (error) {
    byId("status").textContent = `The questions cannot be unpacked (${error.message}); open the page in a newer browser.`;
    return;
  }
  const methods = data.methods;
  const rows = data.questions.map(([id, question, kind, answers], place) => ({
    id, question, kind, answers, place, scores: data.results.map((column) => column[place]),
  }));
  let first = 0;
  data.blocks.forEach((size, block) => {
    for (let at = 0; at < size; at += 1) [rows[first + at].block, rows[first + at].at] = [block, at];
    first += size;
  });
  for (const row of rows) row.right = row.scores.filter((score) => score && score[1]).length;

  const chosen = (state) => ({ a: Number(state.a) - 1, b: Number(state.b || state.a) - 1 });
  const isRight = (score) => Boolean(score && score[1]);
  const isWrong = (score) => Boolean(score && score[1] === 0);
  const plain = (score) => (score && score[0] !== null ? score[0].trim().toLowerCase() : null);
  const OUTCOMES = {
    "": () => true,
    won: (a, b) => isRight(a) && isWrong(b),
    lost: (a, b) => isWrong(a) && isRight(b),
    both: (a, b) => isRight(a) && isRight(b),
    neither: (a, b) => isWrong(a) && isWrong(b),
    differ: (a, b) => a && b && plain(a) !== plain(b),
    failed: (a, b) => (a && a[0] === null) || (b && b[0] === null),
  };

  function fits(row, state) {
    if (state.kind && row.kind !== state.kind) return false;
    if (state.right !== "" && row.right !== Number(state.right)) return false;
    return holds(row, state.q, () => [row.id, row.question, ...row.answers, ...row.scores.map((score) => (score && score[0]) || "")].join("\n"));
  }
  function matches(row, state) {
    const { a, b } = chosen(state);
    return OUTCOMES[state.outcome](row.scores[a], row.scores[b]) && fits(row, state);
  }

  function order(shown, state) {
    const { a, b } = chosen(state);
    const gain = (row) => ((row.scores[a] && row.scores[a][2]) || 0) - ((row.scores[b] && row.scores[b][2]) || 0);
    if (state.order === "gain") shown.sort((one, other) => gain(other) - gain(one));
    if (state.order === "loss") shown.sort((one, other) => gain(one) - gain(other));
    if (state.order === "hard") shown.sort((one, other) => one.right - other.right);
  }

  // The outcomes say how many of the questions that fit otherwise have them.
  const columns = make("div", { class: "columns", "aria-hidden": "true" });
  byId("list").before(columns);
  const outcomes = document.querySelector("select[name=outcome]");
  const words = [...outcomes.options].map((option) => option.textContent);
  function changed(state) {
    const { a, b } = chosen(state);
    const base = rows.filter((row) => fits(row, state));
    [...outcomes.options].forEach((option, place) => {
      const number = base.filter((row) => OUTCOMES[option.value](row.scores[a], row.scores[b])).length;
      option.textContent = `${words[place]} (${number.toLocaleString("en")})`;
    });
    columns.replaceChildren(make("span", {}, "Question"), make("span", {}, `A: ${methods[a] ?? ""}`), a === b ? "" : make("span", {}, `B: ${methods[b] ?? ""}`), make("span", {}, "Right"));
  }

  function item(row, state) {
    const { a, b } = chosen(state);
    const answer = (place, letter) => {
      const score = row.scores[place];
      return make("span", { class: "given" }, drillDown.mark(score), make("span", { class: "letter" }, `${letter}: ${methods[place]}`),
        make("span", { class: "given-words", dir: "auto" }, score === null ? "not asked yet" : score[0] === null ? "no answer" : score[0] || "(empty)"));
    };
    return make("details", { class: "row" }, make("summary", {},
      make("span", { class: "asked" }, make("span", { class: "question", dir: "auto" }, row.question || "(no question)"), make("span", { class: "gold-answer", dir: "auto" }, row.answers.join(" · "))),
      answer(a, "A"), a === b ? null : answer(b, "B"),
      make("span", { class: "tally" }, `${row.right} of ${methods.length}`)));
  }

  const opened = new Map();
  function block(number) {
    if (!opened.has(number)) {
      opened.set(number, unpack(byId(`block-${number}`).textContent));
      if (opened.size > 8) opened.delete(opened.keys().next().value); // what was looked at long ago is unpacked again
    }
    return opened.get(number);
  }
  async function fill(details, row, state) {
    const holder = make("div", {}, make("p", { class: "label" }, "Unpacking …"));
    details.append(holder);
    try {
      const detail = (await block(row.block))[row.at];
      holder.replaceChildren(drillDown.body(row, chosen(state), methods, detail));
    } catch (error) {
      holder.replaceChildren(make("p", { class: "label" }, `The question cannot be shown (${error.message}).`));
      throw error;
    }
  }

  listing({ rows, noun: "question", matches, item, fill, order, changed });

  // Columns are sorted by what their cells hold, numbers from high to low first; cells with nothing stay below.
  function sortTables() {
    for (const table of document.querySelectorAll("table.sortable")) {
      const heads = [...table.tHead.rows[0].cells];
      heads.forEach((head, column) => {
        const button = make("button", { type: "button", class: "sort" }, ...head.childNodes);
        head.append(button);
        button.addEventListener("click", () => {
          const body = table.tBodies[0];
          const lines = [...body.rows];
          const keyOf = (line) => line.cells[column].dataset.key;
          const numbers = lines.every((line) => keyOf(line) === undefined || !Number.isNaN(Number(keyOf(line))));
          const before = head.getAttribute("aria-sort");
          const up = before === null ? !numbers : before === "descending";
          for (const other of heads) other.removeAttribute("aria-sort");
          head.setAttribute("aria-sort", up ? "ascending" : "descending");
          lines.sort((one, other) => {
            const [x, y] = [keyOf(one), keyOf(other)];
            if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
            return (up ? 1 : -1) * (numbers ? Number(x) - Number(y) : x.localeCompare(y));
          });
          body.append(...lines);
        });
      });
    }
  }
})();
