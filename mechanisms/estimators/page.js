const section = document.getElementById("points"), card = JSON.parse(section.dataset.card);
const show = (x) => String(Math.round(x * 1000) / 1000).replace("-", "\u2212");
function add() {
  let total = card.base, open = 0;
  for (const box of section.querySelectorAll("fieldset")) {
    const chosen = box.querySelector("input:checked"), field = box.querySelector("input[type=number]");
    if (chosen) total += Number(chosen.dataset.points);
    else if (field && field.value !== "") {
      const [low, first, high, last] = field.dataset.line.split(",").map(Number);
      const share = (Math.min(Math.max(Number(field.value), low), high) - low) / (high - low);
      total += first + share * (last - first);
    } else open += 1;
  }
  document.getElementById("total").textContent = show(total);
  const row = card.risks ? card.risks[0].findIndex((end) => end === null || total <= end) : -1;
  const risk = row < 0 ? "" : `, risk ${(100 * card.risks[1][row]).toFixed(1)}%`;
  const verdict = card.classes[total > card.threshold ? 1 : 0] + risk;
  document.getElementById("verdict").textContent = open ? `${open} of ${section.querySelectorAll("fieldset").length} boxes open` : verdict;
  document.querySelectorAll("#risks tbody tr").forEach((tr, k) => tr.classList.toggle("here", !open && k === row));
}
section.addEventListener("input", add);
section.querySelectorAll("input[type=number]").forEach((f) => f.addEventListener("input", () => {
  const chosen = f.closest("fieldset").querySelector("input:checked");
  if (chosen) chosen.checked = false;
}));
add();
