// The page as a whole: what the service has, the question that is asked, panes, keys and dropped files.

import { announce, byId, count, element } from "./elements.js";
import { Documents } from "./documents.js";
import { drawHistory, setUpHistory, storeResult } from "./history.js";
import { closePane, togglePane } from "./panes.js";
import { readDocument } from "./reader.js";
import { foundSentences, ResultView } from "./results.js";
import { get, post, setKeyForm, stream, ServiceError } from "./service.js";

const METHOD = "pytrace.method";
const NARROW = "(max-width: 899px)"; // where panes are sheets

let info = null;
let view = null;
let running = null; // an AbortController while a question is asked
let loaded = null; // settled when `info` has been asked for

const documents = new Documents({ read: readDocument, changed: loadInfo });

// ---- what the service has

async function loadInfo() {
  try {
    info = await get("v1/info");
  } catch (error) {
    byId("facts").textContent = "";
    if (!view)
      byId("results").replaceChildren(
        element("div", { class: "notice bad", role: "alert" }, element("p", {}, error.message), retry()),
      );
    return;
  }
  if (!view) byId("results").replaceChildren();
  documents.info = info;
  byId("facts").textContent = `${count(info.documents, "document")}, ${count(info.passages, "passage")}`;
  byId("facts").title = [info.language_model, info.encoder, info.cross_encoder, `pytrace ${info.version}`]
    .filter(Boolean)
    .join(" · ");
  fillMethods();
  if (!info.documents && !view) {
    const how = info.read_only ? "" : " Drop files on this page, or open Documents, to add some.";
    byId("results").replaceChildren(element("p", { class: "notice" }, `The index is empty.${how}`));
  }
}

function retry() {
  return element("button", { type: "button", on: { click: loadInfo } }, "Try again");
}

function fillMethods() {
  const select = byId("method");
  const chosen = select.value || remembered() || "";
  const options = info.methods.map(({ name }) => element("option", { value: name }, name));
  select.replaceChildren(element("option", { value: "" }, `${info.method} (default)`), ...options);
  if (info.methods.some(({ name }) => name === chosen)) select.value = chosen;
  const answers = info.methods.length > 0 && info.language_model !== "";
  select.closest("label").hidden = !answers;
  byId("submit").hidden = !answers || running !== null;
  byId("check-choice").hidden = !answers;
  summarize();
}

function remembered() {
  try {
    return localStorage.getItem(METHOD);
  } catch {
    return null;
  }
}

function summarize() {
  const method = info?.methods.find(({ name }) => name === byId("method").value);
  byId("summary").textContent = method && !byId("method").closest("label").hidden ? method.summary : "";
}

// ---- asking

function lines(id) {
  return byId(id)
    .value.split("\n")
    .map((line) => line.trim())
    .filter(Boolean);
}

function requestOf(kind) {
  const question = byId("question").value.trim();
  const passages = byId("passages").valueAsNumber || undefined;
  const common = { question, where: lines("where"), passages };
  if (kind === "search") return common;
  const check = byId("check").checked && !byId("check-choice").hidden;
  return { ...common, method: byId("method").value, settings: lines("settings"), check, stream: true };
}

function ask(kind) {
  if (running) return;
  const problem = byId("question-problem");
  const request = requestOf(kind);
  problem.hidden = request.question !== "";
  byId("question").toggleAttribute("aria-invalid", !request.question);
  if (!request.question) {
    problem.textContent = "Type a question first.";
    byId("question").focus();
    return;
  }
  run({ id: crypto.randomUUID?.() ?? String(Math.random()), at: Date.now(), kind, request, times: {} });
}

async function run(asked) {
  running = new AbortController();
  const { signal } = running;
  const shown = new ResultView(asked, { read: (place) => read(place, asked), again: () => again(asked) });
  view = shown;
  busy(true);
  shown.stages.start();
  if (matchMedia(NARROW).matches) byId("results").scrollIntoView({ block: "start" });
  try {
    if (asked.kind === "search") await search(asked, shown, signal);
    else await answer(asked, shown, signal);
    storeResult(asked);
  } catch (error) {
    const cancelled = signal.aborted;
    shown.stages.stop(cancelled ? "cancelled" : "failed");
    if (cancelled) {
      shown.cancelled();
      announce("Cancelled.");
    } else {
      shown.problem(
        error instanceof ServiceError
          ? error
          : new ServiceError(`This page could not show the answer: ${error.message}`),
      );
    }
  } finally {
    running = null;
    busy(false);
  }
}

async function search(asked, shown, signal) {
  take("search", await post("v1/search", asked.request, signal), asked, shown);
}

async function answer(asked, shown, signal) {
  for await (const [name, data] of stream("v1/ask", asked.request, signal)) {
    if (name === "error") throw ServiceError.of(data.error ?? data);
    if (shown.stages.names.includes(name)) take(name, data, asked, shown);
  }
  if (!asked.answer) throw new ServiceError("The service ended before it had answered. Try again.");
}

function take(stage, result, asked, shown) {
  asked[stage] = result;
  asked.times[stage] = shown.stages.arrive(stage, result);
  shown.add(stage);
}

function again({ kind, request }) {
  run({ id: crypto.randomUUID?.() ?? String(Math.random()), at: Date.now(), kind, request, times: {} });
}

function busy(now) {
  const focused = document.activeElement;
  byId("cancel").hidden = !now;
  byId("submit").hidden = now || byId("method").closest("label").hidden;
  byId("search-only").disabled = now;
  byId("results").setAttribute("aria-busy", String(now));
  // The button that had the focus is gone: the one that stands there now has it.
  if (now && (focused === byId("submit") || focused === byId("search-only"))) byId("cancel").focus();
  if (!now && focused === byId("cancel")) byId("submit").hidden ? byId("search-only").focus() : byId("submit").focus();
}

// ---- reading

function read(place, asked) {
  view?.graph?.mark(place.id);
  readDocument(place, foundSentences(asked));
}

function showStored(asked) {
  running?.abort();
  byId("question").value = asked.request.question;
  view = new ResultView(asked, { read: (place) => read(place, asked), again: () => again(asked) });
  view.showAll();
  if (matchMedia(NARROW).matches) closePane();
  byId("results").scrollIntoView({ block: "start" });
  announce(`Stored result of: ${asked.request.question}`);
}

// ---- the key

function askForKey(refused) {
  const dialog = byId("key");
  const field = byId("key-field");
  const problem = byId("key-problem");
  problem.hidden = !refused;
  problem.textContent = refused ? "The service did not take that key. See that all of it was copied." : "";
  field.value = "";
  dialog.showModal();
  return new Promise((resolve) => {
    byId("key-cancel").onclick = () => dialog.close();
    dialog.returnValue = "";
    byId("key-form").onsubmit = () => {
      dialog.returnValue = "given";
    };
    dialog.onclose = () => resolve(dialog.returnValue ? field.value.trim() : null);
  });
}

// ---- keys and dropped files

function keys(event) {
  const typing = event.target.closest("input, textarea, select");
  if (byId("key").open) return;
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    closePaneIfSheet();
    byId("question").focus();
    byId("question").select();
  }
  if (event.key === "Escape") closePane();
}

function closePaneIfSheet() {
  if (byId("main").inert) closePane();
}

function setUpDropping() {
  const files = (event) => event.dataTransfer?.types.includes("Files");
  let depth = 0;
  const over = (by) => {
    depth = by === 0 ? 0 : Math.max(0, depth + by);
    byId("drop").hidden = depth === 0 || Boolean(info?.read_only);
  };
  addEventListener("dragenter", (event) => files(event) && over(1));
  addEventListener("dragleave", (event) => files(event) && over(-1));
  addEventListener("dragover", (event) => files(event) && event.preventDefault());
  addEventListener("drop", async (event) => {
    if (!files(event)) return;
    event.preventDefault();
    over(0);
    const dropped = [...event.dataTransfer.files]; // the event forgets them
    if (byId("documents").hidden) await openDocuments();
    if (!info?.read_only) documents.add(dropped);
  });
}

async function openDocuments() {
  await loaded; // whether documents may be added
  documents.open();
  togglePane(byId("documents"));
}

function setUp() {
  setKeyForm(askForKey);
  setUpHistory(showStored);
  byId("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    ask(byId("submit").hidden ? "search" : "ask");
  });
  byId("ask").noValidate = true; // the page says it itself
  byId("search-only").addEventListener("click", () => ask("search"));
  byId("cancel").addEventListener("click", () => running?.abort());
  byId("question").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    byId("ask").requestSubmit();
  });
  byId("method").addEventListener("change", () => {
    summarize();
    try {
      localStorage.setItem(METHOD, byId("method").value);
    } catch {
      // Then the next visit begins with the usual one.
    }
  });
  byId("open-history").addEventListener("click", () => {
    drawHistory();
    togglePane(byId("history"));
  });
  byId("open-documents").addEventListener("click", openDocuments);
  document.addEventListener("keydown", keys);
  setUpDropping();
  loaded = loadInfo();
}

setUp();
