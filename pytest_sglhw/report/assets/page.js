"use strict";
// The matrix of the page. Only the rows in sight are in the document: 20,000 tests in 10 lanes open and filter at once.
// Text from reports reaches the document as text nodes only.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { columns, outcomes, groups, tests, details } = data;
  const ROW = 30, HEAD = 46, SPARE = 12, NAME_WIDTH = 420, CELL_WIDTH = 124;
  const byId = (id) => document.getElementById(id);
  const grid = byId("grid"), table = grid.querySelector("table"), body = table.tBodies[0], panel = byId("detail");

  // A test: [group, name, outcomes (a digit for each column, "." for none), details, milliseconds, more]
  const full = ([group, name]) => (name ? groups[group].prefix + name : groups[group].name);
  const wordOf = (test, column) => outcomes[test[2].charCodeAt(column) - 48];
  const haystack = tests.map((test) => `${groups[test[0]].name} ${full(test)}`.toLowerCase());
  const executed = new Set(["passed", "failed", "raised"].map((word) => outcomes.indexOf(word)));

  const state = { q: "", outcome: new Set(), lane: "", list: "", folded: new Set(), open: null };
  let view = [], shown = [], window_ = "", active = { row: 0, column: 0 };

  function element(tag, properties = {}, ...children) {
    const node = Object.assign(document.createElement(tag), properties);
    node.append(...children);
    return node;
  }

  // -- what is shown -----------------------------------------------------------------------------------------------

  function filter() {
    const terms = state.q.toLowerCase().split(/\s+/).filter(Boolean);
    const list = state.list ? new Set(data.lists[state.list]) : null;
    const wanted = new Set([...state.outcome].map((word) => String(outcomes.indexOf(word))));
    shown = columns.map((_, at) => at).filter((at) => !state.lane || columns[at].lane === state.lane);
    const fits = (test, at) =>
      terms.every((term) => haystack[at].includes(term)) && (!list || list.has(at)) &&
      (!state.lane || shown.some((column) => test[2][column] !== ".")) &&
      (!wanted.size || shown.some((column) => wanted.has(test[2][column])));
    view = [];
    let group = null, count = 0;
    tests.forEach((test, at) => {
      if (!fits(test, at)) return;
      count += 1;
      if (!group || group.group !== test[0]) view.push((group = { group: test[0], tests: [] }));
      group.tests.push(at);
      if (!state.folded.has(test[0])) view.push(at);
    });
    byId("count").textContent = `${count.toLocaleString("en")} of ${tests.length.toLocaleString("en")} tests`;
    active = { row: Math.min(active.row, Math.max(0, view.length - 1)), column: 0 };
    head();
    draw(true);
    remember();
  }

  function head() {
    const cells = shown.map((at) => {
      const column = columns[at];
      const cell = element("th", { scope: "col", title: `${column.label}\n${column.machine}\n${column.status}` }, column.lane);
      const machine = (column.fake ? "faked " : "") + column.machine;
      cell.append(element("small", { className: column.missing ? "missing" : "" }, column.missing ? "missing" : machine));
      return cell;
    });
    const columnOf = (width) => { const col = element("col"); col.style.width = `${width}px`; return col; };
    const name = Math.min(NAME_WIDTH, Math.max(150, Math.round(grid.clientWidth * 0.45)));
    const cell = Math.max(CELL_WIDTH, Math.floor((grid.clientWidth - name - 2) / Math.max(1, shown.length)) - 1);
    table.querySelector("colgroup").replaceChildren(columnOf(name), ...shown.map(() => columnOf(cell)));
    table.style.width = `${name + cell * shown.length}px`;
    table.tHead.rows[0].replaceChildren(element("th", { scope: "col" }, "test"), ...cells);
    table.setAttribute("aria-rowcount", view.length + 1);
    table.setAttribute("aria-colcount", shown.length + 1);
  }

  function draw(force) {
    const first = Math.max(0, Math.floor(grid.scrollTop / ROW) - SPARE);
    const last = Math.min(view.length, Math.ceil((grid.scrollTop + grid.clientHeight) / ROW) + SPARE);
    if (!force && window_ === `${first}-${last}`) return;
    const focused = body.contains(document.activeElement);
    window_ = `${first}-${last}`;
    const rows = [spacer(first)];
    for (let at = first; at < last; at += 1) rows.push(typeof view[at] === "number" ? testRow(at) : groupRow(at));
    rows.push(spacer(view.length - last));
    if (!view.length) rows.push(element("tr", {}, element("td", { className: "none", colSpan: shown.length + 1 }, "No test fits the filter.")));
    body.replaceChildren(...rows);
    if (focused) focusActive();
  }

  function spacer(rows) {
    const row = element("tr", { className: "spacer" }, element("td", { colSpan: shown.length + 1 }));
    row.setAttribute("aria-hidden", "true");
    row.firstChild.style.height = `${rows * ROW}px`;
    row.hidden = !rows;
    return row;
  }

  function place(row, at) {
    row.dataset.row = at;
    row.setAttribute("aria-rowindex", at + 2);
    return row;
  }

  function control(node, row, column) {
    node.dataset.column = column;
    node.tabIndex = row === active.row && column === active.column ? 0 : -1;
    return node;
  }

  function groupRow(at) {
    const { group, tests: members } = view[at];
    const name = element("bdi", {}, `${groups[group].name} (${members.length})`);
    const button = control(element("button", { type: "button", title: groups[group].name }, name), at, 0);
    button.setAttribute("aria-expanded", !state.folded.has(group));
    const cells = shown.map((column) => element("td", {}, columns[column].missing ? "" : groupCell(members, column)));
    return place(element("tr", { className: "group" }, element("th", { scope: "row" }, button), ...cells), at);
  }

  function groupCell(members, column) {
    let known = 0, ran = 0;
    for (const at of members) {
      const word = tests[at][2].charCodeAt(column) - 48;
      if (word >= 0) { known += 1; ran += executed.has(word); }
    }
    return known ? `${ran}/${known} executed` : "";
  }

  function testRow(at) {
    const test = tests[view[at]];
    const cells = shown.map((column, nth) => {
      const word = wordOf(test, column);
      const cell = element("td");
      if (word) {
        const changed = test[5] && test[5][column] && test[5][column].changed ? "*" : "";
        const button = control(element("button", { type: "button" }, word.replace("_", " ") + changed), at, nth);
        cell.className = word;
        button.setAttribute("aria-label", `${word.replace("_", " ")}, ${columns[column].label}`);
        cell.append(button);
      } else if (columns[column].missing) {
        cell.append(element("span", { className: "sr" }, "missing"));
      }
      if (state.open && state.open.test === view[at] && state.open.column === column) cell.setAttribute("aria-selected", "true");
      return cell;
    });
    const name = element("bdi", {}, test[1] || groups[test[0]].name);
    return place(element("tr", {}, element("th", { scope: "row", className: "id", title: full(test) }, name), ...cells), at);
  }

  // -- moving about ------------------------------------------------------------------------------------------------

  function focusActive() {
    const row = body.querySelector(`tr[data-row="${active.row}"]`);
    if (!row) return;
    const all = [...row.querySelectorAll("button")];
    const button = all.find((each) => Number(each.dataset.column) === active.column) || all[0];
    body.querySelectorAll('button[tabindex="0"]').forEach((each) => { each.tabIndex = -1; });
    if (!button) return;
    button.tabIndex = 0;
    button.focus({ preventScroll: true });
    const cell = button.parentElement, left = cell.offsetLeft - row.cells[0].offsetWidth;
    if (cell.cellIndex === 0) return;
    if (left < grid.scrollLeft) grid.scrollLeft = left;
    else if (cell.offsetLeft + cell.offsetWidth > grid.scrollLeft + grid.clientWidth) grid.scrollLeft = cell.offsetLeft + cell.offsetWidth - grid.clientWidth;
  }

  function reveal(row) {
    const top = row * ROW, room = grid.clientHeight - HEAD;
    if (top < grid.scrollTop) grid.scrollTop = top;
    else if (top + ROW > grid.scrollTop + room) grid.scrollTop = top + ROW - room;
    draw(true);
  }

  function move(row, column) {
    active = { row: Math.max(0, Math.min(view.length - 1, row)), column: Math.max(0, Math.min(shown.length - 1, column)) };
    reveal(active.row);
    focusActive();
  }

  const page = () => Math.max(1, Math.floor((grid.clientHeight - HEAD) / ROW) - 1);
  const keys = {
    ArrowDown: () => move(active.row + 1, active.column), ArrowUp: () => move(active.row - 1, active.column),
    ArrowRight: () => move(active.row, active.column + 1), ArrowLeft: () => move(active.row, active.column - 1),
    PageDown: () => move(active.row + page(), active.column), PageUp: () => move(active.row - page(), active.column),
    Home: () => move(0, active.column), End: () => move(view.length - 1, active.column),
  };

  body.addEventListener("keydown", (event) => {
    if (keys[event.key] && !event.ctrlKey && !event.metaKey && !event.altKey) { event.preventDefault(); keys[event.key](); }
  });
  body.addEventListener("focusin", (event) => {
    const row = event.target.closest("tr[data-row]");
    if (row && event.target.dataset.column !== undefined) active = { row: Number(row.dataset.row), column: Number(event.target.dataset.column) };
  });
  body.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const row = view[Number(button.closest("tr").dataset.row)];
    if (typeof row === "number") open(row, shown[Number(button.dataset.column)]);
    else { toggle(row.group); focusActive(); }
  });

  function toggle(group) {
    if (!state.folded.delete(group)) state.folded.add(group);
    const { row, column } = active;
    filter();
    active = { row: Math.min(row, view.length - 1), column };
    draw(true);
  }

  // -- details of one cell -----------------------------------------------------------------------------------------

  function open(at, column) {
    const test = tests[at], info = columns[column], more = (test[5] && test[5][column]) || {};
    const word = wordOf(test, column);
    const [reason, code, requirement, needed, phase, worker, examples, attempt] = word ? details[test[3][column]] : [];
    state.open = { test: at, column };
    const facts = [
      ["lane", info.label], ["machine", info.machine], ["faked as", info.fake], ["reason", reason], ["reason code", code],
      ["requirement", requirement], ["state", needed], ["phase", phase], ["duration", word && `${(test[4][column] / 1000).toFixed(3)} s`],
      ["worker", worker], ["examples", examples], ["attempt", attempt], ...(more.others || []),
      ["run", info.status], ["report", info.paths.join("\n")],
    ];
    const list = element("dl");
    for (const [name, value] of facts) if (value) list.append(element("dt", {}, name), element("dd", {}, String(value)));
    const link = element("a", { href: hash() }, "Link to this cell");
    byId("detail-body").replaceChildren(
      element("h2", { id: "detail-title", className: word || "soft" }, (word || "no result").replace("_", " ")),
      element("p", { className: "id" }, full(test)), list, link);
    panel.hidden = false;
    document.body.classList.add("beside");
    byId("detail-close").focus();
    draw(true);
    remember();
  }

  function close() {
    if (panel.hidden) return;
    const { test, column } = state.open;
    panel.hidden = true;
    document.body.classList.remove("beside");
    state.open = null;
    remember();
    const row = view.indexOf(test);
    if (row < 0) return;
    active = { row, column: Math.max(0, shown.indexOf(column)) };
    reveal(row);
    focusActive();
  }
  byId("detail-close").addEventListener("click", close);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") close(); });

  // -- links -------------------------------------------------------------------------------------------------------

  function hash() {
    const parts = new URLSearchParams();
    if (state.q) parts.set("q", state.q);
    if (state.lane) parts.set("in", state.lane);
    if (state.outcome.size) parts.set("outcome", [...state.outcome].join(","));
    if (state.list) parts.set("list", state.list);
    if (state.open) { parts.set("test", full(tests[state.open.test])); parts.set("lane", columns[state.open.column].label); }
    return `#${parts}`;
  }

  function remember() {
    try { history.replaceState(null, "", hash()); } catch { /* a sandboxed page has no history of its own */ }
  }

  function follow() {
    const parts = new URLSearchParams(location.hash.slice(1));
    if (parts.has("test")) {
      const at = tests.findIndex((test) => full(test) === parts.get("test"));
      if (at >= 0) return visit(at, columns.findIndex((column) => column.label === parts.get("lane")), parts);
    }
    adopt(parts);
    filter();
    return undefined;
  }

  function adopt(parts) {
    state.q = parts.get("q") || "";
    state.lane = columns.some((column) => column.lane === parts.get("in")) ? parts.get("in") : "";
    state.list = parts.get("list") in data.lists ? parts.get("list") : "";
    state.outcome = new Set((parts.get("outcome") || "").split(",").filter((word) => outcomes.includes(word)));
    byId("q").value = state.q;
    byId("lane").value = state.lane;
    byId("list").value = state.list;
    document.querySelectorAll(".chip").forEach((chip) => chip.setAttribute("aria-pressed", state.outcome.has(chip.value)));
  }

  function visit(at, column, parts) {
    adopt(parts);
    state.folded.delete(tests[at][0]);
    filter();
    if (!view.includes(at)) { adopt(new URLSearchParams()); filter(); }
    const wanted = column >= 0 ? column : columns.findIndex((_, each) => wordOf(tests[at], each));
    active = { row: view.indexOf(at), column: Math.max(0, shown.indexOf(wanted)) };
    reveal(active.row);
    byId("matrix").scrollIntoView();
    open(at, wanted);
  }

  // -- tools -------------------------------------------------------------------------------------------------------

  const fold = (all) => { state.folded = all ? new Set(groups.keys()) : new Set(); active.row = 0; grid.scrollTop = 0; filter(); };
  byId("q").addEventListener("input", (event) => { state.q = event.target.value; grid.scrollTop = 0; filter(); });
  byId("lane").addEventListener("change", (event) => { state.lane = event.target.value; filter(); });
  byId("list").addEventListener("change", (event) => { state.list = event.target.value; grid.scrollTop = 0; filter(); });
  byId("fold").addEventListener("click", () => fold(true));
  byId("unfold").addEventListener("click", () => fold(false));
  document.querySelectorAll(".chip").forEach((chip) => chip.addEventListener("click", () => {
    if (!state.outcome.delete(chip.value)) state.outcome.add(chip.value);
    chip.setAttribute("aria-pressed", state.outcome.has(chip.value));
    grid.scrollTop = 0;
    filter();
  }));
  grid.addEventListener("scroll", () => requestAnimationFrame(() => draw(false)), { passive: true });
  new ResizeObserver(() => { head(); draw(true); }).observe(grid);
  window.addEventListener("hashchange", follow);

  byId("tools").hidden = false;
  grid.hidden = false;
  if (groups.length > 1 && tests.length > 500) state.folded = new Set(groups.keys());
  follow();
  document.documentElement.dataset.ready = "true";
})();
