// A table of words that is wider than the screen is stacked, with the head of its column before each cell. Tables of
// numbers, whose columns are compared, scroll.
window.addEventListener("load", () => {
  for (const wrapper of document.querySelectorAll(".table-wrapper")) {
    if (wrapper.scrollWidth <= wrapper.clientWidth || wrapper.querySelector("td.text-right")) continue;
    const heads = [...wrapper.querySelectorAll("thead th")].map((head) => head.textContent.trim());
    for (const row of wrapper.querySelectorAll("tbody tr")) {
      [...row.cells].forEach((cell, column) => { if (cell.textContent.trim()) cell.dataset.head = heads[column]; });
    }
    wrapper.classList.add("words");
  }
});
