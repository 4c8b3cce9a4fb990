// For those who read without a mouse: what scrolls can be focused, and the captions of the list of pages have a level.
window.addEventListener("load", () => {
  for (const part of document.querySelectorAll("pre, .table-wrapper")) {
    if (part.scrollWidth > part.clientWidth) part.tabIndex = 0;
  }
  for (const caption of document.querySelectorAll("[role=heading]:not([aria-level])")) caption.ariaLevel = "2";
});
