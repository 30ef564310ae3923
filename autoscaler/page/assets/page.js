// Keeps the live part of the page current and tells what is pointed at.  Without it the page works by reloading.
"use strict";

const live = document.getElementById("live");
const connection = document.getElementById("connection");
let offset_ms = 0; // the server's clock less this browser's

// ---- new parts: what differs is changed in place, so that focus, selection and scrolling stay ----------------------

// A section has no id and is known by its heading's.
function key(node) {
  return node.nodeType === Node.ELEMENT_NODE ? node.id || node.getAttribute("aria-labelledby") || "" : "";
}

function isAlike(one, other) {
  return one.nodeType === other.nodeType && one.nodeName === other.nodeName && key(one) === key(other);
}

function take(into, from) {
  if (into.nodeType !== Node.ELEMENT_NODE) {
    if (into.nodeValue !== from.nodeValue) into.nodeValue = from.nodeValue;
    return;
  }
  for (const { name } of [...into.attributes]) if (!from.hasAttribute(name)) into.removeAttribute(name);
  for (const { name, value } of from.attributes) if (into.getAttribute(name) !== value) into.setAttribute(name, value);
  if (into.id !== "told") takeChildren(into, from);
}

function drop(node) {
  const next = node.nextSibling;
  node.remove();
  return next;
}

function takeChildren(into, from) {
  const kept = new Set([...from.children].map(key)), named = new Map();
  for (const child of [...into.children]) {
    if (!kept.has(key(child))) child.remove(); // first: what comes after it need not be moved, and keeps the focus
    else if (key(child)) named.set(key(child), child);
  }
  let here = into.firstChild;
  for (const wanted of [...from.childNodes]) {
    // The parser leaves out the white space that a part begins with, and a whole page has there.
    while (here?.nodeType === Node.TEXT_NODE && wanted.nodeType === Node.ELEMENT_NODE) here = drop(here);
    const known = key(wanted) ? named.get(key(wanted)) : undefined;
    if (known && known.nodeName === wanted.nodeName) {
      named.delete(key(known)); // each node once, whatever ids there are
      if (known !== here) into.insertBefore(known, here);
      take(known, wanted);
      here = known.nextSibling;
    } else if (here && isAlike(here, wanted)) {
      take(here, wanted);
      here = here.nextSibling;
    } else {
      into.insertBefore(document.importNode(wanted, true), here);
    }
  }
  while (here) here = drop(here);
}

function renew(part) {
  const focused = document.activeElement;
  takeChildren(live, part);
  if (focused?.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true }); // it was moved
  live.querySelectorAll(".heat").forEach(markPointed);
  readClock();
  tellAges();
}

function show(html) {
  renew(new DOMParser().parseFromString(html, "text/html").body);
}

// ---- the stream: the browser connects again by itself, also to another leader --------------------------------------

const SILENT_MS = 25000; // two and a half of the server's signs of life
const LINGER_MS = 10000; // a browser has six connections for all its tabs: one that nobody looks at gives its own back
let stream = null, heard_ms = 0, next = 0;

function say(text) {
  connection.textContent = text;
  connection.hidden = !text;
}

function hear() {
  heard_ms = performance.now();
  say("");
}

function listen() {
  clearTimeout(next);
  if (stream || document.hidden) return;
  heard_ms = performance.now();
  const own = stream = new EventSource(live.dataset.live);
  own.addEventListener("open", hear);
  own.addEventListener("alive", hear);
  own.addEventListener("part", (event) => { hear(); show(event.data); });
  own.addEventListener("error", () => {
    say("Not connected: this is the last that is known. Trying again.");
    if (own.readyState !== EventSource.CLOSED) return; // it tries by itself
    leave();
    next = setTimeout(listen, 2000 + 2000 * Math.random());
  });
}

function leave() {
  clearTimeout(next);
  stream?.close();
  stream = null;
}

// A proxy may hold the stream back, and a connection may have ended unnoticed: the page is asked for, and a new stream.
async function renewSilent() {
  if (!stream || document.hidden || performance.now() - heard_ms < SILENT_MS) return;
  leave();
  try {
    const answer = await fetch(location.href, { signal: AbortSignal.timeout(SILENT_MS) });
    if (!answer.ok) throw new Error(answer.statusText);
    const parsed = new DOMParser().parseFromString(await answer.text(), "text/html");
    renew(parsed.getElementById("live"));
    say("");
  } catch {
    say("Not connected: this is the last that is known. Trying again.");
  }
  listen();
}

function follow() {
  listen();
  setInterval(renewSilent, 1000);
  // The browser says that its network is gone, or back, long before a stream is missed; a page of this machine may answer.
  for (const change of ["offline", "online"]) addEventListener(change, () => { heard_ms = -Infinity; renewSilent(); });
  addEventListener("pagehide", leave);
  addEventListener("pageshow", (event) => { if (event.persisted) listen(); }); // back, to the page as it was left
  document.addEventListener("visibilitychange", () => {
    clearTimeout(next);
    if (document.hidden) next = setTimeout(leave, LINGER_MS);
    else listen();
  });
}

// ---- ages go on between two parts --------------------------------------------------------------------------------

function readClock() {
  const now = live.querySelector("[data-now]");
  if (now) offset_ms = Date.parse(now.dateTime) - Date.now();
}

function age(seconds) {
  if (seconds < 120) return `${seconds}s`;
  const minutes = Math.floor(seconds / 60), rest = seconds % 60, hours = Math.floor(minutes / 60);
  if (minutes < 10) return rest ? `${minutes}m${rest}s` : `${minutes}m`;
  if (hours >= 48) return `${Math.floor(hours / 24)}d`;
  return hours ? `${hours}h${minutes % 60}m` : `${minutes}m`;
}

function tellAges() {
  const now_ms = Date.now() + offset_ms;
  for (const one of live.querySelectorAll("time[data-age]")) {
    const seconds = Math.max(0, Math.floor((now_ms - Date.parse(one.dateTime)) / 1000));
    const text = one.dataset.age !== "ago" ? age(seconds) : seconds < 1 ? "just now" : `${age(seconds)} ago`;
    if (one.textContent !== text) one.textContent = text;
  }
}

// ---- what is pointed at, or has the focus --------------------------------------------------------------------------

const pointed = new WeakMap(); // by heat picture: the cell that the arrow keys have reached

function tellOf(found) {
  const told = document.getElementById("told");
  if (found && told) told.textContent = found.querySelector("title").textContent;
}

function tell(event) {
  tellOf(event.target.closest?.(".column a, .heat rect"));
}

function point(event) {
  const heat = event.target.closest?.(".heat");
  if (!heat) return;
  const row = Number(heat.dataset.row);
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -row, ArrowDown: row }[event.key];
  if (!step) return;
  event.preventDefault();
  const cells = heat.querySelectorAll("rect");
  const before = pointed.get(heat), next = before + step;
  const at = cells[next] ? next : cells[before] ? before : 0;
  pointed.set(heat, at);
  for (const one of heat.querySelectorAll(".pointed")) one.classList.remove("pointed");
  markPointed(heat);
  tellOf(cells[at]);
}

function markPointed(heat) {
  heat.querySelectorAll("rect")[pointed.get(heat)]?.classList.add("pointed");
}

live.addEventListener("pointerover", tell);
live.addEventListener("focusin", tell);
live.addEventListener("keydown", point);
document.getElementById("noscript").hidden = true;
readClock();
setInterval(tellAges, 1000);
if (live.dataset.live) follow();
