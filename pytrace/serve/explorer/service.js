// Requests to the service: the key, errors as sentences, events as they arrive. All addresses are relative, so that the page
// also works behind a path prefix.

const KEY = "pytrace.key";

let key = remembered();
let askForKey = async () => null;
let asking = null; // one form for all requests that wait for a key

/** What the service refused, or that it could not be reached; `retryAfter` is in seconds, 0 if it named no time. */
export class ServiceError extends Error {
  constructor(message, { status = 0, type = "", requestId = "", retryAfter = 0 } = {}) {
    super(message);
    this.status = status;
    this.type = type;
    this.requestId = requestId;
    this.retryAfter = retryAfter;
  }

  /** Make an error of an ErrorDetail. */
  static of(detail, status = 0, retryAfter = 0) {
    return new ServiceError(detail.message, { status, type: detail.type, requestId: detail.request_id, retryAfter });
  }
}

/** Say how a key is got: `ask(refused)` returns a key, or null if there is none. */
export function setKeyForm(ask) {
  askForKey = ask;
}

function remembered() {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}

async function newKey(used) {
  if (key !== used) return true; // another request has got one meanwhile
  asking ??= askForKey(Boolean(used)).finally(() => {
    asking = null;
  });
  const given = await asking;
  if (!given) return false;
  key = given;
  try {
    sessionStorage.setItem(KEY, key);
  } catch {
    // Then it lasts as long as the page.
  }
  return true;
}

function address(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

function unreachable() {
  return new ServiceError(
    `The service at ${location.host} does not answer. See whether it still runs, then try again.`,
  );
}

function refusal(status, text, header) {
  const retryAfter = Math.ceil(Number(header("Retry-After"))) || 0;
  try {
    return ServiceError.of(JSON.parse(text).error, status, retryAfter);
  } catch {
    return new ServiceError(`The service answered with status ${status} and no explanation.`, { status, retryAfter });
  }
}

async function send(path, { query, headers = {}, ...options } = {}) {
  for (;;) {
    const used = key;
    const sent = used ? { ...headers, Authorization: `Bearer ${used}` } : headers;
    let response;
    try {
      response = await fetch(address(path, query), { ...options, headers: sent, cache: "no-store" });
    } catch (error) {
      throw error.name === "AbortError" ? error : unreachable();
    }
    if (response.ok) return response;
    const error = refusal(response.status, await response.text(), (name) => response.headers.get(name));
    if (response.status !== 401 || !(await newKey(used))) throw error;
  }
}

/** GET a body of JSON. */
export async function get(path, query, signal) {
  return (await send(path, { query, signal })).json();
}

/** DELETE, and return the body. */
export async function remove(path, query) {
  return (await send(path, { query, method: "DELETE" })).json();
}

/** GET a picture and return an address of it for this page, to be revoked when it is no longer shown. */
export async function picture(path, query, signal) {
  return URL.createObjectURL(await (await send(path, { query, signal })).blob());
}

function posted(body, signal) {
  return { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal };
}

/** POST a body and return the answer's. */
export async function post(path, body, signal) {
  return (await send(path, posted(body, signal))).json();
}

/** POST a body and yield the server-sent events of the answer as [name, data]. */
export async function* stream(path, body, signal) {
  const response = await send(path, posted(body, signal));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let left = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (left + value).split(/\r?\n\r?\n/);
      left = blocks.pop();
      for (const block of blocks) {
        const event = parse(block);
        if (event) yield event;
      }
    }
  } catch (error) {
    throw error.name === "TypeError" ? unreachable() : error;
  } finally {
    reader.cancel().catch(() => {});
  }
}

function parse(block) {
  let name = "message";
  const data = [];
  for (const line of block.split(/\r?\n/)) {
    const [, field, value] = /^([^:]*):? ?(.*)$/.exec(line);
    if (field === "event") name = value;
    if (field === "data") data.push(value);
  }
  return data.length ? [name, JSON.parse(data.join("\n"))] : null; // a keep-alive has none
}

/** POST a file's bytes; `progress(share)` is told what has been sent, from 0 to 1. (fetch cannot tell.) */
export async function upload(path, query, file, progress) {
  for (;;) {
    const used = key;
    const request = new XMLHttpRequest();
    request.open("POST", address(path, query));
    request.setRequestHeader("Content-Type", "application/octet-stream");
    if (used) request.setRequestHeader("Authorization", `Bearer ${used}`);
    request.upload.addEventListener("progress", (event) => progress(event.total ? event.loaded / event.total : 1));
    await new Promise((resolve, reject) => {
      request.addEventListener("load", resolve);
      request.addEventListener("error", () => reject(unreachable()));
      request.send(file);
    });
    if (request.status >= 200 && request.status < 300) return JSON.parse(request.responseText);
    const error = refusal(request.status, request.responseText, (name) => request.getResponseHeader(name));
    if (request.status !== 401 || !(await newKey(used))) throw error;
  }
}
