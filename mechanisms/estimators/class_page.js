const section = document.getElementById("points"), card = JSON.parse(section.dataset.card);
const show = (x) => String(Math.round(x * 1000) / 1000).replace("-", "\u2212");
const numbers = (text) => text.split(",").map(Number);
function add() {
  const totals = card.bases.slice();
  let open = 0;
  for (const box of section.querySelectorAll("fieldset")) {
    const chosen = box.querySelector("input:checked"), field = box.querySelector("input[type=number]");
    if (chosen) numbers(chosen.dataset.points).forEach((p, k) => { totals[k] += p; });
    else if (field && field.value !== "") {
      const [low, high] = numbers(field.dataset.range), last = numbers(field.dataset.last);
      const share = (Math.min(Math.max(Number(field.value), low), high) - low) / (high - low);
      numbers(field.dataset.first).forEach((p, k) => { totals[k] += p + share * (last[k] - p); });
    } else open += 1;
  }
  const outputs = section.querySelectorAll(".total b output");
  totals.forEach((total, k) => { outputs[k].textContent = show(total); });
  const best = totals.indexOf(Math.max(...totals));
  outputs.forEach((output, k) => output.parentElement.classList.toggle("best", !open && k === best));
  document.getElementById("verdict").textContent = open ? `${open} of ${section.querySelectorAll("fieldset").length} boxes open` : card.classes[best];
}
section.addEventListener("input", add);
section.querySelectorAll("input[type=number]").forEach((f) => f.addEventListener("input", () => {
  const chosen = f.closest("fieldset").querySelector("input:checked");
  if (chosen) chosen.checked = false;
}));
add();
