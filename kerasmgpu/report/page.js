"use strict";
// The values of a plot's lines at the pointer, or by the arrow keys.
for (const canvas of document.querySelectorAll(".canvas")) {
  const lines = JSON.parse(canvas.dataset.lines);
  const places = [...new Set(lines.flatMap((l) => l.points.map((p) => p[0])))];
  places.sort((a, b) => a - b);
  const cursor = Object.assign(document.createElement("div"), {className: "cursor"});
  const tip = Object.assign(document.createElement("div"), {className: "tip"});
  let at = -1;

  function nearest(sorted, x) {
    let low = 0, high = sorted.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (sorted[middle] < x) low = middle + 1; else high = middle;
    }
    return low && x - sorted[low - 1] < sorted[low] - x ? low - 1 : low;
  }
  function show(index) {
    at = Math.max(0, Math.min(places.length - 1, index));
    const x = places[at];
    tip.replaceChildren();
    let heading = null;
    for (const line of lines) {
      const xs = line.points.map((p) => p[0]);
      const point = line.points[nearest(xs, x)];
      // A line that has ended long before has no value here.
      if (!point || Math.abs(point[0] - x) > 0.02) continue;
      if (!heading) {
        heading = document.createElement("b");
        const label = canvas.nextElementSibling.textContent;
        heading.textContent = `${label}: ${point[2]}`;
        tip.append(heading);
      }
      const row = document.createElement("div");
      const name = document.createElement("span");
      const value = document.createElement("span");
      name.className = `chip ${line.mark}`;
      name.textContent = line.name;
      value.textContent = point[3];
      row.append(name, value);
      tip.append(row);
    }
    cursor.style.left = `${100 * x}%`;
    canvas.append(cursor, tip);
    const room = canvas.clientWidth - tip.offsetWidth;
    const left = x * canvas.clientWidth + (x < 0.5 ? 12 : -12 - tip.offsetWidth);
    tip.style.left = `${Math.max(-40, Math.min(room, left))}px`;
  }
  function hide() { cursor.remove(); tip.remove(); at = -1; }
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    show(nearest(places, (event.clientX - box.left) / box.width));
  });
  canvas.addEventListener("pointerleave", hide);
  canvas.addEventListener("blur", hide);
  canvas.addEventListener("keydown", (event) => {
    const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (step) { show(at < 0 && step < 0 ? places.length - 1 : at + step); event.preventDefault(); }
    if (event.key === "Escape") hide();
  });
}
