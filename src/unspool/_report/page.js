"use strict";
// Values under the pointer, the slider of the budget, and the raw data as a file. No other script is needed.
(function () {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const tip = document.getElementById("tip");
  const svgName = "http://www.w3.org/2000/svg";

  function show(words, event) {
    tip.textContent = words;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const x = event.clientX + 14 + box.width > innerWidth ? event.clientX - box.width - 14 : event.clientX + 14;
    const y = event.clientY + 14 + box.height > innerHeight ? event.clientY - box.height - 14 : event.clientY + 14;
    tip.style.left = Math.max(4, Math.min(x, innerWidth - box.width - 4)) + "px";
    tip.style.top = Math.max(4, y) + "px";
  }

  function hide() {
    tip.hidden = true;
  }

  function nearest(places, x) {
    let best = 0;
    for (let i = 1; i < places.length; i++) {
      if (Math.abs(places[i] - x) < Math.abs(places[best] - x)) best = i;
    }
    return best;
  }

  // Charts with numbers along an axis: the nearest one is told, and marked by a line.
  const pointers = read("pointers");
  for (const figure of document.querySelectorAll("[data-chart]")) {
    const found = pointers[figure.dataset.chart];
    const svg = figure.querySelector("svg.chart");
    const cursor = svg && svg.querySelector(".cursor");
    if (!found || !cursor || !found.places.length) continue;
    const line = document.createElementNS(svgName, "line");
    line.setAttribute("y1", "14");
    line.setAttribute("y2", "212");
    line.setAttribute("visibility", "hidden");
    cursor.appendChild(line);
    const move = (event) => {
      const box = svg.getBoundingClientRect();
      const at = nearest(found.places, ((event.clientX - box.left) / box.width) * 460);
      line.setAttribute("x1", found.places[at]);
      line.setAttribute("x2", found.places[at]);
      line.setAttribute("visibility", "visible");
      show(found.tips[at].join("\n"), event);
    };
    svg.addEventListener("pointermove", move);
    svg.addEventListener("pointerdown", move);
    svg.addEventListener("pointerleave", () => {
      line.setAttribute("visibility", "hidden");
      hide();
    });
  }

  // Things that say what they are.
  for (const part of document.querySelectorAll("[data-tip]")) {
    const tell = (event) => show(part.dataset.tip, event);
    part.addEventListener("pointermove", tell);
    part.addEventListener("pointerdown", tell);
    part.addEventListener("pointerleave", hide);
  }

  // The slider along the budgets.
  const slider = document.getElementById("budget");
  if (slider) {
    const rows = read("budgets");
    const handle = document.querySelector("#budgets-figure .handle");
    const output = document.getElementById("budget-told");
    const move = () => {
      const row = rows[Number(slider.value)];
      handle.setAttribute("cx", row.at[0]);
      handle.setAttribute("cy", row.at[1]);
      output.textContent = row.words;
      slider.setAttribute("aria-valuetext", row.words);
    };
    slider.addEventListener("input", move);
    move();
  }

  // The raw data as a file.
  for (const link of document.querySelectorAll("a[data-save]")) {
    const text = document.getElementById(link.dataset.save).textContent;
    link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  }
})();
