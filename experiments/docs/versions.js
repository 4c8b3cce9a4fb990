// The menu of versions under the name of the site: the same page in another version, or its first page.
const versionsRoot = new URL(".", document.currentScript.src).href;
document.addEventListener("DOMContentLoaded", () => {
  const [shown, ...path] = location.href.split(/[?#]/)[0].slice(versionsRoot.length).split("/");
  const page = path.join("/");
  const menu = document.createElement("details");
  menu.className = "versions";
  menu.append(Object.assign(document.createElement("summary"), {textContent: `Version ${shown}`}));
  for (const [name, pages] of versions) {
    const link = document.createElement("a");
    link.textContent = name;
    link.href = `${versionsRoot}${name}/${pages.includes(page) ? page : "index.html"}`;
    if (name === shown) link.setAttribute("aria-current", "true");
    menu.append(link);
  }
  document.querySelector(".sidebar-brand").after(menu);
});
