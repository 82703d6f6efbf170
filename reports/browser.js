// The sample browser. It reads the completions from a JSON block of the page and inserts them as
// text, never as markup: a completion can contain anything.
(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("excerpts").textContent);
  const root = document.getElementById("browser");
  const pick = Object.fromEntries(
    ["model", "benchmark", "problem", "left", "right"].map((name) => [name, root.querySelector(`[name=${name}]`)]));
  const filters = [...root.querySelectorAll("[name=status]")];
  const statement = root.querySelector(".statement");
  const sides = [...root.querySelectorAll(".side")];
  const known = new Set(["correct", "wrong", "unparsed"]);
  const words = { gold_unparsed: "no reference" };

  const element = (name, text, className) => {
    const made = document.createElement(name);
    made.textContent = text;
    if (className) made.className = className;
    return made;
  };

  // Long texts scroll in their own box, so the keyboard must be able to focus it.
  const written = (text) => {
    const made = element("pre", text);
    made.tabIndex = 0;
    return made;
  };

  const fill = (select, entries) => {
    const before = select.value;
    select.replaceChildren(...entries.map(([value, text]) => {
      const option = element("option", text);
      option.value = value;
      return option;
    }));
    if (entries.some(([value]) => value === before)) select.value = before;
  };

  const distinct = (values) => [...new Set(values)];
  const runName = (run) => `${run.algorithm}/${run.seed}`;
  const runsHere = () => data.runs.filter(
    (run) => run.model === pick.model.value && run.benchmark === pick.benchmark.value);

  const runTitle = (run, all) => {
    const seeds = all.filter((other) => other.algorithm === run.algorithm).length;
    return data.algorithms[run.algorithm] + (seeds > 1 ? `, seed ${run.seed}` : "");
  };

  const listProblems = (runs) => {
    const problems = data.problems[pick.benchmark.value] || [];
    const share = (run, place) => {
      const cell = run && run.cells[place];
      return cell && cell.drawn ? `${Math.round((100 * cell.correct) / cell.drawn)} %` : "–";
    };
    const [left, right] = [pick.left, pick.right].map((select) => runs.find((run) => runName(run) === select.value));
    fill(pick.problem, problems.map((problem, place) =>
      [String(place), `${place + 1} · ${share(left, place)} / ${share(right, place)} · ${problem.id}`]));
  };

  const update = (changed) => {
    if (changed === pick.model || !changed) {
      const ofModel = data.runs.filter((run) => run.model === pick.model.value);
      fill(pick.benchmark, distinct(ofModel.map((run) => run.benchmark)).map((name) => [name, data.benchmarks[name]]));
    }
    const runs = runsHere();
    if (changed === pick.model || changed === pick.benchmark || !changed) {
      const entries = runs.map((run) => [runName(run), runTitle(run, runs)]);
      const [left, right] = [pick.left.value, pick.right.value];
      fill(pick.left, entries);
      fill(pick.right, entries);
      const names = entries.map(([name]) => name);
      if (!names.includes(left)) pick.left.selectedIndex = 0;
      if (!names.includes(right)) pick.right.selectedIndex = Math.min(1, names.length - 1);
      [pick.right.parentElement, sides[1]].forEach((one) => one.classList.toggle("off", names.length < 2));
    }
    if (changed !== pick.problem && !filters.includes(changed)) listProblems(runs);
    show(runs);
  };

  const show = (runs) => {
    const problem = (data.problems[pick.benchmark.value] || [])[Number(pick.problem.value)];
    statement.replaceChildren();
    if (!problem) return;
    statement.append(
      element("p", `Problem ${problem.id}`, "browser-label"), written(problem.text),
      element("p", "Reference answer", "browser-label"), written(problem.answer));
    [pick.left, pick.right].forEach((select, side) => {
      const run = runs.find((one) => runName(one) === select.value);
      showSide(sides[side], run && run.cells[pick.problem.value], run && runTitle(run, runs));
    });
  };

  const showSide = (side, cell, title) => {
    side.replaceChildren(element("h3", title || "not run"));
    if (!cell) {
      side.append(element("p", "No completions of this problem.", "note"));
      return;
    }
    const wanted = new Set(filters.filter((box) => box.checked).map((box) => box.value));
    const shown = cell.shown.filter(([status]) => wanted.has(known.has(status) ? status : "other"));
    side.append(element("p",
      `${cell.correct} of ${cell.drawn} samples correct; the page keeps ${cell.shown.length}, shown here: ${shown.length}`, "note"));
    for (const [status, text, answer, tokens, seed, index, truncated, cut] of shown) {
      const box = element("article", "", `completion ${known.has(status) ? status : "other"}`);
      const head = element("p", "", "browser-label");
      head.append(element("strong", words[status] || status));
      const read = answer === null ? ["no answer found"] : ["extracted answer: ", element("bdi", answer)];
      head.append(" · ", ...read, ` · ${tokens} tokens · sample ${index}, seed ${seed}`);
      if (truncated) head.append(" · truncated at the token limit");
      box.append(head, written(text));
      if (cut) box.append(element("p", `The page keeps only the first ${text.length} characters.`, "note"));
      side.append(box);
    }
    if (!shown.length) side.append(element("p", "No completion has one of the selected statuses.", "note"));
  };

  fill(pick.model, distinct(data.runs.map((run) => run.model)).map((name) => [name, data.models[name]]));
  root.addEventListener("change", (event) => update(event.target));
  root.hidden = false;
  update(null);
})();
