// What the page does besides showing itself: it shows one part at a time, opens details that are
// linked to or printed, marks the section in view, copies its address, sorts tables or copies them as CSV, hides methods, and
// shows pass@k at the k of a slider.
(() => {
  "use strict";
  // Of four parts one is shown. The others can be found by a search in the page, which shows theirs.
  const parts = [...document.querySelectorAll("main > .part")];
  const show = (part) => {
    parts.forEach((one) => { one.hidden = one === part ? false : "until-found"; });
    document.querySelectorAll("nav [data-part]").forEach((list) => { list.hidden = list.dataset.part !== part?.id; });
    document.querySelectorAll("nav .tabs a").forEach((link) => link.setAttribute("aria-current", link.hash === `#${part?.id}` ? "page" : "false"));
  };
  parts.forEach((part) => part.addEventListener("beforematch", () => show(part)));
  const openTo = (id) => {
    let at = document.getElementById(id || parts[0]?.id);
    if (!at) return;
    const target = at;
    const part = at.closest(".part");
    if (part) show(part);
    for (; at; at = at.parentElement) if (at.localName === "details") at.open = true;
    if (target === part) scrollTo(0, 0);
    else target.scrollIntoView();
  };
  const WITHOUT = "&without=";
  const place = () => location.hash.slice(1).split(WITHOUT)[0];
  // A link that was cut off may hold half a character.
  const decoded = (text) => { try { return decodeURIComponent(text); } catch { return text; } };
  const follow = () => openTo(decoded(place()));
  addEventListener("hashchange", follow);
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    if (link) openTo(link.hash.slice(1));
  });
  show(parts[0]);
  follow();

  const closed = [];
  addEventListener("beforeprint", () => document.querySelectorAll("details:not([open])").forEach((one) => {
    one.open = true;
    closed.push(one);
  }));
  addEventListener("afterprint", () => closed.splice(0).forEach((one) => { one.open = false; }));

  const links = new Map([...document.querySelectorAll("nav ol:not(.tabs) a")].map((link) => [link.hash.slice(1), link]));
  const seen = new IntersectionObserver((entries) => entries.forEach(({ target, isIntersecting }) => {
    if (!isIntersecting) return;
    links.forEach((link) => link.removeAttribute("aria-current"));
    links.get(target.id).setAttribute("aria-current", "true");
  }), { rootMargin: "-10% 0px -80% 0px" });
  links.forEach((link, id) => document.getElementById(id) && seen.observe(document.getElementById(id)));

  const say = async (button, text) => {
    const before = button.textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Copying is not allowed here";
    }
    setTimeout(() => { button.textContent = before; }, 1500);
  };
  const button = (text, act) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    made.addEventListener("click", () => act(made));
    return made;
  };
  document.querySelectorAll(".copy-link").forEach((one) => {
    one.hidden = false;
    one.addEventListener("click", () => say(one, location.href));
  });

  // Tables wider than the screen say so.
  const measured = new ResizeObserver((boxes) => boxes.forEach(({ target }) =>
    target.classList.toggle("wide", target.scrollWidth > target.clientWidth + 1)));
  document.querySelectorAll(".scroll").forEach((box) => measured.observe(box));

  // The heads of single columns, from left to right: those below a group stand in its place.
  const headsOf = (table) => {
    const [first, second] = [...table.tHead.rows].map((row) => [...row.cells]);
    return first.flatMap((head) => (head.colSpan > 1 || head.classList.contains("group") ? second.splice(0, head.colSpan) : [head]));
  };
  const words = (cell) => [...cell.childNodes].filter((node) => node.nodeName !== "SMALL")
    .map((node) => node.textContent).join("").trim();
  const SECONDS = { h: 3600, min: 60, s: 1 };
  const value = (cell) => {
    const text = words(cell).replace(/\u2212/g, "-").replace(/[\u202f,]/g, "").replace(/^< ?/, "");
    if (/^\d+ (h|min|s)( \d+ (min|s))?$/.test(text)) {
      return [...text.matchAll(/(\d+) (h|min|s)/g)].reduce((sum, [, size, unit]) => sum + size * SECONDS[unit], 0);
    }
    return /^[-+]?[\d.]/.test(text) ? parseFloat(text) : text;
  };
  const compare = (one, two) => {
    if (typeof one === "number" && typeof two === "number") return one - two;
    if (typeof one !== typeof two) return typeof one === "number" ? -1 : 1;
    return one.localeCompare(two);
  };
  const csv = (table) => {
    const quoted = (cells) => cells.map((text) => (/[",\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text)).join(",");
    const groups = [...table.tHead.rows[0].cells].flatMap((head) => Array(head.colSpan).fill(head.colSpan > 1 ? `${head.textContent.trim()} ` : ""));
    const heads = headsOf(table).map((head, place) => groups[place] + head.textContent.trim());
    const rows = [...table.tBodies].flatMap((body) => {
      const title = body.querySelector("tr.group")?.textContent.trim();
      return [...body.querySelectorAll("tr:not(.group)")].map((row) => [
        ...(table.querySelector("tr.group") ? [title || ""] : []),
        ...[...row.cells].map((cell) => [words(cell), ...[...cell.querySelectorAll("small")].map((small) => `(${small.textContent})`)].join(" ").trim()),
      ]);
    });
    if (table.querySelector("tr.group")) heads.unshift("Group");
    return [heads, ...rows].map(quoted).join("\n");
  };
  document.querySelectorAll("table[data-sortable]").forEach((table) => {
    headsOf(table).forEach((head, place) => {
      const sort = button(head.textContent.trim(), () => {
        const falling = head.getAttribute("aria-sort") === "descending";
        headsOf(table).forEach((one) => one.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", falling ? "ascending" : "descending");
        for (const body of table.tBodies) {
          const rows = [...body.querySelectorAll("tr:not(.group)")];
          rows.sort((one, two) => (falling ? 1 : -1) * compare(value(one.cells[place]), value(two.cells[place])));
          body.append(...rows);
        }
      });
      head.replaceChildren(sort);
    });
    const origin = table.parentElement.nextElementSibling;
    const copy = button("Copy as CSV", (made) => say(made, csv(table)));
    if (origin?.classList.contains("origin")) origin.querySelector("div").append(copy);
  });

  // What belongs to a method that is not checked is hidden; the address says which these are.
  const choice = document.querySelector("details.methods");
  if (choice) {
    const boxes = [...choice.querySelectorAll("input")];
    const parts = new Map(boxes.map((box) => [box.dataset.title, [...document.querySelectorAll(`[data-method="${CSS.escape(box.value)}"]`)]]));
    document.querySelectorAll("tbody th[scope=row], .legend li, .solutions h3").forEach((head) =>
      words(head).replace(/, seed \d+$/, "").split(" \u2212 ").forEach((title) => parts.get(title)?.push(head.closest("tr, li, article"))));
    const panels = [...document.querySelectorAll(".panels > svg")].map((panel) => [panel, [...panel.querySelectorAll("[data-method]")]]);
    const apply = () => {
      const gone = boxes.filter((box) => !box.checked);
      const hidden = new Set(gone.flatMap((box) => parts.get(box.dataset.title)));
      parts.forEach((ones) => ones.forEach((one) => one.classList.toggle("off", hidden.has(one))));
      panels.forEach(([panel, ones]) => panel.classList.toggle("off", ones.length > 0 && ones.every((one) => hidden.has(one))));
      choice.querySelector("[role=status]").textContent = gone.length ? `${boxes.length - gone.length} of ${boxes.length}` : `all ${boxes.length}`;
      const state = gone.length ? WITHOUT + gone.map((box) => encodeURIComponent(box.value)).join() : "";
      if (location.hash !== `#${place()}${state}` && (state || location.hash.includes(WITHOUT))) history.replaceState(null, "", `#${place()}${state}`);
    };
    const read = () => {
      const [, state] = location.hash.split(WITHOUT);
      const gone = (state || "").split(",").map(decoded);
      if (state !== undefined) boxes.forEach((box) => { box.checked = !gone.includes(box.value); });
      apply();
    };
    choice.addEventListener("change", apply);
    choice.querySelectorAll("button").forEach((one, all) => one.addEventListener("click", () => {
      boxes.forEach((box) => { box.checked = all === 0; });
      apply();
    }));
    addEventListener("hashchange", read);
    choice.hidden = false;
    read();
  }

  // One column of pass@k at a time, and a line at that k in the curves of its section.
  document.querySelectorAll("table.by-k").forEach((table) => {
    const ks = headsOf(table).slice(1).map((head) => Number(head.textContent.split("@")[1]));
    const [label, range, text] = ["label", "input", "output"].map((name) => document.createElement(name));
    label.className = "slider";
    label.append("k", range, text);
    range.type = "range";
    range.max = range.value = ks.length - 1;
    const lines = [...table.closest("section").querySelectorAll("g[data-x]")].map((panel) => {
      const line = document.createElementNS(panel.namespaceURI, "path");
      line.setAttribute("class", "at-k");
      panel.append(line);
      return [line, panel.dataset.x.split(" ").map(Number)];
    });
    const show = () => {
      const at = Number(range.value);
      text.textContent = ks[at];
      range.setAttribute("aria-valuetext", ks[at]);
      for (const row of table.rows) if (!row.matches(".group")) [...row.cells].slice(1).forEach((cell, column) => cell.classList.toggle("off", column !== at));
      lines.forEach(([line, [one, two, top, bottom]]) => line.setAttribute("d", `M${one + (two - one) * Math.log2(ks[at])} ${top}V${bottom}`));
    };
    range.addEventListener("input", show);
    table.parentElement.before(label);
    show();
  });
})();
