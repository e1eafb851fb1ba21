// Runs before the page is drawn, so that a remembered choice of colours does not flash. Not a module for that reason.
(() => {
  const kept = "pytrace.theme";
  const next = { "": "dark", dark: "light", light: "" };
  const spoken = { "": "as the system has them", dark: "dark", light: "light" };
  const signs = { "": "◐", dark: "●", light: "○" };
  let theme = "";
  try {
    theme = localStorage.getItem(kept) ?? "";
  } catch {
    // Storage may be forbidden; then the choice lasts as long as the page.
  }
  if (!(theme in next)) theme = "";

  function apply() {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    const button = document.getElementById("theme");
    if (!button) return;
    button.textContent = signs[theme];
    button.setAttribute("aria-label", `Colours: ${spoken[theme]}`);
    button.title = `Colours: ${spoken[theme]}`;
    dispatchEvent(new Event("themechange"));
  }

  apply();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
  document.addEventListener("DOMContentLoaded", () => {
    apply();
    document.getElementById("theme").addEventListener("click", () => {
      theme = next[theme];
      try {
        localStorage.setItem(kept, theme);
      } catch {
        // As above.
      }
      apply();
    });
  });
})();
