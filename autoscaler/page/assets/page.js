// Keeps the live part of the page current and tells what is pointed at.  Without it the page works by reloading.
"use strict";

const live = document.getElementById("live");
const connection = document.getElementById("connection");
let offset_ms = 0; // the server's clock less this browser's

// ---- new parts: what differs is changed in place, so that focus, selection and scrolling stay ----------------------

function key(node) {
  return node.nodeType === Node.ELEMENT_NODE ? node.id : "";
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

function takeChildren(into, from) {
  const named = new Map();
  for (const child of into.children) if (child.id) named.set(child.id, child);
  let here = into.firstChild;
  for (const wanted of [...from.childNodes]) {
    const known = key(wanted) ? named.get(key(wanted)) : undefined;
    if (known && known.nodeName === wanted.nodeName) {
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
  while (here) {
    const next = here.nextSibling;
    here.remove();
    here = next;
  }
}

function show(html) {
  const parsed = new DOMParser().parseFromString(html, "text/html");
  takeChildren(live, parsed.body);
  readClock();
  tellAges();
}

// ---- the stream: the browser connects again by itself, also to another leader --------------------------------------

function listen() {
  const stream = new EventSource(live.dataset.live);
  stream.addEventListener("open", () => { connection.hidden = true; });
  stream.addEventListener("part", (event) => { connection.hidden = true; show(event.data); });
  stream.addEventListener("error", () => {
    connection.textContent = "Not connected: this is the last that is known. Trying again.";
    connection.hidden = false;
    if (stream.readyState === EventSource.CLOSED) setTimeout(listen, 3000);
  });
  addEventListener("pagehide", () => stream.close());
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
    const text = age(Math.max(0, Math.floor((now_ms - Date.parse(one.dateTime)) / 1000)));
    if (one.textContent !== text) one.textContent = text;
  }
}

// ---- what is pointed at, or has the focus --------------------------------------------------------------------------

function tell(event) {
  const found = event.target.closest?.("[data-told]");
  const told = document.getElementById("told");
  if (found && told) told.textContent = found.dataset.told;
}

live.addEventListener("pointerover", tell);
live.addEventListener("focusin", tell);
document.getElementById("noscript").hidden = true;
readClock();
setInterval(tellAges, 1000);
if (live.dataset.live) listen();
