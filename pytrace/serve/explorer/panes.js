// The panes beside the results: one is open at a time, and a pane that was opened from another gives way to it again when it
// closes. On narrow screens a pane is a sheet over everything, and what lies behind it cannot be reached.

import { byId, element } from "./elements.js";

const narrow = matchMedia("(max-width: 899px)");
const open = []; // the pane that is seen stands last, each with what the focus goes back to

function refresh() {
  const seen = open.at(-1)?.pane;
  for (const pane of document.querySelectorAll(".pane")) {
    pane.hidden = pane !== seen;
    byId(`open-${pane.id}`)?.setAttribute("aria-expanded", String(pane === seen));
  }
  document.body.dataset.pane = seen?.id ?? "";
  for (const behind of document.querySelectorAll("[data-behind]")) behind.inert = Boolean(seen) && narrow.matches;
}

narrow.addEventListener("change", refresh);

/** Open a pane; from inside another, that one comes back when this one closes. */
export function openPane(pane) {
  const opener = document.activeElement;
  const inside = open.at(-1)?.pane.contains(opener);
  if (open.at(-1)?.pane !== pane) {
    if (!inside) open.length = 0;
    open.push({ pane, opener });
  }
  refresh();
  pane.querySelector("h2")?.focus({ preventScroll: true });
}

/** Close the pane that is open, if one is, and give the focus back. */
export function closePane() {
  const last = open.pop();
  if (!last) return;
  refresh();
  const back = last.opener?.isConnected && last.opener.checkVisibility() ? last.opener : byId("main");
  back.focus({ preventScroll: true });
}

/** Open a pane, or close it where it is the one that is open. */
export function togglePane(pane) {
  if (open.at(-1)?.pane === pane) closePane();
  else openPane(pane);
}

/** Fill a pane with a heading, a button that closes it, and a body, which is returned. */
export function furnish(pane, title) {
  const body = element("div", { class: "pane-body" });
  pane.replaceChildren(
    element(
      "header",
      { class: "pane-head" },
      element("h2", { id: `${pane.id}-title`, tabindex: "-1" }, title),
      element(
        "button",
        { type: "button", class: "quiet icon", "aria-label": `Close: ${title}`, on: { click: closePane } },
        "✕",
      ),
    ),
    body,
  );
  return body;
}
