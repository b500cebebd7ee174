// Tables sort by a click on a heading, and points of plots say what they are.
(() => {
  "use strict";
  const units = { KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40 };
  const numeric = (text) => {
    const plain = text.replace(/\u2212/g, "-").replace(/[,\u00a0<>]/g, "").trim();
    const unit = plain.match(/^[-\d.]+ ?([KMGT]iB)/);
    return parseFloat(plain) * (unit ? units[unit[1]] : 1);
  };
  // What is no number comes last in a column that has numbers.
  const order = (a, b, sign) => {
    const [x, y] = [numeric(a), numeric(b)];
    if (Number.isNaN(x) && Number.isNaN(y)) return sign * a.localeCompare(b);
    if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) ? 1 : -1;
    return sign * (x - y);
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    const body = table.tBodies[0];
    heads.forEach((head, column) => {
      if (!head.textContent.trim()) return;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const rows = [...body.rows];
        const text = (row) => row.cells[column]?.textContent ?? "";
        const words = rows.every((row) => Number.isNaN(numeric(text(row))));
        // The largest numbers first, words from a on; once more turns them round.
        const before = head.ariaSort;
        const upward = before ? before === "descending" : words;
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.ariaSort = upward ? "ascending" : "descending";
        rows.sort((a, b) => order(text(a), text(b), upward ? 1 : -1));
        body.append(...rows);
      });
    });
  }

  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  document.querySelector("main").append(tip);
  const near = 60;
  for (const svg of document.querySelectorAll("svg[data-points]")) {
    const { x: across, names } = svg.dataset;
    const series = names ? names.split("\n") : [];
    const points = svg.dataset.points.split("\n").map((line) => {
      const [x, y, at, ...said] = line.split(" ");
      const [value, height] = said;
      const words = across === undefined ? said.join(" ") : `${across} ${value}: ${height}`.trim();
      const name = series[at];
      return { x: +x, y: +y, text: name ? `${name}, ${words}` : words };
    });
    const ring = document.createElementNS(svg.namespaceURI, "circle");
    ring.setAttribute("class", "ring");
    ring.setAttribute("r", "9");
    const hide = () => {
      ring.remove();
      tip.hidden = true;
    };
    svg.addEventListener("pointermove", (event) => {
      const at = new DOMPoint(event.clientX, event.clientY);
      const { x, y } = at.matrixTransform(svg.getScreenCTM().inverse());
      const far = (p) => Math.hypot(p.x - x, p.y - y);
      const nearest = points.reduce((a, b) => (far(b) < far(a) ? b : a));
      if (far(nearest) > near) return hide();
      ring.setAttribute("cx", nearest.x);
      ring.setAttribute("cy", nearest.y);
      svg.append(ring);
      tip.textContent = nearest.text;
      tip.hidden = false;
      const { clientWidth: width } = document.documentElement;
      const left = Math.min(event.clientX + 12, width - tip.offsetWidth - 8);
      tip.style.left = `${Math.max(8, left)}px`;
      tip.style.top = `${event.clientY + 16}px`;
    });
    svg.addEventListener("pointerleave", hide);
  }
})();
