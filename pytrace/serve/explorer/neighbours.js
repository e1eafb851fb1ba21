// The passages that one is linked with: as a list here, and in the graph.

import { arrowKeys, element, spelled } from "./elements.js";
import { get } from "./service.js";

/** Return a section that fills itself; `found(list)` is told what there is, `close()` that it is no longer wanted. */
export function neighboursSection(passage, { read, found, close }) {
  const name = passage.title || "this passage";
  const body = element(
    "div",
    { "aria-live": "polite" },
    element("p", { class: "waiting" }, "Looking for neighbours …"),
  );
  const section = element(
    "section",
    { class: "neighbours" },
    element("h3", { tabindex: "-1" }, `Neighbours of ${name}`),
    element("button", { type: "button", class: "link", on: { click: close } }, "Remove from graph"),
    body,
  );
  fill(passage, body, read, found);
  return section;
}

async function fill(passage, body, read, found) {
  let neighbours;
  try {
    ({ neighbours } = await get("v1/neighbours", { passage: passage.id, limit: 20 }));
  } catch (error) {
    body.replaceChildren(element("p", { class: "problem", role: "alert" }, error.message));
    return;
  }
  if (!neighbours.length) {
    body.replaceChildren(element("p", { class: "empty" }, "No other passage shares a name with it."));
    return;
  }
  const list = element(
    "ul",
    { class: "rows compact" },
    neighbours.map((neighbour) => row(neighbour, passage.title, read)),
  );
  arrowKeys(list, "button.row");
  body.replaceChildren(list);
  found(neighbours);
}

function row(neighbour, name, read) {
  const ways = [];
  if (neighbour.forth > 0) ways.push(`links there ${neighbour.forth.toFixed(2)}`);
  if (neighbour.back > 0) ways.push(`links back ${neighbour.back.toFixed(2)}`);
  return element(
    "li",
    {},
    element(
      "button",
      { type: "button", class: "row", on: { click: () => read(neighbour) } },
      element("span", { class: "row-title" }, neighbour.title || "Untitled"),
      element(
        "span",
        { class: "row-facts" },
        [neighbour.name ? `by the name “${spelled(neighbour.name, [neighbour.title, name])}”` : "", ...ways]
          .filter(Boolean)
          .join(" · "),
      ),
    ),
  );
}
